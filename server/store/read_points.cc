// What a sweep's points consist of, and the curves of their stages. See records.h.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "server/store/records.h"

namespace ablate {

absl::StatusOr<StoredPoints> ReadPoints(Connection& db, SweepRow sweep) {
  StoredPoints all;
  ABLATE_ASSIGN_OR_RETURN(const int64_t baseline,
                          db.QueryInt(-1, "SELECT baseline_arm FROM sweeps WHERE row = ?", sweep));
  if (baseline < 0) return absl::NotFoundError("there is no such sweep");
  all.baseline_arm = static_cast<int>(baseline);
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows,
                            db.Query("SELECT json, label, phase FROM arms WHERE sweep = ? ORDER BY arm", sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      all.arms.push_back({rows.Text(0), rows.Text(1), PhaseFromName(rows.Text(2))});
    }
  }
  std::unordered_map<int64_t, int> stage_of_row;
  std::vector<int64_t> parents;  // rows, of all.stages
  {
    // UNION, not UNION ALL: what several points continue from comes once.
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows,
        db.Query("WITH RECURSIVE needed(row) AS (SELECT stage FROM points WHERE sweep = ? AND seal <> 'dropped' UNION "
                 "SELECT s.parent FROM stages s JOIN needed n ON n.row = s.row WHERE s.parent IS NOT NULL) "
                 "SELECT s.row, s.key, s.parent, s.from_step, s.to_step FROM needed n JOIN stages s ON s.row = n.row "
                 "ORDER BY s.row",
                 sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      stage_of_row[rows.Int(0)] = static_cast<int>(all.stages.size());
      all.stages.push_back({.row = rows.Int(0), .key = rows.Text(1), .from_step = rows.Int(3), .to_step = rows.Int(4)});
      parents.push_back(rows.Int(2));
    }
  }
  std::map<std::tuple<int, int64_t, v1::Phase>, size_t> point_of;
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows,
        db.Query("SELECT arm, seed, phase, stage, seal FROM points WHERE sweep = ? AND seal <> 'dropped'", sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      StoredPoint& point = all.points.emplace_back();
      point.arm = static_cast<int>(rows.Int(0));
      point.seed = rows.Int(1);
      point.phase = PhaseFromName(rows.Text(2));
      point.sealed = rows.Text(4) == "sealed";
      for (int64_t row = rows.Int(3); row != 0;) {
        const auto found = stage_of_row.find(row);
        // A row that is lost, or a circle: only of a damaged database.
        if (found == stage_of_row.end() || point.stages.size() > all.stages.size()) break;
        point.stages.push_back(found->second);
        row = parents[found->second];
      }
      std::reverse(point.stages.begin(), point.stages.end());
      if (point.arm >= static_cast<int>(all.arms.size())) return absl::DataLossError("a point's arm is lost");
    }
  }
  std::sort(all.points.begin(), all.points.end(), [](const StoredPoint& a, const StoredPoint& b) {
    return std::tie(a.arm, a.seed, a.phase) < std::tie(b.arm, b.seed, b.phase);
  });
  for (size_t i = 0; i < all.points.size(); ++i) {
    point_of[{all.points[i].arm, all.points[i].seed, all.points[i].phase}] = i;
  }
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows, db.Query("SELECT pe.arm, pe.seed, pe.phase, pe.evaluation, e.key FROM point_evaluations pe "
                               "JOIN evaluations e ON e.row = pe.evaluation WHERE pe.sweep = ? "
                               "ORDER BY pe.arm, pe.seed, pe.phase, pe.evaluation",
                               sweep));
  std::unordered_map<int64_t, int> evaluation_of_row;
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) break;
    const auto point =
        point_of.find({static_cast<int>(rows.Int(0)), rows.Int(1), PhaseFromName(rows.Text(2))});
    if (point == point_of.end()) continue;  // it was dropped
    const auto [place, added] = evaluation_of_row.emplace(rows.Int(3), static_cast<int>(all.evaluations.size()));
    if (added) all.evaluations.push_back(rows.Text(4));
    all.points[point->second].evaluations.push_back(place->second);
  }
  return all;
}

absl::Status AppendCurve(Connection& db, int64_t stage, std::string_view metric, CurvePoints* curve) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT step, value, non_finite FROM curves WHERE stage = ? AND metric = ? ORDER BY step", stage, metric));
  // A stage's points lie after the step that it starts from; should one lie before, the earlier stage's stands.
  const bool first = curve->steps.empty();
  const int64_t after = first ? 0 : curve->steps.back();
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return absl::OkStatus();
    const int64_t step = rows.Int(0);
    if (!first && step <= after) continue;
    curve->steps.push_back(step);
    curve->values.push_back(StoredNumber(rows, 1, 2));
  }
}

absl::StatusOr<StoredRun> ReadRun(Connection& db, SweepRow sweep, std::string_view key) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement row,
      db.Query("SELECT j.job_id, j.outcome, j.diverged_at_step FROM jobs j JOIN sweep_jobs sj ON sj.job = j.row "
               "WHERE j.key = ? AND sj.sweep = ? ORDER BY j.row DESC LIMIT 1",
               key, sweep));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  StoredRun run;
  if (!found) return run;
  run.job_id = row.Text(0);
  if (row.Text(1) == "DIVERGED") run.diverged_at_step = row.Int(2);
  return run;
}

}  // namespace ablate
