// The coordinator with its real store: sweeps, jobs, results, recovery. No sleeps: time is a FakeClock's.
#include "server/coordinator.h"

#include <atomic>
#include <limits>
#include <thread>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_test_fixture.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

TEST_F(CoordinatorTest, ASweepRunsToItsTable) {
  const auto submitted = Submit(kNoop);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_TRUE(submitted->created());
  EXPECT_EQ(submitted->new_jobs(), 6 + 18);  // 2 arms x 3 seeds; 1x once, 2x with NTK off and on
  EXPECT_EQ(submitted->sweep().state(), v1::SWEEP_RUNNING);
  FakeWorker worker("w", 2);
  const auto done = worker.RunAll(*coordinator_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(*done, 24);
  const v1::Sweep sweep = Get("noop");
  EXPECT_EQ(sweep.state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(sweep.jobs().succeeded(), 24);

  v1::GetTableRequest request;
  request.set_sweep("noop");
  request.add_metrics("loss");
  const auto table = coordinator_->GetTable(request);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->rows_size(), 6);
  for (const v1::ConfidenceRow& row : table->rows()) {
    EXPECT_EQ(row.n(), 3);
    EXPECT_DOUBLE_EQ(row.mean(), 2);  // of seeds 0, 1, 2 plus one
    EXPECT_DOUBLE_EQ(row.sd(), 1);
    EXPECT_NEAR(row.high() - row.mean(), 4.302652729749464 / std::sqrt(3.0), 1e-9);
    EXPECT_EQ(row.job_ids_size(), 3);
  }
  v1::CompareArmsRequest compare;
  compare.set_sweep("noop");
  const auto comparison = coordinator_->CompareArms(compare);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_GT(comparison->rows_size(), 0);
  EXPECT_EQ(comparison->rows(0).baseline_json(), R"({"attention.variant":"softmax"})");

  EXPECT_EQ(One("SELECT COUNT(*) FROM results WHERE split = 'train' AND metric = 'max_gradient_norm'"), "6");
  EXPECT_EQ(One("SELECT COUNT(*), MIN(n), MAX(missing) FROM confidence_intervals WHERE metric = 'loss'"), "6|3|0");
}

TEST_F(CoordinatorTest, TheViewAgreesWithTheTable) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker worker("w", 2);
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  v1::GetTableRequest request;
  request.set_sweep("noop");
  const auto table = coordinator_->GetTable(request);
  ASSERT_TRUE(table.ok());
  int compared = 0;
  for (const v1::ConfidenceRow& row : table->rows()) {
    const std::string where =
        absl::StrCat("sweep = 'noop' AND arm = '", row.arm_json(), "' AND metric = '", row.metric(),
                     "' AND length = ", row.length(), " AND split = '", row.split(), "' AND ntk = ", row.ntk());
    EXPECT_EQ(One("SELECT n FROM confidence_intervals WHERE " + where), absl::StrCat(row.n()));
    if (!row.has_low()) continue;
    EXPECT_EQ(One(absl::StrCat("SELECT abs(mean - ", row.mean(), ") + abs(low - ", row.low(), ") + abs(high - ",
                               row.high(), ") < 1e-4 FROM confidence_intervals WHERE ", where)),
              "1");
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

TEST_F(CoordinatorTest, TheSameFileIsTheSameSweepAndAnotherIsRefusedWithADiff) {
  const auto first = Submit(kNoop);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = Submit(std::string("# a comment more\n") + kNoop);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->created());
  EXPECT_EQ(again->new_jobs(), 0);
  EXPECT_EQ(again->reused_jobs(), 24);
  EXPECT_EQ(again->sweep().sweep_id(), first->sweep().sweep_id());
  std::string other = kNoop;
  other.replace(other.find("seeds: 3"), 8, "seeds: 4");
  const auto refused = Submit(other);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("-seeds: 3\n+seeds: 4\n"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("another `name:`"));
  other.replace(other.find("name: noop"), 10, "name: more");
  const auto more = Submit(other);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->new_jobs(), 8);
  EXPECT_EQ(more->reused_jobs(), 24);
}

TEST_F(CoordinatorTest, ARepeatedRequestGetsTheSameAnswerAfterARestartToo) {
  const auto first = Submit(kNoop, "request 1");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(Submit(kNoop, "request 1")->created());
  v1::CancelSweepRequest cancel;
  cancel.set_sweep("noop");
  cancel.set_request_id("request 2");
  const auto cancelled = coordinator_->CancelSweep(cancel);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  Open();
  EXPECT_EQ(coordinator_->CancelSweep(cancel)->SerializeAsString(), cancelled->SerializeAsString());
  EXPECT_EQ(Submit(kNoop, "request 1")->SerializeAsString(), first->SerializeAsString());
  cancel.set_request_id("request 1");
  EXPECT_EQ(coordinator_->CancelSweep(cancel).status().code(), absl::StatusCode::kInvalidArgument);
  cancel.set_request_id("request 3");
  EXPECT_EQ(coordinator_->CancelSweep(cancel).status().code(), absl::StatusCode::kFailedPrecondition);
  // Submitting the cancelled sweep again takes it up.
  const auto revived = Submit(kNoop, "request 4");
  ASSERT_TRUE(revived.ok());
  EXPECT_EQ(revived->sweep().state(), v1::SWEEP_RUNNING);
  EXPECT_EQ(revived->new_jobs(), 24);
  EXPECT_EQ(revived->reused_jobs(), 0);
}

TEST_F(CoordinatorTest, DataMustBeHere) {
  missing_.insert(Sha256Hex("the text"));
  const auto refused = Submit(kTrained);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("a.txt (" + Sha256Hex("the text")));
  missing_.clear();
  const auto submitted = Submit(kTrained);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(Submit("name: [broken").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CoordinatorTest, StagesStartFromStoredStatesWhichGoWhenNothingNeedsThem) {
  ASSERT_TRUE(Submit(kTrained).ok());
  FakeWorker worker("w", 8, v1::EXECUTOR_TRAINER);
  // Both arms share the first 50 steps.
  auto response = worker.Sync(*coordinator_);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->desired_size(), 2);
  for (const v1::Assignment& assignment : response->desired()) {
    const v1::StageTask& stage = assignment.task().stage();
    EXPECT_EQ(stage.to_step(), 50);
    EXPECT_TRUE(stage.keep_optimizer());
    EXPECT_FALSE(stage.has_start());
    EXPECT_EQ(stage.data().files(0).sha256(), Sha256Hex("the text"));
    worker.Succeed(assignment);
  }
  const std::string first_key = response->desired(0).task().stage().stage_key();
  response = worker.Sync(*coordinator_);
  ASSERT_EQ(response->desired_size(), 4);
  EXPECT_TRUE(deleted_.empty());
  // A checkpoint on the way is where the next attempt starts.
  const v1::Assignment interrupted = response->desired(0);
  EXPECT_EQ(interrupted.task().stage().start().step(), 50);
  EXPECT_FALSE(interrupted.task().stage().start().optimizer().sha256().empty());
  v1::AttemptReport& report = worker.Report(interrupted, v1::AttemptReport::RELEASED);
  report.mutable_checkpoint()->set_step(75);
  *report.mutable_checkpoint()->mutable_weights() = FakeWorker::Artifact("75", "weights");
  *report.mutable_checkpoint()->mutable_optimizer() = FakeWorker::Artifact("75", "optimizer");
  for (int i = 1; i < 4; ++i) worker.Succeed(response->desired(i));
  response = worker.Sync(*coordinator_);
  ASSERT_TRUE(response.ok());
  bool seen = false;
  for (const v1::Assignment& assignment : response->desired()) {
    if (assignment.job_id() != interrupted.job_id()) continue;
    seen = true;
    EXPECT_EQ(assignment.attempt(), 2);
    EXPECT_EQ(assignment.task().stage().start().step(), 75);
  }
  EXPECT_TRUE(seen);
  // The attempt says why it was handed back; the job has no failure.
  v1::GetJobRequest of_interrupted;
  of_interrupted.set_job_id(interrupted.job_id());
  const auto shown = coordinator_->GetJob(of_interrupted);
  ASSERT_EQ(shown->attempts_size(), 2);
  EXPECT_EQ(shown->attempts(0).failure().kind(), v1::PREEMPTED);
  EXPECT_EQ(shown->attempts(0).failure().message(), "handed back, its worker was asked to stop");
  EXPECT_FALSE(shown->job().has_last_failure());
  for (const v1::Assignment& assignment : response->desired()) worker.Succeed(assignment);
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("trained").state(), v1::SWEEP_SUCCEEDED);
  // Everything that was uploaded is gone: end states of 6 stages (2 with optimiser state), the checkpoint.
  EXPECT_EQ(deleted_.size(), 6u + 2u + 2u);
  EXPECT_TRUE(deleted_.contains(FakeWorker::Artifact(first_key, "optimizer").sha256()));
  EXPECT_EQ(One("SELECT COUNT(*) FROM checkpoints"), "0");
  EXPECT_FALSE(deleted_.contains(Sha256Hex("the text")));
}

TEST_F(CoordinatorTest, ARestartLosesNothingAndRunningAttemptsGoOn) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker worker("w", 2);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  const auto running = worker.assigned();
  ASSERT_EQ(running.size(), 2u);
  const std::string before = Get("noop").SerializeAsString();
  Open();
  EXPECT_EQ(Get("noop").SerializeAsString(), before);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  EXPECT_EQ(worker.assigned().begin()->first, running.begin()->first);
  const auto done = worker.RunAll(*coordinator_);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(*done, 24);
  EXPECT_EQ(One("SELECT MAX(attempt) FROM jobs"), "1");
  EXPECT_EQ(One("SELECT COUNT(*) FROM events WHERE to_state = 'SUCCEEDED'"), "24");
}

TEST_F(CoordinatorTest, AFailedCommitIsUndoneInMemoryToo) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker worker("w", 2);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  for (const auto& [key, assignment] : worker.assigned()) worker.Succeed(assignment);
  commit_error_ = absl::ResourceExhaustedError("disk full");
  const auto refused = worker.Sync(*coordinator_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_EQ(Submit("name: other\nexecutor: noop\n").status().code(), absl::StatusCode::kUnavailable);
  // What was not stored has not happened.
  EXPECT_EQ(Get("noop").jobs().succeeded(), 0);
  EXPECT_EQ(Get("noop").jobs().running(), 2);
  v1::GetSweepRequest other;
  other.set_sweep("other");
  EXPECT_EQ(coordinator_->GetSweep(other).status().code(), absl::StatusCode::kNotFound);
  commit_error_ = absl::OkStatus();
  // The worker tells it again, and all is well.
  const auto accepted = worker.Sync(*coordinator_);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_EQ(accepted->acks_size(), 2);
  EXPECT_TRUE(accepted->acks(0).accepted());
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("noop").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(One("SELECT COUNT(*) FROM evaluation_results WHERE metric = 'loss'"), "18");
}

TEST_F(CoordinatorTest, ASilentWorkersJobsGoToAnother) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker silent("silent", 1), other("other", 1);
  ASSERT_TRUE(silent.Sync(*coordinator_).ok());
  const v1::Assignment lost = silent.assigned().begin()->second;
  clock_.StepWall(-3'600'000'000);
  clock_.Advance(31'000'000);
  ASSERT_TRUE(other.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("noop").state(), v1::SWEEP_SUCCEEDED);
  silent.Succeed(lost);
  ASSERT_TRUE(silent.Sync(*coordinator_).ok());
  ASSERT_EQ(silent.refused.size(), 1u);
  EXPECT_THAT(silent.refused[0].reason(), HasSubstr("attempt 1 is old"));
  v1::GetJobRequest request;
  request.set_job_id(lost.job_id());
  const auto job = coordinator_->GetJob(request);
  ASSERT_TRUE(job.ok());
  ASSERT_EQ(job->attempts_size(), 2);
  EXPECT_EQ(job->attempts(0).state(), "LOST");
  EXPECT_EQ(job->attempts(0).failure().kind(), v1::WORKER_LOST);
  EXPECT_EQ(job->attempts(1).state(), "SUCCEEDED");
}

TEST_F(CoordinatorTest, FailuresShowTheirEvidenceAndRetryMendsTheSweep) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker worker("w", 1);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  const v1::Assignment assignment = worker.assigned().begin()->second;
  v1::Failure* failure = worker.Fail(assignment, v1::INVALID_CONFIG).mutable_failure();
  failure->set_signal(9);
  failure->set_peak_memory_bytes(123456);
  failure->set_stderr_tail("out of luck\n");
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  v1::Sweep sweep = Get("noop");
  EXPECT_EQ(sweep.state(), v1::SWEEP_FAILED);
  EXPECT_EQ(sweep.jobs().failed(), 4);  // the stage and its three evaluations
  v1::GetJobRequest request;
  request.set_job_id(assignment.job_id());
  const auto job = coordinator_->GetJob(request);
  EXPECT_EQ(job->job().last_failure().signal(), 9);
  EXPECT_EQ(job->job().last_failure().stderr_tail(), "out of luck\n");
  EXPECT_EQ(job->job().arm_label(), "variant=softmax");
  const auto logs = coordinator_->GetJobLogs(request);
  ASSERT_EQ(logs->events_size(), 3);
  EXPECT_THAT(logs->events(2).text(), HasSubstr("RUNNING -> FAILED: invalid_config, attempt 1 on w. it broke"));
  const auto explained = coordinator_->ExplainJob(request);
  EXPECT_THAT(explained->explanation(), HasSubstr("It failed after 1 attempts. invalid_config: it broke"));
  EXPECT_THAT(explained->next_step(), HasSubstr("ablate job logs"));

  v1::RetrySweepRequest retry;
  retry.set_sweep("noop");
  const auto retried = coordinator_->RetrySweep(retry);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_EQ(retried->new_jobs(), 4);
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("noop").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(Get("noop").jobs().failed(), 0);
}

TEST_F(CoordinatorTest, ADivergedTrainingShowsInEveryTable) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker worker("w", 1);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  v1::TaskResult* result = worker.Succeed(worker.assigned().begin()->second).mutable_result();
  result->set_outcome(v1::DIVERGED);
  result->set_diverged_at_step(42);
  result->clear_metrics();
  FakeWorker::AddMetric(result, "max_gradient_norm", std::numeric_limits<double>::infinity());
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("noop").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(Get("noop").diverged(), 4);
  EXPECT_EQ(One("SELECT COUNT(*) FROM results WHERE status = 'diverged' AND metric IN ('loss', 'loss_targets') AND "
                "value IS NULL"),
            "6");
  EXPECT_EQ(One("SELECT non_finite FROM results WHERE metric = 'max_gradient_norm' AND status = 'diverged'"), "inf");
  v1::GetTableRequest request;
  request.set_sweep("noop");
  request.add_metrics("loss");
  const auto table = coordinator_->GetTable(request);
  ASSERT_TRUE(table.ok()) << table.status();
  int diverged = 0;
  for (const v1::ConfidenceRow& row : table->rows()) {
    diverged += row.diverged_seeds_size();
    EXPECT_EQ(row.n() + row.diverged_seeds_size(), 3);
  }
  EXPECT_EQ(diverged, 3);
}

TEST_F(CoordinatorTest, ListsArePaged) {
  ASSERT_TRUE(Submit(kNoop).ok());
  std::string other = kNoop;
  other.replace(other.find("name: noop"), 10, "name: bbbb");
  ASSERT_TRUE(Submit(other).ok());
  v1::ListSweepsRequest sweeps;
  sweeps.set_page_size(1);
  auto page = coordinator_->ListSweeps(sweeps);
  EXPECT_EQ(page->sweeps(0).name(), "bbbb");  // newest first
  sweeps.set_page_token(page->next_page_token());
  page = coordinator_->ListSweeps(sweeps);
  EXPECT_EQ(page->sweeps(0).name(), "noop");
  EXPECT_EQ(page->next_page_token(), "");
  sweeps.set_page_token("x");
  EXPECT_EQ(coordinator_->ListSweeps(sweeps).status().code(), absl::StatusCode::kInvalidArgument);

  std::set<std::string> seen;
  v1::ListJobsRequest jobs;
  jobs.set_sweep("noop");
  jobs.set_page_size(5);
  jobs.add_states(v1::BLOCKED);
  do {
    const auto list = coordinator_->ListJobs(jobs);
    ASSERT_TRUE(list.ok());
    for (const v1::Job& job : list->jobs()) {
      EXPECT_EQ(job.state(), v1::BLOCKED);
      EXPECT_TRUE(job.task().has_evaluation());
      EXPECT_TRUE(seen.insert(job.job_id()).second);
    }
    jobs.set_page_token(list->next_page_token());
  } while (!jobs.page_token().empty());
  EXPECT_EQ(seen.size(), 18u);
  v1::GetSweepRequest get;
  get.set_sweep("nop");
  EXPECT_THAT(std::string(coordinator_->GetSweep(get).status().message()), HasSubstr("did you mean \"noop\"?"));
}

TEST_F(CoordinatorTest, WatchersAndWaitingWorkersAreWoken) {
  CoordinatorOptions options;
  options.data_dir = JoinPath(dir_.path(), "other");
  options.idle_wait_ms = 60'000;
  auto opened = Coordinator::Open(options);
  ASSERT_TRUE(opened.ok());
  Coordinator& coordinator = **opened;
  FakeWorker worker("w", 2);
  // Waits in the call until the sweep comes.
  std::thread works([&] { EXPECT_TRUE(worker.Sync(coordinator).ok()); });
  v1::SubmitSweepRequest submit;
  submit.set_yaml(kNoop);
  submit.set_file_name("n.yaml");
  ASSERT_TRUE(coordinator.SubmitSweep(submit).ok());
  works.join();
  EXPECT_EQ(worker.assigned().size(), 2u);
  v1::WatchSweepRequest watch;
  watch.set_sweep("noop");
  std::vector<v1::Sweep> seen;
  std::thread watches([&] {
    EXPECT_TRUE(coordinator
                    .WatchSweep(
                        watch,
                        [&](const v1::Sweep& sweep) {
                          seen.push_back(sweep);
                          return true;
                        },
                        [] { return false; })
                    .ok());
  });
  while (!worker.assigned().empty()) {
    for (const auto& [key, assignment] : worker.assigned()) worker.Succeed(assignment);
    ASSERT_TRUE(worker.Sync(coordinator).ok());
  }
  watches.join();
  ASSERT_GE(seen.size(), 1u);
  EXPECT_EQ(seen.back().state(), v1::SWEEP_SUCCEEDED);
  // A worker that waits goes home when the coordinator stops.
  std::thread waits([&] { EXPECT_EQ(worker.Sync(coordinator).status().code(), absl::StatusCode::kUnavailable); });
  v1::ListWorkersRequest workers;
  while (!coordinator.ListWorkers(workers)->workers(0).connected()) std::this_thread::yield();
  coordinator.Shutdown();
  waits.join();
}

// Whatever a worker says of its slots, no two jobs share one, and nothing is stored of what it was not given.
TEST_F(CoordinatorTest, AWorkerThatLiesAboutItsSlotsGetsNoMoreThanItHas) {
  ASSERT_TRUE(Submit(kNoop).ok());
  FakeWorker liar("liar", 2);
  ASSERT_TRUE(liar.Sync(*coordinator_).ok());
  ASSERT_EQ(liar.assigned().size(), 2u);
  std::vector<v1::Assignment> mine;
  for (const auto& [key, assignment] : liar.assigned()) mine.push_back(assignment);
  // Both on one slot.
  for (const v1::Assignment& assignment : mine) liar.Report(assignment, v1::AttemptReport::RUNNING).set_slot(0);
  ASSERT_TRUE(liar.Sync(*coordinator_).ok());
  EXPECT_EQ(One("SELECT count(DISTINCT slot) FROM attempts WHERE state = 'RUNNING'"), "2");
  // Lost, and then both back on slot 0: only the one that was there is taken up again.
  clock_.Advance(31'000'000);
  FakeWorker other("other", 1);
  ASSERT_TRUE(other.Sync(*coordinator_, /*draining=*/true).ok());
  ASSERT_EQ(One("SELECT count(*) FROM events WHERE cause = 'lease_expired'"), "2");
  liar.Clear();
  for (const v1::Assignment& assignment : mine) liar.Report(assignment, v1::AttemptReport::RUNNING).set_slot(0);
  ASSERT_TRUE(liar.Sync(*coordinator_, /*draining=*/true).ok());
  EXPECT_EQ(One("SELECT count(*) FROM events WHERE cause = 'reattached'"), "1");
  EXPECT_EQ(One("SELECT count(*) FROM attempts WHERE state = 'RUNNING'"), "1");
  // A slot that it does not have, and fewer slots than before.
  liar.Clear();
  liar.info().set_slots(1);
  liar.Report(mine[0], v1::AttemptReport::RUNNING).set_slot(7);
  liar.Report(mine[1], v1::AttemptReport::RUNNING).set_slot(7);
  ASSERT_TRUE(liar.Sync(*coordinator_, /*draining=*/true).ok());
  EXPECT_LE(std::stoi(One("SELECT count(*) FROM attempts WHERE state = 'RUNNING'")), 1);
  liar.info().set_slots(1 << 20);
  EXPECT_EQ(liar.Sync(*coordinator_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(One("SELECT count(*) FROM attempts a JOIN attempts b ON a.worker_id = b.worker_id AND a.slot = b.slot AND "
                "a.job < b.job JOIN jobs j ON j.row = a.job WHERE a.state = 'RUNNING' AND b.state = 'RUNNING' AND "
                "j.kind = 'STAGE'"),
            "0");
}

TEST_F(CoordinatorTest, ManyWorkersAndReadersAtOnce) {
  CoordinatorOptions options;
  options.data_dir = JoinPath(dir_.path(), "other");
  options.idle_wait_ms = 20;
  auto opened = Coordinator::Open(options);
  ASSERT_TRUE(opened.ok());
  Coordinator& coordinator = **opened;
  std::string yaml = kNoop;
  yaml.replace(yaml.find("seeds: 3"), 8, "seeds: 100");  // 2 x 100 stages, 600 evaluations
  v1::SubmitSweepRequest submit;
  submit.set_yaml(yaml);
  submit.set_file_name("n.yaml");
  const auto submitted = coordinator.SubmitSweep(submit);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  ASSERT_EQ(submitted->new_jobs(), 800);
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  std::atomic<int> done = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      FakeWorker worker(absl::StrCat("w", i), 1 + i % 3);
      while (!over) {
        const auto response = worker.Sync(coordinator);
        ASSERT_TRUE(response.ok()) << response.status();
        for (const v1::Assignment& assignment : response->desired()) worker.Succeed(assignment);
        done += response->acks_size();
        EXPECT_TRUE(worker.refused.empty());
      }
    });
  }
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      v1::GetTableRequest table;
      table.set_sweep("noop");
      v1::ListJobsRequest jobs;
      while (!over) {
        EXPECT_TRUE(coordinator.GetTable(table).ok());
        EXPECT_TRUE(coordinator.ListJobs(jobs).ok());
      }
    });
  }
  v1::WatchSweepRequest watch;
  watch.set_sweep("noop");
  const absl::Status watched = coordinator.WatchSweep(
      watch, [](const v1::Sweep&) { return true; }, [] { return false; });
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(done, 800);
}

}  // namespace
}  // namespace ablate
