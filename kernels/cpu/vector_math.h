// Elementary functions that g++ vectorises inside a plain loop: no branches, no library calls. CPU kernels only.
// Build the users with -fno-math-errno -fno-trapping-math, never -ffast-math (it folds the rounding away).
#pragma once

#include <bit>
#include <cstdint>

namespace ablate {

// exp(x) for every float: relative error below 2e-7 where the result is normal; saturates at the ends of that range
// (x < -87.3 gives 1.2e-38, x > 88.3 gives 2.2e38; NaN gives NaN). Polynomial: Cephes expf.
inline float VectorExp(float x) {
  // Written so that a NaN passes through both comparisons.
  x = x < -87.33654f ? -87.33654f : x;
  x = x > 88.3f ? 88.3f : x;
  const float n = __builtin_nearbyintf(x * 1.44269504088896341f);
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = (static_cast<int32_t>(n) + 127) << 23;
  return p * std::bit_cast<float>(exponent);
}

// 1 / (1 + exp(-x)).
inline float VectorSigmoid(float x) { return 1.0f / (1.0f + VectorExp(-x)); }

}  // namespace ablate
