// Tiles of bf16 in shared memory and their products on tensor cores (mma.sync m16n8k16, ldmatrix, cp.async), for the
// attention kernels. Must not know the attention family. Layouts of registers: kernels/cuda/gpu.h.
//
// A tile is rows of kD elements, kD + 8 apart: the 16 bytes between make eight rows of an ldmatrix start in eight
// different groups of banks. Heads of D < kD are padded with zeros; where kD is 128 the products skip what is padding.
// Thread rule: device functions of all kThreads threads of a block (Load) or all lanes of a warp (the rest).
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda::attention_bf16 {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarpSize;
inline constexpr int kBlockRows = kWarps * 16;  // rows that a block owns: queries, or keys for dk and dv

template <int kD>
inline constexpr int kStride = kD + 8;

// Starts copying rows [first, first + kRows) of x (rows `stride` elements apart, D of them used) to a tile; rows from
// `end` on and columns from D on become zero.
template <int kRows, int kD>
__device__ __forceinline__ void Load(bf16* tile, const bf16* x, int64_t stride, int first, int end, int D) {
  constexpr int kChunks = kD / 8;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int chunk = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = chunk / kChunks, column = chunk % kChunks * 8;
    const bool valid = first + row < end && column < D;
    ptx::cp_async_16(tile + row * kStride<kD> + column, valid ? x + (first + row) * stride + column : x, valid);
  }
}

// Whether a product must look at 16 columns from `column` on: padding is skipped only in the wide kernels.
template <int kD>
__device__ __forceinline__ bool HasColumns(int column, int D) {
  return kD <= 64 || column < D;
}

// 16 rows of a tile as the left side of products over kD. kHold: read once into registers, when the tile has arrived,
// for which the wide kernels have none to spare; otherwise again for every product.
template <int kD, bool kHold>
class LeftRows {
 public:
  __device__ __forceinline__ LeftRows(const bf16* rows, int lane)
      : from_(rows + (lane % 16) * kStride<kD> + lane / 16 * 8) {
#pragma unroll
    for (int k = 0; kHold && k < kD / 16; ++k) ptx::ldmatrix_x4(held_[k], from_ + k * 16);
  }
  // Columns 16 k to 16 k + 15.
  __device__ __forceinline__ void Step(int k, uint32_t (&a)[4]) const {
    if constexpr (kHold) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held_[k][i];
    } else {
      ptx::ldmatrix_x4(a, from_ + k * 16);
    }
  }

 private:
  const bf16* from_;
  uint32_t held_[kHold ? kD / 16 : 1][4];
};

// c[16, 8 N] = left[16, kD] tile[8 N, kD]^T.
template <int kD, int N, bool kHold>
__device__ __forceinline__ void MultiplyByRows(const LeftRows<kD, kHold>& left, const bf16* tile, int D, int lane,
                                               float (&c)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
  const bf16* const from = tile + (lane % 8 + lane / 16 * 8) * kStride<kD> + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    if (!HasColumns<kD>(k * 16, D)) break;
    uint32_t a[4];
    left.Step(k, a);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, from + j * 8 * kStride<kD> + k * 16);
      ptx::mma_m16n8k16_bf16(c[j], a, {b[0], b[1]}, c[j]);
      ptx::mma_m16n8k16_bf16(c[j + 1], a, {b[2], b[3]}, c[j + 1]);
    }
  }
}

// sum[16, kD] += left[16, 8 N] tile[8 N, kD], for one or two left sides over the same tile.
template <int kD, int N>
__device__ __forceinline__ void AddProduct(const uint32_t (&left)[N / 2][4], const bf16* tile, int D, int lane,
                                           float (&sum)[kD / 8][4]) {
  const bf16* const from = tile + (lane % 16) * kStride<kD> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
#pragma unroll
    for (int j = 0; j < kD / 8; j += 2) {
      if (!HasColumns<kD>(j * 8, D)) break;
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, from + k * 16 * kStride<kD> + j * 8);
      ptx::mma_m16n8k16_bf16(sum[j], left[k], {b[0], b[1]}, sum[j]);
      ptx::mma_m16n8k16_bf16(sum[j + 1], left[k], {b[2], b[3]}, sum[j + 1]);
    }
  }
}
template <int kD, int N>
__device__ __forceinline__ void AddProducts(const uint32_t (&left0)[N / 2][4], const uint32_t (&left1)[N / 2][4],
                                            const bf16* tile, int D, int lane, float (&sum0)[kD / 8][4],
                                            float (&sum1)[kD / 8][4]) {
  const bf16* const from = tile + (lane % 16) * kStride<kD> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
#pragma unroll
    for (int j = 0; j < kD / 8; j += 2) {
      if (!HasColumns<kD>(j * 8, D)) break;
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, from + k * 16 * kStride<kD> + j * 8);
      ptx::mma_m16n8k16_bf16(sum0[j], left0[k], {b[0], b[1]}, sum0[j]);
      ptx::mma_m16n8k16_bf16(sum1[j], left1[k], {b[0], b[1]}, sum1[j]);
      ptx::mma_m16n8k16_bf16(sum0[j + 1], left0[k], {b[2], b[3]}, sum0[j + 1]);
      ptx::mma_m16n8k16_bf16(sum1[j + 1], left1[k], {b[2], b[3]}, sum1[j + 1]);
    }
  }
}

// A product's accumulators, rounded, as the left side of the next product: the layouts agree, so that nothing passes
// through shared memory.
template <int N>
__device__ __forceinline__ void AsLeft(const float (&c)[N][4], uint32_t (&a)[N / 2][4]) {
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    a[k][0] = PackBf16(c[2 * k][0], c[2 * k][1]);
    a[k][1] = PackBf16(c[2 * k][2], c[2 * k][3]);
    a[k][2] = PackBf16(c[2 * k + 1][0], c[2 * k + 1][1]);
    a[k][3] = PackBf16(c[2 * k + 1][2], c[2 * k + 1][3]);
  }
}

// sum += the elements of a left side, by its two rows of a thread: as rounded as the product sees them.
template <int N>
__device__ __forceinline__ void AddLeft(const uint32_t (&a)[N][4], float (&sum)[2]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float low, high;
      const uint32_t low_bits = a[k][i] << 16, high_bits = a[k][i] & 0xffff0000u;
      memcpy(&low, &low_bits, sizeof(low));
      memcpy(&high, &high_bits, sizeof(high));
      sum[i % 2] += low + high;
    }
  }
}

template <int N>
__device__ __forceinline__ void SetZero(float (&sum)[N][4]) {
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
}

// Rows [first_row, first_row + 16) of to (rows `stride` elements apart), those below `end` and columns below D.
template <int N>
__device__ __forceinline__ void Store(const float (&sum)[N][4], const float (&factor)[2], bf16* to, int64_t stride,
                                      int first_row, int end, int D, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane / 4 + half * 8;
    if (row >= end) continue;
    bf16* const at = to + row * stride + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (j * 8 >= D) break;
      *reinterpret_cast<bf162*>(at + j * 8) =
          ToBf162(sum[j][2 * half] * factor[half], sum[j][2 * half + 1] * factor[half]);
    }
  }
}

// Sum and maximum over the four lanes that share a row; every one of them gets it.
__device__ __forceinline__ float RowSum(float x) {
  x += __shfl_xor_sync(kFullMask, x, 1);
  return x + __shfl_xor_sync(kFullMask, x, 2);
}
__device__ __forceinline__ float RowMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kFullMask, x, 1));
  return fmaxf(x, __shfl_xor_sync(kFullMask, x, 2));
}

}  // namespace ablate::cuda::attention_bf16
