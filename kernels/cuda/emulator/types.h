// CUDA's plain types for the host: vectors, dim3, bfloat16, and the keywords that mean nothing here.
// Included through gpu.h only.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// Not __noinline__: libstdc++ spells an attribute so.
#define GPU_NOINLINE __attribute__((noinline))

#define ABLATE_EMU_VECTORS(type, name)                                        \
  struct alignas(2 * sizeof(type)) name##2 {                                  \
    type x, y;                                                                \
  };                                                                          \
  struct name##3 {                                                            \
    type x, y, z;                                                             \
  };                                                                          \
  struct alignas(sizeof(type) > 4 ? 16 : 4 * sizeof(type)) name##4 {          \
    type x, y, z, w;                                                          \
  };                                                                          \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
ABLATE_EMU_VECTORS(float, float)
ABLATE_EMU_VECTORS(int, int)
ABLATE_EMU_VECTORS(unsigned, uint)
ABLATE_EMU_VECTORS(double, double)
#undef ABLATE_EMU_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

namespace ablate::cuda {

struct bf16 {
  uint16_t bits;
};
struct alignas(4) bf162 {
  bf16 x, y;
};

inline float ToFloat(float x) { return x; }
inline float ToFloat(bf16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
inline float2 ToFloat2(bf162 x) { return {ToFloat(x.x), ToFloat(x.y)}; }

// Round to nearest, ties to even; every NaN becomes 0x7fff, as the device has it.
inline bf16 ToBf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline bf162 ToBf162(float low, float high) { return {ToBf16(low), ToBf16(high)}; }

}  // namespace ablate::cuda

// --- arithmetic. Approximate functions of the device are exact here: compare with tolerances. ---
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;  // never fused into a sum
  return product;
}
inline float __fadd_rn(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float_as_int(float x) {
  int bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline float __int_as_float(int bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
inline unsigned __float_as_uint(float x) { return static_cast<unsigned>(__float_as_int(x)); }
inline float __uint_as_float(unsigned bits) { return __int_as_float(static_cast<int>(bits)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
