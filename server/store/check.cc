// See check.h.
#include "server/store/check.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "experiments/evaluation_key.h"
#include "experiments/plan.h"
#include "proto/resources.pb.h"
#include "server/scheduler/job_states.h"
#include "server/store/digest.h"
#include "server/store/migrations.h"

namespace ablate {
namespace {

constexpr size_t kShown = 3;  // faults of one kind that are named
constexpr uint64_t kQuickAboveBytes = 2ull << 30;
constexpr int64_t kDigestsSince = 3;  // schema version
constexpr char kSchema[] = "SELECT type || ' ' || name || char(10) || COALESCE(sql, '') FROM sqlite_schema";

// Rules of the coordinator. Each query has a row, one text, for each thing that breaks the rule.
struct Rule {
  const char* name;
  const char* sql;
};
constexpr Rule kRules[] = {
    {"jobs are numbered without gaps",
     "SELECT 'row ' || row || ' is the ' || n || 'th job' FROM (SELECT row, ROW_NUMBER() OVER (ORDER BY row) AS n FROM "
     "jobs) WHERE row <> n"},
    {"attempts are numbered without gaps, up to the job's own",
     "SELECT j.job_id || ' is at attempt ' || j.attempt || ' with ' || COUNT(a.attempt) || ' leases' FROM jobs j LEFT "
     "JOIN attempts a ON a.job = j.row GROUP BY j.row HAVING COUNT(a.attempt) <> j.attempt OR "
     "COALESCE(MAX(a.attempt), 0) <> j.attempt OR COALESCE(MIN(a.attempt), 1) <> 1"},
    {"each lease has a higher attempt than the one before",
     "SELECT j.job_id || ': attempt ' || e.attempt || ' after ' || e.before FROM (SELECT job, attempt, LAG(attempt) OVER "
     "(PARTITION BY job ORDER BY row) AS before FROM events WHERE cause = 'leased') e JOIN jobs j ON j.row = "
     "e.job WHERE e.attempt <= e.before"},
    {"terminal states are final",
     "SELECT j.job_id || ' went from ' || e.from_state || ' to ' || e.to_state FROM events e JOIN jobs j ON j.row = e.job "
     "WHERE e.from_state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') AND e.from_state <> e.to_state"},
    {"events lead from each state to the next",
     "SELECT j.job_id || ': an event from ' || e.from_state || ' after ' || e.before FROM (SELECT job, from_state, "
     "LAG(to_state) OVER (PARTITION BY job ORDER BY row) AS before FROM events) e JOIN jobs j ON j.row = e.job WHERE "
     "e.before <> e.from_state"},
    {"a job is where its last event says",
     "SELECT j.job_id || ' is ' || j.state || ', its last event led to ' || e.to_state FROM (SELECT job, MAX(row) AS row "
     "FROM events GROUP BY job) l JOIN events e ON e.row = l.row JOIN jobs j ON j.row = l.job WHERE j.state <> "
     "e.to_state"},
    {"what runs has a lease, and nothing else has",
     "SELECT j.job_id || ' is ' || j.state || ' with attempt ' || a.attempt || ' ' || a.state FROM jobs j JOIN attempts a "
     "ON a.job = j.row WHERE (a.state = 'RUNNING' AND (j.state <> 'RUNNING' OR a.attempt <> j.attempt)) OR (j.state = "
     "'RUNNING' AND a.attempt = j.attempt AND a.state <> 'RUNNING')"},
    {"what waits or runs has a parent that succeeded",
     "SELECT j.job_id || ' is ' || j.state || ', its parent ' || p.state FROM jobs j JOIN jobs p ON p.row = j.parent WHERE "
     "(j.state IN ('QUEUED', 'RUNNING') AND p.state <> 'SUCCEEDED') OR (j.state = 'BLOCKED' AND j.sealed = 0 AND "
     "p.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED'))"},
    {"results are of jobs that succeeded at their key",
     "SELECT j.job_id || ' (' || j.state || ') gave results of evaluation ' || e.key FROM evaluation_results r JOIN "
     "evaluations e ON e.row = r.evaluation JOIN jobs j ON j.row = r.job WHERE j.key <> e.key OR j.state <> 'SUCCEEDED' "
     "OR j.verify_of IS NOT NULL UNION SELECT j.job_id || ' (' || j.state || ') gave results of stage ' || s.key FROM "
     "stage_results r JOIN stages s ON s.row = r.stage JOIN jobs j ON j.row = r.job WHERE j.key <> s.key OR j.state <> "
     "'SUCCEEDED' OR j.verify_of IS NOT NULL"},
    {"each key has one accepted result",
     "SELECT 'evaluation ' || e.key || ' has results of ' || COUNT(DISTINCT r.job) || ' jobs' FROM evaluation_results r "
     "JOIN evaluations e ON e.row = r.evaluation GROUP BY r.evaluation HAVING COUNT(DISTINCT r.job) > 1 UNION ALL SELECT "
     "'stage ' || s.key || ' has results of ' || COUNT(DISTINCT r.job) || ' jobs' FROM stage_results r JOIN stages s ON "
     "s.row = r.stage GROUP BY r.stage HAVING COUNT(DISTINCT r.job) > 1"},
    {"every evaluation that succeeded has its results",
     "SELECT j.job_id || ' succeeded without a result' FROM jobs j JOIN evaluations e ON e.key = j.key WHERE j.state = "
     "'SUCCEEDED' AND j.verify_of IS NULL AND NOT EXISTS (SELECT 1 FROM evaluation_results r WHERE r.evaluation = "
     "e.row)"},
    {"every planned evaluation has its job",
     "SELECT 'sweep ' || s.name || ': no job of evaluation ' || e.key FROM point_evaluations pe JOIN points p ON p.sweep "
     "= pe.sweep AND p.arm = pe.arm AND p.seed = pe.seed AND p.phase = pe.phase JOIN sweeps s ON s.row = pe.sweep JOIN "
     "evaluations e ON e.row = pe.evaluation WHERE p.seal <> 'dropped' AND s.state <> 'CANCELLED' AND NOT EXISTS (SELECT "
     "1 FROM jobs j JOIN sweep_jobs sj ON sj.job = j.row WHERE j.key = e.key AND sj.sweep = pe.sweep)"},
    {"every planned training has its job",
     "SELECT 'sweep ' || s.name || ': no job of stage ' || t.key FROM points p JOIN sweeps s ON s.row = p.sweep JOIN "
     "stages t ON t.row = p.stage WHERE p.seal <> 'dropped' AND s.state <> 'CANCELLED' AND NOT EXISTS (SELECT 1 FROM "
     "jobs j JOIN sweep_jobs sj ON sj.job = j.row WHERE j.key = t.key AND sj.sweep = p.sweep)"},
    {"sweeps that are over have nothing left to do",
     "SELECT 'sweep ' || s.name || ' is ' || s.state || ', but ' || j.job_id || ' is ' || j.state FROM sweeps s JOIN "
     "sweep_jobs sj ON sj.sweep = s.row JOIN jobs j ON j.row = sj.job WHERE (s.state IN ('SUCCEEDED', 'FAILED') AND "
     "j.state IN ('BLOCKED', 'QUEUED', 'RUNNING')) OR (s.state = 'SUCCEEDED' AND j.state IN ('FAILED', 'CANCELLED'))"},
    {"sweeps have the newest version of their plan",
     "SELECT 'sweep ' || s.name FROM sweeps s JOIN plan_versions v ON v.sweep = s.row WHERE v.version = (SELECT "
     "MAX(version) FROM plan_versions WHERE sweep = s.row) AND v.plan_sha256 <> s.plan_sha256"},
};

std::string Noted(const absl::Status& status, CheckReport* report) {
  if (status.code() != absl::StatusCode::kDataLoss) report->trouble.Update(status);
  const std::string text(status.message());
  return text.substr(0, text.find(", in: "));  // the statement says nothing to a user
}

// The texts of a query's first column; an error of it is a text too.
std::vector<std::string> Texts(Connection& db, const std::string& sql, CheckReport* report) {
  std::vector<std::string> texts;
  absl::StatusOr<Statement> rows = db.Query(sql);
  if (!rows.ok()) return {Noted(rows.status(), report)};
  while (true) {
    const absl::StatusOr<bool> more = rows->Step();
    if (!more.ok()) {
      texts.push_back(Noted(more.status(), report));
      return texts;
    }
    if (!*more) return texts;
    texts.push_back(rows->Text(0));
  }
}

void CheckDigests(Connection& db, CheckReport* report) {
  int64_t rows = 0, without = 0;
  std::vector<std::string> faults;
  for (const DigestedTable& table : DigestedTables()) {
    const absl::StatusOr<DigestCounts> counts = CountDigests(db, table);
    if (!counts.ok()) {
      faults.push_back(absl::StrCat(table.table, " cannot be read to its end: ", Noted(counts.status(), report)));
      continue;
    }
    rows += counts->rows;
    without += counts->without;
    if (counts->wrong > 0) {
      faults.push_back(absl::StrCat(counts->wrong, counts->wrong == 1 ? " row of " : " rows of ", table.table,
                                    counts->wrong == 1 ? " is" : " are", " not what was written"));
    }
  }
  std::string found = absl::StrCat(rows, " rows");
  if (without > 0) absl::StrAppend(&found, ", ", without, " of them without one: another program wrote them");
  report->Add("digests", found, faults);
}

// Rows of data by their number: the hashes of their files, by which keys name them.
absl::StatusOr<std::map<int64_t, std::vector<std::string>>> FilesOfData(Connection& db, std::vector<std::string>* faults) {
  std::map<int64_t, std::vector<std::string>> listed, all;
  ABLATE_ASSIGN_OR_RETURN(Statement files, db.Query("SELECT data, sha256, bytes FROM data_files ORDER BY data, position"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, files.Step());
    if (!more) break;
    listed[files.Int(0)].push_back(absl::StrCat(files.Text(1), " ", files.Int(2)));
  }
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT row, name, sha256, ref FROM data ORDER BY row"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return all;
    v1::DataRef ref;
    std::vector<std::string> named;
    const bool read = ref.ParseFromString(rows.Bytes(3));
    std::vector<std::string>& hashes = all[rows.Int(0)];
    for (const v1::DataFile& file : ref.files()) {
      hashes.push_back(file.sha256());
      named.push_back(absl::StrCat(file.sha256(), " ", file.bytes()));
    }
    const std::string combined = CombinedDataSha256(ref);
    if (!read || named != listed[rows.Int(0)] || ref.sha256() != rows.Text(2) || (!combined.empty() && combined != ref.sha256()))
      faults->push_back(absl::StrCat("the files of data ", rows.Text(1), " (row ", rows.Int(0), ") are not those that it names"));
  }
}

// What no digest covers, the files that an evaluation reads, its key covers; and all that the digests cover a second time.
absl::StatusOr<int64_t> CheckKeysOfEvaluations(Connection& db, std::vector<std::string>* faults) {
  ABLATE_ASSIGN_OR_RETURN(auto files, FilesOfData(db, faults));
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT e.key, e.eval_config, e.length, e.split, s.key, e.files, e.tokenizer "
                                                   "FROM evaluations e JOIN stages s ON s.row = e.stage ORDER BY e.row"));
  int64_t count = 0;
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return count;
    ++count;
    const auto inputs = [&](int column) { return rows.IsNull(column) ? std::vector<std::string>() : files[rows.Int(column)]; };
    const std::string key = MakeEvaluationKeyText(rows.Text(1), inputs(5), rows.Int(2), rows.Text(3), inputs(6)).KeyOf(rows.Text(4));
    if (key != rows.Text(0)) faults->push_back(absl::StrCat("evaluation ", rows.Text(0), " is of something else than its key says"));
  }
}

// The schema as the migrations make it; made once for each version.
absl::StatusOr<std::vector<std::string>> SchemaOf(int64_t version) {
  static Mutex& mutex = *new Mutex;
  static auto& made = *new std::map<int64_t, std::vector<std::string>>;
  MutexLock lock(&mutex);
  if (const auto found = made.find(version); found != made.end()) return found->second;
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db, Connection::Open(":memory:", Connection::Mode::kPlain));
  ABLATE_RETURN_IF_ERROR(MigrateTo(*db, ":memory:", static_cast<int>(version)));
  CheckReport none;
  return made[version] = Texts(*db, kSchema, &none);
}

// A statement of the schema that is lost takes a view or an index with it without a word from SQLite. Users may have
// added their own.
void CheckSchema(Connection& db, int64_t version, CheckReport* report) {
  const absl::StatusOr<std::vector<std::string>> expected = SchemaOf(version);
  if (!expected.ok()) {
    report->Add("schema", "", {Noted(expected.status(), report)});
    return;
  }
  const std::vector<std::string> found = Texts(db, kSchema, report);
  std::vector<std::string> faults;
  for (const std::string& object : *expected) {
    if (std::find(found.begin(), found.end(), object) != found.end()) continue;
    faults.push_back(absl::StrCat("the ", object.substr(0, object.find('\n')), " is not as it was made"));
  }
  report->Add("schema", absl::StrCat(expected->size(), " tables, views, indexes and triggers"), std::move(faults));
}

}  // namespace

void CheckReport::Add(const std::string& what, const std::string& found, std::vector<std::string> more) {
  lines.push_back({what, more.empty() ? found : absl::StrCat(more.size(), more.size() == 1 ? " fault" : " faults"),
                   more.empty()});
  const size_t left_out = more.size() > kShown ? more.size() - kShown : 0;
  more.resize(std::min(more.size(), kShown));
  for (const std::string& fault : more) faults.push_back(absl::StrCat(what, ": ", fault));
  if (left_out > 0) faults.push_back(absl::StrCat(what, ": and ", left_out, " more"));
}

void CheckStructure(Connection& db, bool quick, CheckReport* report) {
  std::vector<std::string> texts =
      Texts(db, quick ? "SELECT * FROM pragma_quick_check(100)" : "SELECT * FROM pragma_integrity_check(100)", report);
  if (texts == std::vector<std::string>{"ok"}) texts.clear();
  const char* path_of_main = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
  const int64_t bytes = db.QueryInt(0, path_of_main).value_or(0);
  report->Add("structure", absl::StrCat(HumanBytes(static_cast<uint64_t>(bytes)), quick ? ", looked at quickly" : ""),
              std::move(texts));
  report->Add("foreign keys", "all lead to rows",
              Texts(db, "SELECT \"table\" || ' row ' || COALESCE(rowid, '?') || ' names a row of ' || parent || ' that is not there' "
                        "FROM pragma_foreign_key_check", report));
  const int64_t version = db.QueryInt(0, "PRAGMA user_version").value_or(0);
  if (version >= 1) CheckSchema(db, version, report);
  if (version >= kDigestsSince) CheckDigests(db, report);
}

void CheckInvariants(Connection& db, CheckReport* report) {
  std::vector<std::string> counts;
  for (const std::string& state : Texts(db, "SELECT COUNT(*) || ' ' || lower(state) FROM jobs GROUP BY state ORDER BY 1", report)) {
    counts.push_back(state);
  }
  const int64_t jobs = db.QueryInt(0, "SELECT COUNT(*) FROM jobs").value_or(0);
  // By counting each state, not by trust in the column's list of words.
  const int64_t counted =
      db.QueryInt(-1, "SELECT TOTAL(state = 'BLOCKED') + TOTAL(state = 'QUEUED') + TOTAL(state = 'RUNNING') + "
                      "TOTAL(state IN ('SUCCEEDED', 'FAILED', 'CANCELLED')) FROM jobs")
          .value_or(-1);
  std::vector<std::string> faults;
  if (counted != jobs) faults.push_back(absl::StrCat(jobs, " were submitted, ", counted, " are in some state"));
  report->Add("jobs",
              absl::StrCat(jobs, counts.empty() ? "" : absl::StrCat(" = ", absl::StrJoin(counts, " + "))),
              std::move(faults));
  for (const Rule& rule : kRules) report->Add(rule.name, "yes", Texts(db, rule.sql, report));
  std::vector<std::string> strange;
  const absl::StatusOr<int64_t> evaluations = CheckKeysOfEvaluations(db, &strange);
  if (!evaluations.ok()) strange.push_back(Noted(evaluations.status(), report));
  report->Add("evaluations are of what their keys say", absl::StrCat(evaluations.value_or(0)), std::move(strange));
  std::string edges;
  for (const JobEdge& edge : JobEdges()) {
    absl::StrAppend(&edges, edges.empty() ? "" : ", ", "('", ToAbsl(StateName(edge.from)), "', '",
                    ToAbsl(StateName(edge.to)), "', '", ToAbsl(CauseName(edge.cause)), "')");
  }
  report->Add("events are edges of the state machine", "yes",
              Texts(db, absl::StrCat("SELECT j.job_id || ' went from ' || e.from_state || ' to ' || e.to_state || ' by ' || "
                                     "e.cause FROM events e JOIN jobs j ON j.row = e.job WHERE (upper(e.from_state), "
                                     "upper(e.to_state), e.cause) NOT IN (VALUES ", edges, ")"), report));
}

namespace {

absl::Status CheckOnce(const std::string& path, bool quick) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db, Connection::Open(path, Connection::Mode::kReadOnly));
  ABLATE_RETURN_IF_ERROR(db->Script("BEGIN"));
  ABLATE_ASSIGN_OR_RETURN(const int64_t version, db->QueryInt(0, "PRAGMA user_version"));
  // Of another program, or a newer release: that is for Migrate to say.
  if (version > static_cast<int64_t>(Migrations().size())) return absl::OkStatus();
  CheckReport report;
  CheckStructure(*db, quick, &report);
  if (report.ok()) return absl::OkStatus();
  return report.trouble.ok() ? absl::DataLossError(absl::StrJoin(report.faults, "; ")) : report.trouble;
}

}  // namespace

absl::Status CheckBeforeUse(const std::string& path) {
  const auto size = FileSize(path);
  if (!size.ok() || *size == 0) return absl::OkStatus();  // yet to be made
  const bool quick = *size > kQuickAboveBytes;
  const absl::Status first = CheckOnce(path, quick);
  // SQLite's check takes a page that could not be read once for a damaged one.
  return first.ok() ? first : CheckOnce(path, quick);
}

}  // namespace ablate
