// What re-centred scores (kernels/attention/score.h) need beside the attention kernels, linear in T: mean keys before
// them, and what the gradients of all rows take off a key's. Must not know tiles of scores, nor activations.
//
// With r_i = sum_j dS_ij, m_i the mean of the keys that row i attends, and dS' = dS - r_i / n_i:
//   S_ij   = c_i (q_i . k_j - q_i . m_i) + ...          mean_products: q_i . m_i
//   dq_i   = c_i (sum_j dS_ij k_j - r_i m_i)            vectors: m_i, while the rows kernel runs
//   dk_j   = sum_i c_i dS_ij q_i - sum_i (c_i r_i / n_i) q_i, over the rows i that attend j
//            row_weights: c_i r_i / n_i, by the rows kernel; vectors: the second sum, while the columns kernel runs
// Both sums over keys and over rows are taken off in float, before a result is rounded.
#pragma once

#include "kernels/cuda/attention/problem.h"

namespace ablate::cuda::attention {

// mean_products [B,H,T], and means [B,H,T,D] unless null.
template <class T>
void LaunchMeanKeys(cudaStream_t stream, const Problem& problem, const T* q, const T* k, float* means,
                    float* mean_products);

// sums [B,H,T,D]: of row_weights_i q_i over the rows i that attend key j.
template <class T>
void LaunchKeySums(cudaStream_t stream, const Problem& problem, const T* q, const float* row_weights, float* sums);

}  // namespace ablate::cuda::attention
