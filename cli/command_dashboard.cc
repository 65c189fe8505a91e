// ablate dashboard: the page over the folder of a run, by an ablate-server on it. Must not know what the page shows.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "cli/background_dashboard.h"
#include "cli/commands.h"
#include "cli/local_server.h"
#include "cli/stop_signals.h"

namespace ablate {
namespace {

void PrintLink(const std::string& link) {
  std::printf("%s\n", link.c_str());
  std::fflush(stdout);
}

void SayHowToStop(pid_t pid, const std::string& dir) {
  Say(absl::StrCat("the dashboard runs in the background (process ", pid, "); to stop it:\n  ablate dashboard --data-dir ",
                   ShellQuoted(dir), " --stop"));
}

// With the usual port, or a free one where somebody was faster.
template <typename Start>
auto StartSomewhere(const Invocation& invocation, const Start& start) {
  if (invocation.Has("--http")) return start(invocation.Get("--http"));
  auto started = start(DefaultDashboardAddress());
  return !started.ok() && absl::StrContains(started.status().message(), "another program listens") ? start("127.0.0.1:0")
                                                                                                  : std::move(started);
}

}  // namespace

absl::StatusOr<int> RunDashboard(const Invocation& invocation) {
  if (!invocation.Has("--data-dir")) {
    return UsageError("--data-dir is missing: the folder of a run. A coordinator that runs serves its own page: start it with "
                      "`ablate-server --http ADDR`");
  }
  const std::string dir = invocation.Get("--data-dir");
  if (invocation.Has("--stop")) {
    if (invocation.Has("--background") || invocation.Has("--http")) return UsageError("--stop goes with --data-dir alone");
    ABLATE_RETURN_IF_ERROR(StopBackgroundDashboard(dir));
    Say(absl::StrCat("the dashboard of ", dir, " was stopped"));
    return kExitDone;
  }
  if (!FileExists(JoinPath(dir, "ablate.db"))) {
    return absl::NotFoundError(absl::StrCat(
        dir, " has no ablate.db: it is not the folder of a run (--data-dir of `ablate run` or ablate-server)"));
  }
  if (const std::optional<std::string> running = RunningServer(dir)) {
    const std::optional<std::string> link = DashboardLink(dir);
    if (!link.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(dir, " is in use by a coordinator at ", *running,
                                                        " that serves no page: start it with `ablate-server --http ADDR`"));
    }
    PrintLink(*link);
    const std::optional<pid_t> pid = BackgroundDashboard(dir);
    if (pid.has_value()) {
      SayHowToStop(*pid, dir);
    } else {
      Say(absl::StrCat("served by the coordinator that has ", dir, " open"));
    }
    return kExitDone;
  }

  if (invocation.Has("--background")) {
    ABLATE_ASSIGN_OR_RETURN(const pid_t pid, StartSomewhere(invocation, [&](const std::string& http) {
                              return StartBackgroundDashboard(dir, http);
                            }));
    PrintLink(DashboardLink(dir).value_or(""));
    SayHowToStop(pid, dir);
    return kExitDone;
  }

  CatchStopSignals("\n");
  const std::string log = JoinPath(dir, "server.log");
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> server,
                          StartSomewhere(invocation, [&](const std::string& http) { return LocalServer::Start(dir, log, http); }));
  const DeferStop defer;
  PrintLink(DashboardLink(dir).value_or(""));
  Say("Ctrl-C ends it; no worker comes to this server, so nothing runs on");
  while (StopCount() == 0) {
    if (server->HasExited()) return UnreachableError(absl::StrCat("ablate-server ended; its log is ", log, ":\n", Tail(log)));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return kExitDone;
}

}  // namespace ablate
