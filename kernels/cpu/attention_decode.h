// Generation on the CPU: the cache of keys and values, and attention of one new position against it. Must not know the
// Backend object or models. Contracts as in kernels/backend.h; formulas: kernels/attention/score.h.
//
// Thread rule: any thread may call; a call uses up to `threads` threads (>= 1) and its results have the same bits for
// every number of them.
#pragma once

#include <cstdint>

#include "kernels/attention/variants.h"
#include "kernels/backend.h"

namespace ablate {

void CpuCacheKeyValue(int threads, const float* qkv, float* keys, float* values, const AttentionShape& shape,
                      int capacity);

// The row's element-wise passes are those of CpuAttentionForward; keys are rotated and normalised on the way, and not
// kept so.
void CpuAttentionDecode(int threads, const AttentionSpec& spec, const AttentionShape& shape, int capacity,
                        const int32_t* lengths, const float* qkv, const float* cos, const float* sin,
                        const float* learned_s, const float* learned_b, float* keys, float* values, float* out);

}  // namespace ablate
