// Sweeps and their measured values. See records.h.
#include "absl/strings/str_cat.h"
#include "server/store/records.h"

namespace ablate {
namespace {

// Fills value, diverged and job from the columns value, status, job_id, from `first` on.
void FillValue(const Statement& row, int first, StoredMeasurement* measurement) {
  if (row.IsNull(first + 1)) {
    measurement->missing = true;
    return;
  }
  measurement->diverged = row.Text(first + 1) == "diverged";
  if (!measurement->diverged && !row.IsNull(first)) measurement->value = row.Real(first);
  measurement->job_id = row.Text(first + 2);
}

}  // namespace

absl::StatusOr<SweepFile> ReadSweepFile(Connection& db, SweepRow sweep) {
  ABLATE_ASSIGN_OR_RETURN(Statement row, db.Query("SELECT yaml, file_name, spec FROM sweeps WHERE row = ?", sweep));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) return absl::NotFoundError("there is no such sweep");
  SweepFile file{.yaml = row.Text(0), .file_name = row.Text(1)};
  if (!file.spec.ParseFromString(row.Bytes(2))) return absl::DataLossError("a stored sweep cannot be read");
  return file;
}

absl::StatusOr<StoredTable> ReadTable(Connection& db, SweepRow sweep) {
  StoredTable table;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement row,
                            db.Query("SELECT name, baseline_arm, spec FROM sweeps WHERE row = ?", sweep));
    ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return absl::NotFoundError("there is no such sweep");
    table.sweep = row.Text(0);
    table.baseline_arm = static_cast<int>(row.Int(1));
    v1::SweepSpec spec;
    if (!spec.ParseFromString(row.Bytes(2))) return absl::DataLossError("a stored sweep cannot be read");
    table.settings = spec.settings();
  }
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT json, phase FROM arms WHERE sweep = ? ORDER BY arm", sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      table.arms.push_back(rows.Text(0));
      table.arm_phases.push_back(PhaseFromName(rows.Text(1)));
    }
  }
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows,
        db.Query("SELECT pe.arm, pe.seed, e.length, e.split, e.ntk, r.metric, r.value, r.status, j.job_id, pe.phase, "
                 "pe.standing FROM points p JOIN point_evaluations pe ON pe.sweep = p.sweep AND pe.arm = p.arm AND "
                 "pe.seed = p.seed AND pe.phase = p.phase JOIN evaluations e ON e.row = pe.evaluation LEFT JOIN evaluation_results r ON r.evaluation = e.row "
                 "LEFT JOIN jobs j ON j.row = r.job WHERE p.sweep = ? AND p.seal = 'open' ORDER BY pe.arm, pe.seed, "
                 "pe.phase, e.length, e.split, e.ntk, r.metric",
                 sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      StoredMeasurement& measurement = table.measurements.emplace_back();
      measurement.arm = static_cast<int>(rows.Int(0));
      measurement.seed = rows.Int(1);
      measurement.length = rows.Int(2);
      measurement.split = rows.Text(3);
      measurement.ntk = rows.Int(4) != 0;
      measurement.metric = rows.Text(5);
      FillValue(rows, 6, &measurement);
      measurement.phase = PhaseFromName(rows.Text(9));
      measurement.standing = rows.Text(10);
    }
  }
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT p.arm, p.seed, s.train_length, r.metric, r.value, r.status, j.job_id, p.phase FROM points p "
               "JOIN stages s ON s.row = p.stage JOIN stage_results r ON r.stage = s.row JOIN jobs j ON j.row = r.job "
               "WHERE p.sweep = ? AND p.seal = 'open' ORDER BY p.arm, p.seed, p.phase, r.metric",
               sweep));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) break;
    StoredMeasurement& measurement = table.measurements.emplace_back();
    measurement.arm = static_cast<int>(rows.Int(0));
    measurement.seed = rows.Int(1);
    measurement.length = rows.Int(2);
    measurement.split = "train";
    measurement.metric = rows.Text(3);
    FillValue(rows, 4, &measurement);
    measurement.phase = PhaseFromName(rows.Text(7));
  }
  return table;
}

}  // namespace ablate
