#include "kernels/cpu/ops/linear.h"

#include <cblas.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/parallel.h"

namespace ablate {
namespace {

// Rows of x and outputs that a product takes, at most. A tile packs both of its operands anew, so small ones cost: 512
// by 512 runs at 98 % of a single large product, 256 by 256 at 95 %.
constexpr int64_t kTile = 512;
// Rows (or columns) of dw a product takes, at most: its inner extent is all of N.
constexpr int64_t kWeightTile = 256;
constexpr int64_t kBiasColumns = 64;
constexpr int64_t kBiasRows = 64;

// Tiles of equal size, multiples of 16, none above `most`; more than one comes in an even number, for two threads.
struct Tiling {
  Tiling(int64_t extent, int64_t most) : extent(extent) {
    const int64_t pairs = (extent + 2 * most - 1) / (2 * most);
    tile = extent <= most ? extent : ((extent + 2 * pairs - 1) / (2 * pairs) + 15) / 16 * 16;
    count = (extent + tile - 1) / tile;
  }
  int64_t begin(int64_t i) const { return i * tile; }
  int size(int64_t i) const { return static_cast<int>(std::min(tile, extent - i * tile)); }
  int64_t extent, tile, count;
};

// A product on this thread alone: OpenBLAS's own threading would cut it by the number of threads, and change bits. Its
// OpenMP build asks OpenMP, thread by thread, how many it may use.
void Product(CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int k, const float* a, int lda,
             const float* b, int ldb, float beta, float* c, int ldc) {
  omp_set_num_threads(1);
  cblas_sgemm(CblasRowMajor, trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
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
  const Tiling rows(N, kTile), outputs(O, kTile);
  ParallelFor(threads, rows.count * outputs.count, [&](int64_t item) {
    const int64_t r = item / outputs.count, c = item % outputs.count;
    const int64_t row = rows.begin(r), column = outputs.begin(c);
    float* tile = out + row * O + column;
    if (b != nullptr) {
      // The product adds to the bias: OpenBLAS would pass over the tile to zero it anyway.
      for (int i = 0; i < rows.size(r); ++i)
        std::memcpy(tile + int64_t{i} * O, b + column, sizeof(float) * outputs.size(c));
    }
    Product(CblasNoTrans, CblasTrans, rows.size(r), outputs.size(c), I, x + row * I, I, w + column * I, I,
            b != nullptr ? 1.0f : 0.0f, tile, O);
  });
}

void CpuLinearBackward(int threads, const float* dout, const float* x, const float* w, float* dx, float* dw, float* db,
                       int N, int I, int O) {
  // dw is cut along its longer side.
  const Tiling weights(std::max(I, O), kWeightTile), rows(N, kTile), inputs(I, kTile), bias(O, kBiasColumns);
  const int64_t dx_tiles = dx != nullptr ? rows.count * inputs.count : 0;
  // One list of tiles, the longest first, so that threads wait once.
  ParallelFor(threads, weights.count + dx_tiles + (db != nullptr ? bias.count : 0), [&](int64_t item) {
    if (item < weights.count) {
      const int64_t begin = weights.begin(item);
      const int size = weights.size(item);
      if (O >= I) {
        Product(CblasTrans, CblasNoTrans, size, I, N, dout + begin, O, x, I, 1.0f, dw + begin * I, I);
      } else {
        Product(CblasTrans, CblasNoTrans, O, size, N, dout, O, x + begin, I, 1.0f, dw + begin, I);
      }
      return;
    }
    item -= weights.count;
    if (item < dx_tiles) {
      const int64_t r = item / inputs.count, c = item % inputs.count;
      const int64_t row = rows.begin(r), column = inputs.begin(c);
      Product(CblasNoTrans, CblasNoTrans, rows.size(r), inputs.size(c), O, dout + row * O, O, w + column, I, 0.0f,
              dx + row * I + column, I);
      return;
    }
    item -= dx_tiles;
    AddColumnSums(dout, db, N, O, bias.begin(item), bias.begin(item) + bias.size(item));
  });
}

}  // namespace ablate
