// A plain matrix product that takes any shape: what the emulated backend computes with, and what the CUDA backend falls
// back to where cuBLAS has nothing. Its sums run over the inner index in order.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// Element (row, column) of a matrix lies at row * row_step + column * column_step.
struct Steps {
  int64_t row = 0, column = 0;
};

// c[M,N] (rows c_stride elements apart) = a[M,K] b[K,N] + bias[N] (null: none), or += (accumulate). Sums in float32; In
// and Out are float or bf16, rounded once.
template <typename In, typename Out>
void PlainGemm(cudaStream_t stream, const In* a, Steps a_steps, const In* b, Steps b_steps, const In* bias, Out* c,
               int c_stride, bool accumulate, int M, int N, int K);

}  // namespace ablate::cuda
