// What every attention kernel of one call is given, whatever its type or tiles: the member of the family, the shape,
// the learned scales; which keys a row attends, and which rows and keys a tile must visit. Must not know tiles' sizes,
// shared memory or element types. Formulas: kernels/attention/score.h.
//
// Rows (queries) and keys are 0-based within a head; `head` counts b * H + h.
#pragma once

#include <cstdint>

#include "kernels/attention/score.h"
#include "kernels/attention/variants.h"
#include "kernels/backend.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda::attention {

// Of re-centred scores, and null for all others (recentre.h has the formulas).
struct Recentring {
  float* mean_products;  // [B,H,T]
  float* row_weights;    // [B,H,T]; of backward, as what follows
  float* vectors;        // [B,H,T,D]
};

// Plain data, passed to kernels by value.
struct Problem {
  score::Config config;
  Activation activation;
  int B, T, H, D;
  int window;  // 0: none
  bool alibi;
  const float* learned_s;  // [H], null: 1
  const float* learned_b;  // [H], null: 0
  Recentring recentring = {};
};

// Checks the arguments' contract but for the head dimension.
Problem MakeProblem(const AttentionSpec& spec, const AttentionShape& shape, const float* learned_s,
                    const float* learned_b);

// The first key that a row attends; the last is the row itself.
__host__ __device__ __forceinline__ int FirstKey(const Problem& problem, int row) {
  return problem.window > 0 && row >= problem.window ? row - problem.window + 1 : 0;
}
// One past the last row that attends a key.
__host__ __device__ __forceinline__ int LastRow(const Problem& problem, int key) {
  return problem.window > 0 && key < problem.T - problem.window ? key + problem.window : problem.T;
}

// Of rows that only fill up a tile (T and more), anything finite.
__device__ __forceinline__ score::RowConst RowOf(const Problem& problem, int head, int row) {
  const int h = head % problem.H, n = row - FirstKey(problem, row) + 1;
  const score::RowConst constants =
      score::MakeRowConst(problem.config, row, n, problem.learned_s != nullptr ? problem.learned_s[h] : 1.0f,
                          problem.learned_b != nullptr ? problem.learned_b[h] : 0.0f,
                          problem.alibi ? score::AlibiSlope(h, problem.H) : 0.0f);
  if (problem.recentring.mean_products == nullptr || row >= problem.T) return constants;
  return score::Recentred(constants, n, problem.recentring.mean_products[static_cast<int64_t>(head) * problem.T + row]);
}
// What the rows kernel leaves of a re-centred row for LaunchKeySums; r: the sum of its score gradients.
__device__ __forceinline__ void StoreRowWeight(const Problem& problem, int head, int row, float c, float r) {
  const float n = static_cast<float>(row - FirstKey(problem, row) + 1);
  problem.recentring.row_weights[static_cast<int64_t>(head) * problem.T + row] = c * r / n;
}

// --- exp and tails: rows whose scores are shifted by their maximum (score.h: kShifted, kExpTail) ---

// What a row that backward meets is computed by.
__device__ __forceinline__ Activation ActivationOf(const Problem& problem, const score::RowStat& stat) {
  const bool tail = score::VisitActivation(problem.activation, [](auto phi) { return decltype(phi)::kExpTail; });
  return tail && stat.shift != 0 ? Activation::kExp : problem.activation;
}
// Whether u = phi(score - row maximum); such rows know their shift only after a sweep over their keys.
__device__ __forceinline__ bool IsShifted(const Problem& problem, Activation activation) {
  return problem.config.l1 && score::VisitActivation(activation, [](auto phi) { return decltype(phi)::kShifted; });
}
// Whether a row whose largest u is this, computed by problem.activation, must be swept again by ExpActivation.
__device__ __forceinline__ bool LiesInTail(const Problem& problem, float largest_u) {
  return problem.config.l1 && largest_u < score::kTailValue &&
         score::VisitActivation(problem.activation, [](auto phi) { return decltype(phi)::kExpTail; });
}

__device__ __forceinline__ score::RowStat LoadRowStat(const float* row_stats, int64_t row) {
  const float4 x = reinterpret_cast<const float4*>(row_stats)[row];
  return {x.x, x.y, x.z, x.w};
}
__device__ __forceinline__ void StoreRowStat(float* row_stats, int64_t row, const score::RowStat& stat) {
  reinterpret_cast<float4*>(row_stats)[row] = make_float4(stat.shift, stat.a, stat.threshold, stat.c);
}

// Adds the special rows of a warp to the call's counts (attention.h; null: not wanted). All lanes call; c: RowStat's,
// or 1 in lanes that have no row.
__device__ __forceinline__ void CountSpecialRows(float c, unsigned long long* counts) {
  const unsigned zero = __ballot_sync(kFullMask, c == 0), uncontrasted = __ballot_sync(kFullMask, c < 0);
  if (counts == nullptr || threadIdx.x % kWarpSize != 0) return;
  if (zero != 0) atomicAdd(&counts[0], static_cast<unsigned long long>(__popc(zero)));
  if (uncontrasted != 0) atomicAdd(&counts[1], static_cast<unsigned long long>(__popc(uncontrasted)));
}

// --- what the rows kernel of backward leaves for those that follow it ---

// Beside RowStat, of each row: its constants, D = dO . out (0 without l1), and E' (0 without sharpening).
struct RowGradient {
  float c, beta, mean_gradient, e;
};

// The parts of AttentionBackward's workspace.
struct Workspace {
  float4* rows;      // [B,H,T], RowGradient
  float2* partials;  // [B,H,tiles]: sums over the rows of a tile of d loss / d s and d loss / d b
};
inline constexpr int kRowsOfPartial = 64;  // tiles of the rows kernel are no smaller than this
// Of the bf16 kernels instead, which lay out the workspace themselves (kernels_bf16.h): floats a row, of whole tiles.
inline constexpr int kBf16RowFloats = 9;
Workspace WorkspaceOf(const AttentionShape& shape, void* workspace);
// Of AttentionForward's workspace, or behind the other parts of AttentionBackward's. All null unless re-centred.
Recentring ForwardRecentring(const AttentionSpec& spec, void* workspace);
Recentring BackwardRecentring(const AttentionSpec& spec, const AttentionShape& shape, void* workspace);

__device__ __forceinline__ RowGradient LoadRowGradient(const float4* rows, int64_t row) {
  const float4 x = rows[row];
  return {x.x, x.y, x.z, x.w};
}
__device__ __forceinline__ void StoreRowGradient(float4* rows, int64_t row, const RowGradient& gradient) {
  rows[row] = make_float4(gradient.c, gradient.beta, gradient.mean_gradient, gradient.e);
}

// dlearned_s, dlearned_b [H] += the partials of B heads and `tiles` tiles each, in a fixed order. Nothing is launched
// for a spec that learns nothing.
void AddLearnedGradients(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape,
                         const float2* partials, int tiles, float* dlearned_s, float* dlearned_b);

}  // namespace ablate::cuda::attention
