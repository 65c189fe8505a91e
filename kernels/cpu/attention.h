// The attention family on the CPU in float32, forward and backward: row panels whose scores stay in the L2 cache,
// causal, never T x T. Must not know the Backend object: kernels/cpu/backend calls these functions for its ops of these
// names. Formulas: docs/attention.md; kernels/attention/score.h has the part that is shared with CUDA.
//
// Thread rule: any thread may call; a call uses up to `threads` threads (>= 1) and its results have the same bits
// for every number of them.
#pragma once

#include "kernels/attention/variants.h"
#include "kernels/backend.h"

namespace ablate {

// Arguments and contract as Backend::AttentionForward. Memory beside them: O(T D) a thread.
void CpuAttentionForward(int threads, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                         const float* k, const float* v, const float* learned_s, const float* learned_b, float* out,
                         float* row_stats, AttentionCounts* counts);

// Arguments and contract as Backend::AttentionBackward. Memory beside them: O(T D) a thread, and for few long sequences
// three times the size of dk and dv (partial sums, added in a fixed order).
void CpuAttentionBackward(int threads, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                          const float* k, const float* v, const float* learned_s, const float* learned_b,
                          const float* out, const float* dout, const float* row_stats, float* dq, float* dk, float* dv,
                          float* dlearned_s, float* dlearned_b);

// Arguments and contract as Backend::AttentionStatistics. Memory beside them: O(T D) a thread.
void CpuAttentionStatistics(int threads, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                            const float* k, const float* learned_s, const float* learned_b, float* statistics);

}  // namespace ablate
