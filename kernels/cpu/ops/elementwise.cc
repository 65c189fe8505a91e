#include "kernels/cpu/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace ablate {
namespace {

constexpr int64_t kBlock = 1 << 15;

// gelu(x) = x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the sigmoid form loses nothing for
// negative x.
constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

}  // namespace

void CpuGeluForward(int threads, const float* x, float* out, int64_t n) {
  ParallelBlocks(threads, n, kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float v = x[i];
      out[i] = v * VectorSigmoid(kTwoSqrt2OverPi * v * (1.0f + kCubic * v * v));
    }
  });
}

void CpuGeluBackward(int threads, const float* dout, const float* x, float* dx, int64_t n) {
  ParallelBlocks(threads, n, kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float v = x[i];
      const float s = VectorSigmoid(kTwoSqrt2OverPi * v * (1.0f + kCubic * v * v));
      const float du = kTwoSqrt2OverPi * (1.0f + 3.0f * kCubic * v * v);
      dx[i] = dout[i] * (s + v * s * (1.0f - s) * du);
    }
  });
}

void CpuAdd(int threads, const float* a, const float* b, float* out, int64_t n) {
  ParallelBlocks(threads, n, kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

void CpuEmbeddingForward(int threads, const int32_t* tokens, const float* table, float* out, int N, int C) {
  ParallelBlocks(threads, N, 256, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(out + row * C, table + int64_t{tokens[row]} * C, sizeof(float) * C);
    }
  });
}

// Columns in parallel, rows in order: two rows of one token never race and always add in the same order.
void CpuEmbeddingBackward(int threads, const int32_t* tokens, const float* dout, float* dtable, int N, int C) {
  ParallelBlocks(threads, C, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < N; ++row) {
      const float* from = dout + row * C;
      float* to = dtable + int64_t{tokens[row]} * C;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] += from[i];
    }
  });
}

void CpuCrossEntropy(int threads, const float* logits, const int32_t* targets, float* losses, float* dlogits,
                     float scale, int N, int V) {
  ParallelBlocks(threads, N, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(dlogits == nullptr ? V : 0);
    for (int64_t row = begin; row < end; ++row) {
      const float* z = logits + row * V;
      float* e = dlogits == nullptr ? scratch.data() : dlogits + row * V;
      const int32_t target = targets[row];
      if (target < 0) {
        losses[row] = 0;
        if (dlogits != nullptr) std::memset(e, 0, sizeof(float) * V);
        continue;
      }
      const float target_logit = z[target];
      float largest = z[0];
#pragma omp simd reduction(max : largest)
      for (int i = 0; i < V; ++i) largest = z[i] > largest ? z[i] : largest;
      // Sums of 1024 in float, summed in double: a vocabulary of 50,000 keeps its last digits.
      double total = 0;
      for (int i0 = 0; i0 < V; i0 += 1024) {
        const int i1 = std::min(V, i0 + 1024);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = i0; i < i1; ++i) {
          e[i] = VectorExp(z[i] - largest);
          sum += e[i];
        }
        total += sum;
      }
      losses[row] = static_cast<float>(std::log(total) - (static_cast<double>(target_logit) - largest));
      if (dlogits != nullptr) {
        const float factor = static_cast<float>(scale / total);
#pragma omp simd
        for (int i = 0; i < V; ++i) e[i] *= factor;
        e[target] -= scale;
      }
    }
  });
}

void CpuArgMax(int threads, const float* logits, int32_t* out, int N, int V) {
  ParallelFor(threads, N, [&](int64_t row) {
    const float* const z = logits + row * V;
    int best = 0;
    for (int i = 1; i < V && !std::isnan(z[best]); ++i) {
      if (z[i] > z[best] || std::isnan(z[i])) best = i;
    }
    out[row] = best;
  });
}

double CpuSumOfSquares(int threads, const float* x, int64_t n) {
  std::vector<double> partial((n + kBlock - 1) / kBlock);
  ParallelBlocks(threads, n, kBlock, [&](int64_t begin, int64_t end) {
    // 16 sums, so that neither the conversion to double nor the latency of an addition holds the loop up.
    double sums[16] = {};
    int64_t i = begin;
    for (; i + 16 <= end; i += 16) {
#pragma omp simd
      for (int j = 0; j < 16; ++j) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
    }
    double sum = 0;
    for (; i < end; ++i) sum += static_cast<double>(x[i]) * x[i];
    for (const double s : sums) sum += s;
    partial[begin / kBlock] = sum;
  });
  double sum = 0;
  for (const double p : partial) sum += p;
  return sum;
}

void CpuAdamW(int threads, float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) {
  const double step = static_cast<double>(params.step);
  const double correction1 = 1.0 - std::pow(static_cast<double>(params.beta1), step);
  const double correction2 = 1.0 - std::pow(static_cast<double>(params.beta2), step);
  const float beta1 = params.beta1, beta2 = params.beta2, eps = params.eps, scale = params.gradient_scale;
  const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
  const float step_size = static_cast<float>(params.learning_rate / correction1);
  const float inv_sqrt_correction2 = static_cast<float>(1.0 / std::sqrt(correction2));
  const float keep = static_cast<float>(1.0 - static_cast<double>(params.learning_rate) * params.weight_decay);
  ParallelBlocks(threads, n, kBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float g = gradient[i] * scale;
      const float mi = beta1 * m[i] + rest1 * g;
      const float vi = beta2 * v[i] + rest2 * g * g;
      m[i] = mi;
      v[i] = vi;
      p[i] = keep * p[i] - step_size * mi / (__builtin_sqrtf(vi) * inv_sqrt_correction2 + eps);
    }
  });
}

}  // namespace ablate
