// Rows of what workers hand in: results, curves, checkpoints; and their collection. See records.h.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "experiments/metrics.h"
#include "server/store/claims.h"
#include "server/store/records.h"

namespace ablate {
namespace {

// SQLite has no NaN, and an infinity breaks every JSON made of it: what is not finite becomes a word.
struct StoredValue {
  std::optional<double> value;
  std::optional<std::string_view> non_finite;
};

StoredValue Split(double value) {
  if (std::isfinite(value)) return {value, std::nullopt};
  if (std::isnan(value)) return {std::nullopt, "nan"};
  return {std::nullopt, value > 0 ? "inf" : "-inf"};
}

absl::StatusOr<int64_t> StageRow(Connection& db, const std::string& key) {
  ABLATE_ASSIGN_OR_RETURN(const int64_t row, db.QueryInt(0, "SELECT row FROM stages WHERE key = ?", key));
  if (row == 0) return absl::InternalError(absl::StrCat("there is no stage ", key));
  return row;
}

absl::Status WriteCheckpoint(Connection& db, int64_t stage, const v1::CheckpointRef& ref, bool end_state, JobRow job,
                             int64_t wall_us) {
  const auto hash = [](const v1::ArtifactRef& artifact) {
    return artifact.sha256().empty() ? std::nullopt : std::optional(artifact.sha256());
  };
  const auto bytes = [](const v1::ArtifactRef& artifact) {
    return artifact.sha256().empty() ? std::nullopt : std::optional(artifact.bytes());
  };
  return db.Run(
      "INSERT OR REPLACE INTO checkpoints (stage, step, end_state, weights_sha256, weights_bytes, optimizer_sha256, "
      "optimizer_bytes, "
      "job, at_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
      stage, ref.step(), end_state, hash(ref.weights()), bytes(ref.weights()), hash(ref.optimizer()),
      bytes(ref.optimizer()), job, wall_us);
}

}  // namespace

absl::Status AppendIfUnreferenced(Connection& db, const std::string& sha256, std::vector<std::string>* unreferenced) {
  if (sha256.empty()) return absl::OkStatus();
  ABLATE_ASSIGN_OR_RETURN(const int64_t used,
                          db.QueryInt(0,
                                      "SELECT EXISTS (SELECT 1 FROM checkpoints WHERE weights_sha256 = ?1) OR "
                                      "EXISTS (SELECT 1 FROM checkpoints WHERE optimizer_sha256 = ?1) OR "
                                      "EXISTS (SELECT 1 FROM data_files WHERE sha256 = ?1) OR "
                                      "EXISTS (SELECT 1 FROM result_artifacts WHERE sha256 = ?1)",
                                      sha256));
  if (used == 0 && std::find(unreferenced->begin(), unreferenced->end(), sha256) == unreferenced->end()) {
    unreferenced->push_back(sha256);
  }
  return absl::OkStatus();
}

namespace {

// Deletes the periodic checkpoints of a stage before `step`.
absl::Status DropPeriodic(Connection& db, int64_t stage, int64_t before_step, std::vector<std::string>* unreferenced) {
  std::vector<std::string> hashes;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT weights_sha256, optimizer_sha256 FROM checkpoints "
                                                     "WHERE stage = ? AND end_state = 0 AND step < ?",
                                                     stage, before_step));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) break;
      hashes.push_back(rows.Text(0));
      hashes.push_back(rows.Text(1));
    }
  }
  if (hashes.empty()) return absl::OkStatus();
  ABLATE_RETURN_IF_ERROR(
      db.Run("DELETE FROM checkpoints WHERE stage = ? AND end_state = 0 AND step < ?", stage, before_step));
  for (const std::string& hash : hashes) ABLATE_RETURN_IF_ERROR(AppendIfUnreferenced(db, hash, unreferenced));
  return absl::OkStatus();
}

absl::Status WritePoints(Connection& db, const JobRef& job, int64_t stage, const v1::AttemptReport& report) {
  // What an earlier attempt wrote after the step that this one resumed from is replaced, not mixed in.
  ABLATE_RETURN_IF_ERROR(db.Run("UPDATE attempts SET has_points = 1 WHERE job = ? AND attempt = ? AND has_points = 0",
                                job.row, report.attempt()));
  if (db.Changes() == 1) {
    int64_t first_new = INT64_MAX;
    for (const v1::CurvePoint& point : report.points()) first_new = std::min(first_new, point.step());
    if (report.has_resumed_from_step()) first_new = report.resumed_from_step() + 1;
    ABLATE_RETURN_IF_ERROR(db.Run("DELETE FROM curves WHERE stage = ? AND step >= ?", stage, first_new));
  }
  ABLATE_ASSIGN_OR_RETURN(
      Statement insert,
      db.Prepare("INSERT OR REPLACE INTO curves (stage, metric, step, value, non_finite) VALUES (?, ?, ?, ?, ?)"));
  for (const v1::CurvePoint& point : report.points()) {
    const StoredValue stored = Split(point.value());
    insert.BindAll(stage, point.metric(), point.step(), stored.value, stored.non_finite);
    ABLATE_RETURN_IF_ERROR(insert.Run());
  }
  return absl::OkStatus();
}

absl::Status WriteMetrics(Connection& db, const JobRef& job, const v1::TaskResult& result, int64_t wall_us) {
  const bool stage = job.kind == v1::STAGE;
  ABLATE_ASSIGN_OR_RETURN(
      const int64_t row,
      db.QueryInt(0, stage ? "SELECT row FROM stages WHERE key = ?" : "SELECT row FROM evaluations WHERE key = ?",
                  job.key));
  if (row == 0) return absl::InternalError(absl::StrCat("there is no stage or evaluation ", job.key));
  ABLATE_RETURN_IF_ERROR(db.Run(
      stage ? "DELETE FROM stage_results WHERE stage = ?" : "DELETE FROM evaluation_results WHERE evaluation = ?",
      row));
  const bool diverged = result.outcome() == v1::DIVERGED;
  const auto insert = [&](const std::string& metric, StoredValue stored) {
    const bool ok = !diverged && stored.value.has_value();
    return db.Run(
        stage ? "INSERT OR REPLACE INTO stage_results (stage, metric, value, non_finite, status, job, device, at_us) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
              : "INSERT OR REPLACE INTO evaluation_results (evaluation, metric, value, non_finite, status, job, "
                "device, at_us) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        row, metric, stored.value, stored.non_finite, ok ? "ok" : "diverged", job.row, result.device_kind(), wall_us);
  };
  if (!stage && diverged) {
    ABLATE_ASSIGN_OR_RETURN(
        Statement task,
        db.Query("SELECT COALESCE(json_extract(eval_config, '$.\"eval.task\"'), 'loss') FROM evaluations WHERE row = ?",
                 row));
    ABLATE_RETURN_IF_ERROR(task.Step().status());
    for (const Metric& metric : Metrics()) {
      if (metric.headline && IsOfTask(metric, task.Text(0))) ABLATE_RETURN_IF_ERROR(insert(std::string(metric.name), {}));
    }
  }
  for (const v1::MetricValue& metric : result.metrics()) {
    ABLATE_RETURN_IF_ERROR(insert(metric.metric(), Split(metric.value())));
  }
  if (stage) return absl::OkStatus();
  // What an earlier run made, and this one did not, goes when the coordinator next starts.
  ABLATE_RETURN_IF_ERROR(db.Run("DELETE FROM result_artifacts WHERE evaluation = ?", row));
  for (int i = 0; i < result.artifacts_size(); ++i) {
    const v1::ResultArtifact& made = result.artifacts(i);
    ABLATE_RETURN_IF_ERROR(db.Run(
        "INSERT INTO result_artifacts (evaluation, position, name, media_type, sha256, bytes, job) VALUES (?, ?, ?, ?, "
        "?, ?, ?)",
        row, i, made.name(), made.media_type(), made.artifact().sha256(), made.artifact().bytes(), job.row));
  }
  ABLATE_RETURN_IF_ERROR(db.Run("DELETE FROM document_losses WHERE evaluation = ?", row));
  if (result.documents().empty()) return absl::OkStatus();
  return db.Run("INSERT INTO document_losses (evaluation, job, count, documents) VALUES (?, ?, ?, ?)", row, job.row,
                result.documents_size(), Blob{PackDocuments(result.documents())});
}

}  // namespace

absl::Status WriteResult(Connection& db, const JobRef& job, const v1::AttemptReport& report, int64_t wall_us) {
  const v1::TaskResult& result = report.result();
  ABLATE_RETURN_IF_ERROR(WriteMetrics(db, job, result, wall_us));
  const std::string& end_weights = result.end_state().weights().sha256();
  ABLATE_RETURN_IF_ERROR(
      db.Run("UPDATE jobs SET device = ?, seconds = ?, peak_memory_bytes = ?, end_weights_sha256 = ? WHERE row = ?",
             result.device_kind(), result.seconds(), result.peak_memory_bytes(),
             end_weights.empty() ? std::nullopt : std::optional(end_weights), job.row));
  if (job.kind != v1::STAGE) return absl::OkStatus();
  ABLATE_RETURN_IF_ERROR(db.Run("UPDATE attempts SET resumed_from_step = ? WHERE job = ? AND attempt = ?",
                                result.resumed_from_step(), job.row, report.attempt()));
  ABLATE_ASSIGN_OR_RETURN(const int64_t stage, StageRow(db, job.key));
  if (report.points_size() > 0) ABLATE_RETURN_IF_ERROR(WritePoints(db, job, stage, report));
  if (!result.has_end_state() || result.end_state().weights().sha256().empty()) return absl::OkStatus();
  ABLATE_RETURN_IF_ERROR(db.Run("DELETE FROM checkpoints WHERE stage = ? AND end_state = 1", stage));
  return WriteCheckpoint(db, stage, result.end_state(), true, job.row, wall_us);
}

absl::Status WriteProgress(Connection& db, const JobRef& job, const v1::AttemptReport& report, int64_t wall_us,
                           std::vector<std::string>* unreferenced) {
  if (job.kind != v1::STAGE) return absl::OkStatus();
  ABLATE_ASSIGN_OR_RETURN(const int64_t stage, StageRow(db, job.key));
  if (report.has_resumed_from_step()) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("UPDATE attempts SET resumed_from_step = ? WHERE job = ? AND attempt = ? AND resumed_from_step IS NULL",
               report.resumed_from_step(), job.row, report.attempt()));
  }
  if (report.points_size() > 0) ABLATE_RETURN_IF_ERROR(WritePoints(db, job, stage, report));
  // A checkpoint from which training cannot go on is of no use before the end.
  if (!report.has_checkpoint() || report.checkpoint().weights().sha256().empty() ||
      report.checkpoint().optimizer().sha256().empty()) {
    return absl::OkStatus();
  }
  ABLATE_RETURN_IF_ERROR(WriteCheckpoint(db, stage, report.checkpoint(), false, job.row, wall_us));
  return DropPeriodic(db, stage, report.checkpoint().step(), unreferenced);
}

absl::Status CollectStates(Connection& db, const std::vector<StateCollection>& collections,
                           std::vector<std::string>* unreferenced) {
  for (const StateCollection& collection : collections) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t stage, StageRow(db, collection.stage_key));
    if (collection.periodic) ABLATE_RETURN_IF_ERROR(DropPeriodic(db, stage, INT64_MAX, unreferenced));
    std::vector<std::string> hashes;
    {
      ABLATE_ASSIGN_OR_RETURN(
          Statement rows,
          db.Query("SELECT weights_sha256, optimizer_sha256 FROM checkpoints WHERE stage = ? AND end_state = 1",
                   stage));
      while (true) {
        ABLATE_ASSIGN_OR_RETURN(const bool row, rows.Step());
        if (!row) break;
        if (collection.weights) hashes.push_back(rows.Text(0));
        if (collection.optimizer) hashes.push_back(rows.Text(1));
      }
    }
    if (collection.weights) {
      ABLATE_RETURN_IF_ERROR(
          db.Run("UPDATE checkpoints SET weights_sha256 = NULL, weights_bytes = NULL WHERE stage = ? AND end_state = 1",
                 stage));
    }
    if (collection.optimizer) {
      ABLATE_RETURN_IF_ERROR(db.Run(
          "UPDATE checkpoints SET optimizer_sha256 = NULL, optimizer_bytes = NULL WHERE stage = ? AND end_state = 1",
          stage));
    }
    ABLATE_RETURN_IF_ERROR(
        db.Run("DELETE FROM checkpoints WHERE stage = ? AND end_state = 1 AND weights_sha256 IS NULL AND "
               "optimizer_sha256 IS NULL",
               stage));
    for (const std::string& hash : hashes) ABLATE_RETURN_IF_ERROR(AppendIfUnreferenced(db, hash, unreferenced));
  }
  return absl::OkStatus();
}

}  // namespace ablate
