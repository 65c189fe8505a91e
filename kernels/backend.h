// The one interface between the trainer's model and the mathematics: memory and ops of a device. Two implementations:
// kernels/cpu (OpenBLAS and own kernels) and kernels/cuda. Must not know jobs, data files or the optimiser's schedule.
//
// Letters in shapes: B sequences, T positions, C model width, H heads, D = C / H head dimension, V vocabulary,
// N = B * T rows. All arrays are dense, row-major, in the backend's memory (host memory on the CPU). Parameters, their
// gradients, optimiser state and statistics are float32; activations and their gradients (Element*) are of the
// backend's precision: float32, or bfloat16 with accumulation in float32.
// "+=" marks gradients that are added to; all others are overwritten.
//
// Errors: an op whose arguments break its contract is a CHECK failure (a bug of ours); a device failure is a Status
// from Synchronize: Internal (device fault), ResourceExhausted (out of memory).
// Thread rule: one thread drives a Backend; it uses its own threads inside an op. Results do not depend on how many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/variants.h"

namespace ablate {

struct AttentionShape {
  int B = 0, T = 0, H = 0, D = 0;
  // Positions i attend to j with i - window < j <= i; 0: all j <= i. n_i is the number of attended keys.
  int window = 0;
};

// Rows whose weights had a special case; added to, so that a caller may sum over layers and steps.
struct AttentionCounts {
  int64_t zero_rows = 0;          // all weights zero: output and gradients are zero
  int64_t uncontrasted_rows = 0;  // sharpened rows with largest y <= 1e-3 kept their unsharpened weights
};

// What AttentionStatistics says of a row's final weights w over its n attended keys: kAttentionStatistics floats, in
// this order.
enum AttentionStatistic {
  kRowEntropy,  // nats, of w / sum w: 0 where one key has all, log n where all have the same; 0 of a zero row
  kRowLargest,  // the largest w (as it stands: members without l1 need not sum to 1)
  kRowFirst,    // w of position 0; 0 where a window leaves it out
  kRowZeros,    // share of the n keys whose w the formula makes 0 (phi = 0, or y = 0); underflow does not count
  kRowKind,     // 0: plain; 1: a sharpened row without contrast, w = a; 2: a zero row (others 0, kRowZeros 1)
  kAttentionStatistics
};

// What activations are stored in, and what matrix products read. kBf16: the parameters stay float32 (master weights);
// a product reads them rounded, from a copy that the backend may keep (2 bytes a weight, which plans for memory count).
enum class Precision { kFloat32, kBf16 };

// An element of an activation array, opaque: only a backend knows how many bits it has (activation_bytes()).
struct Element;

struct AdamWParams {
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  int64_t step = 1;          // 1-based, for the bias correction
  float gradient_scale = 1;  // multiplies every gradient first (clipping)
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu", "cuda".
  virtual std::string device_class() const = 0;
  // What results depend on beside the build, e.g. "cpu/Zen" (OpenBLAS core) or "cuda/H200/cublas-13.0".
  virtual std::string device_kind() const = 0;
  // Rows (tokens) that a training pass should take at a time, so that a layer's activations stay in the caches; a
  // larger batch is cut into whole sequences and their gradients are added up. Fixed for a device kind: the order of
  // sums hangs on it.
  virtual int64_t preferred_rows() const { return std::numeric_limits<int64_t>::max(); }

  virtual Precision precision() const { return Precision::kFloat32; }
  int activation_bytes() const { return precision() == Precision::kBf16 ? 2 : 4; }
  // The element `offset` elements after `array`.
  Element* At(Element* array, int64_t offset) const;
  const Element* At(const Element* array, int64_t offset) const;

  // --- memory: 64-byte aligned, zeroed. ResourceExhausted: none left. ---
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual void CopyToDevice(void* to, const void* from_host, size_t bytes) = 0;
  virtual void CopyToHost(void* to_host, const void* from, size_t bytes) = 0;
  virtual void Zero(void* memory, size_t bytes) = 0;
  // Waits for what was started; reports the first failure since the last call.
  virtual absl::Status Synchronize() = 0;
  // Bytes that Allocate could still give, for a plan before a job starts; a large number where it cannot be known.
  virtual int64_t FreeBytes() { return std::numeric_limits<int64_t>::max(); }
  // Bytes that the backend takes by itself for passes over such sequences (width H D, vocabulary V), with or without
  // the backward pass, beside what it has taken already; an upper bound, counted against FreeBytes.
  virtual int64_t WorkspaceBytes([[maybe_unused]] const AttentionShape& shape, [[maybe_unused]] int V,
                                 [[maybe_unused]] bool backward) const {
    return 0;
  }
  // InvalidArgument: there is no attention for heads of this dimension here (says for which there is).
  virtual absl::Status CheckHeadDim([[maybe_unused]] int D) const { return absl::OkStatus(); }
  // Runs `work`, which only starts ops on this backend's memory: no copy from or to the host, no Synchronize, no
  // SumOfSquares, no TakeAttentionCounts, the same calls with the same arguments whenever `key` is the same. A backend
  // may record it at the first call and replay the recording later (CUDA graphs). Free forgets all recordings. Keys are
  // the callers' to keep apart: two models on one backend use different ones.
  virtual void Repeat([[maybe_unused]] int64_t key, const std::function<void()>& work) { work(); }

  // --- embedding: out[N,C] = table[tokens[N], C] ---
  virtual void EmbeddingForward(const int32_t* tokens, const float* table, Element* out, int N, int C) = 0;
  // dtable[V,C] +=
  virtual void EmbeddingBackward(const int32_t* tokens, const Element* dout, float* dtable, int N, int C, int V) = 0;

  // --- layer norm over C, eps 1e-5; mean[N], rstd[N] are kept for backward ---
  virtual void LayerNormForward(const Element* x, const float* w, const float* b, Element* out, float* mean,
                                float* rstd, int N, int C) = 0;
  // dx += ; dw[C] += ; db[C] +=
  virtual void LayerNormBackward(const Element* dout, const Element* x, const float* w, const float* mean,
                                 const float* rstd, Element* dx, float* dw, float* db, int N, int C) = 0;

  // --- linear: out[N,O] = x[N,I] w[O,I]^T + b[O]; b may be null ---
  virtual void LinearForward(const Element* x, const float* w, const float* b, Element* out, int N, int I, int O) = 0;
  // dx[N,I] = dout w (null: not wanted) ; dw[O,I] += dout^T x ; db[O] += column sums (null: no bias)
  virtual void LinearBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw, float* db,
                              int N, int I, int O) = 0;

  // --- logits: x[N,I] w[V,I]^T. Rows of logits lie LogitStride(V) elements apart, which is more than V where products
  // want aligned rows; nobody but these and cross-entropy reads them, and nobody reads what lies between rows. ---
  virtual int64_t LogitStride(int V) const { return V; }
  virtual void LogitsForward(const Element* x, const float* w, Element* logits, int N, int I, int V) {
    LinearForward(x, w, nullptr, logits, N, I, V);
  }
  // As LinearBackward.
  virtual void LogitsBackward(const Element* dlogits, const Element* x, const float* w, Element* dx, float* dw, int N,
                              int I, int V) {
    LinearBackward(dlogits, x, w, dx, dw, nullptr, N, I, V);
  }

  // --- GELU, tanh form ---
  virtual void GeluForward(const Element* x, Element* out, int64_t n) = 0;
  // dx = dout * gelu'(x); dx may be dout
  virtual void GeluBackward(const Element* dout, const Element* x, Element* dx, int64_t n) = 0;

  // --- out = a + b; out may be a ---
  virtual void Add(const Element* a, const Element* b, Element* out, int64_t n) = 0;

  // --- attention inputs. qkv[N, 3C] packed [Q|K|V], heads contiguous.
  // q, k, v [B,H,T,D]: split; RoPE (rotate-half, positions from 0) on q and k with table cos/sin[T, D/2]
  // (null: no rotation), then q and k divided by max(norm, 1e-12) if qk_norm = l2, with the norms in q_norm, k_norm
  // [B,H,T].
  virtual void QkvForward(const Element* qkv, const float* cos, const float* sin, QkNorm qk_norm, Element* q,
                          Element* k, Element* v, float* q_norm, float* k_norm, const AttentionShape& shape) = 0;
  // dqkv[N,3C] from dq, dk, dv; q, k, q_norm, k_norm as left by forward.
  virtual void QkvBackward(const Element* dq, const Element* dk, const Element* dv, const Element* q, const Element* k,
                           const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                           Element* dqkv, const AttentionShape& shape) = 0;

  // --- attention proper (after RoPE and normalisation; spec.qk_norm is not applied here).
  // q, k, v [B,H,T,D] -> out[N,C] (heads contiguous, ready for the output projection).
  // learned_s, learned_b [H] (null where the spec has none). row_stats: AttentionRowStatFloats(shape) floats kept for
  // backward, or null when no backward follows. Memory beside the arguments is linear in T.
  virtual void AttentionForward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q,
                                const Element* k, const Element* v, const float* learned_s, const float* learned_b,
                                Element* out, float* row_stats) = 0;
  // Special rows of all AttentionForward calls since the last call of this, which also waits for them.
  virtual AttentionCounts TakeAttentionCounts() = 0;
  // dq, dk, dv [B,H,T,D] overwritten; dlearned_s, dlearned_b [H] += (null where the spec has none). out, row_stats as
  // forward left them.
  virtual void AttentionBackward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q,
                                 const Element* k, const Element* v, const float* learned_s, const float* learned_b,
                                 const Element* out, const Element* dout, const float* row_stats, Element* dq,
                                 Element* dk, Element* dv, float* dlearned_s, float* dlearned_b) = 0;

  // Statistics of each row's weights, from what AttentionForward is given: statistics[B,H,T,kAttentionStatistics].
  // Computed over tiles, in the passes that forward has; memory beside the arguments is linear in T. Not counted in
  // TakeAttentionCounts (kRowKind says it by row).
  virtual void AttentionStatistics(const AttentionSpec& spec, const AttentionShape& shape, const Element* q,
                                   const Element* k, const float* learned_s, const float* learned_b,
                                   float* statistics) = 0;

  // --- generation: a cache of keys and values of B sequences, keys, values [B,H,capacity,D] each, where position t has
  // row t. Keys are kept before RoPE and before l2 normalisation, so that one cache serves whatever base the evaluation
  // has.
  //
  // Rows [0, T) of the cache from the packed projections of whole sequences, qkv[B*T,3C] (those that QkvForward
  // reads). T <= capacity. Of padded sequences the padding is cached too; AttentionDecode overwrites it.
  virtual void CacheKeyValue(const Element* qkv, Element* keys, Element* values, const AttentionShape& shape,
                             int capacity) = 0;
  // One new position of each sequence: appends its key and value to the cache, then attends. What QkvForward and
  // AttentionForward would give for that row of the whole sequence: spec.qk_norm is applied here, and RoPE of the table
  // cos/sin[shape.T, D/2] (null: no rotation), on the query and on every cached key. Equal within rounding, not to the
  // bit. Sequence b has n_b keys, the new one's included, so its new position is n_b - 1: lengths[b] of lengths[B] in
  // the backend's memory, 1 <= lengths[b] <= shape.T (a caller's duty, not checked on a device), or shape.T of all where
  // lengths is null. shape.T <= capacity. qkv[B,3C]: the packed projections of the new positions. out[B,C].
  // Its rows are not counted in TakeAttentionCounts. Memory beside the arguments: at most 4 bytes a cached key of a head,
  // [B,H,capacity].
  virtual void AttentionDecode(const AttentionSpec& spec, const AttentionShape& shape, int capacity,
                               const int32_t* lengths, const Element* qkv, const float* cos, const float* sin,
                               const float* learned_s, const float* learned_b, Element* keys, Element* values,
                               Element* out) = 0;
  // out[N]: the index of the largest of each row of logits[N,V], the lowest of equal ones; rows lie LogitStride(V)
  // apart. NaN is above every number, so that a broken model shows as the index of its first NaN.
  virtual void ArgMax(const Element* logits, int32_t* out, int N, int V) = 0;

  // --- cross-entropy: losses[N] = -log softmax(logits[N,V])[target], in nats; a target of -1 scores 0 and has no
  // gradient. Rows lie LogitStride(V) apart.
  virtual void CrossEntropyForward(const Element* logits, const int32_t* targets, float* losses, int N, int V) = 0;
  // The same, and logits become their gradient times `scale` (1 / number of targets, for a mean).
  virtual void CrossEntropyForwardBackward(Element* logits, const int32_t* targets, float* losses, float scale, int N,
                                           int V) = 0;

  // --- optimiser ---
  // Sum of squares of n floats, accumulated in double in a fixed order.
  virtual double SumOfSquares(const float* x, int64_t n) = 0;
  // AdamW with bias correction and decoupled decay: p -= lr * (mhat / (sqrt(vhat) + eps) + weight_decay * p).
  virtual void AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) = 0;
};

inline Element* Backend::At(Element* array, int64_t offset) const {
  return reinterpret_cast<Element*>(reinterpret_cast<char*>(array) + offset * activation_bytes());
}
inline const Element* Backend::At(const Element* array, int64_t offset) const {
  return reinterpret_cast<const Element*>(reinterpret_cast<const char*>(array) + offset * activation_bytes());
}

// Floats of row_stats for one call: 4 a row ([B,H,T,4]).
inline int64_t AttentionRowStatFloats(const AttentionShape& s) { return int64_t{4} * s.B * s.H * s.T; }

// The CPU backend, with `threads` threads (>= 1). ResourceExhausted when they cannot be had.
absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(int threads);

}  // namespace ablate
