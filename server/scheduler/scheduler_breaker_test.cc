// Poison jobs, jobs that are kept from workers, sweeps that pause: scheduler_breaker.cc.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/failure_signature.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000;

std::vector<JobRow> RowsOf(const SyncDecision& decision) {
  std::vector<JobRow> rows;
  for (const SyncDecision::Desired& desired : decision.desired) rows.push_back(desired.job);
  return rows;
}

std::string Signature(v1::FailureKind kind, const std::string& message) {
  v1::Failure failure;
  failure.set_kind(kind);
  failure.set_message(message);
  return FailureSignature(failure);
}

TEST(FailureSignature, LeavesOutWhatDiffersFromAttemptToAttempt) {
  EXPECT_EQ(Signature(v1::CODE_ERROR, "the trainer ended with signal 6 (Aborted) after step 212; memory: 1.19 GiB"),
            "code_error: the trainer ended with signal # (Aborted) after step #; memory: # GiB");
  EXPECT_EQ(Signature(v1::WORKER_LOST, "worker worker_5f0c was silent for 30 s"),
            Signature(v1::WORKER_LOST, "worker worker_77ab was silent for 30 s"));
  EXPECT_EQ(Signature(v1::CODE_ERROR, "2026-11-30 12:30:07.5: at 0x7f00ab in libfoo.so"), "code_error: # #: at # in libfoo.so");
  EXPECT_NE(Signature(v1::OUT_OF_MEMORY, "x"), Signature(v1::TIMEOUT, "x"));
  EXPECT_EQ(Signature(v1::CODE_ERROR, "first\nsecond"), "code_error: first");
  // Cut, and still text: each of these takes two bytes.
  std::string accents;
  for (int i = 0; i < 300; ++i) accents += "\xc3\xa9";
  const std::string cut = Signature(v1::CODE_ERROR, accents);
  EXPECT_LE(cut.size(), 200u);
  EXPECT_EQ((cut.size() - std::string("code_error: ").size()) % 2, 0u);
}

// A job that ends its worker ends three of them, and not one more.
TEST(Poison, AJobThatKillsItsWorkersIsQuarantinedWithTheirNames) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 1, 0));
  for (const char* name : {"a", "b", "c", "d"}) {
    WorkerHand worker(&rig, name, 1);
    const std::vector<JobRow> got = RowsOf(worker.Sync());
    if (std::string(name) == "d") {
      EXPECT_TRUE(got.empty()) << "a fourth worker got it";
      break;
    }
    ASSERT_EQ(got, std::vector<JobRow>{1}) << name;
    rig.Advance(31 * kSecond);
    rig.Tick();
  }
  EXPECT_EQ(rig.state(1), v1::FAILED);
  EXPECT_EQ(rig.job(1).failed_on, (std::vector<std::string>{"a", "b", "c"}));
  const Scheduler::Explanation why = rig.scheduler->Explain(1, rig.now());
  EXPECT_THAT(why.text, HasSubstr("It is quarantined: it failed 3 times, on workers a, b, c; no worker gets it again."));
  EXPECT_THAT(why.text, HasSubstr("worker_lost: worker c was silent for 30 s"));
  EXPECT_THAT(why.next_step, HasSubstr("ablate sweep retry"));
}

// One poisonous evaluation among sixteen that share a lease; each time all of them are lost with it.
TEST(Poison, NobodyElseIsGivenUpForIt) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 1, 16));
  WorkerHand worker(&rig, "w", 2);
  worker.Sync();
  worker.Sync({worker.Success(1)});
  const JobRow poison = 7;
  int deaths = 0, alone = 0;
  for (int round = 0; round < 200 && rig.sweep(1).state == v1::SWEEP_RUNNING; ++round) {
    const SyncDecision decision = worker.Sync();
    ASSERT_FALSE(decision.desired.empty()) << "round " << round;
    const std::vector<JobRow> rows = RowsOf(decision);
    if (std::count(rows.begin(), rows.end(), poison) > 0) {
      if (deaths == 2) {
        EXPECT_EQ(rows.size(), 1u) << "its last try is its own";
      }
      ++deaths;
      worker.info.set_incarnation(absl::StrCat("birth ", deaths));
      worker.sequence = 0;
      continue;
    }
    alone += deaths == 2 && rows.size() == 1;
    std::vector<v1::AttemptReport> reports;
    for (JobRow row : rows) reports.push_back(worker.Success(row));
    worker.Sync(reports);
  }
  EXPECT_EQ(deaths, 3);
  EXPECT_GT(alone, 0);
  for (JobRow row = 1; row <= 17; ++row) {
    EXPECT_EQ(rig.state(row), row == poison ? v1::FAILED : v1::SUCCEEDED) << row;
  }
}

// On its last try a job starts beside nobody who may be the killer, and nobody joins it before it is known to be none.
TEST(Poison, ALastTryStartsAmongTheProvenAndHoldsUpNobodyForLong) {
  SchedulerRig rig;
  SubmitPlan plan = MakeTestPlan("s", 4, 0);
  rig.Submit(plan);
  WorkerHand doomed(&rig, "doomed", 1);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(RowsOf(doomed.Sync()), std::vector<JobRow>{1});
    doomed.info.set_incarnation(absl::StrCat("birth ", i));
    doomed.sequence = 0;
    doomed.draining = i == 1;
    doomed.Sync();
  }
  ASSERT_EQ(rig.job(1).failures, 2);
  // The first in order is 1: with nothing beside it, alone on three slots.
  WorkerHand worker(&rig, "w", 3);
  EXPECT_EQ(RowsOf(worker.Sync()), std::vector<JobRow>{1});
  WorkerHand other(&rig, "other", 1);
  EXPECT_EQ(RowsOf(other.Sync()), std::vector<JobRow>{2});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(worker.Sync({worker.Running(1, i)}).desired.size(), 1u);
    rig.Advance(10 * kSecond);
    other.Sync({other.Running(2)});
  }
  EXPECT_EQ(worker.Sync({worker.Running(1, 7)}).desired.size(), 3u) << "a minute later others join it";

  // And it does not start beside those that came just now, but beside old hands.
  rig.Submit(MakeTestPlan("t", 1, 0, false, "other key"));
  const JobRow late = 5;
  for (const char* name : {"second", "third"}) {
    WorkerHand also(&rig, name, 1);
    ASSERT_EQ(RowsOf(also.Sync()), std::vector<JobRow>{late});
    also.info.set_incarnation("two");
    also.sequence = 0;
    also.draining = true;
    also.Sync();
  }
  EXPECT_EQ(worker.Sync({worker.Success(1), worker.Running(3), worker.Running(4)}).desired.size(), 2u);
  EXPECT_THAT(rig.scheduler->Explain(late, rig.now()).text, HasSubstr("It is on its last try and starts alone"));
  for (int i = 0; i < 6; ++i) {
    rig.Advance(10 * kSecond);
    other.Sync({other.Running(2)});
    EXPECT_EQ(worker.Sync({worker.Running(3), worker.Running(4)}).desired.size(), i < 5 ? 2u : 3u) << i;
  }
}

TEST(Poison, AFailureThatProvesUntrueIsTakenBackWithItsWorker) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 1, 0));
  WorkerHand worker(&rig, "w", 1);
  worker.Sync();
  const v1::AttemptReport running = worker.Running(1, 5);
  rig.Advance(31 * kSecond);
  rig.Tick();
  EXPECT_EQ(rig.job(1).failed_on, std::vector<std::string>{"w"});
  worker.Sync({running});
  EXPECT_EQ(rig.state(1), v1::RUNNING);
  EXPECT_TRUE(rig.job(1).failed_on.empty());
}

TEST(Steering, AJobGoesToAWorkerOnWhichItHasNotFailed) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 2, 0));
  WorkerHand a(&rig, "a", 1), b(&rig, "b", 1);
  ASSERT_EQ(RowsOf(a.Sync()), std::vector<JobRow>{1});
  ASSERT_EQ(RowsOf(b.Sync()), std::vector<JobRow>{2});
  a.Sync({a.Failure(1, v1::CODE_ERROR)});
  rig.Advance(2 * kSecond);
  // b is busy, but it is there.
  EXPECT_TRUE(a.Sync().desired.empty());
  Scheduler::Explanation why = rig.scheduler->Explain(1, rig.now());
  EXPECT_THAT(why.text, HasSubstr("kept from the workers on which it failed: it waits for one of 1 others for at most "));
  EXPECT_THAT(why.text, HasSubstr("on worker a; the last time: code_error: broken"));
  EXPECT_EQ(RowsOf(b.Sync({b.Success(2)})), std::vector<JobRow>{1});
}

TEST(Steering, ItDoesNotWaitForEver) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 2, 0));
  WorkerHand a(&rig, "a", 1), b(&rig, "b", 1);
  a.Sync();
  b.Sync();
  a.Sync({a.Failure(1, v1::CODE_ERROR)});
  for (int i = 0; i < 60; ++i) {
    rig.Advance(10 * kSecond);
    EXPECT_EQ(a.Sync().desired.empty(), i < 59) << i;
    b.Sync({b.Running(2, i)});
  }
}

TEST(Steering, WhereNoOtherCanTakeItTheSameWorkerGetsItAgain) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 1, 0));
  WorkerHand a(&rig, "a", 1), gpu(&rig, "gpu", 1, "cuda"), leaving(&rig, "leaving", 1);
  a.Sync();
  gpu.Sync();
  leaving.draining = true;
  leaving.Sync();
  a.Sync({a.Failure(1, v1::CODE_ERROR)});
  rig.Advance(2 * kSecond);
  EXPECT_EQ(RowsOf(a.Sync()), std::vector<JobRow>{1});
}

TEST(Steering, HoldsAfterARestart) {
  SchedulerRig rig;
  rig.Submit(MakeTestPlan("s", 1, 0));
  WorkerHand a(&rig, "a", 1), b(&rig, "b", 1);
  b.draining = true;
  a.Sync();
  a.Sync({a.Failure(1, v1::CODE_ERROR)});
  rig.Restart();
  b.draining = false;
  rig.Advance(2 * kSecond);
  EXPECT_EQ(RowsOf(b.Sync()), std::vector<JobRow>{1});
}

class BreakerTest : public ::testing::Test {
 protected:
  BreakerTest() : rig_(Options()), worker_(&rig_, "w", 1) {}
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.sweep_max_failures = 4;
    return options;
  }
  // One attempt of whatever comes first fails.
  JobRow FailOnce(const std::string& message = "no such layer 3") {
    rig_.Advance(pause_us_);
    const SyncDecision decision = worker_.Sync();
    if (decision.desired.empty()) return 0;
    const JobRow row = decision.desired[0].job;
    v1::AttemptReport report = worker_.Failure(row, v1::CODE_ERROR);
    report.mutable_failure()->set_message(message);
    worker_.draining = true;
    worker_.Sync({report});
    worker_.draining = false;
    return row;
  }

  SchedulerRig rig_;
  WorkerHand worker_;
  int64_t pause_us_ = 70 * kSecond;  // a job that failed is tried again by then
};

TEST_F(BreakerTest, TooManyFailuresOfOneSignaturePauseTheSweep) {
  rig_.Submit(MakeTestPlan("s", 10, 1));
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(rig_.sweep(1).paused);
    EXPECT_NE(FailOnce(absl::StrCat("no such layer ", i)), 0);
  }
  EXPECT_TRUE(rig_.sweep(1).paused);
  EXPECT_EQ(rig_.sweep(1).state, v1::SWEEP_RUNNING);
  EXPECT_THAT(rig_.sweep(1).pause_reason,
              HasSubstr("paused after 4 failures of one kind (code_error: no such layer #), the last one of job"));
  rig_.Advance(100 * kSecond);
  EXPECT_TRUE(worker_.Sync().desired.empty());
  const Scheduler::Explanation why = rig_.scheduler->Explain(10, rig_.now());
  EXPECT_THAT(why.text, HasSubstr("It waits, because sweep \"s\" is paused after 4 failures"));
  EXPECT_EQ(why.next_step, "When the cause is mended: ablate sweep resume s");

  // So it is after a restart, and it goes on from 0 when it is resumed.
  rig_.Restart();
  EXPECT_TRUE(worker_.Sync().desired.empty());
  ASSERT_TRUE(rig_.Resume(1).ok());
  EXPECT_EQ(rig_.Resume(1).code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 3; ++i) EXPECT_NE(FailOnce(), 0);
  EXPECT_FALSE(rig_.sweep(1).paused);
  EXPECT_EQ(rig_.scheduler->sweep(1).failures.at("code_error: no such layer #").failures, 7);
}

TEST_F(BreakerTest, DifferentSignaturesAreCountedApart) {
  rig_.Submit(MakeTestPlan("s", 10, 0));
  const char* messages[] = {"no such layer", "no such head", "no such file"};
  for (int i = 0; i < 9; ++i) FailOnce(messages[i % 3]);
  EXPECT_FALSE(rig_.sweep(1).paused);
  EXPECT_EQ(rig_.scheduler->sweep(1).failures.size(), 3u);
}

TEST_F(BreakerTest, ASweepsOwnLimitCountsAndZeroNeverPauses) {
  SubmitPlan plan = MakeTestPlan("s", 10, 0);
  plan.sweep.max_failures = 2;
  rig_.Submit(plan);
  FailOnce();
  FailOnce();
  EXPECT_TRUE(rig_.sweep(1).paused);
  ASSERT_TRUE(rig_.Resume(1, 0).ok());
  for (int i = 0; i < 20; ++i) FailOnce();
  EXPECT_FALSE(rig_.sweep(1).paused);
  EXPECT_EQ(rig_.sweep(1).max_failures, 0);
}

TEST_F(BreakerTest, WhatRunsGoesOnAndSharedJobsRunForTheOther) {
  SubmitPlan plan = MakeTestPlan("s", 6, 0);
  plan.sweep.max_failures = 1;
  rig_.Submit(plan);
  WorkerHand other(&rig_, "other", 1);
  pause_us_ = kSecond;  // within the other's lease
  const JobRow running = RowsOf(other.Sync())[0];
  FailOnce();
  ASSERT_TRUE(rig_.sweep(1).paused);
  EXPECT_TRUE(other.Sync({other.Success(running)}).desired.empty());
  EXPECT_EQ(rig_.state(running), v1::SUCCEEDED);
  // Another sweep needs two of them.
  rig_.Submit(MakeTestPlan("t", 4, 0));
  EXPECT_EQ(other.Sync().desired.size(), 1u);
  EXPECT_FALSE(rig_.sweep(2).paused);
  // Paused again while they run for t: nothing is taken away.
  rig_.Advance(kSecond);
  EXPECT_EQ(rig_.scheduler->CheckInvariants(), "");
}

TEST_F(BreakerTest, RetryResumesAndCancelClears) {
  SubmitPlan plan = MakeTestPlan("s", 3, 0);
  plan.sweep.max_failures = 1;
  rig_.Submit(plan);
  FailOnce();
  ASSERT_TRUE(rig_.sweep(1).paused);
  rig_.Retry(1);
  EXPECT_FALSE(rig_.sweep(1).paused);
  EXPECT_NE(FailOnce(), 0);
  ASSERT_TRUE(rig_.sweep(1).paused);
  ASSERT_TRUE(rig_.CancelSweep(1).ok());
  EXPECT_FALSE(rig_.sweep(1).paused);
}

// An outage takes every worker once: that is nobody's fault. A job that loses one after the other is.
TEST_F(BreakerTest, OfLostWorkersOnlyTheSecondOneOfAJobCounts) {
  rig_.Submit(MakeTestPlan("s", 8, 0));
  WorkerHand big(&rig_, "big", 8);
  EXPECT_EQ(big.Sync().desired.size(), 8u);
  rig_.Advance(31 * kSecond);
  rig_.Tick();
  EXPECT_FALSE(rig_.sweep(1).paused);
  EXPECT_TRUE(rig_.scheduler->sweep(1).failures.empty());
  EXPECT_EQ(big.Sync().desired.size(), 8u);
  rig_.Advance(31 * kSecond);
  rig_.Tick();
  EXPECT_TRUE(rig_.sweep(1).paused);
  EXPECT_THAT(rig_.sweep(1).pause_reason, HasSubstr("worker_lost: worker big was silent for # s"));
}

}  // namespace
}  // namespace ablate
