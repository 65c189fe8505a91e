#include "experiments/claims/progress.h"

#include <cmath>

#include "experiments/claims/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using namespace claims_testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t k2x = 256, k4x = 512;

ClaimsStep Step(const v1::SweepSpec& spec, Plan plan, const ClaimsHistory& history,
                const std::vector<Measurement>& measurements) {
  Complete(spec, &plan);
  auto step = NextStep(spec, plan, history, measurements);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *step : ClaimsStep();
}

// ---- tuning ----

v1::SweepSpec TunedSpec() {
  v1::SweepSpec spec = MakeSpec(3, 5);
  AddClaim(&spec, "c", v1::DIFFERS);
  for (double rate : {0.0003, 0.001, 0.003}) spec.mutable_tune()->add_learning_rates(rate);
  spec.mutable_tune()->add_seeds(900);
  spec.mutable_tune()->add_seeds(901);
  spec.mutable_tune()->set_metric("loss_targets");
  spec.mutable_tune()->set_max_extensions(2);
  return spec;
}

// The tuning arm of `arm` at `rate`, added when it is new.
const Arm& TuningArm(Plan* plan, int arm, double rate) {
  v1::Configuration values = plan->arms[arm].values;
  *values.add_settings() = MakeSetting("train.learning_rate", NumberValue(rate));
  for (const Arm& known : plan->arms) {
    if (known.json == ToJson(values)) return known;
  }
  Arm made = MakeArm(values);
  made.phase = v1::TUNING;
  made.tunes = arm;
  made.learning_rate = rate;
  plan->arms.push_back(made);
  return plan->arms.back();
}

void AddTuning(Plan* plan, int arm, double rate, std::vector<std::optional<double>> values,
               std::vector<Measurement>* measurements) {
  const Arm tried = TuningArm(plan, arm, rate);
  for (size_t i = 0; i < values.size(); ++i) {
    measurements->push_back(Measure(tried, 900 + static_cast<int64_t>(i), v1::TUNING, k1x, values[i]));
  }
}

TEST(Tuning, TheLowestMeanInsideTheGridIsChosen) {
  const v1::SweepSpec spec = TunedSpec();
  Plan plan = MakePlanOf({3});
  std::vector<Measurement> m;
  for (int arm : {0, 1}) {
    AddTuning(&plan, arm, 0.0003, {2.0, 2.1}, &m);
    AddTuning(&plan, arm, 0.001, {1.8, 1.9}, &m);
    AddTuning(&plan, arm, 0.003, {1.7, 2.1}, &m);
  }
  const ClaimsStep step = Step(spec, plan, {}, m);
  EXPECT_TRUE(step.tuning_done);
  ASSERT_EQ(step.tuning.size(), 2u);
  EXPECT_EQ(step.tuning[0].arm_json(), plan.arms[0].json);
  EXPECT_EQ(step.tuning[1].learning_rate(), 0.001);
  EXPECT_DOUBLE_EQ(step.tuning[1].tries(1).mean(), 1.85);
  EXPECT_EQ(step.tuning[1].tries(1).job_ids_size(), 2);
  EXPECT_EQ(step.tuning[1].note(), "");
  EXPECT_FALSE(step.lock);
  EXPECT_FALSE(step.over);
}

TEST(Tuning, ATieGoesToTheSmallerRate) {
  const v1::SweepSpec spec = TunedSpec();
  Plan plan = MakePlanOf({});
  std::vector<Measurement> m;
  AddTuning(&plan, 0, 0.0003, {2.0, 2.0}, &m);
  AddTuning(&plan, 0, 0.001, {1.5, 1.5}, &m);
  AddTuning(&plan, 0, 0.003, {1.5, 1.5}, &m);
  EXPECT_EQ(Step(spec, plan, {}, m).tuning[0].learning_rate(), 0.001);
}

TEST(Tuning, ABestValueAtTheEdgeExtendsTheGridByTheSameRatio) {
  const v1::SweepSpec spec = TunedSpec();
  Plan plan = MakePlanOf({3});
  std::vector<Measurement> m;
  AddTuning(&plan, 0, 0.0003, {2.0, 2.0}, &m);
  AddTuning(&plan, 0, 0.001, {1.8, 1.8}, &m);
  AddTuning(&plan, 0, 0.003, {1.6, 1.6}, &m);   // the upper edge
  AddTuning(&plan, 1, 0.0003, {1.0, 1.0}, &m);  // the lower edge
  AddTuning(&plan, 1, 0.001, {1.8, 1.8}, &m);
  AddTuning(&plan, 1, 0.003, {1.9, 1.9}, &m);
  ClaimsStep step = Step(spec, plan, {}, m);
  EXPECT_FALSE(step.tuning_done);
  EXPECT_THAT(step.waiting_for, HasSubstr("grid's edge"));
  ASSERT_EQ(step.tuning[0].tries_size(), 4);
  EXPECT_EQ(step.tuning[0].tries(3).learning_rate(), 0.009);
  EXPECT_TRUE(step.tuning[0].tries(3).extension());
  EXPECT_FALSE(step.tuning[0].tries(3).has_mean());
  EXPECT_EQ(step.tuning[1].tries(3).learning_rate(), 0.00009);

  // Asked again before the new runs are there: nothing new, and the runs are named.
  ClaimsHistory history{.tuning = step.tuning};
  step = Step(spec, plan, history, m);
  EXPECT_EQ(step.tuning[0].tries_size(), 4);
  EXPECT_THAT(step.waiting_for, HasSubstr("4 tuning runs: variant=softmax at 0.009, seeds 900, 901"));

  AddTuning(&plan, 0, 0.009, {1.7, 1.7}, &m);    // inside now
  AddTuning(&plan, 1, 0.00009, {0.9, 0.9}, &m);  // still the edge
  step = Step(spec, plan, history, m);
  EXPECT_EQ(step.tuning[0].learning_rate(), 0.003);
  EXPECT_EQ(step.tuning[0].note(), "best inside the grid after 1 extension");
  EXPECT_FALSE(step.tuning_done);
  EXPECT_EQ(step.tuning[1].tries(4).learning_rate(), 0.000027);

  AddTuning(&plan, 1, 0.000027, {0.8, 0.8}, &m);  // the limit of two is reached
  step = Step(spec, plan, {.tuning = step.tuning}, m);
  EXPECT_TRUE(step.tuning_done);
  EXPECT_EQ(step.tuning[1].learning_rate(), 0.000027);
  EXPECT_EQ(step.tuning[1].note(), "best at the grid's edge after 2 extensions");
}

TEST(Tuning, StopsAtTheEdgeOfTheAxis) {
  v1::SweepSpec spec = TunedSpec();
  spec.mutable_tune()->clear_learning_rates();
  for (const double rate : {1.0, 4.0}) spec.mutable_tune()->add_learning_rates(rate);
  Plan plan = MakePlanOf({});
  std::vector<Measurement> m;
  AddTuning(&plan, 0, 1, {2.0, 2.0}, &m);
  AddTuning(&plan, 0, 4, {1.8, 1.8}, &m);
  ClaimsStep step = Step(spec, plan, {}, m);
  ASSERT_EQ(step.tuning[0].tries_size(), 3);
  EXPECT_EQ(step.tuning[0].tries(2).learning_rate(), 10) << "16 is more than train.learning_rate takes";
  AddTuning(&plan, 0, 10, {1.6, 1.6}, &m);
  step = Step(spec, plan, {.tuning = step.tuning}, m);
  EXPECT_TRUE(step.tuning_done);
  EXPECT_EQ(step.tuning[0].learning_rate(), 10);
  EXPECT_EQ(step.tuning[0].note(), "best at the grid's edge, which is that of the axis after 1 extension");
}

TEST(Tuning, ADivergedSeedMakesItsRateIneligible) {
  const v1::SweepSpec spec = TunedSpec();
  Plan plan = MakePlanOf({});
  std::vector<Measurement> m;
  AddTuning(&plan, 0, 0.0003, {2.0, 2.0}, &m);
  AddTuning(&plan, 0, 0.001, {1.8, 1.8}, &m);
  AddTuning(&plan, 0, 0.003, {1.0}, &m);
  m.push_back(DivergedRun(TuningArm(&plan, 0, 0.003), 901, v1::TUNING));
  const ClaimsStep step = Step(spec, plan, {}, m);
  EXPECT_TRUE(step.tuning_done);  // 0.001 is not at the edge: the grid goes on to 0.003
  EXPECT_EQ(step.tuning[0].learning_rate(), 0.001);
  EXPECT_EQ(step.tuning[0].tries(2).diverged(), 1);
  EXPECT_FALSE(step.tuning[0].tries(2).has_mean());
  EXPECT_THAT(step.tuning[0].note(), HasSubstr("1 of 3 rates not eligible"));
}

TEST(Tuning, WhereEveryRateDivergesSmallerOnesAreTried) {
  v1::SweepSpec spec = TunedSpec();
  spec.mutable_tune()->set_max_extensions(1);
  Plan plan = MakePlanOf({});
  std::vector<Measurement> m;
  for (double rate : {0.0003, 0.001, 0.003}) {
    for (int64_t seed : {900, 901}) m.push_back(DivergedRun(TuningArm(&plan, 0, rate), seed, v1::TUNING));
  }
  ClaimsStep step = Step(spec, plan, {}, m);
  ASSERT_EQ(step.tuning[0].tries_size(), 4);
  EXPECT_EQ(step.tuning[0].tries(3).learning_rate(), 0.00009);
  for (int64_t seed : {900, 901}) m.push_back(DivergedRun(TuningArm(&plan, 0, 0.00009), seed, v1::TUNING));
  step = Step(spec, plan, {.tuning = step.tuning}, m);
  EXPECT_TRUE(step.tuning_done);
  EXPECT_EQ(step.tuning[0].learning_rate(), 0.00009);
  EXPECT_THAT(step.tuning[0].note(), HasSubstr("every rate diverged"));
}

TEST(Tuning, AMissingRunIsWaitedForAndNothingIsDecided) {
  const v1::SweepSpec spec = TunedSpec();
  Plan plan = MakePlanOf({});
  std::vector<Measurement> m;
  AddTuning(&plan, 0, 0.0003, {2.0, 2.0}, &m);
  AddTuning(&plan, 0, 0.001, {1.8}, &m);
  AddTuning(&plan, 0, 0.003, {1.9, 1.9}, &m);
  const ClaimsStep step = Step(spec, plan, {}, m);
  EXPECT_FALSE(step.tuning_done);
  EXPECT_EQ(step.tuning[0].learning_rate(), 0);
  EXPECT_EQ(step.waiting_for, "1 tuning run: variant=softmax at 0.001, seed 901");
}

// ---- selection ----

// lssar's mean at 2x and 4x is `level`; at 1x it is 3 - level, so that the 1x rule picks the worst.
void AddSelection(const Plan& plan, int arm, double level, int seeds, std::vector<Measurement>* m) {
  for (int seed = 0; seed < seeds; ++seed) {
    m->push_back(Measure(plan.arms[arm], seed, v1::SELECTING, k1x, 3 - level));
    m->push_back(Measure(plan.arms[arm], seed, v1::SELECTING, k2x, level - 0.1 + 0.01 * seed));
    m->push_back(Measure(plan.arms[arm], seed, v1::SELECTING, k4x, level + 0.1 - 0.01 * seed));
  }
}

struct Selecting {
  v1::SweepSpec spec = MakeSpec(3, 5);
  Plan plan = MakePlanOf({2, 3, 15});
  std::vector<Measurement> m;

  Selecting() {
    AddClaim(&spec, "c", v1::DIFFERS);
    AddSelection(plan, 0, 0.5, 3, &m);
    AddSelection(plan, 1, 1.3, 3, &m);
    AddSelection(plan, 2, 1.1, 3, &m);
    AddSelection(plan, 3, 1.2, 3, &m);
  }
};

TEST(Selection, TheLowestMeanOverTheLengthsIsLocked) {
  Selecting s;
  *s.spec.mutable_confirm()->add_fixed_arms() = Lssar(15);
  const ClaimsStep step = Step(s.spec, s.plan, {}, s.m);
  ASSERT_TRUE(step.lock);
  EXPECT_EQ(step.lock->arm_json(), s.plan.arms[2].json);
  EXPECT_EQ(step.lock->rule_arm_json(), s.plan.arms[2].json);
  EXPECT_FALSE(step.lock->by_hand());
  EXPECT_THAT(step.lock->why(), HasSubstr("of 2 candidates"));  // neither the baseline, the lowest, nor the fixed arm
  EXPECT_EQ(step.lock->short_rule_arm_json(), s.plan.arms[1].json);
  EXPECT_NEAR(step.lock->short_rule_regret(), 0.2, 1e-12);
  EXPECT_THAT(step.confirming_arms, ElementsAre(0, 2, 3));
  EXPECT_EQ(step.release_seeds, 5);
  EXPECT_FALSE(step.over);
  for (const char* part : {"\"score\":1.1", "\"n\":3", "\"length\":256", "p=3 variant=lssar/1/256/3",
                           "\"eligible\":true", "\"rule_at_1x\":{\"standing\":\"exploratory\""}) {
    EXPECT_THAT(step.lock->evidence_json(), HasSubstr(part));
  }
}

TEST(Selection, OfGainTheHighestIsLocked) {
  Selecting s;
  s.spec.mutable_select()->set_metric("gain");
  for (Measurement& measurement : s.m) measurement.metric = "gain";
  const ClaimsStep step = Step(s.spec, s.plan, {}, s.m);
  ASSERT_TRUE(step.lock);
  EXPECT_EQ(step.lock->arm_json(), s.plan.arms[1].json);  // 1.3, the loser of the losses
  EXPECT_THAT(step.lock->why(), HasSubstr("highest score"));
  EXPECT_THAT(step.lock->evidence_json(), HasSubstr("highest mean"));
}

TEST(Selection, WhatTheRulePicksAfterALockByHandIsFilledIn) {
  Selecting s;
  std::vector<Measurement> all = s.m;
  s.m.pop_back();
  Complete(s.spec, &s.plan);
  const auto lock = MakeLockByHand(s.spec, s.plan, {}, s.m, s.plan.arms[3].json, "a hunch");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(lock->rule_arm_json(), "");
  auto later = WithLaterRule(s.spec, s.plan, s.m, *lock);
  ASSERT_TRUE(later.ok());
  EXPECT_FALSE(later->has_value()) << "a run is missing still";
  later = WithLaterRule(s.spec, s.plan, all, *lock);
  ASSERT_TRUE(later.ok() && later->has_value());
  EXPECT_EQ((*later)->rule_arm_json(), s.plan.arms[2].json);
  EXPECT_EQ((*later)->short_rule_arm_json(), s.plan.arms[1].json);
  EXPECT_EQ((*later)->arm_json(), s.plan.arms[3].json);
  EXPECT_EQ((*later)->evidence_json(), lock->evidence_json()) << "what was seen at the lock";
  EXPECT_FALSE(WithLaterRule(s.spec, s.plan, all, **later)->has_value());
}

TEST(Selection, ThePlanSaysWhoIsACandidate) {
  Selecting s;
  Complete(s.spec, &s.plan);
  s.plan.candidates = {1, 3};
  const auto step = NextStep(s.spec, s.plan, {}, s.m);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->lock->arm_json(), s.plan.arms[3].json);
  s.plan.candidates.clear();
  EXPECT_EQ(NextStep(s.spec, s.plan, {}, s.m).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Selection, ATieGoesToTheEarlierArm) {
  Selecting s;
  s.m.clear();
  for (int arm : {1, 2, 3}) AddSelection(s.plan, arm, 1.0, 3, &s.m);
  EXPECT_EQ(Step(s.spec, s.plan, {}, s.m).lock->arm_json(), s.plan.arms[1].json);
}

TEST(Selection, ADivergedCandidateIsNotEligibleAndItIsSaid) {
  Selecting s;
  for (auto& measurement : s.m) {
    if (measurement.arm == ArmValuesOf(s.plan.arms[2].values) && measurement.seed == 1 &&
        measurement.length_tokens == k4x) {
      measurement.value.reset();  // as NaN comes back from the store
    }
  }
  const ClaimsStep step = Step(s.spec, s.plan, {}, s.m);
  ASSERT_TRUE(step.lock);
  EXPECT_EQ(step.lock->arm_json(), s.plan.arms[3].json);
  EXPECT_THAT(step.lock->why(), HasSubstr("not eligible, because a run diverged: p=3 variant=lssar (seed 1)"));
  EXPECT_THAT(step.lock->evidence_json(), HasSubstr("\"diverged_seeds\":[1]"));
}

TEST(Selection, AMissingRunIsWaitedFor) {
  Selecting s;
  s.m.pop_back();  // p = 15, seed 2, 4x
  const ClaimsStep step = Step(s.spec, s.plan, {}, s.m);
  EXPECT_FALSE(step.lock);
  EXPECT_EQ(step.release_seeds, 0);
  EXPECT_EQ(step.waiting_for, "selecting runs without a result: p=15 variant=lssar (seed 2)");
}

TEST(Selection, NobodyEligibleNeedsAHand) {
  Selecting s;
  for (int arm : {1, 2, 3}) {
    for (auto& measurement : s.m) {
      if (measurement.arm == ArmValuesOf(s.plan.arms[arm].values)) measurement.status = MeasurementStatus::kDiverged;
    }
  }
  const ClaimsStep step = Step(s.spec, s.plan, {}, s.m);
  EXPECT_FALSE(step.lock);
  EXPECT_THAT(step.waiting_for, HasSubstr("by hand"));
}

TEST(Selection, NoMeasurementOfAConfirmingPhaseIsLookedAt) {
  Selecting s;
  const ClaimsStep before = Step(s.spec, s.plan, {}, s.m);
  for (int arm : {0, 1, 2, 3}) {
    for (int seed = 0; seed < 3; ++seed) {
      for (int64_t length : {k1x, k2x, k4x}) {
        Measurement fake = Measure(s.plan.arms[arm], seed, v1::CONFIRMING, length, arm == 1 ? -100.0 : 100.0);
        fake.split = "selection";
        s.m.push_back(fake);
      }
    }
  }
  const ClaimsStep after = Step(s.spec, s.plan, {}, s.m);
  EXPECT_EQ(before.lock->arm_json(), after.lock->arm_json());
  EXPECT_EQ(before.lock->evidence_json(), after.lock->evidence_json());
}

TEST(Selection, AnArmThatThePlanDoesNotHaveIsABug) {
  Selecting s;
  Complete(s.spec, &s.plan);
  s.m.push_back(Measure(MakeArm(Lssar(99)), 0, v1::SELECTING, k2x, 1.0));
  EXPECT_EQ(NextStep(s.spec, s.plan, {}, s.m).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Lock, ByHandKeepsWhatTheRuleSays) {
  Selecting s;
  Complete(s.spec, &s.plan);
  const auto lock = MakeLockByHand(s.spec, s.plan, {}, s.m, R"({"attention.p":15})", "p = 3 has zero rows");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(lock->by_hand());
  EXPECT_EQ(lock->arm_json(), s.plan.arms[3].json);
  EXPECT_EQ(lock->rule_arm_json(), s.plan.arms[2].json);
  const ClaimsHistory history{.lock = *lock};
  const ClaimsStep step = Step(s.spec, s.plan, history, s.m);
  EXPECT_FALSE(step.lock);  // the history's stays
  EXPECT_THAT(step.confirming_arms, ElementsAre(0, 3));
  EXPECT_EQ(step.release_seeds, 5);
  EXPECT_FALSE(MakeLockByHand(s.spec, s.plan, history, s.m, R"({"attention.p":2})", "again").ok());
  EXPECT_FALSE(MakeLockByHand(s.spec, s.plan, {}, s.m, R"({"attention.p":15})", " ").ok());
  EXPECT_FALSE(MakeLockByHand(s.spec, s.plan, {}, s.m, R"({"attention.variant":"softmax"})", "w").ok());
  EXPECT_FALSE(MakeLockByHand(s.spec, s.plan, {}, s.m, R"({"attention.p":7})", "w").ok());
}

// ---- confirmation ----

void AddConfirming(const Plan& plan, int arm, int seeds, double value, double spread, std::vector<Measurement>* m) {
  for (int i = 0; i < seeds; ++i) {
    const double shared = 0.3 * std::sin(7.0 * i);  // of the seed, in every arm
    const double own = spread * std::cos(5.0 * i + 11.0 * arm);
    m->push_back(Measure(plan.arms[arm], 100 + i, v1::CONFIRMING, k8x, value + shared + own));
  }
}

ClaimsHistory LockedAt(const Plan& plan, int arm, int seeds) {
  ClaimsHistory history;
  history.lock.emplace();
  history.lock->set_arm_json(plan.arms[arm].json);
  history.confirming_seeds = seeds;
  return history;
}

TEST(Confirming, AllSeedsAtOnceThenOver) {
  Selecting s;
  AddConfirming(s.plan, 0, 5, 2.0, 0.01, &s.m);
  const ClaimsHistory history = LockedAt(s.plan, 2, 5);
  ClaimsStep step = Step(s.spec, s.plan, history, s.m);
  EXPECT_EQ(step.waiting_for, "confirming runs without a result: claim c, seeds 100, 101, 102, 103, 104");
  AddConfirming(s.plan, 2, 5, 1.9, 0.01, &s.m);
  step = Step(s.spec, s.plan, history, s.m);
  EXPECT_TRUE(step.over);
  EXPECT_EQ(step.waiting_for, "");
  EXPECT_EQ(step.looks_done, 1);
  EXPECT_EQ(step.release_seeds, 5);
}

TEST(Confirming, LooksGoOnUntilEveryClaimIsDecided) {
  Selecting s;
  s.spec = MakeSpec(3, 10);
  AddClaim(&s.spec, "clear", v1::DIFFERS);
  for (int look : {5, 8, 10}) s.spec.mutable_confirm()->add_looks(look);
  EXPECT_EQ(Step(s.spec, s.plan, {}, s.m).release_seeds, 5);
  AddConfirming(s.plan, 0, 10, 2.0, 0.01, &s.m);
  std::vector<Measurement> clear = s.m, faint = s.m;
  AddConfirming(s.plan, 2, 5, 1.5, 0.01, &clear);
  AddConfirming(s.plan, 2, 5, 2.0, 0.01, &faint);
  ClaimsStep step = Step(s.spec, s.plan, LockedAt(s.plan, 2, 5), clear);
  EXPECT_TRUE(step.over);  // decided at the first look: the other seeds are dropped
  EXPECT_EQ(step.release_seeds, 5);
  step = Step(s.spec, s.plan, LockedAt(s.plan, 2, 5), faint);
  EXPECT_FALSE(step.over);
  EXPECT_EQ(step.looks_done, 1);
  EXPECT_EQ(step.release_seeds, 8);
  EXPECT_THAT(step.waiting_for, HasSubstr("look 2 of 3, at 8 seeds"));
  step = Step(s.spec, s.plan, LockedAt(s.plan, 2, 8), faint);  // not there yet
  EXPECT_FALSE(step.over);
  EXPECT_EQ(step.looks_done, 1);
  EXPECT_EQ(step.release_seeds, 8);
  EXPECT_THAT(step.waiting_for, HasSubstr("seeds 105, 106, 107"));
  faint = s.m;
  AddConfirming(s.plan, 2, 10, 2.0, 0.01, &faint);
  step = Step(s.spec, s.plan, LockedAt(s.plan, 2, 10), faint);
  EXPECT_TRUE(step.over);
  EXPECT_EQ(step.looks_done, 3);
}

TEST(Confirming, SteinsFirstStageDecidesTheNumber) {
  Selecting s;
  s.spec = MakeSpec(3, 20);
  AddClaim(&s.spec, "c", v1::DIFFERS);
  s.spec.mutable_confirm()->mutable_stein()->set_first(5);
  s.spec.mutable_confirm()->mutable_stein()->set_half_width(0.006);
  EXPECT_EQ(Step(s.spec, s.plan, {}, s.m).release_seeds, 5);
  AddConfirming(s.plan, 0, 20, 2.0, 0.005, &s.m);
  AddConfirming(s.plan, 2, 20, 1.9, 0.005, &s.m);
  ClaimsStep step = Step(s.spec, s.plan, LockedAt(s.plan, 2, 5), s.m);
  EXPECT_FALSE(step.over);
  EXPECT_GT(step.release_seeds, 5);
  EXPECT_LT(step.release_seeds, 20);
  EXPECT_THAT(step.waiting_for, HasSubstr("Stein's rule"));
  EXPECT_TRUE(Step(s.spec, s.plan, LockedAt(s.plan, 2, step.release_seeds), s.m).over);
  s.spec.mutable_confirm()->mutable_stein()->set_half_width(1);  // reached by the first stage
  EXPECT_TRUE(Step(s.spec, s.plan, LockedAt(s.plan, 2, 5), s.m).over);
  s.spec.mutable_confirm()->mutable_stein()->set_half_width(1e-6);
  step = Step(s.spec, s.plan, LockedAt(s.plan, 2, 5), s.m);
  EXPECT_EQ(step.release_seeds, 20);
  EXPECT_THAT(step.waiting_for, HasSubstr("maximum of 20 binds"));
}

TEST(Confirming, WithoutASelectionTheLockComesAtOnce) {
  Selecting s;
  s.spec.clear_select();
  s.spec.mutable_claims(0)->set_selected_arm(false);
  *s.spec.mutable_claims(0)->mutable_arm() = Lssar(15);
  const ClaimsStep step = Step(s.spec, s.plan, {}, {});
  ASSERT_TRUE(step.lock);
  EXPECT_EQ(step.lock->arm_json(), "");
  EXPECT_THAT(step.confirming_arms, ElementsAre(0, 3));
  EXPECT_EQ(step.release_seeds, 5);
}

TEST(Confirming, WithoutClaimsTheLockIsTheEnd) {
  Selecting s;
  s.spec.clear_confirm();
  s.spec.clear_claims();
  const ClaimsStep step = Step(s.spec, s.plan, {}, s.m);
  EXPECT_TRUE(step.lock);
  EXPECT_TRUE(step.over);
}

TEST(Confirming, AHistoryThatIsOverStaysOver) {
  Selecting s;
  ClaimsHistory history = LockedAt(s.plan, 2, 5);
  history.over = true;
  const ClaimsStep step = Step(s.spec, s.plan, history, s.m);
  EXPECT_TRUE(step.over);
  EXPECT_EQ(step.release_seeds, 5);
}

}  // namespace
}  // namespace ablate
