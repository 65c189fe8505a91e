// The greedy choice. Contract as in kernels/backend.h; T is float or bf16; rows lie `stride` elements apart.
#pragma once

#include <cstdint>

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

template <typename T>
void ArgMax(cudaStream_t stream, const T* logits, int32_t* out, int N, int V, int stride);

}  // namespace ablate::cuda
