// See claims.h. Here: decisions, and what was seen before.
#include "server/store/claims.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/store/json_text.h"

namespace ablate {
namespace {

std::optional<double> PositiveOrNull(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

absl::Status ReadTuning(Connection& db, SweepRow sweep, std::vector<v1::TunedArm>* tuning) {
  std::map<int64_t, size_t> index_of;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT position, arm, learning_rate, note FROM tuned_arms "
                                                     "WHERE sweep = ? ORDER BY position",
                                                     sweep));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      index_of[rows.Int(0)] = tuning->size();
      v1::TunedArm& arm = tuning->emplace_back();
      arm.set_arm_json(rows.Text(1));
      if (!rows.IsNull(2)) arm.set_learning_rate(rows.Real(2));
      arm.set_note(rows.Text(3));
    }
  }
  ABLATE_ASSIGN_OR_RETURN(Statement rows,
                          db.Query("SELECT position, learning_rate, mean, diverged, extension, jobs FROM tuning_tries "
                                   "WHERE sweep = ? ORDER BY position, try",
                                   sweep));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return absl::OkStatus();
    v1::TunedArm::Try* tried = (*tuning)[index_of[rows.Int(0)]].add_tries();
    tried->set_learning_rate(rows.Real(1));
    if (!rows.IsNull(2)) tried->set_mean(rows.Real(2));
    tried->set_diverged(static_cast<int32_t>(rows.Int(3)));
    tried->set_extension(rows.Int(4) != 0);
    for (const std::string& job : FromJsonArray(rows.Text(5))) tried->add_job_ids(job);
  }
}

absl::Status WriteTuning(Connection& db, SweepRow sweep, const std::vector<v1::TunedArm>& tuning) {
  ABLATE_RETURN_IF_ERROR(db.Run("DELETE FROM tuning_tries WHERE sweep = ?", sweep));
  ABLATE_RETURN_IF_ERROR(db.Run("DELETE FROM tuned_arms WHERE sweep = ?", sweep));
  for (size_t i = 0; i < tuning.size(); ++i) {
    const v1::TunedArm& arm = tuning[i];
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT INTO tuned_arms (sweep, position, arm, learning_rate, note) VALUES (?, ?, ?, ?, ?)", sweep, i,
               arm.arm_json(), PositiveOrNull(arm.learning_rate()), arm.note()));
    for (int k = 0; k < arm.tries_size(); ++k) {
      const v1::TunedArm::Try& tried = arm.tries(k);
      ABLATE_RETURN_IF_ERROR(
          db.Run("INSERT INTO tuning_tries (sweep, position, try, learning_rate, mean, diverged, extension, jobs) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                 sweep, i, k, tried.learning_rate(), tried.has_mean() ? std::optional(tried.mean()) : std::nullopt,
                 tried.diverged(), tried.extension(), ToJsonArray({tried.job_ids().begin(), tried.job_ids().end()})));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoredClaims> ReadClaims(Connection& db, SweepRow sweep) {
  StoredClaims claims;
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement row, db.Query("SELECT s.looks_done, s.confirming_seeds, s.claims_over, v.plan_sha256 FROM sweeps s "
                                "JOIN plan_versions v ON v.sweep = s.row AND v.version = 1 WHERE s.row = ?",
                                sweep));
    ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return absl::NotFoundError("there is no such sweep");
    claims.looks_done = static_cast<int>(row.Int(0));
    claims.confirming_seeds = static_cast<int>(row.Int(1));
    claims.over = row.Int(2) != 0;
    claims.sealed_plan_sha256 = row.Text(3);
  }
  ABLATE_RETURN_IF_ERROR(ReadTuning(db, sweep, &claims.tuning));
  {
    ABLATE_ASSIGN_OR_RETURN(Statement row,
                            db.Query("SELECT arm, rule_arm, by_hand, why, at_us, evidence, short_rule_arm, "
                                     "short_rule_regret FROM locks WHERE sweep = ?",
                                     sweep));
    ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (found) {
      v1::Lock& lock = claims.lock.emplace();
      lock.set_arm_json(row.Text(0));
      lock.set_rule_arm_json(row.Text(1));
      lock.set_by_hand(row.Int(2) != 0);
      lock.set_why(row.Text(3));
      lock.set_at_us(row.Int(4));
      lock.set_evidence_json(row.Text(5));
      lock.set_short_rule_arm_json(row.Text(6));
      if (!row.IsNull(7)) lock.set_short_rule_regret(row.Real(7));
    }
  }
  ABLATE_ASSIGN_OR_RETURN(Statement rows,
                          db.Query("SELECT at_us, kind, text FROM deviations WHERE sweep = ? ORDER BY row", sweep));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return claims;
    v1::Deviation& deviation = claims.deviations.emplace_back();
    deviation.set_at_us(rows.Int(0));
    deviation.set_kind(rows.Text(1));
    deviation.set_text(rows.Text(2));
  }
}

absl::Status WriteClaims(Connection& db, SweepRow sweep, const StoredClaims& claims) {
  ABLATE_RETURN_IF_ERROR(db.Run("UPDATE sweeps SET looks_done = ?, confirming_seeds = ?, claims_over = ? WHERE row = ?",
                                claims.looks_done, claims.confirming_seeds, claims.over, sweep));
  ABLATE_RETURN_IF_ERROR(WriteTuning(db, sweep, claims.tuning));
  if (!claims.lock.has_value()) return absl::OkStatus();
  const v1::Lock& lock = *claims.lock;
  return db.Run(
      "INSERT OR REPLACE INTO locks (sweep, arm, rule_arm, by_hand, why, at_us, evidence, short_rule_arm, "
      "short_rule_regret) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
      sweep, lock.arm_json(), lock.rule_arm_json(), lock.by_hand(), lock.why(), lock.at_us(), lock.evidence_json(),
      lock.short_rule_arm_json(),
      lock.has_short_rule_regret() ? std::optional(lock.short_rule_regret()) : std::nullopt);
}

absl::Status AddDeviation(Connection& db, SweepRow sweep, const v1::Deviation& deviation) {
  return db.Run("INSERT INTO deviations (sweep, at_us, kind, text) VALUES (?, ?, ?, ?)", sweep, deviation.at_us(),
                deviation.kind(), deviation.text());
}

absl::Status OpenPoints(Connection& db, SweepRow sweep, const std::vector<std::string>& arms,
                        const std::vector<int64_t>& seeds) {
  for (const std::string& arm : arms) {
    for (int64_t seed : seeds) {
      ABLATE_RETURN_IF_ERROR(
          db.Run("UPDATE points SET seal = 'open' WHERE sweep = ?1 AND phase = 'confirming' AND seal = 'sealed' AND "
                 "seed = ?2 AND arm = (SELECT arm FROM arms WHERE sweep = ?1 AND json = ?3 AND phase = 'plain')",
                 sweep, seed, arm));
    }
  }
  return absl::OkStatus();
}

absl::Status DropPoints(Connection& db, SweepRow sweep, const std::vector<std::string>& except_arms) {
  return db.Run(
      "UPDATE points SET seal = 'dropped' WHERE sweep = ?1 AND phase = 'confirming' AND seal = 'sealed' AND arm NOT IN "
      "(SELECT arm FROM arms WHERE sweep = ?1 AND phase = 'plain' AND json IN (SELECT value FROM json_each(?2)))",
      sweep, ToJsonArray(except_arms));
}

absl::StatusOr<std::vector<StoredEvaluation>> FindEvaluations(Connection& db, const std::string& data_sha256,
                                                              v1::Executor executor, const std::set<int64_t>& seeds) {
  std::vector<StoredEvaluation> found;
  std::vector<int64_t> stages;  // [i] of found[i]
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows,
        db.Query("SELECT e.key, e.split, e.length, s.seed, s.train_length, s.row FROM stages s JOIN data d ON d.row = "
                 "s.data JOIN evaluations e ON e.stage = s.row WHERE d.sha256 = ? AND s.executor = ? AND s.seed IN "
                 "(SELECT value FROM json_each(?)) ORDER BY e.row",
                 data_sha256, ExecutorName(executor), absl::StrCat("[", absl::StrJoin(seeds, ","), "]")));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      found.push_back({rows.Text(0), rows.Text(1), rows.Int(2), rows.Int(3), rows.Int(4), {}});
      stages.push_back(rows.Int(5));
    }
  }
  std::map<int64_t, std::vector<std::string>> known;
  ABLATE_ASSIGN_OR_RETURN(Statement stage, db.Prepare("SELECT COALESCE(parent, 0), config FROM stages WHERE row = ?"));
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [it, fresh] = known.try_emplace(stages[i]);
    for (int64_t row = fresh ? stages[i] : 0; row != 0;) {
      stage.BindAll(row);
      ABLATE_ASSIGN_OR_RETURN(const bool there, stage.Step());
      if (!there) return absl::DataLossError("the database is damaged: a stage's parent is missing");
      row = stage.Int(0);
      it->second.insert(it->second.begin(), stage.Text(1));
      stage.Reset();
    }
    found[i].configs = it->second;
  }
  return found;
}

absl::Status WriteSeen(Connection& db, SweepRow sweep, const std::vector<Seen>& seen) {
  for (const Seen& one : seen) {
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT OR IGNORE INTO seen_before (sweep, arm, seed, evaluation, job) SELECT ?1, a.arm, ?2, e.row, ?3 "
               "FROM arms a JOIN evaluations e ON e.key = ?4 WHERE a.sweep = ?1 AND a.json = ?5 AND a.phase = 'plain'",
               sweep, one.seed, one.job, one.evaluation_key, one.arm_json));
    ABLATE_RETURN_IF_ERROR(db.Run(
        "UPDATE point_evaluations SET standing = 'exploratory: seen in job ' || (SELECT job_id FROM jobs WHERE row = "
        "?2) WHERE sweep = ?1 AND phase = 'confirming' AND arm = (SELECT arm FROM arms WHERE sweep = ?1 AND json = ?3 "
        "AND phase = 'plain') AND standing NOT LIKE 'exploratory%'",
        sweep, one.job, one.arm_json));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredSeen>> ReadSeen(Connection& db, SweepRow sweep) {
  std::vector<StoredSeen> seen;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT a.json, e.split, e.length, j.job_id FROM seen_before b JOIN arms a ON a.sweep = b.sweep AND "
               "a.arm = b.arm JOIN evaluations e ON e.row = b.evaluation JOIN jobs j ON j.row = b.job "
               "WHERE b.sweep = ? ORDER BY b.arm, b.seed, b.evaluation",
               sweep));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return seen;
    seen.push_back({rows.Text(0), rows.Text(1), rows.Int(2), rows.Text(3)});
  }
}

}  // namespace ablate
