#include "kernels/cuda/ops/optimizer.h"

#include <algorithm>

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlockFloats = 8 * kThreads;  // of a block of the sum of squares, at least

// --- kernels ---

__device__ __forceinline__ void AdamWOne(float& p, float gradient, float& m, float& v, const AdamWConstants& c) {
  const float g = gradient * c.scale;
  m = c.beta1 * m + c.rest1 * g;
  v = c.beta2 * v + c.rest2 * g * g;
  p = c.keep * p - c.step_size * m / (sqrtf(v) * c.inv_sqrt_correction2 + c.eps);
}

template <int W>
__global__ void AdamWKernel(float* p, const float* gradient, float* m, float* v, bf16* rounded, int64_t n,
                            AdamWConstants constants) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  if (begin + W <= n) {
    float pw[W], gw[W], mw[W], vw[W];
    Load<W>(p + begin, pw);
    Load<W>(gradient + begin, gw);
    Load<W>(m + begin, mw);
    Load<W>(v + begin, vw);
#pragma unroll
    for (int j = 0; j < W; ++j) AdamWOne(pw[j], gw[j], mw[j], vw[j], constants);
    Store<W>(p + begin, pw);
    Store<W>(m + begin, mw);
    Store<W>(v + begin, vw);
    if (rounded != nullptr) Store<W>(rounded + begin, pw);
  } else {
    for (int64_t i = begin; i < n; ++i) {
      AdamWOne(p[i], gradient[i], m[i], v[i], constants);
      if (rounded != nullptr) rounded[i] = ToBf16(p[i]);
    }
  }
}

// The block's sum of one double a thread, in a tree; valid in thread 0.
__device__ __forceinline__ double BlockSum(double mine) {
  CUDA_SHARED(double, sums, [kThreads]);
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

template <int W>
__global__ void SquaresKernel(const float* x, int64_t n, double* partials) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * W;
  double sum = 0;
  for (int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; begin < n; begin += stride) {
    if (begin + W <= n) {
      float v[W];
      Load<W>(x + begin, v);
#pragma unroll
      for (int j = 0; j < W; ++j) sum += static_cast<double>(v[j]) * v[j];
    } else {
      for (int64_t i = begin; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void SumKernel(const double* partials, int count, double* out) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partials[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *out = sum;
}

}  // namespace

// --- launchers ---

void AdamW(cudaStream_t stream, float* p, const float* gradient, float* m, float* v, bf16* rounded, int64_t n,
           const AdamWConstants& constants) {
  constexpr int W = 4;
  if (n <= 0) return;
  if (Aligned<W>(p, gradient, m, v, rounded)) {
    Launch(AdamWKernel<W>, Blocks(n, kThreads * W), kThreads, 0, stream, p, gradient, m, v, rounded, n, constants);
  } else {
    Launch(AdamWKernel<1>, Blocks(n, kThreads), kThreads, 0, stream, p, gradient, m, v, rounded, n, constants);
  }
}

void SumOfSquares(cudaStream_t stream, const float* x, int64_t n, double* partials, double* out) {
  constexpr int W = 4;
  const int blocks = static_cast<int>(std::clamp<int64_t>(CeilDiv(n, kBlockFloats), 1, kSquarePartials));
  if (Aligned<W>(x)) {
    Launch(SquaresKernel<W>, static_cast<unsigned>(blocks), kThreads, 0, stream, x, n, partials);
  } else {
    Launch(SquaresKernel<1>, static_cast<unsigned>(blocks), kThreads, 0, stream, x, n, partials);
  }
  Launch(SumKernel, 1, kThreads, 0, stream, partials, blocks, out);
}

}  // namespace ablate::cuda
