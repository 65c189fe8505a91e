#include "kernels/cpu/ops/layer_norm.h"

#include <cstring>

#include "kernels/cpu/parallel.h"

namespace ablate {
namespace {

// Rows whose dw and db are summed together; the sums of blocks are then added in order.
constexpr int64_t kRows = 64;
constexpr float kEps = 1e-5f;

}  // namespace

void CpuLayerNormForward(int threads, const float* x, const float* w, const float* b, float* out, float* mean,
                         float* rstd, int N, int C) {
  ParallelBlocks(threads, N, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* xr = x + row * C;
      float* o = out + row * C;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int i = 0; i < C; ++i) sum += xr[i];
      const float mu = sum / static_cast<float>(C);
      float squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int i = 0; i < C; ++i) squares += (xr[i] - mu) * (xr[i] - mu);
      const float r = 1.0f / __builtin_sqrtf(squares / static_cast<float>(C) + kEps);
      mean[row] = mu;
      rstd[row] = r;
#pragma omp simd
      for (int i = 0; i < C; ++i) o[i] = (xr[i] - mu) * r * w[i] + b[i];
    }
  });
}

int64_t LayerNormPartialFloats(int N, int C) { return (int64_t{N} + kRows - 1) / kRows * 2 * C; }

// With xhat = (x - mean) rstd and g = dout w:  dx = rstd (g - mean(g) - xhat mean(g xhat)).
void CpuLayerNormBackward(int threads, const float* dout, const float* x, const float* w, const float* mean,
                          const float* rstd, float* dx, float* dw, float* db, float* partials, int N, int C) {
  ParallelBlocks(threads, N, kRows, [&](int64_t begin, int64_t end) {
    float* __restrict dw_block = partials + begin / kRows * 2 * C;
    float* __restrict db_block = dw_block + C;
    // A local: g++ does not vectorise a reduction that reaches its operand through the lambda's capture.
    const float* __restrict weight = w;
    std::memset(dw_block, 0, sizeof(float) * 2 * C);
    for (int64_t row = begin; row < end; ++row) {
      const float* __restrict d = dout + row * C;
      const float* __restrict xr = x + row * C;
      float* __restrict dxr = dx + row * C;
      const float mu = mean[row], r = rstd[row];
      // Sums of products with x itself; xhat is put in afterwards: fewer operations in the loop that waits for its
      // additions.
      float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
      for (int i = 0; i < C; ++i) {
        const float g = d[i] * weight[i];
        sum += g;
        dot += g * (xr[i] - mu);
      }
      const float mean_g = sum / static_cast<float>(C), slope = dot * r * r / static_cast<float>(C);
#pragma omp simd
      for (int i = 0; i < C; ++i) {
        const float centred = xr[i] - mu;
        dxr[i] += r * (d[i] * weight[i] - mean_g - centred * slope);
        dw_block[i] += d[i] * centred * r;
        db_block[i] += d[i];
      }
    }
  });
  const int64_t blocks = (int64_t{N} + kRows - 1) / kRows;
  ParallelBlocks(threads, C, 256, [&](int64_t begin, int64_t end) {
    for (int64_t block = 0; block < blocks; ++block) {
      const float* dw_block = partials + block * 2 * C;
      const float* db_block = dw_block + C;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        dw[i] += dw_block[i];
        db[i] += db_block[i];
      }
    }
  });
}

}  // namespace ablate
