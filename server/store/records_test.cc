// Rows: what effects write is what a restart reads; results, curves and checkpoints; the views.
#include "server/store/records.h"

#include <cmath>
#include <limits>

#include "base/files.h"
#include "experiments/axes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler_test_util.h"
#include "server/store/store.h"
#include "server/store/user_query.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::Open({.data_dir = dir_.path()});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  absl::Status Write(const Store::Body& body) { return store_->Write(body); }
  template <typename T>
  T Read(const std::function<absl::StatusOr<T>(Connection&)>& body) {
    T value;
    const absl::Status status = store_->Read([&](Connection& db) -> absl::Status {
      ABLATE_ASSIGN_OR_RETURN(value, body(db));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return value;
  }
  // Rows as "a|b|c", through the users' door.
  std::vector<std::string> Rows(const std::string& sql) {
    std::vector<std::string> rows;
    const absl::Status status = Query(sql, &rows);
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }
  absl::Status Query(const std::string& sql, std::vector<std::string>* rows, int64_t max_rows = 0,
                     int64_t limit_ms = 0) {
    v1::QueryRequest request;
    request.set_sql(sql);
    request.set_max_rows(max_rows);
    request.set_time_limit_ms(limit_ms);
    return RunUserQuery(store_->path(), request, [&](const v1::QueryResponse& response) {
      for (const auto& row : response.rows()) {
        std::string text;
        for (int i = 0; i < row.cells_size(); ++i) {
          const auto& cell = row.cells(i);
          absl::StrAppend(&text, i == 0 ? "" : "|",
                          cell.has_integer() ? absl::StrCat(cell.integer())
                          : cell.has_real()  ? absl::StrCat(cell.real())
                          : cell.has_text()  ? cell.text()
                          : cell.has_blob()  ? "blob"
                                             : "NULL");
        }
        rows->push_back(text);
      }
      if (response.truncated()) rows->push_back("...");
      return true;
    });
  }

  // A sweep of `arms` arms and `seeds` seeds, each with one stage and `lengths` evaluations.
  SubmitPlan AddSweep(int arms, int seeds, int lengths) {
    SweepFile file{.yaml = "name: s\n", .file_name = "s.yaml"};
    file.spec.set_name("s");
    Plan plan;
    SubmitPlan submit;
    submit.sweep.name = "s";
    submit.sweep.sweep_id = "sweep_1";
    for (int seed = 0; seed < seeds; ++seed) plan.seeds.push_back(seed);
    for (int arm = 0; arm < arms; ++arm) {
      plan.arms.push_back({.json = absl::StrCat("{\"attention.p\":", arm, "}"), .label = absl::StrCat("p=", arm)});
      for (int seed = 0; seed < seeds; ++seed) {
        Point point{.arm = arm, .seed = seed, .stage = static_cast<int>(plan.stages.size())};
        plan.stages.push_back({.key = absl::StrCat("stage ", arm, " ", seed), .seed = seed, .to_step = 100});
        for (int i = 0; i < lengths; ++i) {
          point.evaluations.push_back(static_cast<int>(plan.evaluations.size()));
          plan.evaluations.push_back({.key = absl::StrCat("evaluation ", arm, " ", seed, " ", i),
                                      .stage = point.stage,
                                      .length_tokens = 128 << i,
                                      .split = "selection"});
        }
        plan.points.push_back(point);
      }
    }
    for (const PlannedStage& stage : plan.stages)
      submit.jobs.push_back({.kind = v1::STAGE, .key = stage.key, .to_step = 100});
    for (const PlannedEvaluation& evaluation : plan.evaluations) {
      submit.jobs.push_back({.kind = v1::EVALUATION, .key = evaluation.key, .parent = evaluation.stage});
    }
    rig_.Submit(submit);
    const SweepRecord record = rig_.sweep(1);
    const Effects effects = rig_.last;
    EXPECT_TRUE(Write([&](Connection& db) -> absl::Status {
                  ABLATE_RETURN_IF_ERROR(InsertSweep(db, record, file, plan));
                  return ApplyEffects(db, effects, 1);
                }).ok());
    return submit;
  }

  static v1::AttemptReport Result(v1::Outcome outcome, const std::vector<std::pair<std::string, double>>& metrics) {
    v1::AttemptReport report;
    report.set_attempt(1);
    report.set_phase(v1::AttemptReport::SUCCEEDED);
    report.mutable_result()->set_outcome(outcome);
    report.mutable_result()->set_device_kind("cpu/test");
    for (const auto& [name, value] : metrics) {
      v1::MetricValue* metric = report.mutable_result()->add_metrics();
      metric->set_metric(name);
      metric->set_value(value);
    }
    return report;
  }
  // The job of (arm, seed, length index) in a sweep of AddSweep.
  JobRef Evaluation(int arms, int seeds, int lengths, int arm, int seed, int length) {
    const JobRow row = arms * seeds + (arm * seeds + seed) * lengths + length + 1;
    return {row, v1::EVALUATION, rig_.job(row).key};
  }
  void Store1(const JobRef& job, const v1::AttemptReport& report) {
    const absl::Status status = Write([&](Connection& db) { return WriteResult(db, job, report, 5); });
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<std::string> Progress(const JobRef& job, const v1::AttemptReport& report) {
    std::vector<std::string> unreferenced;
    const absl::Status status = Write([&](Connection& db) { return WriteProgress(db, job, report, 5, &unreferenced); });
    EXPECT_TRUE(status.ok()) << status;
    return unreferenced;
  }
  static v1::AttemptReport Points(int64_t attempt, const std::vector<int64_t>& steps, double value,
                                  std::optional<int64_t> resumed = {}) {
    v1::AttemptReport report;
    report.set_attempt(attempt);
    if (resumed) report.set_resumed_from_step(*resumed);
    for (int64_t step : steps) {
      v1::CurvePoint* point = report.add_points();
      point->set_metric("train_loss");
      point->set_step(step);
      point->set_value(value);
    }
    return report;
  }
  void AddAttempt(JobRow job, int64_t attempt) {
    ASSERT_TRUE(Write([&](Connection& db) {
                  Effects effects;
                  effects.attempt_starts.push_back(
                      {.job = job, .attempt = attempt, .worker_id = "w", .incarnation = "i"});
                  return ApplyEffects(db, effects, 1);
                }).ok());
  }

  TempDir dir_;
  std::unique_ptr<Store> store_;
  SchedulerRig rig_;
};

void ExpectSame(const SchedulerSnapshot& a, const SchedulerSnapshot& b) {
  ASSERT_EQ(a.jobs.size(), b.jobs.size());
  for (size_t i = 0; i < a.jobs.size(); ++i) {
    const JobRecord &x = a.jobs[i], &y = b.jobs[i];
    EXPECT_EQ(x.row, y.row);
    EXPECT_EQ(x.job_id, y.job_id);
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.state, y.state) << x.job_id;
    EXPECT_EQ(x.key, y.key);
    EXPECT_EQ(x.parent, y.parent);
    EXPECT_EQ(x.retry_of, y.retry_of);
    EXPECT_EQ(x.attempt, y.attempt);
    EXPECT_EQ(x.attempt_state, y.attempt_state);
    EXPECT_EQ(x.failures, y.failures);
    EXPECT_EQ(x.failed_on, y.failed_on) << x.job_id;
    EXPECT_EQ(x.max_failures, y.max_failures);
    EXPECT_EQ(x.outcome, y.outcome);
    EXPECT_EQ(x.diverged_at_step, y.diverged_at_step);
    EXPECT_EQ(x.from_step, y.from_step);
    EXPECT_EQ(x.to_step, y.to_step);
    EXPECT_EQ(x.requirement, y.requirement);
    EXPECT_EQ(x.worker_id, y.worker_id);
    EXPECT_EQ(x.slot, y.slot);
    EXPECT_EQ(x.created_at_us, y.created_at_us);
    EXPECT_EQ(x.started_at_us, y.started_at_us);
    EXPECT_EQ(x.ended_at_us, y.ended_at_us);
    ASSERT_EQ(x.last_failure == nullptr, y.last_failure == nullptr);
    if (x.last_failure != nullptr) {
      EXPECT_EQ(x.last_failure->SerializeAsString(), y.last_failure->SerializeAsString());
    }
  }
  ASSERT_EQ(a.sweeps.size(), b.sweeps.size());
  for (size_t i = 0; i < a.sweeps.size(); ++i) {
    const SweepRecord &x = a.sweeps[i], &y = b.sweeps[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.state, y.state);
    EXPECT_EQ(x.keep, y.keep);
    EXPECT_EQ(x.priority, y.priority);
    EXPECT_EQ(x.ended_at_us, y.ended_at_us);
    EXPECT_EQ(x.paused, y.paused);
    EXPECT_EQ(x.pause_reason, y.pause_reason);
    EXPECT_EQ(x.max_failures, y.max_failures);
    EXPECT_THAT(x.jobs, ::testing::UnorderedElementsAreArray(y.jobs));
  }
  ASSERT_EQ(a.sweep_failures.size(), b.sweep_failures.size());
  for (size_t i = 0; i < a.sweep_failures.size(); ++i) {
    const SweepFailures &x = a.sweep_failures[i], &y = b.sweep_failures[i];
    EXPECT_EQ(std::tie(x.sweep, x.signature, x.failures, x.since_resume, x.last_job),
              std::tie(y.sweep, y.signature, y.failures, y.since_resume, y.last_job));
  }
  ASSERT_EQ(a.workers.size(), b.workers.size());
  for (size_t i = 0; i < a.workers.size(); ++i) {
    EXPECT_EQ(a.workers[i].info.SerializeAsString(), b.workers[i].info.SerializeAsString());
    EXPECT_EQ(a.workers[i].drain_asked, b.workers[i].drain_asked);
    EXPECT_EQ(a.workers[i].retired_incarnations, b.workers[i].retired_incarnations);
  }
}

TEST_F(RecordsTest, WhatEffectsWroteIsWhatARestartReads) {
  AddSweep(2, 2, 2);
  ExpectSame(Read<SchedulerSnapshot>([](Connection& db) { return LoadSnapshot(db); }), rig_.store.Snapshot());
  const auto persist = [&] {
    const Effects effects = rig_.last;
    const absl::Status status = Write([&](Connection& db) { return ApplyEffects(db, effects, 1); });
    ASSERT_TRUE(status.ok()) << status;
    ExpectSame(Read<SchedulerSnapshot>([](Connection& db) { return LoadSnapshot(db); }), rig_.store.Snapshot());
  };
  WorkerHand worker(&rig_, "w", 3, "cpu");
  worker.info.add_labels("a \"label\"");
  worker.Sync();
  persist();
  ASSERT_EQ(rig_.state(1), v1::RUNNING);
  worker.Sync({worker.Success(1), worker.Diverged(2, 17), worker.Failure(3, v1::OUT_OF_MEMORY)});
  persist();
  rig_.Advance(1'000'000);
  worker.Sync();
  persist();
  worker.Sync({worker.Failure(3, v1::INVALID_CONFIG)});
  persist();
  rig_.Drain("w");
  persist();
  worker.info.set_incarnation("two");
  worker.Sync();
  persist();
  rig_.Advance(100'000'000);
  rig_.Tick();
  persist();
  rig_.Retry(1);
  persist();
  (void)rig_.CancelSweep(1);
  persist();
}

// What a sweep's breaker knows survives the coordinator.
TEST_F(RecordsTest, FailuresAndPausesAreReadBack) {
  AddSweep(2, 2, 0);
  const auto apply = [&] {
    const Effects effects = rig_.last;
    ASSERT_TRUE(Write([&](Connection& db) { return ApplyEffects(db, effects, 7); }).ok());
  };
  ASSERT_TRUE(rig_.Resume(1).code() == absl::StatusCode::kFailedPrecondition);
  WorkerHand worker(&rig_, "w", 1);
  for (int i = 0; i < 52 && !rig_.sweep(1).paused; ++i) {
    const SyncDecision decision = worker.Sync();
    apply();
    if (decision.desired.empty()) break;
    worker.Sync({worker.Failure(decision.desired[0].job, v1::TIMEOUT)});
    apply();
    rig_.Advance(100'000'000);
  }
  ExpectSame(Read<SchedulerSnapshot>(LoadSnapshot), rig_.store.Snapshot());
  EXPECT_THAT(Rows("SELECT signature, failures, since_resume FROM sweep_failures"),
              ElementsAre("timeout: broken|12|12"));
  EXPECT_EQ(rig_.job(1).failed_on.size(), 3u);
}

// The last word on it is the database's.
TEST_F(RecordsTest, ASlotHasOneJobAtATime) {
  AddSweep(2, 2, 2);
  const auto grant = [&](std::vector<JobRow> jobs, int32_t slot, int64_t attempt = 1) {
    return Write([&](Connection& db) -> absl::Status {
      Effects effects;
      WorkerRecord worker;
      worker.info.set_worker_id("w");
      worker.info.set_incarnation("i");
      worker.info.set_slots(2);
      effects.workers.push_back(worker);
      for (JobRow job : jobs) {
        JobRecord record = rig_.job(job);
        record.state = v1::RUNNING;
        record.attempt = attempt;
        effects.changed.push_back(record);
        effects.attempt_starts.push_back(
            {.job = job, .attempt = attempt, .worker_id = "w", .incarnation = "i", .slot = slot});
      }
      return ApplyEffects(db, effects, 1);
    });
  };
  EXPECT_TRUE(grant({1}, 0).ok());
  EXPECT_THAT(std::string(grant({2}, 0).message()), HasSubstr("two jobs on one slot"));
  EXPECT_THAT(std::string(grant({2}, 2).message()), HasSubstr("a worker has no such slot"));
  EXPECT_THAT(std::string(grant({2}, -1).message()), HasSubstr("a worker has no such slot"));
  EXPECT_TRUE(Rows("SELECT 1 FROM attempts WHERE job = 2").empty());
  // Evaluations of one state share a slot; those of another state, or a stage, do not join them.
  EXPECT_TRUE(grant({5, 6}, 1).ok());
  EXPECT_FALSE(grant({7}, 1).ok());
  EXPECT_FALSE(grant({3}, 1).ok());
  // What has ended makes room.
  ASSERT_TRUE(Write([&](Connection& db) -> absl::Status {
                Effects effects;
                effects.attempt_changes.push_back({.job = 1, .attempt = 1, .state = AttemptState::kLost});
                return ApplyEffects(db, effects, 1);
              }).ok());
  EXPECT_TRUE(grant({2}, 0).ok());
  // And the one that was thought lost may not come back to it.
  EXPECT_FALSE(Write([&](Connection& db) -> absl::Status {
                 Effects effects;
                 effects.attempt_changes.push_back({.job = 1, .attempt = 1, .state = AttemptState::kRunning});
                 return ApplyEffects(db, effects, 1);
               }).ok());
}

TEST_F(RecordsTest, WordsOfStatesCompareWithoutRegardToCase) {
  AddSweep(1, 1, 1);
  EXPECT_THAT(Rows("SELECT COUNT(*) FROM jobs WHERE state = 'BLOCKED'"), ElementsAre("1"));
  EXPECT_THAT(Rows("SELECT state FROM jobs ORDER BY row"), ElementsAre("QUEUED", "BLOCKED"));
}

TEST_F(RecordsTest, NotANumberAndInfinitiesSurvive) {
  AddSweep(1, 1, 1);
  const double infinity = std::numeric_limits<double>::infinity();
  Store1(Evaluation(1, 1, 1, 0, 0, 0),
         Result(v1::COMPLETED, {{"loss", 2.5}, {"a", std::nan("")}, {"b", infinity}, {"c", -infinity}}));
  v1::Job job;
  job.set_kind(v1::EVALUATION);
  job.set_state(v1::SUCCEEDED);
  job.set_key("evaluation 0 0 0");
  ASSERT_TRUE(store_->Read([&](Connection& db) { return ReadJobDetails(db, 2, &job); }).ok());
  ASSERT_EQ(job.metrics_size(), 4);
  EXPECT_TRUE(std::isnan(job.metrics(0).value()));
  EXPECT_EQ(job.metrics(1).value(), infinity);
  EXPECT_EQ(job.metrics(2).value(), -infinity);
  EXPECT_EQ(job.metrics(3).value(), 2.5);
  EXPECT_EQ(job.arm_label(), "p=0");
  EXPECT_THAT(Rows("SELECT metric, value, status, non_finite FROM results ORDER BY metric"),
              ElementsAre("a|NULL|diverged|nan", "b|NULL|diverged|inf", "c|NULL|diverged|-inf", "loss|2.5|ok|NULL"));
}

TEST_F(RecordsTest, ALaterResultReplacesAllOfTheEarlierOne) {
  AddSweep(1, 1, 1);
  const JobRef job = Evaluation(1, 1, 1, 0, 0, 0);
  Store1(job, Result(v1::DIVERGED, {}));
  EXPECT_THAT(Rows("SELECT metric, value, status FROM results ORDER BY metric"),
              ElementsAre("loss|NULL|diverged", "loss_targets|NULL|diverged"));
  Store1(job, Result(v1::COMPLETED, {{"loss", 3}}));
  EXPECT_THAT(Rows("SELECT metric, value, status FROM results"), ElementsAre("loss|3|ok"));
}

TEST_F(RecordsTest, AResumedAttemptReplacesThePointsAfterItsResumeStep) {
  AddSweep(1, 1, 1);
  const JobRef job{1, v1::STAGE, rig_.job(1).key};
  AddAttempt(1, 1);
  Progress(job, Points(1, {10, 20, 30}, 1));
  Progress(job, Points(1, {40, 50}, 1));
  const auto curve = [&] { return Rows("SELECT step || ':' || value FROM curves ORDER BY step"); };
  EXPECT_THAT(curve(), ElementsAre("10:1.0", "20:1.0", "30:1.0", "40:1.0", "50:1.0"));
  // A crash at 52 with a checkpoint at 25: 30 to 50 must not be there twice, nor stay when this attempt logs otherwise.
  AddAttempt(1, 2);
  Progress(job, Points(2, {35}, 2, 25));
  EXPECT_THAT(curve(), ElementsAre("10:1.0", "20:1.0", "35:2.0"));
  Progress(job, Points(2, {45}, 2, 25));
  EXPECT_THAT(curve(), ElementsAre("10:1.0", "20:1.0", "35:2.0", "45:2.0"));
  // Without a stated step, the first point says it.
  AddAttempt(1, 3);
  Progress(job, Points(3, {40}, 3));
  EXPECT_THAT(curve(), ElementsAre("10:1.0", "20:1.0", "35:2.0", "40:3.0"));
  EXPECT_THAT(Rows("SELECT attempt, resumed_from_step FROM attempts ORDER BY attempt"),
              ElementsAre("1|NULL", "2|25", "3|NULL"));
}

TEST_F(RecordsTest, CheckpointsAreHandedOutAndCollected) {
  AddSweep(1, 1, 1);
  const JobRef job{1, v1::STAGE, rig_.job(1).key};
  const auto checkpoint = [](int64_t step, const std::string& weights, const std::string& optimizer) {
    v1::AttemptReport report;
    report.set_attempt(1);
    report.mutable_checkpoint()->set_step(step);
    report.mutable_checkpoint()->mutable_weights()->set_sha256(weights);
    report.mutable_checkpoint()->mutable_weights()->set_bytes(7);
    report.mutable_checkpoint()->mutable_optimizer()->set_sha256(optimizer);
    return report;
  };
  AddAttempt(1, 1);
  EXPECT_THAT(Progress(job, checkpoint(10, "w10", "o10")), ElementsAre());
  EXPECT_THAT(Progress(job, checkpoint(20, "w20", "o20")), ElementsAre("w10", "o10"));
  const auto task = [&](v1::JobKind kind, const std::string& key) {
    return Read<v1::Task>([&](Connection& db) { return ReadTask(db, kind, key); });
  };
  EXPECT_EQ(task(v1::STAGE, job.key).stage().start().step(), 20);
  EXPECT_EQ(task(v1::STAGE, job.key).stage().start().optimizer().sha256(), "o20");
  // A checkpoint that lost a file is passed over, and that is told.
  for (const std::string gone : {"w20", "o20"}) {
    std::vector<std::string> lost;
    const v1::Task without = Read<v1::Task>([&](Connection& db) {
      return ReadTask(
          db, v1::STAGE, job.key, [&](const std::string& sha256) { return sha256 != gone; }, &lost);
    });
    EXPECT_FALSE(without.stage().has_start()) << gone;
    EXPECT_THAT(lost, ElementsAre(::testing::HasSubstr("at step 20: artifact " + gone + " is gone")));
  }
  EXPECT_THAT(Read<std::set<std::string>>([](Connection& db) { return ReadNamedArtifacts(db); }),
              ::testing::IsSupersetOf({"w20", "o20"}));

  v1::AttemptReport end = Result(v1::COMPLETED, {{"max_gradient_norm", 1}});
  end.mutable_result()->mutable_end_state()->set_step(100);
  end.mutable_result()->mutable_end_state()->mutable_weights()->set_sha256("w20");  // the same content as another one
  end.mutable_result()->mutable_end_state()->mutable_optimizer()->set_sha256("o100");
  Store1(job, end);
  const v1::EvaluationTask evaluation = task(v1::EVALUATION, "evaluation 0 0 0").evaluation();
  EXPECT_EQ(evaluation.state().weights().sha256(), "w20");
  EXPECT_FALSE(evaluation.state().has_optimizer());

  const auto collect = [&](StateCollection collection) {
    std::vector<std::string> unreferenced;
    collection.stage_key = job.key;
    EXPECT_TRUE(Write([&](Connection& db) { return CollectStates(db, {collection}, &unreferenced); }).ok());
    return unreferenced;
  };
  EXPECT_THAT(collect({.periodic = true}), ElementsAre("o20"));  // w20 is still the end state
  EXPECT_THAT(collect({.optimizer = true}), ElementsAre("o100"));
  EXPECT_THAT(Read<SchedulerSnapshot>([](Connection& db) { return LoadSnapshot(db); }).states, ::testing::SizeIs(1));
  EXPECT_THAT(collect({.weights = true}), ElementsAre("w20"));
  EXPECT_FALSE(task(v1::EVALUATION, "evaluation 0 0 0").evaluation().has_state());
  EXPECT_THAT(Rows("SELECT COUNT(*) FROM checkpoints"), ElementsAre("0"));
}

TEST_F(RecordsTest, ConfidenceIntervalsCountWhatDivergedAndWhatIsMissing) {
  AddSweep(3, 4, 1);
  // Arm 0: large values close together, where a one-pass variance fails; arm 1: one value, two diverged, one missing;
  // arm 2: all equal.
  for (int seed = 0; seed < 3; ++seed) {
    Store1(Evaluation(3, 4, 1, 0, seed, 0), Result(v1::COMPLETED, {{"loss", 1e9 + seed}}));
  }
  Store1(Evaluation(3, 4, 1, 0, 3, 0), Result(v1::DIVERGED, {}));
  Store1(Evaluation(3, 4, 1, 1, 0, 0), Result(v1::COMPLETED, {{"loss", 2}}));
  Store1(Evaluation(3, 4, 1, 1, 2, 0), Result(v1::DIVERGED, {}));
  Store1(Evaluation(3, 4, 1, 1, 3, 0), Result(v1::DIVERGED, {}));
  for (int seed = 0; seed < 4; ++seed) Store1(Evaluation(3, 4, 1, 2, seed, 0), Result(v1::COMPLETED, {{"loss", 0.1}}));
  EXPECT_THAT(Rows("SELECT arm, n, mean - 1e9, sd, low IS NULL, seeds, diverged, diverged_seeds, missing, reason FROM "
                   "confidence_intervals "
                   "WHERE metric = 'loss' AND arm_position = 0"),
              ElementsAre("{\"attention.p\":0}|3|1|1|0|[0,1,2]|1|[3]|0|"));
  const std::vector<std::string> width = Rows(
      "SELECT round((high - low) / 2, 6) FROM confidence_intervals_by_level WHERE metric = 'loss' AND arm_position = 0 "
      "ORDER BY level");
  EXPECT_THAT(width, ElementsAre("1.68585", "2.48414", "5.73011"));  // t(2 df) / sqrt(3) at 90, 95 and 99 %
  EXPECT_THAT(Rows("SELECT n, mean, sd, low, high, diverged, missing, reason FROM confidence_intervals WHERE metric = "
                   "'loss' AND arm_position = 1"),
              ElementsAre("1|2|NULL|NULL|NULL|2|1|one seed: no interval"));
  EXPECT_THAT(
      Rows("SELECT n, low, high, missing, reason FROM confidence_intervals WHERE metric = 'loss' AND arm_position = 2"),
      ElementsAre("4|NULL|NULL|0|no variance: no interval"));
  EXPECT_THAT(
      Rows("SELECT n, mean, reason FROM confidence_intervals WHERE metric = 'loss_targets' AND arm_position = 1"),
      ElementsAre("0|NULL|no value: every seed diverged"));
}

TEST_F(RecordsTest, QueriesOfUsersOnlyRead) {
  AddSweep(1, 1, 1);
  std::vector<std::string> rows;
  for (const char* sql : {"DELETE FROM jobs", "INSERT INTO requests VALUES ('a', 'b', x'00', 1)", "DROP VIEW results",
                          "ATTACH 'other.db' AS o", "PRAGMA journal_mode = DELETE", "PRAGMA user_version = 3",
                          "SELECT load_extension('x')", "VACUUM", "CREATE TEMP TABLE t (a)", "BEGIN IMMEDIATE"}) {
    EXPECT_EQ(Query(sql, &rows).code(), absl::StatusCode::kPermissionDenied) << sql << Query(sql, &rows);
  }
  // What would take all memory, disk or time. Each is refused with its reason.
  const std::string numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) ";
  const std::string few = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) ";
  const std::vector<std::pair<std::string, const char*>> bombs = {
      {"SELECT randomblob(1000000000)", "16.0 MiB"},
      {"SELECT zeroblob(100000000)", "16.0 MiB"},
      {"SELECT hex(zeroblob(10000000))", "16.0 MiB"},
      {"SELECT replace(replace(hex(zeroblob(100000)), '0', hex(zeroblob(1000))), '0', hex(zeroblob(1000)))", "16.0 MiB"},
      {few + "SELECT group_concat(hex(zeroblob(10000))) FROM n", "16.0 MiB"},
      {few + "SELECT json_group_array(hex(zeroblob(10000))) FROM n", "16.0 MiB"},
      {numbers + "SELECT hex(zeroblob(1000000)) FROM n ORDER BY i DESC", "512.0 MiB"},
      {numbers + "SELECT hex(zeroblob(1000000)) FROM n", "256.0 MiB"},
      {"SELECT 'x' LIKE hex(zeroblob(1000))", "too complex"},
      {"SELECT 'x' GLOB hex(zeroblob(1000))", "too complex"},
      {"SELECT " + std::string(1000, '(') + "1" + std::string(1000, ')'), "overflow"},
      {"SELECT 1" + [] { std::string more; for (int i = 0; i < 200; ++i) more += " UNION ALL SELECT 1"; return more; }(),
       "too many terms"},
      {"SELECT 1 -- " + std::string(2 << 20, 'x'), "1 MiB"},
      {"SELECT * FROM pragma_journal_mode('DELETE')", "only reading"},
      {"SELECT writefile('/tmp/x', 'y')", "no such function"},
  };
  for (const auto& [sql, reason] : bombs) {
    const absl::Status status = Query(sql, &rows, 10'000'000, 600'000);  // time is not what ends them
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason)) << sql.substr(0, 100) << status;
    EXPECT_NE(status.code(), absl::StatusCode::kInternal) << sql.substr(0, 100) << status;
    rows.clear();
  }
  EXPECT_EQ(Query("SELECT 1", &rows, 0, 1'000'000).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Query("SELECT 1; SELECT 2", &rows).code(), absl::StatusCode::kInvalidArgument);
  for (const char* sql : {"SELECT nothing", "SELECT name FROMsliq", "SELECT name FROMsliq se_master", "SELECT 1 LIMIT 'x'",
                          "SELECT 1 FROM jobs LIMIT 1 OFFSET 'x'", "SELECT abs(-9223372036854775808)", "SELECT json('{')",
                          "SELECT 1 FROM jobs WHERE", "SELECT ?9999999", "SELECT nowhere.x FROM jobs", "SELECT nofunction(1)",
                          "SELECT 1 FROM pragma_table_info('jobs') WHERE \"a", "VALUES (1), (1, 2)"}) {
    EXPECT_EQ(Query(sql, &rows).code(), absl::StatusCode::kInvalidArgument) << sql << ": " << Query(sql, &rows);
  }
  EXPECT_EQ(Query("", &rows).code(), absl::StatusCode::kInvalidArgument);
  rows.clear();
  EXPECT_TRUE(Query("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3; -- done", &rows, 2).ok());
  EXPECT_THAT(rows, ElementsAre("1", "2", "..."));
  EXPECT_EQ(
      Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n", &rows, 0, 50)
          .code(),
      absl::StatusCode::kDeadlineExceeded);
  rows.clear();
  EXPECT_TRUE(Query("SELECT CAST(x'ff' AS TEXT), 9e999, NULL", &rows).ok());
  EXPECT_THAT(rows, ElementsAre("blob|inf|NULL"));
}

TEST_F(RecordsTest, TheDocumentsQueriesRun) {
  AddSweep(2, 2, 2);
  for (int arm = 0; arm < 2; ++arm) {
    for (int seed = 0; seed < 2; ++seed) {
      for (int i = 0; i < 2; ++i) {
        Store1(Evaluation(2, 2, 2, arm, seed, i),
               Result(v1::COMPLETED, {{"loss", 1.0 * seed}, {"loss_targets", 2.0 * i + seed}}));
      }
    }
  }
  const auto text = ReadFile(ABLATE_DOCS_DIR "/results-database.md");
  ASSERT_TRUE(text.ok());
  int queries = 0;
  for (size_t at = text->find("```sql\n"); at != std::string::npos; at = text->find("```sql\n", at + 1)) {
    const size_t begin = at + 7, end = text->find("```", begin);
    std::vector<std::string> rows;
    const absl::Status status = Query(text->substr(begin, end - begin), &rows);
    EXPECT_TRUE(status.ok()) << status << text->substr(begin, end - begin);
    ++queries;
  }
  EXPECT_GE(queries, 8);
  // Every table and view is in the document.
  for (const std::string& name :
       Rows("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")) {
    EXPECT_THAT(*text, HasSubstr("`" + name)) << name;
  }
}

}  // namespace
}  // namespace ablate
