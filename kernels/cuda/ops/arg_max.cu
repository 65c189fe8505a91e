// A block a row: each thread keeps the best of its elements, then lanes and warps are folded. What is best does not hang
// on the order: the larger, of equal ones the lower index, and NaN above all.
#include "kernels/cuda/ops/arg_max.h"

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

struct Best {
  float value;
  int index;

  __device__ __forceinline__ void Take(float other, int other_index) {
    const bool is_nan = value != value, other_is_nan = other != other;
    const bool equal = is_nan ? other_is_nan : value == other;
    const bool larger = is_nan ? false : other_is_nan || other > value;
    if (larger || (equal && other_index < index)) value = other, index = other_index;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) ArgMaxKernel(const T* logits, int32_t* out, int V, int stride) {
  CUDA_SHARED(float, values, [kWarps]);
  CUDA_SHARED(int, indices, [kWarps]);
  const T* const z = logits + int64_t{blockIdx.x} * stride;
  const int thread = static_cast<int>(threadIdx.x);
  // Threads beyond a short row begin with its first element, too.
  Best best = {ToFloat(z[0]), 0};
  for (int i = thread; i < V; i += kThreads) best.Take(ToFloat(z[i]), i);
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    const float value = __shfl_xor_sync(kFullMask, best.value, apart);
    const int index = __shfl_xor_sync(kFullMask, best.index, apart);
    best.Take(value, index);
  }
  if (thread % kWarp == 0) values[thread / kWarp] = best.value, indices[thread / kWarp] = best.index;
  __syncthreads();
  if (thread != 0) return;
  for (int w = 1; w < kWarps; ++w) best.Take(values[w], indices[w]);
  out[blockIdx.x] = best.index;
}

}  // namespace

template <typename T>
void ArgMax(cudaStream_t stream, const T* logits, int32_t* out, int N, int V, int stride) {
  Launch(ArgMaxKernel<T>, static_cast<unsigned>(N), kThreads, 0, stream, logits, out, V, stride);
}

template void ArgMax<float>(cudaStream_t, const float*, int32_t*, int, int, int);
template void ArgMax<bf16>(cudaStream_t, const bf16*, int32_t*, int, int, int);

}  // namespace ablate::cuda
