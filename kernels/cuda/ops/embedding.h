// Rows of a table by token, and their gradient. Contracts as in kernels/backend.h; T is float or bf16.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

template <typename T>
void EmbeddingForward(cudaStream_t stream, const int32_t* tokens, const float* table, T* out, int N, int C);

// scratch: EmbeddingScratchBytes(N, C) bytes, 16-byte aligned.
template <typename T>
void EmbeddingBackward(cudaStream_t stream, const int32_t* tokens, const T* dout, float* dtable, void* scratch, int N,
                       int C);
int64_t EmbeddingScratchBytes(int N, int C);

}  // namespace ablate::cuda
