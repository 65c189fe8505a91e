// The bf16 side of attention.h: checks, workspace, launches. Thread rule: as gpu.h.
#include "kernels/cuda/attention/attention.h"

#include "glog/logging.h"
#include "kernels/cuda/attention/kernels_bf16.h"
#include "kernels/cuda/attention/recentre.h"

namespace ablate::cuda {
namespace {

using attention_bf16::Args;

Args MakeArgs(const AttentionSpec& spec, const AttentionShape& shape, const bf16* q, const bf16* k, const bf16* v,
              const float* learned_s, const float* learned_b) {
  CHECK(SupportsHeadDim<bf16>(shape.D)) << "attention: D " << shape.D << " in bf16";
  Args args{};
  args.problem = attention::MakeProblem(spec, shape, learned_s, learned_b);
  args.q = q;
  args.k = k;
  args.v = v;
  return args;
}

}  // namespace

template <>
void AttentionForward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const bf16* q,
                      const bf16* k, const bf16* v, const float* learned_s, const float* learned_b, bf16* out,
                      float* row_stats, unsigned long long* counts, void* workspace) {
  Args args = MakeArgs(spec, shape, q, k, v, learned_s, learned_b);
  args.problem.recentring = attention::ForwardRecentring(spec, workspace);
  if (args.problem.config.recentre) {
    attention::LaunchMeanKeys(stream, args.problem, q, k, nullptr, args.problem.recentring.mean_products);
  }
  args.out = out;
  args.row_stats = row_stats;
  args.counts = counts;
  attention_bf16::LaunchForward(stream, args);
}

template <>
void AttentionBackward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const bf16* q,
                       const bf16* k, const bf16* v, const float* learned_s, const float* learned_b, const bf16* out,
                       const bf16* dout, const float* row_stats, bf16* dq, bf16* dk, bf16* dv, float* dlearned_s,
                       float* dlearned_b, void* workspace) {
  Args args = MakeArgs(spec, shape, q, k, v, learned_s, learned_b);
  args.out = const_cast<bf16*>(out);
  args.row_stats = const_cast<float*>(row_stats);
  args.dout = dout;
  args.dq = dq;
  args.dk = dk;
  args.dv = dv;
  args.row_uses = static_cast<float*>(workspace);
  const int64_t padded_rows = int64_t{args.heads()} * attention_bf16::PaddedT(shape.T);
  if (spec.has_learned_scale()) {
    args.scale_sums = reinterpret_cast<float2*>(args.row_uses + padded_rows * attention_bf16::kRowUses);
  }
  args.problem.recentring = attention::BackwardRecentring(spec, shape, workspace);
  const attention::Recentring& recentring = args.problem.recentring;
  if (args.problem.config.recentre) {
    attention::LaunchMeanKeys(stream, args.problem, q, k, recentring.vectors, recentring.mean_products);
  }
  attention_bf16::LaunchBackwardRows(stream, args);
  if (args.problem.config.recentre) {
    attention::LaunchKeySums(stream, args.problem, q, recentring.row_weights, recentring.vectors);
  }
  attention::AddLearnedGradients(stream, spec, shape, args.scale_sums, attention_bf16::RowBlocks(shape.T), dlearned_s,
                                 dlearned_b);
  attention_bf16::LaunchBackwardColumns(stream, args);
}

}  // namespace ablate::cuda
