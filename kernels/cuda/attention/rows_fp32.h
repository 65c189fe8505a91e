// The element-wise passes over one row of a tile of scores in shared memory. Must not know products or loads.
// Formulas: kernels/attention/score.h.
//
// A row of kColumns columns (keys) belongs to kLanes threads, which take every kLanes-th chunk of 4 columns; what a
// pass returns is of the thread's own chunks. The activation and the power are chosen once a tile and row, outside the
// loops: so a kernel holds every member of the family, and a loop only what its member needs.
#pragma once

#include "kernels/cuda/attention/problem.h"

namespace ablate::cuda::attention {

inline constexpr float kLowestScore = -3.402823466e38f;

// One row of a tile, as one of its threads sees it.
struct TileRow {
  float* scores;     // products q.k, replaced by a pass; 16-byte aligned
  float* gradients;  // products dO.v, replaced by a pass of backward
  int low, high;     // attended columns; the others become zero
  int lane;          // of the row's kLanes threads
  float distance;    // from the key of column 0 to the query, for ALiBi
};

// Columns [low, high) of a tile whose first key is `key`, for a row that attends keys [first, last].
__device__ __forceinline__ void SetBounds(int key, int first, int last, int columns, TileRow* tile) {
  tile->low = first > key ? first - key : 0;
  tile->high = last - key + 1 < columns ? last - key + 1 : columns;
}

__device__ __forceinline__ float4 LoadFloat4(const float* at) { return *reinterpret_cast<const float4*>(at); }
__device__ __forceinline__ void StoreFloat4(float* at, const float (&x)[4]) {
  *reinterpret_cast<float4*>(at) = make_float4(x[0], x[1], x[2], x[3]);
}

// body(column) for the first column of each of the thread's chunks.
template <int kColumns, int kLanes, class Body>
__device__ __forceinline__ void ForChunks(const TileRow& tile, Body body) {
#pragma unroll 1
  for (int column = 4 * tile.lane; column < kColumns; column += 4 * kLanes) body(column);
}

// Elements outside the row become `other`.
__device__ __forceinline__ void Mask(const TileRow& tile, int column, float other, float (&x)[4]) {
  if (column >= tile.low && column + 4 <= tile.high) return;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (column + e < tile.low || column + e >= tile.high) x[e] = other;
  }
}

// Scores less the shift. Every pass computes them here, so that all see the same bits.
__device__ __forceinline__ void ShiftedScores(const score::RowConst& row, float shift, const TileRow& tile, int column,
                                              float (&s)[4]) {
  const float4 products = LoadFloat4(tile.scores + column);
  const float p[4] = {products.x, products.y, products.z, products.w};
  const float distance = tile.distance - static_cast<float>(column);
#pragma unroll
  for (int e = 0; e < 4; ++e) s[e] = score::AlibiScore(row, p[e], distance - static_cast<float>(e)) - shift;
}

__device__ __forceinline__ float Sum4(const float (&x)[4]) { return (x[0] + x[1]) + (x[2] + x[3]); }

template <int kColumns, int kLanes>
__device__ __forceinline__ float LargestScore(const score::RowConst& row, const TileRow& tile) {
  float largest[4] = {kLowestScore, kLowestScore, kLowestScore, kLowestScore};
  ForChunks<kColumns, kLanes>(tile, [&](int column) {
    float s[4];
    ShiftedScores(row, 0, tile, column, s);
    Mask(tile, column, kLowestScore, s);
#pragma unroll
    for (int e = 0; e < 4; ++e) largest[e] = score::Max(largest[e], s[e]);
  });
  return score::Max(score::Max(largest[0], largest[1]), score::Max(largest[2], largest[3]));
}

// --- forward ---

struct Activated {
  float sum, largest;  // of u
};

// Sums u; kStore: scores -> u.
template <int kColumns, int kLanes, bool kStore>
__device__ __forceinline__ Activated Activate(Activation activation, const score::RowConst& row, float shift,
                                              const TileRow& tile) {
  float sum[4] = {}, largest[4] = {};
  score::VisitActivation(activation, [&](auto phi) {
    ForChunks<kColumns, kLanes>(tile, [&](int column) {
      float s[4], u[4];
      ShiftedScores(row, shift, tile, column, s);
#pragma unroll
      for (int e = 0; e < 4; ++e) u[e] = decltype(phi)::Value(s[e]);
      Mask(tile, column, 0, u);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] += u[e], largest[e] = score::Max(largest[e], u[e]);
      if constexpr (kStore) StoreFloat4(tile.scores + column, u);
    });
  });
  return {Sum4(sum), score::Max(score::Max(largest[0], largest[1]), score::Max(largest[2], largest[3]))};
}

// Scores -> unscaled weights of a row of a sharpened member: y^p, or u where the row is not to be sharpened. Returns
// their sum.
template <int kColumns, int kLanes>
__device__ __forceinline__ float Sharpen(const score::Config& config, Activation activation, const score::RowConst& row,
                                         const score::RowStat& stat, const TileRow& tile) {
  if (!score::IsSharpened(config, stat)) {
    return Activate<kColumns, kLanes, true>(activation, row, stat.shift, tile).sum;
  }
  float sum[4] = {};
  score::VisitActivation(activation, [&](auto phi) {
    score::VisitPower(config.p, [&](auto power) {
      ForChunks<kColumns, kLanes>(tile, [&](int column) {
        float s[4], w[4];
        ShiftedScores(row, stat.shift, tile, column, s);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          w[e] = score::UnscaledWeight<decltype(power)>(config, stat, decltype(phi)::Value(s[e]));
        }
        Mask(tile, column, 0, w);
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[e] += w[e];
        StoreFloat4(tile.scores + column, w);
      });
    });
  });
  return Sum4(sum);
}

// What a row knows of the keys that it has met: u are relative to `shift`.
struct RunningRow {
  float shift = kLowestScore, sum = 0, largest = 0;
};

// Meets the keys of a tile (kStore: scores -> u). Returns what earlier sums over u must be multiplied with, since the
// shift may have grown. All lanes of the warp call together; those of a row lie 32 / kLanes apart.
template <int kColumns, int kLanes, bool kStore>
__device__ __forceinline__ float MeetKeys(bool shifted, Activation activation, const score::RowConst& row,
                                          const TileRow& tile, RunningRow* running) {
  float largest = kLowestScore, shift = 0, factor = 1;
  if (shifted) largest = LargestScore<kColumns, kLanes>(row, tile);
#pragma unroll
  for (int apart = kWarpSize / 2; apart >= kWarpSize / kLanes; apart /= 2) {
    largest = score::Max(largest, __shfl_xor_sync(kFullMask, largest, apart));
  }
  if (shifted) {
    shift = score::Max(running->shift, largest);
    factor = score::Exp(running->shift - shift);
    running->shift = shift;
  }
  const Activated activated = Activate<kColumns, kLanes, kStore>(activation, row, shift, tile);
  running->sum = score::MulAdd(running->sum, factor, activated.sum);
  running->largest = score::Max(running->largest, activated.largest);
  return factor;
}

// --- backward: each turns the tile's scores and gradients G into two weights of the products that follow ---

// scores -> w (kColumnsToo) or 0, gradients -> dS times `scale`: a row that is not sharpened.
template <int kColumns, int kLanes, class Store>
__device__ __forceinline__ void PlainGradients(Activation activation, const score::RowConst& row,
                                               const score::RowStat& stat, float mean_gradient, const TileRow& tile,
                                               Store store) {
  const float weight = fabsf(stat.c);
  score::VisitActivation(activation, [&](auto phi) {
    ForChunks<kColumns, kLanes>(tile, [&](int column) {
      float s[4], w[4], ds[4];
      ShiftedScores(row, stat.shift, tile, column, s);
      const float4 gradients = LoadFloat4(tile.gradients + column);
      const float g[4] = {gradients.x, gradients.y, gradients.z, gradients.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float slope;
        w[e] = decltype(phi)::ValueAndSlope(s[e], &slope) * weight;
        ds[e] = (g[e] - mean_gradient) * weight * slope;
      }
      Mask(tile, column, 0, w);
      Mask(tile, column, 0, ds);
      store(column, w, ds);
    });
  });
}

// store(column, w, h, a phi'): a sharpened row.
template <int kColumns, int kLanes, class Store>
__device__ __forceinline__ void SharpenedGradients(float p, Activation activation, const score::RowConst& row,
                                                   const score::RowStat& stat, float mean_gradient, const TileRow& tile,
                                                   Store store) {
  const float pc = p * stat.c;
  score::VisitActivation(activation, [&](auto phi) {
    score::VisitPower(p, [&](auto power) {
      ForChunks<kColumns, kLanes>(tile, [&](int column) {
        float s[4], w[4], h[4], slope[4];
        ShiftedScores(row, stat.shift, tile, column, s);
        const float4 gradients = LoadFloat4(tile.gradients + column);
        const float g[4] = {gradients.x, gradients.y, gradients.z, gradients.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float y = score::SharpenedY(stat, decltype(phi)::ValueAndSlope(s[e], &slope[e]));
          const float power_of_y = decltype(power)::MinusOne(y, p);
          h[e] = power_of_y * pc * (g[e] - mean_gradient);
          w[e] = y * power_of_y * stat.c;
          slope[e] *= stat.a;
        }
        Mask(tile, column, 0, w);
        Mask(tile, column, 0, h);
        Mask(tile, column, 0, slope);
        store(column, w, h, slope);
      });
    });
  });
}

}  // namespace ablate::cuda::attention
