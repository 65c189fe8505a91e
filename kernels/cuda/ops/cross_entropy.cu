// A warp (small V) or a block (large V) takes a row: one pass for the maximum and the sum of exponentials together, a
// second one over the same row, from the cache, for the gradient. The logits become their gradient: no second array.
#include "kernels/cuda/ops/cross_entropy.h"

#include <cfloat>

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kWarpRows = 8;        // rows of a block when a warp takes a row
constexpr int kBlockThreads = 512;  // when a block does
constexpr int kWarpsMostV = 1024;

// sum_i exp(z_i - largest). Starts at a finite maximum, so that -inf logits are no NaN; NaN and +inf end in a NaN sum.
struct ExpSum {
  float largest = -FLT_MAX, sum = 0;

  template <int W>
  __device__ __forceinline__ void Take(const float (&z)[W]) {
    float top = z[0];
#pragma unroll
    for (int j = 1; j < W; ++j) top = fmaxf(top, z[j]);
    if (top > largest) {
      sum *= expf(largest - top);
      largest = top;
    }
#pragma unroll
    for (int j = 0; j < W; ++j) sum += expf(z[j] - largest);
  }
  __device__ __forceinline__ void Take(const ExpSum& other) {
    const float top = fmaxf(largest, other.largest);
    sum = sum * expf(largest - top) + other.sum * expf(other.largest - top);
    largest = top;
  }
};

// A row of V elements as vectors: up to `head` elements one by one until the address is aligned, then `vectors` of W,
// then the rest. Which thread takes which element is the same in every pass.
template <int W, int kThreads, typename T, typename F>
__device__ __forceinline__ void ForRow(const T* row, int V, int thread, const F& f) {
  const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % (W * sizeof(T)) / sizeof(T));
  const int head = past == 0 ? 0 : (W - past < V ? W - past : V);
  const int vectors = (V - head) / W;
  for (int i = thread; i < head; i += kThreads) f.One(i);
  for (int v = thread; v < vectors; v += kThreads) f.Vector(head + v * W);
  for (int i = head + vectors * W + thread; i < V; i += kThreads) f.One(i);
}

template <int W, typename T>
struct SumPass {
  const T* z;
  ExpSum* total;
  __device__ __forceinline__ void One(int i) const {
    const float one[1] = {ToFloat(z[i])};
    total->Take<1>(one);
  }
  __device__ __forceinline__ void Vector(int i) const {
    float v[W];
    Load<W>(z + i, v);
    total->Take<W>(v);
  }
};

template <int W, typename T>
struct GradientPass {
  T* z;
  float largest, factor, scale;
  int target;
  __device__ __forceinline__ float Gradient(float value, int i) const {
    const float softmax = expf(value - largest) * factor;
    return i == target ? softmax - scale : softmax;
  }
  __device__ __forceinline__ void One(int i) const { z[i] = FromFloat<T>(Gradient(ToFloat(z[i]), i)); }
  __device__ __forceinline__ void Vector(int i) const {
    float v[W];
    Load<W>(z + i, v);
#pragma unroll
    for (int j = 0; j < W; ++j) v[j] = Gradient(v[j], i + j);
    Store<W>(z + i, v);
  }
};

template <int W, typename T>
struct ZeroPass {
  T* z;
  __device__ __forceinline__ void One(int i) const { z[i] = FromFloat<T>(0.0f); }
  __device__ __forceinline__ void Vector(int i) const {
    const float zeros[W] = {};
    Store<W>(z + i, zeros);
  }
};

// Every lane ends with lane 0's bits: what a lane adds up depends on its place in the tree.
__device__ __forceinline__ ExpSum WarpTotal(ExpSum mine) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    ExpSum other;
    other.largest = __shfl_down_sync(kFullMask, mine.largest, step);
    other.sum = __shfl_down_sync(kFullMask, mine.sum, step);
    mine.Take(other);
  }
  mine.largest = __shfl_sync(kFullMask, mine.largest, 0);
  mine.sum = __shfl_sync(kFullMask, mine.sum, 0);
  return mine;
}

// --- kernel ---

// logits [N,V], rows `stride` elements apart; targets, losses [N]. kThreads threads a row: a warp, or the block.
template <int kThreads, bool kGradient, typename T>
__global__ void CrossEntropyKernel(T* logits, const int32_t* targets, float* losses, float scale, int N, int V,
                                   int stride) {
  constexpr int W = kVector<T>, kWarps = kThreads / kWarp;
  constexpr int kRows = kThreads == kWarp ? kWarpRows : 1;
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads;
  if (row >= N) return;  // whole warps; blocks of one row are never beyond
  T* const z = logits + row * stride;
  const int target = targets[row];
  if (target < 0) {
    if (thread == 0) losses[row] = 0;
    if (kGradient) ForRow<W, kThreads>(z, V, thread, ZeroPass<W, T>{z});
    return;
  }
  const float target_logit = ToFloat(z[target]);
  ExpSum total;
  ForRow<W, kThreads>(z, V, thread, SumPass<W, T>{z, &total});
  total = WarpTotal(total);
  if constexpr (kWarps > 1) {
    CUDA_SHARED(float, largest, [kWarps]);
    CUDA_SHARED(float, sum, [kWarps]);
    if (thread % kWarp == 0) {
      largest[thread / kWarp] = total.largest;
      sum[thread / kWarp] = total.sum;
    }
    __syncthreads();  // also: every thread has read the target's logit before it is overwritten
    total.largest = largest[0];
    total.sum = sum[0];
    for (int i = 1; i < kWarps; ++i) {
      ExpSum other;
      other.largest = largest[i];
      other.sum = sum[i];
      total.Take(other);
    }
  } else {
    __syncwarp();
  }
  if (thread == 0) {
    const double log_sum = log(static_cast<double>(total.sum));
    losses[row] = static_cast<float>(log_sum - (static_cast<double>(target_logit) - total.largest));
  }
  if (kGradient) {
    ForRow<W, kThreads>(z, V, thread, GradientPass<W, T>{z, total.largest, scale / total.sum, scale, target});
  }
}

// --- launchers ---

template <bool kGradient, typename T>
void LaunchCrossEntropy(cudaStream_t stream, T* logits, const int32_t* targets, float* losses, float scale, int N,
                        int V, int stride) {
  if (V <= kWarpsMostV) {
    Launch(CrossEntropyKernel<kWarp, kGradient, T>, Blocks(N, kWarpRows), kWarpRows * kWarp, 0, stream, logits, targets,
           losses, scale, N, V, stride);
  } else {
    Launch(CrossEntropyKernel<kBlockThreads, kGradient, T>, N, kBlockThreads, 0, stream, logits, targets, losses, scale,
           N, V, stride);
  }
}

}  // namespace

template <typename T>
void CrossEntropyForward(cudaStream_t stream, const T* logits, const int32_t* targets, float* losses, int N, int V,
                         int stride) {
  LaunchCrossEntropy<false>(stream, const_cast<T*>(logits), targets, losses, 0.0f, N, V, stride);
}
template <typename T>
void CrossEntropyForwardBackward(cudaStream_t stream, T* logits, const int32_t* targets, float* losses, float scale,
                                 int N, int V, int stride) {
  LaunchCrossEntropy<true>(stream, logits, targets, losses, scale, N, V, stride);
}

template void CrossEntropyForward<float>(cudaStream_t, const float*, const int32_t*, float*, int, int, int);
template void CrossEntropyForward<bf16>(cudaStream_t, const bf16*, const int32_t*, float*, int, int, int);
template void CrossEntropyForwardBackward<float>(cudaStream_t, float*, const int32_t*, float*, float, int, int, int);
template void CrossEntropyForwardBackward<bf16>(cudaStream_t, bf16*, const int32_t*, float*, float, int, int, int);

}  // namespace ablate::cuda
