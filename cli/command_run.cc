// ablate run: coordinator and worker on this machine, for one sweep, with the programs that one would start by hand.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/local_server.h"
#include "cli/result_tables.h"
#include "cli/watcher.h"
#include "experiments/plan.h"

namespace ablate {
namespace {

constexpr int kMaxWorkerStarts = 4;
constexpr double kDrainSeconds = 30;

int Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

sigset_t StopSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  return signals;
}

// Takes a pending stop signal, if there is one.
bool StopWanted() {
  const sigset_t signals = StopSignals();
  const timespec now = {};
  return ::sigtimedwait(&signals, nullptr, &now) > 0;
}

class LocalWorker {
 public:
  LocalWorker(std::string server, std::string dir, int64_t slots, bool noop)
      : server_(std::move(server)), dir_(std::move(dir)), slots_(slots), noop_(noop) {}
  // Lets it save checkpoints and give its jobs back; a second Ctrl-C ends that.
  ~LocalWorker() {
    if (!process_ || process_->HasExited()) return;
    process_->Kill(SIGTERM);
    const auto start = std::chrono::steady_clock::now();
    while (!process_->HasExited()) {
      const timespec tenth = {.tv_sec = 0, .tv_nsec = 100'000'000};
      const sigset_t signals = StopSignals();
      const bool again = ::sigtimedwait(&signals, nullptr, &tenth) > 0;
      if (again || std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > kDrainSeconds) {
        process_->Kill(SIGKILL);
        process_->Wait();
      }
    }
  }

  // Starts it, or starts it again when it has died. FailedPrecondition: it dies again and again.
  absl::Status KeepRunning() {
    if (process_ && !process_->HasExited()) return absl::OkStatus();
    const std::string log = JoinPath(dir_, "worker.log");
    if (process_) {
      const std::string end = process_->Wait().Describe();
      if (starts_ == kMaxWorkerStarts) {
        return absl::FailedPreconditionError(absl::StrCat("the worker ended ", starts_, " times, at last with ", end, "; its log is ", log, ":\n", Tail(log)));
      }
      Say(absl::StrCat("the worker ended with ", end, " (", log, "); starting it again"));
    }
    ABLATE_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("ablate-worker"));
    SubprocessOptions options;
    options.argv = {program, "--server", server_, "--device", "cpu", "--slots", absl::StrCat(slots_),
                    "--work-dir", JoinPath(dir_, "worker"), "--executor", noop_ ? "noop" : "trainer"};
    options.pipe_stdin = false;
    options.stderr_path = log;
    ABLATE_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(options));
    process_ = std::move(process);
    ++starts_;
    return absl::OkStatus();
  }

 private:
  const std::string server_, dir_;
  const int64_t slots_;
  const bool noop_;
  std::optional<Subprocess> process_;
  int starts_ = 0;
};

// For people: the losses, if the sweep measures any; the rest is one command away.
template <typename Response>
std::set<std::string> KeepLosses(Response* response) {
  std::set<std::string> others;
  const auto is_loss = [](const std::string& metric) { return metric == "loss" || metric == "loss_targets"; };
  const bool any = std::any_of(response->rows().begin(), response->rows().end(), [&](const auto& row) { return is_loss(row.metric()); });
  if (!any) return others;
  Response kept;
  for (const auto& row : response->rows()) {
    if (is_loss(row.metric())) *kept.add_rows() = row;
    else others.insert(row.metric());
  }
  *response = std::move(kept);
  return others;
}

absl::Status PrintResults(const Invocation& invocation, Client* client, const v1::Sweep& sweep, const std::string& dir) {
  v1::GetTableRequest table_request;
  table_request.set_sweep(sweep.sweep_id());
  ABLATE_ASSIGN_OR_RETURN(v1::GetTableResponse table, client->Call(&v1::Results::Stub::GetTable, table_request));
  const bool for_programs = invocation.output() == OutputFormat::kJson || invocation.output() == OutputFormat::kCsv;
  std::set<std::string> others;
  if (!for_programs) others = KeepLosses(&table);
  Emit(invocation, TableReport(table));
  if (!for_programs && sweep.arms() > 1) {
    v1::CompareArmsRequest request;
    request.set_sweep(sweep.sweep_id());
    absl::StatusOr<v1::CompareArmsResponse> compared = client->Call(&v1::Results::Stub::CompareArms, request);
    if (compared.ok() && !compared->rows().empty()) {
      KeepLosses(&*compared);
      std::printf("\n");
      Emit(invocation, ComparisonReport(*compared));
    } else if (!compared.ok()) {
      Say(absl::StrCat("no comparison: ", compared.status().message()));
    }
  }
  const std::string where = absl::StrCat(" --data-dir ", dir);
  Say(absl::StrCat("\nEverything is in ", dir, "/ablate.db. Try next:\n  ablate table ", sweep.name(), where, " -o latex\n",
                   others.empty() ? "" : absl::StrCat("  ablate table ", sweep.name(), where, " --metric ", absl::StrJoin(others, ","), "\n"),
                   "  ablate compare ", sweep.name(), where, " -o json\n  sqlite3 ", dir, "/ablate.db 'SELECT * FROM confidence_intervals'"));
  return absl::OkStatus();
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
      absl::StrCat("the sweep requires ", missing, ", and `ablate run` has only this machine's CPU: start ablate-server and an "
                   "ablate-worker that has it, and use `ablate sweep submit` (README.md, \"On several machines\")"));
}

absl::StatusOr<v1::Sweep> Retry(Client* client, const v1::Sweep& sweep) {
  v1::RetrySweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(sweep.sweep_id());
  ABLATE_ASSIGN_OR_RETURN(const v1::RetrySweepResponse response, client->Call(&v1::Sweeps::Stub::RetrySweep, request));
  Say(absl::StrCat(response.new_jobs(), " new jobs for the failed ones"));
  return response.sweep();
}

}  // namespace

absl::StatusOr<int> RunRun(const Invocation& invocation) {
  // Before the first thread: all inherit the mask, and the signals wait for StopWanted.
  const sigset_t signals = StopSignals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  ABLATE_ASSIGN_OR_RETURN(const int64_t slots, invocation.GetInteger("--slots", Cores(), 1, 4096));
  Progress progress(stderr);
  ABLATE_ASSIGN_OR_RETURN(const SweepInput input, ReadInput(invocation, &progress, /*need_data=*/true));
  ABLATE_RETURN_IF_ERROR(CheckRunsHere(input.spec.requirements()));
  // A fault of the file is told before anything is started.
  if (const absl::Status status = MakePlan(input.spec).status(); !status.ok()) return WithContext(status, input.file_name);
  const std::string dir = invocation.Get("--data-dir", absl::StrCat("ablate-runs/", input.spec.name()));
  ABLATE_RETURN_IF_ERROR(MakeDirs(dir));
  if (const std::optional<std::string> running = RunningServer(dir)) {
    return absl::FailedPreconditionError(absl::StrCat(dir, " is in use by a coordinator at ", *running, ": watch it with `ablate sweep watch ",
                                                      input.spec.name(), " --data-dir ", dir, "`, or choose another --data-dir"));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> server, LocalServer::Start(dir, JoinPath(dir, "server.log")));
  Client client(server->address());
  ABLATE_ASSIGN_OR_RETURN(const v1::SubmitSweepResponse submitted, SubmitFile(&client, input, &progress));
  v1::Sweep sweep = submitted.sweep();
  if (sweep.state() == v1::SWEEP_FAILED && invocation.Has("--retry")) {
    ABLATE_ASSIGN_OR_RETURN(sweep, Retry(&client, sweep));
  }
  if (sweep.state() == v1::SWEEP_RUNNING) {
    Say(absl::StrCat(submitted.created() ? "running " : "resuming ", sweep.name(), " on ", slots, slots == 1 ? " slot" : " slots", "; logs and results are in ",
                     dir));
    LocalWorker worker(server->address(), dir, slots, input.spec.executor() == v1::EXECUTOR_NOOP);
    ABLATE_RETURN_IF_ERROR(worker.KeepRunning());
    const auto tick = [&]() -> absl::Status {
      if (StopWanted()) return absl::CancelledError("");
      if (server->HasExited()) {
        return absl::UnavailableError(absl::StrCat("ablate-server ended; its log is ", dir, "/server.log:\n", Tail(JoinPath(dir, "server.log")),
                                                   "the same command again resumes"));
      }
      return worker.KeepRunning();
    };
    const absl::StatusOr<v1::Sweep> followed = FollowSweep(&client, sweep.sweep_id(), invocation.timeout(), &progress, tick);
    if (absl::IsCancelled(followed.status())) {
      Say("stopping: running jobs save what they have (Ctrl-C again ends that at once)...");
    }
    if (absl::IsCancelled(followed.status()) || absl::IsDeadlineExceeded(followed.status())) {
      Say(absl::StrCat("the same command again resumes: ablate run ", invocation.arguments[0], " --data-dir ", dir));
    }
    if (absl::IsCancelled(followed.status())) return kExitInterrupted;
    ABLATE_RETURN_IF_ERROR(followed.status());
    sweep = *followed;
  } else {
    Say(absl::StrCat(sweep.name(), " is over already (", StateText(sweep.state()), "); its tables:"));
  }
  ABLATE_RETURN_IF_ERROR(PrintResults(invocation, &client, sweep, dir));
  if (sweep.jobs().failed() > 0) {
    Say(absl::StrCat("\n", sweep.jobs().failed(), " jobs failed: ablate job list ", sweep.name(), " --state failed --data-dir ", dir,
                     "\nnew jobs for them: ablate run ", invocation.arguments[0], " --data-dir ", dir, " --retry"));
  }
  return ExitCodeOfSweep(sweep);
}

}  // namespace ablate
