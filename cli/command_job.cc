// ablate job ... and ablate worker ...
#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/attempt_tables.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/failures.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

constexpr size_t kShownLines = 20;  // of a trainer's stderr, in `job show`
constexpr int kTaskColumn = 2;      // of the table of jobs, where it is shown: beside the kind

std::string Lower(std::string text) { return absl::AsciiStrToLower(text); }

std::string OutcomeText(const v1::Job& job) {
  return job.outcome() == v1::OUTCOME_UNSPECIFIED ? "" : v1::Outcome_Name(job.outcome());
}

// {"loss":2.5,"max_gradient_norm":null}
std::string MetricsJson(const v1::Job& job) {
  std::vector<std::string> fields;
  for (const v1::MetricValue& metric : job.metrics()) {
    fields.push_back(absl::StrCat(JsonString(metric.metric()), ":",
                                  std::isfinite(metric.value()) ? ShortestDouble(metric.value()) : "null"));
  }
  return absl::StrCat("{", absl::StrJoin(fields, ","), "}");
}

// [{"name":"attention-map.bin","media_type":...,"bytes":1234,"sha256":...}]
std::string ArtifactsJson(const v1::Job& job) {
  std::vector<std::string> files;
  for (const v1::ResultArtifact& made : job.artifacts()) {
    files.push_back(absl::StrCat("{\"name\":", JsonString(made.name()), ",\"media_type\":", JsonString(made.media_type()),
                                 ",\"bytes\":", made.artifact().bytes(), ",\"sha256\":", JsonString(made.artifact().sha256()),
                                 "}"));
  }
  return absl::StrCat("[", absl::StrJoin(files, ","), "]");
}

bool HasNtk(const v1::EvaluationTask& task) {
  return std::any_of(
      task.eval_config().settings().begin(), task.eval_config().settings().end(),
      [](const v1::Setting& setting) { return setting.axis() == "eval.ntk" && setting.value().text() == "dynamic"; });
}

Cell TextOrNull(const std::string& text) { return text.empty() ? Cell::Null() : Cell::Text(text); }

v1::GetJobRequest JobRequest(const Invocation& invocation) {
  v1::GetJobRequest request;
  request.set_job_id(invocation.arguments[0]);
  return request;
}

// "failed,running" -> states.
absl::StatusOr<std::vector<v1::JobState>> ParseStates(const std::string& list) {
  std::vector<v1::JobState> states;
  std::vector<std::string> names;
  for (int i = 1; v1::JobState_IsValid(i); ++i) names.push_back(Lower(v1::JobState_Name(static_cast<v1::JobState>(i))));
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(list, ',', absl::SkipEmpty()))) {
    const auto found = std::find(names.begin(), names.end(), Lower(part));
    if (found == names.end())
      return UsageError(absl::StrCat("--state: unknown state \"", part, "\"", DidYouMean(Lower(part), names)));
    states.push_back(static_cast<v1::JobState>(found - names.begin() + 1));
  }
  return states;
}

Report WorkerReport(const std::vector<v1::WorkerInfo>& workers) {
  Report report;
  report.records.columns = {"worker_id",    "hostname",        "state",        "slots",    "running",
                            "device_class", "device_kind",     "memory_bytes", "executor", "labels",
                            "build",        "last_contact_at", "running_jobs"};
  Sheet sheet;
  sheet.columns = {{.title = "worker"},
                   {.title = "host"},
                   {.title = "state"},
                   {.title = "slots", .right = true},
                   {.title = "running", .right = true},
                   {.title = "device"},
                   {.title = "labels"},
                   {.title = "build"},
                   {.title = "last contact"}};
  for (const v1::WorkerInfo& worker : workers) {
    const std::string state = !worker.connected()                 ? "away"
                              : worker.draining()                 ? "draining"
                              : worker.running_job_ids_size() > 0 ? "busy"
                                                                  : "idle";
    std::string executor = Lower(v1::Executor_Name(worker.executor()));
    if (absl::StartsWith(executor, "executor_")) executor = executor.substr(9);
    report.records.rows.push_back(
        {Cell::Text(worker.worker_id()), Cell::Text(worker.hostname()), Cell::Text(state),
         Cell::Integer(worker.slots()), Cell::Integer(worker.running_job_ids_size()), Cell::Text(worker.device_class()),
         Cell::Text(worker.device_kind()), Cell::Integer(worker.memory_bytes()), Cell::Text(executor),
         Cell::Json(JsonList(std::vector<std::string>(worker.labels().begin(), worker.labels().end()))),
         Cell::Text(worker.build()), TimeCell(worker.last_contact_at_us()),
         Cell::Json(
             JsonList(std::vector<std::string>(worker.running_job_ids().begin(), worker.running_job_ids().end())))});
    sheet.rows.push_back({worker.worker_id(), worker.hostname(), state, absl::StrCat(worker.slots()),
                          absl::StrCat(worker.running_job_ids_size()),
                          worker.device_kind().empty() ? worker.device_class() : worker.device_kind(),
                          absl::StrJoin(worker.labels(), " "), worker.build(), TimeText(worker.last_contact_at_us())});
  }
  report.sheets = {std::move(sheet)};
  return report;
}

}  // namespace

Report JobReport(const std::vector<v1::Job>& jobs) {
  Report report;
  report.records.columns = {
      "job_id",  "kind",          "state",        "outcome",   "arm",         "seed",       "from_step",
      "to_step", "length",        "split",        "ntk",       "eval_config", "step",       "total_steps",
      "attempt", "failures",      "max_failures", "failure",   "message",     "worker_id",  "tokens_per_second",
      "metrics", "parent_job_id", "retry_of",     "sweep_ids", "key",         "created_at", "started_at",
      "ended_at", "sealed",       "verify_of",    "artifacts", "task"};
  const bool tasks = std::any_of(jobs.begin(), jobs.end(), [](const v1::Job& job) {
    const std::string task = TaskName(job);
    return !task.empty() && task != "loss";
  });
  Sheet sheet;
  sheet.columns = {{.title = "job"},
                   {.title = "kind"},
                   {.title = "state"},
                   {.title = "arm"},
                   {.title = "seed", .right = true},
                   {.title = "steps", .right = true},
                   {.title = "length", .right = true},
                   {.title = "split"},
                   {.title = "ntk"},
                   {.title = "attempt", .right = true},
                   {.title = "worker"},
                   {.title = "note"}};
  if (tasks) sheet.columns.insert(sheet.columns.begin() + kTaskColumn, {.title = "task"});
  for (const v1::Job& job : jobs) {
    const bool stage = job.kind() == v1::STAGE;
    const v1::StageTask& s = job.task().stage();
    const v1::EvaluationTask& e = job.task().evaluation();
    const int64_t seed = stage ? s.seed() : e.seed();
    report.records.rows.push_back(
        {Cell::Text(job.job_id()),
         Cell::Text(v1::JobKind_Name(job.kind())),
         Cell::Text(v1::JobState_Name(job.state())),
         TextOrNull(OutcomeText(job)),
         Cell::Text(job.arm_label()),
         Cell::Integer(seed),
         stage ? Cell::Integer(s.from_step()) : Cell::Null(),
         stage ? Cell::Integer(s.to_step()) : Cell::Null(),
         stage ? Cell::Null() : Cell::Integer(e.length_tokens()),
         stage ? Cell::Null() : Cell::Text(e.split()),
         stage ? Cell::Null() : Cell::Flag(HasNtk(e)),
         stage ? Cell::Null() : Cell::Json(ToJson(e.eval_config())),
         Cell::Integer(job.step()),
         Cell::Integer(job.total_steps()),
         Cell::Integer(job.attempt()),
         Cell::Integer(job.failures()),
         Cell::Integer(job.max_failures()),
         TextOrNull(FailureKindText(job.last_failure())),
         TextOrNull(job.last_failure().message()),
         TextOrNull(job.worker_id()),
         Cell::Number(job.tokens_per_second()),
         Cell::Json(MetricsJson(job)),
         TextOrNull(job.parent_job_id()),
         TextOrNull(job.retry_of()),
         Cell::Json(JsonList(std::vector<std::string>(job.sweep_ids().begin(), job.sweep_ids().end()))),
         Cell::Text(job.key()),
         TimeCell(job.created_at_us()),
         TimeCell(job.started_at_us()),
         TimeCell(job.ended_at_us()),
         Cell::Flag(job.sealed()),
         TextOrNull(job.verify_of()),
         Cell::Json(ArtifactsJson(job)),
         TextOrNull(TaskName(job))});
    std::string note = job.outcome() == v1::DIVERGED ? "diverged" : FailureLine(job.last_failure(), 160);
    if (job.state() == v1::SUCCEEDED && job.outcome() != v1::DIVERGED) note.clear();
    if (job.sealed()) note = "sealed";
    if (!job.verify_of().empty()) note = absl::StrCat("verifies ", job.verify_of(), note.empty() ? "" : "; ", note);
    sheet.rows.push_back(
        {job.job_id(), Lower(v1::JobKind_Name(job.kind())), v1::JobState_Name(job.state()), job.arm_label(),
         absl::StrCat(seed),
         stage ? absl::StrCat(job.state() == v1::SUCCEEDED ? job.total_steps() : job.step(), "/", job.total_steps())
               : "",
         stage ? "" : absl::StrCat(e.length_tokens()), e.split(),
         stage       ? ""
         : HasNtk(e) ? "on"
                     : "off",
         absl::StrCat(job.attempt()), job.worker_id(), note});
    if (tasks) sheet.rows.back().insert(sheet.rows.back().begin() + kTaskColumn, TaskName(job));
  }
  report.sheets = {std::move(sheet)};
  return report;
}

absl::StatusOr<int> RunJobList(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<v1::JobState> states, ParseStates(invocation.Get("--state")));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(
      const std::vector<v1::Job> jobs,
      ListAllJobs(&connection->client(), invocation.arguments.empty() ? "" : invocation.arguments[0], states));
  Emit(invocation, JobReport(jobs));
  return kExitDone;
}

absl::StatusOr<int> RunJobShow(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetJobResponse response,
                          connection->client().Call(&v1::Jobs::Stub::GetJob, JobRequest(invocation)));
  Report report = JobReport({response.job()});
  report.sheets = {VerticalSheet(report.records, 0), AttemptSheet(response.attempts())};
  for (Sheet& evidence : EvidenceSheets(response.attempts(), kShownLines)) report.sheets.push_back(std::move(evidence));
  std::vector<std::string> attempts;
  for (const v1::Attempt& attempt : response.attempts()) attempts.push_back(AttemptJson(attempt));
  report.records.columns.push_back("attempts");
  report.records.rows[0].push_back(Cell::Json(absl::StrCat("[", absl::StrJoin(attempts, ","), "]")));
  Emit(invocation, report);
  return kExitDone;
}

absl::StatusOr<int> RunJobLogs(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetJobLogsResponse response,
                          connection->client().Call(&v1::Jobs::Stub::GetJobLogs, JobRequest(invocation)));
  Report report;
  report.records.columns = {"type", "at", "attempt", "text", "metric", "step", "value"};
  Sheet events;
  events.title = "events";
  events.columns = {{.title = "at"}, {.title = "what"}};
  for (const v1::GetJobLogsResponse::Event& event : response.events()) {
    report.records.rows.push_back({Cell::Text("event"), TimeCell(event.at_us()), Cell::Null(), Cell::Text(event.text()),
                                   Cell::Null(), Cell::Null(), Cell::Null()});
    events.rows.push_back({TimeText(event.at_us()), event.text()});
  }
  report.sheets = {events, AttemptSheet(response.attempts())};
  for (const v1::Attempt& attempt : response.attempts()) {
    const v1::Failure& failure = attempt.failure();
    std::string text = absl::StrCat(attempt.state(), " on ", attempt.worker_id());
    if (!FailureKindText(failure).empty()) absl::StrAppend(&text, ": ", FailureKindText(failure), ": ", failure.message());
    if (!failure.stderr_tail().empty()) absl::StrAppend(&text, "\n", failure.stderr_tail());
    report.records.rows.push_back({Cell::Text("attempt"), TimeCell(attempt.started_at_us()),
                                   Cell::Integer(attempt.attempt()), Cell::Text(text), Cell::Null(), Cell::Null(),
                                   Cell::Null()});
  }
  for (Sheet& evidence : EvidenceSheets(response.attempts(), std::numeric_limits<size_t>::max()))
    report.sheets.push_back(std::move(evidence));
  // The curve in full for programs; for people its last twenty points.
  Sheet curve;
  curve.title = "training curve (the last points; all with -o csv)";
  curve.columns = {{.title = "step", .right = true}, {.title = "metric"}, {.title = "value", .right = true}};
  for (int i = 0; i < response.points_size(); ++i) {
    const v1::CurvePoint& point = response.points(i);
    report.records.rows.push_back({Cell::Text("point"), Cell::Null(), Cell::Null(), Cell::Null(),
                                   Cell::Text(point.metric()), Cell::Integer(point.step()),
                                   Cell::Number(point.value())});
    if (i >= response.points_size() - 20)
      curve.rows.push_back({absl::StrCat(point.step()), point.metric(), ShortestDouble(point.value())});
  }
  if (!curve.rows.empty()) report.sheets.push_back(std::move(curve));
  Emit(invocation, report);
  return kExitDone;
}

absl::StatusOr<int> RunJobExplain(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::ExplainJobResponse response,
                          connection->client().Call(&v1::Jobs::Stub::ExplainJob, JobRequest(invocation)));
  Report report;
  // The coordinator does not know under which address we see it.
  std::string next_step = absl::StrReplaceAll(
      response.next_step(),
      {{"--server ADDRESS", absl::StrCat("--server ", ShellQuoted(connection->client().address()))}});
  const v1::JobState state = response.job().state();
  if (connection->is_private() && (state == v1::BLOCKED || state == v1::QUEUED || state == v1::RUNNING)) {
    next_step = absl::StrCat("Nothing runs on this folder: ablate run FILE", WhereFlags(invocation));
  }
  report.records.columns = {"job_id", "state", "explanation", "next_step"};
  report.records.rows.push_back({Cell::Text(response.job().job_id()),
                                 Cell::Text(v1::JobState_Name(response.job().state())),
                                 Cell::Text(response.explanation()), Cell::Text(next_step)});
  report.sheets = {VerticalSheet(report.records, 0)};
  Emit(invocation, report);
  return kExitDone;
}

absl::StatusOr<int> RunJobCancel(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::CancelJobRequest request;
  request.set_request_id(NewRequestId());
  request.set_job_id(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const v1::Job job, connection->client().Call(&v1::Jobs::Stub::CancelJob, request));
  Emit(invocation, JobReport({job}));
  return kExitDone;
}

absl::StatusOr<int> RunWorkerList(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  std::vector<v1::WorkerInfo> workers;
  v1::ListWorkersRequest request;
  request.set_page_size(1000);
  do {
    ABLATE_ASSIGN_OR_RETURN(const v1::ListWorkersResponse page,
                            connection->client().Call(&v1::Workers::Stub::ListWorkers, request));
    workers.insert(workers.end(), page.workers().begin(), page.workers().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  Emit(invocation, WorkerReport(workers));
  return kExitDone;
}

absl::StatusOr<int> RunWorkerDrain(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::DrainWorkerRequest request;
  request.set_request_id(NewRequestId());
  request.set_worker_id(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const v1::WorkerInfo worker,
                          connection->client().Call(&v1::Workers::Stub::DrainWorker, request));
  Emit(invocation, WorkerReport({worker}));
  return kExitDone;
}

}  // namespace ablate
