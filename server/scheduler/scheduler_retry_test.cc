// When a job is run again: the wait after a failure, and stages whose stored states vanished from the coordinator's
// disk.
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

TEST(RetryDelay, AFailedJobWaitsLongerEachTimeAndHoldsUpNoOther) {
  SchedulerRig patient({.max_failures = 9});
  WorkerHand hand(&patient, "w", 1);
  patient.Submit(MakeTestPlan("a", 2, 0));
  hand.Sync();
  for (int64_t seconds : {1, 5, 25, 60, 60}) {
    hand.Sync({hand.Failure(1, v1::CODE_ERROR)});
    EXPECT_EQ(patient.state(1), v1::QUEUED);
    EXPECT_EQ(patient.state(2), v1::RUNNING) << "the next in the queue goes first";
    EXPECT_THAT(patient.scheduler->Explain(1, patient.now()).text, HasSubstr("It is tried again in"));
    hand.draining = true;  // so that it lets go of the other
    hand.Sync({hand.Report(2, v1::AttemptReport::RELEASED)});
    patient.Advance(seconds * 1'000'000 - 1);
    hand.Sync();
    EXPECT_EQ(patient.state(1), v1::QUEUED);
    hand.draining = false;
    patient.Advance(1);
    hand.Sync();
    EXPECT_EQ(patient.state(1), v1::RUNNING) << seconds;
  }
  // The waiting is not stored: a restart forgets it.
  hand.Sync({hand.Failure(1, v1::CODE_ERROR)});
  patient.Restart();
  EXPECT_EQ(patient.state(1), v1::QUEUED);
}

// Files of end states that vanish from the coordinator's disk.
class LostStateTest : public ::testing::Test {
 protected:
  LostStateTest()
      : strict({.has_artifact = [this](const std::string& sha256) { return !gone.contains(sha256); }}),
        hand(&strict, "w", 1) {}
  // Does everything there is, in order.
  void FinishAll() {
    std::vector<v1::AttemptReport> reports;
    for (int round = 0; round < 50 && strict.sweep(1).state == v1::SWEEP_RUNNING; ++round) {
      const SyncDecision decision = hand.Sync(reports);
      reports.clear();
      for (const auto& desired : decision.desired) reports.push_back(hand.Success(desired.job));
    }
  }
  std::set<std::string> gone;
  SchedulerRig strict;
  WorkerHand hand;
};

TEST_F(LostStateTest, EvaluationsWhoseWeightsAreGoneHaveTheirStageTrainedAgain) {
  strict.Submit(MakeTestPlan("a", 1, 2));
  hand.Sync();
  hand.draining = true;
  hand.Sync({hand.Success(1)});
  ASSERT_EQ(strict.state(2), v1::QUEUED);
  gone.insert("weights of key stage 0");
  hand.draining = false;
  hand.Sync();
  EXPECT_EQ(strict.state(2), v1::BLOCKED);
  EXPECT_EQ(strict.state(3), v1::BLOCKED);
  ASSERT_EQ(strict.scheduler->job_count(), 4u);
  EXPECT_EQ(strict.job(4).retry_of, 1);
  EXPECT_EQ(strict.state(4), v1::RUNNING);
  EXPECT_EQ(strict.job(2).failures, 0);
  strict.Restart();
  gone.clear();
  FinishAll();
  EXPECT_EQ(strict.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(strict.store.results(4), 1);
}

TEST_F(LostStateTest, AChildStageWhoseParentsStateIsGoneToo) {
  for (const std::string lost : {"weights of key stage 0", "optimizer"}) {
    SCOPED_TRACE(lost);
    gone.clear();
    SchedulerRig fresh({.has_artifact = [this](const std::string& sha256) { return !gone.contains(sha256); }});
    WorkerHand worker(&fresh, "w", 1);
    fresh.Submit(MakeTestPlan("a", 1, 1, /*children=*/true));
    worker.Sync();
    worker.draining = true;
    worker.Sync({worker.Success(1)});
    gone.insert(lost);
    worker.draining = false;
    worker.Sync();
    EXPECT_EQ(fresh.state(2), v1::BLOCKED);
    ASSERT_EQ(fresh.scheduler->job_count(), 4u);
    EXPECT_EQ(fresh.state(4), v1::RUNNING);
    gone.clear();
    worker.Sync({worker.Success(4)});
    EXPECT_EQ(fresh.state(2), v1::RUNNING);
  }
}

TEST_F(LostStateTest, AnAttemptThatRanWhenItVanishedComesBackToATrainedState) {
  strict.Submit(MakeTestPlan("a", 1, 2));
  WorkerHand other(&strict, "v", 1);
  hand.Sync();
  other.Sync();
  hand.draining = true;
  hand.Sync({hand.Success(1)});
  other.Sync();  // one evaluation or both
  gone.insert("weights of key stage 0");
  hand.draining = false;
  hand.Sync();
  other.Sync({other.Report(2, v1::AttemptReport::RELEASED)});
  gone.clear();
  other.draining = true;
  other.Sync({other.Report(3, v1::AttemptReport::RELEASED)});
  FinishAll();
  EXPECT_EQ(strict.sweep(1).state, v1::SWEEP_SUCCEEDED);
}

}  // namespace
}  // namespace ablate
