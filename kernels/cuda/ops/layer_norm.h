// Layer norm over C, eps 1e-5. Contracts as in kernels/backend.h; T is float or bf16.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

template <typename T>
void LayerNormForward(cudaStream_t stream, const T* x, const float* w, const float* b, T* out, float* mean, float* rstd,
                      int N, int C);

// partials: LayerNormPartialFloats(N, C) floats of scratch.
template <typename T>
void LayerNormBackward(cudaStream_t stream, const T* dout, const T* x, const float* w, const float* mean,
                       const float* rstd, T* dx, float* dw, float* db, float* partials, int N, int C);

int64_t LayerNormPartialFloats(int N, int C);

}  // namespace ablate::cuda
