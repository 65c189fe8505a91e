#include "kernels/cpu/attention_tiles.h"

#include <algorithm>
#include <cstring>

namespace ablate::attention {
namespace {

// Key rows that stay in the L1 cache while all row tiles pass over them.
constexpr int kResidentFloats = 6144;

// kVectors * 8 columns of y, over `count` keys.
template <int kVectors>
ABLATE_HD void RowsTile(const float* tiles, int64_t block_stride, const float* y, int width, int keys, float* sum) {
  F8 acc[kRowTile][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[r][v] = LoadF8(sum + r * width + v * kLanes);
  }
  for (int base = 0; base < keys; base += kKeyBlock, tiles += block_stride) {
    const int count = std::min(kKeyBlock, keys - base);
    for (int k = 0; k < count; ++k, y += width) {
      F8 row[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) row[v] = LoadF8(y + v * kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < kRowTile; ++r) {
        const F8 w = Broadcast(tiles[r * kKeyBlock + k]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) acc[r][v] += w * row[v];
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRowTile; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) StoreF8(sum + r * width + v * kLanes, acc[r][v]);
  }
}

// Keys of a row that are not zero, a bit each; 64 keys (4 blocks) a word.
constexpr int kMostWords = kResidentFloats / kLanes / 64 + 1;

// The bits of `keys` keys of one row, over blocks block_stride apart; returns how many are set.
int NonZeroKeys(const float* row, int64_t block_stride, int keys, uint64_t* words) {
  int set = 0;
  for (int word = 0; word * 64 < keys; ++word) {
    uint64_t bits = 0;
    const int blocks = std::min(4, (keys - word * 64 + kKeyBlock - 1) / kKeyBlock);
    for (int block = 0; block < blocks; ++block, row += block_stride) {
      const uint64_t low = static_cast<unsigned>(NonZeroLanes(LoadF8(row)));
      const uint64_t high = static_cast<unsigned>(NonZeroLanes(LoadF8(row + kLanes)));
      bits |= (low | high << kLanes) << (block * kKeyBlock);
    }
    // The last block may reach beyond T, where y has no rows (its weights are zero, or NaN in a poisoned row).
    if (keys - word * 64 < 64) bits &= (uint64_t{1} << (keys - word * 64)) - 1;
    words[word] = bits;
    set += __builtin_popcountll(bits);
  }
  return set;
}

// kVectors * 8 columns of y for one row, over the keys whose bit is set: even and odd ones have accumulators of their
// own.
template <int kVectors>
ABLATE_HD void SparseRow(const float* row, int64_t block_stride, const uint64_t* words, int keys, const float* y,
                         int width, float* sum) {
  F8 acc[2][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) acc[0][v] = LoadF8(sum + v * kLanes), acc[1][v] = F8{};
  const auto add = [&](int half, uint64_t bits) __attribute__((always_inline)) {
    const int key = __builtin_ctzll(bits);
    const F8 w = Broadcast(row[(key / kKeyBlock) * block_stride + key % kKeyBlock]);
    const float* const from = y + int64_t{key} * width;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[half][v] += w * LoadF8(from + v * kLanes);
  };
  for (int base = 0; base < keys; base += 64, row += 4 * block_stride, y += int64_t{64} * width) {
    uint64_t bits = *words++;
    while (bits != 0) {
      add(0, bits);
      bits &= bits - 1;
      if (bits == 0) break;
      add(1, bits);
      bits &= bits - 1;
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) StoreF8(sum + v * kLanes, acc[0][v] + acc[1][v]);
}

// A row tile by its keys that are not zero; false, and nothing done, where they are too many for this to pay.
bool SparseRows(const float* tile, int64_t block_stride, const float* y, int width, int keys, float* sum) {
  // A key costs about as much here as 1.3 do in RowsTile; finding them costs a fifth of RowsTile.
  constexpr int kMostPercent = 50;
  uint64_t words[kRowTile][kMostWords];
  int set = 0;
  for (int r = 0; r < kRowTile; ++r) set += NonZeroKeys(tile + r * kKeyBlock, block_stride, keys, words[r]);
  if (set * 100 > kMostPercent * kRowTile * keys) return false;
  for (int r = 0; r < kRowTile; ++r) {
    int d = 0;
    const float* const row = tile + r * kKeyBlock;
    float* const out = sum + r * width;
    for (; d + 4 * kLanes <= width; d += 4 * kLanes)
      SparseRow<4>(row, block_stride, words[r], keys, y + d, width, out + d);
    for (; d < width; d += kLanes) SparseRow<1>(row, block_stride, words[r], keys, y + d, width, out + d);
  }
  return true;
}

// kKeys keys of one block by kVectors * 8 columns of x, over `rows` rows.
template <int kKeys, int kVectors>
ABLATE_HD void KeysTile(const float* tile, const float* x, int width, int rows, float* sum) {
  F8 acc[kKeys][kVectors];
#pragma GCC unroll 6
  for (int j = 0; j < kKeys; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[j][v] = LoadF8(sum + j * width + v * kLanes);
  }
  for (int r = 0; r < rows; ++r, tile += kKeyBlock, x += width) {
    F8 row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = LoadF8(x + v * kLanes);
#pragma GCC unroll 6
    for (int j = 0; j < kKeys; ++j) {
      const F8 w = Broadcast(tile[j]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[j][v] += w * row[v];
    }
  }
#pragma GCC unroll 6
  for (int j = 0; j < kKeys; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) StoreF8(sum + j * width + v * kLanes, acc[j][v]);
  }
}

template <int kVectors>
ABLATE_HD void KeyBlock(const float* tile, const float* x, int width, int rows, float* sum) {
  KeysTile<6, kVectors>(tile, x, width, rows, sum);
  KeysTile<6, kVectors>(tile + 6, x, width, rows, sum + 6 * width);
  KeysTile<4, kVectors>(tile + 12, x, width, rows, sum + 12 * width);
}

ABLATE_HD void ScoreTile(const float* x, int width, int D, const float* packed, float* tile) {
  F8 acc[kRowTile][2] = {};
  for (int d = 0; d < D; ++d, packed += kKeyBlock) {
    const F8 k0 = LoadF8(packed), k1 = LoadF8(packed + kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRowTile; ++r) {
      const F8 w = Broadcast(x[r * width + d]);
      acc[r][0] += w * k0;
      acc[r][1] += w * k1;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRowTile; ++r) {
    StoreF8(tile + r * kKeyBlock, acc[r][0]);
    StoreF8(tile + r * kKeyBlock + kLanes, acc[r][1]);
  }
}

}  // namespace

void PackTransposed(const float* x, int64_t stride, int first_block, int last_block, int T, int D, float* packed) {
  for (int block = first_block; block < last_block; ++block) {
    float* to = packed + int64_t{block} * D * kKeyBlock;
    const int base = block * kKeyBlock, count = std::min(kKeyBlock, T - base);
    if (count < kKeyBlock) std::memset(to, 0, sizeof(float) * D * kKeyBlock);
    for (int j = 0; j < count; ++j) {
      const float* row = x + (base + j) * stride;
      for (int d = 0; d < D; ++d) to[d * kKeyBlock + j] = row[d];
    }
  }
}

void PackRows(const float* x, int64_t stride, int rows, int padded_rows, int D, int width, const float* scale,
              float* packed) {
  for (int r = 0; r < rows; ++r, x += stride, packed += width) {
    const float factor = scale == nullptr ? 1.0f : scale[r];
    for (int d = 0; d < D; ++d) packed[d] = x[d] * factor;
    for (int d = D; d < width; ++d) packed[d] = 0;
  }
  if (padded_rows > rows) std::memset(packed, 0, sizeof(float) * (padded_rows - rows) * width);
}

void ScoreTiles(const float* x, int width, int D, const float* packed, int R, const BlockRange* ranges, int first_block,
                float* tiles) {
  const int groups = R / kRowTile;
  int last_block = first_block;
  for (int g = 0; g < groups; ++g) last_block = std::max(last_block, ranges[g].last);
  for (int block = first_block; block < last_block; ++block) {
    const float* keys = packed + int64_t{block} * D * kKeyBlock;
    float* tile = tiles + int64_t{block - first_block} * R * kKeyBlock;
    for (int g = 0; g < groups; ++g) {
      if (block < ranges[g].first || block >= ranges[g].last) continue;
      ScoreTile(x + g * kRowTile * width, width, D, keys, tile + g * kRowTile * kKeyBlock);
    }
  }
}

void AccumulateRows(const float* tiles, int R, const BlockRange* ranges, int first_block, const float* y, int width,
                    int T, bool may_be_sparse, float* sum) {
  const int groups = R / kRowTile;
  const int64_t block_stride = int64_t{R} * kKeyBlock;
  int last_block = first_block;
  for (int g = 0; g < groups; ++g) last_block = std::max(last_block, ranges[g].last);
  const int step = std::max(1, kResidentFloats / (width * kKeyBlock));
  for (int chunk = first_block; chunk < last_block; chunk += step) {
    for (int g = 0; g < groups; ++g) {
      const int from = std::max(chunk, ranges[g].first), to = std::min(chunk + step, ranges[g].last);
      if (from >= to) continue;
      const int keys = std::min(T, to * kKeyBlock) - from * kKeyBlock;
      const float* tile = tiles + (from - first_block) * block_stride + g * kRowTile * kKeyBlock;
      const float* rows = y + int64_t{from} * kKeyBlock * width;
      float* out = sum + g * kRowTile * width;
      if (may_be_sparse && SparseRows(tile, block_stride, rows, width, keys, out)) continue;
      int d = 0;
      for (; d + 2 * kLanes <= width; d += 2 * kLanes) RowsTile<2>(tile, block_stride, rows + d, width, keys, out + d);
      if (d < width) RowsTile<1>(tile, block_stride, rows + d, width, keys, out + d);
    }
  }
}

void AccumulateKeys(const float* tiles, int R, const BlockRange* ranges, int first_block, int last_block,
                    const float* x, int width, float* sum) {
  const int groups = R / kRowTile;
  for (int block = first_block; block < last_block; ++block) {
    // Ranges grow with the row at both ends, so the tiles that cover a block are adjacent.
    int first = 0, last = groups;
    while (first < groups && block >= ranges[first].last) ++first;
    while (last > first && block < ranges[last - 1].first) --last;
    if (first == last) continue;
    const float* tile = tiles + (int64_t{block - first_block} * R + first * kRowTile) * kKeyBlock;
    const float* rows = x + int64_t{first} * kRowTile * width;
    float* out = sum + int64_t{block} * kKeyBlock * width;
    const int count = (last - first) * kRowTile;
    int d = 0;
    for (; d + 2 * kLanes <= width; d += 2 * kLanes) KeyBlock<2>(tile, rows + d, width, count, out + d);
    if (d < width) KeyBlock<1>(tile, rows + d, width, count, out + d);
  }
}

}  // namespace ablate::attention
