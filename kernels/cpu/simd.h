// Eight floats as one value, by GCC's vector types: element-wise operators, no intrinsics, AVX2 code under x86-64-v3.
// Must not know what is computed.
#pragma once

#include <cstdint>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernels/attention/score.h"

namespace ablate {

using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));

namespace score {
template <>
struct IntOf<F8> {
  using type = I8;
};
#if defined(__AVX__)
// One instruction each, with the same result for NaN; with a constant argument g++ makes a comparison and a blend of
// the text.
template <>
ABLATE_HD F8 Max<F8>(F8 a, F8 b) {
  return reinterpret_cast<F8>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
template <>
ABLATE_HD F8 Min<F8>(F8 a, F8 b) {
  return reinterpret_cast<F8>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
#endif
#if defined(__FMA__)
template <>
ABLATE_HD F8 MulAdd<F8>(F8 a, F8 b, F8 c) {
  return reinterpret_cast<F8>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
}
#endif
}  // namespace score

inline constexpr int kLanes = 8;
inline constexpr I8 kLaneIndex = {0, 1, 2, 3, 4, 5, 6, 7};

using UnalignedF8 = float __attribute__((vector_size(32), aligned(4), may_alias));

ABLATE_HD F8 LoadF8(const float* p) { return *reinterpret_cast<const UnalignedF8*>(p); }
ABLATE_HD void StoreF8(float* p, F8 x) { *reinterpret_cast<UnalignedF8*>(p) = x; }
ABLATE_HD F8 Broadcast(float x) { return F8{x, x, x, x, x, x, x, x}; }
ABLATE_HD I8 BroadcastInt(int32_t x) { return I8{x, x, x, x, x, x, x, x}; }

// In a fixed order: lanes 0+4, 1+5, ..., then pairs.
ABLATE_HD float SumLanes(F8 x) {
  const float a = x[0] + x[4], b = x[1] + x[5], c = x[2] + x[6], d = x[3] + x[7];
  return (a + c) + (b + d);
}
// NaN in any lane gives NaN or the maximum of the others.
ABLATE_HD float MaxLanes(F8 x) {
  float m = x[0];
  for (int i = 1; i < 8; ++i) m = score::Max(m, static_cast<float>(x[i]));
  return m;
}

// Bit i: lane i is not zero (NaN is not).
ABLATE_HD int NonZeroLanes(F8 x) {
#if defined(__AVX__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(I8(x != F8{})));
#else
  int bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (x[i] != 0) << i;
  return bits;
#endif
}

// While it lives, this thread treats denormal numbers as zero: y^p makes many, they weigh nothing and cost much.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  FlushDenormals() {}
#endif
};

}  // namespace ablate
