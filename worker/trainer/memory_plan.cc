#include "worker/trainer/memory_plan.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

// Gives addresses that nobody may use. Its model is allocated on, never run.
class CountingBackend : public Backend {
 public:
  explicit CountingBackend(const Backend& like) : like_(like) {}

  std::string device_class() const override { return like_.device_class(); }
  std::string device_kind() const override { return like_.device_kind(); }
  int64_t preferred_rows() const override { return like_.preferred_rows(); }
  Precision precision() const override { return like_.precision(); }
  absl::Status CheckHeadDim(int D) const override { return like_.CheckHeadDim(D); }
  int64_t LogitStride(int V) const override { return like_.LogitStride(V); }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    // Apart, as real ones are: the model tells them by their addresses.
    next_ += (bytes + 63) / 64 * 64 + 64;
    return reinterpret_cast<void*>(next_);
  }
  void Free(void*) override {}
  void CopyToDevice(void*, const void*, size_t) override {}
  void CopyToHost(void*, const void*, size_t) override { Unused(); }
  void Zero(void*, size_t) override { Unused(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  void EmbeddingForward(const int32_t*, const float*, Element*, int, int) override { Unused(); }
  void EmbeddingBackward(const int32_t*, const Element*, float*, int, int, int) override { Unused(); }
  void LayerNormForward(const Element*, const float*, const float*, Element*, float*, float*, int, int) override {
    Unused();
  }
  void LayerNormBackward(const Element*, const Element*, const float*, const float*, const float*, Element*, float*,
                         float*, int, int) override {
    Unused();
  }
  void LinearForward(const Element*, const float*, const float*, Element*, int, int, int) override { Unused(); }
  void LinearBackward(const Element*, const Element*, const float*, Element*, float*, float*, int, int, int) override {
    Unused();
  }
  void GeluForward(const Element*, Element*, int64_t) override { Unused(); }
  void GeluBackward(const Element*, const Element*, Element*, int64_t) override { Unused(); }
  void Add(const Element*, const Element*, Element*, int64_t) override { Unused(); }
  void QkvForward(const Element*, const float*, const float*, QkNorm, Element*, Element*, Element*, float*, float*,
                  const AttentionShape&) override {
    Unused();
  }
  void QkvBackward(const Element*, const Element*, const Element*, const Element*, const Element*, const float*,
                   const float*, QkNorm, const float*, const float*, Element*, const AttentionShape&) override {
    Unused();
  }
  void AttentionForward(const AttentionSpec&, const AttentionShape&, const Element*, const Element*, const Element*,
                        const float*, const float*, Element*, float*) override {
    Unused();
  }
  AttentionCounts TakeAttentionCounts() override { return {}; }
  void AttentionBackward(const AttentionSpec&, const AttentionShape&, const Element*, const Element*, const Element*,
                         const float*, const float*, const Element*, const Element*, const float*, Element*, Element*,
                         Element*, float*, float*) override {
    Unused();
  }
  void AttentionStatistics(const AttentionSpec&, const AttentionShape&, const Element*, const Element*, const float*,
                           const float*, float*) override {
    Unused();
  }
  void CacheKeyValue(const Element*, Element*, Element*, const AttentionShape&, int) override { Unused(); }
  void AttentionDecode(const AttentionSpec&, const AttentionShape&, int, const int32_t*, const Element*, const float*,
                       const float*, const float*, const float*, Element*, Element*, Element*) override {
    Unused();
  }
  void ArgMax(const Element*, int32_t*, int, int) override { Unused(); }
  void CrossEntropyForward(const Element*, const int32_t*, float*, int, int) override { Unused(); }
  void CrossEntropyForwardBackward(Element*, const int32_t*, float*, float, int, int) override { Unused(); }
  double SumOfSquares(const float*, int64_t) override {
    Unused();
    return 0;
  }
  void AdamW(float*, const float*, float*, float*, int64_t, const AdamWParams&) override { Unused(); }

 private:
  static void Unused() { LOG(FATAL) << "a plan for memory computes nothing"; }

  const Backend& like_;
  uintptr_t next_ = 64;
};

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(bytes)); }

// bf16 products read the weights rounded, from a copy that the backend keeps.
int64_t RoundedWeights(const Backend& backend, const MemoryNeed& need) {
  return backend.precision() == Precision::kBf16 ? need.weights / 2 : 0;
}

absl::Status TooLarge(std::string_view what, const MemoryNeed& need, int64_t free, std::string_view advice) {
  return absl::ResourceExhaustedError(absl::StrCat(ToAbsl(what), " needs ", Bytes(need.total()), " of device memory, ",
                                                   Bytes(free), " are free (", need.Describe(), "). ", ToAbsl(advice)));
}

}  // namespace

std::string MemoryNeed::Describe() const {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : {std::pair{"weights", weights},
                                    {"gradients", gradients},
                                    {"optimiser", optimizer},
                                    {"activations", activations},
                                    {"logits", logits},
                                    {"workspace", workspace}}) {
    if (bytes > 0) parts.push_back(absl::StrCat(name, " ", Bytes(bytes)));
  }
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<MemoryNeed> TrainingNeed(const Backend& backend, const ModelConfig& config, int B, int T,
                                        Recompute recompute) {
  CountingBackend counting(backend);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Create(&counting, config, recompute));
  MemoryNeed need;
  need.weights = model->allocated_bytes();
  ABLATE_RETURN_IF_ERROR(model->ReserveTraining(B, T));
  need.gradients = need.weights;
  need.optimizer = 2 * need.weights;
  need.logits = model->LogitBytes(int64_t{model->TrainingGroup(B, T)} * T);
  need.activations = model->allocated_bytes() - need.weights - need.gradients - need.optimizer - need.logits;
  need.workspace = backend.WorkspaceBytes({model->TrainingGroup(B, T), T, config.heads, config.head_dim(), 0},
                                          config.vocab, /*backward=*/true) +
                   RoundedWeights(backend, need);
  return need;
}

absl::StatusOr<MemoryNeed> EvaluationNeed(const Backend& backend, const ModelConfig& config, EvaluationPass pass, int B,
                                          int T, const EvalOptions& options) {
  CountingBackend counting(backend);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Create(&counting, config));
  MemoryNeed need;
  need.weights = model->allocated_bytes();
  ABLATE_RETURN_IF_ERROR(model->ReserveEvaluation(pass, B, T, options));
  need.logits = model->LogitBytes(int64_t{model->EvaluationGroup(B, T)} * T);
  need.activations = model->allocated_bytes() - need.weights - need.logits;
  need.workspace = backend.WorkspaceBytes({model->EvaluationGroup(B, T), T, config.heads, config.head_dim(), 0},
                                          config.vocab, /*backward=*/false) +
                   RoundedWeights(backend, need);
  // What a step over the cache may take (Backend::AttentionDecode).
  if (pass == EvaluationPass::kGeneration) need.workspace += int64_t{4} * B * config.heads * T;
  return need;
}

absl::StatusOr<Recompute> PlanTraining(Backend* backend, const ModelConfig& config, int batch, int accumulation, int T,
                                       Recompute wanted) {
  const int64_t free = backend->FreeBytes();
  const Recompute first = wanted == Recompute::kBlocks ? Recompute::kBlocks : Recompute::kNone;
  ABLATE_ASSIGN_OR_RETURN(const MemoryNeed need, TrainingNeed(*backend, config, batch / accumulation, T, first));
  if (need.total() <= free) return first;
  MemoryNeed least = need;
  if (first == Recompute::kNone) {
    ABLATE_ASSIGN_OR_RETURN(least, TrainingNeed(*backend, config, batch / accumulation, T, Recompute::kBlocks));
    if (wanted == Recompute::kAuto && least.total() <= free) {
      LOG(INFO) << "training needs " << Bytes(need.total()) << " of device memory, " << Bytes(free)
                << " are free: activations are computed again in the backward pass, which needs "
                << Bytes(least.total()) << "; the results are the same";
      return Recompute::kBlocks;
    }
    if (least.total() <= free) {
      return TooLarge("training", need, free,
                      absl::StrCat("Start the worker with --recompute auto: that needs ", Bytes(least.total())));
    }
  }
  const bool keeps = wanted == Recompute::kNone;
  const std::string what = keeps ? "training with --recompute none" : "training with recomputed activations";
  // The next finer parts of the batch that fit, in the mode asked for; where none does, with recomputation.
  for (const Recompute mode : {keeps ? Recompute::kNone : Recompute::kBlocks, Recompute::kBlocks}) {
    for (int parts = accumulation + 1; parts <= batch; ++parts) {
      if (batch % parts != 0) continue;
      ABLATE_ASSIGN_OR_RETURN(const MemoryNeed finer, TrainingNeed(*backend, config, batch / parts, T, mode));
      if (finer.total() > free) continue;
      return TooLarge(what, keeps ? need : least, free,
                      absl::StrCat("With ", keeps && mode == Recompute::kBlocks ? "--recompute auto and " : "",
                                   "train.accumulation ", parts, " instead of ", accumulation, " it needs ",
                                   Bytes(finer.total()), "; or use a GPU, or a share of one, with more memory"));
    }
  }
  return TooLarge(what, keeps ? need : least, free,
                  "Not even one sequence at a time fits: use a GPU, or a share of one, with more memory, or a smaller "
                  "model or train.length");
}

absl::Status PlanEvaluation(Backend* backend, const ModelConfig& config, EvaluationPass pass, int B, int T,
                            const EvalOptions& options, int64_t held) {
  ABLATE_ASSIGN_OR_RETURN(const MemoryNeed need, EvaluationNeed(*backend, config, pass, B, T, options));
  const int64_t free = backend->FreeBytes();
  if (need.total() - held <= free) return absl::OkStatus();
  ABLATE_ASSIGN_OR_RETURN(const MemoryNeed least, EvaluationNeed(*backend, config, pass, 1, T, options));
  return TooLarge(
      "evaluation", need, free + held,
      least.total() - held <= free
          ? absl::StrCat("Lower eval.batch_tokens: ", T, " (a sequence at a time) needs ", Bytes(least.total()))
          : std::string("Not even one sequence fits: use a GPU, or a share of one, with more memory, or a shorter "
                        "length"));
}

}  // namespace ablate
