// ablate run: coordinator and worker on this machine, for one sweep, with the programs that one would start by hand.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/background_dashboard.h"
#include "cli/claim_tables.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/failures.h"
#include "cli/local_server.h"
#include "cli/result_tables.h"
#include "cli/stop_signals.h"
#include "cli/watcher.h"
#include "experiments/metrics.h"
#include "experiments/plan.h"

namespace ablate {
namespace {

constexpr int kMaxWorkerStarts = 5;  // without progress in between
constexpr double kFirstPauseSeconds = 1;
constexpr double kDrainSeconds = 30;

int Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

class LocalWorker {
 public:
  LocalWorker(std::string server, std::string dir, int64_t slots, bool noop)
      : server_(std::move(server)), dir_(std::move(dir)), slots_(slots), noop_(noop) {}
  // Lets it save checkpoints and give its jobs back; a further Ctrl-C ends that.
  ~LocalWorker() {
    if (process_) StopProcess(&*process_, kDrainSeconds);
  }

  // Starts it, or starts it again when it has died: later and later while `progress` (which only grows) stands still.
  // FailedPrecondition: it dies again and again.
  absl::Status KeepRunning(int64_t progress) {
    if (process_ && !process_->HasExited()) return absl::OkStatus();
    const auto now = std::chrono::steady_clock::now();
    if (process_ && !again_at_) {
      if (progress > progress_) starts_ = 1;
      const std::string log = JoinPath(dir_, "worker.log"), end = process_->Wait().Describe();
      if (starts_ == kMaxWorkerStarts) {
        return absl::FailedPreconditionError(absl::StrCat("the worker ended ", starts_,
                                                          " times without any progress, at last with ", end,
                                                          "; its log is ", log, ":\n", Tail(log)));
      }
      const double pause = starts_ == 1 ? 0 : kFirstPauseSeconds * (1 << (starts_ - 2));
      Say(absl::StrCat("the worker ended with ", end, " (", log, "); starting it again",
                       pause > 0 ? absl::StrCat(" in ", HumanSeconds(pause)) : ""));
      again_at_ = now + std::chrono::milliseconds(static_cast<int64_t>(pause * 1000));
    }
    if (again_at_ && now < *again_at_) return absl::OkStatus();
    ABLATE_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("ablate-worker"));
    SubprocessOptions options;
    options.argv = {program,
                    "--server",
                    server_,
                    "--device",
                    "cpu",
                    "--slots",
                    absl::StrCat(slots_),
                    "--work-dir",
                    JoinPath(dir_, "worker"),
                    "--executor",
                    noop_ ? "noop" : "trainer"};
    options.pipe_stdin = false;
    options.stderr_path = JoinPath(dir_, "worker.log");
    ABLATE_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(options));
    process_ = std::move(process);
    again_at_.reset();
    progress_ = progress;
    ++starts_;
    return absl::OkStatus();
  }

 private:
  const std::string server_, dir_;
  const int64_t slots_;
  const bool noop_;
  std::optional<Subprocess> process_;
  int starts_ = 0;  // since the last progress
  int64_t progress_ = 0;
  std::optional<std::chrono::steady_clock::time_point> again_at_;
};

// Whether anything was measured.
absl::StatusOr<bool> PrintResults(const Invocation& invocation, Client* client, const v1::Sweep& sweep,
                                  const std::string& dir) {
  v1::GetTableRequest table_request;
  table_request.set_sweep(sweep.sweep_id());
  ABLATE_ASSIGN_OR_RETURN(v1::GetTableResponse table, client->Call(&v1::Results::Stub::GetTable, table_request));
  const bool measured = KeepMeasured(&table);
  std::set<std::string> others;
  if (!invocation.for_programs()) others = KeepHeadlines(&table);
  if (measured || invocation.for_programs()) Emit(invocation, TableReport(table));
  if (!measured) return false;
  if (!invocation.for_programs() && sweep.arms() > 1) {
    v1::CompareArmsRequest request;
    request.set_sweep(sweep.sweep_id());
    absl::StatusOr<v1::CompareArmsResponse> compared = client->Call(&v1::Results::Stub::CompareArms, request);
    if (!compared.ok()) {
      Say(absl::StrCat("no comparison: ", compared.status().message()));
    } else if (KeepMeasured(&*compared)) {
      KeepHeadlines(&*compared);
      std::printf("\n");
      Emit(invocation, ComparisonReport(*compared));
    }
  }
  if (!invocation.for_programs() && sweep.phase() != v1::PLAIN && sweep.phase() != v1::PHASE_UNSPECIFIED) {
    v1::GetClaimsRequest request;
    request.set_sweep(sweep.sweep_id());
    ABLATE_ASSIGN_OR_RETURN(const v1::GetClaimsResponse claims, client->Call(&v1::Results::Stub::GetClaims, request));
    std::printf("\n");
    Emit(invocation, ClaimsReport(claims));
    if (!claims.waiting_for().empty()) Say(absl::StrCat("it waits for: ", claims.waiting_for()));
  }
  const std::string where = absl::StrCat(" --data-dir ", ShellQuoted(dir)),
                    database = ShellQuoted(JoinPath(dir, "ablate.db"));
  Say(absl::StrCat("\nEverything is in ", database, ". Try next:\n  ablate table ", sweep.name(), where, " -o latex\n",
                   others.empty() ? ""
                                  : absl::StrCat("  ablate table ", sweep.name(), where, " --metric ",
                                                 absl::StrJoin(others, ","), "\n"),
                   "  ablate compare ", sweep.name(), where, " -o json\n  ablate dashboard", where, "\n  sqlite3 ", database,
                   " 'SELECT * FROM confidence_intervals'"));
  return true;
}

// What this machine's worker could never take would wait for ever.
absl::Status CheckRunsHere(const v1::Requirements& requirements) {
  std::string missing;
  if (!requirements.device().empty() && requirements.device() != "cpu") {
    missing = absl::StrCat("device ", requirements.device());
  } else if (requirements.labels_size() > 0) {
    missing = absl::StrCat("the label ", requirements.labels(0));
  } else if (const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
             requirements.memory_bytes() > memory) {
    missing = absl::StrCat(HumanBytes(requirements.memory_bytes()), " of memory (", HumanBytes(memory), " are here)");
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the sweep requires ", missing,
                   ", and `ablate run` has only this machine's CPU: start ablate-server and an "
                   "ablate-worker that has it, and use `ablate sweep submit` (README.md, \"On several machines\")"));
}

absl::StatusOr<v1::Sweep> Retry(Client* client, const v1::Sweep& sweep) {
  v1::RetrySweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(sweep.sweep_id());
  ABLATE_ASSIGN_OR_RETURN(const v1::RetrySweepResponse response, client->Call(&v1::Sweeps::Stub::RetrySweep, request));
  Say(absl::StrCat(Counted(response.new_jobs(), "new job"), " for the failed ones"));
  return response.sweep();
}

absl::StatusOr<v1::Sweep> Resume(Client* client, const v1::Sweep& sweep, std::optional<int32_t> max_failures) {
  v1::ResumeSweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(sweep.sweep_id());
  if (max_failures.has_value()) request.set_max_failures(*max_failures);
  return client->Call(&v1::Sweeps::Stub::ResumeSweep, request);
}

// The sweep of this name in the folder, where it comes from the same file; its data need not be at hand then: the
// coordinator has it.
absl::StatusOr<std::optional<v1::Sweep>> FindSameFile(Client* client, const SweepInput& input) {
  v1::GetSweepRequest get;
  get.set_sweep(input.spec.name());
  const absl::StatusOr<v1::Sweep> sweep = client->Call(&v1::Sweeps::Stub::GetSweep, get);
  if (absl::IsNotFound(sweep.status())) return std::nullopt;
  ABLATE_RETURN_IF_ERROR(sweep.status());
  v1::QueryRequest query;
  query.set_sql(absl::StrCat("SELECT yaml FROM sweeps WHERE sweep_id = '", sweep->sweep_id(), "'"));
  bool same = false;
  ABLATE_RETURN_IF_ERROR(client->Query(query, [&](const v1::QueryResponse& part) {
    for (const v1::QueryResponse::Row& row : part.rows())
      same = row.cells_size() == 1 && row.cells(0).text() == input.yaml;
  }));
  return same ? std::optional<v1::Sweep>(*sweep) : std::nullopt;
}

absl::StatusOr<v1::Sweep> Submit(Client* client, const SweepInput& input, Progress* progress,
                                 std::optional<int32_t> max_failures, bool* created) {
  *created = false;
  if (!input.data_found) {
    ABLATE_ASSIGN_OR_RETURN(const std::optional<v1::Sweep> same, FindSameFile(client, input));
    if (!same) return MissingData(input);
    // A cancelled one is taken up again only with its data.
    if (same->state() != v1::SWEEP_CANCELLED) return *same;
    return MissingData(input);
  }
  ABLATE_ASSIGN_OR_RETURN(v1::SubmitSweepResponse submitted, SubmitFile(client, input, progress, max_failures));
  *created = submitted.created();
  return submitted.sweep();
}

// The worker takes the jobs of every sweep of the folder, the oldest first: those of another one may keep this one at
// nothing done for long.
absl::Status SayOthers(Client* client, const v1::Sweep& ours, const std::string& dir) {
  std::vector<std::string> names;
  v1::ListSweepsRequest request;
  request.set_page_size(1000);
  do {
    ABLATE_ASSIGN_OR_RETURN(const v1::ListSweepsResponse listed, client->Call(&v1::Sweeps::Stub::ListSweeps, request));
    for (const v1::Sweep& sweep : listed.sweeps()) {
      const bool goes_on = sweep.state() == v1::SWEEP_RUNNING && !IsPaused(sweep);
      if (goes_on && sweep.sweep_id() != ours.sweep_id()) names.push_back(sweep.name());
    }
    request.set_page_token(listed.next_page_token());
  } while (!request.page_token().empty());
  if (names.empty()) return absl::OkStatus();
  Say(absl::StrCat("unfinished in this folder, too, and their jobs run as well, the older ones first: ",
                   absl::StrJoin(names, ", "), "; who does not want one:"));
  for (const std::string& name : names)
    Say(absl::StrCat("  ablate sweep cancel ", name, " --data-dir ", ShellQuoted(dir)));
  return absl::OkStatus();
}

// What grows with every bit of work that is done.
int64_t WorkDone(const v1::Sweep& sweep) {
  return sweep.jobs().succeeded() + sweep.jobs().failed() + sweep.jobs().cancelled() + sweep.steps_done();
}

}  // namespace

absl::StatusOr<int> RunRun(const Invocation& invocation) {
  CatchStopSignals("\nstopped; the same command again resumes\n");
  ABLATE_ASSIGN_OR_RETURN(const int64_t slots, invocation.GetInteger("--slots", Cores(), 1, 4096));
  ABLATE_ASSIGN_OR_RETURN(const std::optional<int32_t> max_failures, MaxFailures(invocation));
  const std::string http = invocation.Get("--http");
  if (invocation.Has("--http") && http != "off") ABLATE_RETURN_IF_ERROR(CheckDashboardAddress(http));
  Progress progress(stderr);
  ABLATE_ASSIGN_OR_RETURN(const SweepInput input, ReadInput(invocation, &progress, /*need_data=*/false));
  const std::string dir = invocation.Get("--data-dir", absl::StrCat("ablate-runs/", input.spec.name()));
  if (!input.data_found && !FileExists(JoinPath(dir, "ablate.db"))) return MissingData(input);
  ABLATE_RETURN_IF_ERROR(CheckRunsHere(input.spec.requirements()));
  // A fault of the file is told before anything is started. Without the data's hash there is no plan; the coordinator
  // has one.
  if (input.data_found) ABLATE_RETURN_IF_ERROR(MakePlan(input.spec, input.places).status());
  ABLATE_RETURN_IF_ERROR(MakeDirs(dir));
  if (BackgroundDashboard(dir).has_value()) {
    // It only shows what is there, and would keep the folder from us.
    ABLATE_RETURN_IF_ERROR(StopBackgroundDashboard(dir));
    Say(absl::StrCat("the dashboard of ", dir, " in the background was stopped: this run serves one itself"));
  }
  if (const std::optional<std::string> running = RunningServer(dir)) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir, " is in use by a coordinator at ", *running, ": watch it with `ablate sweep watch ",
                     input.spec.name(), " --data-dir ", ShellQuoted(dir), "`, or choose another --data-dir"));
  }
  const std::string again =
      absl::StrCat("ablate run ", ShellQuoted(invocation.arguments[0]), " --data-dir ", ShellQuoted(dir));
  const auto start = [&](const std::string& address) {
    return LocalServer::Start(dir, JoinPath(dir, "server.log"), address);
  };
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> server,
                          http == "off" ? start("") : StartWithPage(dir, http, start));
  Client client(server->address());
  bool created = false;
  ABLATE_ASSIGN_OR_RETURN(v1::Sweep sweep, Submit(&client, input, &progress, max_failures, &created));
  if (IsPaused(sweep)) {
    // Whoever starts it again is the person that it waits for.
    Say(absl::StrCat("it was ", PauseReason(sweep), "; it goes on"));
    ABLATE_ASSIGN_OR_RETURN(sweep, Resume(&client, sweep, max_failures));
  }
  if (sweep.state() == v1::SWEEP_FAILED && invocation.Has("--retry")) {
    ABLATE_ASSIGN_OR_RETURN(sweep, Retry(&client, sweep));
  }
  if (sweep.state() == v1::SWEEP_RUNNING) {
    const int stops = StopCount();
    const DeferStop defer;
    Say(absl::StrCat(created ? "running " : "resuming ", sweep.name(), " on ", Counted(slots, "slot"),
                     "; logs and results are in ", dir));
    ABLATE_RETURN_IF_ERROR(SayOthers(&client, sweep, dir));
    if (const std::optional<std::string> link = DashboardLink(dir)) Say(absl::StrCat("dashboard: ", *link));
    LocalWorker worker(server->address(), dir, slots, input.spec.executor() == v1::EXECUTOR_NOOP);
    ABLATE_RETURN_IF_ERROR(worker.KeepRunning(0));
    const auto tick = [&](const v1::Sweep& now) -> absl::Status {
      if (StopCount() > stops) return absl::CancelledError("");
      if (server->HasExited()) return UnreachableError("ablate-server ended");
      return worker.KeepRunning(WorkDone(now));
    };
    const absl::StatusOr<v1::Sweep> followed =
        FollowSweep(&client, sweep.sweep_id(), invocation.timeout(), &progress, tick);
    // What happened is said before the worker is stopped, which takes its time.
    if (!followed.ok()) {
      const std::string log = JoinPath(dir, "server.log");
      const std::string why = absl::IsCancelled(followed.status()) ? "stopping"
                              : server->HasExited()
                                  ? absl::StrCat("ablate-server ended; its log is ", log, ":\n", Tail(log), "stopping")
                                  : absl::StrCat(followed.status().message(), "\nstopping");
      Say(absl::StrCat(why, ": running jobs save what they have (Ctrl-C",
                       absl::IsCancelled(followed.status()) ? " again" : "",
                       " ends that at once); the same command resumes: ", again));
      return absl::IsCancelled(followed.status()) ? kExitInterrupted : ExitCodeFor(followed.status());
    }
    sweep = *followed;
  } else {
    Say(absl::StrCat(sweep.name(), " is over already (", StateText(sweep.state()), "); its tables:"));
  }
  ABLATE_ASSIGN_OR_RETURN(const bool measured, PrintResults(invocation, &client, sweep, dir));
  if (!measured) Say("nothing was measured");
  if (IsPaused(sweep)) {
    Say(absl::StrCat(sweep.name(), " is ", PauseReason(sweep),
                     "; when the cause is mended: ", again));
  }
  SayFailures(&client, sweep, absl::StrCat(" --data-dir ", ShellQuoted(dir)));
  if (sweep.jobs().failed() > 0) {
    Say(absl::StrCat("when the cause is mended, new jobs for them: ", again,
                     " --retry\n(a changed sweep file or other data is another sweep: "
                     "give it another `name:` or --data-dir)"));
  }
  return ExitCodeOfSweep(sweep);
}

}  // namespace ablate
