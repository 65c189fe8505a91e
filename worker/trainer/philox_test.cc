// Known answers of Philox4x32-10 (Random123's kat_vectors) and the properties that the trainer relies on.
#include "worker/trainer/philox.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace ablate {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(PhiloxTest, MatchesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, StreamsSeedsAndIndicesAreDistinct) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {0u, 1u, 2u}) {
    for (const char* name : {"a", "b", "init/wte"}) {
      for (uint64_t index = 0; index < 100; ++index) seen.insert(PhiloxStream(seed, name).Bits(index));
    }
  }
  EXPECT_EQ(seen.size(), 900u);
  // 64-bit seeds and indices count whole.
  EXPECT_NE(PhiloxStream(uint64_t{1} << 40, "a").Bits(0), PhiloxStream(0, "a").Bits(0));
  EXPECT_NE(PhiloxStream(0, "a").Bits(uint64_t{1} << 40), PhiloxStream(0, "a").Bits(0));
}

TEST(PhiloxTest, UniformAndBelowStayInRangeAndFillIt) {
  const PhiloxStream stream(7, "uniform");
  double sum = 0;
  std::array<int, 10> histogram{};
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = stream.Uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    const uint64_t b = stream.Below(i, 10);
    ASSERT_LT(b, 10u);
    ++histogram[b];
  }
  EXPECT_NEAR(sum / 1e5, 0.5, 0.005);
  for (const int count : histogram) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(stream.Below(3, 1), 0u);
}

TEST(PhiloxTest, NormalsHaveTheMomentsOfANormal) {
  const PhiloxStream stream(1234, "init/wte");
  const int n = 400000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0, previous = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.Normal(i);
    m1 += x;
    m2 += x * x;
    m3 += x * x * x;
    m4 += x * x * x * x;
    lag += x * previous;
    previous = x;
  }
  EXPECT_NEAR(m1 / n, 0, 0.008);
  EXPECT_NEAR(m2 / n, 1, 0.012);
  EXPECT_NEAR(m3 / n, 0, 0.03);
  EXPECT_NEAR(m4 / n, 3, 0.08);
  EXPECT_NEAR(lag / n, 0, 0.008);
}

}  // namespace
}  // namespace ablate
