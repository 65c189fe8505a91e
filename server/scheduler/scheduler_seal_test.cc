// What is sealed is never leased, whoever asks; what is let go runs; what is dropped is gone. And verifications.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kLease = 30'000'000;

// Two trainings with two evaluations each (rows 1, 2 and 3 to 6); all of the second training is sealed.
SubmitPlan SealedPlan(const std::string& name, const std::string& prefix = "key") {
  SubmitPlan plan = MakeTestPlan(name, 2, 2, false, prefix);
  for (int i : {1, 4, 5}) plan.jobs[i].sealed = true;
  plan.sweep.phase = v1::SELECTING;
  plan.sweep.pending = plan.sweep.sealed = true;
  return plan;
}

class SealTest : public ::testing::Test {
 protected:
  std::vector<JobRow> Jobs(const SyncDecision& decision) {
    std::vector<JobRow> rows;
    for (const auto& desired : decision.desired) rows.push_back(desired.job);
    return rows;
  }
  // Does whatever is leased until nothing is; in which order.
  std::vector<JobRow> RunAll() {
    std::vector<JobRow> done;
    std::vector<v1::AttemptReport> reports;
    while (true) {
      const SyncDecision decision = worker.Sync(reports);
      reports.clear();
      if (decision.desired.empty()) return done;
      for (JobRow row : Jobs(decision)) {
        done.push_back(row);
        reports.push_back(worker.Success(row));
      }
    }
  }
  std::vector<std::string> Keys(std::initializer_list<JobRow> rows) {
    std::vector<std::string> keys;
    for (JobRow row : rows) keys.push_back(rig.job(row).key);
    return keys;
  }

  SchedulerRig rig;
  WorkerHand worker{&rig, "w", 4};
};

TEST_F(SealTest, SealedJobsWaitForTheLockAndTheSweepIsNotOver) {
  rig.Submit(SealedPlan("a"));
  EXPECT_THAT(RunAll(), ElementsAre(1, 3, 4));
  EXPECT_EQ(rig.state(2), v1::BLOCKED);
  EXPECT_TRUE(rig.job(2).sealed && rig.job(5).sealed);
  EXPECT_FALSE(rig.job(1).sealed);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);
  EXPECT_TRUE(rig.scheduler->AwaitsDecision(1));
  EXPECT_THAT(rig.scheduler->Explain(2, rig.now()).text, HasSubstr("It is sealed: nothing that confirms"));
  rig.Restart();
  EXPECT_THAT(Jobs(worker.Sync()), IsEmpty());
  EXPECT_TRUE(rig.scheduler->AwaitsDecision(1));

  PlanChange change = rig.ChangeOf(1);
  change.unseal = Keys({2, 5, 6});
  change.sweep.phase = v1::CONFIRMING;
  change.sweep.sealed = false;
  rig.Change(change);
  EXPECT_EQ(rig.state(2), v1::QUEUED);
  EXPECT_EQ(rig.last.transitions[0].cause, Cause::kUnsealed);
  EXPECT_FALSE(rig.scheduler->AwaitsDecision(1));
  EXPECT_THAT(RunAll(), ElementsAre(2, 5, 6));
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);  // a look is to come
  change = rig.ChangeOf(1);
  change.sweep.pending = false;
  rig.Change(change);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.sweep(1).ended_at_us, rig.wall_us);
}

TEST_F(SealTest, WhatIsNotChosenIsDropped) {
  rig.Submit(SealedPlan("a"));
  RunAll();
  PlanChange change = rig.ChangeOf(1);
  change.drop = Keys({2, 5, 6});
  change.sweep.pending = false;
  rig.Change(change);
  for (JobRow row : {2, 5, 6}) EXPECT_EQ(rig.state(row), v1::CANCELLED);
  EXPECT_EQ(rig.last.transitions[0].cause, Cause::kDropped);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);  // what it dropped is no loss
  EXPECT_EQ(rig.scheduler->sweep(1).counts.cancelled(), 0);
  EXPECT_EQ(rig.Retry(1), 0);
  change.drop = Keys({2});
  Effects effects;
  EXPECT_EQ(rig.scheduler->OnPlanChange(change, rig.now(), &effects).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SealTest, AStageRunsForAnotherSweepAndIsSealedAgainWhenThatIsCancelled) {
  rig.Submit(SealedPlan("a"));
  RunAll();
  // Needs the sealed training, and an evaluation of its own.
  SubmitPlan other = MakeTestPlan("b", 2, 0);
  other.jobs.push_back({.kind = v1::EVALUATION, .key = "another evaluation", .parent = 1});
  rig.Submit(other);
  EXPECT_EQ(rig.state(2), v1::QUEUED);
  EXPECT_FALSE(rig.job(2).sealed);
  ASSERT_TRUE(rig.CancelSweep(2).ok());
  EXPECT_EQ(rig.state(2), v1::BLOCKED);
  EXPECT_TRUE(rig.job(2).sealed);
  EXPECT_THAT(Jobs(worker.Sync()), IsEmpty());
  // Taken up again, and cancelled while it runs: it goes on, but when it is lost it is not leased again.
  rig.Retry(2);
  ASSERT_THAT(Jobs(worker.Sync()), ElementsAre(2));
  ASSERT_TRUE(rig.CancelSweep(2).ok());
  EXPECT_EQ(rig.state(2), v1::RUNNING);
  rig.Advance(kLease);
  rig.Tick();
  EXPECT_EQ(rig.state(2), v1::BLOCKED);
  const SyncDecision late = worker.Sync({worker.Success(2)});
  ASSERT_EQ(late.acks.size(), 1u);
  EXPECT_FALSE(late.acks[0].accepted());
  EXPECT_THAT(late.acks[0].reason(), HasSubstr("the job is sealed"));
  // And once more to the end: the sealed evaluations still wait, and its weights are kept for them.
  rig.Retry(2);
  EXPECT_THAT(RunAll(), ElementsAre(2, rig.scheduler->LatestOfKey("another evaluation")->record.row));
  EXPECT_EQ(rig.state(5), v1::BLOCKED);
  EXPECT_TRUE(rig.scheduler->StateAvailable("key stage 1", false));
  PlanChange change = rig.ChangeOf(1);
  change.unseal = Keys({2, 5, 6});
  rig.Change(change);
  EXPECT_THAT(RunAll(), ElementsAre(5, 6));
}

TEST_F(SealTest, AReportForASealedJobIsRefused) {
  rig.Submit(SealedPlan("a"));
  worker.Sync();
  v1::AttemptReport forged = worker.Success(5);
  forged.set_attempt(1);
  const SyncDecision decision = worker.Sync({forged});
  ASSERT_EQ(decision.acks.size(), 1u);
  EXPECT_EQ(decision.acks[0].reason(), "attempt 1 was never granted; the last one is 0");
  EXPECT_TRUE(decision.results.empty());
}

TEST_F(SealTest, AFailureInAPhaseIsSaidAndRetryGoesOn) {
  rig.Submit(SealedPlan("a"));
  worker.Sync();
  worker.Sync({worker.Failure(1, v1::INVALID_CONFIG)});
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_FAILED);
  EXPECT_TRUE(rig.scheduler->AwaitsDecision(1));
  EXPECT_EQ(rig.state(2), v1::BLOCKED);
  EXPECT_EQ(rig.Retry(1), 3);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);
  EXPECT_EQ(rig.scheduler->sweep(1).sealed.size(), 3u);
  RunAll();
  EXPECT_EQ(rig.state(2), v1::BLOCKED);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);
}

TEST_F(SealTest, ACancelledSweepTakesItsSealAlongAndGetsItBack) {
  rig.Submit(SealedPlan("a"));
  worker.Sync();
  worker.Sync({worker.Failure(1, v1::INVALID_CONFIG)});
  ASSERT_TRUE(rig.CancelSweep(1).ok());  // although nothing runs: it still holds the seal
  EXPECT_EQ(rig.state(2), v1::CANCELLED);
  EXPECT_EQ(rig.CancelSweep(1).code(), absl::StatusCode::kFailedPrecondition);
  Effects effects;
  EXPECT_EQ(rig.scheduler->OnPlanChange(rig.ChangeOf(1), rig.now(), &effects).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rig.Retry(1), 6);
  const JobRow stage = rig.scheduler->LatestOfKey("key stage 1")->record.row;
  EXPECT_EQ(rig.state(stage), v1::BLOCKED);
  EXPECT_TRUE(rig.job(stage).sealed);
  RunAll();
  EXPECT_EQ(rig.state(stage), v1::BLOCKED);
}

TEST_F(SealTest, AnExtensionAddsJobsToAFinishedSweep) {
  rig.Submit(MakeTestPlan("a", 1, 1));
  RunAll();
  ASSERT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  PlanChange change = rig.ChangeOf(1);
  change.add = MakeTestPlan("a", 2, 2).jobs;
  change.sweep.plan_sha256 = "another";
  const SubmitOutcome outcome = rig.Change(change);
  // Stage 0 is trained again, since its weights were collected; its first evaluation stays.
  EXPECT_EQ(outcome.new_jobs, 5);
  EXPECT_EQ(outcome.reused_jobs, 1);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);
  EXPECT_EQ(rig.sweep(1).ended_at_us, 0);
  EXPECT_EQ(RunAll().size(), 5u);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.sweep(1).plan_sha256, "another");
  EXPECT_EQ(rig.sweep(1).jobs.size(), 6u);
  // Nothing new, nothing done.
  EXPECT_EQ(rig.Change(change).new_jobs, 0);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
}

TEST_F(SealTest, AVerificationStandsForNothing) {
  SubmitPlan plan = MakeTestPlan("a", 1, 1, /*children=*/true);
  plan.sweep.keep = v1::KEEP_ALL;
  rig.Submit(plan);
  RunAll();
  for (JobRow row : {1, 2, 3}) ASSERT_EQ(rig.state(row), v1::SUCCEEDED);
  for (JobRow row : {1, 2, 3}) {
    const auto made = rig.Verify(row);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(rig.state(*made), v1::QUEUED);
    EXPECT_EQ(rig.job(*made).verify_of, row);
    EXPECT_EQ(rig.job(*made).parent, rig.job(row).parent);
    EXPECT_EQ(rig.scheduler->LatestOfKey(rig.job(row).key)->record.row, row);
    EXPECT_THAT(rig.Verify(*made).status().message(), HasSubstr("a verification itself"));
  }
  rig.Restart();
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.sweep(1).jobs.size(), 3u);
  EXPECT_EQ(RunAll().size(), 3u);
  EXPECT_EQ(rig.scheduler->sweep(1).counts.succeeded(), 3);
  EXPECT_TRUE(rig.scheduler->StateAvailable("key stage 0", true));
  EXPECT_TRUE(rig.store.Snapshot().states.size() == 2);
}

TEST_F(SealTest, AVerificationIsRefusedWhereWhatItNeedsIsGone) {
  rig.Submit(MakeTestPlan("a", 1, 1, /*children=*/true));
  worker.Sync();
  EXPECT_THAT(rig.Verify(2).status().message(), HasSubstr("it is BLOCKED, not done"));
  std::vector<JobRow> done{1};
  worker.Sync({worker.Success(1)});
  worker.Sync({worker.Success(2)});
  worker.Sync({worker.Success(3)});
  EXPECT_TRUE(rig.Verify(1).ok());  // from step 0
  EXPECT_THAT(rig.Verify(2).status().message(), HasSubstr("is not kept any more; `keep: all`"));
  EXPECT_THAT(rig.Verify(3).status().message(), HasSubstr("are not kept any more; `keep: weights`"));
  rig.Submit(SealedPlan("b", "other"));
  EXPECT_THAT(rig.Verify(rig.sweep(2).jobs[1]).status().message(), HasSubstr("it is sealed"));
}

TEST(SealFiles, AVerificationEndsWhenTheFileVanishes) {
  std::set<std::string> missing;
  SchedulerOptions options;
  options.has_artifact = [&](const std::string& sha256) { return !missing.contains(sha256); };
  SchedulerRig rig(options);
  WorkerHand worker(&rig, "w", 1);
  SubmitPlan plan = MakeTestPlan("a", 1, 1);
  plan.sweep.keep = v1::KEEP_WEIGHTS;
  rig.Submit(plan);
  worker.Sync();
  worker.Sync({worker.Success(1)});
  worker.Sync({worker.Success(2)});
  const auto made = rig.Verify(2);
  ASSERT_TRUE(made.ok()) << made.status();
  missing.insert("weights of key stage 0");
  worker.Sync();
  EXPECT_EQ(rig.state(*made), v1::FAILED);
  EXPECT_THAT(rig.job(*made).last_failure->message(), HasSubstr("is gone from the coordinator's disk"));
  EXPECT_THAT(rig.scheduler->Explain(*made, rig.now()).text, HasSubstr("It ended without a second run of job_2: the end state"));
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.scheduler->job_count(), 3u);
}

TEST(SealFiles, AVerificationWhoseDataIsLostEndsAndSaysSo) {
  std::set<std::string> missing;
  SchedulerOptions options;
  options.has_artifact = [&](const std::string& sha256) { return !missing.contains(sha256); };
  SchedulerRig rig(options);
  WorkerHand worker(&rig, "w", 1);
  SubmitPlan plan = MakeTestPlan("a", 1, 0);
  plan.sweep.data = {{.path = "a.txt", .sha256 = "data"}};
  rig.Submit(plan);
  worker.Sync();
  worker.Sync({worker.Success(1)});
  ASSERT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);

  // With the data there it is the job's own failure, tried again.
  auto made = rig.Verify(1);
  ASSERT_TRUE(made.ok()) << made.status();
  worker.Sync();
  worker.Sync({worker.Failure(*made, v1::CODE_ERROR)});
  EXPECT_EQ(rig.state(*made), v1::QUEUED);
  EXPECT_EQ(rig.job(*made).failures, 1);
  rig.Advance(60'000'000);
  missing.insert("data");
  worker.Sync();
  ASSERT_EQ(rig.state(*made), v1::RUNNING);
  worker.Sync({worker.Failure(*made, v1::CODE_ERROR)});
  const auto expect_told = [&](JobRow row, int failures) {
    EXPECT_EQ(rig.state(row), v1::FAILED);
    EXPECT_EQ(rig.job(row).failures, failures) << "lost data is no failure of the job";
    EXPECT_EQ(rig.job(row).last_failure->kind(), v1::UPSTREAM_FAILED);
    const std::string& message = rig.job(row).last_failure->message();
    EXPECT_THAT(message, HasSubstr("its data a.txt (SHA-256 data) was lost or damaged"));
    EXPECT_THAT(message, HasSubstr("`ablate sweep submit FILE`"));
    EXPECT_THAT(message, HasSubstr("`ablate job verify job_1`"));
    EXPECT_THAT(message, HasSubstr("the worker said: broken"));
    EXPECT_THAT(rig.scheduler->Explain(row, rig.now()).text, HasSubstr("It ended without a second run of job_1: its data a.txt"));
  };
  expect_told(*made, 1);
  EXPECT_FALSE(rig.sweep(1).paused);

  // The same where it is told late, and of another kind of failure nothing is said.
  made = rig.Verify(1);
  ASSERT_TRUE(made.ok()) << made.status();
  worker.Sync();
  rig.Advance(options.lease_us);
  rig.Tick();
  ASSERT_EQ(rig.job(*made).failures, 1);
  worker.draining = true;
  worker.Sync({worker.Failure(*made, v1::CODE_ERROR)});
  expect_told(*made, 0);
  worker.draining = false;
  made = rig.Verify(1);
  ASSERT_TRUE(made.ok()) << made.status();
  worker.Sync();
  worker.Sync({worker.Failure(*made, v1::OUT_OF_MEMORY)});
  EXPECT_EQ(rig.state(*made), v1::QUEUED);
  EXPECT_EQ(rig.job(*made).last_failure->kind(), v1::OUT_OF_MEMORY);
}

}  // namespace
}  // namespace ablate
