// For tests of the scheduler: a store in memory that is fed by effects alone, and hands that play workers.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"

namespace ablate {

// What the real store would hold: nothing but what effects and accepted results said.
class SnapshotStore {
 public:
  void Apply(const Effects& effects) {
    for (const JobRecord& job : effects.created) jobs_[job.row] = job;
    for (const JobRecord& job : effects.changed) {
      ASSERT_TRUE(jobs_.contains(job.row)) << "a job changed before it was made";
      // Terminal is final.
      const v1::JobState before = jobs_[job.row].state;
      ASSERT_TRUE(!IsTerminal(before) || before == job.state) << job.job_id;
      ASSERT_GE(job.attempt, jobs_[job.row].attempt) << job.job_id;
      jobs_[job.row] = job;
    }
    for (const SweepRecord& sweep : effects.sweeps) {
      std::vector<JobRow> jobs = std::move(sweeps_[sweep.row].jobs);
      std::vector<JobRow> sealed = std::move(sweeps_[sweep.row].sealed_jobs);
      sweeps_[sweep.row] = sweep;
      sweeps_[sweep.row].jobs = std::move(jobs);
      sweeps_[sweep.row].sealed_jobs = std::move(sealed);
    }
    for (const SweepJobChange& change : effects.sweep_jobs) {
      std::vector<JobRow>& jobs = sweeps_[change.sweep].jobs;
      if (change.attached) {
        ASSERT_EQ(std::count(jobs.begin(), jobs.end(), change.job), 0) << "attached twice";
        jobs.push_back(change.job);
        if (change.sealed) sweeps_[change.sweep].sealed_jobs.push_back(change.job);
      } else {
        ASSERT_EQ(std::erase(jobs, change.job), 1u) << "detached, but was not attached";
        std::erase(sweeps_[change.sweep].sealed_jobs, change.job);
      }
    }
    for (const SweepJobChange& change : effects.unsealed) {
      ASSERT_EQ(std::erase(sweeps_[change.sweep].sealed_jobs, change.job), 1u) << "unsealed, but was not sealed";
    }
    for (const AttemptChange& change : effects.attempt_changes) {
      const auto attempt = attempts_.find({change.job, change.attempt});
      ASSERT_NE(attempt, attempts_.end());
      attempt->second = change.state;
    }
    for (const AttemptStart& start : effects.attempt_starts) {
      ASSERT_FALSE(jobs_[start.job].sealed) << "a sealed job was leased";
      ASSERT_TRUE(attempts_.emplace(std::pair(start.job, start.attempt), AttemptState::kRunning).second)
          << "attempt " << start.attempt << " of job row " << start.job << " was granted twice";
    }
    for (const Transition& transition : effects.transitions) {
      edges_.insert({transition.from, transition.to, transition.cause});
    }
    for (JobRow job : effects.diverged_unrun) RecordResult(job);
    for (const SweepFailures& failures : effects.sweep_failures) {
      sweep_failures_[{failures.sweep, failures.signature}] = failures;
    }
    for (const WorkerRecord& worker : effects.workers) {
      WorkerRecord& stored = workers_[worker.info.worker_id()];
      std::vector<std::string> retired = std::move(stored.retired_incarnations);
      if (!stored.info.incarnation().empty() && stored.info.incarnation() != worker.info.incarnation()) {
        retired.push_back(stored.info.incarnation());
      }
      stored = worker;
      stored.retired_incarnations = std::move(retired);
    }
    for (const StateCollection& collection : effects.collections) {
      if (collection.weights) states_[collection.stage_key].weights = false;
      if (collection.optimizer) states_[collection.stage_key].optimizer = false;
    }
  }

  // Before Apply of the same event, as the real store does before collections.
  void ApplyResult(const JobRecord& job, const v1::TaskResult& result) {
    const auto& [row, key, kind] = std::tie(job.row, job.key, job.kind);
    RecordResult(row);
    if (job.verify_of != 0 || kind != v1::STAGE || result.outcome() != v1::COMPLETED) return;
    const v1::CheckpointRef& state = result.end_state();
    states_[key] = {key, !state.weights().sha256().empty(), !state.optimizer().sha256().empty(),
                    state.weights().sha256(), state.optimizer().sha256()};
  }

  SchedulerSnapshot Snapshot() const {
    SchedulerSnapshot snapshot;
    for (const auto& [row, job] : jobs_) snapshot.jobs.push_back(job);
    for (const auto& [row, sweep] : sweeps_) snapshot.sweeps.push_back(sweep);
    for (const auto& [id, worker] : workers_) snapshot.workers.push_back(worker);
    for (const auto& [key, state] : states_) snapshot.states.push_back(state);
    for (const auto& [key, failures] : sweep_failures_) snapshot.sweep_failures.push_back(failures);
    return snapshot;
  }

  using Edge = std::tuple<v1::JobState, v1::JobState, Cause>;
  const std::set<Edge>& edges() const { return edges_; }
  // How often a job's result was recorded.
  int results(JobRow row) const { return results_.contains(row) ? results_.at(row) : 0; }
  AttemptState attempt(JobRow row, int64_t number) const { return attempts_.at({row, number}); }

 private:
  void RecordResult(JobRow row) { ASSERT_EQ(++results_[row], 1) << "job row " << row << " was recorded twice"; }

  std::map<JobRow, JobRecord> jobs_;
  std::map<SweepRow, SweepRecord> sweeps_;
  std::map<std::string, WorkerRecord> workers_;
  std::map<std::string, StateAvailability> states_;
  std::map<std::pair<JobRow, int64_t>, AttemptState> attempts_;
  std::map<JobRow, int> results_;
  std::map<std::pair<SweepRow, std::string>, SweepFailures> sweep_failures_;
  std::set<Edge> edges_;
};

// A scheduler with its store. After each event the invariants are checked.
class SchedulerRig {
 public:
  explicit SchedulerRig(SchedulerOptions options = {}) : options_(std::move(options)) {
    scheduler = std::make_unique<Scheduler>(options_, &ids_);
  }

  Now now() const { return {monotonic_us, wall_us}; }
  void Advance(int64_t us) {
    monotonic_us += us;
    wall_us += us;
  }

  void Done(const Effects& effects) {
    store.Apply(effects);
    last = effects;
    if (check) {
      ASSERT_EQ(scheduler->CheckInvariants(), "");
    }
  }

  SubmitOutcome Submit(const SubmitPlan& plan) {
    Effects effects;
    auto outcome = scheduler->OnSubmit(plan, now(), &effects);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    Done(effects);
    return outcome.value_or(SubmitOutcome());
  }
  absl::Status CancelSweep(SweepRow sweep) {
    Effects effects;
    const absl::Status status = scheduler->OnCancelSweep(sweep, now(), &effects);
    Done(effects);
    return status;
  }
  absl::Status CancelJob(JobRow job) {
    Effects effects;
    const absl::Status status = scheduler->OnCancelJob(job, now(), &effects);
    Done(effects);
    return status;
  }
  int64_t Retry(SweepRow sweep) {
    Effects effects;
    auto count = scheduler->OnRetry(sweep, now(), &effects);
    EXPECT_TRUE(count.ok()) << count.status();
    Done(effects);
    return count.value_or(-1);
  }
  absl::Status Resume(SweepRow sweep, std::optional<int32_t> max_failures = std::nullopt) {
    Effects effects;
    const absl::Status status = scheduler->OnResume(sweep, max_failures, now(), &effects);
    Done(effects);
    return status;
  }
  SubmitOutcome Change(const PlanChange& change) {
    Effects effects;
    auto outcome = scheduler->OnPlanChange(change, now(), &effects);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    Done(effects);
    return outcome.value_or(SubmitOutcome());
  }
  absl::StatusOr<JobRow> Verify(JobRow job) {
    Effects effects;
    auto made = scheduler->OnVerify({job}, now(), &effects);
    Done(effects);
    if (!made.ok()) return made.status();
    return made->front();
  }
  // Where the sweep stands, to be changed.
  PlanChange ChangeOf(SweepRow row) const {
    PlanChange change;
    change.sweep = sweep(row);
    change.requirement.device = "cpu";
    return change;
  }
  void Tick() {
    Effects effects;
    scheduler->OnTick(now(), &effects);
    Done(effects);
  }
  void Drain(const std::string& worker) {
    Effects effects;
    EXPECT_TRUE(scheduler->OnDrain(worker, now(), &effects).ok());
    Done(effects);
  }
  absl::StatusOr<SyncDecision> Sync(const v1::SyncRequest& request) {
    Effects effects;
    auto decision = scheduler->OnSync(request, now(), &effects);
    if (decision.ok()) {
      for (int index : decision->results) {
        const v1::AttemptReport& report = request.attempts(index);
        const JobRecord& job = scheduler->FindJob(report.job_id())->record;
        EXPECT_EQ(report.attempt(), job.attempt) << "an old attempt's result was accepted";
        store.ApplyResult(job, report.result());
      }
    }
    Done(effects);
    return decision;
  }
  // Whether effects alone told the store everything; the first difference, or "".
  std::string WhatTheStoreMissed() const {
    const SchedulerSnapshot snapshot = store.Snapshot();
    if (snapshot.jobs.size() != scheduler->job_count()) return "some jobs";
    for (const JobRecord& stored : snapshot.jobs) {
      const JobRecord& job = scheduler->job(stored.row).record;
      if (stored.state != job.state || stored.parent != job.parent || stored.attempt != job.attempt ||
          stored.attempt_state != job.attempt_state || stored.failures != job.failures ||
          stored.failed_on != job.failed_on || stored.outcome != job.outcome || stored.diverged_at_step != job.diverged_at_step ||
          stored.worker_id != job.worker_id || stored.slot != job.slot || stored.ended_at_us != job.ended_at_us ||
          stored.sealed != job.sealed || stored.verify_of != job.verify_of) {
        return "of job " + job.job_id;
      }
    }
    if (snapshot.sweeps.size() != scheduler->sweep_count()) return "some sweeps";
    for (const SweepRecord& stored : snapshot.sweeps) {
      const SweepRecord& sweep = scheduler->sweep(stored.row).record;
      const std::set<JobRow> stored_jobs(stored.jobs.begin(), stored.jobs.end()),
          jobs(sweep.jobs.begin(), sweep.jobs.end());
      const std::set<JobRow> sealed(stored.sealed_jobs.begin(), stored.sealed_jobs.end());
      const auto& known = scheduler->sweep(stored.row).sealed;
      if (stored.pending != sweep.pending || stored.phase != sweep.phase ||
          sealed != std::set<JobRow>(known.begin(), known.end())) {
        return "of the seal of sweep " + sweep.name;
      }
      if (stored.paused != sweep.paused || stored.pause_reason != sweep.pause_reason ||
          stored.max_failures != sweep.max_failures) {
        return "of the breaker of sweep " + sweep.name;
      }
      if (stored.state != sweep.state || stored.ended_at_us != sweep.ended_at_us || stored_jobs != jobs)
        return "of sweep " + sweep.name;
    }
    std::map<SweepRow, size_t> signatures;
    for (const SweepFailures& stored : snapshot.sweep_failures) {
      const auto& known = scheduler->sweep(stored.sweep).failures;
      const auto found = known.find(stored.signature);
      if (found == known.end() || found->second.failures != stored.failures ||
          found->second.since_resume != stored.since_resume || found->second.last_job != stored.last_job) {
        return "of the failures \"" + stored.signature + "\"";
      }
      ++signatures[stored.sweep];
    }
    for (SweepRow row = 1; row <= static_cast<SweepRow>(scheduler->sweep_count()); ++row) {
      if (signatures[row] != scheduler->sweep(row).failures.size()) return "some signatures of failures";
    }
    for (const StateAvailability& state : snapshot.states) {
      if (state.weights != scheduler->StateAvailable(state.stage_key, false)) return "weights of " + state.stage_key;
      if ((state.weights && state.optimizer) != scheduler->StateAvailable(state.stage_key, true))
        return "optimizer of " + state.stage_key;
    }
    return "";
  }

  // The coordinator dies and comes back with what the store holds.
  void Restart() {
    ASSERT_EQ(WhatTheStoreMissed(), "");
    scheduler = std::make_unique<Scheduler>(options_, &ids_);
    monotonic_us = 7;  // another boot: only differences may count
    const absl::Status status = scheduler->OnRestart(store.Snapshot(), now());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(scheduler->CheckInvariants(), "");
  }

  const JobRecord& job(JobRow row) const { return scheduler->job(row).record; }
  v1::JobState state(JobRow row) const { return job(row).state; }
  const SweepRecord& sweep(SweepRow row) const { return scheduler->sweep(row).record; }

  std::unique_ptr<Scheduler> scheduler;
  SnapshotStore store;
  Effects last;
  bool check = true;
  int64_t monotonic_us = 1'000'000'000;
  int64_t wall_us = 1'700'000'000'000'000;

 private:
  const SchedulerOptions options_;
  CountingIdGenerator ids_;
};

// One worker's side of the link, by hand.
class WorkerHand {
 public:
  WorkerHand(SchedulerRig* rig, std::string id, int slots, const std::string& device = "cpu",
             v1::Executor executor = v1::EXECUTOR_TRAINER)
      : rig_(rig) {
    info.set_worker_id(std::move(id));
    info.set_incarnation("one");
    info.set_device_class(device);
    info.set_slots(slots);
    info.set_memory_bytes(int64_t{8} << 30);
    info.set_executor(executor);
  }

  // The next request, with `reports`.
  v1::SyncRequest Request(const std::vector<v1::AttemptReport>& reports = {}) {
    v1::SyncRequest request;
    request.set_protocol_version(kProtocolVersion);
    *request.mutable_worker() = info;
    request.set_sequence(++sequence);
    request.set_draining(draining);
    for (const std::string& key : held) request.add_held_stage_keys(key);
    for (const v1::AttemptReport& report : reports) *request.add_attempts() = report;
    return request;
  }
  SyncDecision Sync(const std::vector<v1::AttemptReport>& reports = {}) {
    auto decision = rig_->Sync(Request(reports));
    EXPECT_TRUE(decision.ok()) << decision.status();
    return decision.value_or(SyncDecision());
  }

  // Reports about a job's latest attempt (or `attempt`).
  v1::AttemptReport Report(JobRow row, v1::AttemptReport::Phase phase, int64_t attempt = 0) const {
    const JobRecord& job = rig_->job(row);
    v1::AttemptReport report;
    report.set_job_id(job.job_id);
    report.set_attempt(attempt == 0 ? job.attempt : attempt);
    report.set_slot(job.slot);
    report.set_phase(phase);
    return report;
  }
  v1::AttemptReport Running(JobRow row, int64_t step = 0) const {
    v1::AttemptReport report = Report(row, v1::AttemptReport::RUNNING);
    report.set_step(step);
    return report;
  }
  v1::AttemptReport Success(JobRow row, bool optimizer = true) const {
    v1::AttemptReport report = Report(row, v1::AttemptReport::SUCCEEDED);
    report.mutable_result()->set_outcome(v1::COMPLETED);
    if (rig_->job(row).kind == v1::STAGE) {
      report.mutable_result()->mutable_end_state()->mutable_weights()->set_sha256("weights of " + rig_->job(row).key);
      if (optimizer) report.mutable_result()->mutable_end_state()->mutable_optimizer()->set_sha256("optimizer");
    }
    return report;
  }
  v1::AttemptReport Diverged(JobRow row, int64_t step) const {
    v1::AttemptReport report = Report(row, v1::AttemptReport::SUCCEEDED);
    report.mutable_result()->set_outcome(v1::DIVERGED);
    report.mutable_result()->set_diverged_at_step(step);
    return report;
  }
  v1::AttemptReport Failure(JobRow row, v1::FailureKind kind) const {
    v1::AttemptReport report = Report(row, v1::AttemptReport::FAILED);
    report.mutable_failure()->set_kind(kind);
    report.mutable_failure()->set_message("broken");
    return report;
  }

  v1::WorkerInfo info;
  int64_t sequence = 0;
  bool draining = false;
  std::vector<std::string> held;

 private:
  SchedulerRig* const rig_;
};

// A sweep of `trainings` stages, each with `evaluations`, and with a child stage when `children`. Keys begin with
// `prefix`. Rows, when nothing is shared: stages first, then evaluations.
inline SubmitPlan MakeTestPlan(const std::string& name, int trainings, int evaluations, bool children = false,
                               const std::string& prefix = "key") {
  SubmitPlan plan;
  plan.sweep.name = name;
  plan.sweep.sweep_id = "id of " + name;
  plan.requirement.device = "cpu";
  std::vector<int> last;
  for (int i = 0; i < trainings; ++i) {
    const int root = static_cast<int>(plan.jobs.size());
    plan.jobs.push_back({.kind = v1::STAGE, .key = absl::StrCat(prefix, " stage ", i), .from_step = 0, .to_step = 100});
    last.push_back(root);
    if (children) {
      last.back() = static_cast<int>(plan.jobs.size());
      plan.jobs.push_back({.kind = v1::STAGE,
                           .key = absl::StrCat(prefix, " child ", i),
                           .parent = root,
                           .from_step = 100,
                           .to_step = 150});
    }
  }
  for (int i = 0; i < trainings; ++i) {
    for (int k = 0; k < evaluations; ++k) {
      plan.jobs.push_back(
          {.kind = v1::EVALUATION, .key = absl::StrCat(plan.jobs[last[i]].key, " evaluation ", k), .parent = last[i]});
    }
  }
  return plan;
}

}  // namespace ablate
