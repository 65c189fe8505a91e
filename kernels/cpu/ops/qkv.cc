#include "kernels/cpu/ops/qkv.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/parallel.h"

namespace ablate {
namespace {

constexpr int64_t kPositions = 128;
constexpr float kSmallestNorm = 1e-12f;

// out = rotate(in), then divided by its norm if norm is not null. in and out do not overlap.
void ForwardHead(const float* __restrict in, const float* __restrict cos, const float* __restrict sin,
                 float* __restrict out, float* norm, int D) {
  const int half = D / 2;
  if (cos != nullptr) {
#pragma omp simd
    for (int i = 0; i < half; ++i) {
      out[i] = in[i] * cos[i] - in[half + i] * sin[i];
      out[half + i] = in[half + i] * cos[i] + in[i] * sin[i];
    }
  } else {
    std::memcpy(out, in, sizeof(float) * D);
  }
  if (norm == nullptr) return;
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int i = 0; i < D; ++i) squares += out[i] * out[i];
  *norm = std::max(__builtin_sqrtf(squares), kSmallestNorm);
  const float inverse = 1.0f / *norm;
#pragma omp simd
  for (int i = 0; i < D; ++i) out[i] *= inverse;
}

// The transpose: dx/|x| without its part along q (kept whole where the norm was at its floor), then rotated back.
void BackwardHead(const float* __restrict d, const float* __restrict q, const float* __restrict cos,
                  const float* __restrict sin, const float* norm, float* __restrict out, int D) {
  float along = 0, inverse = 1;
  if (norm != nullptr) {
    inverse = 1.0f / *norm;
    if (*norm > kSmallestNorm) {
#pragma omp simd reduction(+ : along)
      for (int i = 0; i < D; ++i) along += q[i] * d[i];
    }
  }
  const int half = D / 2;
  if (cos != nullptr) {
#pragma omp simd
    for (int i = 0; i < half; ++i) {
      const float a = (d[i] - along * q[i]) * inverse;
      const float b = (d[half + i] - along * q[half + i]) * inverse;
      out[i] = a * cos[i] + b * sin[i];
      out[half + i] = b * cos[i] - a * sin[i];
    }
  } else {
#pragma omp simd
    for (int i = 0; i < D; ++i) out[i] = (d[i] - along * q[i]) * inverse;
  }
}

// Calls body(b, h, t0, t1) for blocks of positions of every head.
template <typename Body>
void ForHeads(int threads, const AttentionShape& shape, const Body& body) {
  const int64_t blocks = (shape.T + kPositions - 1) / kPositions;
  ParallelFor(threads, blocks * shape.B * shape.H, [&](int64_t item) {
    const int h = static_cast<int>(item % shape.H);
    const int64_t rest = item / shape.H;
    const int64_t t0 = rest % blocks * kPositions;
    body(static_cast<int>(rest / blocks), h, t0, std::min<int64_t>(shape.T, t0 + kPositions));
  });
}

}  // namespace

void CpuQkvForward(int threads, const float* qkv, const float* cos, const float* sin, QkNorm qk_norm, float* q,
                   float* k, float* v, float* q_norm, float* k_norm, const AttentionShape& shape) {
  const int D = shape.D, half = D / 2;
  const int64_t C = int64_t{shape.H} * D;
  const bool normalise = qk_norm == QkNorm::kL2;
  ForHeads(threads, shape, [&](int b, int h, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; ++t) {
      const float* row = qkv + (int64_t{b} * shape.T + t) * 3 * C + int64_t{h} * D;
      const int64_t head_row = (int64_t{b} * shape.H + h) * shape.T + t;
      const float* c = cos == nullptr ? nullptr : cos + t * half;
      const float* s = sin == nullptr ? nullptr : sin + t * half;
      ForwardHead(row, c, s, q + head_row * D, normalise ? q_norm + head_row : nullptr, D);
      ForwardHead(row + C, c, s, k + head_row * D, normalise ? k_norm + head_row : nullptr, D);
      std::memcpy(v + head_row * D, row + 2 * C, sizeof(float) * D);
    }
  });
}

void CpuQkvBackward(int threads, const float* dq, const float* dk, const float* dv, const float* q, const float* k,
                    const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                    float* dqkv, const AttentionShape& shape) {
  const int D = shape.D, half = D / 2;
  const int64_t C = int64_t{shape.H} * D;
  const bool normalise = qk_norm == QkNorm::kL2;
  ForHeads(threads, shape, [&](int b, int h, int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; ++t) {
      float* row = dqkv + (int64_t{b} * shape.T + t) * 3 * C + int64_t{h} * D;
      const int64_t head_row = (int64_t{b} * shape.H + h) * shape.T + t;
      const float* c = cos == nullptr ? nullptr : cos + t * half;
      const float* s = sin == nullptr ? nullptr : sin + t * half;
      BackwardHead(dq + head_row * D, q + head_row * D, c, s, normalise ? q_norm + head_row : nullptr, row, D);
      BackwardHead(dk + head_row * D, k + head_row * D, c, s, normalise ? k_norm + head_row : nullptr, row + C, D);
      std::memcpy(row + 2 * C, dv + head_row * D, sizeof(float) * D);
    }
  });
}

}  // namespace ablate
