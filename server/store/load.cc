// What the scheduler needs after a restart. See records.h.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/json_text.h"
#include "server/store/records.h"

namespace ablate {
namespace {

v1::JobState JobStateFromName(const std::string& name) {
  for (v1::JobState state : {v1::BLOCKED, v1::QUEUED, v1::RUNNING, v1::SUCCEEDED, v1::FAILED, v1::CANCELLED}) {
    if (StateName(state) == name) return state;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::SweepState SweepStateFromName(const std::string& name) {
  for (v1::SweepState state : {v1::SWEEP_SUCCEEDED, v1::SWEEP_FAILED, v1::SWEEP_CANCELLED}) {
    if (SweepStateName(state) == name) return state;
  }
  return v1::SWEEP_RUNNING;
}

v1::Keep KeepFromName(const std::string& name) {
  if (name == "all") return v1::KEEP_ALL;
  return name == "weights" ? v1::KEEP_WEIGHTS : v1::KEEP_NONE;
}

v1::Executor ExecutorFromName(const std::string& name) {
  return name == "noop" ? v1::EXECUTOR_NOOP : v1::EXECUTOR_TRAINER;
}

absl::Status LoadJobs(Connection& db, std::vector<JobRecord>* jobs) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query(
          "SELECT row, job_id, kind, state, key, parent, retry_of, attempt, attempt_state, failures, max_failures, "
          "outcome, "
          "diverged_at_step, from_step, to_step, requires_device, requires_memory_bytes, requires_labels, executor, "
          "worker_id, "
          "slot, created_at_us, started_at_us, ended_at_us, failure_kind, failure_message, sealed, verify_of FROM jobs "
          "ORDER BY row"));
  std::map<std::string, std::vector<std::string>> labels;  // few distinct ones: parsed once each
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    JobRecord& job = jobs->emplace_back();
    job.row = rows.Int(0);
    job.job_id = rows.Text(1);
    job.kind = rows.Text(2) == "STAGE" ? v1::STAGE : v1::EVALUATION;
    job.state = JobStateFromName(rows.Text(3));
    job.key = rows.Text(4);
    job.parent = rows.Int(5);
    job.retry_of = rows.Int(6);
    job.attempt = rows.Int(7);
    job.attempt_state = AttemptStateFromName(rows.Text(8));
    job.failures = static_cast<int32_t>(rows.Int(9));
    job.max_failures = static_cast<int32_t>(rows.Int(10));
    const std::string outcome = rows.Text(11);
    if (!outcome.empty()) job.outcome = outcome == "DIVERGED" ? v1::DIVERGED : v1::COMPLETED;
    job.diverged_at_step = rows.Int(12);
    job.from_step = rows.Int(13);
    job.to_step = rows.Int(14);
    job.requirement.device = rows.Text(15);
    job.requirement.memory_bytes = rows.Int(16);
    const std::string label_text = rows.Text(17);
    const auto [place, added] = labels.try_emplace(label_text);
    if (added) place->second = FromJsonArray(label_text);
    job.requirement.labels = place->second;
    job.requirement.executor = ExecutorFromName(rows.Text(18));
    job.worker_id = rows.Text(19);
    job.slot = static_cast<int32_t>(rows.Int(20));
    job.created_at_us = rows.Int(21);
    job.started_at_us = rows.Int(22);
    job.ended_at_us = rows.Int(23);
    if (!rows.IsNull(24)) {
      auto failure = std::make_shared<v1::Failure>();
      failure->set_kind(FailureKindFromName(rows.Text(24)));
      failure->set_message(rows.Text(25));
      job.last_failure = std::move(failure);
    }
    job.sealed = rows.Int(26) != 0;
    job.verify_of = rows.Int(27);
  }
}

// On which workers the jobs failed, by the attempts that count.
absl::Status LoadFailures(Connection& db, std::vector<JobRecord>* jobs) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT job, worker_id FROM attempts WHERE state = 'LOST' OR (state = 'FAILED' AND failure_kind <> "
               "'preempted') ORDER BY job, attempt"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    const int64_t job = rows.Int(0);
    if (job < 1 || job > static_cast<int64_t>(jobs->size())) return absl::DataLossError("job rows have gaps");
    (*jobs)[job - 1].failed_on.push_back(rows.Text(1));
  }
}

absl::Status LoadSweepRows(Connection& db, std::vector<SweepRecord>* sweeps) {
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows,
        db.Query("SELECT row, sweep_id, name, description, state, spec_sha256, plan_sha256, priority, keep, "
                 "arms, seeds, created_at_us, ended_at_us, phase, pending, sealed, waiting_for, max_failures, pause_reason "
                 "FROM sweeps ORDER BY row"));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      SweepRecord& sweep = sweeps->emplace_back();
      sweep.row = rows.Int(0);
      sweep.sweep_id = rows.Text(1);
      sweep.name = rows.Text(2);
      sweep.description = rows.Text(3);
      sweep.state = SweepStateFromName(rows.Text(4));
      sweep.spec_sha256 = rows.Text(5);
      sweep.plan_sha256 = rows.Text(6);
      sweep.priority = static_cast<int32_t>(rows.Int(7));
      sweep.keep = KeepFromName(rows.Text(8));
      sweep.arms = static_cast<int32_t>(rows.Int(9));
      sweep.seeds = static_cast<int32_t>(rows.Int(10));
      sweep.created_at_us = rows.Int(11);
      sweep.ended_at_us = rows.Int(12);
      sweep.phase = PhaseFromName(rows.Text(13));
      sweep.pending = rows.Int(14) != 0;
      sweep.sealed = rows.Int(15) != 0;
      sweep.waiting_for = rows.Text(16);
      sweep.max_failures = rows.IsNull(17) ? kServersMaxFailures : static_cast<int32_t>(rows.Int(17));
      sweep.pause_reason = rows.Text(18);
      sweep.paused = !sweep.pause_reason.empty();
    }
  }
  return absl::OkStatus();
}

absl::Status LoadSweeps(Connection& db, std::vector<SweepRecord>* sweeps) {
  ABLATE_RETURN_IF_ERROR(LoadSweepRows(db, sweeps));
  for (SweepRecord& sweep : *sweeps) {
    // One that is damaged is found by those who need it.
    if (const auto file = ReadSweepFile(db, sweep.row); file.ok()) sweep.data = TravellingFiles(file->spec);
  }
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT sweep, job, sealed FROM sweep_jobs ORDER BY sweep, job"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    const int64_t sweep = rows.Int(0);
    if (sweep < 1 || sweep > static_cast<int64_t>(sweeps->size())) return absl::DataLossError("sweep rows have gaps");
    (*sweeps)[sweep - 1].jobs.push_back(rows.Int(1));
    if (rows.Int(2) != 0) (*sweeps)[sweep - 1].sealed_jobs.push_back(rows.Int(1));
  }
}

absl::Status LoadSweepFailures(Connection& db, std::vector<SweepFailures>* failures) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows, db.Query("SELECT sweep, signature, failures, since_resume, last_job FROM sweep_failures"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    failures->push_back({rows.Int(0), rows.Text(1), rows.Int(2), rows.Int(3), rows.Int(4)});
  }
}

absl::Status LoadWorkers(Connection& db, std::vector<WorkerRecord>* workers) {
  std::map<std::string, std::vector<std::string>> incarnations;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT worker_id, incarnation FROM incarnations"));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      incarnations[rows.Text(0)].push_back(rows.Text(1));
    }
  }
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT worker_id, incarnation, hostname, device_class, device_kind, slots, memory_bytes, labels, "
               "build, executor, drain_asked, last_contact_at_us FROM workers"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return absl::OkStatus();
    WorkerRecord& worker = workers->emplace_back();
    v1::WorkerInfo& info = worker.info;
    info.set_worker_id(rows.Text(0));
    info.set_incarnation(rows.Text(1));
    info.set_hostname(rows.Text(2));
    info.set_device_class(rows.Text(3));
    info.set_device_kind(rows.Text(4));
    info.set_slots(static_cast<int32_t>(rows.Int(5)));
    info.set_memory_bytes(rows.Int(6));
    for (const std::string& label : FromJsonArray(rows.Text(7))) info.add_labels(label);
    info.set_build(rows.Text(8));
    info.set_executor(ExecutorFromName(rows.Text(9)));
    worker.drain_asked = rows.Int(10) != 0;
    info.set_last_contact_at_us(rows.Int(11));
    for (const std::string& incarnation : incarnations[info.worker_id()]) {
      if (incarnation != info.incarnation()) worker.retired_incarnations.push_back(incarnation);
    }
  }
}

}  // namespace

absl::StatusOr<SchedulerSnapshot> LoadSnapshot(Connection& db) {
  SchedulerSnapshot snapshot;
  ABLATE_RETURN_IF_ERROR(LoadJobs(db, &snapshot.jobs));
  ABLATE_RETURN_IF_ERROR(LoadFailures(db, &snapshot.jobs));
  ABLATE_RETURN_IF_ERROR(LoadSweeps(db, &snapshot.sweeps));
  ABLATE_RETURN_IF_ERROR(LoadSweepFailures(db, &snapshot.sweep_failures));
  ABLATE_RETURN_IF_ERROR(LoadWorkers(db, &snapshot.workers));
  ABLATE_ASSIGN_OR_RETURN(Statement rows,
                          db.Query("SELECT s.key, c.weights_sha256 IS NOT NULL, c.optimizer_sha256 IS NOT NULL, "
                                   "c.weights_sha256, c.optimizer_sha256 "
                                   "FROM checkpoints c JOIN stages s ON s.row = c.stage WHERE c.end_state = 1"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return snapshot;
    snapshot.states.push_back({.stage_key = rows.Text(0),
                               .weights = rows.Int(1) != 0,
                               .optimizer = rows.Int(2) != 0,
                               .weights_sha256 = rows.Text(3),
                               .optimizer_sha256 = rows.Text(4)});
  }
}

absl::StatusOr<std::vector<SweepRecord>> LoadSweepsAlone(Connection& db) {
  std::vector<SweepRecord> sweeps;
  ABLATE_RETURN_IF_ERROR(LoadSweepRows(db, &sweeps));
  // A row is the place in the list: after a gap no row is what it says.
  for (size_t i = 0; i < sweeps.size(); ++i) {
    if (sweeps[i].row != static_cast<int64_t>(i) + 1) {
      sweeps.resize(i);
      break;
    }
  }
  return sweeps;
}

absl::StatusOr<std::set<std::string>> ReadNamedArtifacts(Connection& db) {
  std::set<std::string> named;
  ABLATE_ASSIGN_OR_RETURN(Statement rows,
                          db.Query("SELECT weights_sha256 FROM checkpoints WHERE weights_sha256 IS NOT NULL "
                                   "UNION SELECT optimizer_sha256 FROM checkpoints "
                                   "WHERE optimizer_sha256 IS NOT NULL "
                                   "UNION SELECT sha256 FROM data_files UNION SELECT sha256 FROM result_artifacts"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return named;
    named.insert(rows.Text(0));
  }
}

std::vector<SweepData> TravellingFiles(const v1::SweepSpec& spec) {
  std::vector<SweepData> found;
  if (spec.executor() == v1::EXECUTOR_NOOP) return found;
  std::set<std::string> seen;
  const auto add = [&](const auto& files) {
    for (const v1::DataFile& file : files) {
      if (file.sha256().empty() || file.bytes() > kMaxTravellingBytes || !seen.insert(file.sha256()).second) continue;
      found.push_back({file.path(), file.sha256()});
    }
  };
  add(spec.data().files());
  for (const v1::ProbeSpec& probe : spec.evaluate().probes()) {
    add(probe.files());
    add(probe.tokenizer());
  }
  return found;
}

}  // namespace ablate
