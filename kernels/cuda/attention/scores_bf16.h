// The element-wise mathematics of the bf16 attention kernels: kernels/attention/score.h evaluated with the device's
// approximate instructions, over the registers of one warp's tile of scores. Must not know shared memory or matrix
// products. Formulas and names: kernels/attention/score.h. Thread rule: device functions of one thread.
//
// A tile is float x[N][4], the accumulators of N products m16n8k16: element e of x[j] stands at row lane / 4 (+ 8 for
// e >= 2), column 8 j + 2 (lane % 4) + (e & 1).
#pragma once

#include <type_traits>

#include "kernels/attention/score.h"
#include "kernels/attention/variants.h"
#include "kernels/cuda/gpu.h"

namespace ablate::score {

// A float with 2^x, log2 and division from the special-function unit (errors near 2^-22) and a shorter log1p (8e-6):
// a two-hundredth of what bf16 operands bring. Never for x = u - t, sums or anything else that cancels: those stay float.
struct Approximate {
  float x;
  Approximate() = default;
  ABLATE_HD constexpr Approximate(float value) : x(value) {}
};

ABLATE_HD Approximate operator+(Approximate a, Approximate b) { return a.x + b.x; }
ABLATE_HD Approximate operator-(Approximate a, Approximate b) { return a.x - b.x; }
ABLATE_HD Approximate operator*(Approximate a, Approximate b) { return a.x * b.x; }
ABLATE_HD Approximate operator-(Approximate a) { return -a.x; }
ABLATE_HD bool operator>(Approximate a, Approximate b) { return a.x > b.x; }
ABLATE_HD bool operator<(Approximate a, Approximate b) { return a.x < b.x; }

template <>
ABLATE_HD Approximate Divide<Approximate>(Approximate a, Approximate b) {
  return a.x * cuda::ptx::rcp_approx(b.x);
}

template <>
struct IntOf<Approximate> {
  using type = int32_t;
};

template <>
ABLATE_HD Approximate Max<Approximate>(Approximate a, Approximate b) {
  return a.x > b.x ? a.x : b.x;
}
template <>
ABLATE_HD Approximate NegativeAbs<Approximate>(Approximate x) {
  return -fabsf(x.x);
}
template <>
ABLATE_HD Approximate Exp2<Approximate>(Approximate x) {
  return cuda::ptx::ex2_approx(x.x);
}
template <>
ABLATE_HD Approximate Log2<Approximate>(Approximate x) {
  return cuda::ptx::lg2_approx(x.x);
}
template <>
ABLATE_HD Approximate ExpNonPositive<Approximate>(Approximate x) {
  return Exp2<Approximate>(x.x * 1.442695041f);
}
// Minimax of degree 5, relative error 8.4e-6.
template <>
ABLATE_HD Approximate Log1pOver<Approximate>(Approximate e) {
  const float e2 = e.x * e.x;
  const float p01 = e.x * -4.993613647e-1f + 9.999915982e-1f, p23 = e.x * -2.100486900e-1f + 3.252066803e-1f,
              p45 = e.x * -2.386915171e-2f + 1.012222848e-1f;
  return (p45 * e2 + p23) * e2 + p01;
}

}  // namespace ablate::score

namespace ablate::cuda::attention_bf16 {

using score::Approximate;

// Stands for every activation without kernels of its own: chosen at run time, a branch a tile.
struct OtherActivation {};
template <class A>
inline constexpr bool kHasKernels =
    std::is_same_v<A, score::ExpActivation> || std::is_same_v<A, score::SoftplusActivation>;

// body(A{}) for the activation A of a kernel compiled for Phi.
template <class Phi, class Body>
__device__ __forceinline__ void WithActivation(Activation activation, const Body& body) {
  if constexpr (kHasKernels<Phi>) {
    body(Phi{});
  } else {
    score::VisitActivation(activation, [&](auto phi) {
      if constexpr (!kHasKernels<decltype(phi)>) {
        static_assert(!decltype(phi)::kShifted, "only kernels of their own know a shift");
        body(phi);
      } else {
        __builtin_unreachable();  // DispatchKernel sends it elsewhere
      }
    });
  }
}

// body(j, e) for every element of a tile.
template <int N, class Body>
__device__ __forceinline__ void ForElements(const Body& body) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) body(j, e);
  }
}

// power = y^(p-1): a branch a tile, so that a constant p costs its few multiplications and needs no kernel of its own.
template <int N>
__device__ __forceinline__ void Powers(float p, const float (&y)[N][4], float (&power)[N][4]) {
  score::VisitPower(p, [&](auto kind) {
    ForElements<N>([&](int j, int e) { power[j][e] = decltype(kind)::MinusOne(Approximate(y[j][e]), p).x; });
  });
}

// x limited to [0, 1], for free as a modifier of the instruction before; NaN gives 0.
__device__ __forceinline__ float Saturate(float x) {
#if defined(__CUDA_ARCH__)
  return __saturatef(x);
#else
  return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
#endif
}

// Which elements of a tile are attended, a bit each (bit 4 j + e); N <= 8.
struct Attended {
  uint32_t bits = ~0u;
  bool all = true;
  __device__ __forceinline__ bool operator()(int j, int e) const { return (bits >> (4 * j + e)) & 1; }
};

// Sets what is not attended to `value`.
template <int N>
__device__ __forceinline__ void Restrict(const Attended& attended, float value, float (&x)[N][4]) {
  if (attended.all) return;
  ForElements<N>([&](int j, int e) { x[j][e] = attended(j, e) ? x[j][e] : value; });
}

// Positions of a warp's tile: queries and keys of its first row and column.
// kQueryRows: rows are queries and columns keys; otherwise the other way round.
template <int N, bool kQueryRows>
__device__ __forceinline__ Attended AttendedOf(int window, int first_query, int queries, int first_key, int keys,
                                               int lane) {
  Attended attended;
  const bool causal = first_key + keys - 1 > first_query;
  const bool windowed = window > 0 && first_query + queries - 1 - first_key >= window;
  if (!causal && !windowed) return attended;
  attended.all = false;
  attended.bits = 0;
  const int limit = window > 0 ? window : INT32_MAX;
  ForElements<N>([&](int j, int e) {
    const int row = lane / 4 + (e / 2) * 8, column = 8 * j + 2 * (lane % 4) + (e & 1);
    const int distance = kQueryRows ? first_query + row - first_key - column : first_query + column - first_key - row;
    attended.bits |= (distance >= 0 && distance < limit ? 1u : 0u) << (4 * j + e);
  });
  return attended;
}

}  // namespace ablate::cuda::attention_bf16
