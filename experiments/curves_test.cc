// Thinning keeps what a reader must see; a mean is of all points, whatever is shown.
#include "experiments/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// A falling loss with noise that no period fits; a generator of its own, so that the numbers are the same everywhere.
CurvePoints Noisy(int64_t points, uint64_t seed, int64_t every = 10) {
  CurvePoints curve;
  uint64_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < points; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    curve.steps.push_back((i + 1) * every);
    curve.values.push_back(5.0 / (1 + static_cast<double>(i)) + 1e-3 * static_cast<double>(state >> 44) / 1048576);
  }
  return curve;
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(CurvesTest, AShortCurveStaysAsItIs) {
  const CurvePoints curve = Noisy(16, 1);
  const CurvePoints thinned = Thinned(curve, 16);
  EXPECT_EQ(thinned.steps, curve.steps);
  EXPECT_EQ(thinned.values, curve.values);
  EXPECT_TRUE(Thinned(CurvePoints(), 16).steps.empty());
}

TEST(CurvesTest, ThinningKeepsExtremesFirstLastAndNonFinite) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CurvePoints curve = Noisy(3000 + static_cast<int64_t>(seed), seed, seed % 2 == 0 ? 1 : 7);
    curve.values[1000 + seed] = 1e6;
    curve.values[1700 - seed] = -1e6;
    curve.values[55] = kNaN;
    curve.values[56] = kInf;
    curve.values[2000] = -kInf;
    for (int max_points : {16, 17, 400}) {
      const std::vector<size_t> places = ThinnedPlaces(curve.steps, curve.values, max_points);
      EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
      EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end());
      EXPECT_LE(places.size(), static_cast<size_t>(max_points) + 3);  // of which three are not finite
      EXPECT_GE(places.size(), static_cast<size_t>(max_points) / 4);
      for (size_t must : {size_t{0}, curve.steps.size() - 1, 1000 + seed, 1700 - seed, size_t{55}, size_t{56}, size_t{2000}}) {
        EXPECT_TRUE(std::binary_search(places.begin(), places.end(), must)) << must << " of " << max_points;
      }
      // Of each range of steps the lowest and the highest, by a search of its own.
      const int64_t ranges = (max_points - 2) / 2;
      const int64_t width = (curve.steps.back() - curve.steps.front()) / ranges + 1;
      for (int64_t range = 0; range < ranges; ++range) {
        double low = kInf, high = -kInf, kept_low = kInf, kept_high = -kInf;
        for (size_t i = 0; i < curve.steps.size(); ++i) {
          if ((curve.steps[i] - curve.steps.front()) / width != range || !std::isfinite(curve.values[i])) continue;
          low = std::min(low, curve.values[i]);
          high = std::max(high, curve.values[i]);
          if (!std::binary_search(places.begin(), places.end(), i)) continue;
          kept_low = std::min(kept_low, curve.values[i]);
          kept_high = std::max(kept_high, curve.values[i]);
        }
        EXPECT_EQ(low, kept_low);
        EXPECT_EQ(high, kept_high);
      }
    }
  }
}

TEST(CurvesTest, ThinningTakesAnySteps) {
  CurvePoints curve;
  for (int64_t i = 0; i < 100; ++i) curve.values.push_back(static_cast<double>(i % 7));
  // All but one close together, and the widest range that there is.
  for (int64_t i = 0; i < 99; ++i) curve.steps.push_back(i);
  curve.steps.push_back(std::numeric_limits<int64_t>::max());
  std::vector<size_t> places = ThinnedPlaces(curve.steps, curve.values, 16);
  EXPECT_EQ(places.front(), 0u);
  EXPECT_EQ(places.back(), 99u);
  curve.steps[0] = std::numeric_limits<int64_t>::min();
  EXPECT_LE(ThinnedPlaces(curve.steps, curve.values, 16).size(), 16u);
  // Nothing is finite: nothing goes.
  std::fill(curve.values.begin(), curve.values.end(), kNaN);
  EXPECT_EQ(ThinnedPlaces(curve.steps, curve.values, 16).size(), 100u);
}

TEST(CurvesTest, TheMeanIsThatOfTheStatistics) {
  const std::vector<CurvePoints> curves = {Noisy(50, 1), Noisy(50, 2), Noisy(40, 3)};
  const auto mean = MeanOverSeeds(curves, 0.9);
  ASSERT_TRUE(mean.ok()) << mean.status();
  ASSERT_EQ(mean->steps, curves[0].steps);
  for (size_t i = 0; i < mean->steps.size(); ++i) {
    std::vector<double> values = {curves[0].values[i], curves[1].values[i]};
    if (i < 40) values.push_back(curves[2].values[i]);
    const auto summary = Summarize(values, 0.9);
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(mean->means[i], summary->mean);
    EXPECT_EQ(mean->lows[i], *summary->low);
    EXPECT_EQ(mean->highs[i], *summary->high);
    EXPECT_EQ(mean->n[i], i < 40 ? 3 : 2);
  }
  EXPECT_THAT(mean->used, ElementsAre(0, 1, 2));
}

TEST(CurvesTest, DivergedMissingAndSingleSeeds) {
  // The first diverges at step 20, the second has other steps, the third nothing, the fourth nothing finite.
  const std::vector<CurvePoints> curves = {{{10, 20, 30}, {4, kNaN, kInf}},
                                           {{10, 15, 20, 30}, {2, 5, 3, 7}},
                                           {},
                                           {{10, 25}, {kNaN, -kInf}}};
  const auto mean = MeanOverSeeds(curves, 0.95);
  ASSERT_TRUE(mean.ok());
  EXPECT_THAT(mean->steps, ElementsAre(10, 15, 20, 30));  // at 25 nobody has a value
  EXPECT_THAT(mean->means, ElementsAre(3, 5, 3, 7));
  EXPECT_THAT(mean->n, ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(mean->used, ElementsAre(0, 1));
  EXPECT_LT(mean->lows[0], 3);
  EXPECT_GT(mean->highs[0], 3);
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(mean->lows[i]) && std::isnan(mean->highs[i]));
}

TEST(CurvesTest, EqualSeedsHaveNoInterval) {
  const std::vector<CurvePoints> curves = {{{1}, {0.1}}, {{1}, {0.1}}, {{1}, {0.1}}};
  const auto mean = MeanOverSeeds(curves, 0.95);
  ASSERT_TRUE(mean.ok());
  EXPECT_EQ(mean->n[0], 3);
  EXPECT_TRUE(std::isnan(mean->lows[0]) && std::isnan(mean->highs[0]));
}

TEST(CurvesTest, WhatADoubleCannotHoldCostsOneStepOnly) {
  const double huge = std::numeric_limits<double>::max();
  const std::vector<CurvePoints> curves = {{{1, 2}, {huge, 1}}, {{1, 2}, {-huge, 2}}};
  const auto mean = MeanOverSeeds(curves, 0.95);
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_THAT(mean->n, ElementsAre(2, 2));
  EXPECT_EQ(mean->means[1], 1.5);
  EXPECT_FALSE(std::isfinite(mean->lows[0]));
}

TEST(CurvesTest, ThinningDoesNotChangeAMean) {
  std::vector<CurvePoints> curves = {Noisy(2000, 1), Noisy(2000, 2), Noisy(2000, 3)};
  const auto all = MeanOverSeeds(curves, 0.95);
  ASSERT_TRUE(all.ok());
  for (int max_points : {16, 100, 1999, 5000}) {
    const MeanCurvePoints thinned = Thinned(*all, max_points);
    EXPECT_LE(thinned.steps.size(), static_cast<size_t>(max_points));
    EXPECT_EQ(thinned.used, all->used);
    for (size_t i = 0; i < thinned.steps.size(); ++i) {
      const auto place = std::lower_bound(all->steps.begin(), all->steps.end(), thinned.steps[i]) - all->steps.begin();
      EXPECT_EQ(thinned.means[i], all->means[place]);
      EXPECT_TRUE(Same(thinned.lows[i], all->lows[place]));
      EXPECT_TRUE(Same(thinned.highs[i], all->highs[place]));
      EXPECT_EQ(thinned.n[i], all->n[place]);
    }
  }
}

TEST(CurvesTest, ALevelThatIsNoneIsRefused) {
  for (double level : {0.0, 1.0, -1.0, 2.0, kNaN}) {
    EXPECT_EQ(MeanOverSeeds({}, level).status().code(), absl::StatusCode::kInvalidArgument) << level;
  }
}

}  // namespace
}  // namespace ablate
