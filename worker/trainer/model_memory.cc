// The device memory of Model: what is allocated, when, and how large the pieces are that passes work in.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker/trainer/model_internal.h"

namespace ablate {
namespace {

// Rows that evaluation takes at a time through everything but attention; whole sequences up to this many go together.
// Logits held at a time, unless kLeastLogitRows rows take more.
constexpr int64_t kEvalRows = 2048, kMostEvalRows = 32768;
constexpr int64_t kLogits = int64_t{1} << 22, kWideLogits = int64_t{1} << 28;
constexpr int64_t kLeastLogitRows = 256;

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [memory, bytes] : blocks_) backend_->Free(memory);
}

absl::StatusOr<void*> DeviceMemory::Allocate(int64_t bytes) {
  ABLATE_ASSIGN_OR_RETURN(void* memory, backend_->Allocate(bytes));
  blocks_[memory] = bytes;
  current_ += bytes;
  peak_ = std::max(peak_, current_);
  return memory;
}

void DeviceMemory::Free(void* memory) {
  const auto it = blocks_.find(memory);
  if (it == blocks_.end()) return;
  current_ -= it->second;
  backend_->Free(memory);
  blocks_.erase(it);
}

absl::Status Arena::Commit() {
  ABLATE_ASSIGN_OR_RETURN(base_, memory_->Allocate(bytes_));
  for (const auto& [set, offset] : pieces_) set(static_cast<char*>(base_) + offset);
  pieces_.clear();
  return absl::OkStatus();
}

absl::Status Model::Impl::EnsureTrainingState() {
  for (float** arena : {&gradients, &adam_m, &adam_v}) {
    if (*arena != nullptr) continue;
    ABLATE_ASSIGN_OR_RETURN(void* zeros, memory.Allocate(arena_floats * static_cast<int64_t>(sizeof(float))));
    *arena = static_cast<float*>(zeros);
  }
  return absl::OkStatus();
}

// Devices that want more rows than evaluation on the CPU takes have thousands of cores, and the memory to match.
bool Model::Impl::wide_device() const { return backend->preferred_rows() > kEvalRows; }

int64_t Model::Impl::EvalRows() const { return std::clamp(backend->preferred_rows(), kEvalRows, kMostEvalRows); }

int64_t Model::Impl::LogitRows(int64_t rows) const {
  const int64_t elements = wide_device() ? kWideLogits : kLogits;
  return std::min(rows, std::max(kLeastLogitRows, elements / config.vocab));
}

int Model::Impl::TrainingGroup(int B, int T) const {
  return static_cast<int>(std::min<int64_t>(B, std::max<int64_t>(1, backend->preferred_rows() / T)));
}

int Model::Impl::EvaluationGroup(int B, int T) const {
  return static_cast<int>(std::min<int64_t>(B, std::max<int64_t>(1, EvalRows() / T)));
}

absl::Status Model::Impl::EnsureActivations(int B, int T) {
  if (activations != nullptr && activations->B == B && activations->T == T) return absl::OkStatus();
  activations.reset();
  auto a = std::make_unique<Activations>(&memory);
  a->B = B;
  a->T = T;
  const int64_t C = config.width, N = int64_t{B} * T, NC = N * C, BHT = N * config.heads;
  const bool l2 = config.attention.qk_norm == QkNorm::kL2, rope = config.position == PositionKind::kRope;
  struct Arena& arena = a->arena;
  a->layers.resize(config.layers);
  for (int l = 0; l < config.layers; ++l) {
    LayerActivations& layer = a->layers[l];
    layer = {};
    for (Element** p : {&layer.residual, &layer.attention}) arena.Take(p, NC);
    arena.Take(&layer.row_stats, AttentionRowStatFloats({B, T, config.heads, config.head_dim()}));
    if (l > 0 && recompute == Recompute::kBlocks) continue;  // the first layer's
    for (Element** p : {&layer.ln1, &layer.q, &layer.k, &layer.v, &layer.middle, &layer.ln2}) arena.Take(p, NC);
    for (float** p : {&layer.mean1, &layer.rstd1, &layer.mean2, &layer.rstd2}) arena.Take(p, N);
    if (l2) {
      arena.Take(&layer.q_norm, BHT);
      arena.Take(&layer.k_norm, BHT);
    }
    arena.Take(&layer.fc, 4 * NC);
    arena.Take(&layer.gelu, 4 * NC);
  }
  for (Element** p : {&a->final_residual, &a->lnf, &a->d_residual, &a->d_narrow, &a->dq, &a->dk, &a->dv})
    arena.Take(p, NC);
  for (float** p : {&a->meanf, &a->rstdf, &a->losses}) arena.Take(p, N);
  for (int32_t** p : {&a->tokens, &a->targets, &a->positions}) arena.Take(p, N);
  arena.Take(&a->wide, 4 * NC);
  arena.Take(&a->qkv, 3 * NC);
  arena.Take(&a->logits, LogitRows(N) * backend->LogitStride(config.vocab));
  if (rope) {
    arena.Take(&a->cos, int64_t{T} * config.head_dim() / 2);
    arena.Take(&a->sin, int64_t{T} * config.head_dim() / 2);
  }
  ABLATE_RETURN_IF_ERROR(arena.Commit());
  if (recompute == Recompute::kBlocks) {
    for (LayerActivations& layer : a->layers) {
      LayerActivations shared = a->layers[0];
      shared.residual = layer.residual;
      shared.attention = layer.attention;
      shared.row_stats = layer.row_stats;
      layer = shared;
    }
  }
  if (rope) WriteRopeTable(a->cos, a->sin, T, config.rope_base);
  std::vector<int32_t> positions(N);
  for (int64_t i = 0; i < N; ++i) positions[i] = static_cast<int32_t>(i % T);
  backend->CopyToDevice(a->positions, positions.data(), sizeof(int32_t) * N);
  activations = std::move(a);
  return absl::OkStatus();
}

absl::Status Model::Impl::EnsureEvalArrays(int group, int T, bool l2) {
  // The last batch of an evaluation is often smaller.
  if (eval_arrays != nullptr && eval_arrays->group >= group && eval_arrays->T == T && eval_arrays->l2 >= l2) {
    return absl::OkStatus();
  }
  eval_arrays.reset();
  auto e = std::make_unique<EvalArrays>(&memory);
  e->group = group;
  e->T = T;
  e->l2 = l2;
  const int64_t C = config.width, rows = int64_t{group} * T;
  const bool rope = config.position == PositionKind::kRope;
  struct Arena& arena = e->arena;
  for (Element** p : {&e->x, &e->narrow, &e->q, &e->k, &e->v}) arena.Take(p, rows * C);
  arena.Take(&e->qkv, 3 * rows * C);
  arena.Take(&e->wide, 4 * std::min(rows, EvalRows()) * C);
  arena.Take(&e->logits, LogitRows(rows) * backend->LogitStride(config.vocab));
  for (float** p : {&e->mean, &e->rstd, &e->losses}) arena.Take(p, rows);
  for (int32_t** p : {&e->tokens, &e->targets, &e->positions}) arena.Take(p, rows);
  if (l2) {
    arena.Take(&e->q_norm, rows * config.heads);
    arena.Take(&e->k_norm, rows * config.heads);
  }
  if (rope) {
    arena.Take(&e->cos, int64_t{T} * config.head_dim() / 2);
    arena.Take(&e->sin, int64_t{T} * config.head_dim() / 2);
  }
  ABLATE_RETURN_IF_ERROR(arena.Commit());
  std::vector<int32_t> positions(rows);
  for (int64_t i = 0; i < rows; ++i) positions[i] = static_cast<int32_t>(i % T);
  backend->CopyToDevice(e->positions, positions.data(), sizeof(int32_t) * rows);
  eval_arrays = std::move(e);
  return absl::OkStatus();
}

}  // namespace ablate
