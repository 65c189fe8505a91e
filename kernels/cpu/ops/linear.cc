#include "kernels/cpu/ops/linear.h"

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/parallel.h"

namespace ablate {
namespace {

// Rows of x a product takes: enough to pay for packing the weights (each packed weight is used kRowTile times).
constexpr int64_t kRowTile = 512;
// Rows of dw a product takes, at most; the number of tiles is kept even, for two threads.
constexpr int64_t kWeightTile = 256;
constexpr int64_t kBiasColumns = 64;
constexpr int64_t kBiasRows = 64;

struct Tiling {
  int64_t tile = 0, count = 0;
};

Tiling EvenTiles(int64_t extent, int64_t most) {
  const int64_t pairs = (extent + 2 * most - 1) / (2 * most);
  const int64_t tile = ((extent + 2 * pairs - 1) / (2 * pairs) + 15) / 16 * 16;
  return {tile, (extent + tile - 1) / tile};
}

// db[begin, end) += column sums, rows in blocks: float inside a block, so that long sums lose little.
void AddColumnSums(const float* dout, float* db, int64_t N, int64_t O, int64_t begin, int64_t end) {
  const int64_t width = end - begin;
  float total[kBiasColumns] = {};
  for (int64_t row0 = 0; row0 < N; row0 += kBiasRows) {
    const int64_t row1 = std::min(N, row0 + kBiasRows);
    float block[kBiasColumns] = {};
    for (int64_t row = row0; row < row1; ++row) {
      const float* d = dout + row * O + begin;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) block[i] += d[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) total[i] += block[i];
  }
  for (int64_t i = 0; i < width; ++i) db[begin + i] += total[i];
}

}  // namespace

void CpuLinearForward(int threads, const float* x, const float* w, const float* b, float* out, int N, int I, int O) {
  ParallelBlocks(threads, N, kRowTile, [&](int64_t begin, int64_t end) {
    float* tile = out + begin * O;
    if (b != nullptr) {
      // The product adds to the bias: OpenBLAS would pass over the tile to zero it anyway.
      for (int64_t row = begin; row < end; ++row) std::memcpy(out + row * O, b, sizeof(float) * O);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(end - begin), O, I, 1.0f, x + begin * I, I, w, I,
                b != nullptr ? 1.0f : 0.0f, tile, O);
  });
}

void CpuLinearBackward(int threads, const float* dout, const float* x, const float* w, float* dx, float* dw, float* db,
                       int N, int I, int O) {
  const Tiling rows = dx != nullptr ? EvenTiles(N, kRowTile) : Tiling{};
  const Tiling weights = EvenTiles(O, kWeightTile);
  const int64_t bias_tiles = db != nullptr ? (O + kBiasColumns - 1) / kBiasColumns : 0;
  // One list of tiles, large ones first, so that threads wait once.
  ParallelFor(threads, rows.count + weights.count + bias_tiles, [&](int64_t item) {
    if (item < rows.count) {
      const int64_t begin = item * rows.tile, end = std::min<int64_t>(N, begin + rows.tile);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(end - begin), I, O, 1.0f, dout + begin * O, O,
                  w, I, 0.0f, dx + begin * I, I);
      return;
    }
    item -= rows.count;
    if (item < weights.count) {
      const int64_t begin = item * weights.tile, end = std::min<int64_t>(O, begin + weights.tile);
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, static_cast<int>(end - begin), I, N, 1.0f, dout + begin, O, x, I,
                  1.0f, dw + begin * I, I);
      return;
    }
    item -= weights.count;
    const int64_t begin = item * kBiasColumns;
    AddColumnSums(dout, db, N, O, begin, std::min<int64_t>(O, begin + kBiasColumns));
  });
}

}  // namespace ablate
