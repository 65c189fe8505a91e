#include "kernels/cuda/emulator/dialect_kernels.h"

namespace ablate::cuda {
namespace {

__device__ float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullMask, value, offset);
  return value;
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) row_sums_kernel(const float* __restrict__ x, float* sums, int columns) {
  CUDA_SHARED(float, partial, [kThreads / 32]);
  const int row = blockIdx.x, warp = threadIdx.x / 32;
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += kThreads) sum += x[static_cast<size_t>(row) * columns + c];
  sum = WarpSum(sum);
  if (threadIdx.x % 32 == 0) partial[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < kThreads / 32; ++i) total += partial[i];
    sums[row] = total;
  }
}

__global__ void transpose_kernel(const float* x, float* out, int rows, int columns) {
  CUDA_DYNAMIC_SHARED(float, tile);  // [32][33]
  const int column = blockIdx.x * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += blockDim.y) {
    const int row = blockIdx.y * 32 + i;
    if (row < rows && column < columns) tile[i * 33 + threadIdx.x] = x[static_cast<size_t>(row) * columns + column];
  }
  __syncthreads();
  const int out_column = blockIdx.y * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += blockDim.y) {
    const int out_row = blockIdx.x * 32 + i;
    if (out_row < columns && out_column < rows) {
      out[static_cast<size_t>(out_row) * rows + out_column] = tile[threadIdx.x * 33 + i];
    }
  }
}

constexpr int kTile = 32, kStride = kTile + 8;  // elements; rows 80 bytes apart

// One buffer: 32 rows of x from row0, columns k0 to k0 + 31; zero outside.
__device__ void LoadTile(bf16* tile, const bf16* x, int row0, int k0, int rows, int K) {
  for (int i = threadIdx.x; i < kTile * kTile / 8; i += blockDim.x) {
    const int row = i / (kTile / 8), column = i % (kTile / 8) * 8;
    const bool valid = row0 + row < rows && k0 + column < K;
    ptx::cp_async_16(tile + row * kStride + column, x + (valid ? static_cast<size_t>(row0 + row) * K + k0 + column : 0),
                     valid);
  }
}

// 128 threads: warp w makes rows 16 (w / 2).. and columns 16 (w % 2).. of the block's 32x32.
__global__ void __launch_bounds__(128) bf16_gemm_kernel(const bf16* a, const bf16* b, float* c, int M, int N, int K) {
  CUDA_SHARED(bf16, tile_a, [2][kTile * kStride]);
  CUDA_SHARED(bf16, tile_b, [2][kTile * kStride]);
  const int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile, steps = static_cast<int>(CeilDiv(K, kTile));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;
  float sums[2][4] = {};
  LoadTile(tile_a[0], a, row0, 0, M, K);
  LoadTile(tile_b[0], b, column0, 0, N, K);
  ptx::cp_async_commit();
  for (int step = 0; step < steps; ++step) {
    const int now = step % 2;
    if (step + 1 < steps) {
      LoadTile(tile_a[1 - now], a, row0, (step + 1) * kTile, M, K);
      LoadTile(tile_b[1 - now], b, column0, (step + 1) * kTile, N, K);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    __syncthreads();
    for (int k = 0; k < kTile; k += 16) {
      uint32_t fa[4], fb[4];
      ptx::ldmatrix_x4(fa, tile_a[now] + (warp_row + lane % 16) * kStride + k + lane / 16 * 8);
      // Rows are columns of the product: two 8-wide halves, each k and k + 8.
      ptx::ldmatrix_x4(fb, tile_b[now] + (warp_column + lane % 8 + lane / 16 * 8) * kStride + k + lane / 8 % 2 * 8);
      for (int half = 0; half < 2; ++half) {
        const uint32_t part[2] = {fb[2 * half], fb[2 * half + 1]};
        ptx::mma_m16n8k16_bf16(sums[half], fa, part, sums[half]);
      }
    }
    __syncthreads();
  }
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + warp_row + lane / 4 + i / 2 * 8,
                column = column0 + warp_column + half * 8 + lane % 4 * 2 + i % 2;
      if (row < M && column < N) c[static_cast<size_t>(row) * N + column] = sums[half][i];
    }
  }
}

__global__ void histogram_kernel(const int* x, int n, unsigned* histogram, int bins) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&histogram[x[i] % bins], 1u);
}

__global__ void count_odd_kernel(const int* x, int* counts) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned odd = __ballot_sync(kFullMask, x[i] & 1);
  const bool any = __any_sync(kFullMask, x[i] & 1), all = __all_sync(kFullMask, x[i] & 1);
  const int count = any ? (all ? 32 : __popc(odd)) : 0;
  // By way of the other shuffles: each gives back what it got.
  const int up = __shfl_up_sync(kFullMask, count, 1), down = __shfl_down_sync(kFullMask, up, 1);
  const int first = __shfl_sync(kFullMask, down, 0);
  __syncwarp();
  if (threadIdx.x % 32 == 0) counts[i / 32] = first;
}

}  // namespace

void LaunchRowSums(const float* x, float* sums, int rows, int columns, cudaStream_t stream) {
  Launch(row_sums_kernel<96>, rows, 96, 0, stream, x, sums, columns);
}

void LaunchTranspose(const float* x, float* out, int rows, int columns, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(columns, 32)), static_cast<unsigned>(CeilDiv(rows, 32)));
  Launch(transpose_kernel, grid, dim3(32, 8), 32 * 33 * sizeof(float), stream, x, out, rows, columns);
}

void LaunchBf16Gemm(const bf16* a, const bf16* b, float* c, int M, int N, int K, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(N, kTile)), static_cast<unsigned>(CeilDiv(M, kTile)));
  Launch(bf16_gemm_kernel, grid, 128, 0, stream, a, b, c, M, N, K);
}

void LaunchHistogram(const int* x, int n, unsigned* histogram, int bins, cudaStream_t stream) {
  Launch(histogram_kernel, static_cast<unsigned>(CeilDiv(n, 128)), 128, 0, stream, x, n, histogram, bins);
}

void LaunchCountOdd(const int* x, int n, int* counts, cudaStream_t stream) {
  Launch(count_odd_kernel, n / 64, 64, 0, stream, x, counts);
}

}  // namespace ablate::cuda
