// The launches of the float kernels, one file each; attention_fp32.cu puts them together. Arguments as attention.h.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/problem.h"

namespace ablate::cuda::attention {

void LaunchForward(cudaStream_t stream, const Problem& problem, const float* q, const float* k, const float* v,
                   float* out, float* row_stats, unsigned long long* counts);

// dq, and the workspace for the columns and for AddLearnedGradients: RowsTiles(T) partials a head.
void LaunchBackwardRows(cudaStream_t stream, const Problem& problem, const float* q, const float* k, const float* v,
                        const float* out, const float* dout, const float* row_stats, float* dq,
                        const Workspace& workspace);
int RowsTiles(int T);

// dk and dv, from what the rows left.
void LaunchBackwardColumns(cudaStream_t stream, const Problem& problem, const float* q, const float* k, const float* v,
                           const float* dout, const float* row_stats, float* dk, float* dv, const Workspace& workspace);

// launch(a type whose ::value is D rounded up to a multiple of 32) for D <= 128.
template <class LaunchWidth>
void ForWidth(int D, LaunchWidth launch) {
  if (D <= 32) return launch(std::integral_constant<int, 32>{});
  if (D <= 64) return launch(std::integral_constant<int, 64>{});
  if (D <= 96) return launch(std::integral_constant<int, 96>{});
  launch(std::integral_constant<int, 128>{});
}

}  // namespace ablate::cuda::attention
