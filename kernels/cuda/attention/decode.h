// Generation on CUDA: the cache of keys and values, attention of one new position of each sequence against it, and the
// greedy choice. T is float or bf16. Contracts as in kernels/backend.h. Must not know the Backend object or memory
// pools. Bits depend on the arguments and the kind of device alone.
// All arrays in device memory, 16-byte aligned. Errors and thread rule: as attention.h.
#pragma once

#include <cstdint>

#include "kernels/attention/variants.h"
#include "kernels/backend.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

template <class T>
void CacheKeyValue(cudaStream_t stream, const T* qkv, T* keys, T* values, const AttentionShape& shape, int capacity);

// Rotated and normalised queries and keys are rounded to T, as QkvForward leaves them. workspace:
// AttentionDecodeWorkspaceBytes(shape) bytes, 16-byte aligned, overwritten.
template <class T>
void AttentionDecode(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, int capacity,
                     const int32_t* lengths, const T* qkv, const float* cos, const float* sin, const float* learned_s,
                     const float* learned_b, T* keys, T* values, T* out, void* workspace);

// A float a key of every head.
int64_t AttentionDecodeWorkspaceBytes(const AttentionShape& shape);

}  // namespace ablate::cuda
