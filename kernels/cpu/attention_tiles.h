// The matrix products of a row panel, and the layout they share. Must not know the attention family.
//
// A panel is R query rows (a multiple of kRowTile) against a run of key blocks of kKeyBlock keys. Its scores (and
// weights, and gradients) lie as tiles: element (r, j) at [(j / 16) * R + r] * 16 + j % 16, so that the passes by row,
// by key and the products all walk memory forward. Products are register tiles of 6 x 16; every sum runs over its index
// in ascending order, whatever the panel, so results do not depend on how rows are split.
#pragma once

#include "kernels/cpu/simd.h"

namespace ablate::attention {

inline constexpr int kRowTile = 6;
inline constexpr int kKeyBlock = 16;

constexpr int RoundUp(int x, int to) { return (x + to - 1) / to * to; }

// Blocks [first, last) of keys that a row tile covers, counted from key 0.
struct BlockRange {
  int first, last;
};

// x [T, D] (row stride `stride`) -> [T/16][D][16], zero beyond T: the right side of ScoreTiles.
void PackTransposed(const float* x, int64_t stride, int first_block, int last_block, int T, int D, float* packed);

// `rows` rows of x, times scale (null: 1), -> [padded_rows, width], zeros beyond.
void PackRows(const float* x, int64_t stride, int rows, int padded_rows, int D, int width, const float* scale,
              float* packed);

// tiles(r, j) = sum_d x[r, d] packed(j, d), for each row tile over its own blocks. x [R, width].
void ScoreTiles(const float* x, int width, int D, const float* packed, int R, const BlockRange* ranges, int first_block,
                float* tiles);

// sum[r, :] += sum_j tiles(r, j) y[j, :], for each row tile over its own blocks, keys below T. sum [R, width], y [T,
// width]. may_be_sparse: many elements may be zero; where most of a tile's are, only the others are multiplied (their
// order in the sum is then even keys, odd keys).
void AccumulateRows(const float* tiles, int R, const BlockRange* ranges, int first_block, const float* y, int width,
                    int T, bool may_be_sparse, float* sum);

// sum[j, :] += sum_r tiles(r, j) x[r, :], for the keys of each block and the row tiles that cover it. x [R, width], sum
// [T rounded up to 16, width].
void AccumulateKeys(const float* tiles, int R, const BlockRange* ranges, int first_block, int last_block,
                    const float* x, int width, float* sum);

}  // namespace ablate::attention
