// Cross-entropy of logits [N,V], and fused with its gradient in place. Contracts as in kernels/backend.h; T is float or
// bf16. Any V, rows of any alignment.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

template <typename T>
void CrossEntropyForward(cudaStream_t stream, const T* logits, const int32_t* targets, float* losses, int N, int V,
                         int stride);
template <typename T>
void CrossEntropyForwardBackward(cudaStream_t stream, T* logits, const int32_t* targets, float* losses, float scale,
                                 int N, int V, int stride);

}  // namespace ablate::cuda
