// Verdicts from measured values, each rule of docs/statistics.md 2 and 3 by itself.
#include <cmath>

#include "experiments/claims/progress.h"
#include "experiments/claims/testing.h"
#include "experiments/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using namespace claims_testing;  // NOLINT
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- before and after the lock ----

TEST(Judge, NothingIsShownBeforeTheLock) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS, 0.01);
  AddClaim(&s.spec, "b", v1::EQUIVALENT, 0.01);
  s.Add(0, 0, 1);
  s.Add(1, -0.5, 1);
  s.history.lock.reset();
  for (const v1::ClaimRow& row : s.Judge()) {
    EXPECT_EQ(row.verdict(), v1::NOT_YET);
    EXPECT_EQ(row.arm_json(), "");
    EXPECT_THAT(row.sentence(), HasSubstr("sealed"));
    EXPECT_FALSE(row.has_estimate() || row.has_low() || row.has_p() || row.has_p_adjusted() ||
                 row.has_smallest_detectable());
    EXPECT_EQ(row.n(), 0);
    EXPECT_THAT(row.job_ids(), IsEmpty());
  }
}

TEST(Judge, NothingIsShownWhileRunsAreAwaited) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, -0.5, 1);
  s.m.pop_back();
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::NOT_YET);
  EXPECT_FALSE(row.has_estimate() || row.has_p());
  EXPECT_THAT(row.sentence(), HasSubstr("seed 107"));
  // When nothing more will come, what is there is shown, without p: missing runs are rerun, never dropped.
  s.history.over = true;
  row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_EQ(row.n(), 7);
  EXPECT_TRUE(row.has_estimate());
  EXPECT_FALSE(row.has_p());
  EXPECT_THAT(row.notes(), Contains(HasSubstr("incomplete: 1 of 8 pairs missing (seed 107)")));
}

// ---- differs ----

TEST(Differs, SupportedWithTheNumbersOfThePairedTest) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, -0.02, 1);
  const v1::ClaimRow row = s.Judge()[0];
  const PairedDifference paired = OfDifferences(s.Differences(1));
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.arm_json(), s.plan.arms[1].json);
  EXPECT_EQ(row.baseline_json(), s.plan.arms[0].json);
  EXPECT_EQ(row.method(), "paired_t");
  EXPECT_EQ(row.n(), 8);
  EXPECT_EQ(row.look(), 0);
  EXPECT_NEAR(row.estimate(), paired.mean_difference, 1e-12);
  EXPECT_NEAR(row.low(), *paired.low, 1e-12);
  EXPECT_NEAR(row.high(), *paired.high, 1e-12);
  EXPECT_NEAR(row.p(), *paired.p_two_sided, 1e-9);
  EXPECT_EQ(row.p(), row.p_adjusted());
  EXPECT_EQ(row.family_low(), row.low());  // a family of one
  EXPECT_EQ(row.standing(), "confirmatory");
  EXPECT_EQ(row.seeds_size(), 8);
  EXPECT_EQ(row.job_ids_size(), 16);
  const double sd = *SdUpperLimit(*paired.sd_difference, 8);
  EXPECT_NEAR(row.smallest_detectable(), *SmallestDetectable(8) * sd, 1e-9);
  EXPECT_FALSE(row.has_seeds_to_decide());
  EXPECT_THAT(row.sentence(), AllOf(HasSubstr("Supported: loss_targets of p=3 variant=lssar is lower than that of "
                                              "variant=softmax at 1024 tokens (difference -0.0201"),
                                    HasSubstr("95 % interval"), HasSubstr("n = 8"), HasSubstr("below 0.05")));
}

TEST(Differs, RefutedWhenSignificantTheOtherWay) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, 0.02, 1);
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::REFUTED);
  EXPECT_THAT(row.sentence(), HasSubstr("is higher, not lower"));
  s.spec.mutable_claims(0)->set_direction(1);
  EXPECT_EQ(s.Judge()[0].verdict(), v1::SUPPORTED);
  s.spec.mutable_claims(0)->set_direction(0);
  EXPECT_EQ(s.Judge()[0].verdict(), v1::SUPPORTED);
}

TEST(Differs, RefutedWhenEqualWithinTheMargin) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, 0.0005, 1);
  EXPECT_EQ(s.Judge()[0].verdict(), v1::UNDECIDED);  // without a margin nothing can show it
  s.spec.mutable_claims(0)->set_margin(0.02);
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::REFUTED);
  EXPECT_THAT(row.sentence(), HasSubstr("equal within the margin of ±0.02"));
  s.spec.mutable_claims(0)->set_margin(0.005);  // too narrow for this spread
  row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_THAT(row.sentence(), HasSubstr("With 8 seeds a difference of"));
}

TEST(Differs, ASmallButSignificantDifferenceIsSaidToBeSmall) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS, 0.1);
  s.Add(0, 0, 1);
  s.Add(1, -0.02, 1);
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_THAT(row.notes(), Contains(HasSubstr("smaller than the margin")));
}

TEST(Differs, WithoutVarianceThereIsNoTest) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS, 0.1);
  s.Add(0, 0, 1);
  s.Add(1, -0.02, 0);
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_FALSE(row.has_p() || row.has_low());
  EXPECT_THAT(row.sentence(), HasSubstr("no variance"));
}

TEST(Differs, AnArmOfTheFileAndAnotherBaseline) {
  Sweep s;
  v1::ClaimSpec* claim = AddClaim(&s.spec, "a", v1::DIFFERS);
  claim->set_selected_arm(false);
  *claim->mutable_arm() = Lssar(3);
  *claim->mutable_against() = Lssar(15);
  s.Add(0, 0, 1);
  s.Add(1, -0.1, 1);
  s.Add(2, 0.1, 1);
  s.history.lock->set_arm_json("");  // nothing was selected
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.baseline_json(), s.plan.arms[2].json);
  EXPECT_NEAR(row.estimate(), -0.2, 0.01);
}

TEST(Differs, SeedsToDecideUseTheDeclaredEffectOnly) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS)->set_smallest_effect(0.005);
  s.Add(0, 0, 1);
  s.Add(1, -0.001, 1);
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  const double sd = *SdUpperLimit(*OfDifferences(s.Differences(1)).sd_difference, 8);
  EXPECT_EQ(row.seeds_to_decide(), **SeedsToDetect(0.005 / sd));
  EXPECT_THAT(row.sentence(), HasSubstr("smallest effect of 0.005"));
  Sweep other;  // another observed effect, the same spread: the same number
  AddClaim(&other.spec, "a", v1::DIFFERS)->set_smallest_effect(0.005);
  other.Add(0, 0, 1);
  other.Add(1, -0.3, 1);
  EXPECT_EQ(other.Judge()[0].seeds_to_decide(), row.seeds_to_decide());
}

// ---- equivalent ----

TEST(Equivalent, SupportedRefutedUndecided) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::EQUIVALENT, 0.02);
  s.Add(0, 0, 1);
  s.Add(1, 0.001, 1);
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.method(), "tost");
  EXPECT_NEAR(row.p(), *Tost(OfDifferences(s.Differences(1)), 0.02)->p, 1e-12);
  EXPECT_EQ(row.seeds_to_decide(),
            **SeedsToShowEquivalence(0.02 / *SdUpperLimit(*OfDifferences(s.Differences(1)).sd_difference, 8)));
  EXPECT_THAT(row.sentence(), HasSubstr("equals that of variant=softmax within ±0.02"));
  s.spec.mutable_claims(0)->set_margin(0.004);
  EXPECT_EQ(s.Judge()[0].verdict(), v1::UNDECIDED);

  Sweep far;
  AddClaim(&far.spec, "a", v1::EQUIVALENT, 0.02);
  far.Add(0, 0, 1);
  far.Add(1, -0.1, 1);
  row = far.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::REFUTED);
  EXPECT_LT(row.family_high(), -0.02);
  EXPECT_THAT(row.sentence(), HasSubstr("farther apart"));
}

TEST(Equivalent, TheRefutingIntervalIsBonferronis) {
  Sweep s;
  for (int i = 0; i < 20; ++i) AddClaim(&s.spec, "c" + std::to_string(i), v1::EQUIVALENT, 0.02);
  s.Add(0, 0, 1);
  s.Add(1, -0.0295, 1);
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_LT(row.high(), -0.02);         // the plain interval lies outside
  EXPECT_GT(row.family_high(), -0.02);  // the one of twenty does not
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  const auto wide = BonferroniPaired(s.Differences(1), std::vector<double>(8, 0.0), 20);
  EXPECT_NEAR(row.family_high(), *wide->high, 1e-9);
}

// ---- rises less ----

TEST(RisesLess, AllThreePartsMustHold) {
  Rise s(0.001, -0.05, 0.02);
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.method(), "intersection_union");
  EXPECT_NEAR(row.estimate(), -0.051, 0.005);
  const PairedDifference at_1x = OfDifferences(s.Differences(1, k1x));
  const PairedDifference at_8x = OfDifferences(s.Differences(1, k8x));
  std::vector<double> rises = s.Differences(1, k8x);
  for (int i = 0; i < 8; ++i) rises[i] -= s.Differences(1, k1x)[i];
  const double no_worse =
      *StudentUpperTail(7, (0.02 - at_1x.mean_difference) / (*at_1x.sd_difference / std::sqrt(8.0)));
  EXPECT_NEAR(row.p(), std::max({*OfDifferences(rises).p_two_sided, no_worse, *at_8x.p_two_sided}), 1e-9);
  EXPECT_THAT(row.sentence(), AllOf(HasSubstr("rises less"), HasSubstr("not worse by more than 0.02 at 128 tokens")));
  EXPECT_EQ(row.job_ids_size(), 32);
}

TEST(RisesLess, ASmallerRiseOfAWorseArmIsNoMerit) {
  Rise worse(0.3, 0.1, 0.02);  // rises 0.2 less, and is worse everywhere
  const v1::ClaimRow row = worse.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::REFUTED);
  EXPECT_EQ(row.p(), 1);
  EXPECT_THAT(row.sentence(),
              AllOf(HasSubstr("worse by more than 0.02 at 128 tokens"), HasSubstr("higher at 1024 tokens")));
}

TEST(RisesLess, UndecidedWithinTheMarginAndUncertain) {
  EXPECT_EQ(Rise(0.019, -0.05, 0.02).Judge()[0].verdict(), v1::UNDECIDED);
  EXPECT_EQ(Rise(0.001, -0.05, 0.02, 12).Judge()[0].verdict(), v1::UNDECIDED);
}

TEST(RisesLess, ArmsThatAreTheSameAt1xNeedNoTestThere) {
  Rise s(0, -0.05, 0, 0);
  for (auto& measurement : s.m) {
    if (measurement.length_tokens == k8x)
      *measurement.value +=
          0.001 * static_cast<double>(measurement.seed % 3) * (measurement.arm.contains("attention.p") ? 1 : 0);
  }
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_THAT(row.notes(), Contains(HasSubstr("same values at the short length")));
}

// ---- the family ----

TEST(Family, HolmOverAllClaimsAndThoseWithoutPCountAsOne) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  AddClaim(&s.spec, "b", v1::EQUIVALENT, 0.02);
  v1::ClaimSpec* third = AddClaim(&s.spec, "c", v1::DIFFERS);
  third->set_selected_arm(false);
  *third->mutable_arm() = Lssar(15);
  s.Add(0, 0, 1);
  s.Add(1, -0.008, 1);
  s.Add(2, 0.1, 1);
  s.Of(2, 1).status = MeasurementStatus::kDiverged;
  const auto rows = s.Judge();
  const auto holm = Holm(std::vector<double>{rows[0].p(), rows[1].p(), 1.0});
  EXPECT_EQ(rows[0].p_adjusted(), (*holm)[0]);
  EXPECT_EQ(rows[1].p_adjusted(), (*holm)[1]);
  EXPECT_FALSE(rows[2].has_p() || rows[2].has_p_adjusted());
  EXPECT_LT(rows[0].p(), 0.05);
  EXPECT_LT(rows[0].family_low(), rows[0].low());
}

TEST(Family, AlphaIsTheFiles) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, -0.011, 1);
  ASSERT_EQ(s.Judge()[0].verdict(), v1::SUPPORTED);
  s.spec.set_alpha(0.001);
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_EQ(row.alpha(), 0.001);
  EXPECT_THAT(row.sentence(), HasSubstr("99.9 % interval"));
}

}  // namespace
}  // namespace ablate
