// Elementwise kernels: a thread takes one vector of 16 bytes (or one element where the arrays are not aligned), so that
// each runs at the memory's speed; the last thread takes what is left over.
#include "kernels/cuda/ops/elementwise.h"

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kThreads = 256;

// gelu(x) = x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the sigmoid form loses nothing for
// negative x.
constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

__device__ __forceinline__ float GeluSigmoid(float x) {
  return 1.0f / (1.0f + expf(-kTwoSqrt2OverPi * x * (1.0f + kCubic * x * x)));
}

struct GeluOp {
  __device__ __forceinline__ float operator()(float x) const { return x * GeluSigmoid(x); }
};
struct GeluBackwardOp {
  __device__ __forceinline__ float operator()(float dout, float x) const {
    const float s = GeluSigmoid(x);
    const float du = kTwoSqrt2OverPi * (1.0f + 3.0f * kCubic * x * x);
    return dout * (s + x * s * (1.0f - s) * du);
  }
};
struct AddOp {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct SameOp {
  __device__ __forceinline__ float operator()(float x) const { return x; }
};

// --- kernels ---

// out[n] = op(a[n]). out may be a.
template <int W, typename In, typename Out, typename Op>
__global__ void UnaryKernel(const In* a, Out* out, int64_t n, Op op) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  if (begin + W <= n) {
    float x[W];
    Load<W>(a + begin, x);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = op(x[j]);
    Store<W>(out + begin, x);
  } else {
    for (int64_t i = begin; i < n; ++i) out[i] = FromFloat<Out>(op(ToFloat(a[i])));
  }
}

// out[n] = op(a[n], b[n]). out may be a or b.
template <int W, typename T, typename Op>
__global__ void BinaryKernel(const T* a, const T* b, T* out, int64_t n, Op op) {
  const int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  if (begin + W <= n) {
    float x[W], y[W];
    Load<W>(a + begin, x);
    Load<W>(b + begin, y);
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = op(x[j], y[j]);
    Store<W>(out + begin, x);
  } else {
    for (int64_t i = begin; i < n; ++i) out[i] = FromFloat<T>(op(ToFloat(a[i]), ToFloat(b[i])));
  }
}

// --- launchers ---

template <int W, typename In, typename Out, typename Op>
void LaunchUnary(cudaStream_t stream, const In* a, Out* out, int64_t n, Op op) {
  if (n <= 0) return;
  if (Aligned<W>(a, out)) {
    Launch(UnaryKernel<W, In, Out, Op>, Blocks(n, kThreads * W), kThreads, 0, stream, a, out, n, op);
  } else {
    Launch(UnaryKernel<1, In, Out, Op>, Blocks(n, kThreads), kThreads, 0, stream, a, out, n, op);
  }
}

template <typename T, typename Op>
void LaunchBinary(cudaStream_t stream, const T* a, const T* b, T* out, int64_t n, Op op) {
  constexpr int W = kVector<T>;
  if (n <= 0) return;
  if (Aligned<W>(a, b, out)) {
    Launch(BinaryKernel<W, T, Op>, Blocks(n, kThreads * W), kThreads, 0, stream, a, b, out, n, op);
  } else {
    Launch(BinaryKernel<1, T, Op>, Blocks(n, kThreads), kThreads, 0, stream, a, b, out, n, op);
  }
}

}  // namespace

template <typename T>
void GeluForward(cudaStream_t stream, const T* x, T* out, int64_t n) {
  LaunchUnary<kVector<T>>(stream, x, out, n, GeluOp());
}
template <typename T>
void GeluBackward(cudaStream_t stream, const T* dout, const T* x, T* dx, int64_t n) {
  LaunchBinary(stream, dout, x, dx, n, GeluBackwardOp());
}
template <typename T>
void Add(cudaStream_t stream, const T* a, const T* b, T* out, int64_t n) {
  LaunchBinary(stream, a, b, out, n, AddOp());
}

void ConvertToBf16(cudaStream_t stream, const float* x, bf16* out, int64_t n) {
  LaunchUnary<kVector<bf16>>(stream, x, out, n, SameOp());
}

template void GeluForward<float>(cudaStream_t, const float*, float*, int64_t);
template void GeluForward<bf16>(cudaStream_t, const bf16*, bf16*, int64_t);
template void GeluBackward<float>(cudaStream_t, const float*, const float*, float*, int64_t);
template void GeluBackward<bf16>(cudaStream_t, const bf16*, const bf16*, bf16*, int64_t);
template void Add<float>(cudaStream_t, const float*, const float*, float*, int64_t);
template void Add<bf16>(cudaStream_t, const bf16*, const bf16*, bf16*, int64_t);

}  // namespace ablate::cuda
