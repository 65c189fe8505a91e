// ablate report
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/report/report_files.h"

namespace ablate {
namespace {

constexpr int64_t kMostRows = 10'000'000;
constexpr int64_t kQueryMs = 600'000;

std::string SqlText(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

// Calls `row` with each row of a statement. ResourceExhausted: more rows than a report takes.
absl::Status ForEachRow(Client* client, const std::string& sql,
                        const std::function<void(const v1::QueryResponse::Row&)>& row,
                        std::vector<std::string>* columns = nullptr) {
  v1::QueryRequest request;
  request.set_sql(sql);
  request.set_max_rows(kMostRows);
  request.set_time_limit_ms(kQueryMs);
  bool truncated = false;
  ABLATE_RETURN_IF_ERROR(client->Query(request, [&](const v1::QueryResponse& part) {
    if (columns != nullptr && columns->empty()) columns->assign(part.columns().begin(), part.columns().end());
    for (const v1::QueryResponse::Row& one : part.rows()) row(one);
    truncated |= part.truncated();
  }));
  if (truncated)
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMostRows, " rows: a report takes no more"));
  return absl::OkStatus();
}

absl::StatusOr<Records> ReadRecords(Client* client, const std::string& sql) {
  Records records;
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client, sql,
      [&](const v1::QueryResponse::Row& row) {
        std::vector<Cell> cells;
        for (const v1::QueryResponse::Cell& cell : row.cells()) {
          if (cell.has_integer())
            cells.push_back(Cell::Integer(cell.integer()));
          else if (cell.has_real())
            cells.push_back(Cell::Number(cell.real()));
          else if (cell.has_text())
            cells.push_back(Cell::Text(cell.text()));
          else
            cells.push_back(Cell::Null());
        }
        records.rows.push_back(std::move(cells));
      },
      &records.columns));
  return records;
}

// What SQLite keeps of a number: NULL and a word where it is not finite.
double NumberOf(const v1::QueryResponse::Cell& value, const v1::QueryResponse::Cell& word) {
  if (value.has_real()) return value.real();
  if (value.has_integer()) return static_cast<double>(value.integer());
  double number = 0;
  return absl::SimpleAtod(word.text(), &number) ? number : std::numeric_limits<double>::quiet_NaN();
}

// Curves of every training of the sweep, parents' steps first, and its evaluations by length. Of open points only: what
// is sealed is not to be seen, and what the lock dropped is not of the sweep.
absl::Status ReadCurves(Client* client, const std::string& sweep_id, std::vector<RunCurves>* curves) {
  const std::string sweep = SqlText(sweep_id);
  std::map<std::tuple<std::string, std::string, int64_t>, size_t> run_of;
  absl::Status unknown;  // a phase that this program does not know
  const auto run = [&](const v1::QueryResponse::Row& row) -> RunCurves& {
    const std::string &arm = row.cells(0).text(), &phase = row.cells(1).text();
    const auto [it, fresh] = run_of.emplace(std::tuple(arm, phase, row.cells(2).integer()), curves->size());
    if (fresh) {
      const absl::StatusOr<v1::Phase> parsed = PhaseFromWord(phase);
      unknown.Update(parsed.status());
      curves->push_back({.arm_json = arm,
                         .phase = parsed.ok() ? *parsed : v1::PLAIN,
                         .seed = row.cells(2).integer(),
                         .points = {},
                         .at_us = row.cells(3).integer()});
    }
    return (*curves)[it->second];
  };
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat(
          "WITH RECURSIVE chain(arm, phase, seed, stage, last) AS ("
          "SELECT p.arm, p.phase, p.seed, p.stage, p.stage FROM points p JOIN sweeps s ON s.row = p.sweep "
          "WHERE p.seal = 'open' AND s.sweep_id = ",
          sweep,
          " UNION SELECT c.arm, c.phase, c.seed, t.parent, c.last FROM chain c JOIN stages t ON t.row = c.stage "
          "WHERE t.parent IS NOT NULL) "
          "SELECT a.json, c.phase, c.seed, COALESCE((SELECT MAX(j.ended_at_us) FROM jobs j JOIN stages l ON l.key = "
          "j.key "
          "WHERE l.row = c.last AND j.state = 'SUCCEEDED'), 0), v.metric, v.step, v.value, v.non_finite "
          "FROM chain c LEFT JOIN curves v ON v.stage = c.stage JOIN sweeps s ON s.sweep_id = ",
          sweep, " JOIN arms a ON a.sweep = s.row AND a.arm = c.arm ORDER BY a.arm, c.phase, c.seed, v.metric, v.step"),
      [&](const v1::QueryResponse::Row& row) {
        RunCurves& of = run(row);
        if (!row.cells(4).has_text()) return;  // without curves, as in an export: named and dated as with them
        of.points.push_back(
            {"train/" + row.cells(4).text(), row.cells(5).integer(), NumberOf(row.cells(6), row.cells(7))});
      }));
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat(
          "SELECT arm, phase, seed, recorded_at_us, metric, length, value, non_finite, split, ntk FROM results "
          "WHERE split <> 'train' AND sweep_id = ",
          sweep, " ORDER BY arm_position, phase, seed, metric, split, ntk, length"),
      [&](const v1::QueryResponse::Row& row) {
        run(row).points.push_back({absl::StrCat("by_length/", row.cells(8).text(),
                                                row.cells(9).integer() != 0 ? "/ntk/" : "/", row.cells(4).text()),
                                   row.cells(5).integer(), NumberOf(row.cells(6), row.cells(7))});
      }));
  std::erase_if(*curves, [](const RunCurves& run) { return run.points.empty(); });  // nothing is measured yet
  return unknown;
}

// One map for each arm, phase and entry: of its first seed, and of 24 at most, which is what a report can show.
absl::Status ReadMaps(Client* client, const std::string& sweep, std::vector<ReportInput::Map>* maps) {
  constexpr size_t kMost = 24;
  struct Made {
    int64_t arm = 0, phase = 0;
    std::string arm_label, split, sha256;
    int64_t seed = 0;
  };
  std::vector<Made> made;
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat("SELECT a.arm, p.phase = 'confirming', a.label, e.split, r.sha256, p.seed FROM sweeps s JOIN points p "
                   "ON p.sweep = s.row AND p.seal = 'open' JOIN arms a ON a.sweep = p.sweep AND a.arm = p.arm JOIN "
                   "point_evaluations pe ON pe.sweep = p.sweep AND pe.arm = p.arm AND pe.seed = p.seed AND pe.phase = "
                   "p.phase JOIN evaluations e ON e.row = pe.evaluation JOIN result_artifacts r ON r.evaluation = e.row "
                   "WHERE s.sweep_id = ",
                   sweep, " AND r.media_type = ", SqlText(std::string(kAttentionMapMediaType)),
                   " ORDER BY a.arm, p.phase, e.split, p.seed"),
      [&](const v1::QueryResponse::Row& row) {
        Made one{row.cells(0).integer(), row.cells(1).integer(), row.cells(2).text(),
                 row.cells(3).text(),    row.cells(4).text(),    row.cells(5).integer()};
        const bool again = !made.empty() && made.back().arm == one.arm && made.back().phase == one.phase &&
                           made.back().split == one.split;
        if (!again) made.push_back(std::move(one));
      }));
  for (size_t i = 0; i < std::min(kMost, made.size()); ++i) {
    ABLATE_ASSIGN_OR_RETURN(const std::string bytes, client->Download(made[i].sha256, int64_t{1} << 30));
    ReportInput::Map& map = maps->emplace_back();
    ABLATE_ASSIGN_OR_RETURN(map.map, DecodeAttentionMap(bytes));
    map.name = absl::StrCat(made[i].split, "-", made[i].arm_label, "-", i);
    map.title = absl::StrCat(made[i].split, ", ", made[i].arm_label, ", seed ", made[i].seed);
  }
  return absl::OkStatus();
}

absl::StatusOr<ReportInput> Gather(const Invocation& invocation, Client* client) {
  ReportInput input;
  const std::string& name = invocation.arguments[0];
  v1::GetSweepRequest sweep;
  sweep.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.sweep, client->Call(&v1::Sweeps::Stub::GetSweep, sweep));
  const std::string id = SqlText(input.sweep.sweep_id());
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat("SELECT s.yaml, s.file_name, a.json FROM sweeps s JOIN arms a ON a.sweep = s.row AND a.arm = "
                   "s.baseline_arm WHERE s.sweep_id = ",
                   id),
      [&](const v1::QueryResponse::Row& row) {
        input.yaml = row.cells(0).text();
        input.file_name = row.cells(1).text();
        input.baseline_json = row.cells(2).text();
      }));
  v1::GetTableRequest table;
  table.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.table, client->Call(&v1::Results::Stub::GetTable, table));
  v1::CompareArmsRequest comparisons;
  comparisons.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.comparisons, client->Call(&v1::Results::Stub::CompareArms, comparisons));
  v1::GetClaimsRequest claims;
  claims.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.claims, client->Call(&v1::Results::Stub::GetClaims, claims));
  v1::GetEffectsRequest effects;
  effects.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.effects, client->Call(&v1::Results::Stub::GetEffects, effects));
  v1::GetSpreadRequest spread;
  spread.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.spread, client->Call(&v1::Results::Stub::GetSpread, spread));
  v1::ListVerificationsRequest verifications;
  verifications.set_sweep(name);
  ABLATE_ASSIGN_OR_RETURN(input.verifications, client->Call(&v1::Jobs::Stub::ListVerifications, verifications));
  ABLATE_ASSIGN_OR_RETURN(
      input.results,
      ReadRecords(client, absl::StrCat("SELECT * FROM results WHERE sweep_id = ", id,
                                       " ORDER BY arm_position, phase, seed, metric, split, ntk, length")));
  ABLATE_ASSIGN_OR_RETURN(
      input.failures,
      ReadRecords(
          client,
          absl::StrCat("SELECT j.job_id AS job, j.kind, j.state, j.failure_kind AS failure, j.failure_message AS "
                       "message FROM sweeps s JOIN sweep_jobs x ON x.sweep = s.row JOIN jobs j ON "
                       "j.row = x.job WHERE j.state IN ('FAILED', 'CANCELLED') AND s.sweep_id = ",
                       id, " ORDER BY j.row")));
  ABLATE_ASSIGN_OR_RETURN(
      input.devices,
      ReadRecords(client,
                  absl::StrCat("SELECT j.device AS device, w.build AS build, COUNT(*) AS jobs, ROUND(SUM(j.seconds) / "
                               "3600, 3) AS hours FROM sweeps s JOIN sweep_jobs x ON x.sweep = s.row JOIN jobs j ON "
                               "j.row = x.job LEFT JOIN workers w ON w.worker_id = j.worker_id WHERE j.state = "
                               "'SUCCEEDED' AND j.device <> '' AND s.sweep_id = ",
                               id, " GROUP BY j.device, w.build ORDER BY j.device, w.build")));
  ABLATE_ASSIGN_OR_RETURN(input.seeds, SeedsOf(input.results));
  ABLATE_RETURN_IF_ERROR(ReadCurves(client, input.sweep.sweep_id(), &input.curves));
  const bool depths = std::any_of(input.seeds.begin(), input.seeds.end(), [](const SeedValue& seed) {
    return absl::StartsWith(seed.metric, "passkey_accuracy.depth_");
  });
  if (depths) {
    table.add_metrics("passkey_accuracy.depth_*");
    ABLATE_ASSIGN_OR_RETURN(input.depths, client->Call(&v1::Results::Stub::GetTable, table));
  }
  ABLATE_RETURN_IF_ERROR(ReadMaps(client, id, &input.maps));
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat("SELECT d.name, f.path, f.sha256 FROM sweeps s JOIN data d ON d.row = s.data JOIN data_files f ON "
                   "f.data = d.row WHERE s.sweep_id = ",
                   id, " ORDER BY f.position"),
      [&](const v1::QueryResponse::Row& row) {
        input.data_name = row.cells(0).text();
        input.data_files.push_back({row.cells(1).text(), row.cells(2).text()});
      }));
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat("SELECT v.why, v.yaml, v.plan_sha256, v.at_us FROM sweeps s JOIN plan_versions v ON v.sweep = s.row "
                   "WHERE s.sweep_id = ",
                   id, " ORDER BY v.version"),
      [&](const v1::QueryResponse::Row& row) {
        input.versions.push_back(
            {row.cells(0).text(), row.cells(1).text(), row.cells(2).text(), row.cells(3).integer()});
      }));
  ABLATE_RETURN_IF_ERROR(ForEachRow(
      client,
      absl::StrCat("SELECT COUNT(*) FROM sweeps s JOIN sweep_jobs x ON x.sweep = s.row JOIN jobs j ON j.row = x.job "
                   "WHERE j.executor = 'noop' AND s.sweep_id = ",
                   id),
      [&](const v1::QueryResponse::Row& row) { input.noop = row.cells(0).integer() > 0; }));
  return input;
}

}  // namespace

absl::StatusOr<int> RunReport(const Invocation& invocation) {
  const std::string dir = invocation.Get("--output-dir");
  if (dir.empty()) return UsageError("a report needs a folder: ablate report SWEEP -o DIR");
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const ReportInput input, Gather(invocation, &connection->client()));
  const std::map<std::string, std::string> files = ReportFiles(input);
  for (const auto& [name, content] : files) {
    const std::string path = JoinPath(dir, name);
    ABLATE_RETURN_IF_ERROR(MakeDirs(path.substr(0, path.rfind('/'))));
    ABLATE_RETURN_IF_ERROR(WriteFileAtomic(path, content));
  }
  Say(absl::StrCat(files.size(), " files in ", dir, "; begin with ", JoinPath(dir, "report.md")));
  return kExitDone;
}

}  // namespace ablate
