// The real ablate-trainer behind its pipe: train, stop with a checkpoint, resume, evaluate; wrong inputs; faults of the
// pipe.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/pipe.h"
#include "worker/trainer/testing.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class Trainer {
 public:
  explicit Trainer(const std::string& dir, std::vector<std::string> args = {"--threads", "1"},
                   std::map<std::string, std::string> environment = {}) {
    SubprocessOptions options;
    // Another build of it, e.g. where only the programs were brought along.
    const char* const program = std::getenv("ABLATE_TEST_TRAINER");
    options.argv = {program != nullptr ? program : ABLATE_TRAINER};
    options.argv.insert(options.argv.end(), args.begin(), args.end());
    options.environment = std::move(environment);
    options.stderr_path = JoinPath(dir, "stderr");
    auto process = Subprocess::Start(options);
    EXPECT_TRUE(process.ok()) << process.status();
    process_ = std::make_unique<Subprocess>(*std::move(process));
  }

  void Send(const v1::RunStage& request) {
    v1::TrainerRequest message;
    *message.mutable_run_stage() = request;
    SendAny(message);
  }
  void Send(const v1::RunEvaluation& request) {
    v1::TrainerRequest message;
    *message.mutable_run_evaluation() = request;
    SendAny(message);
  }
  void Stop(bool checkpoint) {
    v1::TrainerRequest message;
    message.mutable_stop()->set_checkpoint(checkpoint);
    SendAny(message);
  }
  void SendAny(const v1::TrainerRequest& message) {
    const absl::Status status = WriteMessage(process_->stdin_fd(), message);
    EXPECT_TRUE(status.ok()) << status;
  }
  // The next event that is no progress (those are kept); an event without a kind when the pipe has closed.
  v1::TrainerEvent Next() {
    while (true) {
      v1::TrainerEvent event = NextAny();
      if (!event.has_progress()) return event;
    }
  }
  v1::TrainerEvent NextAny() {
    v1::TrainerEvent event;
    if (!ReadMessage(process_->stdout_fd(), &event).ok()) return {};
    if (event.has_progress()) {
      ++progress;
      for (const v1::CurvePoint& point : event.progress().points()) {
        EXPECT_TRUE(points.insert({point.metric(), point.step()}).second) << "twice: " << point.ShortDebugString();
      }
    }
    return event;
  }
  Subprocess& process() { return *process_; }
  int progress = 0;
  std::set<std::pair<std::string, int64_t>> points;

 private:
  std::unique_ptr<Subprocess> process_;
};

class SessionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ::signal(SIGPIPE, SIG_IGN); }
  std::string Dir(const std::string& name) { return JoinPath(dir_.path(), name); }
  TempDir dir_;
  TextData data_{dir_.path()};
};

TEST_F(SessionTest, TrainsStopsResumesAndEvaluates) {
  const v1::Configuration config = SmallConfig("lssar");
  Trainer trainer(dir_.path());
  const v1::TrainerEvent ready = trainer.Next();
  ASSERT_TRUE(ready.has_ready());
  EXPECT_EQ(ready.ready().device_class(), "cpu");
  EXPECT_THAT(ready.ready().device_kind(), HasSubstr("cpu/"));
  EXPECT_FALSE(ready.ready().build().empty());

  // Too long to end by itself before the stop comes.
  trainer.Send(StageRequest(data_, config, 0, 100000000, Dir("interrupted")));
  while (trainer.points.empty()) ASSERT_TRUE(trainer.NextAny().has_progress());
  trainer.Stop(true);
  v1::TrainerEvent event = trainer.Next();
  ASSERT_TRUE(event.has_checkpoint()) << event.ShortDebugString();
  EXPECT_FALSE(event.checkpoint().end_state());
  const int64_t at = event.checkpoint().ref().step();
  EXPECT_GT(at, 0);
  event = trainer.Next();
  ASSERT_TRUE(event.has_stopped()) << event.ShortDebugString();
  EXPECT_EQ(event.stopped().step(), at);
  EXPECT_EQ(trainer.points.size(), 3u * static_cast<size_t>(at / 10));

  // The same child goes on to an end near by; a fresh one goes there without a break.
  const int64_t end = at + 95;
  trainer.Send(StageRequest(data_, config, 0, end, Dir("interrupted")));
  const v1::TrainerEvent checkpoint = trainer.Next();
  ASSERT_TRUE(checkpoint.has_checkpoint()) << checkpoint.ShortDebugString();
  EXPECT_TRUE(checkpoint.checkpoint().end_state());
  const v1::CheckpointRef state = checkpoint.checkpoint().ref();
  const std::string weights = checkpoint.checkpoint().weights_path();
  EXPECT_EQ(state.step(), end);
  EXPECT_EQ(state.stage_key(), "stage");
  EXPECT_EQ(*Sha256HexOfFile(weights), state.weights().sha256());
  EXPECT_EQ(*Sha256HexOfFile(checkpoint.checkpoint().optimizer_path()), state.optimizer().sha256());
  // All points have come before the end state, each once: every 10 steps and the last.
  EXPECT_EQ(trainer.points.size(), 3u * static_cast<size_t>((end + 9) / 10));
  event = trainer.Next();
  ASSERT_TRUE(event.has_done()) << event.ShortDebugString();
  EXPECT_EQ(event.done().outcome(), v1::COMPLETED);
  EXPECT_EQ(event.done().resumed_from_step(), at);
  EXPECT_EQ(event.done().device_kind(), ready.ready().device_kind());
  EXPECT_GT(event.done().seconds(), 0);
  EXPECT_GT(event.done().peak_memory_bytes(), 1 << 20);
  const v1::TaskResult resumed = event.done();
  {
    Trainer other(dir_.path());
    ASSERT_TRUE(other.Next().has_ready());
    other.Send(StageRequest(data_, config, 0, end, Dir("straight")));
    ASSERT_TRUE(other.Next().has_checkpoint());
    event = other.Next();
    ASSERT_TRUE(event.has_done()) << event.ShortDebugString();
    EXPECT_EQ(event.done().end_state().SerializeAsString(), resumed.end_state().SerializeAsString());
    EXPECT_EQ(other.points, trainer.points);
    other.process().CloseStdin();
    EXPECT_EQ(other.process().Wait().code, 0);
  }

  double loss_at_1x = 0;
  for (const int64_t multiple : {1, 2, 4, 8}) {
    double off = 0;
    for (const char* ntk : {"off", "dynamic"}) {
      v1::RunEvaluation evaluation = EvaluationRequest(data_, config, 16 * multiple, weights, end);
      *evaluation.mutable_task()->mutable_state() = state;
      Set(evaluation.mutable_task()->mutable_eval_config(), "eval.ntk", ntk);
      trainer.Send(evaluation);
      event = trainer.Next();
      ASSERT_TRUE(event.has_done()) << event.ShortDebugString();
      EXPECT_EQ(event.done().outcome(), v1::COMPLETED);
      const double loss = Metric(event.done(), "loss_targets");
      EXPECT_TRUE(std::isfinite(loss));
      EXPECT_EQ(Metric(event.done(), "target_tokens"), 64);
      if (multiple == 1) loss_at_1x = loss;
      if (ntk[0] == 'o') off = loss;
      EXPECT_EQ(loss == off, multiple == 1 || ntk[0] == 'o');
    }
  }
  // Trained: far below the log 256 = 5.5 of a guess.
  EXPECT_LT(loss_at_1x, 2.5);
  trainer.process().CloseStdin();
  EXPECT_EQ(trainer.process().Wait().code, 0);
}

TEST_F(SessionTest, AKilledTrainerLosesNothingButTheStepsSinceItsCheckpoint) {
  std::string straight;
  for (const bool kill : {false, true}) {
    v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 2000, Dir(kill ? "killed" : "straight"));
    request.set_checkpoint_seconds(1e-6);
    if (kill) {
      Trainer trainer(dir_.path());
      ASSERT_TRUE(trainer.Next().has_ready());
      trainer.Send(request);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(trainer.Next().has_checkpoint());
      trainer.process().Kill(SIGKILL);
      EXPECT_EQ(trainer.process().Wait().signal, SIGKILL);
    }
    request.set_checkpoint_seconds(kill ? 0 : 1e9);
    Trainer trainer(dir_.path());
    ASSERT_TRUE(trainer.Next().has_ready());
    trainer.Send(request);
    ASSERT_TRUE(trainer.Next().has_checkpoint());
    const v1::TrainerEvent done = trainer.Next();
    ASSERT_TRUE(done.has_done()) << done.ShortDebugString();
    if (kill) {
      EXPECT_GE(done.done().resumed_from_step(), 3);
      EXPECT_EQ(done.done().end_state().SerializeAsString(), straight);
    } else {
      straight = done.done().end_state().SerializeAsString();
    }
  }
}

TEST_F(SessionTest, FailuresHaveKindsAndTheChildLivesOn) {
  Trainer trainer(dir_.path());
  ASSERT_TRUE(trainer.Next().has_ready());
  auto failure = [&](const auto& request) {
    trainer.Send(request);
    const v1::TrainerEvent event = trainer.Next();
    EXPECT_TRUE(event.has_failed()) << event.ShortDebugString();
    EXPECT_FALSE(event.failed().message().empty());
    return event.failed();
  };
  v1::RunStage stage = StageRequest(data_, SmallConfig(), 0, 5, Dir("a"));
  v1::RunStage bad = stage;
  Set(bad.mutable_task()->mutable_config(), "train.length", 4096);
  EXPECT_EQ(failure(bad).kind(), v1::INVALID_CONFIG);
  bad = stage;
  bad.set_data_paths(0, Dir("missing"));
  EXPECT_EQ(failure(bad).kind(), v1::CODE_ERROR);
  bad = stage;
  bad.set_checkpoint_dir(data_.path + "/not a folder");
  EXPECT_EQ(failure(bad).kind(), v1::CODE_ERROR);
  v1::TrainerRequest empty;
  trainer.SendAny(empty);
  EXPECT_EQ(trainer.Next().failed().kind(), v1::INVALID_CONFIG);
  EXPECT_EQ(failure(EvaluationRequest(data_, SmallConfig(), 16, Dir("none"), 5)).kind(), v1::CODE_ERROR);
  EXPECT_THAT(failure(EvaluationRequest(data_, SmallConfig(), 99999, Dir("none"), 5)).message(), HasSubstr("99999"));
  trainer.Send(stage);
  EXPECT_TRUE(trainer.Next().has_checkpoint());
  EXPECT_TRUE(trainer.Next().has_done());
}

TEST_F(SessionTest, AStopThatComesLateStopsNothingElse) {
  Trainer trainer(dir_.path());
  ASSERT_TRUE(trainer.Next().has_ready());
  trainer.Stop(true);
  trainer.Send(StageRequest(data_, SmallConfig(), 0, 5, Dir("a")));
  EXPECT_TRUE(trainer.Next().has_checkpoint());
  EXPECT_TRUE(trainer.Next().has_done());
  trainer.Stop(false);
  trainer.Send(StageRequest(data_, SmallConfig(), 0, 6, Dir("b")));
  EXPECT_TRUE(trainer.Next().has_checkpoint());
  EXPECT_TRUE(trainer.Next().has_done());
}

TEST_F(SessionTest, ALongStageShowsProgressAndEndsWhenStdinCloses) {
  Trainer trainer(dir_.path());
  ASSERT_TRUE(trainer.Next().has_ready());
  trainer.Send(StageRequest(data_, SmallConfig(), 0, 100000000, Dir("a")));
  int64_t last = -1;
  for (int i = 0; i < 3; ++i) {
    const v1::TrainerEvent event = trainer.NextAny();
    ASSERT_TRUE(event.has_progress()) << event.ShortDebugString();
    EXPECT_GT(event.progress().step(), last);
    EXPECT_GT(event.progress().tokens_per_second(), 0);
    last = event.progress().step();
  }
  trainer.process().CloseStdin();
  EXPECT_EQ(trainer.process().Wait().code, 0);
}

TEST_F(SessionTest, NonsenseOnThePipeEndsTheSessionWithAMessage) {
  Trainer trainer(dir_.path());
  ASSERT_TRUE(trainer.Next().has_ready());
  const std::string nonsense(64, '\xff');
  ASSERT_EQ(::write(trainer.process().stdin_fd(), nonsense.data(), nonsense.size()), 64);
  EXPECT_EQ(trainer.process().Wait().code, 1);
  EXPECT_THAT(*ReadFile(JoinPath(dir_.path(), "stderr")), HasSubstr("cannot read requests"));
}

TEST_F(SessionTest, AModelTooLargeForMemoryFailsAsOutOfMemory) {
  v1::Configuration config = SmallConfig();
  Set(&config, "model.layers", 1000);
  Set(&config, "model.width", 65536);
  Trainer trainer(dir_.path());
  ASSERT_TRUE(trainer.Next().has_ready());
  trainer.Send(StageRequest(data_, config, 0, 5, Dir("a")));
  const v1::TrainerEvent event = trainer.Next();
  ASSERT_TRUE(event.has_failed()) << event.ShortDebugString();
  EXPECT_EQ(event.failed().kind(), v1::OUT_OF_MEMORY);
  // Whether the child lives on is its own choice; what it says is not.
  EXPECT_FALSE(event.failed().message().empty());
}

// On the device that ABLATE_TEST_DEVICE names (cpu), so that scripts/gpu_check.sh and the emulator's test run it, too.
TEST_F(SessionTest, StoppedAndResumedHasTheBitsOfAStraightRun) {
  const char* const named = std::getenv("ABLATE_TEST_DEVICE");
  const std::string device = named != nullptr ? named : "cpu";
  for (const char* precision : {"fp32", "bf16"}) {
    if (device == "cpu" && precision == std::string("bf16")) continue;
    SCOPED_TRACE(precision);
    v1::Configuration config = SmallConfig("lssar");
    Set(&config, "train.precision", precision);
    const std::vector<std::string> args = {"--threads", "1", "--device", device};
    std::string digests[2];
    int64_t end = 0;
    {
      Trainer trainer(dir_.path(), args);
      ASSERT_TRUE(trainer.Next().has_ready()) << *ReadFile(Dir("stderr"));
      trainer.Send(StageRequest(data_, config, 0, 100000000, Dir(absl::StrCat(precision, "_stopped"))));
      while (trainer.points.empty()) ASSERT_TRUE(trainer.NextAny().has_progress()) << *ReadFile(Dir("stderr"));
      trainer.Stop(true);
      const v1::TrainerEvent stopped = trainer.Next();
      ASSERT_TRUE(stopped.has_checkpoint()) << stopped.ShortDebugString();
      end = stopped.checkpoint().ref().step() + 5;
    }
    for (const char* how : {"_stopped", "_straight"}) {
      Trainer trainer(dir_.path(), args);
      ASSERT_TRUE(trainer.Next().has_ready());
      trainer.Send(StageRequest(data_, config, 0, end, Dir(absl::StrCat(precision, how))));
      ASSERT_TRUE(trainer.Next().has_checkpoint()) << *ReadFile(Dir("stderr"));
      const v1::TrainerEvent done = trainer.Next();
      ASSERT_TRUE(done.has_done()) << done.ShortDebugString();
      EXPECT_EQ(done.done().resumed_from_step(), how == std::string("_stopped") ? end - 5 : 0);
      digests[how == std::string("_straight")] =
          done.done().end_state().weights().sha256() + done.done().end_state().optimizer().sha256();
    }
    EXPECT_EQ(digests[0], digests[1]);
    EXPECT_FALSE(digests[0].empty());
  }
}

TEST_F(SessionTest, WithoutTheCudaLibraryCudaIsRefused) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--device", "cuda"}, {"--list-devices"}}) {
    Trainer trainer(dir_.path(), args, {{"ABLATE_CUDA_LIBRARY", Dir("none.so")}});
    EXPECT_EQ(trainer.process().Wait().code, 2);
    EXPECT_THAT(*ReadFile(Dir("stderr")), HasSubstr("no CUDA backend at " + Dir("none.so")));
  }
}

TEST_F(SessionTest, WhatDoesNotFitIntoTheGpuIsRefusedBeforeItStarts) {
  Trainer trainer(dir_.path(), {"--device", "cuda", "--memory-limit", "50000"},
                  {{"ABLATE_CUDA_LIBRARY", ABLATE_FAKE_CUDA}});
  v1::TrainerEvent event = trainer.Next();
  EXPECT_EQ(event.ready().device_class(), "cuda");
  trainer.Send(StageRequest(data_, SmallConfig(), 0, 5, Dir("a")));
  event = trainer.Next();
  ASSERT_TRUE(event.has_failed()) << event.ShortDebugString();
  EXPECT_EQ(event.failed().kind(), v1::OUT_OF_MEMORY);
  EXPECT_THAT(event.failed().message(), HasSubstr("of device memory, 48.8 KiB are free (weights"));
  // The child is none the worse for it.
  v1::Configuration smaller = SmallConfig();
  Set(&smaller, "model.width", 4);
  Set(&smaller, "train.length", 4);
  trainer.Send(StageRequest(data_, smaller, 0, 5, Dir("b")));
  event = trainer.Next();
  EXPECT_TRUE(event.has_checkpoint()) << event.ShortDebugString();
}

TEST_F(SessionTest, RecomputationIsNotSeenInTheState) {
  std::set<std::string> states;
  for (const char* recompute : {"none", "blocks"}) {
    Trainer trainer(dir_.path(), {"--threads", "1", "--recompute", recompute});
    ASSERT_TRUE(trainer.Next().has_ready());
    trainer.Send(StageRequest(data_, SmallConfig("lssar"), 0, 20, Dir(recompute)));
    const v1::TrainerEvent event = trainer.Next();
    ASSERT_TRUE(event.has_checkpoint()) << event.ShortDebugString();
    states.insert(event.checkpoint().ref().weights().sha256() + event.checkpoint().ref().optimizer().sha256());
  }
  EXPECT_EQ(states.size(), 1u);
}

TEST_F(SessionTest, ADeviceFaultIsReportedAndEndsTheChild) {
  Trainer trainer(dir_.path(), {"--device", "cuda:1"},
                  {{"ABLATE_CUDA_LIBRARY", ABLATE_FAKE_CUDA}, {"FAKE_CUDA", "fault_at=60"}});
  v1::TrainerEvent event = trainer.Next();
  EXPECT_EQ(event.ready().device_kind(), "cuda/Fake GPU 1");
  trainer.Send(StageRequest(data_, SmallConfig(), 0, 1000, Dir("a")));
  event = trainer.Next();
  ASSERT_TRUE(event.has_failed()) << event.ShortDebugString();
  EXPECT_EQ(event.failed().kind(), v1::CODE_ERROR);
  EXPECT_THAT(event.failed().message(), HasSubstr("fake.cu:12: kernel Fake: an illegal memory access"));
  EXPECT_EQ(trainer.process().Wait().code, 5);
}

TEST_F(SessionTest, ArgumentsAreChecked) {
  for (const auto& [args, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--device", "tpu"}, "expected cpu, cuda or cuda:N"},
           {{"--memory-limit", "-1"}, "number of bytes"},
           {{"--recompute", "all"}, "auto, none or blocks"},

           {{"--threads", "0"}, "whole number"},
           {{"--threads"}, "needs a value"},
           {{"--thread", "1"}, "did you mean"}}) {
    TempDir dir;
    Trainer trainer(dir.path(), args);
    EXPECT_EQ(trainer.process().Wait().code, 2);
    EXPECT_THAT(*ReadFile(JoinPath(dir.path(), "stderr")), HasSubstr(message));
  }
}

}  // namespace
}  // namespace ablate
