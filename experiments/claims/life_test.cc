// The whole life of sweeps with phases, planned by MakePlan and measured by a model: tuning, selection, lock, looks.
// A small coordinator: it runs what was let go, asks NextStep, and keeps what that says.
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "experiments/claims/measured.h"
#include "experiments/claims/progress.h"
#include "experiments/claims/testing.h"
#include "experiments/plan.h"
#include "experiments/plan_claims.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using namespace claims_testing;  // NOLINT
using ::testing::HasSubstr;

class Coordinator {
 public:
  explicit Coordinator(v1::SweepSpec spec) : spec_(std::move(spec)) { Replan(); }

  // Until nothing more happens. False: NextStep or MakePlan failed.
  bool Run(int rounds = 40) {
    for (int i = 0; i < rounds; ++i) {
      auto step = NextStep(spec_, plan_, history_, Measured());
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) return false;
      steps_.push_back(*step);
      EXPECT_GE(step->release_seeds, history_.confirming_seeds);
      if (step->lock.has_value()) {
        EXPECT_FALSE(history_.lock.has_value()) << "locked twice";
        history_.lock = step->lock;
      }
      const bool more = step->release_seeds > history_.confirming_seeds;
      const int tries_before = Tries(history_.tuning), tries = Tries(step->tuning);
      history_.tuning = step->tuning;
      history_.looks_done = step->looks_done;
      history_.confirming_seeds = step->release_seeds;
      arms_ = step->confirming_arms;
      history_.over = step->over;
      if (step->tuning_done || tries != tries_before) Replan();
      if (step->over) return true;
      if (!more && !step->tuning_done && tries == tries_before && i > 0 && steps_.size() > 1 &&
          steps_[steps_.size() - 2].waiting_for == step->waiting_for) {
        return true;  // it waits for good
      }
    }
    return true;
  }

  std::vector<v1::ClaimRow> Judge() {
    auto rows = JudgeClaims(spec_, plan_, history_, Measured(), {});
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : std::vector<v1::ClaimRow>();
  }

  // What the coordinator would find: points that were let go; those with (arm label, seed) in `lost` have no result.
  std::vector<Measurement> Measured() {
    std::vector<Measurement> out;
    const JobSet sealed = SealedJobs(plan_);
    const JobSet released = ReleasedJobs(plan_, arms_, history_.confirming_seeds);
    for (const Point& point : plan_.points) {
      const Arm& arm = plan_.arms[point.arm];
      for (const int e : point.evaluations) {
        if (sealed.evaluations[e] && !released.evaluations[e]) continue;
        if (lost_.contains({arm.label, point.seed})) continue;
        const PlannedEvaluation& evaluation = plan_.evaluations[e];
        ran_.insert(evaluation.key);
        Measurement measurement{.sweep = "s",
                                .arm = ArmValuesOf(arm.values),
                                .seed = point.seed,
                                .metric = "loss_targets",
                                .length_tokens = evaluation.length_tokens,
                                .split = evaluation.split,
                                .ntk = evaluation.ntk,
                                .job_id = evaluation.key.substr(0, 12),
                                .phase = point.phase};
        measurement.value = Loss(arm, point.seed, evaluation.length_tokens);
        if (diverged_.contains({arm.label, point.seed})) {
          measurement.value.reset();
          measurement.status = MeasurementStatus::kDiverged;
        }
        out.push_back(measurement);
      }
    }
    return out;
  }

  // Best at rate 0.001; p = 3 is best at 1x, p = 15 at length; softmax rises.
  static double Loss(const Arm& arm, int64_t seed, int64_t length) {
    double p = 0;
    for (const v1::Setting& setting : arm.values.settings()) {
      if (setting.axis() == "attention.p") p = setting.value().number();
    }
    const double doublings = std::log2(static_cast<double>(length) / 128);
    double loss = 2 + 0.05 * std::sin(static_cast<double>(seed)) +
                  0.01 * std::cos(3.0 * static_cast<double>(seed) + p + doublings);
    if (arm.phase == v1::TUNING) loss += std::abs(std::log(arm.learning_rate / 0.001));
    if (p == 0) return loss + 0.3 * doublings;
    return loss + 0.001 * p + 0.3 * doublings / p;
  }

  const std::vector<ClaimsStep>& steps() const { return steps_; }
  const ClaimsHistory& history() const { return history_; }
  ClaimsHistory& history() { return history_; }
  const Plan& plan() const { return plan_; }
  v1::SweepSpec& spec() { return spec_; }
  size_t evaluations_run() const { return ran_.size(); }
  std::set<std::pair<std::string, int64_t>> lost_, diverged_;

 private:
  static int Tries(const std::vector<v1::TunedArm>& tuning) {
    int count = 0;
    for (const v1::TunedArm& arm : tuning) count += arm.tries_size();
    return count;
  }
  void Replan() {
    auto plan = MakePlan(spec_, {}, TuningResultsOf(history_.tuning));
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return;
    if (!sha256_.empty()) {
      EXPECT_EQ(plan->sha256, sha256_);
    }
    plan_ = *std::move(plan);
    sha256_ = plan_.sha256;
  }

  v1::SweepSpec spec_;
  Plan plan_;
  ClaimsHistory history_;
  std::vector<int> arms_;
  std::vector<ClaimsStep> steps_;
  std::set<std::string> ran_;
  std::string sha256_;
};

v1::SweepSpec PSweep() {
  v1::SweepSpec spec;
  spec.set_name("s");
  spec.set_executor(v1::EXECUTOR_NOOP);
  spec.set_keep(v1::KEEP_NONE);
  *spec.mutable_settings()->add_settings() = MakeSetting("train.length", NumberValue(128));
  *spec.mutable_settings()->add_settings() = MakeSetting("train.steps", NumberValue(100));
  *spec.add_arms()->mutable_settings() = Softmax();
  for (const double p : {2.0, 3.0, 7.0, 15.0}) *spec.add_arms()->mutable_settings() = Lssar(p);
  *spec.mutable_baseline() = Softmax();
  for (int seed : {0, 1, 2}) spec.add_seeds(seed);
  spec.mutable_evaluate()->add_splits("selection");
  *spec.mutable_evaluate()->add_lengths() = Multiple(1);
  v1::SelectionSpec* select = spec.mutable_select();
  select->set_metric("loss_targets");
  select->set_split("selection");
  *select->add_lengths() = Multiple(2);
  *select->add_lengths() = Multiple(4);
  spec.mutable_confirm()->set_split("confirmation");
  for (int i = 0; i < 8; ++i) spec.mutable_confirm()->add_seeds(100 + i);
  AddClaim(&spec, "lower", v1::DIFFERS);
  AddClaim(&spec, "rises", v1::RISES_LESS, 0.2)->set_margin_reason("a fifth of softmax's rise");
  return spec;
}

TEST(Life, SelectLockConfirm) {
  Coordinator c(PSweep());
  for (const v1::ClaimRow& row : c.Judge()) EXPECT_EQ(row.verdict(), v1::NOT_YET);
  ASSERT_TRUE(c.Run());
  EXPECT_TRUE(c.history().over);
  EXPECT_EQ(c.history().lock->arm_json(), ToJson(Lssar(15)));
  EXPECT_EQ(c.history().lock->short_rule_arm_json(), ToJson(Lssar(3)));
  EXPECT_GT(c.history().lock->short_rule_regret(), 0);
  const auto rows = c.Judge();
  ASSERT_EQ(rows.size(), 2u);
  for (const v1::ClaimRow& row : rows) {
    EXPECT_EQ(row.verdict(), v1::SUPPORTED) << row.sentence();
    EXPECT_EQ(row.n(), 8);
    EXPECT_EQ(row.standing(), "confirmatory");
    EXPECT_EQ(row.family_low() < row.low(), true);
  }
  // S1: 5 arms x 3 seeds x {1x, 2x, 4x}; S2: softmax and p = 15 alone, 8 seeds x {1x, 8x}.
  EXPECT_EQ(c.evaluations_run(), 5u * 3 * 3 + 2 * 8 * 2);
}

TEST(Life, TuningComesFirstAndFixesTheRates) {
  v1::SweepSpec spec = PSweep();
  for (const double rate : {0.00025, 0.0005}) spec.mutable_tune()->add_learning_rates(rate);
  for (const int seed : {900, 901}) spec.mutable_tune()->add_seeds(seed);
  spec.mutable_tune()->set_metric("loss_targets");
  spec.mutable_tune()->set_max_extensions(3);
  Coordinator c(std::move(spec));
  EXPECT_FALSE(c.plan().complete);
  ASSERT_TRUE(c.Run());
  EXPECT_TRUE(c.history().over);
  ASSERT_EQ(c.history().tuning.size(), 5u);
  for (const v1::TunedArm& arm : c.history().tuning) {
    EXPECT_EQ(arm.learning_rate(), 0.001) << arm.arm_json();
    EXPECT_EQ(arm.tries_size(), 4);  // 0.001 and 0.002 were added: the best lay at the edge
    EXPECT_EQ(arm.note(), "best inside the grid after 2 extensions");
  }
  int done = 0;
  for (const ClaimsStep& step : c.steps()) done += step.tuning_done ? 1 : 0;
  EXPECT_EQ(done, 1);
  EXPECT_EQ(c.history().lock->arm_json(), ToJson(Lssar(15)));
  EXPECT_EQ(c.Judge()[0].verdict(), v1::SUPPORTED);
}

// Whatever phase it is in: a step that is asked for again, as after a restart, says the same.
TEST(Life, AskedAgainItSaysTheSame) {
  Coordinator c(PSweep());
  for (int i = 0; i < 6; ++i) {
    const auto first = NextStep(c.spec(), c.plan(), c.history(), c.Measured());
    const auto again = NextStep(c.spec(), c.plan(), c.history(), c.Measured());
    ASSERT_TRUE(first.ok() && again.ok());
    EXPECT_EQ(first->release_seeds, again->release_seeds);
    EXPECT_EQ(first->over, again->over);
    EXPECT_EQ(first->waiting_for, again->waiting_for);
    EXPECT_EQ(first->lock.has_value() ? first->lock->evidence_json() : "",
              again->lock.has_value() ? again->lock->evidence_json() : "");
    c.Run(1);
  }
}

TEST(Life, ReusedSeedsAreConditional) {
  v1::SweepSpec spec = PSweep();
  spec.mutable_confirm()->clear_seeds();
  spec.mutable_confirm()->set_reuse_seeds(true);
  for (int seed = 3; seed < 8; ++seed) spec.add_seeds(seed);
  for (int seed = 0; seed < 8; ++seed) spec.mutable_confirm()->add_seeds(seed);
  Coordinator c(std::move(spec));
  ASSERT_TRUE(c.Run());
  EXPECT_TRUE(c.history().over);
  for (const v1::ClaimRow& row : c.Judge()) {
    EXPECT_EQ(row.verdict(), v1::SUPPORTED) << row.sentence();
    EXPECT_EQ(row.standing(), "conditional on the selected checkpoints");
  }
}

TEST(Life, DivergedAndMissingConfirmingRunsAreSaid) {
  Coordinator c(PSweep());
  const std::string arm = "p=15 variant=lssar";
  c.diverged_.insert({arm, 103});
  c.lost_.insert({"variant=softmax", 105});
  ASSERT_TRUE(c.Run());
  EXPECT_TRUE(c.history().over);  // all were let go; the lost run can still be retried
  EXPECT_THAT(c.steps().back().waiting_for, HasSubstr("seed 105"));
  v1::ClaimRow row = c.Judge()[0];
  EXPECT_EQ(row.verdict(), v1::UNDECIDED);
  EXPECT_EQ(row.n(), 6);
  EXPECT_FALSE(row.has_p());
  std::string notes;
  for (const std::string& note : row.notes()) notes += note + "\n";
  EXPECT_THAT(notes, HasSubstr("incomplete: 1 of 8 pairs missing (seed 105)"));
  EXPECT_THAT(notes, HasSubstr("1 of 7 runs of p=15 variant=lssar (seed 103)"));
  c.lost_.clear();  // retried
  row = c.Judge()[0];
  EXPECT_EQ(row.n(), 7);
  EXPECT_FALSE(row.has_p());
  c.diverged_.clear();
  EXPECT_EQ(c.Judge()[0].verdict(), v1::SUPPORTED);
}

TEST(Life, ALostSelectingRunHoldsTheLock) {
  Coordinator c(PSweep());
  c.lost_.insert({"p=7 variant=lssar", 1});
  ASSERT_TRUE(c.Run());
  EXPECT_FALSE(c.history().over);
  EXPECT_FALSE(c.history().lock);
  EXPECT_THAT(c.steps().back().waiting_for, HasSubstr("p=7 variant=lssar (seed 1)"));
  const auto lock =
      MakeLockByHand(c.spec(), c.plan(), c.history(), c.Measured(), R"({"attention.p":15})", "worker gone");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(lock->rule_arm_json(), "");  // the rule cannot say yet
  c.history().lock = *lock;
  ASSERT_TRUE(c.Run());
  EXPECT_TRUE(c.history().over);
  EXPECT_EQ(c.Judge()[0].standing(), "confirmatory; deviation: locked by hand: worker gone");
  EXPECT_EQ(c.Judge()[0].verdict(), v1::SUPPORTED);
}

TEST(Life, LooksStopEarlyAndDropTheRest) {
  v1::SweepSpec spec = PSweep();
  spec.mutable_confirm()->add_looks(5);
  spec.mutable_confirm()->add_looks(8);
  Coordinator c(std::move(spec));
  ASSERT_TRUE(c.Run());
  EXPECT_TRUE(c.history().over);
  EXPECT_EQ(c.history().confirming_seeds, 5);
  EXPECT_EQ(c.history().looks_done, 1);
  EXPECT_EQ(c.Judge()[0].look(), 1);
  EXPECT_EQ(c.evaluations_run(), 5u * 3 * 3 + 2 * 5 * 2);
}

}  // namespace
}  // namespace ablate
