// The panel products against plain sums: widths, ranges that differ by row tile, a last block beyond T, dense and
// sparse.
#include "kernels/cpu/attention_tiles.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace ablate::attention {
namespace {

float Value(int64_t i, int salt) {
  return static_cast<float>(std::sin(1.0 + 2.399963 * static_cast<double>(i) + salt));
}

// `keep` of every 10 elements are not zero.
void CheckAccumulateRows(int width, int T, int keep, bool may_be_sparse) {
  const int R = 3 * kRowTile, first_block = 1;
  const int blocks = (T + kKeyBlock - 1) / kKeyBlock;
  const std::vector<BlockRange> ranges = {{1, std::max(1, blocks - 2)}, {1, blocks}, {std::min(2, blocks), blocks}};
  std::vector<float> tiles(static_cast<size_t>(blocks) * R * kKeyBlock), y(static_cast<size_t>(T) * width),
      sum(R * width);
  const auto at = [&](int r, int key) {
    return (static_cast<size_t>(key / kKeyBlock - first_block) * R + r) * kKeyBlock + key % kKeyBlock;
  };
  for (int r = 0; r < R; ++r) {
    for (int key = first_block * kKeyBlock; key < T; ++key) {
      const int64_t i = int64_t{r} * T + key;
      if ((i * 7919 + key / 3) % 10 < keep) tiles[at(r, key)] = Value(i, 1);
    }
    // Beyond T there is no row of y to multiply.
    for (int key = T; key < blocks * kKeyBlock; ++key) tiles[at(r, key)] = std::nanf("");
  }
  for (size_t i = 0; i < y.size(); ++i) y[i] = Value(static_cast<int64_t>(i), 2);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = Value(static_cast<int64_t>(i), 3);
  std::vector<double> want(sum.begin(), sum.end());
  for (int r = 0; r < R; ++r) {
    const BlockRange& range = ranges[r / kRowTile];
    for (int key = range.first * kKeyBlock; key < std::min(T, range.last * kKeyBlock); ++key) {
      for (int d = 0; d < width; ++d) {
        want[r * width + d] += static_cast<double>(tiles[at(r, key)]) * y[static_cast<size_t>(key) * width + d];
      }
    }
  }
  AccumulateRows(tiles.data(), R, ranges.data(), first_block, y.data(), width, T, may_be_sparse, sum.data());
  for (int i = 0; i < R * width; ++i) {
    ASSERT_NEAR(sum[i], want[i], 1e-4) << "width " << width << " T " << T << " keep " << keep << " at " << i;
  }
}

TEST(AttentionTilesTest, AccumulateRowsSumsDenseAndSparse) {
  for (const int width : {8, 16, 24, 32, 40, 64, 128}) {
    for (const int T : {17, 32, 61, 300, 1031}) {
      for (const int keep : {0, 1, 2, 5, 10}) {
        for (const bool may_be_sparse : {false, true}) CheckAccumulateRows(width, T, keep, may_be_sparse);
      }
    }
  }
}

TEST(SimdTest, NonZeroLanesIsABitALane) {
  EXPECT_EQ(NonZeroLanes(F8{0, 1, -0.0f, -2, 0, 0, std::nanf(""), 1e-44f}), 0b11001010);
  EXPECT_EQ(NonZeroLanes(F8{}), 0);
}

TEST(SimdTest, MaxAndMinGiveTheSecondArgumentForNaN) {
  const F8 nan = Broadcast(std::nanf("")), one = Broadcast(1);
  for (int lane = 0; lane < kLanes; ++lane) {
    EXPECT_TRUE(std::isnan(score::Max(one, nan)[lane]) && std::isnan(score::Min(one, nan)[lane]));
    EXPECT_TRUE(score::Max(nan, one)[lane] == 1 && score::Min(nan, one)[lane] == 1);
    EXPECT_EQ(score::Max(one, Broadcast(2))[lane], 2);
    EXPECT_EQ(score::Min(one, Broadcast(2))[lane], 1);
  }
}

}  // namespace
}  // namespace ablate::attention
