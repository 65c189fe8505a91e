// The inside of Model, shared by model.cc (state, optimiser), model_memory.cc (allocations), model_passes.cc (forward,
// backward, evaluation), model_generation.cc and model_inspection.cc (what attention does in evaluation).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/trainer/model.h"

namespace ablate {

// The backend's memory that one model holds, counted.
class DeviceMemory {
 public:
  explicit DeviceMemory(Backend* backend) : backend_(backend) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Zeroed.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* memory);  // null is fine
  int64_t current_bytes() const { return current_; }
  int64_t peak_bytes() const { return peak_; }
  int activation_bytes() const { return backend_->activation_bytes(); }

 private:
  Backend* const backend_;
  std::map<void*, int64_t> blocks_;
  int64_t current_ = 0, peak_ = 0;
};

// One allocation cut into named pieces: Take() all of them, then Commit().
class Arena {
 public:
  explicit Arena(DeviceMemory* memory) : memory_(memory) {}
  ~Arena() { memory_->Free(base_); }
  void Take(float** piece, int64_t floats) { TakeBytes(piece, floats * static_cast<int64_t>(sizeof(float))); }
  void Take(int32_t** piece, int64_t ints) { TakeBytes(piece, ints * static_cast<int64_t>(sizeof(int32_t))); }
  void Take(Element** piece, int64_t elements) { TakeBytes(piece, elements * memory_->activation_bytes()); }
  absl::Status Commit();

 private:
  template <typename T>
  void TakeBytes(T** piece, int64_t bytes) {
    *piece = nullptr;
    pieces_.emplace_back([piece](char* at) { *piece = reinterpret_cast<T*>(at); }, bytes_);
    bytes_ += (bytes + 63) / 64 * 64;
  }

  DeviceMemory* const memory_;
  void* base_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<std::pair<std::function<void(char*)>, int64_t>> pieces_;  // how to set a piece, and where it begins
};

// Weights or gradients of one layer; null where the model has none.
struct LayerParameters {
  float *ln1_w, *ln1_b, *qkv_w, *qkv_b, *ssmax_s, *ssmax_b, *proj_w, *proj_b, *ln2_w, *ln2_b, *fc_w, *fc_b, *fcproj_w,
      *fcproj_b;
};

// What backward needs of one layer. N = B T rows. With recomputation only residual, attention and row_stats are the
// layer's own; the rest is one set of arrays for all layers.
struct LayerActivations {
  Element* residual;       // [N,C] the block's input
  Element* ln1;            // [N,C]
  float *mean1, *rstd1;    // [N]
  Element *q, *k, *v;      // [B,H,T,D]
  float *q_norm, *k_norm;  // [B,H,T], null without l2
  Element* attention;      // [N,C]
  float* row_stats;        // [B,H,T,4]
  Element* middle;         // [N,C] after the attention's residual
  Element* ln2;
  float *mean2, *rstd2;
  Element *fc, *gelu;  // [N,4C]
};

struct Activations {
  explicit Activations(DeviceMemory* memory) : arena(memory) {}
  int B = 0, T = 0;  // what they have room for
  Arena arena;
  std::vector<LayerActivations> layers;
  Element *final_residual = nullptr, *lnf = nullptr;
  float *meanf = nullptr, *rstdf = nullptr;
  Element* logits = nullptr;  // [chunk, V]
  float* losses = nullptr;
  Element *wide = nullptr, *qkv = nullptr;              // scratch [N,4C], [N,3C]
  Element *d_residual = nullptr, *d_narrow = nullptr;   // [N,C]
  Element *dq = nullptr, *dk = nullptr, *dv = nullptr;  // [B,H,T,D]
  float *cos = nullptr, *sin = nullptr;                 // [T,D/2]
  int32_t *tokens = nullptr, *targets = nullptr, *positions = nullptr;
  // Of Backend::Repeat, by what a pass over these arrays depends on beside them: sequences and gradient scale.
  std::map<std::pair<int, float>, int64_t> pass_keys;
};

// What evaluation of `group` sequences at a time works in. rows = group T.
struct EvalArrays {
  explicit EvalArrays(DeviceMemory* memory) : arena(memory) {}
  int group = 0, T = 0;
  bool l2 = false;
  Arena arena;
  Element *x, *narrow, *q, *k, *v;  // [rows,C]
  Element *qkv, *wide, *logits;     // [rows,3C], [wide_rows,4C], [chunk,V]
  float *mean, *rstd, *losses;      // [rows]
  float *q_norm = nullptr, *k_norm = nullptr, *cos = nullptr, *sin = nullptr;
  int32_t *tokens, *targets, *positions;
};

// What generation of B sequences of up to `length` tokens works in, beside EvalArrays for the prompts.
struct GenerationArrays {
  explicit GenerationArrays(DeviceMemory* memory) : arena(memory) {}
  int B = 0, length = 0;
  Arena arena;
  std::vector<Element*> keys, values;               // [B,H,length,D] of each layer
  Element *x, *narrow, *attention, *qkv, *wide, *logits;  // [B,C], ..., [B,3C], [B,4C], [chunk,V]
  float *mean, *rstd;                               // [B]
  float *losses, *cos = nullptr, *sin = nullptr;    // [length,B], [length,D/2]
  int32_t *tokens, *lengths, *positions;            // [length,B]: of each step
};

// What attention's inspection works in, beside EvalArrays.
struct InspectionArrays {
  explicit InspectionArrays(DeviceMemory* memory) : arena(memory) {}
  int group = 0, T = 0;
  bool maps = false;
  Arena arena;
  float* statistics = nullptr;                      // [group,H,T,kAttentionStatistics]; null of maps
  Element *identity = nullptr, *columns = nullptr;  // of maps: [H,T,D], [T,C]
};

// Options of an evaluation, resolved against the model.
struct EvalSetting {
  AttentionSpec spec;
  double rope_base = 0;
  int window = 0;
};

void AddCounts(const AttentionCounts& counts, AttentionCounts* total);

struct Model::Impl {
  Impl(Backend* backend, ModelConfig config, Recompute recompute);
  ~Impl();

  absl::Status EnsureTrainingState();
  absl::Status EnsureActivations(int B, int T);
  absl::Status EnsureEvalArrays(int group, int T, bool l2);
  absl::Status EnsureGenerationArrays(int B, int length);
  absl::Status EnsureInspectionArrays(int group, int T, bool maps);
  // Sequences of a batch that go through together.
  int TrainingGroup(int B, int T) const;
  int EvaluationGroup(int B, int T) const;
  int64_t EvalRows() const;
  bool wide_device() const;
  absl::StatusOr<float*> Arena(StateKind kind, int index);
  absl::StatusOr<EvalSetting> Setting(const EvalOptions& options) const;
  // What a batch must satisfy; InvalidArgument says which. `targets` may be null.
  absl::Status CheckBatch(const int32_t* tokens, const int32_t* targets, int B, int T, const AttentionSpec& spec) const;

  // The table's pointers within an arena of weights or gradients.
  LayerParameters Layer(float* arena, int layer) const;
  float* Parameter(float* arena, const char* name) const;
  // Rows of logits made at a time.
  int64_t LogitRows(int64_t rows) const;
  // cos and sin [T, D/2] into device memory, unless they hold that already.
  void WriteRopeTable(float* cos, float* sin, int T, double base);
  // x = wte[tokens] (+ wpe[positions]); scratch [rows, C] is used with learned positions.
  void Embed(const int32_t* tokens, const int32_t* positions, Element* x, Element* scratch, int rows);

  // Cuts the batch into passes of whole sequences, backend->preferred_rows() rows each.
  absl::StatusOr<BatchLoss> ForwardBackward(const int32_t* tokens, const int32_t* targets, int B, int T,
                                            double grad_scale);
  // The first B sequences of the activations' arrays are used.
  absl::Status Pass(const int32_t* tokens, const int32_t* targets, int B, int T, double grad_scale, BatchLoss* result);
  // What the device does of a pass: a fixed list of ops on the activations' arrays, from tokens and targets to losses.
  void PassOps(int B, int T, float grad_scale);
  // A layer's ops up to its GELU: everything that backward reads. `again`: in the backward pass, with attention's
  // output at hand.
  void LayerForward(int layer, const AttentionShape& shape, bool again);
  void LayerBackward(int layer, const AttentionShape& shape);
  // Called in every layer of an evaluation of `shape`, when eval_arrays holds its packed projections (qkv) and attention's
  // inputs (q, k, v), which it must leave alone. `first`: the first sequence.
  using LayerHook = std::function<absl::Status(int layer, int first, const AttentionShape& shape)>;
  absl::StatusOr<BatchLoss> Evaluate(const int32_t* tokens, const int32_t* targets, int B, int T,
                                     const EvalSetting& setting, float* losses, int32_t* likeliest = nullptr,
                                     const LayerHook& hook = nullptr);
  // From eval_arrays' tokens to the last layer's output in x.
  absl::Status EvalLayers(const AttentionSpec& spec, int first, const AttentionShape& shape, const LayerHook& hook);
  // Generation's parts: the prompts, into the cache and the rows of narrow; and one step of all sequences.
  absl::Status Prefill(const Prompts& prompts, int length, const EvalSetting& setting);
  void DecodeStep(int step, int B, int T, const EvalSetting& setting);
  // The most likely tokens after the B rows of narrow, as those of `step`, and their losses.
  void PickTokens(int step, int B);

  Backend* const backend;
  const ModelConfig config;
  const Recompute recompute;
  const std::vector<ParameterInfo> table;
  const int64_t arena_floats;
  DeviceMemory memory;
  float *weights = nullptr, *gradients = nullptr, *adam_m = nullptr, *adam_v = nullptr;
  int64_t step = 0;
  std::unique_ptr<Activations> activations;
  std::unique_ptr<EvalArrays> eval_arrays;
  std::unique_ptr<GenerationArrays> generation_arrays;
  std::unique_ptr<InspectionArrays> inspection_arrays;
};

}  // namespace ablate
