// Fused attention of the whole family on CUDA: what the backend calls. T = float runs on the CUDA cores
// (attention_fp32.cu), T = bf16 on tensor cores (*_bf16.cu). Must not know the Backend object or memory pools.
// Formulas: docs/attention.md, kernels/attention/score.h; passes, tiles and costs: docs/kernels.md.
//
// Causal, any length, window and ALiBi as in the spec; no T x T array. Bits depend on the arguments and the kind of
// device alone: sums have a fixed order, there are no floating-point atomics.
// Layouts as in kernels/backend.h: q, k, v, dq, dk, dv [B,H,T,D]; out, dout [B*T, H*D], heads contiguous; row_stats
// [B,H,T,4] float32 for both types. All arrays in device memory, 16-byte aligned.
//
// Errors: arguments outside the contract are CHECK failures (spec invalid, learned arrays missing, a head dimension
// that SupportsHeadDim refuses); device failures show in TakeFailure (kernels/cuda/gpu.h).
// Thread rule: as gpu.h. Work is queued on the stream; the host does not wait.
#pragma once

#include <cstdint>

#include "kernels/attention/variants.h"
#include "kernels/backend.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// Whether the kernels of this type take heads of D: float: multiples of 4 up to 128; bf16: multiples of 8 up to 128.
template <class T>
bool SupportsHeadDim(int D);
template <>
bool SupportsHeadDim<float>(int D);
template <>
bool SupportsHeadDim<bf16>(int D);

// learned_s, learned_b [H]: null where the spec has none. row_stats: null when no backward follows.
// counts: device memory [2], zero rows and uncontrasted rows, added to; may be null.
// workspace: AttentionForwardWorkspaceBytes(spec, shape) bytes, 16-byte aligned, overwritten; null where these are
// none.
template <class T>
void AttentionForward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const T* q,
                      const T* k, const T* v, const float* learned_s, const float* learned_b, T* out, float* row_stats,
                      unsigned long long* counts, void* workspace = nullptr);
template <>
void AttentionForward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                      const float* k, const float* v, const float* learned_s, const float* learned_b, float* out,
                      float* row_stats, unsigned long long* counts, void* workspace);
template <>
void AttentionForward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const bf16* q,
                      const bf16* k, const bf16* v, const float* learned_s, const float* learned_b, bf16* out,
                      float* row_stats, unsigned long long* counts, void* workspace);

// out, row_stats as forward left them. dq, dk, dv overwritten; dlearned_s, dlearned_b [H] += (null where the spec has
// none). workspace: AttentionBackwardWorkspaceBytes(spec, shape) bytes, 16-byte aligned, overwritten.
template <class T>
void AttentionBackward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const T* q,
                       const T* k, const T* v, const float* learned_s, const float* learned_b, const T* out,
                       const T* dout, const float* row_stats, T* dq, T* dk, T* dv, float* dlearned_s, float* dlearned_b,
                       void* workspace);
template <>
void AttentionBackward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                       const float* k, const float* v, const float* learned_s, const float* learned_b, const float* out,
                       const float* dout, const float* row_stats, float* dq, float* dk, float* dv, float* dlearned_s,
                       float* dlearned_b, void* workspace);
template <>
void AttentionBackward(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const bf16* q,
                       const bf16* k, const bf16* v, const float* learned_s, const float* learned_b, const bf16* out,
                       const bf16* dout, const float* row_stats, bf16* dq, bf16* dk, bf16* dv, float* dlearned_s,
                       float* dlearned_b, void* workspace);

// statistics: [B,H,T,kAttentionStatistics] float32 for both types. workspace: as AttentionForward's.
template <class T>
void AttentionStatistics(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const T* q,
                         const T* k, const float* learned_s, const float* learned_b, float* statistics,
                         void* workspace = nullptr);

// Linear in T; enough for either type. Forward needs none but for re-centred scores, for which backward's holds B H T D
// floats too.
int64_t AttentionForwardWorkspaceBytes(const AttentionSpec& spec, const AttentionShape& shape);
int64_t AttentionBackwardWorkspaceBytes(const AttentionSpec& spec, const AttentionShape& shape);

}  // namespace ablate::cuda
