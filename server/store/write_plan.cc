// Rows of a submitted sweep. See records.h.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "experiments/axes.h"
#include "server/store/records.h"

namespace ablate {
namespace {

absl::StatusOr<int64_t> DataRow(Connection& db, const v1::DataRef& data) {
  const std::string ref = data.SerializeAsString();
  ABLATE_ASSIGN_OR_RETURN(
      int64_t row, db.QueryInt(0, "SELECT row FROM data WHERE sha256 = ? AND ref = ?", data.sha256(), Blob{ref}));
  if (row != 0) return row;
  ABLATE_RETURN_IF_ERROR(
      db.Run("INSERT INTO data (sha256, name, ref) VALUES (?, ?, ?)", data.sha256(), data.name(), Blob{ref}));
  row = db.LastInsertRow();
  for (int i = 0; i < data.files_size(); ++i) {
    const v1::DataFile& file = data.files(i);
    ABLATE_RETURN_IF_ERROR(db.Run("INSERT INTO data_files (data, position, path, sha256, bytes) VALUES (?, ?, ?, ?, ?)",
                                  row, i, file.path(), file.sha256(), file.bytes()));
  }
  return row;
}

// The row of a key that may be there already, and whether it was inserted now.
absl::StatusOr<int64_t> RowOf(Statement& find, const std::string& key) {
  find.Bind(1, std::string_view(key));
  ABLATE_ASSIGN_OR_RETURN(const bool found, find.Step());
  const int64_t row = found ? find.Int(0) : 0;
  find.Reset();
  return row;
}

absl::StatusOr<std::vector<int64_t>> InsertStages(Connection& db, const v1::SweepSpec& spec, const Plan& plan,
                                                  int64_t data) {
  ABLATE_ASSIGN_OR_RETURN(Statement find, db.Prepare("SELECT row FROM stages WHERE key = ?"));
  ABLATE_ASSIGN_OR_RETURN(Statement insert,
                          db.Prepare("INSERT INTO stages (key, parent, config, seed, from_step, to_step, "
                                     "train_length, data, executor) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  std::vector<int64_t> rows;
  rows.reserve(plan.stages.size());
  for (const PlannedStage& stage : plan.stages) {
    ABLATE_ASSIGN_OR_RETURN(int64_t row, RowOf(find, stage.key));
    if (row == 0) {
      insert.BindAll(stage.key, stage.parent < 0 ? 0 : rows[stage.parent], ToJson(stage.config), stage.seed,
                     stage.from_step, stage.to_step, ConfigView(stage.config).Integer("train.length"), data,
                     ExecutorName(spec.executor()));
      if (stage.parent < 0) insert.BindNull(2);
      ABLATE_RETURN_IF_ERROR(insert.Run());
      row = db.LastInsertRow();
    }
    rows.push_back(row);
  }
  return rows;
}

// Rows of data for each task's files and tokenizer: [probe].files, then [probe].tokenizer; 0: none.
absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> TaskInputRows(Connection& db, const v1::SweepSpec& spec) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (const v1::ProbeSpec& probe : spec.evaluate().probes()) {
    const auto row_of = [&](const google::protobuf::RepeatedPtrField<v1::DataFile>& files) -> absl::StatusOr<int64_t> {
      if (files.empty()) return 0;
      v1::DataRef data;
      data.set_name(probe.name());
      *data.mutable_files() = files;
      data.set_sha256(CombinedDataSha256(data));
      return DataRow(db, data);
    };
    auto& [files, tokenizer] = rows.emplace_back();
    ABLATE_ASSIGN_OR_RETURN(files, row_of(probe.files()));
    ABLATE_ASSIGN_OR_RETURN(tokenizer, row_of(probe.tokenizer()));
  }
  return rows;
}

absl::StatusOr<std::vector<int64_t>> InsertEvaluations(Connection& db, const v1::SweepSpec& spec, const Plan& plan,
                                                       const std::vector<int64_t>& stages) {
  ABLATE_ASSIGN_OR_RETURN(const auto inputs, TaskInputRows(db, spec));
  ABLATE_ASSIGN_OR_RETURN(Statement find, db.Prepare("SELECT row FROM evaluations WHERE key = ?"));
  ABLATE_ASSIGN_OR_RETURN(Statement insert,
                          db.Prepare("INSERT INTO evaluations (key, stage, eval_config, length, split, ntk, files, "
                                     "tokenizer) VALUES (?, ?, ?, ?, ?, ?, NULLIF(?, 0), NULLIF(?, 0))"));
  std::vector<int64_t> rows;
  rows.reserve(plan.evaluations.size());
  for (const PlannedEvaluation& evaluation : plan.evaluations) {
    ABLATE_ASSIGN_OR_RETURN(int64_t row, RowOf(find, evaluation.key));
    if (row == 0) {
      const auto [files, tokenizer] = evaluation.probe < 0 ? std::pair<int64_t, int64_t>() : inputs[evaluation.probe];
      insert.BindAll(evaluation.key, stages[evaluation.stage], ToJson(evaluation.eval_config), evaluation.length_tokens,
                     evaluation.split, evaluation.ntk, files, tokenizer);
      ABLATE_RETURN_IF_ERROR(insert.Run());
      row = db.LastInsertRow();
    }
    rows.push_back(row);
  }
  return rows;
}

// The stored position of each arm of the plan; new ones come after those that are there.
absl::StatusOr<std::vector<int64_t>> InsertArms(Connection& db, SweepRow sweep, const Plan& plan) {
  std::map<std::pair<std::string, bool>, int64_t> stored;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT arm, json, phase FROM arms WHERE sweep = ?", sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      stored[{rows.Text(1), rows.Text(2) == PhaseName(v1::TUNING)}] = rows.Int(0);
    }
  }
  std::vector<int64_t> positions;
  positions.reserve(plan.arms.size());
  for (const Arm& arm : plan.arms) {
    const bool tuning = arm.phase == v1::TUNING;
    const auto [place, added] = stored.try_emplace({arm.json, tuning}, static_cast<int64_t>(stored.size()));
    positions.push_back(place->second);
    if (!added) {
      if (arm.learning_rate > 0) {
        ABLATE_RETURN_IF_ERROR(db.Run("UPDATE arms SET learning_rate = ? WHERE sweep = ? AND arm = ?",
                                      arm.learning_rate, sweep, place->second));
      }
      continue;
    }
    const int64_t tunes = tuning ? positions[arm.tunes] : -1;
    ABLATE_RETURN_IF_ERROR(db.Run(
        "INSERT INTO arms (sweep, arm, json, label, phase, tunes, learning_rate) VALUES (?, ?, ?, ?, ?, NULLIF(?, -1), "
        "NULLIF(?, 0))",
        sweep, place->second, arm.json, arm.label, PhaseName(tuning ? v1::TUNING : v1::PLAIN), tunes,
        arm.learning_rate));
  }
  return positions;
}

absl::Status WritePoints(Connection& db, SweepRow sweep, const v1::SweepSpec& spec, const Plan& plan, int64_t data) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<int64_t> arms, InsertArms(db, sweep, plan));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<int64_t> stages, InsertStages(db, spec, plan, data));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<int64_t> evaluations, InsertEvaluations(db, spec, plan, stages));
  ABLATE_ASSIGN_OR_RETURN(
      Statement insert_point,
      db.Prepare("INSERT OR IGNORE INTO points (sweep, arm, seed, phase, stage, seal) VALUES (?, ?, ?, ?, ?, ?)"));
  ABLATE_ASSIGN_OR_RETURN(Statement insert_evaluation,
                          db.Prepare("INSERT OR IGNORE INTO point_evaluations (sweep, arm, seed, phase, evaluation, "
                                     "standing) VALUES (?, ?, ?, ?, ?, ?)"));
  for (const Point& point : plan.points) {
    const bool confirming = point.phase == v1::CONFIRMING;
    const std::string_view phase = PhaseName(point.phase);
    insert_point.BindAll(sweep, arms[point.arm], point.seed, phase, stages[point.stage],
                         confirming ? "sealed" : "open");
    ABLATE_RETURN_IF_ERROR(insert_point.Run());
    std::optional<std::string_view> standing;
    if (confirming) {
      standing = spec.confirm().reuse_seeds() ? "conditional on the selected checkpoints" : "confirmatory";
    }
    for (int evaluation : point.evaluations) {
      insert_evaluation.BindAll(sweep, arms[point.arm], point.seed, phase, evaluations[evaluation], standing);
      ABLATE_RETURN_IF_ERROR(insert_evaluation.Run());
    }
  }
  return absl::OkStatus();
}

absl::Status InsertVersion(Connection& db, SweepRow sweep, const PlanVersion& version, const SweepFile* file) {
  return db.Run(
      "INSERT INTO plan_versions (sweep, version, at_us, why, yaml, spec_sha256, plan_sha256) SELECT ?1, "
      "COALESCE(MAX(version), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM plan_versions WHERE sweep = ?1",
      sweep, version.at_us, version.why, file == nullptr ? std::nullopt : std::optional(file->yaml),
      version.spec_sha256, version.plan_sha256);
}

}  // namespace

absl::Status InsertSweep(Connection& db, const SweepRecord& sweep, const SweepFile& file, const Plan& plan) {
  ABLATE_ASSIGN_OR_RETURN(const int64_t data, DataRow(db, file.spec.data()));
  ABLATE_RETURN_IF_ERROR(db.Run(
      "INSERT INTO sweeps (row, sweep_id, name, description, state, file_name, yaml, spec, spec_sha256, plan_sha256, "
      "data, "
      "baseline_arm, priority, keep, arms, seeds, created_at_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?)",
      sweep.row, sweep.sweep_id, sweep.name, sweep.description, SweepStateName(sweep.state), file.file_name, file.yaml,
      Blob{file.spec.SerializeAsString()}, sweep.spec_sha256, sweep.plan_sha256, data, plan.baseline_arm,
      sweep.priority, KeepName(sweep.keep), sweep.arms, sweep.seeds, sweep.created_at_us));
  ABLATE_RETURN_IF_ERROR(WritePoints(db, sweep.row, file.spec, plan, data));
  return InsertVersion(db, sweep.row,
                       {.why = "submitted",
                        .spec_sha256 = sweep.spec_sha256,
                        .plan_sha256 = sweep.plan_sha256,
                        .at_us = sweep.created_at_us},
                       &file);
}

absl::Status ExtendPlan(Connection& db, SweepRow sweep, const v1::SweepSpec& spec, const Plan& plan,
                        const SweepFile* file, const PlanVersion& version) {
  ABLATE_ASSIGN_OR_RETURN(const int64_t data, DataRow(db, spec.data()));
  ABLATE_RETURN_IF_ERROR(WritePoints(db, sweep, spec, plan, data));
  if (file != nullptr) {
    ABLATE_RETURN_IF_ERROR(db.Run("UPDATE sweeps SET file_name = ?, yaml = ?, spec = ? WHERE row = ?", file->file_name,
                                  file->yaml, Blob{file->spec.SerializeAsString()}, sweep));
  }
  return InsertVersion(db, sweep, version, file);
}

}  // namespace ablate
