// What the kernels of this folder share: loads and stores of several elements at once, and sums over a warp. Device
// code; included by .cu files only. Arithmetic is float32 whatever an array's elements are.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// 16 bytes of T: what one load instruction takes at most.
template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

inline constexpr int kWarp = kWarpSize;

template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 FromFloat<bf16>(float x) {
  return ToBf16(x);
}

// An aligned load or store of 2 to 16 bytes. May lie over any array: g++ must not order it by type.
template <int kBytes>
struct [[gnu::may_alias]] alignas(kBytes) Bits {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  unsigned words[kBytes / 4];
};
template <>
struct [[gnu::may_alias]] alignas(2) Bits<2> {
  unsigned short half;
};

// W consecutive elements as floats. W > 1: the address is a multiple of min(16, W sizeof(T)) bytes.
template <int W, typename T>
__device__ __forceinline__ void Load(const T* from, float (&to)[W]) {
  constexpr int kBytes = static_cast<int>(sizeof(T)) * W < 16 ? static_cast<int>(sizeof(T)) * W : 16;
  constexpr int kEach = kBytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < W; i += kEach) {
    const Bits<kBytes> bits = *reinterpret_cast<const Bits<kBytes>*>(from + i);
    T elements[kEach];
    memcpy(elements, &bits, kBytes);
#pragma unroll
    for (int j = 0; j < kEach; ++j) to[i + j] = ToFloat(elements[j]);
  }
}

// Rounds to T.
template <int W, typename T>
__device__ __forceinline__ void Store(T* to, const float (&from)[W]) {
  constexpr int kBytes = static_cast<int>(sizeof(T)) * W < 16 ? static_cast<int>(sizeof(T)) * W : 16;
  constexpr int kEach = kBytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < W; i += kEach) {
    T elements[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) elements[j] = FromFloat<T>(from[i + j]);
    Bits<kBytes> bits;
    memcpy(&bits, elements, kBytes);
    *reinterpret_cast<Bits<kBytes>*>(to + i) = bits;
  }
}

// The same bits in every lane: a + b is b + a. All lanes must call.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kFullMask, x, mask);
  return x;
}

// Host side: may W elements be taken at once from each of these arrays?
template <int W, typename... T>
bool Aligned(const T*... arrays) {
  return ((reinterpret_cast<uintptr_t>(arrays) % (sizeof(T) * W < 16 ? sizeof(T) * W : 16) == 0) && ...);
}

inline unsigned Blocks(int64_t items, int64_t each) { return static_cast<unsigned>(CeilDiv(items, each)); }

}  // namespace ablate::cuda
