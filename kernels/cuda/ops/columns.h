// Sums of columns in a fixed order: bias gradients, and the second stage of other gradients. T is float or bf16.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// out[column] += sum over rows of x[row * stride + column], rows in a fixed order; few rows (a thousand or so).
void AddColumns(cudaStream_t stream, const float* x, int rows, int64_t stride, int columns, float* out);

// db[O] += column sums of dout[N,O]. partials: BiasPartialFloats(N, O) floats of scratch.
template <typename T>
void BiasBackward(cudaStream_t stream, const T* dout, float* db, float* partials, int N, int O);
int64_t BiasPartialFloats(int N, int O);

// out[N,O] += b[O].
template <typename T>
void AddBias(cudaStream_t stream, const T* b, T* out, int N, int O);

}  // namespace ablate::cuda
