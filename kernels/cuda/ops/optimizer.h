// AdamW and sums of squares. Contracts as in kernels/backend.h.
#pragma once

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

// The step's constants, worked out on the host in double.
struct AdamWConstants {
  float scale;         // of the gradient
  float beta1, rest1;  // rest = 1 - beta
  float beta2, rest2;
  float step_size;             // learning rate / (1 - beta1^t)
  float inv_sqrt_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float keep;  // 1 - learning rate * decay
};

// p, m, v [n] in place; rounded [n] (may be null) gets the new p in bf16.
void AdamW(cudaStream_t stream, float* p, const float* gradient, float* m, float* v, bf16* rounded, int64_t n,
           const AdamWConstants& constants);

// *out = sum of squares of x[n], in double, in an order that depends on n alone. partials: kSquarePartials doubles of
// scratch; out and partials in device memory.
inline constexpr int kSquarePartials = 1024;
void SumOfSquares(cudaStream_t stream, const float* x, int64_t n, double* partials, double* out);

}  // namespace ablate::cuda
