// Every op of kernels/backend.h but attention in plain double precision: one formula a line, no blocking, as the
// yardstick of the fast kernels. Must not share code with them. Shapes and letters as in kernels/backend.h; gradients
// follow the same rule: dw, db, dtable, dx of layer norm are added to, others overwritten. Thread rule: free functions
// without state.
#pragma once

#include <cstdint>

#include "kernels/attention/variants.h"
#include "kernels/backend.h"

namespace ablate::reference {

void EmbeddingForward(const int32_t* tokens, const double* table, double* out, int N, int C);
void EmbeddingBackward(const int32_t* tokens, const double* dout, double* dtable, int N, int C);

// out = (x - mean) / sqrt(var + 1e-5) w + b, var over C (biased).
void LayerNormForward(const double* x, const double* w, const double* b, double* out, int N, int C);
void LayerNormBackward(const double* dout, const double* x, const double* w, double* dx, double* dw, double* db, int N,
                       int C);

void LinearForward(const double* x, const double* w, const double* b, double* out, int N, int I, int O);
void LinearBackward(const double* dout, const double* x, const double* w, double* dx, double* dw, double* db, int N,
                    int I, int O);

void GeluForward(const double* x, double* out, int64_t n);
void GeluBackward(const double* dout, const double* x, double* dx, int64_t n);

// cos and sin [T, D/2] of position t and pair k: t base^(-2k/D).
void RopeTable(double base, int T, int D, double* cos, double* sin);
void QkvForward(const double* qkv, const double* cos, const double* sin, QkNorm qk_norm, double* q, double* k,
                double* v, const AttentionShape& shape);
// From the packed input itself: the norms are found again.
void QkvBackward(const double* dq, const double* dk, const double* dv, const double* qkv, const double* cos,
                 const double* sin, QkNorm qk_norm, double* dqkv, const AttentionShape& shape);

// dlogits (may be null) = scale (softmax - onehot); a target of -1 has loss 0 and no gradient.
void CrossEntropy(const double* logits, const int32_t* targets, double* losses, double* dlogits, double scale, int N,
                  int V);

// One step of one tensor; gradient after clipping.
void AdamW(double* p, const double* gradient, double* m, double* v, int64_t n, double learning_rate, double beta1,
           double beta2, double eps, double weight_decay, int64_t step);

}  // namespace ablate::reference
