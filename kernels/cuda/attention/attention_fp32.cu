// Attention in float, as attention.h has it: the arguments' checks, and the launches of kernels_fp32.h one after
// another. Must not know tiles. Thread rule: as attention.h.
#include "glog/logging.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/kernels_fp32.h"
#include "kernels/cuda/attention/recentre.h"

namespace ablate::cuda {

template <>
void AttentionForward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                      const float* k, const float* v, const float* learned_s, const float* learned_b, float* out,
                      float* row_stats, unsigned long long* counts, void* workspace) {
  CHECK(SupportsHeadDim<float>(shape.D)) << "attention: head dimension " << shape.D;
  attention::Problem problem = attention::MakeProblem(spec, shape, learned_s, learned_b);
  problem.recentring = attention::ForwardRecentring(spec, workspace);
  if (problem.config.recentre) {
    attention::LaunchMeanKeys(stream, problem, q, k, nullptr, problem.recentring.mean_products);
  }
  attention::LaunchForward(stream, problem, q, k, v, out, row_stats, counts);
}

template <>
void AttentionBackward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                       const float* k, const float* v, const float* learned_s, const float* learned_b, const float* out,
                       const float* dout, const float* row_stats, float* dq, float* dk, float* dv, float* dlearned_s,
                       float* dlearned_b, void* workspace) {
  CHECK(SupportsHeadDim<float>(shape.D)) << "attention: head dimension " << shape.D;
  attention::Problem problem = attention::MakeProblem(spec, shape, learned_s, learned_b);
  problem.recentring = attention::BackwardRecentring(spec, shape, workspace);
  const attention::Recentring& recentring = problem.recentring;
  const attention::Workspace parts = attention::WorkspaceOf(shape, workspace);
  if (problem.config.recentre) {
    attention::LaunchMeanKeys(stream, problem, q, k, recentring.vectors, recentring.mean_products);
  }
  attention::LaunchBackwardRows(stream, problem, q, k, v, out, dout, row_stats, dq, parts);
  if (problem.config.recentre) {
    attention::LaunchKeySums(stream, problem, q, recentring.row_weights, recentring.vectors);
  }
  attention::LaunchBackwardColumns(stream, problem, q, k, v, dout, row_stats, dk, dv, parts);
  attention::AddLearnedGradients(stream, spec, shape, parts.partials, attention::RowsTiles(shape.T), dlearned_s,
                                 dlearned_b);
}

}  // namespace ablate::cuda
