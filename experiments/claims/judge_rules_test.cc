// Verdicts from measured values, the rules of docs/statistics.md 2 and 4: divergence, standing, looks, Stein, several
// texts.
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

// ---- divergence ----

TEST(Divergence, AClaimAboutMeansIsUndecided) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, -0.1, 1);
  s.m.erase(std::remove_if(
                s.m.begin(), s.m.end(),
                [&](const Measurement& m) { return m.seed == 102 && m.arm == ArmValuesOf(s.plan.arms[1].values); }),
            s.m.end());
  s.m.push_back(DivergedRun(s.plan.arms[1], 102, v1::CONFIRMING));
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_FALSE(row.has_p());
  EXPECT_EQ(row.n(), 7);
  EXPECT_THAT(row.seeds(), ElementsAre(100, 101, 103, 104, 105, 106, 107));
  EXPECT_THAT(row.sentence(), AllOf(HasSubstr("survivors only"), HasSubstr("A run diverged")));
  EXPECT_THAT(row.notes(),
              Contains(AllOf(HasSubstr("1 of 8 runs of p=3 variant=lssar (seed 102), 0 of 8 runs of variant=softmax"),
                             HasSubstr("exact McNemar p 1.0000"))));
}

TEST(Divergence, AsWorstItIsJudgedByTheSignTest) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS)->set_divergence_is_worst(true);
  s.Add(0, 0, 1);
  s.Add(1, -0.1, 1);
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.method(), "paired_t");               // no run diverged: the declared rule is not needed
  s.Of(0, 3).status = MeasurementStatus::kDiverged;  // the baseline: the arm wins there
  row = s.Judge()[0];
  EXPECT_EQ(row.method(), "sign_test");
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.p(), *SignTest(8, 0));
  s.Of(1, 5).status = MeasurementStatus::kDiverged;  // the arm: it loses there
  row = s.Judge()[0];
  EXPECT_EQ(row.p(), *SignTest(7, 1));
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  s.Of(0, 5).status = MeasurementStatus::kDiverged;  // both: a tie
  EXPECT_EQ(s.Judge()[0].p(), *SignTest(7, 0));
}

TEST(Divergence, TheSmallestReachablePIsSaid) {
  Sweep s(5);
  AddClaim(&s.spec, "a", v1::DIFFERS)->set_divergence_is_worst(true);
  s.Add(0, 0, 1);
  s.Add(1, -0.1, 1);
  s.Of(0, 3).status = MeasurementStatus::kDiverged;
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.p(), 0.0625);
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_THAT(row.notes(), Contains(HasSubstr("smallest reachable two-sided p is 0.0625")));
}

TEST(Divergence, WorstIsTheLowestGain) {
  Sweep s;
  v1::ClaimSpec* claim = AddClaim(&s.spec, "a", v1::DIFFERS);
  claim->set_divergence_is_worst(true);
  claim->set_metric("gain");
  claim->set_direction(1);
  s.Add(0, 0, 1);
  s.Add(1, 0.1, 1);
  for (auto& measurement : s.m) measurement.metric = "gain";
  s.Of(1, 3).status = MeasurementStatus::kDiverged;
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.p(), *SignTest(7, 1));
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
}

TEST(Divergence, ASignTestShowsNoEquivalence) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::EQUIVALENT, 0.5)->set_divergence_is_worst(true);
  s.Add(0, 0, 1);
  s.Add(1, 0, 1);
  s.Of(0, 3).status = MeasurementStatus::kDiverged;
  const v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_FALSE(row.has_p());
  EXPECT_THAT(row.notes(), Contains(HasSubstr("cannot show an equivalence")));
}

TEST(Divergence, RisesLessWithWorstCountedInEveryPart) {
  Rise s(0.001, -0.05, 0.02);
  s.spec.mutable_claims(0)->set_divergence_is_worst(true);
  s.Of(0, 2, k8x).status = MeasurementStatus::kDiverged;
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.method(), "sign_test");
  EXPECT_EQ(row.p(), *SignTest(8, 0));
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  s.Of(1, 4, k8x).status = MeasurementStatus::kDiverged;
  EXPECT_EQ(s.Judge()[0].verdict(), v1::UNDECIDED);
}

// ---- standing ----

TEST(Standing, SeenReusedAndByHand) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  v1::ClaimSpec* fixed = AddClaim(&s.spec, "f", v1::DIFFERS);
  fixed->set_selected_arm(false);
  *fixed->mutable_arm() = Lssar(15);
  s.Add(0, 0, 1);
  s.Add(1, -0.1, 1);
  s.Add(2, -0.1, 1);
  auto rows = s.Judge({{"a", "job-7"}, {"f", ""}});
  EXPECT_EQ(rows[0].standing(), "exploratory: seen in job job-7");
  EXPECT_EQ(rows[1].standing(), "confirmatory");
  s.spec.mutable_confirm()->set_reuse_seeds(true);
  EXPECT_EQ(s.Judge()[0].standing(), "conditional on the selected checkpoints");
  s.spec.mutable_confirm()->set_reuse_seeds(false);
  s.history.lock->set_by_hand(true);
  s.history.lock->set_why("p = 15 has zero rows");
  rows = s.Judge();
  EXPECT_EQ(rows[0].standing(), "confirmatory; deviation: locked by hand: p = 15 has zero rows");
  EXPECT_EQ(rows[1].standing(), "confirmatory");
  EXPECT_THAT(rows[1].notes(), Contains(HasSubstr("deviation of the sweep")));
}

TEST(Standing, TooFewSeedsAreSaid) {
  Sweep s(4);
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.Add(0, 0, 1);
  s.Add(1, -0.1, 1);
  EXPECT_THAT(s.Judge()[0].notes(), Contains(HasSubstr("fewer than the 5 seeds")));
  Sweep more(7);
  AddClaim(&more.spec, "a", v1::DIFFERS)->set_main(true);
  more.Add(0, 0, 1);
  more.Add(1, -0.1, 1);
  EXPECT_THAT(more.Judge()[0].notes(), Contains(HasSubstr("fewer than the 8 seeds that a main claim needs")));
}

// ---- looks and Stein ----

TEST(Looks, EachAtItsShareAndADecisionStays) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.spec.mutable_confirm()->add_looks(5);
  s.spec.mutable_confirm()->add_looks(8);
  s.Add(0, 0, 1);
  s.Add(1, -0.05, 1);
  s.history.confirming_seeds = 5;
  v1::ClaimRow row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.look(), 1);
  EXPECT_EQ(row.n(), 5);
  EXPECT_EQ(row.alpha(), 0.025);
  // Later seeds that would spoil it do not change what the first look decided.
  for (int i = 5; i < 8; ++i) *s.Of(1, i).value += 5;
  s.history.confirming_seeds = 8;
  row = s.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::SUPPORTED);
  EXPECT_EQ(row.look(), 1);
  EXPECT_EQ(row.n(), 5);
}

TEST(Looks, AnOpenLookShowsItsNumbersAndNoneOfTheNext) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.spec.mutable_confirm()->add_looks(5);
  s.spec.mutable_confirm()->add_looks(8);
  s.Add(0, 0, 1);
  s.Add(1, -0.001, 1);
  s.history.confirming_seeds = 5;
  const v1::ClaimRow first = s.Judge()[0];
  EXPECT_EQ(first.verdict(), v1::UNDECIDED);
  EXPECT_THAT(first.notes(), Contains(HasSubstr("look 1 of 2, at 5 seeds, at alpha / 2; the next look adds seeds")));
  s.history.confirming_seeds = 8;
  s.m.pop_back();  // the second look is not complete
  const v1::ClaimRow open = s.Judge()[0];
  EXPECT_EQ(open.n(), 5);
  EXPECT_EQ(open.estimate(), first.estimate());
  s.Add(1, -0.001, 1);
  const v1::ClaimRow second = s.Judge()[0];
  EXPECT_EQ(second.look(), 2);
  EXPECT_EQ(second.n(), 8);
}

TEST(Stein, TheIntervalIsThatOfTheFirstStage) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  AddClaim(&s.spec, "b", v1::RISES_LESS, 0.02);
  s.spec.mutable_confirm()->mutable_stein()->set_first(5);
  s.Add(0, 0, 1);
  s.Add(1, -0.05, 1);
  s.Add(0, 0, 1, k1x);
  s.Add(1, 0.001, 0.7, k1x);
  const std::vector<double> all = s.Differences(1);
  const PairedDifference first = OfDifferences({all.begin(), all.begin() + 5});
  const double t = *TCritical(4, 0.95);
  // A half-width that takes exactly 7 seeds.
  s.spec.mutable_confirm()->mutable_stein()->set_half_width(t * *first.sd_difference / std::sqrt(6.5));
  s.history.confirming_seeds = 5;
  EXPECT_EQ(s.Judge()[0].verdict(), v1::NOT_YET);  // the first stage is not judged
  s.history.confirming_seeds = 7;
  const auto rows = s.Judge();
  const PairedDifference seven = OfDifferences({all.begin(), all.begin() + 7});
  EXPECT_EQ(rows[0].method(), "stein");
  EXPECT_EQ(rows[0].n(), 7);
  EXPECT_NEAR(rows[0].estimate(), seven.mean_difference, 1e-12);
  EXPECT_NEAR(rows[0].high() - rows[0].low(), 2 * t * *first.sd_difference / std::sqrt(7.0), 1e-12);
  EXPECT_NEAR(rows[0].p(),
              2 * *StudentUpperTail(4, std::abs(seven.mean_difference) / (*first.sd_difference / std::sqrt(7.0))),
              1e-12);
  EXPECT_THAT(rows[0].notes(), Contains(HasSubstr("Stein's rule: sd")));
  EXPECT_EQ(rows[1].n(), 7);
  EXPECT_EQ(rows[1].method(), "stein");
}

// ---- several texts ----

std::vector<v1::ClaimRow> Text(double difference, double scale = 1, double margin = 0) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS, margin);
  s.Add(0, 0, 1);
  s.Add(1, difference, scale);
  return s.Judge();
}

TEST(Texts, AClaimHoldsOnEachOfThem) {
  const auto good = Text(-0.02), other = Text(-0.03), faint = Text(-0.001), bad = Text(0.05);
  auto rows = CombineTexts({good, other});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0].verdict(), v1::SUPPORTED);
  EXPECT_EQ((*rows)[0].p(), std::max(good[0].p(), other[0].p()));
  EXPECT_EQ((*rows)[0].job_ids_size(), 32);
  EXPECT_THAT((*rows)[0].notes(), Contains(HasSubstr("text 2 of 2: Supported")));
  rows = CombineTexts({good, faint});
  EXPECT_EQ((*rows)[0].verdict(), v1::UNDECIDED);
  EXPECT_EQ((*rows)[0].p(), faint[0].p());
  EXPECT_EQ((*rows)[0].estimate(), faint[0].estimate());
  EXPECT_THAT((*rows)[0].sentence(), HasSubstr("supported on 1 of 2 texts"));
  EXPECT_EQ((*CombineTexts({good, bad, faint}))[0].verdict(), v1::REFUTED);
}

TEST(Texts, OneThatIsNotJudgedYetHoldsBack) {
  Sweep s;
  AddClaim(&s.spec, "a", v1::DIFFERS);
  s.history.lock.reset();
  const auto rows = CombineTexts({Text(-0.02), s.Judge()});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0].verdict(), v1::NOT_YET);
  EXPECT_FALSE((*rows)[0].has_p() || (*rows)[0].has_estimate());
}

TEST(Texts, MarginsMayDifferClaimsMayNot) {
  EXPECT_TRUE(CombineTexts({Text(-0.02, 1, 0.01), Text(-0.02, 1, 0.03)}).ok());
  Sweep s;
  AddClaim(&s.spec, "a", v1::EQUIVALENT, 0.01);
  EXPECT_EQ(CombineTexts({Text(-0.02), s.Judge()}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(CombineTexts({}).ok());
}

TEST(Texts, AreDifferentTextsUnderTheSamePlan) {
  v1::SweepSpec first, second;
  first.set_name("first");
  first.mutable_data()->set_sha256("a");
  first.add_claims()->set_margin(0.1);
  second = first;
  second.set_name("second");
  EXPECT_THAT(std::string(CheckTexts({&first, &second}).message()), HasSubstr("on the same text"));
  second.mutable_data()->set_sha256("b");
  second.mutable_claims(0)->set_margin(0.2);
  EXPECT_TRUE(CheckTexts({&first, &second}).ok());
  second.add_seeds(7);
  EXPECT_THAT(std::string(CheckTexts({&first, &second}).message()), HasSubstr("more than their text and margins"));
}

TEST(BaselineGate, IsOfTheSelectingSeedsAtOneAndEightTimes) {
  Sweep s;
  Complete(s.spec, &s.plan);
  s.plan.seeds = {0, 1, 2};
  auto gate = GateOfBaseline(s.spec, s.plan, s.m);
  ASSERT_TRUE(gate.ok()) << gate.status();
  EXPECT_FALSE(gate->has_value());
  for (const int64_t seed : s.plan.seeds) {
    const double base = 2 + 0.01 * static_cast<double>(seed * seed);
    for (const auto& [metric, length, value] :
         {std::tuple("loss_by_position.T/4", k1x, base + 0.3), std::tuple("loss_by_position.T", k1x, base),
          std::tuple("loss_targets", k1x, base), std::tuple("loss_targets", k8x, base + 0.2 + 0.01 * base)}) {
      s.m.push_back(Measure(s.plan.arms[0], seed, v1::SELECTING, length, value));
      s.m.back().metric = metric;
    }
  }
  gate = GateOfBaseline(s.spec, s.plan, s.m);
  ASSERT_TRUE(gate.ok() && gate->has_value()) << gate.status();
  EXPECT_TRUE((*gate)->passed()) << (*gate)->text();
  EXPECT_NEAR((*gate)->context_fall(), 0.3, 1e-12);
  EXPECT_NEAR((*gate)->rise(), 0.22, 0.001);
  EXPECT_EQ((*gate)->seeds_size(), 3);
  s.spec.mutable_data()->set_format(v1::DataRef::TOKEN_SHARDS);  // losses by position are per token
  EXPECT_FALSE(GateOfBaseline(s.spec, s.plan, s.m)->has_value());
}

// HolmOfLargest is stricter than Holm on each text: two claims, each weak on another text.
TEST(Texts, HolmIsTakenOverTheLargestPValues) {
  v1::ClaimRow row;
  row.set_verdict(v1::SUPPORTED);
  row.set_alpha(0.05);
  const auto text = [&](double p, double q) {
    std::vector<v1::ClaimRow> rows(2, row);
    rows[0].mutable_claim()->set_name("a");
    rows[1].mutable_claim()->set_name("b");
    rows[0].set_p(p);
    rows[1].set_p(q);
    return rows;
  };
  const auto rows = CombineTexts({text(0.02, 0.04), text(0.04, 0.02)});
  ASSERT_TRUE(rows.ok());
  for (const auto& combined : *rows) {
    EXPECT_EQ(combined.p_adjusted(), 0.08);
    EXPECT_EQ(combined.verdict(), v1::UNDECIDED);
  }
}

}  // namespace
}  // namespace ablate
