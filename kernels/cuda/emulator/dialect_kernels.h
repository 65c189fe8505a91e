// Launchers of small kernels that use every word of the dialect (gpu.h): for the emulator's own test, and for nvcc to
// compile. All pointers are to device memory.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// sums[row] = sum of x[row, columns]; one block a row, 96 threads, warp sums joined in shared memory.
void LaunchRowSums(const float* x, float* sums, int rows, int columns, cudaStream_t stream);

// out[columns, rows] = x[rows, columns] transposed by 32x32 tiles.
void LaunchTranspose(const float* x, float* out, int rows, int columns, cudaStream_t stream);

// c[M,N] = a[M,K] b[N,K]^T on tensor cores: blocks of 32x32, K in steps of 32 through a ring of two buffers filled by
// cp.async. K % 8 == 0; any M, N.
void LaunchBf16Gemm(const bf16* a, const bf16* b, float* c, int M, int N, int K, cudaStream_t stream);

// histogram[bins] += how many of x[n] fall into each: integer atomics.
void LaunchHistogram(const int* x, int n, unsigned* histogram, int bins, cudaStream_t stream);

// Each warp finds its number of odd values of x[n] (n a multiple of 64): counts[n / 32].
void LaunchCountOdd(const int* x, int n, int* counts, cudaStream_t stream);

}  // namespace ablate::cuda
