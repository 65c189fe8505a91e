// Edges, contracts and coverage. Reference values are tested in tests/golden_check.
#include "experiments/statistics.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using Values = std::vector<double>;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMax = std::numeric_limits<double>::max();

// Box-Muller: std::normal_distribution differs between standard libraries.
class Normals {
 public:
  explicit Normals(uint64_t seed) : engine_(seed) {}
  double Next() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  std::mt19937_64 engine_;
};

bool Invalid(const absl::Status& status) { return status.code() == absl::StatusCode::kInvalidArgument; }

TEST(Summarize, OneValueHasAMeanAndAReasonButNoInterval) {
  const auto summary = Summarize(Values{3.25});
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->n, 1);
  EXPECT_EQ(summary->mean, 3.25);
  EXPECT_FALSE(summary->sd || summary->sem || summary->low || summary->high);
  EXPECT_THAT(summary->reason, HasSubstr("one value"));
}

TEST(Summarize, AllEqualHasNoIntervalEvenWhereTheMeanRounds) {
  for (double value : {0.0, 0.1, 0.7, -1e300, 1e-300, 3.1839613714949313}) {
    for (size_t n : {2, 3, 7}) {
      const auto summary = Summarize(Values(n, value));
      ASSERT_TRUE(summary.ok());
      EXPECT_EQ(summary->n, static_cast<int64_t>(n));
      EXPECT_EQ(summary->mean, value);
      EXPECT_EQ(summary->sd, 0.0);
      EXPECT_FALSE(summary->low || summary->high);
      EXPECT_THAT(summary->reason, HasSubstr("no variance"));
    }
  }
}

TEST(Summarize, EqualValuesAreSeparateObservations) {
  const auto two_of_three = Summarize(Values{0.5, 0.5, 0.8});
  ASSERT_TRUE(two_of_three.ok());
  EXPECT_EQ(two_of_three->n, 3);
  EXPECT_DOUBLE_EQ(two_of_three->mean, 0.6);
  EXPECT_NEAR(*two_of_three->low, 0.6 - 0.1 * std::sqrt(2 / (1 / (0.95 * 0.95) - 1)), 1e-13);
}

TEST(Summarize, VarianceSurvivesALargeOffset) {
  // A one-pass formula loses all of it: 1e8 squared is 1e16.
  const auto summary = Summarize(Values{1e8 + 1, 1e8 + 2, 1e8 + 3});
  ASSERT_TRUE(summary.ok());
  EXPECT_NEAR(*summary->sd, 1.0, 1e-12);
  const auto huge = Summarize(Values{1e300, 2e300, 3e300});
  ASSERT_TRUE(huge.ok());
  EXPECT_NEAR(*huge->sd / 1e300, 1.0, 1e-12);
}

TEST(Summarize, RefusesWhatIsNotFinite) {
  EXPECT_TRUE(Invalid(Summarize(Values{}).status()));
  EXPECT_TRUE(Invalid(Summarize(Values{1, kNan}).status()));
  EXPECT_TRUE(Invalid(Summarize(Values{-kInf, 1}).status()));
  EXPECT_TRUE(Invalid(Summarize(Values{kMax, -kMax, kMax}).status()));  // bounds beyond any double
  for (double level : {0.0, 1.0, -1.0, 95.0, kNan}) {
    EXPECT_TRUE(Invalid(Summarize(Values{1, 2}, level).status())) << level;
  }
}

TEST(Summarize, IntervalCoversAtItsLevel) {
  Normals normals(20240607);
  for (int n : {3, 5, 10}) {
    constexpr int kRepeats = 20000;
    int covered = 0;
    Values sample(n);
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      for (double& value : sample) value = 3.2 + 0.02 * normals.Next();
      const auto summary = Summarize(sample);
      ASSERT_TRUE(summary.ok());
      covered += *summary->low <= 3.2 && 3.2 <= *summary->high;
    }
    EXPECT_GE(covered, 0.945 * kRepeats) << "n = " << n;
    EXPECT_LE(covered, 0.955 * kRepeats) << "n = " << n;
  }
}

TEST(TCritical, EqualsTheClosedForms) {
  for (double level : {0.001, 0.5, 0.9, 0.95, 0.99, 0.9999}) {
    EXPECT_NEAR(*TCritical(1, level) / std::tan(std::numbers::pi / 2 * level), 1, 1e-11) << level;
    const double two = level * std::sqrt(2 / (1 - level * level));
    EXPECT_NEAR(*TCritical(2, level) / two, 1, 1e-12) << level;
    // df = 3: the tail is elementary, so the quantile must give its level back.
    const double x = *TCritical(3, level) / std::sqrt(3.0);
    EXPECT_NEAR(2 / std::numbers::pi * (std::atan(x) + x / (1 + x * x)), level, 1e-14) << level;
    // Shaw 2006, eq. 37: df = 4, alpha = 4 q (1 - q) = 1 - level^2.
    if (level < 0.5) continue;  // the form itself loses digits
    const double alpha = 1 - level * level;
    const double four = 2 * std::sqrt(std::cos(std::acos(std::sqrt(alpha)) / 3) / std::sqrt(alpha) - 1);
    EXPECT_NEAR(*TCritical(4, level) / four, 1, 1e-11) << level;
  }
}

TEST(TCritical, WidensWithLevelAndNarrowsWithSeeds) {
  EXPECT_GT(*TCritical(2, 0.99), *TCritical(2, 0.95));
  EXPECT_GT(*TCritical(2, 0.95), *TCritical(9, 0.95));
  EXPECT_TRUE(Invalid(TCritical(0, 0.95).status()));
}

TEST(Paired, PairsRemoveWhatSeedsShare) {
  // Seeds differ by far more than the arms do; the pairs see the difference, the arms alone would not.
  const Values baseline = {1.0, 5.0, 9.0, 13.0};
  const Values arm = {1.11, 5.09, 9.1, 13.12};
  const auto paired = Paired(arm, baseline);
  ASSERT_TRUE(paired.ok());
  EXPECT_EQ(paired->n, 4);
  EXPECT_EQ(paired->df, 3);
  EXPECT_NEAR(paired->mean_difference, 0.105, 1e-12);
  EXPECT_LT(*paired->p_two_sided, 0.001);
  EXPECT_GT(*paired->low, 0);
  const auto swapped = Paired(baseline, arm);
  EXPECT_EQ(swapped->mean_difference, -paired->mean_difference);
  EXPECT_EQ(swapped->p_two_sided, paired->p_two_sided);
  EXPECT_EQ(swapped->low, -*paired->high);
}

TEST(Paired, PValueBelowAlphaExactlyWhenTheIntervalExcludesZero) {
  Normals normals(7);
  int significant = 0;
  for (int repeat = 0; repeat < 500; ++repeat) {
    Values arm(4), baseline(4);
    for (double& value : arm) value = 1 + normals.Next();
    for (double& value : baseline) value = normals.Next();
    const auto paired = Paired(arm, baseline);
    ASSERT_TRUE(paired.ok());
    EXPECT_EQ(*paired->p_two_sided<0.05, *paired->low> 0 || *paired->high < 0);
    significant += *paired->p_two_sided < 0.05;
  }
  EXPECT_GT(significant, 50);
  EXPECT_LT(significant, 450);
}

TEST(Paired, AShiftByAConstantIsNoVarianceWhateverTheRounding) {
  const Values baseline = {3.1839613714949313, 3.173512820087437, 3.2054553755168946};
  Values arm = baseline;
  for (double& value : arm) value += 0.1;
  const auto paired = Paired(arm, baseline);
  ASSERT_TRUE(paired.ok());
  EXPECT_NEAR(paired->mean_difference, 0.1, 1e-12);
  EXPECT_EQ(paired->sd_difference, 0.0);
  EXPECT_FALSE(paired->t || paired->p_two_sided || paired->low || paired->high || paired->cohen_dz);
  EXPECT_THAT(paired->reason, HasSubstr("same amount"));
  const auto tost = Tost(*paired, 0.2);
  ASSERT_TRUE(tost.ok());
  EXPECT_FALSE(tost->p || tost->low);
  EXPECT_EQ(tost->reason, paired->reason);
}

TEST(Paired, OnePairAndBadPairs) {
  const auto paired = Paired(Values{2}, Values{1.5});
  ASSERT_TRUE(paired.ok());
  EXPECT_EQ(paired->mean_difference, 0.5);
  EXPECT_FALSE(paired->sd_difference || paired->p_two_sided);
  EXPECT_THAT(paired->reason, HasSubstr("one pair"));
  EXPECT_TRUE(Invalid(Paired(Values{}, Values{}).status()));
  EXPECT_TRUE(Invalid(Paired(Values{1, 2}, Values{1}).status()));
  EXPECT_TRUE(Invalid(Paired(Values{1, kInf}, Values{1, kInf}).status()));
  EXPECT_TRUE(Invalid(Paired(Values{kMax, 1}, Values{-kMax, 1}).status()));
}

TEST(BonferroniPaired, FamilyOfOneIsThePlainIntervalAndMoreIsWider) {
  const Values arm = {1.1, 2.3, 2.9}, baseline = {1, 2, 3};
  const auto plain = Paired(arm, baseline);
  const auto one = BonferroniPaired(arm, baseline, 1);
  const auto ten = BonferroniPaired(arm, baseline, 10);
  ASSERT_TRUE(plain.ok() && one.ok() && ten.ok());
  EXPECT_DOUBLE_EQ(*one->low, *plain->low);
  EXPECT_LT(*ten->low, *one->low);
  EXPECT_NEAR(ten->level, 0.995, 1e-12);
  EXPECT_TRUE(Invalid(BonferroniPaired(arm, baseline, 0).status()));
}

TEST(DifferenceInDifferences, IsPairedOnTheRises) {
  const Values arm_short = {1, 1.2, 1.1}, arm_long = {1.5, 1.8, 1.4};
  const Values base_short = {1, 1.1, 1.3}, base_long = {3, 3.3, 3.1};
  const auto rises = DifferenceInDifferences(arm_short, arm_long, base_short, base_long);
  Values arm_rise(3), base_rise(3);
  for (int i = 0; i < 3; ++i) {
    arm_rise[i] = arm_long[i] - arm_short[i];
    base_rise[i] = base_long[i] - base_short[i];
  }
  const auto paired = Paired(arm_rise, base_rise);
  ASSERT_TRUE(rises.ok() && paired.ok());
  EXPECT_EQ(rises->mean_difference, paired->mean_difference);
  EXPECT_EQ(rises->p_two_sided, paired->p_two_sided);
  EXPECT_TRUE(Invalid(DifferenceInDifferences(arm_short, arm_long, base_short, Values{1}).status()));
}

TEST(Tost, AgreesWithItsInterval) {
  Normals normals(11);
  int equivalent = 0;
  for (int repeat = 0; repeat < 500; ++repeat) {
    Values arm(5), baseline(5, 0.0);
    for (double& value : arm) value = 0.3 + normals.Next();
    const auto paired = Paired(arm, baseline);
    ASSERT_TRUE(paired.ok());
    const auto tost = Tost(*paired, 1.2);
    ASSERT_TRUE(tost.ok());
    EXPECT_DOUBLE_EQ(tost->level, 0.9);
    EXPECT_EQ(*tost->p<0.05, *tost->low> - 1.2 && *tost->high < 1.2);
    equivalent += *tost->p < 0.05;
  }
  EXPECT_GT(equivalent, 25);
  EXPECT_LT(equivalent, 475);
  const auto paired = Paired(Values{1, 2}, Values{0, 0});
  for (double margin : {0.0, -1.0, kNan, kInf}) EXPECT_TRUE(Invalid(Tost(*paired, margin).status())) << margin;
  EXPECT_TRUE(Invalid(Tost(*paired, 1, 0.5).status()));
}

TEST(Holm, StepsDownAndKeepsOrder) {
  EXPECT_THAT(*Holm(Values{0.01, 0.04, 0.03, 0.005}),
              testing::Pointwise(testing::DoubleEq(), {0.03, 0.06, 0.06, 0.02}));
  EXPECT_THAT(*Holm(Values{}), testing::IsEmpty());
  EXPECT_THAT(*Holm(Values{0.9, 1.0}), testing::ElementsAre(1.0, 1.0));
  EXPECT_THAT(*Holm(Values{0.0, 0.0}), testing::ElementsAre(0.0, 0.0));
  for (double bad : {-0.1, 1.1, kNan}) EXPECT_TRUE(Invalid(Holm(Values{0.5, bad}).status())) << bad;
}

TEST(Wilson, StaysWithinZeroAndOne) {
  for (int trials : {1, 3, 1000, 1000000}) {
    EXPECT_EQ(Wilson(0, trials)->low, 0.0);
    EXPECT_GT(Wilson(0, trials)->high, 0.0);
    EXPECT_EQ(Wilson(trials, trials)->high, 1.0);
    EXPECT_LT(Wilson(trials, trials)->low, 1.0);
  }
  EXPECT_TRUE(Invalid(Wilson(0, 0).status()));
  EXPECT_TRUE(Invalid(Wilson(4, 3).status()));
  EXPECT_TRUE(Invalid(Wilson(-1, 3).status()));
}

TEST(SignTest, SmallestPAtFiveSeedsIsAboveFivePercent) {
  EXPECT_EQ(*SignTest(5, 0), 0.0625);
  EXPECT_EQ(*SignTest(0, 5), 0.0625);
  EXPECT_EQ(*SignTest(6, 0), 0.03125);
  EXPECT_EQ(*SignTest(0, 0), 1.0);
  EXPECT_EQ(*SignTest(4, 4), 1.0);
  EXPECT_TRUE(Invalid(SignTest(-1, 4).status()));
  EXPECT_EQ(*McNemarExact(4, 1), 0.375);
}

TEST(SmallestDetectable, HasThePowerItPromises) {
  Normals normals(3);
  for (int n : {3, 5, 10}) {
    const auto delta = SmallestDetectable(n);
    ASSERT_TRUE(delta.ok());
    constexpr int kRepeats = 10000;
    int found = 0;
    Values arm(n);
    const Values baseline(n, 0.0);
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      for (double& value : arm) value = *delta + normals.Next();
      found += *Paired(arm, baseline)->p_two_sided < 0.05;
    }
    EXPECT_NEAR(found / double{kRepeats}, 0.8, 0.012) << "n = " << n;  // 3 standard errors
  }
}

TEST(SmallestDetectable, ReachesExtremeFamiliesAndRefusesNonsense) {
  EXPECT_NEAR(*SmallestDetectable(2, 5e-4), 1153.80190307699, 1e-6);  // by quadrature over the chi density
  EXPECT_NEAR(*SmallestDetectable(1000), 0.0886790755942638, 1e-12);
  EXPECT_NEAR(*SmallestDetectable(5, 0.005), 3.15534863098614, 1e-12);
  EXPECT_EQ(*SmallestDetectable(8, 0.05, 0.8, 7), *SmallestDetectable(8));
  EXPECT_GT(*SmallestDetectable(8, 0.05, 0.8, 4), *SmallestDetectable(8) * 1.05);  // Stein: n0 = 5
  EXPECT_TRUE(Invalid(SmallestDetectable(1).status()));
  EXPECT_TRUE(Invalid(SmallestDetectable(5, 0.05, 0.05).status()));
  EXPECT_TRUE(Invalid(SmallestDetectable(5, 0, 0.8).status()));
  EXPECT_TRUE(Invalid(SmallestDetectable(5, 0.05, 1).status()));
}

TEST(SdUpperLimit, IsExceededAsOftenAsItSays) {
  Normals normals(5);
  constexpr int kRepeats = 10000;
  int above = 0;
  Values sample(5);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (double& value : sample) value = normals.Next();
    above += *SdUpperLimit(*Summarize(sample)->sd, 5) >= 1;
  }
  EXPECT_NEAR(above / double{kRepeats}, 0.8, 0.012);
  EXPECT_EQ(*SdUpperLimit(0, 5), 0.0);
  EXPECT_TRUE(Invalid(SdUpperLimit(-1, 5).status()));
  EXPECT_TRUE(Invalid(SdUpperLimit(1, 1).status()));
}

TEST(Stein, NeverBelowTheFirstStageNorAboveTheMaximum) {
  const auto enough = SteinSampleSize(5, 0.0, 0.01, 40);
  EXPECT_EQ(enough->n, 5);
  EXPECT_FALSE(enough->capped);
  const auto capped = SteinSampleSize(5, 1e300, 1e-300, 40);
  EXPECT_EQ(capped->n, 40);
  EXPECT_TRUE(capped->capped);
  EXPECT_TRUE(Invalid(SteinSampleSize(5, 0.1, 0, 40).status()));
  EXPECT_TRUE(Invalid(SteinSampleSize(5, kNan, 0.1, 40).status()));
  EXPECT_TRUE(Invalid(SteinSampleSize(5, 0.1, 0.1, 4).status()));
  EXPECT_TRUE(Invalid(SteinSampleSize(1, 0.1, 0.1, 4).status()));
}

TEST(StudentUpperTail, KnownTailsAndEnds) {
  EXPECT_EQ(*StudentUpperTail(3, 0), 0.5);
  EXPECT_NEAR(*StudentUpperTail(1, 1), 0.25, 1e-15);                      // Cauchy
  EXPECT_NEAR(*StudentUpperTail(2, 2), 0.5 - 1 / std::sqrt(6.0), 1e-15);  // (1 - t / sqrt(2 + t^2)) / 2
  EXPECT_NEAR(*StudentUpperTail(5, -1.3) + *StudentUpperTail(5, 1.3), 1, 1e-15);
  EXPECT_EQ(*StudentUpperTail(4, kInf), 0);
  EXPECT_EQ(*StudentUpperTail(4, -kInf), 1);
  EXPECT_TRUE(Invalid(StudentUpperTail(0, 1).status()));
  EXPECT_TRUE(Invalid(StudentUpperTail(3, kNan).status()));
}

TEST(NormalQuantile, Known) {
  EXPECT_EQ(*NormalQuantile(0.5), 0);
  EXPECT_NEAR(*NormalQuantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_TRUE(Invalid(NormalQuantile(0).status()));
  EXPECT_TRUE(Invalid(NormalQuantile(kNan).status()));
}

// The smallest detectable difference and the power are inverse to each other.
TEST(PairedPower, InvertsTheSmallestDetectableDifference) {
  for (const int64_t n : {2, 3, 5, 8, 30, 300}) {
    for (const double alpha : {0.05, 0.05 / 7, 0.0001}) {
      const double delta = *SmallestDetectable(n, alpha, 0.8);
      EXPECT_NEAR(*PairedPower(n, delta, alpha), 0.8, 1e-9) << n << " " << alpha;
      EXPECT_EQ(*PairedPower(n, -delta, alpha), *PairedPower(n, delta, alpha));
    }
  }
  EXPECT_NEAR(*PairedPower(5, 0, 0.05), 0.05, 1e-12);
  EXPECT_EQ(*PairedPower(5, 1e6, 0.05), 1);
  EXPECT_TRUE(Invalid(PairedPower(1, 1, 0.05).status()));
  EXPECT_TRUE(Invalid(PairedPower(5, kInf, 0.05).status()));
}

TEST(SeedsToDetect, TheFirstNThatFindsIt) {
  // docs/statistics.md 3: 3.26, 1.68, 1.00 sd at n = 3, 5, 10.
  EXPECT_EQ(**SeedsToDetect(3.27), 3);
  EXPECT_EQ(**SeedsToDetect(1.69), 5);
  EXPECT_EQ(**SeedsToDetect(1.00), 10);
  EXPECT_EQ(**SeedsToDetect(-1.00), 10);
  for (const double effect : {0.11, 0.5, 0.9, 2.0, 50.0}) {
    const int64_t n = **SeedsToDetect(effect, 0.01);
    EXPECT_GE(*PairedPower(n, effect, 0.01), 0.8);
    if (n > 2) {
      EXPECT_LT(*PairedPower(n - 1, effect, 0.01), 0.8);
    }
  }
  EXPECT_FALSE(SeedsToDetect(0.001)->has_value());  // more than 10000
  EXPECT_TRUE(Invalid(SeedsToDetect(0).status()));
  EXPECT_TRUE(Invalid(SeedsToDetect(1, 0.9, 0.8).status()));
}

TEST(EquivalencePower, AgreesWithSimulation) {
  Normals normals(11);
  for (const auto& [n, margin] : std::vector<std::pair<int, double>>{{2, 8.0}, {3, 2.5}, {5, 1.3}, {10, 0.9}}) {
    int shown = 0;
    constexpr int kRepeats = 8000;
    for (int r = 0; r < kRepeats; ++r) {
      Values d(n);
      for (double& x : d) x = normals.Next();
      shown += *Tost(*Paired(d, Values(n, 0.0)), margin)->p < 0.05;
    }
    const double power = *EquivalencePower(n, margin);
    EXPECT_NEAR(static_cast<double>(shown) / kRepeats, power, 4 * std::sqrt(power * (1 - power) / kRepeats)) << n;
  }
}

TEST(EquivalencePower, EdgesAndSeeds) {
  EXPECT_NEAR(*EquivalencePower(5, 1e9), 1, 1e-10);
  EXPECT_GE(*EquivalencePower(3, 1e-9), 0);
  EXPECT_NEAR(*EquivalencePower(2000, 0.1), 0.9953, 0.0005);  // 2 Phi(0.1 sqrt(2000) - 1.645) - 1
  const int64_t n = **SeedsToShowEquivalence(1.0);
  EXPECT_GE(*EquivalencePower(n, 1.0), 0.8);
  EXPECT_LT(*EquivalencePower(n - 1, 1.0), 0.8);
  EXPECT_EQ(**SeedsToShowEquivalence(1e6), 2);
  EXPECT_FALSE(SeedsToShowEquivalence(0.001)->has_value());
  EXPECT_TRUE(Invalid(EquivalencePower(5, 0).status()));
  EXPECT_TRUE(Invalid(EquivalencePower(1, 1).status()));
  EXPECT_TRUE(Invalid(EquivalencePower(5, 1, 0.5).status()));
}

}  // namespace
}  // namespace ablate
