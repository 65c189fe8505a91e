// Stands in for attention/attention_bf16.cu until that file is there, so that the float32 backend can be used; CMake
// takes one or the other.
#include "base/log.h"
#include "kernels/cuda/attention/attention.h"

namespace ablate::cuda {

template <>
void AttentionForward(cudaStream_t, const AttentionSpec&, const AttentionShape&, const bf16*, const bf16*, const bf16*,
                      const float*, const float*, bf16*, float*, unsigned long long*) {
  LOG(FATAL) << "this build has no attention in bf16";
}
template <>
void AttentionBackward(cudaStream_t, const AttentionSpec&, const AttentionShape&, const bf16*, const bf16*, const bf16*,
                       const float*, const float*, const bf16*, const bf16*, const float*, bf16*, bf16*, bf16*, float*,
                       float*, void*) {
  LOG(FATAL) << "this build has no attention in bf16";
}

}  // namespace ablate::cuda
