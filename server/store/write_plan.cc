// Rows of a submitted sweep. See records.h.
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

absl::StatusOr<std::vector<int64_t>> InsertEvaluations(Connection& db, const Plan& plan,
                                                       const std::vector<int64_t>& stages) {
  ABLATE_ASSIGN_OR_RETURN(Statement find, db.Prepare("SELECT row FROM evaluations WHERE key = ?"));
  ABLATE_ASSIGN_OR_RETURN(Statement insert,
                          db.Prepare("INSERT INTO evaluations (key, stage, eval_config, length, split, ntk) "
                                     "VALUES (?, ?, ?, ?, ?, ?)"));
  std::vector<int64_t> rows;
  rows.reserve(plan.evaluations.size());
  for (const PlannedEvaluation& evaluation : plan.evaluations) {
    ABLATE_ASSIGN_OR_RETURN(int64_t row, RowOf(find, evaluation.key));
    if (row == 0) {
      insert.BindAll(evaluation.key, stages[evaluation.stage], ToJson(evaluation.eval_config), evaluation.length_tokens,
                     evaluation.split, evaluation.ntk);
      ABLATE_RETURN_IF_ERROR(insert.Run());
      row = db.LastInsertRow();
    }
    rows.push_back(row);
  }
  return rows;
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
      sweep.priority, KeepName(sweep.keep), plan.arms.size(), plan.seeds.size(), sweep.created_at_us));
  for (size_t i = 0; i < plan.arms.size(); ++i) {
    ABLATE_RETURN_IF_ERROR(db.Run("INSERT INTO arms (sweep, arm, json, label) VALUES (?, ?, ?, ?)", sweep.row, i,
                                  plan.arms[i].json, plan.arms[i].label));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::vector<int64_t> stages, InsertStages(db, file.spec, plan, data));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<int64_t> evaluations, InsertEvaluations(db, plan, stages));
  ABLATE_ASSIGN_OR_RETURN(Statement insert_point,
                          db.Prepare("INSERT INTO points (sweep, arm, seed, stage) VALUES (?, ?, ?, ?)"));
  ABLATE_ASSIGN_OR_RETURN(
      Statement insert_evaluation,
      db.Prepare("INSERT INTO point_evaluations (sweep, arm, seed, evaluation) VALUES (?, ?, ?, ?)"));
  for (const Point& point : plan.points) {
    insert_point.BindAll(sweep.row, point.arm, point.seed, stages[point.stage]);
    ABLATE_RETURN_IF_ERROR(insert_point.Run());
    for (int evaluation : point.evaluations) {
      insert_evaluation.BindAll(sweep.row, point.arm, point.seed, evaluations[evaluation]);
      ABLATE_RETURN_IF_ERROR(insert_evaluation.Run());
    }
  }
  return absl::OkStatus();
}

}  // namespace ablate
