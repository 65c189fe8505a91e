// Jobs and tasks as users and workers see them. See records.h.
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "server/store/records.h"

namespace ablate {
namespace {

v1::Executor ExecutorOf(const std::string& name) { return name == "noop" ? v1::EXECUTOR_NOOP : v1::EXECUTOR_TRAINER; }

absl::Status ReadConfig(const std::string& json, v1::Configuration* config) {
  ABLATE_ASSIGN_OR_RETURN(*config, ConfigurationFromJson(json));
  return absl::OkStatus();
}

// Which files are there, and what was passed over because some are not.
struct Presence {
  const std::function<bool(const std::string& sha256)>& has_artifact;
  std::vector<std::string>* lost;

  bool All(const v1::CheckpointRef& ref, bool with_optimizer) const {
    for (const std::string* sha256 : {&ref.weights().sha256(), &ref.optimizer().sha256()}) {
      if (sha256->empty() || !has_artifact || has_artifact(*sha256)) continue;
      if (sha256 == &ref.optimizer().sha256() && !with_optimizer) continue;
      if (lost != nullptr) {
        lost->push_back(absl::StrCat("the state of stage ", ref.stage_key(), " at step ", ref.step(), ": artifact ",
                                     *sha256, " is gone"));
      }
      return false;
    }
    return true;
  }
};

// The end state of a stage, or its newest periodic checkpoint, whose files are stored. False: there is none.
absl::StatusOr<bool> ReadCheckpoint(Connection& db, int64_t stage, const std::string& key, bool end_state,
                                    bool with_optimizer, const Presence& presence, v1::CheckpointRef* ref) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement row,
      db.Query("SELECT step, weights_sha256, weights_bytes, optimizer_sha256, optimizer_bytes FROM checkpoints "
               "WHERE stage = ? AND end_state = ? AND weights_sha256 IS NOT NULL ORDER BY step DESC",
               stage, end_state));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return false;
    ref->Clear();
    ref->set_stage_key(key);
    ref->set_step(row.Int(0));
    ref->mutable_weights()->set_sha256(row.Text(1));
    ref->mutable_weights()->set_bytes(row.Int(2));
    if (!row.IsNull(3)) {
      ref->mutable_optimizer()->set_sha256(row.Text(3));
      ref->mutable_optimizer()->set_bytes(row.Int(4));
    }
    if (presence.All(*ref, with_optimizer)) return true;
  }
}

absl::Status ReadStageTask(Connection& db, const std::string& key, const Presence& presence, bool from_parent_only,
                           v1::StageTask* task) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement row,
      db.Query("SELECT s.row, s.config, s.seed, s.from_step, s.to_step, s.executor, d.ref, s.parent, p.key "
               "FROM stages s JOIN data d ON d.row = s.data LEFT JOIN stages p ON p.row = s.parent WHERE s.key = ?",
               key));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) return absl::NotFoundError(absl::StrCat("there is no stage ", key));
  task->set_stage_key(key);
  ABLATE_RETURN_IF_ERROR(ReadConfig(row.Text(1), task->mutable_config()));
  task->set_seed(row.Int(2));
  task->set_from_step(row.Int(3));
  task->set_to_step(row.Int(4));
  task->set_executor(ExecutorOf(row.Text(5)));
  task->mutable_data()->ParseFromString(row.Bytes(6));
  v1::CheckpointRef start;
  bool has_start = false;
  if (!from_parent_only) {
    ABLATE_ASSIGN_OR_RETURN(has_start, ReadCheckpoint(db, row.Int(0), key, false, true, presence, &start));
  }
  if (!has_start && !row.IsNull(7)) {
    ABLATE_ASSIGN_OR_RETURN(has_start, ReadCheckpoint(db, row.Int(7), row.Text(8), true, true, presence, &start));
  }
  if (has_start) *task->mutable_start() = std::move(start);
  return absl::OkStatus();
}

absl::Status ReadEvaluationTask(Connection& db, const std::string& key, const Presence& presence,
                                v1::EvaluationTask* task) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement row,
      db.Query(
          "SELECT s.row, s.key, s.config, s.seed, s.executor, d.ref, e.eval_config, e.length, e.split, f.ref, t.ref "
          "FROM evaluations e JOIN stages s ON s.row = e.stage JOIN data d ON d.row = s.data "
          "LEFT JOIN data f ON f.row = e.files LEFT JOIN data t ON t.row = e.tokenizer WHERE e.key = ?",
          key));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) return absl::NotFoundError(absl::StrCat("there is no evaluation ", key));
  task->set_evaluation_key(key);
  task->set_stage_key(row.Text(1));
  ABLATE_RETURN_IF_ERROR(ReadConfig(row.Text(2), task->mutable_config()));
  task->set_seed(row.Int(3));
  task->set_executor(ExecutorOf(row.Text(4)));
  task->mutable_data()->ParseFromString(row.Bytes(5));
  ABLATE_RETURN_IF_ERROR(ReadConfig(row.Text(6), task->mutable_eval_config()));
  task->set_length_tokens(row.Int(7));
  task->set_split(row.Text(8));
  for (const auto& [column, files] : {std::pair(9, task->mutable_files()), std::pair(10, task->mutable_tokenizer())}) {
    v1::DataRef inputs;
    if (row.IsNull(column)) continue;
    if (!inputs.ParseFromString(row.Bytes(column))) return absl::DataLossError("a task's stored inputs cannot be read");
    *files = inputs.files();
  }
  v1::CheckpointRef state;
  ABLATE_ASSIGN_OR_RETURN(const bool stored,
                          ReadCheckpoint(db, row.Int(0), row.Text(1), true, false, presence, &state));
  if (stored) {
    state.clear_optimizer();
    *task->mutable_state() = std::move(state);
  }
  return absl::OkStatus();
}

void FillFailure(const Statement& row, int kind_column, v1::Failure* failure) {
  failure->set_kind(FailureKindFromName(row.Text(kind_column)));
  failure->set_message(row.Text(kind_column + 1));
  failure->set_exit_code(static_cast<int32_t>(row.Int(kind_column + 2)));
  failure->set_signal(static_cast<int32_t>(row.Int(kind_column + 3)));
  failure->set_peak_memory_bytes(row.Int(kind_column + 4));
  failure->set_stderr_tail(row.Text(kind_column + 5));
}

}  // namespace

double StoredNumber(const Statement& row, int value, int non_finite) {
  if (row.IsNull(non_finite)) return row.IsNull(value) ? std::numeric_limits<double>::quiet_NaN() : row.Real(value);
  const std::string word = row.Text(non_finite);
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  return word == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

absl::StatusOr<v1::Task> ReadTask(Connection& db, v1::JobKind kind, const std::string& key,
                                  const std::function<bool(const std::string& sha256)>& has_artifact,
                                  std::vector<std::string>* lost, bool from_parent_only) {
  v1::Task task;
  const Presence presence{has_artifact, lost};
  ABLATE_RETURN_IF_ERROR(kind == v1::STAGE ? ReadStageTask(db, key, presence, from_parent_only, task.mutable_stage())
                                           : ReadEvaluationTask(db, key, presence, task.mutable_evaluation()));
  return task;
}

absl::Status ReadJobDetails(Connection& db, JobRow job_row, v1::Job* job, SweepRow sweep) {
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement row,
        db.Query(
            "SELECT failure_kind, failure_message, exit_code, signal, peak_memory_bytes, stderr_tail FROM attempts "
            "WHERE job = ? AND failure_kind IS NOT NULL AND state <> 'RELEASED' ORDER BY attempt DESC LIMIT 1",
            job_row));
    ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
    // The evidence of what the job's record names; a job that failed by what it rests on says that.
    v1::Failure evidence;
    if (found) FillFailure(row, 0, &evidence);
    const bool same = evidence.kind() == job->last_failure().kind() && evidence.message() == job->last_failure().message();
    if (found && (same || !job->has_last_failure())) *job->mutable_last_failure() = std::move(evidence);
  }
  const bool stage = job->kind() == v1::STAGE;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query(stage ? "SELECT r.metric, r.value, r.non_finite FROM stages s "
                                                             "JOIN stage_results r ON r.stage = s.row WHERE s.key = ?"
                                                           : "SELECT r.metric, r.value, r.non_finite FROM evaluations "
                                                             "e JOIN evaluation_results r ON r.evaluation = e.row "
                                                             "WHERE e.key = ?",
                                                     job->key()));
    // A verification's numbers are compared, not stored.
    while (job->state() == v1::SUCCEEDED && job->verify_of().empty()) {
      ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      v1::MetricValue* metric = job->add_metrics();
      metric->set_metric(rows.Text(0));
      metric->set_value(StoredNumber(rows, 1, 2));
    }
  }
  if (!stage && job->state() == v1::SUCCEEDED && job->verify_of().empty()) {
    ABLATE_ASSIGN_OR_RETURN(Statement rows,
                            db.Query("SELECT r.name, r.media_type, r.sha256, r.bytes FROM evaluations e "
                                     "JOIN result_artifacts r ON r.evaluation = e.row WHERE e.key = ? "
                                     "ORDER BY r.position",
                                     job->key()));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      v1::ResultArtifact* made = job->add_artifacts();
      made->set_name(rows.Text(0));
      made->set_media_type(rows.Text(1));
      made->mutable_artifact()->set_sha256(rows.Text(2));
      made->mutable_artifact()->set_bytes(rows.Int(3));
    }
  }
  ABLATE_ASSIGN_OR_RETURN(
      Statement label,
      db.Query(stage ? "SELECT a.label FROM stages s JOIN points p ON p.stage = s.row JOIN arms a ON a.sweep = p.sweep "
                       "AND a.arm = p.arm "
                       "WHERE s.key = ? ORDER BY p.sweep <> ?, p.sweep, p.arm LIMIT 1"
                     : "SELECT a.label FROM evaluations e JOIN point_evaluations p ON p.evaluation = e.row "
                       "JOIN arms a ON a.sweep = p.sweep AND a.arm = p.arm WHERE e.key = ? "
                       "ORDER BY p.sweep <> ?, p.sweep, p.arm LIMIT 1",
               job->key(), sweep));
  ABLATE_ASSIGN_OR_RETURN(const bool found, label.Step());
  // A stage that several arms continue from belongs to none of them: its configuration names it.
  if (found) {
    job->set_arm_label(label.Text(0));
  } else if (job->task().has_stage()) {
    job->set_arm_label(Label(job->task().stage().config()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Attempt>> ReadAttempts(Connection& db, JobRow row, const std::string& job_id) {
  std::vector<v1::Attempt> attempts;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT attempt, worker_id, slot, state, started_at_us, ended_at_us, resumed_from_step, failure_kind, "
               "failure_message, exit_code, signal, peak_memory_bytes, stderr_tail FROM attempts WHERE job = ? "
               "ORDER BY attempt",
               row));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return attempts;
    v1::Attempt& attempt = attempts.emplace_back();
    attempt.set_job_id(job_id);
    attempt.set_attempt(rows.Int(0));
    attempt.set_worker_id(rows.Text(1));
    attempt.set_slot(static_cast<int32_t>(rows.Int(2)));
    attempt.set_state(rows.Text(3));
    attempt.set_started_at_us(rows.Int(4));
    attempt.set_ended_at_us(rows.Int(5));
    attempt.set_resumed_from_step(rows.Int(6));
    if (!rows.IsNull(7)) FillFailure(rows, 7, attempt.mutable_failure());
  }
}

absl::StatusOr<std::vector<v1::CurvePoint>> ReadCurve(Connection& db, const std::string& stage_key) {
  std::vector<v1::CurvePoint> points;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT c.metric, c.step, c.value, c.non_finite FROM stages s JOIN curves c ON c.stage = s.row "
               "WHERE s.key = ? ORDER BY c.step, c.metric",
               stage_key));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return points;
    v1::CurvePoint& point = points.emplace_back();
    point.set_metric(rows.Text(0));
    point.set_step(rows.Int(1));
    point.set_value(StoredNumber(rows, 2, 3));
  }
}

absl::StatusOr<std::vector<StoredEvent>> ReadEvents(Connection& db, JobRow row) {
  std::vector<StoredEvent> events;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT at_us, from_state, to_state, cause, attempt, worker_id, text FROM events WHERE job = ? "
               "ORDER BY row",
               row));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return events;
    StoredEvent& event = events.emplace_back();
    event.at_us = rows.Int(0);
    event.text = absl::StrCat(rows.Text(1), " -> ", rows.Text(2), ": ", rows.Text(3));
    if (!rows.Text(5).empty()) absl::StrAppend(&event.text, ", attempt ", rows.Int(4), " on ", rows.Text(5));
    if (!rows.Text(6).empty()) absl::StrAppend(&event.text, ". ", rows.Text(6));
  }
}

absl::StatusOr<std::optional<StoredRequest>> FindRequest(Connection& db, const std::string& request_id) {
  ABLATE_ASSIGN_OR_RETURN(Statement row,
                          db.Query("SELECT method, response FROM requests WHERE request_id = ?", request_id));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) return std::nullopt;
  return StoredRequest{row.Text(0), row.Bytes(1)};
}

}  // namespace ablate
