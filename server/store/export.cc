// See export.h.
#include "server/store/export.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/strings.h"
#include "server/store/check.h"
#include "server/store/digest.h"
#include "server/store/migrations.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

// Conditions may use temp.asked (sweep, curves: what was asked for), temp.result_files (sha256: those that are there)
// and temp.chosen_TABLE (old, new) of tables above that have row numbers.
#define ABLATE_ASKED "(SELECT sweep FROM asked)"

// Keys of what is open to see: what is sealed, or was dropped by the lock, is not of the sweep where another trained it.
// Of them every job that is over, whichever sweep asked for it: first runs, retries, second runs.
constexpr char kJobsOfSweep[] =
    "row IN (WITH RECURSIVE "
    "trained(stage) AS (SELECT stage FROM points WHERE sweep = " ABLATE_ASKED " AND seal = 'open' "
    "UNION SELECT s.parent FROM trained t JOIN stages s ON s.row = t.stage WHERE s.parent IS NOT NULL), "
    "open(kind, key) AS (SELECT 'STAGE', s.key FROM trained t JOIN stages s ON s.row = t.stage "
    "UNION SELECT 'EVALUATION', e.key FROM points p JOIN point_evaluations x USING (sweep, arm, seed, phase) "
    "JOIN evaluations e ON e.row = x.evaluation WHERE p.sweep = " ABLATE_ASKED " AND p.seal = 'open'), "
    "mine(job) AS (SELECT job FROM sweep_jobs WHERE sweep = " ABLATE_ASKED
    " UNION SELECT job FROM seen_before WHERE sweep = " ABLATE_ASKED
    " UNION SELECT last_job FROM sweep_failures WHERE sweep = " ABLATE_ASKED
    " UNION SELECT j.row FROM open o JOIN jobs j ON j.key = o.key AND j.kind = o.kind "
    "WHERE j.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') "
    "UNION SELECT other.value FROM mine m JOIN jobs j ON j.row = m.job "
    "JOIN json_each(json_array(j.parent, j.retry_of, j.verify_of)) other WHERE other.value IS NOT NULL) "
    "SELECT job FROM mine)";

constexpr char kEvaluationsOfSweep[] =
    "row IN (SELECT evaluation FROM point_evaluations WHERE sweep = " ABLATE_ASKED
    " UNION SELECT evaluation FROM seen_before WHERE sweep = " ABLATE_ASKED
    " UNION SELECT e.row FROM chosen_jobs c JOIN jobs j ON j.row = c.old JOIN evaluations e ON e.key = j.key "
    "WHERE j.kind = 'EVALUATION')";

constexpr char kStagesOfSweep[] =
    "row IN (WITH RECURSIVE mine(stage) AS (SELECT stage FROM points WHERE sweep = " ABLATE_ASKED
    " UNION SELECT e.stage FROM chosen_evaluations c JOIN evaluations e ON e.row = c.old "
    "UNION SELECT s.row FROM chosen_jobs c JOIN jobs j ON j.row = c.old JOIN stages s ON s.key = j.key WHERE j.kind = "
    "'STAGE' "
    "UNION SELECT s.parent FROM mine m JOIN stages s ON s.row = m.stage WHERE s.parent IS NOT NULL) "
    "SELECT stage FROM mine)";

constexpr char kDataOfSweep[] =
    "row IN (SELECT data FROM sweeps WHERE row = " ABLATE_ASKED
    " UNION SELECT s.data FROM chosen_stages c JOIN stages s ON s.row = c.old "
    "UNION SELECT e.files FROM chosen_evaluations c JOIN evaluations e ON e.row = c.old "
    "UNION SELECT e.tokenizer FROM chosen_evaluations c JOIN evaluations e ON e.row = c.old)";

constexpr char kOfSweep[] = "sweep = " ABLATE_ASKED;
constexpr char kOfJobs[] = "job IN (SELECT old FROM chosen_jobs)";

absl::Status Sync(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? absl::OkStatus() : FileError("cannot fsync", path, error);
}

absl::StatusOr<std::vector<std::string>> Texts(Connection& db, const std::string& sql) {
  std::vector<std::string> texts;
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query(sql));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return texts;
    texts.push_back(rows.Text(0));
  }
}

struct Column {
  std::string name;
  int key = 0;             // its place in the primary key, from 1
  std::string references;  // the table of whose `row` it is; "": of none
};
using Schema = std::map<std::string, std::vector<Column>>;

// What the columns of each table refer to, through keys of several columns too: points.sweep is of arms.sweep, and that
// of sweeps.row.
absl::StatusOr<Schema> ReadSchema(Connection& db) {
  Schema schema;
  std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> leads;
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> tables,
                          Texts(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"));
  for (const std::string& table : tables) {
    ABLATE_ASSIGN_OR_RETURN(Statement columns, db.Query("SELECT name, pk FROM pragma_table_info(?)", table));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, columns.Step());
      if (!more) break;
      schema[table].push_back({columns.Text(0), static_cast<int>(columns.Int(1)), ""});
    }
    ABLATE_ASSIGN_OR_RETURN(Statement keys,
                            db.Query("SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?)", table));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, keys.Step());
      if (!more) break;
      leads[{table, keys.Text(0)}] = {keys.Text(1), keys.Text(2)};
    }
  }
  for (auto& [table, columns] : schema) {
    for (Column& column : columns) {
      std::pair<std::string, std::string> at{table, column.name};
      while (at.second != "row" && leads.contains(at)) at = leads[at];
      if (at.second == "row") column.references = at.first;
    }
  }
  return schema;
}

class Exporter {
 public:
  Exporter(Connection& from, Connection& to, Schema schema) : from_(from), to_(to), schema_(std::move(schema)) {}

  // Numbers the rows that go, table by table.
  absl::Status Choose(int64_t sweep, bool curves) {
    ABLATE_RETURN_IF_ERROR(from_.Script(
        "CREATE TEMP TABLE asked (sweep INTEGER, curves INTEGER); CREATE TEMP TABLE result_files (sha256 TEXT PRIMARY KEY)"));
    ABLATE_RETURN_IF_ERROR(from_.Run("INSERT INTO asked VALUES (?, ?)", sweep, curves));
    for (const ExportedTable& table : ExportedTables()) {
      if (table.which == nullptr || !Numbered(table.table)) continue;
      ABLATE_RETURN_IF_ERROR(from_.Script(absl::StrCat(
          "CREATE TEMP TABLE chosen_", table.table, " (old INTEGER PRIMARY KEY, new INTEGER NOT NULL); "
          "INSERT INTO chosen_", table.table, " SELECT row, ROW_NUMBER() OVER (ORDER BY row) FROM ", table.table,
          " WHERE ", table.which)));
    }
    return absl::OkStatus();
  }

  absl::Status CopyAll() {
    ABLATE_RETURN_IF_ERROR(to_.Script("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF; BEGIN"));
    for (const ExportedTable& table : ExportedTables()) {
      if (table.which != nullptr) ABLATE_RETURN_IF_ERROR(WithContext(CopyTable(table), table.table));
    }
    // Left as a coordinator has it: the first reader through one changes no byte of it.
    return to_.Script("COMMIT; VACUUM; PRAGMA journal_mode = WAL");
  }

 private:
  bool Numbered(const std::string& table) const {
    const std::vector<Column>& columns = schema_.at(table);
    return std::any_of(columns.begin(), columns.end(), [](const Column& column) { return column.name == "row"; });
  }

  absl::Status CopyTable(const ExportedTable& table) {
    std::vector<std::string> names, values, marks;
    std::map<int, std::string> keys;
    for (const Column& column : schema_.at(table.table)) {
      if (column.key > 0) keys[column.key] = absl::StrCat("t.", column.name);
      if (column.name == "digest") continue;  // its trigger's
      names.push_back(column.name);
      marks.push_back("?");
      if (table.column != nullptr && column.name == table.column) {
        values.push_back(table.value);
      } else if (column.references.empty()) {
        values.push_back(absl::StrCat("t.", column.name));
      } else {
        // A row that is named and does not go gives 0, which the check of foreign keys finds; NULL would pass for none.
        values.push_back(absl::StrCat("CASE WHEN t.", column.name, " IS NOT NULL THEN COALESCE((SELECT new FROM chosen_",
                                      column.references, " WHERE old = t.", column.name, "), 0) END"));
      }
    }
    std::vector<std::string> order;
    for (const auto& [place, name] : keys) order.push_back(name);
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows, from_.Query(absl::StrCat("SELECT ", absl::StrJoin(values, ", "), " FROM ", table.table,
                                                 " t WHERE ", table.which, " ORDER BY ", absl::StrJoin(order, ", "))));
    ABLATE_ASSIGN_OR_RETURN(
        Statement insert, to_.Prepare(absl::StrCat("INSERT INTO ", table.table, " (", absl::StrJoin(names, ", "),
                                                   ") VALUES (", absl::StrJoin(marks, ", "), ")")));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) return absl::OkStatus();
      for (int i = 0; i < rows.Columns(); ++i) insert.BindColumn(i + 1, rows, i);
      ABLATE_RETURN_IF_ERROR(insert.Run());
    }
  }

  Connection& from_;
  Connection& to_;
  const Schema schema_;
};

absl::Status CheckSource(Connection& db, const std::string& path) {
  ABLATE_ASSIGN_OR_RETURN(const int64_t version, db.QueryInt(0, "PRAGMA user_version"));
  const int64_t known = static_cast<int64_t>(Migrations().size());
  if (version != known) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is of schema version ", version, ", not ", known,
        version > known ? ": export from it with the release that wrote it"
                        : ": start ablate-server on it once, which brings it up to date"));
  }
  CheckReport report;
  CheckStructure(db, /*quick=*/false, &report);
  if (!report.trouble.ok()) return report.trouble;
  if (!report.ok()) return absl::DataLossError(absl::StrCat(path, " is damaged: ", absl::StrJoin(report.faults, "; ")));
  for (const DigestedTable& table : DigestedTables()) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t foreign,
                            db.QueryInt(0, absl::StrCat("SELECT COUNT(*) FROM ", table.table, " WHERE digest IS NULL")));
    if (foreign == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(foreign, " rows of ", table.table, " in ", path,
                     " were written by another program, and an export would vouch for them: restore a backup from before"));
  }
  return absl::OkStatus();
}

struct Found {
  int64_t row = 0;
  std::string name;
};

absl::StatusOr<Found> FindSweep(Connection& db, const std::string& path, const std::string& asked) {
  ABLATE_ASSIGN_OR_RETURN(Statement row,
                          db.Query("SELECT row, name, state FROM sweeps WHERE name = ?1 OR sweep_id = ?1 "
                                   "ORDER BY name = ?1 DESC LIMIT 1", asked));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) {
    ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> names, Texts(db, "SELECT name FROM sweeps ORDER BY row"));
    return absl::NotFoundError(absl::StrCat("there is no sweep \"", asked, "\" in ", path, DidYouMean(asked, names),
                                            "; `ablate sweep list --data-dir ", Dirname(path),
                                            "` names those that are there"));
  }
  const Found sweep{row.Int(0), row.Text(1)};
  if (row.Text(2) == "RUNNING") {
    return absl::FailedPreconditionError(absl::StrCat(
        "sweep \"", sweep.name, "\" is not over, and an export is of results that stay as they are: see `ablate sweep show ",
        sweep.name, "`, then wait (`ablate sweep wait ", sweep.name, "`) or cancel it; a copy of all as it is now: --backup"));
  }
  return sweep;
}

// Jobs of the sweep that are not over though it is: of a cancelled one that another sweep needs, or behind a seal.
absl::Status CheckJobsAreOver(Connection& db, const std::string& sweep) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> open,
                          Texts(db, "SELECT j.job_id || ' is ' || j.state FROM chosen_jobs c JOIN jobs j ON j.row = c.old "
                                    "WHERE j.state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED') ORDER BY j.row"));
  if (open.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      open.size(), open.size() == 1 ? " job" : " jobs", " of sweep \"", sweep,
      "\" and of those that it shares work with are not over (", open.front(), "): export it when they are, or cancel them"));
}

absl::Status ChooseResultFiles(Connection& db, const ExportOptions& options, ExportedSweep* exported) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          Texts(db, absl::StrCat("SELECT DISTINCT sha256 FROM result_artifacts WHERE ", kOfJobs,
                                                 " ORDER BY sha256")));
  for (const std::string& sha256 : files) {
    bool there = false;
    if (options.has_result_file) {
      ABLATE_ASSIGN_OR_RETURN(there, options.has_result_file(sha256));
    }
    exported->lost_files += !there;
    if (there) ABLATE_RETURN_IF_ERROR(db.Run("INSERT INTO result_files VALUES (?)", sha256));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExportedSweep> Write(const std::string& from, const std::string& to, const ExportOptions& options) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> source, Connection::Open(from, Connection::Mode::kReadOnly));
  ABLATE_RETURN_IF_ERROR(source->Script("PRAGMA temp_store = MEMORY; BEGIN"));
  ABLATE_RETURN_IF_ERROR(CheckSource(*source, from));
  ABLATE_ASSIGN_OR_RETURN(const Found sweep, FindSweep(*source, from, options.sweep));
  ExportedSweep exported{.name = sweep.name};
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> target, Connection::Open(to, Connection::Mode::kPlain));
  ABLATE_RETURN_IF_ERROR(Migrate(*target, to));
  ABLATE_ASSIGN_OR_RETURN(Schema schema, ReadSchema(*target));
  Exporter exporter(*source, *target, std::move(schema));
  ABLATE_RETURN_IF_ERROR(exporter.Choose(sweep.row, options.curves));
  ABLATE_RETURN_IF_ERROR(CheckJobsAreOver(*source, sweep.name));
  ABLATE_RETURN_IF_ERROR(ChooseResultFiles(*source, options, &exported));
  ABLATE_RETURN_IF_ERROR(exporter.CopyAll());
  ABLATE_ASSIGN_OR_RETURN(exported.jobs, target->QueryInt(0, "SELECT COUNT(*) FROM jobs"));
  if (!options.curves) {
    ABLATE_ASSIGN_OR_RETURN(
        exported.curve_points,
        source->QueryInt(0, "SELECT COUNT(*) FROM curves WHERE stage IN (SELECT old FROM chosen_stages)"));
  }
  CheckReport report;
  CheckStructure(*target, /*quick=*/false, &report);
  CheckInvariants(*target, &report);
  if (!report.trouble.ok()) return report.trouble;
  if (report.ok()) return exported;
  return absl::DataLossError(absl::StrCat("what was written of sweep \"", sweep.name, "\" is not sound: ",
                                          absl::StrJoin(report.faults, "; "),
                                          "; is the source? ablate-server --data-dir ", Dirname(from), " --check"));
}

}  // namespace

const std::vector<ExportedTable>& ExportedTables() {
  static const auto& tables = *new std::vector<ExportedTable>{
      {"sweeps", "row = " ABLATE_ASKED},
      {"jobs", kJobsOfSweep},
      {"evaluations", kEvaluationsOfSweep},
      {"stages", kStagesOfSweep},
      {"data", kDataOfSweep},
      {"data_files", "data IN (SELECT old FROM chosen_data)"},
      {"arms", kOfSweep},
      {"points", kOfSweep},
      {"point_evaluations", kOfSweep},
      {"sweep_jobs", kOfSweep},
      {"plan_versions", kOfSweep},
      {"locks", kOfSweep},
      {"tuned_arms", kOfSweep},
      {"tuning_tries", kOfSweep},
      {"deviations", kOfSweep},
      {"seen_before", kOfSweep},
      {"sweep_failures", kOfSweep},
      {.table = "attempts", .which = kOfJobs, .column = "has_points", .value = "has_points AND (SELECT curves FROM asked)"},
      {"events", kOfJobs},
      {"evaluation_results", kOfJobs},
      {"stage_results", kOfJobs},
      {"document_losses", kOfJobs},
      {"result_artifacts", "job IN (SELECT old FROM chosen_jobs) AND sha256 IN (SELECT sha256 FROM result_files)"},
      {"verifications", kOfJobs},
      {"curves", "(SELECT curves FROM asked) AND stage IN (SELECT s.row FROM chosen_jobs c JOIN jobs j ON j.row = c.old "
                 "JOIN stages s ON s.key = j.key WHERE j.kind = 'STAGE')"},
      {"workers", "worker_id IN (SELECT worker_id FROM attempts WHERE job IN (SELECT old FROM chosen_jobs))"},
      {"incarnations", "(worker_id, incarnation) IN (SELECT worker_id, incarnation FROM attempts WHERE job IN (SELECT old FROM "
                       "chosen_jobs) UNION SELECT worker_id, incarnation FROM workers WHERE worker_id IN (SELECT worker_id "
                       "FROM attempts WHERE job IN (SELECT old FROM chosen_jobs)))"},
      {.table = "checkpoints", .which = nullptr, .why = "states do not go with an export: as if collected"},
      {.table = "requests", .which = nullptr, .why = "answers to calls on the coordinator that it was exported from"},
      {.table = "tokens", .which = nullptr, .why = "who may call that coordinator"},
      {.table = "token_workers", .which = nullptr, .why = "who may call that coordinator"},
      {.table = "t_critical", .which = nullptr, .why = "filled when a database is made"},
  };
  return tables;
}

absl::StatusOr<ExportedSweep> ExportSweep(const std::string& from, const std::string& to, const ExportOptions& options) {
  if (!FileExists(from)) return absl::NotFoundError(absl::StrCat("there is no database ", from));
  if (FileExists(to)) return absl::AlreadyExistsError(absl::StrCat(to, " is there already: name another file"));
  const std::string partial = to + ".partial";
  const auto forget = [&] {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) RemoveFile(partial + suffix).IgnoreError();
  };
  forget();
  absl::StatusOr<ExportedSweep> exported = Write(from, partial, options);
  absl::Status status = exported.status();
  if (status.ok()) status = Sync(partial, O_RDONLY);
  if (status.ok()) status = RenameFile(partial, to);
  if (!status.ok()) {
    forget();
    return status;
  }
  ABLATE_RETURN_IF_ERROR(Sync(Dirname(to), O_RDONLY | O_DIRECTORY));
  return exported;
}

}  // namespace ablate
