// Splitting packed [Q|K|V] rows into heads, rotary positions and l2 normalisation. Contracts as in kernels/backend.h;
// T is float or bf16. Rotation and norm are found in float32, and rounded to T once, at the end.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// Sizes of AttentionShape, without its header.
struct HeadShape {
  int B = 0, T = 0, H = 0, D = 0;
};

// normalise: qk_norm = l2; q_norm and k_norm are written and read only then.
template <typename T>
void QkvForward(cudaStream_t stream, const T* qkv, const float* cos, const float* sin, bool normalise, T* q, T* k, T* v,
                float* q_norm, float* k_norm, const HeadShape& shape);
template <typename T>
void QkvBackward(cudaStream_t stream, const T* dq, const T* dk, const T* dv, const T* q, const T* k, const float* cos,
                 const float* sin, bool normalise, const float* q_norm, const float* k_norm, T* dqkv,
                 const HeadShape& shape);

}  // namespace ablate::cuda
