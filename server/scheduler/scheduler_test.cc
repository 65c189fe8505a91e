// The scheduler's rules, one test each; the last one shows that the tests walk every edge of the state machine.
#include "server/scheduler/scheduler.h"

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLease = 30'000'000;

std::set<SnapshotStore::Edge>& WalkedEdges() {
  static auto& edges = *new std::set<SnapshotStore::Edge>;
  return edges;
}

class SchedulerTest : public ::testing::Test {
 protected:
  ~SchedulerTest() override { WalkedEdges().insert(rig.store.edges().begin(), rig.store.edges().end()); }

  std::vector<JobRow> Jobs(const SyncDecision& decision) {
    std::vector<JobRow> rows;
    for (const auto& desired : decision.desired) rows.push_back(desired.job);
    return rows;
  }

  SchedulerRig rig;
  WorkerHand worker{&rig, "w", 1};
};

TEST_F(SchedulerTest, AStageThenItsEvaluationsThenTheSweepIsOver) {
  const SubmitOutcome outcome = rig.Submit(MakeTestPlan("a", 1, 3));
  EXPECT_EQ(outcome.new_jobs, 4);
  EXPECT_EQ(rig.state(1), v1::QUEUED);
  EXPECT_EQ(rig.state(2), v1::BLOCKED);
  EXPECT_THAT(Jobs(worker.Sync()), ::testing::ElementsAre(1));
  EXPECT_EQ(rig.state(1), v1::RUNNING);
  EXPECT_EQ(rig.job(1).attempt, 1);
  // All three evaluations of the state in one lease, on one slot.
  const SyncDecision decision = worker.Sync({worker.Success(1)});
  ASSERT_EQ(decision.acks.size(), 1u);
  EXPECT_TRUE(decision.acks[0].accepted());
  EXPECT_THAT(Jobs(decision), ::testing::ElementsAre(2, 3, 4));
  const SyncDecision end = worker.Sync({worker.Success(2), worker.Success(3), worker.Success(4)});
  EXPECT_TRUE(end.desired.empty());
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.sweep(1).ended_at_us, rig.wall_us);
  EXPECT_EQ(rig.scheduler->sweep(1).steps_done, 100);
  // Nothing needs the weights now.
  EXPECT_FALSE(rig.scheduler->StateAvailable("key stage 0", false));
}

TEST_F(SchedulerTest, ALostAttemptIsQueuedAgainAndFenced) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  const v1::AttemptReport old_success = worker.Success(1);
  rig.Advance(kLease - 1);
  rig.Tick();
  EXPECT_EQ(rig.state(1), v1::RUNNING);
  rig.Advance(1);
  rig.Tick();
  EXPECT_EQ(rig.state(1), v1::QUEUED);
  EXPECT_EQ(rig.job(1).failures, 1);
  EXPECT_EQ(rig.store.attempt(1, 1), AttemptState::kLost);
  WorkerHand other(&rig, "other", 1);
  EXPECT_THAT(Jobs(other.Sync()), ::testing::ElementsAre(1));
  EXPECT_EQ(rig.job(1).attempt, 2);
  // The first worker comes back: its attempt is old.
  const SyncDecision late = worker.Sync({old_success});
  ASSERT_EQ(late.acks.size(), 1u);
  EXPECT_FALSE(late.acks[0].accepted());
  EXPECT_EQ(late.acks[0].reason(), "attempt 1 is old: attempt 2 was granted");
  EXPECT_TRUE(late.results.empty());
  EXPECT_TRUE(other.Sync({other.Success(1)}).acks[0].accepted());
  EXPECT_EQ(rig.store.results(1), 1);
}

TEST_F(SchedulerTest, TheLatestAttemptIsAcceptedWhileItsJobIsQueuedAgain) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  rig.Advance(kLease);
  rig.Tick();
  ASSERT_EQ(rig.state(1), v1::QUEUED);
  ASSERT_EQ(rig.job(1).failures, 1);
  EXPECT_TRUE(worker.Sync({worker.Success(1)}).acks[0].accepted());
  EXPECT_EQ(rig.state(1), v1::SUCCEEDED);
  EXPECT_EQ(rig.store.attempt(1, 1), AttemptState::kSucceeded);
  EXPECT_EQ(rig.job(1).failures, 0) << "its loss was none";
}

TEST_F(SchedulerTest, AnAttemptThatStillRunsIsTakenUpAgainAndItsLossForgotten) {
  rig.Submit(MakeTestPlan("a", 2, 0));
  worker.Sync();
  rig.Advance(kLease);
  rig.Tick();
  ASSERT_EQ(rig.job(1).failures, 1);
  const SyncDecision decision = worker.Sync({worker.Running(1, 40)});
  EXPECT_THAT(Jobs(decision), ::testing::ElementsAre(1));
  EXPECT_EQ(rig.job(1).attempt, 1);
  EXPECT_EQ(rig.job(1).failures, 0);
  EXPECT_EQ(rig.scheduler->job(1).progress, 40);
  // An attempt that said itself how it ended is not taken up again.
  worker.Sync({worker.Report(1, v1::AttemptReport::RELEASED)});
  EXPECT_EQ(rig.job(1).attempt, 2);
}

TEST_F(SchedulerTest, SilenceOfTheWallClockExpiresNothing) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  rig.wall_us += int64_t{86'400} * 1'000'000;
  rig.Tick();
  EXPECT_EQ(rig.state(1), v1::RUNNING);
}

TEST_F(SchedulerTest, EachFailureKindHasItsRule) {
  for (const RetryRule& rule : RetryRules()) {
    if (rule.kind == v1::UPSTREAM_FAILED) continue;
    SchedulerRig fresh;
    WorkerHand hand(&fresh, "w", 1);
    fresh.Submit(MakeTestPlan("a", 1, 1));
    hand.Sync();
    hand.Sync({hand.Failure(1, rule.kind)});
    const std::string name(rule.name);
    EXPECT_EQ(fresh.job(1).failures, rule.counts ? 1 : 0) << name;
    // A retryable one is leased again, but not at once.
    EXPECT_EQ(fresh.state(1), rule.retried ? v1::QUEUED : v1::FAILED) << name;
    EXPECT_EQ(fresh.state(2), rule.retried ? v1::BLOCKED : v1::FAILED) << name;
    fresh.Advance(1'000'000);
    hand.Sync();
    EXPECT_EQ(fresh.state(1), rule.retried ? v1::RUNNING : v1::FAILED) << name;
    for (int i = 0; i < 10 && fresh.state(1) == v1::RUNNING; ++i) {
      hand.Sync({hand.Failure(1, rule.kind)});
      fresh.Advance(20'000'000);
      hand.Sync();
    }
    EXPECT_EQ(fresh.state(1), rule.kind == v1::PREEMPTED ? v1::RUNNING : v1::FAILED) << name;
    if (rule.retried && rule.counts) {
      EXPECT_EQ(fresh.job(1).failures, 3) << name;
    }
    if (rule.kind == v1::PREEMPTED) {
      EXPECT_EQ(fresh.job(1).attempt, 12);
    }
    WalkedEdges().insert(fresh.store.edges().begin(), fresh.store.edges().end());
  }
}

TEST_F(SchedulerTest, AStateThatVanishedFromTheDiskIsTrainedAgain) {  // more in scheduler_retry_test.cc
  bool gone = false;
  SchedulerRig strict({.has_artifact = [&](const std::string&) { return !gone; }});
  WorkerHand hand(&strict, "w", 1);
  strict.Submit(MakeTestPlan("a", 1, 1));
  hand.Sync();
  hand.draining = true;
  hand.Sync({hand.Success(1)});
  gone = true;
  hand.draining = false;
  hand.Sync();
  EXPECT_EQ(strict.state(2), v1::BLOCKED);
  EXPECT_EQ(strict.state(3), v1::RUNNING);
  EXPECT_EQ(strict.job(3).retry_of, 1);
  WalkedEdges().insert(strict.store.edges().begin(), strict.store.edges().end());
}

TEST_F(SchedulerTest, AJobThatKillsItsWorkersEnds) {
  rig.Submit(MakeTestPlan("a", 1, 1));
  for (int i = 0; i < 3; ++i) {
    WorkerHand victim(&rig, absl::StrCat("victim ", i), 1);
    victim.Sync();
    rig.Advance(kLease);
    rig.Tick();
  }
  EXPECT_EQ(rig.state(1), v1::FAILED);
  EXPECT_EQ(rig.job(1).last_failure->kind(), v1::WORKER_LOST);
  EXPECT_EQ(rig.job(2).last_failure->kind(), v1::UPSTREAM_FAILED);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_FAILED);
}

TEST_F(SchedulerTest, ADuplicateReportIsAcknowledgedAndCountsOnce) {
  rig.Submit(MakeTestPlan("a", 2, 0));
  worker.Sync();
  const v1::AttemptReport success = worker.Success(1);
  worker.Sync({success});
  const SyncDecision again = worker.Sync({success});
  EXPECT_TRUE(again.acks[0].accepted());
  EXPECT_TRUE(again.results.empty());
  const v1::AttemptReport failure = worker.Failure(2, v1::CODE_ERROR);
  worker.draining = true;  // so that it is not leased again at once
  worker.Sync({failure});
  EXPECT_TRUE(worker.Sync({failure}).acks[0].accepted());
  EXPECT_EQ(rig.job(2).failures, 1);
}

TEST_F(SchedulerTest, WhatNeverWasIsRefused) {
  rig.Submit(MakeTestPlan("a", 2, 0));
  worker.Sync();
  v1::AttemptReport unknown = worker.Success(1);
  unknown.set_job_id("job_x");
  v1::AttemptReport future = worker.Success(1);
  future.set_attempt(9);
  const SyncDecision decision = worker.Sync({unknown, future});
  EXPECT_EQ(decision.acks[0].reason(), "there is no job job_x");
  EXPECT_EQ(decision.acks[1].reason(), "attempt 9 was never granted; the last one is 1");
  WorkerHand thief(&rig, "thief", 1);
  EXPECT_EQ(thief.Sync({worker.Success(1)}).acks[0].reason(), "attempt 1 was granted to worker w");
  EXPECT_EQ(rig.state(1), v1::RUNNING);
}

TEST_F(SchedulerTest, AResultWithoutWhatItNeedsIsAFailure) {
  SchedulerOptions options;
  options.has_artifact = [](const std::string& sha256) { return sha256 != "weights of key stage 1"; };
  SchedulerRig strict(options);
  WorkerHand hand(&strict, "w", 2);
  strict.Submit(MakeTestPlan("a", 2, 1));
  hand.Sync();
  v1::AttemptReport no_state = hand.Success(1);
  no_state.mutable_result()->clear_end_state();
  const SyncDecision decision = hand.Sync({no_state, hand.Success(2)});
  EXPECT_EQ(decision.acks[0].reason(), "the result of a stage names no end state");
  EXPECT_THAT(decision.acks[1].reason(), HasSubstr("is not stored here"));
  EXPECT_EQ(strict.job(1).failures, 1);
  EXPECT_EQ(strict.job(2).failures, 1);
  v1::AttemptReport no_outcome = hand.Success(1);
  no_outcome.mutable_result()->clear_outcome();
  EXPECT_EQ(hand.Sync({no_outcome}).acks[0].reason(), "the result states no outcome");
}

TEST_F(SchedulerTest, ANewIncarnationLosesTheAttemptsItDoesNotHave) {
  worker.info.set_slots(3);
  rig.Submit(MakeTestPlan("a", 3, 0));
  worker.Sync();
  const std::vector<v1::AttemptReport> spool = {worker.Success(1), worker.Running(2, 10)};
  worker.info.set_incarnation("two");
  worker.sequence = 0;
  worker.draining = true;
  const SyncDecision decision = worker.Sync(spool);
  EXPECT_EQ(rig.state(1), v1::SUCCEEDED);  // its result survived the restart
  EXPECT_EQ(rig.state(2), v1::RUNNING);    // and so did this one
  EXPECT_EQ(rig.state(3), v1::QUEUED);
  EXPECT_EQ(rig.job(3).failures, 1);
  // The former self, delayed on the way, is refused for good, after a restart of the coordinator too.
  for (int i = 0; i < 2; ++i) {
    worker.info.set_incarnation("one");
    worker.sequence = 50;
    const auto refused = rig.Sync(worker.Request());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("was started again"));
    rig.Restart();
  }
}

TEST_F(SchedulerTest, AReleaseCountsNothing) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  worker.draining = true;
  v1::AttemptReport report = worker.Report(1, v1::AttemptReport::RELEASED);
  report.set_step(rig.job(1).from_step + 7);
  report.mutable_failure()->set_message("its worker was asked to stop");
  const SyncDecision decision = worker.Sync({report});
  EXPECT_TRUE(decision.acks[0].accepted());
  EXPECT_TRUE(decision.desired.empty());
  EXPECT_EQ(rig.state(1), v1::QUEUED);
  EXPECT_EQ(rig.job(1).failures, 0);
  // The attempt says why; the job has not failed.
  EXPECT_EQ(rig.job(1).last_failure, nullptr);
  ASSERT_EQ(rig.last.attempt_changes.size(), 1u);
  EXPECT_EQ(rig.last.attempt_changes[0].failure->kind(), v1::PREEMPTED);
  EXPECT_EQ(rig.last.attempt_changes[0].failure->message(),
            absl::StrCat("handed back, its worker was asked to stop, after step ", report.step()));
  EXPECT_EQ(rig.last.transitions[0].text, rig.last.attempt_changes[0].failure->message());
  // A release that was late takes the counted loss back.
  worker.draining = false;
  worker.Sync();
  rig.Advance(kLease);
  rig.Tick();
  EXPECT_EQ(rig.job(1).failures, 1);
  worker.draining = true;
  worker.Sync({worker.Report(1, v1::AttemptReport::RELEASED)});
  EXPECT_EQ(rig.job(1).failures, 0);
}

TEST_F(SchedulerTest, AfterARestartEveryRunningAttemptGetsOneFullLease) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  rig.Advance(kLease - 1);
  rig.Restart();
  rig.Advance(kLease - 1);
  rig.Tick();
  EXPECT_EQ(rig.state(1), v1::RUNNING);
  EXPECT_EQ(rig.job(1).failures, 0);
  EXPECT_THAT(Jobs(worker.Sync({worker.Running(1, 3)})), ::testing::ElementsAre(1));
  rig.Restart();
  rig.Advance(kLease);
  rig.Tick();
  EXPECT_EQ(rig.state(1), v1::QUEUED);
}

TEST_F(SchedulerTest, AnAssignmentThatIsNotReportedIsSentAgainWithTheSameAttempt) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  const SyncDecision again = worker.Sync();
  ASSERT_EQ(again.desired.size(), 1u);
  EXPECT_EQ(again.desired[0].attempt, 1);
}

TEST_F(SchedulerTest, SequencesAndProtocolVersionsAreChecked) {
  v1::SyncRequest first = worker.Request();
  ASSERT_TRUE(rig.Sync(first).ok());
  EXPECT_EQ(rig.Sync(first).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::SyncRequest request = worker.Request();
  request.set_protocol_version(kProtocolVersion + 1);
  EXPECT_EQ(rig.Sync(request).status().code(), absl::StatusCode::kFailedPrecondition);
  request.set_protocol_version(kProtocolVersion - 1);
  EXPECT_TRUE(rig.Sync(request).ok());
  request = worker.Request();
  request.mutable_worker()->set_slots(0);
  EXPECT_EQ(rig.Sync(request).status().code(), absl::StatusCode::kInvalidArgument);
  // A poll of a call that a newer one has replaced.
  v1::SyncRequest waiting = worker.Request();
  ASSERT_TRUE(rig.Sync(waiting).ok());
  worker.Sync();
  Effects effects;
  EXPECT_EQ(rig.scheduler->OnPoll(waiting, rig.now(), &effects).status().code(), absl::StatusCode::kAborted);
}

TEST_F(SchedulerTest, ADivergedStageSettlesWhatHangsOnIt) {
  rig.Submit(MakeTestPlan("a", 1, 2, /*children=*/true));
  worker.Sync();
  worker.Sync({worker.Diverged(1, 37)});
  for (JobRow row : {1, 2, 3, 4}) {
    EXPECT_EQ(rig.state(row), v1::SUCCEEDED) << row;
    EXPECT_EQ(rig.job(row).outcome, v1::DIVERGED) << row;
    EXPECT_EQ(rig.job(row).diverged_at_step, 37) << row;
  }
  EXPECT_EQ(rig.last.diverged_unrun, (std::vector<JobRow>{2, 3, 4}));
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.scheduler->sweep(1).diverged, 4);
  // Another sweep's evaluation of the same state is settled at its submission.
  SubmitPlan more = MakeTestPlan("b", 1, 3, true);
  EXPECT_EQ(rig.Submit(more).new_jobs, 1);
  EXPECT_EQ(rig.job(5).outcome, v1::DIVERGED);
}

TEST_F(SchedulerTest, SweepsShareJobsAndCancellingOneLeavesTheOthers) {
  rig.Submit(MakeTestPlan("a", 2, 1));
  SubmitPlan b = MakeTestPlan("b", 3, 1);
  EXPECT_EQ(rig.Submit(b).reused_jobs, 4);
  ASSERT_TRUE(rig.CancelSweep(1).ok());
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_CANCELLED);
  EXPECT_EQ(rig.state(1), v1::QUEUED);
  EXPECT_EQ(rig.CancelSweep(1).code(), absl::StatusCode::kFailedPrecondition);
  worker.Sync();
  ASSERT_TRUE(rig.CancelSweep(2).ok());
  EXPECT_EQ(rig.state(1), v1::CANCELLED);
  EXPECT_EQ(rig.state(3), v1::CANCELLED);
  // The worker is told to stop; what it says then changes nothing.
  EXPECT_TRUE(worker.Sync({worker.Running(1, 5)}).desired.empty());
  const SyncDecision late = worker.Sync({worker.Success(1)});
  EXPECT_FALSE(late.acks[0].accepted());
  EXPECT_EQ(late.acks[0].reason(), "the job is over: CANCELLED");
  EXPECT_TRUE(worker.Sync({worker.Report(1, v1::AttemptReport::CANCELLED)}).acks[0].accepted());
  // A retry revives the sweep, with new jobs.
  EXPECT_EQ(rig.Retry(2), 6);
  EXPECT_EQ(rig.sweep(2).state, v1::SWEEP_RUNNING);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_CANCELLED);
}

TEST_F(SchedulerTest, CancellingAJobCancelsWhatDependsOnIt) {
  rig.Submit(MakeTestPlan("a", 2, 2));
  worker.Sync();
  ASSERT_TRUE(rig.CancelJob(1).ok());
  EXPECT_EQ(rig.state(3), v1::CANCELLED);
  EXPECT_EQ(rig.state(4), v1::CANCELLED);
  EXPECT_EQ(rig.state(2), v1::QUEUED);
  EXPECT_EQ(rig.CancelJob(1).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(rig.CancelJob(2).ok());
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_FAILED);
}

TEST_F(SchedulerTest, ARetryMakesNewJobsForFailedOnesAndTheirDescendants) {
  rig.Submit(MakeTestPlan("a", 2, 1));
  worker.Sync();
  worker.Sync({worker.Failure(1, v1::INVALID_CONFIG)});
  ASSERT_EQ(rig.state(2), v1::RUNNING);
  worker.Sync({worker.Success(2)});
  worker.Sync({worker.Success(4)});
  ASSERT_EQ(rig.sweep(1).state, v1::SWEEP_FAILED);
  EXPECT_EQ(rig.Retry(1), 2);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);
  EXPECT_EQ(rig.sweep(1).ended_at_us, 0);
  EXPECT_EQ(rig.job(5).retry_of, 1);
  EXPECT_EQ(rig.job(6).retry_of, 3);
  EXPECT_EQ(rig.job(6).parent, 5);
  EXPECT_EQ(rig.state(1), v1::FAILED);  // terminal is final
  worker.Sync();
  worker.Sync({worker.Success(5)});
  worker.Sync({worker.Success(6)});
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.Retry(1), 0);
}

TEST_F(SchedulerTest, AFailedEvaluationKeepsItsStateForARetry) {
  rig.Submit(MakeTestPlan("a", 1, 2));
  worker.Sync();
  worker.Sync({worker.Success(1)});
  worker.Sync({worker.Success(2), worker.Failure(3, v1::INVALID_CONFIG)});
  EXPECT_TRUE(rig.scheduler->StateAvailable("key stage 0", false));
  EXPECT_FALSE(rig.scheduler->StateAvailable("key stage 0", true));
  EXPECT_EQ(rig.Retry(1), 1);
  EXPECT_EQ(rig.job(4).parent, 1);
  EXPECT_THAT(Jobs(worker.Sync()), ::testing::ElementsAre(4));
  worker.Sync({worker.Success(4)});
  EXPECT_FALSE(rig.scheduler->StateAvailable("key stage 0", false));
}

TEST_F(SchedulerTest, ANewEvaluationOfACollectedStateTrainsItAgain) {
  rig.Submit(MakeTestPlan("a", 1, 1, /*children=*/true));  // stage 1, child 2, evaluation 3
  worker.Sync();
  worker.Sync({worker.Success(1)});
  worker.Sync({worker.Success(2)});
  worker.Sync({worker.Success(3)});
  ASSERT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  ASSERT_FALSE(rig.scheduler->StateAvailable("key child 0", false));
  // Both stages are needed again, since the child starts from the other's collected state; evaluation 0 is not.
  const SubmitOutcome outcome = rig.Submit(MakeTestPlan("b", 1, 2, true));
  EXPECT_EQ(outcome.new_jobs, 3);
  EXPECT_EQ(outcome.reused_jobs, 1);
  EXPECT_EQ(rig.job(4).retry_of, 1);
  EXPECT_EQ(rig.job(5).retry_of, 2);
  EXPECT_EQ(rig.job(5).parent, 4);
  EXPECT_EQ(rig.job(6).parent, 5);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
}

TEST_F(SchedulerTest, AnEndStateWithoutTheOptimizerThatALaterChildNeedsIsTrainedAgain) {
  rig.Submit(MakeTestPlan("a", 1, 1));
  const SyncDecision first = worker.Sync();
  EXPECT_FALSE(first.desired[0].keep_optimizer);
  rig.Submit(MakeTestPlan("b", 1, 1, /*children=*/true));  // its child continues from the running stage
  EXPECT_TRUE(worker.Sync({worker.Running(1)}).desired[0].keep_optimizer);
  // The attempt had been started without, and cannot know better.
  const SyncDecision decision = worker.Sync({worker.Success(1, /*optimizer=*/false)});
  EXPECT_TRUE(decision.acks[0].accepted());
  EXPECT_EQ(rig.state(1), v1::SUCCEEDED);
  const Scheduler::Job* rerun = rig.scheduler->LatestOfKey("key stage 0");
  ASSERT_NE(rerun->record.row, 1);
  EXPECT_EQ(rerun->record.retry_of, 1);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_RUNNING);
  // Now it is asked for it from the start, so a result without it is a failure.
  for (int i = 0; i < 10 && rig.state(rerun->record.row) != v1::RUNNING; ++i) {
    std::vector<v1::AttemptReport> reports;
    for (const auto& desired : worker.Sync().desired) reports.push_back(worker.Success(desired.job));
    worker.Sync(reports);
  }
  ASSERT_EQ(rig.state(rerun->record.row), v1::RUNNING);
  EXPECT_THAT(worker.Sync({worker.Success(rerun->record.row, false)}).acks[0].reason(),
              HasSubstr("no optimizer state"));
  rig.Advance(1'000'000);
  for (int i = 0; i < 10; ++i) {
    std::vector<v1::AttemptReport> reports;
    for (const auto& desired : worker.Sync().desired) reports.push_back(worker.Success(desired.job));
    worker.Sync(reports);
  }
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.sweep(2).state, v1::SWEEP_SUCCEEDED);
}

TEST_F(SchedulerTest, KeepDecidesWhatRemains) {
  for (const v1::Keep keep : {v1::KEEP_NONE, v1::KEEP_WEIGHTS, v1::KEEP_ALL}) {
    SchedulerRig fresh;
    WorkerHand hand(&fresh, "w", 1);
    SubmitPlan plan = MakeTestPlan("a", 1, 1);
    plan.sweep.keep = keep;
    fresh.Submit(plan);
    hand.Sync();
    hand.Sync({hand.Success(1)});
    hand.Sync({hand.Success(2)});
    EXPECT_EQ(fresh.scheduler->StateAvailable("key stage 0", false), keep != v1::KEEP_NONE);
    EXPECT_EQ(fresh.scheduler->StateAvailable("key stage 0", true), keep == v1::KEEP_ALL);
  }
}

TEST_F(SchedulerTest, LeaseOrderIsPriorityThenSweepThenEvaluationsFirst) {
  rig.Submit(MakeTestPlan("first", 1, 1, false, "f"));           // rows 1, 2
  SubmitPlan urgent = MakeTestPlan("urgent", 2, 1, false, "u");  // rows 3, 4 | 5, 6
  urgent.sweep.priority = 5;
  rig.Submit(urgent);
  EXPECT_THAT(Jobs(worker.Sync()), ::testing::ElementsAre(3));
  EXPECT_THAT(Jobs(worker.Sync({worker.Success(3)})), ::testing::ElementsAre(5));  // its evaluation before stage 4
  EXPECT_THAT(Jobs(worker.Sync({worker.Success(5)})), ::testing::ElementsAre(4));
  // Shared by a more urgent sweep, a job moves up; without it, back.
  SubmitPlan shares = MakeTestPlan("shares", 1, 1, false, "f");
  shares.sweep.priority = 9;
  rig.Submit(shares);
  EXPECT_EQ(rig.scheduler->job(1).rank.negative_priority, -9);
  ASSERT_TRUE(rig.CancelSweep(3).ok());
  EXPECT_EQ(rig.scheduler->job(1).rank.negative_priority, 0);
}

TEST_F(SchedulerTest, AWorkerThatHoldsAStateGetsItsEvaluations) {
  rig.Submit(MakeTestPlan("a", 3, 2));  // stages 1 to 3, evaluations 4,5 | 6,7 | 8,9
  worker.info.set_slots(3);
  worker.Sync();
  worker.draining = true;
  worker.Sync({worker.Success(1), worker.Success(2), worker.Success(3)});
  WorkerHand holder(&rig, "holder", 1);
  holder.held = {"key stage 2"};
  EXPECT_THAT(Jobs(holder.Sync()), ::testing::ElementsAre(8, 9));
  // Without one, the first.
  WorkerHand other(&rig, "other", 1);
  EXPECT_THAT(Jobs(other.Sync()), ::testing::ElementsAre(4, 5));
}

TEST_F(SchedulerTest, EvaluationsAreSharedOutAmongIdleSlots) {
  rig.Submit(MakeTestPlan("a", 1, 40));
  worker.Sync();
  EXPECT_EQ(worker.Sync({worker.Success(1)}).desired.size(), 16u);  // at most so many in one lease
  WorkerHand wide(&rig, "wide", 4);
  std::map<int32_t, int> slots;
  for (const auto& desired : wide.Sync().desired) ++slots[desired.slot];
  EXPECT_EQ(slots, (std::map<int32_t, int>{{0, 6}, {1, 6}, {2, 6}, {3, 6}}));
}

TEST_F(SchedulerTest, ADrainedWorkerFinishesAndTakesNothingNewUntilItsNextStart) {
  rig.Submit(MakeTestPlan("a", 3, 0));
  worker.Sync();
  rig.Drain("w");
  const SyncDecision decision = worker.Sync({worker.Success(1)});
  EXPECT_TRUE(decision.drain);
  EXPECT_TRUE(decision.desired.empty());
  rig.Restart();
  EXPECT_TRUE(worker.Sync().drain);
  EXPECT_THAT(rig.scheduler->Explain(2, rig.now()).text, HasSubstr("drains"));
  worker.info.set_incarnation("two");
  EXPECT_THAT(Jobs(worker.Sync()), ::testing::ElementsAre(2));
}

TEST_F(SchedulerTest, ExplainsEveryState) {
  rig.Submit(MakeTestPlan("a", 2, 1));
  const auto explain = [&](JobRow row) { return rig.scheduler->Explain(row, rig.now()); };
  EXPECT_EQ(explain(1).text, "It is ready, but no worker is connected.");
  worker.Sync();
  worker.Sync({worker.Running(1, 25)});
  EXPECT_EQ(explain(3).text, "It waits for its parent, stage job_1, which is RUNNING on worker w at step 25 of 100.");
  EXPECT_EQ(explain(2).text, "It is ready, but all 1 slots that could take it are busy; 0 jobs are ahead of it.");
  EXPECT_EQ(explain(1).text, "It is running: attempt 1 on worker w, slot 0, at step 25 of 100.");
  worker.Sync({worker.Failure(1, v1::OUT_OF_MEMORY)});
  EXPECT_EQ(explain(1).text,
            "It is tried again in 1.0s. It has failed 1 of at most 3 times, on worker w; the last time: out_of_memory: broken.");
  rig.Advance(1'000'000);
  worker.Sync({worker.Diverged(2, 9)});
  EXPECT_THAT(explain(1).text, HasSubstr("It has failed 1 of at most 3 times, on worker w; the last time: out_of_memory: broken."));
  worker.Sync({worker.Failure(1, v1::INVALID_CONFIG)});
  EXPECT_THAT(explain(1).text, HasSubstr("It failed after 2 attempts. invalid_config: broken."));
  EXPECT_THAT(explain(3).text, HasSubstr("It never ran, because its parent failed: stage job_1"));
  EXPECT_EQ(explain(2).text, "It is done: diverged at step 9.");
  EXPECT_THAT(explain(4).text, HasSubstr("recorded without running"));
}

TEST_F(SchedulerTest, ALateInvalidConfigEndsTheJob) {
  rig.Submit(MakeTestPlan("a", 1, 0));
  worker.Sync();
  rig.Advance(kLease);
  rig.Tick();
  worker.Sync({worker.Failure(1, v1::INVALID_CONFIG)});
  EXPECT_EQ(rig.state(1), v1::FAILED);
}

// The rules are in scheduler_seal_test.cc.
TEST_F(SchedulerTest, TheEdgesOfSealedJobsAndOfVerifications) {
  std::set<std::string> missing;
  SchedulerOptions options;
  options.has_artifact = [&](const std::string& sha256) { return !missing.contains(sha256); };
  SchedulerRig sealed(options);
  WorkerHand hand(&sealed, "w", 1);
  SubmitPlan plan = MakeTestPlan("a", 3, 1);
  plan.sweep.pending = true;
  plan.sweep.keep = v1::KEEP_WEIGHTS;
  for (int i : {1, 2, 4, 5}) plan.jobs[i].sealed = true;
  sealed.Submit(plan);
  sealed.Submit(MakeTestPlan("b", 2, 0));
  EXPECT_EQ(sealed.state(2), v1::QUEUED);
  EXPECT_TRUE(sealed.CancelSweep(2).ok());
  EXPECT_EQ(sealed.state(2), v1::BLOCKED);
  PlanChange change = sealed.ChangeOf(1);
  change.unseal = {plan.jobs[1].key, plan.jobs[4].key};
  change.drop = {plan.jobs[2].key, plan.jobs[5].key};
  sealed.Change(change);
  EXPECT_EQ(sealed.state(2), v1::QUEUED);
  EXPECT_EQ(sealed.state(3), v1::CANCELLED);
  hand.Sync();
  hand.Sync({hand.Success(1)});
  hand.Sync({hand.Success(4)});
  ASSERT_EQ(sealed.state(4), v1::SUCCEEDED);
  EXPECT_TRUE(sealed.CancelJob(2).ok());
  const auto verification = sealed.Verify(4);
  ASSERT_TRUE(verification.ok()) << verification.status();
  missing.insert("weights of key stage 0");
  hand.Sync();
  EXPECT_EQ(sealed.state(*verification), v1::FAILED);
  WalkedEdges().insert(sealed.store.edges().begin(), sealed.store.edges().end());
}

// ---- the machine itself: keep these last

TEST(JobStates, NoEdgeLeavesATerminalStateAndNoneIsThereTwice) {
  std::set<SnapshotStore::Edge> edges;
  for (const JobEdge& edge : JobEdges()) {
    EXPECT_FALSE(IsTerminal(edge.from));
    EXPECT_NE(edge.from, edge.to);
    EXPECT_TRUE(edges.insert({edge.from, edge.to, edge.cause}).second);
  }
  for (int from = 0; from <= 6; ++from) {
    for (int to = 0; to <= 6; ++to) {
      for (int cause = 0; cause <= static_cast<int>(Cause::kCancelled); ++cause) {
        const SnapshotStore::Edge edge{static_cast<v1::JobState>(from), static_cast<v1::JobState>(to),
                                       static_cast<Cause>(cause)};
        EXPECT_EQ(IsAllowed(std::get<0>(edge), std::get<1>(edge), std::get<2>(edge)), edges.contains(edge));
      }
    }
  }
}

TEST(JobStates, TheTestsAboveWalkEveryEdge) {
  for (const JobEdge& edge : JobEdges()) {
    EXPECT_TRUE(WalkedEdges().contains({edge.from, edge.to, edge.cause}))
        << StateName(edge.from) << " -> " << StateName(edge.to) << " by " << CauseName(edge.cause);
  }
}

TEST(JobStates, TheDocumentDrawsEveryEdge) {
  std::ifstream file(ABLATE_DOCS_DIR "/job-states.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const JobEdge& edge : JobEdges()) {
    const std::string row =
        absl::StrCat("| ", std::string(StateName(edge.from)), " | ", std::string(StateName(edge.to)), " | `",
                     std::string(CauseName(edge.cause)), "` |");
    EXPECT_THAT(text.str(), HasSubstr(row));
  }
}

}  // namespace
}  // namespace ablate
