// The tests and decisions of one claim, at the edges of their error rates.
#include "experiments/claims/contrast.h"

#include <cmath>

#include "experiments/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

v1::ClaimSpec Claim(v1::ClaimKind kind, double margin) {
  v1::ClaimSpec claim;
  claim.set_name("c");
  claim.set_kind(kind);
  claim.set_margin(margin);
  return claim;
}

Contrast Made(double mean, double sem, int64_t df) {
  return {.n = df + 1, .mean = mean, .sd = sem * std::sqrt(static_cast<double>(df + 1)), .sem = sem, .df = df};
}

ClaimTest TestOf(const Contrast& main) {
  ClaimTest test;
  test.main = main;
  test.method = "paired_t";
  test.p = 0.5;  // of the claim itself: not significant
  return test;
}

absl::StatusOr<Decision> DecideMade(const v1::ClaimSpec& claim, const Contrast& made, double p_adjusted, double alpha,
                                    int64_t family) {
  ClaimTest test = TestOf(made);
  return Decide(claim, test, p_adjusted, alpha, family);
}

TEST(Contrast, ThePairedTestItself) {
  const std::vector<double> arm = {1.0, 2.1, 2.9, 4.2}, baseline = {0.9, 2.0, 3.1, 3.9};
  const Contrast contrast = *ContrastOf(arm, baseline);
  const PairedDifference paired = *Paired(arm, baseline, 0.9);
  EXPECT_EQ(contrast.mean, paired.mean_difference);
  EXPECT_EQ(contrast.sd, paired.sd_difference);
  EXPECT_EQ(*TwoSidedP(contrast), *paired.p_two_sided);
  const Bounds bounds = *IntervalOf(contrast, 0.1);
  EXPECT_NEAR(bounds.low, *paired.low, 1e-14);
  EXPECT_NEAR(bounds.high, *paired.high, 1e-14);
  EXPECT_NEAR(std::max(*PAbove(contrast, -0.2), *PBelow(contrast, 0.2)), *Tost(paired, 0.2)->p, 1e-14);
  EXPECT_NEAR(*PAbove(contrast, 0.05) + *PBelow(contrast, 0.05), 1, 1e-14);
}

TEST(Contrast, WithoutVarianceThereIsNoTest) {
  const Contrast contrast = *ContrastOf(std::vector<double>{1, 2, 3}, std::vector<double>{0, 1, 2});
  EXPECT_FALSE(contrast.sem.has_value());
  EXPECT_NE(contrast.reason, "");
  EXPECT_FALSE(TwoSidedP(contrast).ok());
  EXPECT_FALSE(IntervalOf(contrast, 0.05).ok());
  EXPECT_FALSE(PBelow(contrast, 1).ok());
}

TEST(Contrast, SteinTakesTheSpreadOfTheFirstStage) {
  const std::vector<double> d = {0.1, 0.3, 0.2, 5.0, -4.0}, zeros(5, 0.0);
  const Contrast contrast = *ContrastOf(d, zeros, 3);
  EXPECT_EQ(contrast.n, 5);
  EXPECT_EQ(contrast.df, 2);
  EXPECT_NEAR(contrast.mean, 0.32, 1e-12);
  EXPECT_NEAR(*contrast.sd, 0.1, 1e-12);
  EXPECT_NEAR(*contrast.sem, 0.1 / std::sqrt(5.0), 1e-12);
  EXPECT_EQ(ContrastOf(d, zeros, 5)->df, 4);  // one stage is the plain test
}

// A difference within the margin refutes "differs" only at Bonferroni's share of alpha.
TEST(Decide, EquivalenceRefutesAtItsShareOfAlpha) {
  const v1::ClaimSpec claim = Claim(v1::DIFFERS, 1);
  const double t = *TCritical(7, 1 - 2 * 0.02);  // TOST p = 0.02 at the nearer margin
  ClaimTest test = TestOf(Made(0, 1 / t, 7));
  EXPECT_NEAR(*PBelow(test.main, 1), 0.02, 1e-9);
  EXPECT_EQ(*Decide(claim, test, 1.0, 0.05, 2), Decision::kRefutedEquivalent);
  EXPECT_NEAR(test.p_equivalent.value_or(1), 0.02, 1e-9);
  EXPECT_EQ(*Decide(claim, test, 1.0, 0.05, 3), Decision::kUndecided);
  EXPECT_EQ(*Decide(claim, test, 1.0, 0.01, 1), Decision::kUndecided);
}

// Any of three parts may show that "rises less" is false: each at a third of the share.
TEST(Decide, APartOfRisesLessRefutesAtAThird) {
  const v1::ClaimSpec claim = Claim(v1::RISES_LESS, 1);
  const auto refuted = [&](double rises_more_p) {
    const double t = *TCritical(7, 1 - rises_more_p);
    ClaimTest test = TestOf(Made(t, 1, 7));
    test.at_short = Made(0, 1, 7);
    test.at_long = Made(-1, 1, 7);
    return *Decide(claim, test, 1.0, 0.05, 2) == Decision::kRefutedPart;
  };
  EXPECT_TRUE(refuted(0.05 / 6 - 0.0005));
  EXPECT_FALSE(refuted(0.05 / 6 + 0.0005));
  // The margin at the short length is one-sided.
  ClaimTest test = TestOf(Made(-1, 1, 7));
  test.at_long = Made(-1, 1, 7);
  test.at_short = Made(1 + *TCritical(7, 1 - 2 * 0.008), 1, 7);
  test.main = Made(0.1, 1, 7);  // the wrong way too, and nothing that is shown
  EXPECT_EQ(*Decide(claim, test, 1.0, 0.05, 2), Decision::kRefutedPart);
  EXPECT_TRUE(test.worse_at_short && !test.rises_more && !test.higher_at_long);
  test.at_short = Made(1 + *TCritical(7, 1 - 2 * 0.009), 1, 7);
  EXPECT_EQ(*Decide(claim, test, 1.0, 0.05, 2), Decision::kUndecided);
}

TEST(Decide, TheIntervalThatRefutesAnEquivalenceIsTwoSided) {
  const v1::ClaimSpec claim = Claim(v1::EQUIVALENT, 1);
  const double t = *TCritical(7, 1 - 0.05 / 4);
  EXPECT_EQ(*DecideMade(claim, Made(1.001 + t, 1, 7), 1.0, 0.05, 4), Decision::kRefutedOutside);
  EXPECT_EQ(*DecideMade(claim, Made(-1.001 - t, 1, 7), 1.0, 0.05, 4), Decision::kRefutedOutside);
  EXPECT_EQ(*DecideMade(claim, Made(0.999 + t, 1, 7), 1.0, 0.05, 4), Decision::kUndecided);
}

TEST(Decide, HolmsPMustLieBelowAlphaNotAtIt) {
  const v1::ClaimSpec claim = Claim(v1::DIFFERS, 0);
  EXPECT_EQ(*DecideMade(claim, Made(-1, 1, 7), 0.05, 0.05, 1), Decision::kUndecided);
  EXPECT_EQ(*DecideMade(claim, Made(-1, 1, 7), 0.0499, 0.05, 1), Decision::kSupported);
  ClaimTest none = TestOf(Made(-1, 1, 7));
  none.p.reset();
  EXPECT_EQ(*Decide(claim, none, std::nullopt, 0.05, 1), Decision::kUndecided);
  EXPECT_FALSE(DecideMade(Claim(v1::CLAIM_KIND_UNSPECIFIED, 0), Made(-1, 1, 7), 0.01, 0.05, 1).ok());
}

TEST(TestClaim, NoSeedsAndOnlyDivergedOnesHaveNoTest) {
  const v1::ClaimSpec claim = Claim(v1::DIFFERS, 0);
  ClaimTest test = *TestClaim(claim, {});
  EXPECT_FALSE(test.p.has_value());
  EXPECT_EQ(test.main.n, 0);
  std::vector<ClaimSeed> seeds(3);
  for (ClaimSeed& seed : seeds) seed.arm_diverged = true;
  test = *TestClaim(claim, seeds);
  EXPECT_FALSE(test.p.has_value());
  EXPECT_EQ(test.arm_diverged.size(), 3u);
}

}  // namespace
}  // namespace ablate
