// Elementwise ops, cross-entropy, arg max, embedding and AdamW on the CPU. Contracts as in kernels/backend.h.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace ablate {

void CpuGeluForward(int threads, const float* x, float* out, int64_t n);
void CpuGeluBackward(int threads, const float* dout, const float* x, float* dx, int64_t n);
void CpuAdd(int threads, const float* a, const float* b, float* out, int64_t n);

void CpuEmbeddingForward(int threads, const int32_t* tokens, const float* table, float* out, int N, int C);
void CpuEmbeddingBackward(int threads, const int32_t* tokens, const float* dout, float* dtable, int N, int C);

// dlogits may be null (losses only) or logits itself.
void CpuCrossEntropy(int threads, const float* logits, const int32_t* targets, float* losses, float* dlogits,
                     float scale, int N, int V);

void CpuArgMax(int threads, const float* logits, int32_t* out, int N, int V);

double CpuSumOfSquares(int threads, const float* x, int64_t n);
void CpuAdamW(int threads, float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params);

}  // namespace ablate
