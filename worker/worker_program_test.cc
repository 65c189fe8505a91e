// ablate-worker from outside: the real program against a coordinator in this process, with the test executor or with a
// trainer that does what its task's key says (testing/fake_trainer.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/sandbox.h"
#include "base/subprocess.h"
#include "worker/testing/fake_coordinator.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;
using Jobs = std::map<std::string, FakeCoordinator::Job>;

class WorkerProgramTest : public ::testing::Test {
 protected:
  WorkerProgramTest() : coordinator_("unix:" + dir_.path() + "/socket") {}

  Subprocess Start(std::vector<std::string> flags, const std::string& work_dir = "work") {
    SubprocessOptions options;
    options.environment = environment_;
    options.argv = {
        ABLATE_WORKER, "--work-dir", dir_.path() + "/" + work_dir, "--trainer", ABLATE_FAKE_TRAINER};
    if (name_server_) options.argv.insert(options.argv.end(), {"--server", coordinator_.address()});
    options.argv.insert(options.argv.end(), flags.begin(), flags.end());
    options.stderr_path = dir_.path() + "/log";
    auto worker = Subprocess::Start(options);
    EXPECT_TRUE(worker.ok()) << worker.status();
    return *std::move(worker);
  }
  std::string Log() { return ReadFile(dir_.path() + "/log").value_or(""); }

  static v1::Task StageTask(const std::string& script) {
    v1::Task task;
    task.mutable_stage()->set_stage_key(script);
    task.mutable_stage()->set_to_step(10);
    task.mutable_stage()->set_executor(v1::EXECUTOR_TRAINER);
    return task;
  }
  static v1::Task NoopTask(int number) {
    v1::Task task;
    task.mutable_evaluation()->set_evaluation_key(absl::StrCat("key ", number));
    task.mutable_evaluation()->set_executor(v1::EXECUTOR_NOOP);
    return task;
  }
  // Blocks until the job's latest attempt has done this many steps.
  bool AwaitStep(const std::string& job_id, int64_t step) {
    return coordinator_.Await([&](const Jobs& jobs) {
      const FakeCoordinator::Job& job = jobs.at(job_id);
      return !job.point_steps.empty() && job.point_steps.back() >= step;
    });
  }
  // The children of a process, from the kernel.
  static std::vector<pid_t> ChildrenOf(pid_t parent) {
    std::vector<pid_t> children;
    const auto threads = ListDir(absl::StrCat("/proc/", parent, "/task"));
    if (!threads.ok()) return children;
    for (const std::string& thread : *threads) {
      std::ifstream file(absl::StrCat("/proc/", parent, "/task/", thread, "/children"));
      for (pid_t pid = 0; file >> pid;) children.push_back(pid);
    }
    return children;
  }
  static bool AwaitGone(pid_t pid) {
    const int64_t until_us = Clock::Real().MonotonicMicros() + 30'000'000;
    while (Clock::Real().MonotonicMicros() < until_us) {
      // A process whose parent is gone and that nobody reaps here stays as a zombie: that is ended, too.
      const auto status = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
      if (!status.ok() || status->find(") Z ") != std::string::npos) return true;
      std::this_thread::yield();
    }
    return false;
  }

  static constexpr char kTwoGpus[] =
      "0\t85899345920\t84825604096\t9.0\t13.0\tFake GPU\n1\t85899345920\t84825604096\t9.0\t13.0\tFake GPU\n";

  TempDir dir_;
  FakeCoordinator coordinator_;
  std::map<std::string, std::string> environment_;
  bool name_server_ = true;
};

TEST_F(WorkerProgramTest, EveryNoopJobIsRecordedOnce) {
  for (int i = 0; i < 300; ++i) coordinator_.AddJob(absl::StrCat("job_", i), NoopTask(i));
  Subprocess worker = Start({"--executor", "noop", "--slots", "4", "--labels", "a,b"});
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  for (const auto& [id, job] : coordinator_.jobs()) {
    EXPECT_EQ(job.attempt, 1) << id;
    ASSERT_EQ(job.ended.size(), 1u) << id;
    EXPECT_EQ(job.ended[0].phase(), v1::AttemptReport::SUCCEEDED) << id;
    EXPECT_EQ(job.ended[0].result().metrics_size(), 3) << id;
  }
  const v1::WorkerInfo info = coordinator_.last_request().worker();
  EXPECT_EQ(info.slots(), 4);
  EXPECT_EQ(info.labels_size(), 2);
  EXPECT_EQ(info.executor(), v1::EXECUTOR_NOOP);
  EXPECT_GT(info.memory_bytes(), 0);
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0);
  EXPECT_TRUE(coordinator_.last_request().draining());
}

TEST_F(WorkerProgramTest, KeepsItsNameAcrossRestartsAndNotItsIncarnation) {
  std::set<std::string> names, incarnations;
  for (int i = 0; i < 2; ++i) {
    const int syncs = coordinator_.syncs();
    Subprocess worker = Start({"--executor", "noop"});
    ASSERT_TRUE(coordinator_.Await([&](const Jobs&) { return true; }));
    while (coordinator_.syncs() == syncs) std::this_thread::yield();
    worker.Kill(SIGINT);
    EXPECT_EQ(worker.Wait().code, 0);
    names.insert(coordinator_.last_request().worker().worker_id());
    incarnations.insert(coordinator_.last_request().worker().incarnation());
  }
  EXPECT_EQ(names.size(), 1u);
  EXPECT_EQ(incarnations.size(), 2u);
}

TEST_F(WorkerProgramTest, TwoWorkersNeedTwoFolders) {
  Subprocess first = Start({"--executor", "noop"});
  while (coordinator_.syncs() == 0) std::this_thread::yield();
  Subprocess second = Start({"--executor", "noop"});
  EXPECT_EQ(second.Wait().code, 1);
  EXPECT_THAT(Log(), HasSubstr("--work-dir"));
}

TEST_F(WorkerProgramTest, ASuccessorWaitsForTheFolder) {
  Subprocess first = Start({"--executor", "noop"});
  while (coordinator_.syncs() == 0) std::this_thread::yield();
  Subprocess second = Start({"--executor", "noop"});
  while (Log().find("waiting for it to end") == std::string::npos) std::this_thread::yield();
  first.Kill(SIGTERM);
  EXPECT_EQ(first.Wait().code, 0);
  coordinator_.AddJob("job", NoopTask(1));
  EXPECT_TRUE(coordinator_.AwaitAllFinished());
  second.Kill(SIGTERM);
  EXPECT_EQ(second.Wait().code, 0);
}

TEST_F(WorkerProgramTest, ANodeInTroubleTakesNoNewWorkForAWhile) {
  coordinator_.AddJob("a", StageTask("at=2 fail=PREEMPTED"));
  coordinator_.AddJob("b", StageTask("steps=2"));
  Subprocess worker = Start({});
  ASSERT_TRUE(coordinator_.Await([](const Jobs& jobs) { return jobs.at("a").finished(); }));
  EXPECT_TRUE(coordinator_.last_request().draining());
  EXPECT_EQ(coordinator_.jobs().at("a").ended.back().failure().kind(), v1::PREEMPTED);
  EXPECT_THAT(Log(), HasSubstr("this node is in trouble (as told)"));
  ASSERT_TRUE(coordinator_.AwaitAllFinished());
  EXPECT_EQ(coordinator_.jobs().at("b").ended.back().phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_THAT(Log(), HasSubstr("takes new work again"));
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0);
}

TEST_F(WorkerProgramTest, WrongFlagsAreExplained) {
  EXPECT_EQ(Start({"--device", "tpu"}).Wait().code, 2);
  EXPECT_EQ(Start({"--gpus", "0"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("need --device cuda"));
  EXPECT_EQ(Start({"--device", "cuda", "--slots", "2"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("say --slots-per-gpu"));
  EXPECT_EQ(Start({"--device", "cuda", "--slots-per-gpu", "0"}).Wait().code, 2);
  EXPECT_EQ(Start({"--recompute", "all"}).Wait().code, 2);
  EXPECT_EQ(Start({"--slots", "-1"}).Wait().code, 2);
  EXPECT_EQ(Start({"--executor", "magic"}).Wait().code, 2);
  EXPECT_EQ(Start({"--slots", "x"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("--slots \"x\": expected a whole number"));
  for (const char* name : {"--checkpoint-seconds", "--upload-seconds", "--hang-seconds", "--grace-seconds"}) {
    for (const char* value : {"-1", "nan", "inf"}) {
      EXPECT_EQ(Start({name, value}).Wait().code, 2) << name << " " << value;
      EXPECT_THAT(Log(), HasSubstr(absl::StrCat(name, ": expected a number from 0")));
    }
  }
  EXPECT_EQ(Start({"--trainer", "/nonexistent"}).Wait().code, 1);
  EXPECT_THAT(Log(), HasSubstr("cannot run /nonexistent"));
}

TEST_F(WorkerProgramTest, WithoutAGpuCudaIsRefused) {
  EXPECT_EQ(Start({"--device", "cuda"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("ablate-worker: --device cuda: no NVIDIA driver here"));
  environment_["FAKE_GPUS"] = "";
  EXPECT_EQ(Start({"--device", "cuda"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("--device cuda: the driver shows no GPU"));
  environment_["FAKE_GPUS"] = kTwoGpus;
  EXPECT_EQ(Start({"--device", "cuda", "--gpus", "0,2"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("there is no GPU 2 here"));
}

TEST_F(WorkerProgramTest, EachSlotHasAGpuOrItsShareOfOne) {
  environment_["FAKE_GPUS"] = kTwoGpus;
  for (int i = 0; i < 4; ++i)
    coordinator_.AddJob(absl::StrCat("job_", i), StageTask(absl::StrCat("steps=1000000 pause_ms=2 n=", i)));
  Subprocess worker = Start({"--device", "cuda", "--slots-per-gpu", "2"});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(AwaitStep(absl::StrCat("job_", i), 2)) << Log();
  EXPECT_THAT(Log(), HasSubstr("GPU 0: Fake GPU, 80.0 GiB of memory (79.0 GiB free), compute capability 9.0, driver"));
  EXPECT_THAT(Log(), HasSubstr("GPU 1: Fake GPU"));
  EXPECT_THAT(Log(), HasSubstr("4 slots of 39.5 GiB on 2 GPUs"));
  const v1::WorkerInfo info = coordinator_.last_request().worker();
  EXPECT_EQ(info.slots(), 4);
  EXPECT_EQ(info.device_class(), "cuda");
  EXPECT_EQ(info.device_kind(), "cuda/fake");
  EXPECT_EQ(info.memory_bytes(), (int64_t{40} << 30) - (int64_t{512} << 20));
  std::multiset<std::string> commands;
  for (const pid_t child : ChildrenOf(worker.pid())) {
    std::string command = ReadFile(absl::StrCat("/proc/", child, "/cmdline")).value_or("");
    std::replace(command.begin(), command.end(), '\0', ' ');
    commands.insert(command.substr(command.find("--device")));
  }
  const std::string share = absl::StrCat(" --memory-limit ", info.memory_bytes(), " ");
  EXPECT_EQ(commands.count("--device cuda:0" + share), 2u);
  EXPECT_EQ(commands.count("--device cuda:1" + share), 2u);
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0) << Log();
}

TEST_F(WorkerProgramTest, ADeviceFaultCostsOneAttemptNotTheDaemon) {
  environment_["FAKE_GPUS"] = kTwoGpus;
  // As the trainer does after a CUDA error: it tells, and ends.
  coordinator_.AddJob("a", StageTask("at=2 fail=CODE_ERROR exit_after=5"));
  Subprocess worker = Start({"--device", "cuda", "--gpus", "1"});
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  EXPECT_EQ(coordinator_.jobs().at("a").ended.back().failure().kind(), v1::CODE_ERROR);
  EXPECT_EQ(coordinator_.jobs().at("a").ended.back().failure().message(), "as told");
  coordinator_.AddJob("b", StageTask("steps=2"));
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  EXPECT_EQ(coordinator_.jobs().at("b").ended.back().phase(), v1::AttemptReport::SUCCEEDED);
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0);
}

TEST_F(WorkerProgramTest, ARefusalAtTheFirstContactEndsIt) {
  coordinator_.Refuse(absl::FailedPreconditionError("protocol version 1 is not supported"));
  EXPECT_EQ(Start({"--executor", "noop"}).Wait().code, 1);
  EXPECT_THAT(Log(), HasSubstr("protocol version 1 is not supported"));
}

TEST_F(WorkerProgramTest, SigtermSavesUploadsAndHandsBack) {
  coordinator_.AddJob("job", StageTask("steps=1000000 pause_ms=2"));
  Subprocess worker = Start({});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0) << Log();
  const FakeCoordinator::Job job = coordinator_.jobs().at("job");
  ASSERT_EQ(job.ended.size(), 1u) << Log();
  EXPECT_EQ(job.ended[0].phase(), v1::AttemptReport::RELEASED);
  EXPECT_EQ(job.ended[0].failure().kind(), v1::PREEMPTED);
  EXPECT_EQ(job.ended[0].failure().message(), "its worker was asked to stop");
  ASSERT_EQ(job.checkpoints.size(), 1u);
  EXPECT_GE(job.checkpoints[0].step(), 3);
  EXPECT_TRUE(coordinator_.artifacts().Has(job.checkpoints[0].weights().sha256()));
  // The next worker goes on from there, on another machine.
  coordinator_.AddJob("job", StageTask(absl::StrCat("steps=", job.checkpoints[0].step() + 5)));
  Subprocess other = Start({}, "other");
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  const v1::AttemptReport end = coordinator_.jobs().at("job").ended.back();
  EXPECT_EQ(end.attempt(), 2);
  EXPECT_EQ(end.result().resumed_from_step(), job.checkpoints[0].step());
}

TEST_F(WorkerProgramTest, ASecondSignalEndsAtOnceAndTheTrainerToo) {
  coordinator_.AddJob("job", StageTask("steps=1000000 pause_ms=2 deaf"));
  Subprocess worker = Start({"--grace-seconds", "1000"});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  const std::vector<pid_t> children = ChildrenOf(worker.pid());
  ASSERT_EQ(children.size(), 1u);
  worker.Kill(SIGTERM);
  while (Log().find("signal 15") == std::string::npos) std::this_thread::yield();
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 128 + SIGTERM);
  EXPECT_TRUE(AwaitGone(children[0]));
}

TEST_F(WorkerProgramTest, ADeafTrainerDoesNotOutliveTheGrace) {
  coordinator_.AddJob("job", StageTask("steps=1000000 pause_ms=2 deaf"));
  Subprocess worker = Start({"--grace-seconds", "0.5"});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  const std::vector<pid_t> children = ChildrenOf(worker.pid());
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0);
  ASSERT_EQ(children.size(), 1u);
  EXPECT_TRUE(AwaitGone(children[0]));
  EXPECT_EQ(coordinator_.jobs().at("job").ended.back().phase(), v1::AttemptReport::RELEASED) << Log();
}

TEST_F(WorkerProgramTest, TheTrainerNeverOutlivesAKilledWorkerAndAnotherWorkerGoesOn) {
  coordinator_.AddJob("job", StageTask("steps=1000000 pause_ms=1 checkpoint_every=5"));
  Subprocess worker = Start({"--upload-seconds", "0"});
  ASSERT_TRUE(coordinator_.Await([](const Jobs& jobs) { return !jobs.at("job").checkpoints.empty(); })) << Log();
  const std::vector<pid_t> children = ChildrenOf(worker.pid());
  ASSERT_EQ(children.size(), 1u);
  worker.Kill(SIGKILL);
  worker.Wait();
  EXPECT_TRUE(AwaitGone(children[0]));
  const int64_t step = coordinator_.jobs().at("job").checkpoints.back().step();
  coordinator_.AddJob("job", StageTask(absl::StrCat("steps=", step + 7)));
  Subprocess other = Start({}, "other");
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  const v1::AttemptReport end = coordinator_.jobs().at("job").ended.back();
  EXPECT_EQ(end.phase(), v1::AttemptReport::SUCCEEDED);
  EXPECT_EQ(end.result().resumed_from_step(), step);
}

TEST_F(WorkerProgramTest, WorkGoesOnWhileTheCoordinatorIsAway) {
  coordinator_.AddJob("job", StageTask("steps=400 pause_ms=2"));
  Subprocess worker = Start({});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  coordinator_.StopServing();
  while (Log().find("does not answer; work goes on") == std::string::npos) std::this_thread::yield();
  coordinator_.StartServing();
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  const FakeCoordinator::Job job = coordinator_.jobs().at("job");
  EXPECT_EQ(job.attempt, 1);
  ASSERT_EQ(job.ended.size(), 1u);
  EXPECT_EQ(job.ended[0].phase(), v1::AttemptReport::SUCCEEDED);
  const std::set<int64_t> steps(job.point_steps.begin(), job.point_steps.end());
  EXPECT_EQ(steps.size(), 400u) << "points were lost";
}

TEST_F(WorkerProgramTest, AResultOutlivesTheDaemonThatCouldNotHandItIn) {
  v1::Task task = NoopTask(1);
  v1::Setting* seconds = task.mutable_evaluation()->mutable_config()->add_settings();
  seconds->set_axis("noop.seconds");
  seconds->mutable_value()->set_number(1);
  coordinator_.AddJob("job", task);
  // Nobody waits for a coordinator that is gone: it would take the grace.
  Subprocess worker = Start({"--executor", "noop", "--grace-seconds", "100000"});
  ASSERT_TRUE(coordinator_.Await([](const Jobs& jobs) { return jobs.at("job").attempt == 1; }));
  while (coordinator_.last_request().attempts().empty()) std::this_thread::yield();
  coordinator_.StopServing();
  const std::string results = JoinPath(dir_.path(), "work") + "/results";
  while (ListDir(results)->empty()) std::this_thread::yield();
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0);
  coordinator_.StartServing();
  Subprocess next = Start({"--executor", "noop"});
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  const FakeCoordinator::Job job = coordinator_.jobs().at("job");
  EXPECT_EQ(job.attempt, 1) << "it ran again";
  ASSERT_EQ(job.ended.size(), 1u);
  next.Kill(SIGTERM);
  EXPECT_EQ(next.Wait().code, 0);
  EXPECT_TRUE(ListDir(results)->empty());
}

// A whole allocation is ended at once, coordinator and all: what was given back is told at the next start.
TEST_F(WorkerProgramTest, AReleaseThatNobodyHeardIsToldByTheNextDaemon) {
  coordinator_.AddJob("job", StageTask("steps=1000000 pause_ms=2"));
  Subprocess worker = Start({"--grace-seconds", "100000"});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  coordinator_.StopServing();
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0) << Log();
  EXPECT_THAT(Log(), HasSubstr("the next start of this worker does it"));
  coordinator_.StartServing();
  Subprocess next = Start({});
  ASSERT_TRUE(coordinator_.Await([](const Jobs& jobs) { return !jobs.at("job").ended.empty(); })) << Log();
  EXPECT_EQ(coordinator_.jobs().at("job").ended[0].phase(), v1::AttemptReport::RELEASED);
  EXPECT_EQ(coordinator_.jobs().at("job").ended[0].attempt(), 1);
  next.Kill(SIGTERM);
  EXPECT_EQ(next.Wait().code, 0);
}

TEST_F(WorkerProgramTest, WhatATrainerHasStartedEndsWithAKilledDaemon) {
  const std::string wrapper = dir_.path() + "/wrapper", pids = dir_.path() + "/pids";
  ASSERT_TRUE(WriteFileAtomic(wrapper, absl::StrCat("#!/bin/sh\nsleep 100000 </dev/null >/dev/null 2>&1 & echo $! >> ",
                                                    pids, "\nexec ", ABLATE_FAKE_TRAINER, " \"$@\"\n"))
                  .ok());
  ASSERT_EQ(::chmod(wrapper.c_str(), 0755), 0);
  coordinator_.AddJob("job", StageTask("steps=1000000 pause_ms=2"));
  Subprocess worker = Start({"--trainer", wrapper, "--sandbox", "off"});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  std::vector<pid_t> started;
  std::ifstream file(pids);
  for (pid_t pid = 0; file >> pid;) started.push_back(pid);
  ASSERT_EQ(started.size(), 2u);         // the probe's at the start, and the task's
  EXPECT_TRUE(AwaitGone(started[0]));    // with its trainer
  EXPECT_EQ(::kill(started[1], 0), 0);
  worker.Kill(SIGKILL);
  worker.Wait();
  EXPECT_TRUE(AwaitGone(started[1]));
}

TEST_F(WorkerProgramTest, TheCoordinatorsDrainLetsWhatRunsFinish) {
  coordinator_.AddJob("job", StageTask("steps=200 pause_ms=2"));
  Subprocess worker = Start({});
  ASSERT_TRUE(AwaitStep("job", 3)) << Log();
  coordinator_.AskForDrain();
  EXPECT_EQ(worker.Wait().code, 0) << Log();
  EXPECT_EQ(coordinator_.jobs().at("job").ended.back().phase(), v1::AttemptReport::SUCCEEDED);
}

TEST_F(WorkerProgramTest, ACancelledJobIsStoppedAndTheSlotTakesTheNext) {
  coordinator_.AddJob("a", StageTask("steps=1000000 pause_ms=2"));
  Subprocess worker = Start({});
  ASSERT_TRUE(AwaitStep("a", 3)) << Log();
  coordinator_.CancelJob("a");
  coordinator_.AddJob("b", StageTask("steps=5"));
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  EXPECT_EQ(coordinator_.jobs().at("a").ended.back().phase(), v1::AttemptReport::CANCELLED);
  EXPECT_EQ(coordinator_.jobs().at("b").ended.back().phase(), v1::AttemptReport::SUCCEEDED);
}

TEST_F(WorkerProgramTest, ACrashIsReportedWithItsLastWords) {
  coordinator_.AddJob("job", StageTask("at=3 say=200 signal=6"));
  Subprocess worker = Start({});
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  const v1::Failure failure = coordinator_.jobs().at("job").ended.back().failure();
  EXPECT_EQ(failure.signal(), SIGABRT);
  EXPECT_THAT(failure.stderr_tail(), HasSubstr("last words"));
  EXPECT_GT(failure.peak_memory_bytes(), 0);
}

TEST_F(WorkerProgramTest, TheServerMayStandInTheEnvironment) {
  name_server_ = false;
  environment_ = {{"ABLATE_SERVER", ""}, {"XDG_CONFIG_HOME", dir_.path()}};
  EXPECT_EQ(Start({"--executor", "noop"}).Wait().code, 2);
  EXPECT_THAT(Log(), HasSubstr("ABLATE_SERVER"));
  coordinator_.AddJob("job", NoopTask(0));
  environment_["ABLATE_SERVER"] = coordinator_.address();
  Subprocess worker = Start({"--executor", "noop"});
  ASSERT_TRUE(coordinator_.AwaitAllFinished()) << Log();
  worker.Kill(SIGTERM);
  EXPECT_EQ(worker.Wait().code, 0);
}

// A trainer that somebody has taken over, with the worker's secrets around it.
TEST_F(WorkerProgramTest, TrainersHaveTheFewestRights) {
  const std::string token = "ablate_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG", secret = dir_.path() + "/secret";
  ASSERT_TRUE(WriteFileAtomic(secret, "s").ok());
  environment_ = {{"ABLATE_TOKEN", token}};
  const bool has_all = Sandbox::Missing().empty();
  const auto rights = [&](const std::vector<std::string>& flags, const std::string& work) {
    const std::string id = "job_" + work;
    coordinator_.AddJob(id, StageTask(absl::StrCat("rights=", secret)));
    Subprocess worker = Start(flags, work);
    EXPECT_TRUE(coordinator_.AwaitAllFinished()) << Log();
    worker.Kill(SIGTERM);
    EXPECT_EQ(worker.Wait().code, 0);
    return coordinator_.jobs().at(id).ended.back().failure().message();
  };
  if (has_all) {
    // EACCES is 13, EPERM 1.
    const std::string bounded = rights({"--sandbox", "require"}, "bounded");
    EXPECT_THAT(bounded, HasSubstr("inet=13 unix=13 read=13 elsewhere=13 own=0 link=13 "));
    EXPECT_THAT(bounded, HasSubstr("environ=13"));
    EXPECT_THAT(bounded, HasSubstr("memory=1 "));
    EXPECT_THAT(bounded, HasSubstr("token=no files=3 core=0"));
    EXPECT_THAT(Log(), testing::Not(HasSubstr("this kernel refuses")));
  } else {
    Subprocess worker = Start({"--sandbox", "require"});
    EXPECT_EQ(worker.Wait().code, 1);
    EXPECT_THAT(Log(), HasSubstr("this kernel refuses"));
  }
  // The same attempts succeed without it, so the test can see them.
  const std::string free = rights({"--sandbox", "off"}, "free");
  EXPECT_THAT(free, HasSubstr("inet=0 unix=0 read=0 elsewhere=0 own=0 "));
  EXPECT_THAT(free, HasSubstr("token=no"));
  RemoveFile("/tmp/ablate-rights").IgnoreError();
  EXPECT_EQ(Log().find(token.substr(7)), std::string::npos);
}

}  // namespace
}  // namespace ablate
