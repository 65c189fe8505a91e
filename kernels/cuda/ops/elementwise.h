// GELU, sums and conversions of activations. Contracts as in kernels/backend.h; T is float or bf16.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

template <typename T>
void GeluForward(cudaStream_t stream, const T* x, T* out, int64_t n);  // out may be x
template <typename T>
void GeluBackward(cudaStream_t stream, const T* dout, const T* x, T* dx, int64_t n);  // dx may be dout
template <typename T>
void Add(cudaStream_t stream, const T* a, const T* b, T* out, int64_t n);  // out may be a

// out = x, rounded to nearest, ties to even.
void ConvertToBf16(cudaStream_t stream, const float* x, bf16* out, int64_t n);

}  // namespace ablate::cuda
