// Sums of columns. A block of the first stage takes a slab of rows and a tile of columns, 8 rows at a time; its 8 sums
// a column are added in order, and so are the slabs, by the second stage. The cut depends on the shape alone.
#include "kernels/cuda/ops/columns.h"

#include <algorithm>

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kRows = 8;            // rows of threads in a block of the first stage
constexpr int kSumRows = 16;        // and of the second
constexpr int kLeastSlabRows = 64;  // a slab of fewer rows would write more than it reads
constexpr int kMostSlabs = 128;
constexpr int kThreads = 256;

int SlabRows(int N) { return std::max(kLeastSlabRows, static_cast<int>(CeilDiv(N, kMostSlabs))); }

// --- kernels ---

// x[rows, stride]; a lane a column, row y of threads takes rows y, y + 16, ...
__global__ void AddColumnsKernel(const float* x, int rows, int64_t stride, int columns, float* out) {
  CUDA_SHARED(float, sums, [kSumRows][kWarp + 1]);
  const int column = static_cast<int>(blockIdx.x) * kWarp + static_cast<int>(threadIdx.x);
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int row = static_cast<int>(threadIdx.y); row < rows; row += kSumRows) sum += x[row * stride + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int y = 0; y < kSumRows; ++y) total += sums[y][threadIdx.x];
  out[column] += total;
}

// dout[N,O] -> partials[slab, O]
template <int W, typename T>
__global__ void ColumnSumKernel(const T* dout, float* partials, int N, int O, int slab_rows) {
  CUDA_SHARED(float, sums, [kRows][kWarp * W]);
  const int column = (static_cast<int>(blockIdx.x) * kWarp + static_cast<int>(threadIdx.x)) * W;
  const int64_t first = int64_t{blockIdx.y} * slab_rows;
  const int64_t last = first + slab_rows < N ? first + slab_rows : N;
  float sum[W] = {};
  if (column < O) {
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += kRows) {
      float d[W];
      Load<W>(dout + row * O + column, d);
#pragma unroll
      for (int j = 0; j < W; ++j) sum[j] += d[j];
    }
  }
#pragma unroll
  for (int j = 0; j < W; ++j) sums[threadIdx.y][threadIdx.x * W + j] = sum[j];
  __syncthreads();
  if (threadIdx.y != 0 || column >= O) return;
#pragma unroll
  for (int j = 0; j < W; ++j) {
    float total = 0;
    for (int y = 0; y < kRows; ++y) total += sums[y][threadIdx.x * W + j];
    partials[int64_t{blockIdx.y} * O + column + j] = total;
  }
}

template <typename T>
__global__ void AddBiasKernel(const T* b, T* out, int64_t n, int O) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) out[i] = FromFloat<T>(ToFloat(out[i]) + ToFloat(b[i % O]));
}

template <int W, typename T>
void LaunchColumnSums(cudaStream_t stream, const T* dout, float* partials, int N, int O) {
  const int rows = SlabRows(N);
  Launch(ColumnSumKernel<W, T>, dim3(Blocks(O, kWarp * W), Blocks(N, rows)), dim3(kWarp, kRows), 0, stream, dout,
         partials, N, O, rows);
}

}  // namespace

// --- launchers ---

void AddColumns(cudaStream_t stream, const float* x, int rows, int64_t stride, int columns, float* out) {
  Launch(AddColumnsKernel, Blocks(columns, kWarp), dim3(kWarp, kSumRows), 0, stream, x, rows, stride, columns, out);
}

int64_t BiasPartialFloats(int N, int O) { return CeilDiv(N, SlabRows(N)) * O; }

template <typename T>
void BiasBackward(cudaStream_t stream, const T* dout, float* db, float* partials, int N, int O) {
  constexpr int W = 4;
  if (O % W == 0 && Aligned<W>(dout)) {
    LaunchColumnSums<W>(stream, dout, partials, N, O);
  } else {
    LaunchColumnSums<1>(stream, dout, partials, N, O);
  }
  AddColumns(stream, partials, static_cast<int>(CeilDiv(N, SlabRows(N))), O, O, db);
}

template <typename T>
void AddBias(cudaStream_t stream, const T* b, T* out, int N, int O) {
  const int64_t n = int64_t{N} * O;
  Launch(AddBiasKernel<T>, Blocks(n, kThreads), kThreads, 0, stream, b, out, n, O);
}

template void BiasBackward<float>(cudaStream_t, const float*, float*, float*, int, int);
template void BiasBackward<bf16>(cudaStream_t, const bf16*, float*, float*, int, int);
template void AddBias<float>(cudaStream_t, const float*, float*, int, int);
template void AddBias<bf16>(cudaStream_t, const bf16*, bf16*, int, int);

}  // namespace ablate::cuda
