// Loads and products of float tiles in shared memory, by 4 warps. Must not know the attention family.
//
// A tile of vectors is [rows, kWidth + 4] (4: so that 8 rows read at one column touch all 32 banks), kWidth the head
// dimension rounded up to a multiple of 32; columns from D on are zero. A tile of scores is [rows, columns + 4].
#pragma once

#include <cstdint>

#include "kernels/attention/score.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda::attention {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kPad = 4;

// Starts to copy `rows` rows (more become zero) of D floats, `stride` floats apart. The caller commits and waits.
template <int kRows, int kWidth>
__device__ __forceinline__ void LoadTile(const float* from, int64_t stride, int rows, int D, float* tile) {
  constexpr int kChunks = kWidth / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = 4 * (i % kChunks);
    const bool valid = row < rows && column < D;
    ptx::cp_async_16(tile + row * (kWidth + kPad) + column, valid ? from + row * stride + column : from, valid);
  }
}

// products[r][c] = a(row r) . b(row c): the lane's rows are kRowStep and kColumnStep apart. The sum runs over d in
// ascending order, whatever the tiles: forward and backward must see the same bits.
template <int kWidth, int kRowStep, int kColumnStep, int kR, int kC>
__device__ __forceinline__ void Multiply(const float* a, const float* b, int D, float (&products)[kR][kC]) {
  constexpr int kStride = kWidth + kPad;
#pragma unroll
  for (int r = 0; r < kR; ++r) {
#pragma unroll
    for (int c = 0; c < kC; ++c) products[r][c] = 0;
  }
#pragma unroll 1
  for (int d = 0; d < D; d += 4) {
    float4 x[kR];
#pragma unroll
    for (int r = 0; r < kR; ++r) x[r] = *reinterpret_cast<const float4*>(a + r * kRowStep * kStride + d);
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const float4 y = *reinterpret_cast<const float4*>(b + c * kColumnStep * kStride + d);
#pragma unroll
      for (int r = 0; r < kR; ++r) {
        float sum = score::MulAdd(x[r].x, y.x, products[r][c]);
        sum = score::MulAdd(x[r].y, y.y, sum);
        sum = score::MulAdd(x[r].z, y.z, sum);
        products[r][c] = score::MulAdd(x[r].w, y.w, sum);
      }
    }
  }
}

// Scores of a warp: lane (lane / 8, lane % 8) computes rows lane / 8 + 4 r and columns lane % 8 + 8 c of the
// [4 kR, 8 kC] that begin at a, b and `scores`.
template <int kWidth, int kScoreStride, int kR, int kC>
__device__ __forceinline__ void MultiplyTile(const float* a, const float* b, int D, float* scores) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, y = lane / 8, x = lane % 8;
  float products[kR][kC];
  Multiply<kWidth, 4, 8, kR, kC>(a + y * (kWidth + kPad), b + x * (kWidth + kPad), D, products);
#pragma unroll
  for (int r = 0; r < kR; ++r) {
#pragma unroll
    for (int c = 0; c < kC; ++c) scores[(y + 4 * r) * kScoreStride + x + 8 * c] = products[r][c];
  }
}

// sums[r][c] += sum over j in [begin, end) of weights[r kRowStep][j] * vectors[j][column c]; begin and end multiples of
// kJ. The lane's columns are vectors of kVector floats, kColumnStep floats apart.
template <int kJ, int kScoreStride, int kWidth, int kRowStep, int kVector, int kColumnStep, int kR, int kC>
__device__ __forceinline__ void Accumulate(const float* weights, const float* vectors, int begin, int end,
                                           float (&sums)[kR][kC]) {
#pragma unroll 1
  for (int j = begin; j < end; j += kJ) {
    float w[kR][kJ];
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      if constexpr (kJ == 4) {
        const float4 x = *reinterpret_cast<const float4*>(weights + r * kRowStep * kScoreStride + j);
        w[r][0] = x.x, w[r][1] = x.y, w[r][2] = x.z, w[r][3] = x.w;
      } else {
        const float2 x = *reinterpret_cast<const float2*>(weights + r * kRowStep * kScoreStride + j);
        w[r][0] = x.x, w[r][1] = x.y;
      }
    }
#pragma unroll
    for (int i = 0; i < kJ; ++i) {
      float v[kC];
#pragma unroll
      for (int c = 0; c < kC; c += kVector) {
        const float* const at = vectors + (j + i) * (kWidth + kPad) + c / kVector * kColumnStep;
        if constexpr (kVector == 4) {
          const float4 x = *reinterpret_cast<const float4*>(at);
          v[c] = x.x, v[c + 1] = x.y, v[c + 2] = x.z, v[c + 3] = x.w;
        } else {
          const float2 x = *reinterpret_cast<const float2*>(at);
          v[c] = x.x, v[c + 1] = x.y;
        }
      }
#pragma unroll
      for (int r = 0; r < kR; ++r) {
#pragma unroll
        for (int c = 0; c < kC; ++c) sums[r][c] = score::MulAdd(w[r][i], v[c], sums[r][c]);
      }
    }
  }
}

}  // namespace ablate::cuda::attention
