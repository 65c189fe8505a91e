// The second half of backward in float: a block takes 64 keys of a head and sweeps the queries that attend them, for dk
// and dv; RowStat and RowGradient of each query are known. Scores lie as elsewhere, a row a query; the sums run over
// rows, so that two barriers stand between the steps of a tile.
#include "kernels/cuda/attention/kernels_fp32.h"
#include "kernels/cuda/attention/rows_fp32.h"
#include "kernels/cuda/attention/tiles_fp32.h"

namespace ablate::cuda::attention {
namespace {

template <int kWidthOf>
struct ColumnsTile {
  static constexpr int kWidth = kWidthOf;
  static constexpr int kKeys = 64, kQueries = kWidth <= 32 ? 64 : kWidth <= 64 ? 56 : kWidth <= 96 ? 32 : 16;
  static constexpr int kStride = kWidth + kPad, kScoreStride = kKeys + kPad;
  // Products: a warp computes all keys of a quarter of the queries, or half the keys of half of them.
  static constexpr int kKeyWarps = kQueries == 64 ? 1 : 2;
  static constexpr int kWarpKeys = kKeys / kKeyWarps, kWarpQueries = kQueries * kKeyWarps / kWarps;
  static constexpr int kR = kWarpQueries / 4, kC = kWarpKeys / 8;
  // Weights: kRowLanes threads a query; with 56 queries half a warp rests.
  static constexpr int kRowLanes = kQueries >= 56 ? 2 : kQueries == 32 ? 4 : 8;
  static_assert(kQueries * kRowLanes <= kThreads && kQueries % 8 == 0);
  // Sums: thread (thread / 16, thread % 16) has keys 4 (thread / 16) + {0, 1, 2, 3} + {0, 32} and columns
  // 2 (thread % 16 + 16 c) and the next.
  static constexpr int kOutKeys = 8, kOut = kWidth / 16;
  static constexpr int kK = 0, kV = kK + kKeys * kStride, kQ = kV + kKeys * kStride, kDout = kQ + kQueries * kStride,
                       kScores = kDout + kQueries * kStride, kGradients = kScores + kQueries * kScoreStride,
                       kFloats = kGradients + kQueries * kScoreStride;
  static constexpr size_t kBytes = kFloats * sizeof(float);
  static_assert(kBytes <= kMostSharedBytes);
};

// sums[i][c] += weights[row][key i] * vectors[row][column c] over rows [0, rows).
template <class Tile>
__device__ __forceinline__ void AccumulateKeys(const float* weights, const float* vectors, int rows,
                                               float (&sums)[Tile::kOutKeys][Tile::kOut]) {
#pragma unroll 2
  for (int row = 0; row < rows; ++row) {
    const float4 low = LoadFloat4(weights + row * Tile::kScoreStride),
                 high = LoadFloat4(weights + row * Tile::kScoreStride + 32);
    const float w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int c = 0; c < Tile::kOut; c += 2) {
      const float2 x = *reinterpret_cast<const float2*>(vectors + row * Tile::kStride + 16 * c);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[i][c] = score::MulAdd(w[i], x.x, sums[i][c]);
        sums[i][c + 1] = score::MulAdd(w[i], x.y, sums[i][c + 1]);
      }
    }
  }
}

template <class Tile>
__global__ void __launch_bounds__(kThreads, 2)
    BackwardColumnsKernel(Problem problem, int tiles, const float* q, const float* k, const float* v, const float* dout,
                          const float* row_stats, const float4* row_gradients, float* dk, float* dv) {
  constexpr int kKeys = Tile::kKeys, kQueries = Tile::kQueries, kWidth = Tile::kWidth, kStride = Tile::kStride,
                kScoreStride = Tile::kScoreStride, kRowLanes = Tile::kRowLanes;
  CUDA_DYNAMIC_SHARED(float, shared);
  float* const q_tile = shared + Tile::kQ;
  float* const dout_tile = shared + Tile::kDout;
  float* const scores = shared + Tile::kScores;
  float* const gradients = shared + Tile::kGradients;

  const int head = static_cast<int>(blockIdx.x) / tiles, h = head % problem.H;
  const int key = static_cast<int>(blockIdx.x) % tiles * kKeys;  // those that most queries attend first
  const int T = problem.T, D = problem.D;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize;
  const int64_t head_at = static_cast<int64_t>(head) * T, model_width = static_cast<int64_t>(problem.H) * D;
  q += head_at * D, k += (head_at + key) * D, v += (head_at + key) * D, dk += (head_at + key) * D,
      dv += (head_at + key) * D;
  dout += static_cast<int64_t>(head / problem.H) * T * model_width + h * D;

  const int keys = T - key < kKeys ? T - key : kKeys;
  const int end_query = LastRow(problem, key + keys - 1);
  LoadTile<kKeys, kWidth>(k, D, keys, D, shared + Tile::kK);
  LoadTile<kKeys, kWidth>(v, D, keys, D, shared + Tile::kV);

  const int row_in_tile = thread % kQueries;
  const bool makes_weights = thread < kQueries * kRowLanes;
  TileRow tile_row = {.scores = scores + row_in_tile * kScoreStride,
                      .gradients = gradients + row_in_tile * kScoreStride,
                      .low = 0,
                      .high = 0,
                      .lane = thread / kQueries,
                      .distance = 0};
  score::RowConst constants = {};
  constants.slope = problem.alibi ? score::AlibiSlope(h, problem.H) : 0.0f;

  const int first_warp_query = warp / Tile::kKeyWarps * Tile::kWarpQueries,
            first_warp_key = warp % Tile::kKeyWarps * Tile::kWarpKeys;
  float dk_sums[Tile::kOutKeys][Tile::kOut] = {}, dv_sums[Tile::kOutKeys][Tile::kOut] = {};
  for (int query = key; query < end_query; query += kQueries) {
    const int queries = T - query < kQueries ? T - query : kQueries;
    LoadTile<kQueries, kWidth>(q + int64_t{query} * D, D, queries, D, q_tile);
    LoadTile<kQueries, kWidth>(dout + query * model_width, model_width, queries, D, dout_tile);
    ptx::cp_async_commit();
    const int row = query + row_in_tile;
    const bool has_row = makes_weights && row < T;
    const score::RowStat stat = has_row ? LoadRowStat(row_stats, head_at + row) : score::RowStat{0, 1, 0, 0};
    const RowGradient gradient = has_row ? LoadRowGradient(row_gradients, head_at + row) : RowGradient{0, 0, 0, 0};
    ptx::cp_async_wait<0>();
    __syncthreads();

    const int at = first_warp_query * kScoreStride + first_warp_key;
    MultiplyTile<kWidth, kScoreStride, Tile::kR, Tile::kC>(
        q_tile + first_warp_query * kStride, shared + Tile::kK + first_warp_key * kStride, D, scores + at);
    MultiplyTile<kWidth, kScoreStride, Tile::kR, Tile::kC>(
        dout_tile + first_warp_query * kStride, shared + Tile::kV + first_warp_key * kStride, D, gradients + at);
    __syncthreads();

    if (makes_weights) {
      SetBounds(key, FirstKey(problem, row), has_row ? row : -1, kKeys, &tile_row);
      tile_row.distance = static_cast<float>(row - key);
      constants.c = gradient.c, constants.beta = gradient.beta;
      const Activation activation = ActivationOf(problem, stat);
      // In `scores`, what dO is multiplied with for dv; in `gradients`, what q is for dk.
      if (score::IsSharpened(problem.config, stat)) {
        SharpenedGradients<kKeys, kRowLanes>(problem.config.p, activation, constants, stat, gradient.mean_gradient,
                                             tile_row,
                                             [&](int column, const float(&w)[4], float(&h)[4], const float(&slope)[4]) {
#pragma unroll
                                               for (int e = 0; e < 4; ++e)
                                                 h[e] = (h[e] - gradient.e) * slope[e] * gradient.c;
                                               StoreFloat4(tile_row.scores + column, w);
                                               StoreFloat4(tile_row.gradients + column, h);
                                             });
      } else {
        PlainGradients<kKeys, kRowLanes>(activation, constants, stat, gradient.mean_gradient, tile_row,
                                         [&](int column, const float(&w)[4], float(&ds)[4]) {
#pragma unroll
                                           for (int e = 0; e < 4; ++e) ds[e] *= gradient.c;
                                           StoreFloat4(tile_row.scores + column, w);
                                           StoreFloat4(tile_row.gradients + column, ds);
                                         });
      }
    }
    __syncthreads();

    const int key_group = 4 * (thread / 16), column = 2 * (thread % 16);
    AccumulateKeys<Tile>(scores + key_group, dout_tile + column, queries, dv_sums);
    AccumulateKeys<Tile>(gradients + key_group, q_tile + column, queries, dk_sums);
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < Tile::kOutKeys; ++i) {
    const int j = 4 * (thread / 16) + i % 4 + i / 4 * 32;
    if (j >= keys) continue;
#pragma unroll
    for (int c = 0; c < Tile::kOut; c += 2) {
      const int column = 2 * (thread % 16) + 16 * c;
      if (column >= D) continue;
      if (problem.config.recentre) {
        const float* const sum = problem.recentring.vectors + (head_at + key + j) * D + column;
        dk_sums[i][c] -= sum[0];
        dk_sums[i][c + 1] -= sum[1];
      }
      *reinterpret_cast<float2*>(dk + int64_t{j} * D + column) = make_float2(dk_sums[i][c], dk_sums[i][c + 1]);
      *reinterpret_cast<float2*>(dv + int64_t{j} * D + column) = make_float2(dv_sums[i][c], dv_sums[i][c + 1]);
    }
  }
}

}  // namespace

void LaunchBackwardColumns(cudaStream_t stream, const Problem& problem, const float* q, const float* k, const float* v,
                           const float* dout, const float* row_stats, float* dk, float* dv,
                           const Workspace& workspace) {
  ForWidth(problem.D, [&](auto width) {
    using Tile = ColumnsTile<decltype(width)::value>;
    const int tiles = static_cast<int>(CeilDiv(problem.T, Tile::kKeys));
    Launch(BackwardColumnsKernel<Tile>, dim3(static_cast<unsigned>(problem.B * problem.H * tiles)), dim3(kThreads),
           Tile::kBytes, stream, problem, tiles, q, k, v, dout, row_stats, workspace.rows, dk, dv);
  });
}

}  // namespace ablate::cuda::attention
