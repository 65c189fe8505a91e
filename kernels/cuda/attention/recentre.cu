// Sums over the keys that a row attends, and over the rows that attend a key, of all rows and keys of a head. One
// kernel: seen from the last row backwards, the rows that attend a key are those that a row attends.
//
// A block takes 64 rows of a head: it sums what its first row attends before them, then walks over them. [T, D] is read
// T / 128 times in all, of the [T, D] tiles that attention reads T / 64 times twice.
#include "kernels/cuda/attention/recentre.h"

namespace ablate::cuda::attention {
namespace {

constexpr int kThreads = 128, kRows = 64, kPiece = 32;

// width: threads a column each, a power of two >= D; the kThreads / width groups share the sum before the tile.
// kMeans: sums are divided by their number of rows, and `products` of q and them are wanted.
template <class T, bool kMeans>
__global__ void __launch_bounds__(kThreads)
    AttendedSumsKernel(Problem problem, int tiles, int width, const T* x, const T* q, const float* weights, float* sums,
                       float* products) {
  CUDA_DYNAMIC_SHARED(float, shared);  // [kRows, width]; before that, a sum a thread
  const int rows = problem.T, D = problem.D, thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.x) / tiles, first = static_cast<int>(blockIdx.x) % tiles * kRows;
  const int end = first + kRows < rows ? first + kRows : rows, low = FirstKey(problem, first);
  const int column = thread % width, group = thread / width, groups = kThreads / width;
  const int64_t head_at = static_cast<int64_t>(head) * rows;
  const auto row_of = [&](int t) { return head_at + (kMeans ? t : rows - 1 - t); };
  const auto value = [&](int t) {
    const float at = ToFloat(x[row_of(t) * D + column]);
    return kMeans ? at : at * weights[row_of(t)];
  };

  float sum = 0;
  for (int piece = low + group * kPiece; column < D && piece < first; piece += groups * kPiece) {
    const int piece_end = piece + kPiece < first ? piece + kPiece : first;
    float of_piece = 0;
    for (int t = piece; t < piece_end; ++t) of_piece += value(t);
    sum += of_piece;
  }
  shared[thread] = sum;
  __syncthreads();
  for (int g = 1; group == 0 && g < groups; ++g) sum += shared[g * width + column];

  // A thread writes the column that it alone has read from.
  if (group == 0 && column < D) {
    for (int t = first; t < end; ++t) {
      const int first_key = FirstKey(problem, t);
      if (t > first && first_key > FirstKey(problem, t - 1)) sum -= value(first_key - 1);
      sum += value(t);
      const float result = kMeans ? sum / static_cast<float>(t - first_key + 1) : sum;
      if (sums != nullptr) sums[row_of(t) * D + column] = result;
      shared[(t - first) * width + column] = result;
    }
  }
  if constexpr (kMeans) {
    __syncthreads();
    const int lane = thread % kWarpSize;
    for (int t = first + thread / kWarpSize; t < end; t += kThreads / kWarpSize) {
      float product = 0;
      for (int d = lane; d < D; d += kWarpSize) {
        product = score::MulAdd(ToFloat(q[(head_at + t) * D + d]), shared[(t - first) * width + d], product);
      }
#pragma unroll
      for (int apart = kWarpSize / 2; apart > 0; apart /= 2) product += __shfl_xor_sync(kFullMask, product, apart);
      if (lane == 0) products[head_at + t] = product;
    }
  }
}

template <class T, bool kMeans>
void LaunchSums(cudaStream_t stream, const Problem& problem, const T* x, const T* q, const float* weights, float* sums,
                float* products) {
  int width = kWarpSize;
  while (width < problem.D) width *= 2;
  const int tiles = static_cast<int>(CeilDiv(problem.T, kRows));
  Launch((AttendedSumsKernel<T, kMeans>), dim3(static_cast<unsigned>(problem.B * problem.H * tiles)), dim3(kThreads),
         sizeof(float) * kRows * static_cast<size_t>(width), stream, problem, tiles, width, x, q, weights, sums,
         products);
}

}  // namespace

template <class T>
void LaunchMeanKeys(cudaStream_t stream, const Problem& problem, const T* q, const T* k, float* means,
                    float* mean_products) {
  LaunchSums<T, true>(stream, problem, k, q, nullptr, means, mean_products);
}
template void LaunchMeanKeys(cudaStream_t, const Problem&, const float*, const float*, float*, float*);
template void LaunchMeanKeys(cudaStream_t, const Problem&, const bf16*, const bf16*, float*, float*);

template <class T>
void LaunchKeySums(cudaStream_t stream, const Problem& problem, const T* q, const float* row_weights, float* sums) {
  LaunchSums<T, false>(stream, problem, q, nullptr, row_weights, sums, nullptr);
}
template void LaunchKeySums(cudaStream_t, const Problem&, const float*, const float*, float*);
template void LaunchKeySums(cudaStream_t, const Problem&, const bf16*, const float*, float*);

}  // namespace ablate::cuda::attention
