// Rows of what the scheduler changed. See records.h.
#include "experiments/metrics.h"
#include "server/store/json_text.h"
#include "server/store/records.h"

namespace ablate {
namespace {

std::optional<int64_t> OrNull(int64_t value) { return value == 0 ? std::nullopt : std::optional<int64_t>(value); }
std::optional<std::string> OrNull(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

std::optional<std::string_view> OutcomeName(v1::Outcome outcome) {
  if (outcome == v1::COMPLETED) return "COMPLETED";
  if (outcome == v1::DIVERGED) return "DIVERGED";
  return std::nullopt;
}

std::optional<int64_t> MaxFailuresColumn(const SweepRecord& sweep) {
  return sweep.max_failures == kServersMaxFailures ? std::nullopt : std::optional<int64_t>(sweep.max_failures);
}

struct FailureColumns {
  std::optional<std::string_view> kind;
  std::optional<std::string> message;
};

FailureColumns LastFailure(const JobRecord& job) {
  if (job.last_failure == nullptr) return {};
  return {FailureKindName(job.last_failure->kind()), job.last_failure->message()};
}

absl::Status InsertJobs(Connection& db, const std::vector<JobRecord>& jobs) {
  if (jobs.empty()) return absl::OkStatus();
  ABLATE_ASSIGN_OR_RETURN(
      Statement insert,
      db.Prepare("INSERT INTO jobs (row, job_id, kind, key, state, parent, retry_of, attempt, attempt_state, failures, "
                 "max_failures, "
                 "outcome, diverged_at_step, from_step, to_step, requires_device, requires_memory_bytes, "
                 "requires_labels, executor, "
                 "worker_id, slot, failure_kind, failure_message, created_at_us, started_at_us, ended_at_us, sealed, "
                 "verify_of) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  for (const JobRecord& job : jobs) {
    const FailureColumns failure = LastFailure(job);
    insert.BindAll(job.row, job.job_id, job.kind == v1::STAGE ? "STAGE" : "EVALUATION", job.key, StateName(job.state),
                   OrNull(job.parent), OrNull(job.retry_of), job.attempt, AttemptStateName(job.attempt_state),
                   job.failures, job.max_failures, OutcomeName(job.outcome), OrNull(job.diverged_at_step),
                   job.from_step, job.to_step, job.requirement.device, job.requirement.memory_bytes,
                   ToJsonArray(job.requirement.labels), ExecutorName(job.requirement.executor), OrNull(job.worker_id),
                   job.worker_id.empty() ? std::nullopt : std::optional<int64_t>(job.slot), failure.kind,
                   failure.message, job.created_at_us, OrNull(job.started_at_us), OrNull(job.ended_at_us), job.sealed,
                   OrNull(job.verify_of));
    ABLATE_RETURN_IF_ERROR(insert.Run());
  }
  return absl::OkStatus();
}

absl::Status UpdateJobs(Connection& db, const std::vector<JobRecord>& jobs) {
  if (jobs.empty()) return absl::OkStatus();
  ABLATE_ASSIGN_OR_RETURN(
      Statement update,
      db.Prepare(
          "UPDATE jobs SET state = ?, parent = ?, attempt = ?, attempt_state = ?, failures = ?, outcome = ?, "
          "diverged_at_step = ?, worker_id = ?, slot = ?, failure_kind = ?, failure_message = ?, started_at_us = ?, "
          "ended_at_us = ?, sealed = ?, requires_memory_bytes = ?, requires_labels = ? WHERE row = ?"));
  for (const JobRecord& job : jobs) {
    const FailureColumns failure = LastFailure(job);
    update.BindAll(StateName(job.state), OrNull(job.parent), job.attempt, AttemptStateName(job.attempt_state),
                   job.failures, OutcomeName(job.outcome), OrNull(job.diverged_at_step), OrNull(job.worker_id),
                   job.worker_id.empty() ? std::nullopt : std::optional<int64_t>(job.slot), failure.kind,
                   failure.message, OrNull(job.started_at_us), OrNull(job.ended_at_us), job.sealed,
                   job.requirement.memory_bytes, ToJsonArray(job.requirement.labels), job.row);
    ABLATE_RETURN_IF_ERROR(update.Run());
  }
  return absl::OkStatus();
}

absl::Status WriteAttempts(Connection& db, const Effects& effects, int64_t wall_us) {
  for (const AttemptChange& change : effects.attempt_changes) {
    const bool running = change.state == AttemptState::kRunning;
    const v1::Failure* failure = change.failure.has_value() ? &*change.failure : nullptr;
    const auto text = [&](const std::string& value) {
      return failure == nullptr ? std::nullopt : std::optional(value);
    };
    const auto number = [&](int64_t value) {
      return failure == nullptr ? std::nullopt : std::optional<int64_t>(value);
    };
    static const v1::Failure& none = *new v1::Failure;
    const v1::Failure& f = failure == nullptr ? none : *failure;
    ABLATE_RETURN_IF_ERROR(
        db.Run("UPDATE attempts SET state = ?, ended_at_us = ?, failure_kind = ?, failure_message = ?, exit_code = ?, "
               "signal = ?, "
               "peak_memory_bytes = ?, stderr_tail = ? WHERE job = ? AND attempt = ?",
               AttemptStateName(change.state), running ? std::nullopt : std::optional<int64_t>(wall_us),
               text(std::string(FailureKindName(f.kind()))), text(f.message()), number(f.exit_code()),
               number(f.signal()), number(f.peak_memory_bytes()), text(f.stderr_tail()), change.job, change.attempt));
  }
  for (const AttemptStart& start : effects.attempt_starts) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT INTO attempts (job, attempt, worker_id, incarnation, slot, state, started_at_us) "
               "VALUES (?, ?, ?, ?, ?, 'RUNNING', ?)",
               start.job, start.attempt, start.worker_id, start.incarnation, start.slot, wall_us));
  }
  return absl::OkStatus();
}

absl::Status WriteWorkers(Connection& db, const std::vector<WorkerRecord>& workers, int64_t wall_us) {
  for (const WorkerRecord& worker : workers) {
    const v1::WorkerInfo& info = worker.info;
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT OR REPLACE INTO workers (worker_id, incarnation, hostname, device_class, device_kind, slots, "
               "memory_bytes, labels, "
               "build, executor, drain_asked, last_contact_at_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
               info.worker_id(), info.incarnation(), info.hostname(), info.device_class(), info.device_kind(),
               info.slots(), info.memory_bytes(), ToJsonArray({info.labels().begin(), info.labels().end()}),
               info.build(), ExecutorName(info.executor()), worker.drain_asked, info.last_contact_at_us()));
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT OR IGNORE INTO incarnations (worker_id, incarnation, started_at_us) VALUES (?, ?, ?)",
               info.worker_id(), info.incarnation(), wall_us));
  }
  return absl::OkStatus();
}

// Of an evaluation that is known to be without a value: the metrics that every evaluation of its task has.
absl::Status WriteDivergedUnrun(Connection& db, JobRow job, int64_t wall_us) {
  for (const Metric& metric : Metrics()) {
    if (!metric.headline) continue;
    ABLATE_RETURN_IF_ERROR(db.Run(
        "INSERT OR REPLACE INTO evaluation_results (evaluation, metric, value, non_finite, status, job, device, at_us) "
        "SELECT e.row, ?, NULL, NULL, 'diverged', j.row, COALESCE((SELECT p.device FROM jobs p WHERE p.row = "
        "j.parent), ''), ? "
        "FROM jobs j JOIN evaluations e ON e.key = j.key WHERE j.row = ? AND j.kind = 'EVALUATION' AND "
        "REPLACE(COALESCE(json_extract(e.eval_config, '$.\"eval.task\"'), 'loss'), 'attention_map', 'attention') = ?",
        std::string(metric.name), wall_us, job, std::string(metric.task)));
  }
  // A diverged child stage hands the device on to what hangs on it.
  return db.Run("UPDATE jobs SET device = (SELECT p.device FROM jobs p WHERE p.row = jobs.parent) WHERE row = ?", job);
}

}  // namespace

absl::Status ApplyEffects(Connection& db, const Effects& effects, int64_t wall_us) {
  ABLATE_RETURN_IF_ERROR(InsertJobs(db, effects.created));
  ABLATE_RETURN_IF_ERROR(UpdateJobs(db, effects.changed));
  for (const SweepRecord& sweep : effects.sweeps) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("UPDATE sweeps SET state = ?, ended_at_us = ?, description = ?, spec_sha256 = ?, plan_sha256 = ?, "
               "arms = ?, seeds = ?, phase = ?, pending = ?, sealed = ?, waiting_for = ?, max_failures = ?, "
               "pause_reason = ? WHERE row = ?",
               SweepStateName(sweep.state), OrNull(sweep.ended_at_us), sweep.description, sweep.spec_sha256,
               sweep.plan_sha256, sweep.arms, sweep.seeds, PhaseName(sweep.phase), sweep.pending, sweep.sealed,
               sweep.waiting_for, MaxFailuresColumn(sweep), sweep.pause_reason, sweep.row));
  }
  for (const SweepJobChange& change : effects.sweep_jobs) {
    ABLATE_RETURN_IF_ERROR(
        change.attached ? db.Run("INSERT INTO sweep_jobs (sweep, job, sealed) VALUES (?, ?, ?)", change.sweep,
                                 change.job, change.sealed)
                        : db.Run("DELETE FROM sweep_jobs WHERE sweep = ? AND job = ?", change.sweep, change.job));
  }
  for (const SweepJobChange& change : effects.unsealed) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("UPDATE sweep_jobs SET sealed = 0 WHERE sweep = ? AND job = ?", change.sweep, change.job));
  }
  ABLATE_RETURN_IF_ERROR(WriteWorkers(db, effects.workers, wall_us));
  ABLATE_RETURN_IF_ERROR(WriteAttempts(db, effects, wall_us));
  for (const Transition& transition : effects.transitions) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT INTO events (at_us, job, from_state, to_state, cause, attempt, worker_id, text) VALUES (?, ?, "
               "?, ?, ?, ?, ?, ?)",
               wall_us, transition.job, StateName(transition.from), StateName(transition.to),
               CauseName(transition.cause), transition.attempt, transition.worker_id, transition.text));
  }
  for (JobRow job : effects.diverged_unrun) ABLATE_RETURN_IF_ERROR(WriteDivergedUnrun(db, job, wall_us));
  for (const SweepFailures& failures : effects.sweep_failures) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT OR REPLACE INTO sweep_failures (sweep, signature, failures, since_resume, last_job) "
               "VALUES (?, ?, ?, ?, ?)",
               failures.sweep, failures.signature, failures.failures, failures.since_resume, failures.last_job));
  }
  return absl::OkStatus();
}

absl::Status SaveRequest(Connection& db, const std::string& request_id, const std::string& method,
                         const std::string& response, int64_t wall_us) {
  return db.Run("INSERT INTO requests (request_id, method, response, at_us) VALUES (?, ?, ?, ?)", request_id, method,
                Blob{response}, wall_us);
}

absl::Status ForgetRequestsBefore(Connection& db, int64_t wall_us) {
  return db.Run("DELETE FROM requests WHERE at_us < ?", wall_us);
}

}  // namespace ablate
