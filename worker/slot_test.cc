#include "worker/slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/noop_executor.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;

v1::Assignment Job(const std::string& job_id) {
  v1::Assignment assignment;
  assignment.set_job_id(job_id);
  assignment.set_attempt(1);
  return assignment;
}

// Collects the ends; jobs called "wait..." run until they are stopped.
class SlotTest : public ::testing::Test {
 protected:
  class FakeExecutor : public Executor {
   public:
    explicit FakeExecutor(SlotTest* test) : test_(test), thread_(std::this_thread::get_id()) {}
    ~FakeExecutor() override { EXPECT_EQ(thread_, std::this_thread::get_id()); }
    v1::AttemptReport Run(const v1::Assignment& assignment, const TaskEvents& events, const StopSignal& stop) override {
      EXPECT_EQ(thread_, std::this_thread::get_id()) << "the thread that forks must outlive the child";
      {
        MutexLock lock(&test_->mutex_);
        test_->started_.push_back(assignment.job_id());
        test_->changed_.NotifyAll();
      }
      events.progress({});
      if (assignment.job_id().rfind("wait", 0) == 0) {
        stop.WaitFor(60'000'000);
        return Stopped(stop);
      }
      return Succeeded({});
    }

   private:
    SlotTest* const test_;
    const std::thread::id thread_;
  };

  std::unique_ptr<Slot> Make() {
    SlotEvents events;
    events.progress = [this](const AttemptKey&, const TaskProgress&) {
      MutexLock lock(&mutex_);
      ++progress_;
    };
    events.checkpoint = [](const AttemptKey&, const v1::CheckpointRef&) {};
    events.ended = [this](const AttemptKey& key, const v1::AttemptReport& report) {
      MutexLock lock(&mutex_);
      ended_.push_back(key.job_id + " " + v1::AttemptReport::Phase_Name(report.phase()));
      changed_.NotifyAll();
    };
    return std::make_unique<Slot>(
        0, [this](int) { return std::make_unique<FakeExecutor>(this); }, events);
  }
  void AwaitStarted(size_t count) {
    MutexLock lock(&mutex_);
    while (started_.size() < count) changed_.Wait(&mutex_);
  }
  void AwaitEnded(size_t count) {
    MutexLock lock(&mutex_);
    while (ended_.size() < count) changed_.Wait(&mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> started_, ended_;
  int progress_ = 0;
};

TEST_F(SlotTest, RunsInOrderOneAtATime) {
  const auto slot = Make();
  for (const char* id : {"a", "b", "c"}) slot->Enqueue(Job(id));
  AwaitEnded(3);
  EXPECT_THAT(started_, ElementsAre("a", "b", "c"));
  EXPECT_THAT(ended_, ElementsAre("a SUCCEEDED", "b SUCCEEDED", "c SUCCEEDED"));
  EXPECT_EQ(progress_, 3);
}

TEST_F(SlotTest, StopsWhatRunsAndWhatWaits) {
  const auto slot = Make();
  for (const char* id : {"wait1", "b", "c"}) slot->Enqueue(Job(id));
  AwaitStarted(1);
  slot->Stop({"b", 1}, StopSignal::Mode::kCancel);
  slot->Stop({"b", 1}, StopSignal::Mode::kCancel);
  slot->Stop({"c", 7}, StopSignal::Mode::kCancel);  // another attempt: not this one
  slot->Stop({"wait1", 1}, StopSignal::Mode::kCancel);
  AwaitEnded(3);
  EXPECT_THAT(ended_, ElementsAre("b CANCELLED", "wait1 CANCELLED", "c SUCCEEDED"));
  EXPECT_THAT(started_, ElementsAre("wait1", "c"));
}

TEST_F(SlotTest, ADrainGivesBackAll) {
  const auto slot = Make();
  for (const char* id : {"wait1", "b"}) slot->Enqueue(Job(id));
  AwaitStarted(1);
  slot->StopAll(StopSignal::Mode::kRelease);
  AwaitEnded(2);
  EXPECT_THAT(ended_, ElementsAre("b RELEASED", "wait1 RELEASED"));
}

TEST_F(SlotTest, TheEndOfASlotEndsWhatRuns) {
  auto slot = Make();
  for (const char* id : {"wait1", "b"}) slot->Enqueue(Job(id));
  AwaitStarted(1);
  slot.reset();
  EXPECT_THAT(ended_, ::testing::UnorderedElementsAre("b RELEASED", "wait1 RELEASED"));
}

TEST(StopSignalTest, OnlyGrowsStronger) {
  StopSignal stop;
  EXPECT_FALSE(stop.raised());
  EXPECT_FALSE(stop.WaitFor(1000));
  stop.Raise(StopSignal::Mode::kCancel);
  stop.Raise(StopSignal::Mode::kRelease);
  EXPECT_EQ(stop.mode(), StopSignal::Mode::kCancel);
  EXPECT_TRUE(stop.WaitFor(0));
  EXPECT_FALSE(stop.WaitFor(1000, StopSignal::Mode::kAbandon));
}

TEST(StopSignalTest, WatchersAreCalledOnce) {
  StopSignal stop;
  int cancels = 0, abandons = 0;
  stop.Watch(StopSignal::Mode::kCancel, [&] { ++cancels; });
  const int64_t id = stop.Watch(StopSignal::Mode::kAbandon, [&] { ++abandons; });
  stop.Raise(StopSignal::Mode::kRelease);
  EXPECT_EQ(cancels, 0);
  stop.Raise(StopSignal::Mode::kCancel);
  EXPECT_EQ(cancels, 1);
  stop.Unwatch(id);
  stop.Raise(StopSignal::Mode::kAbandon);
  EXPECT_EQ(cancels, 1);
  EXPECT_EQ(abandons, 0);
  stop.Watch(StopSignal::Mode::kRelease, [&] { ++cancels; });
  EXPECT_EQ(cancels, 2) << "raised already";
}

class NoopExecutorTest : public ::testing::Test {
 protected:
  v1::AttemptReport Run(double seconds, const std::string& outcome, bool evaluation = false) {
    v1::Assignment assignment = Job("a");
    v1::Configuration config;
    v1::Setting* setting = config.add_settings();
    setting->set_axis("noop.seconds");
    setting->mutable_value()->set_number(seconds);
    if (!outcome.empty()) {
      setting = config.add_settings();
      setting->set_axis("noop.outcome");
      setting->mutable_value()->set_text(outcome);
    }
    if (evaluation) {
      v1::EvaluationTask* task = assignment.mutable_task()->mutable_evaluation();
      *task->mutable_config() = config;
      task->set_evaluation_key("key");
      task->set_executor(v1::EXECUTOR_NOOP);
    } else {
      v1::StageTask* task = assignment.mutable_task()->mutable_stage();
      *task->mutable_config() = config;
      task->set_to_step(40);
      task->set_executor(v1::EXECUTOR_NOOP);
    }
    TaskEvents events;
    events.progress = [this](const TaskProgress& progress) { step_ = progress.step; };
    events.checkpoint = [](const v1::CheckpointRef&) { FAIL() << "it has none"; };
    return NoopExecutor().Run(assignment, events, stop_);
  }

  StopSignal stop_;
  int64_t step_ = -1;
};

TEST_F(NoopExecutorTest, ComesToTheEndItIsTold) {
  v1::AttemptReport report = Run(0, "");
  EXPECT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_EQ(report.result().outcome(), v1::COMPLETED);
  EXPECT_EQ(step_, 40);
  report = Run(0, "diverge");
  EXPECT_EQ(report.phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_EQ(report.result().outcome(), v1::DIVERGED);
  EXPECT_EQ(Run(0, "code_error").failure().kind(), v1::CODE_ERROR);
  EXPECT_EQ(Run(0, "invalid_config").failure().kind(), v1::INVALID_CONFIG);
}

TEST_F(NoopExecutorTest, TakesItsTimeAndHasTheSameNumbersEachTime) {
  const v1::AttemptReport first = Run(0.02, "", true), second = Run(0, "", true);
  EXPECT_GE(first.result().seconds(), 0.02);
  ASSERT_EQ(first.result().metrics_size(), 3);
  EXPECT_EQ(first.result().metrics(0).value(), second.result().metrics(0).value());
  EXPECT_GE(first.result().metrics(0).value(), 1);
}

TEST_F(NoopExecutorTest, StopsAtOnce) {
  std::thread stopper([this] { stop_.Raise(StopSignal::Mode::kRelease); });
  EXPECT_EQ(Run(3600, "").phase(), v1::AttemptReport::RELEASED);
  stopper.join();
}

}  // namespace
}  // namespace ablate
