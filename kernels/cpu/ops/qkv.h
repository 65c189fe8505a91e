// Splitting packed [Q|K|V] rows into heads, rotary positions and l2 normalisation on the CPU. Contracts as in
// kernels/backend.h.
#pragma once

#include "kernels/backend.h"

namespace ablate {

void CpuQkvForward(int threads, const float* qkv, const float* cos, const float* sin, QkNorm qk_norm, float* q,
                   float* k, float* v, float* q_norm, float* k_norm, const AttentionShape& shape);
void CpuQkvBackward(int threads, const float* dq, const float* dk, const float* dv, const float* q, const float* k,
                    const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                    float* dqkv, const AttentionShape& shape);

}  // namespace ablate
