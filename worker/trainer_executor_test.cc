#include "worker/trainer_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "worker/failure_kind.h"
#include "worker/testing/memory_artifacts.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TrainerExecutorTest : public ::testing::Test {
 protected:
  TrainerExecutorTest() {
    ::signal(SIGPIPE, SIG_IGN);
    ArtifactCacheOptions cache;
    cache.dir = dir_.path() + "/artifacts";
    cache.transport = &store_;
    cache.first_backoff_ms = 1;
    cache.max_backoff_ms = 5;
    cache_ = *ArtifactCache::Open(cache);
    options_.command.argv = {ABLATE_FAKE_TRAINER};
    options_.cache = cache_.get();
    options_.locks = &locks_;
    options_.checkpoints_dir = dir_.path() + "/checkpoints";
    options_.checkpoint_seconds = 0;
    options_.upload_seconds = 0;
    options_.stop_ms = 10'000;
    events_.progress = [this](const TaskProgress& progress) {
      MutexLock lock(&mutex_);
      step_ = progress.step;
      resumed_from_ = progress.resumed_from_step.value_or(-1);
      points_ += static_cast<int>(progress.points.size());
      if (on_step_ && step_ > 0) on_step_(step_);
    };
    events_.checkpoint = [this](const v1::CheckpointRef& ref) {
      EXPECT_TRUE(store_.Has(ref.weights().sha256()) && store_.Has(ref.optimizer().sha256()))
          << "reported before it was uploaded";
      MutexLock lock(&mutex_);
      checkpoints_.push_back(ref.step());
      changed_.NotifyAll();
    };
  }

  TrainerExecutor& executor() {
    if (executor_ == nullptr) executor_ = std::make_unique<TrainerExecutor>(options_);
    return *executor_;
  }
  v1::Assignment Stage(const std::string& script) {
    v1::Assignment assignment;
    assignment.set_job_id("job");
    v1::StageTask* task = assignment.mutable_task()->mutable_stage();
    task->set_stage_key(script);
    task->set_to_step(10);
    task->set_executor(v1::EXECUTOR_TRAINER);
    return assignment;
  }
  v1::Assignment Evaluation(const std::string& script, const std::string& weights) {
    v1::Assignment assignment;
    v1::EvaluationTask* task = assignment.mutable_task()->mutable_evaluation();
    task->set_evaluation_key(script);
    task->set_executor(v1::EXECUTOR_TRAINER);
    task->mutable_state()->mutable_weights()->set_sha256(Sha256Hex(weights));
    task->mutable_state()->mutable_weights()->set_bytes(static_cast<int64_t>(weights.size()));
    return assignment;
  }
  v1::AttemptReport Run(const v1::Assignment& assignment) { return executor().Run(assignment, events_, stop_); }
  v1::AttemptReport RunStage(const std::string& script) { return Run(Stage(script)); }
  // The fake names its process in device_kind.
  static std::string ChildOf(const v1::AttemptReport& report) { return report.result().device_kind(); }

  TempDir dir_;
  MemoryArtifacts store_;
  std::unique_ptr<ArtifactCache> cache_;
  StageLocks locks_;
  TrainerExecutorOptions options_;
  StopSignal stop_;
  TaskEvents events_;
  Mutex mutex_;
  CondVar changed_;
  std::function<void(int64_t)> on_step_;  // under the mutex
  int64_t step_ = -1, resumed_from_ = -1;
  int points_ = 0;
  std::vector<int64_t> checkpoints_;
  std::unique_ptr<TrainerExecutor> executor_;
};

TEST_F(TrainerExecutorTest, AStagesEndStateIsUploadedBeforeItSucceeds) {
  v1::Assignment stage = Stage("steps=10");
  v1::AttemptReport report = Run(stage);
  ASSERT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED) << report.failure().message();
  EXPECT_EQ(report.result().end_state().step(), 10);
  EXPECT_TRUE(store_.Has(report.result().end_state().weights().sha256()));
  EXPECT_FALSE(report.result().end_state().has_optimizer());
  EXPECT_EQ(step_, 10);
  EXPECT_EQ(points_, 10);
  EXPECT_THAT(cache_->HeldStageKeys(), ::testing::ElementsAre("steps=10"));
  EXPECT_THAT(*ListDir(options_.checkpoints_dir), IsEmpty()) << "nothing of a finished stage stays but its end state";

  stage.mutable_task()->mutable_stage()->set_keep_optimizer(true);
  report = Run(stage);
  EXPECT_TRUE(store_.Has(report.result().end_state().optimizer().sha256()));
}

TEST_F(TrainerExecutorTest, TheChildIsKeptBetweenTasksAndReplacedAfterACrash) {
  const std::string first = ChildOf(RunStage("steps=1"));
  EXPECT_EQ(ChildOf(RunStage("steps=2")), first);
  EXPECT_EQ(RunStage("steps=3 at=2 fail=INVALID_CONFIG").failure().kind(), v1::INVALID_CONFIG);
  EXPECT_EQ(ChildOf(RunStage("steps=4")), first) << "a task that fails costs no child";
  EXPECT_EQ(RunStage("steps=3 at=2 signal=11").phase(), v1::AttemptReport::FAILED);
  const std::string second = ChildOf(RunStage("steps=5"));
  EXPECT_NE(second, first);
  // Killed between two tasks: the next one does not pay for it.
  ASSERT_EQ(::kill(std::stoi(second.substr(5)), SIGKILL), 0);
  const v1::AttemptReport report = RunStage("steps=6");
  EXPECT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED) << report.failure().message();
  EXPECT_NE(ChildOf(report), second);
}

TEST_F(TrainerExecutorTest, ACrashSaysHowAndWhy) {
  const v1::AttemptReport report = RunStage("steps=5 at=3 say=100000 use_mb=64 signal=11");
  ASSERT_EQ(report.phase(), v1::AttemptReport::FAILED);
  const v1::Failure& failure = report.failure();
  EXPECT_EQ(failure.kind(), v1::CODE_ERROR);
  EXPECT_EQ(failure.signal(), 11);
  EXPECT_GT(failure.peak_memory_bytes(), 64 << 20);
  EXPECT_THAT(failure.message(), HasSubstr("signal 11"));
  EXPECT_THAT(failure.message(), HasSubstr("after step 3"));
  EXPECT_THAT(failure.stderr_tail(), ::testing::EndsWith("last words\n"));
  EXPECT_LE(failure.stderr_tail().size(), 16u << 10);
  EXPECT_GT(failure.stderr_tail().size(), 15u << 10);
}

TEST_F(TrainerExecutorTest, WhatAnEndMeans) {
  v1::Failure failure = RunStage("at=2 exit=7").failure();
  EXPECT_EQ(failure.kind(), v1::CODE_ERROR);
  EXPECT_EQ(failure.exit_code(), 7);
  failure = RunStage("at=2 exit=3").failure();
  EXPECT_EQ(failure.kind(), v1::OUT_OF_MEMORY);
  failure = RunStage("at=2 garbage").failure();
  EXPECT_EQ(failure.kind(), v1::CODE_ERROR);
  EXPECT_THAT(failure.message(), HasSubstr("varint"));
  failure = RunStage("at=2 truncate").failure();
  EXPECT_EQ(failure.kind(), v1::CODE_ERROR);
  EXPECT_THAT(failure.message(), HasSubstr("cut short"));
  failure = RunStage("at=2 fail=OUT_OF_MEMORY say=50").failure();
  EXPECT_EQ(failure.kind(), v1::OUT_OF_MEMORY);
  EXPECT_EQ(failure.message(), "as told");
}

TEST_F(TrainerExecutorTest, AKillNearTheMemoryLimitIsOutOfMemory) {
  options_.memory_limit_bytes = 64 << 20;
  v1::Failure failure = RunStage("at=2 use_mb=60 signal=9").failure();
  EXPECT_EQ(failure.kind(), v1::OUT_OF_MEMORY);
  EXPECT_EQ(failure.signal(), 9);
  EXPECT_GT(failure.peak_memory_bytes(), 60 << 20);
  failure = RunStage("at=2 signal=9").failure();
  EXPECT_EQ(failure.kind(), v1::CODE_ERROR);
  EXPECT_THAT(failure.message(), HasSubstr("from outside"));
}

TEST_F(TrainerExecutorTest, AHangEndsThoughTheChildKeepsTicking) {
  options_.hang_seconds = 0.3;
  const v1::AttemptReport report = RunStage("at=2 hang");
  EXPECT_EQ(report.failure().kind(), v1::TIMEOUT);
  EXPECT_THAT(report.failure().message(), HasSubstr("--hang-seconds"));
  EXPECT_EQ(RunStage("steps=3").phase(), v1::AttemptReport::SUCCEEDED);
}

TEST_F(TrainerExecutorTest, ATrainerThatDoesNotStartIsAFailureThatSaysSo) {
  options_.command.argv = {"/bin/sh", "-c", "echo cannot find my library >&2; exit 9"};
  const v1::AttemptReport report = RunStage("steps=1");
  ASSERT_EQ(report.phase(), v1::AttemptReport::FAILED);
  EXPECT_THAT(report.failure().message(), HasSubstr("cannot find my library"));
  EXPECT_THAT(report.failure().message(), HasSubstr("exit code 9"));
  EXPECT_EQ(ProbeTrainer(options_.command).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ProbeTrainer({{"/nonexistent/trainer"}, {}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ProbeTrainer({{ABLATE_FAKE_TRAINER}, {}})->device_kind(), "fake");
}

TEST_F(TrainerExecutorTest, ReleaseSavesUploadsAndHandsBack) {
  on_step_ = [this](int64_t step) {
    if (step == 3) stop_.Raise(StopSignal::Mode::kRelease);
  };
  options_.upload_seconds = 1e9;
  const v1::AttemptReport report = RunStage("steps=100000 pause_ms=2");
  EXPECT_EQ(report.phase(), v1::AttemptReport::RELEASED);
  ASSERT_EQ(checkpoints_.size(), 1u);
  EXPECT_GE(checkpoints_[0], 3);
  EXPECT_THAT(*ListDir(options_.checkpoints_dir), Not(IsEmpty())) << "this worker may get the stage again";
}

TEST_F(TrainerExecutorTest, CancelLeavesNothing) {
  on_step_ = [this](int64_t step) {
    if (step == 3) stop_.Raise(StopSignal::Mode::kCancel);
  };
  options_.upload_seconds = 1e9;
  EXPECT_EQ(RunStage("steps=100000 pause_ms=2 checkpoint_every=2").phase(), v1::AttemptReport::CANCELLED);
  EXPECT_THAT(checkpoints_, IsEmpty());
  EXPECT_THAT(*ListDir(options_.checkpoints_dir), IsEmpty());
}

TEST_F(TrainerExecutorTest, AChildThatDoesNotStopIsKilledAndItsLastCheckpointCounts) {
  options_.stop_ms = 50;
  options_.upload_seconds = 1e9;
  on_step_ = [this](int64_t step) {
    if (step == 5) stop_.Raise(StopSignal::Mode::kRelease);
  };
  EXPECT_EQ(RunStage("steps=100000 pause_ms=2 checkpoint_every=4 deaf").phase(), v1::AttemptReport::RELEASED);
  ASSERT_EQ(checkpoints_.size(), 1u);
  EXPECT_EQ(checkpoints_[0] % 4, 0);
}

TEST_F(TrainerExecutorTest, AbandonDoesNotWait) {
  on_step_ = [this](int64_t step) {
    if (step == 3) stop_.Raise(StopSignal::Mode::kAbandon);
  };
  EXPECT_EQ(RunStage("steps=100000 pause_ms=2 deaf").phase(), v1::AttemptReport::RELEASED);
}

TEST_F(TrainerExecutorTest, CheckpointsAreUploadedWhileTrainingGoesOn) {
  store_.SetAway(true);
  on_step_ = [this](int64_t step) {
    // An upload that cannot get through holds up nothing.
    if (step == 20) store_.SetAway(false);
    if (step < 20 || !checkpoints_.empty()) return;
    changed_.WaitFor(&mutex_, 20'000);
  };
  const v1::AttemptReport report = RunStage("steps=2000 checkpoint_every=5");
  ASSERT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_THAT(checkpoints_, Not(IsEmpty()));
}

TEST_F(TrainerExecutorTest, AnEndStateWaitsForTheCoordinator) {
  store_.SetAway(true);
  std::thread back([this] {
    while (store_.calls() < 5) std::this_thread::yield();
    store_.SetAway(false);
  });
  const v1::AttemptReport report = RunStage("steps=5");
  back.join();
  EXPECT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_TRUE(store_.Has(report.result().end_state().weights().sha256()));
}

TEST_F(TrainerExecutorTest, AResumedStageStartsFromTheStateItIsGiven) {
  v1::Assignment stage = Stage("steps=10");
  v1::CheckpointRef* start = stage.mutable_task()->mutable_stage()->mutable_start();
  start->set_step(6);
  for (auto [ref, content] :
       {std::pair{start->mutable_weights(), "weights 6\n"}, {start->mutable_optimizer(), "optimizer 6\n"}}) {
    ref->set_sha256(store_.Put(content));
    ref->set_bytes(static_cast<int64_t>(std::string(content).size()));
  }
  const v1::AttemptReport report = Run(stage);
  ASSERT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED) << report.failure().message();
  EXPECT_EQ(report.result().resumed_from_step(), 6);
  EXPECT_EQ(resumed_from_, 6);
  EXPECT_EQ(points_, 4);
}

TEST_F(TrainerExecutorTest, AMissingFileIsARetryableFailure) {
  v1::AttemptReport report = Run(Evaluation("steps=1", "not stored"));
  ASSERT_EQ(report.phase(), v1::AttemptReport::FAILED);
  EXPECT_EQ(report.failure().kind(), v1::CODE_ERROR);
  EXPECT_THAT(report.failure().message(), HasSubstr("weights"));
}

TEST_F(TrainerExecutorTest, ACoordinatorWithAFullDiskIsAskedAgain) {
  store_.SetAway(true, absl::ResourceExhaustedError("no room"));
  std::thread back([this] {
    while (store_.calls() < 5) std::this_thread::yield();
    store_.SetAway(false);
  });
  EXPECT_EQ(RunStage("steps=5").phase(), v1::AttemptReport::SUCCEEDED);
  back.join();
}

TEST_F(TrainerExecutorTest, TroubleOfTheNodeIsNotTheJobsFault) {
  for (int error : {ENOSPC, EDQUOT, EROFS, EACCES, EIO}) {
    EXPECT_EQ(FailureKindOf(FileError("cannot write", "x", error)), v1::PREEMPTED) << error;
  }
  EXPECT_EQ(FailureKindOf(FileError("cannot write", "x", EISDIR)), v1::CODE_ERROR);
  EXPECT_EQ(FailureKindOf(absl::ResourceExhaustedError("no memory")), v1::OUT_OF_MEMORY);
  EXPECT_EQ(FailureKindOf(absl::InvalidArgumentError("p is 0")), v1::INVALID_CONFIG);
  EXPECT_EQ(FailureKindOf(absl::DataLossError("damaged")), v1::CODE_ERROR);
  // A name that no folder can have: not this configuration's fault either.
  options_.checkpoints_dir = dir_.path() + "/" + std::string(300, 'n');
  EXPECT_EQ(RunStage("steps=1").failure().kind(), v1::CODE_ERROR);
}

TEST_F(TrainerExecutorTest, EvaluationsUseTheWeightsThatAreHere) {
  const v1::AttemptReport stage = RunStage("steps=3");
  ASSERT_EQ(stage.phase(), v1::AttemptReport::SUCCEEDED);
  const int64_t step_before = step_;
  const v1::AttemptReport report = Run(Evaluation("steps=7", "weights 3\n"));
  ASSERT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED) << report.failure().message();
  EXPECT_EQ(report.result().metrics(0).value(), 10);  // the length of the file
  EXPECT_THAT(store_.download_offsets(), IsEmpty());
  EXPECT_EQ(step_, step_before) << "batches are not training steps";
}

TEST_F(TrainerExecutorTest, DataComesByHash) {
  v1::Assignment stage = Stage("steps=2");
  v1::DataFile* file = stage.mutable_task()->mutable_stage()->mutable_data()->add_files();
  file->set_path("corpus.txt");
  file->set_sha256(store_.Put("some text"));
  file->set_bytes(9);
  EXPECT_EQ(Run(stage).phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_EQ(store_.download_offsets().size(), 1u);
  file->set_sha256(Sha256Hex("another"));
  EXPECT_THAT(Run(stage).failure().message(), HasSubstr("cannot get the data"));
}

TEST_F(TrainerExecutorTest, OneAttemptAtATimeWorksOnAStage) {
  ASSERT_TRUE(locks_.Acquire("steps=2", stop_));
  std::thread other([this] { EXPECT_EQ(RunStage("steps=2").phase(), v1::AttemptReport::CANCELLED); });
  stop_.Raise(StopSignal::Mode::kCancel);
  other.join();
  EXPECT_EQ(step_, -1);
  locks_.Release("steps=2");
  executor_.reset();
}

TEST_F(TrainerExecutorTest, JobsOfTheTestExecutorAreRefused) {
  v1::Assignment stage = Stage("steps=2");
  stage.mutable_task()->mutable_stage()->set_executor(v1::EXECUTOR_NOOP);
  EXPECT_EQ(Run(stage).failure().kind(), v1::INVALID_CONFIG);
}

}  // namespace
}  // namespace ablate
