// ablate dashboard: the page over the folder of a run, by an ablate-server on it. Must not know what the page shows.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/certificates.h"
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

// The certificate is one that no browser knows, and the page asks for a token.
void SayHowToEnter(const std::string& link, const std::string& dir) {
  if (!absl::StartsWith(link, "https://")) return;
  const absl::StatusOr<std::string> pem = ReadFile(JoinPath(dir, "tls/certificate.pem"));
  const absl::StatusOr<std::string> fingerprint = pem.ok() ? CertificateFingerprint(*pem) : pem;
  if (fingerprint.ok()) Say(absl::StrCat("compare the certificate that the browser shows with ", *fingerprint));
  Say(absl::StrCat("a token for who reads: ablate token create --role read --name NAME --data-dir ", ShellQuoted(dir)));
}

// Null: no coordinator has the folder open.
absl::StatusOr<std::optional<int>> ShowRunning(const Invocation& invocation, const std::string& dir) {
  const std::optional<std::string> running = RunningServer(dir);
  if (!running.has_value()) return std::nullopt;
  const std::optional<std::string> link = DashboardLink(dir);
  if (!link.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(dir, " is in use by a coordinator at ", *running,
                                                      " that serves no page: start it with `ablate-server --http ADDR`"));
  }
  PrintLink(*link);
  const std::optional<pid_t> pid = BackgroundDashboard(dir);
  if (const std::string http = invocation.Get("--http"); !http.empty() && *link != absl::StrCat("http://", http, "/")) {
    Say(absl::StrCat("--http ", http, " was not used: the page of ", dir, " is served already; end that server first",
                     pid.has_value() ? " (--stop)" : ""));
  }
  if (pid.has_value()) {
    SayHowToEnter(*link, dir);
    SayHowToStop(*pid, dir);
  } else {
    Say(absl::StrCat("served by the coordinator that has ", dir, " open"));
  }
  return kExitDone;
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
  const std::string http = invocation.Get("--http");
  if (invocation.Has("--http")) ABLATE_RETURN_IF_ERROR(CheckDashboardAddress(http));
  const bool background = invocation.Has("--background");
  std::optional<DashboardStartLock> lock;
  if (background) lock.emplace(dir);
  ABLATE_ASSIGN_OR_RETURN(const std::optional<int> shown, ShowRunning(invocation, dir));
  if (shown.has_value()) return *shown;

  if (background) {
    const absl::StatusOr<pid_t> pid =
        StartWithPage(dir, http, [&](const std::string& address) { return StartBackgroundDashboard(dir, address); });
    if (!pid.ok()) {
      // A coordinator of another kind may have been faster.
      ABLATE_ASSIGN_OR_RETURN(const std::optional<int> other, ShowRunning(invocation, dir));
      if (other.has_value()) return *other;
      return pid.status();
    }
    const std::string link = DashboardLink(dir).value_or("");
    PrintLink(link);
    SayHowToEnter(link, dir);
    SayHowToStop(*pid, dir);
    return kExitDone;
  }

  CatchStopSignals("\n");
  const std::string log = JoinPath(dir, "server.log");
  ABLATE_ASSIGN_OR_RETURN(
      const std::unique_ptr<LocalServer> server,
      StartWithPage(dir, http, [&](const std::string& address) { return LocalServer::StartToRead(dir, log, address); }));
  const DeferStop defer;
  const std::string link = DashboardLink(dir).value_or("");
  PrintLink(link);
  SayHowToEnter(link, dir);
  Say("Ctrl-C ends it; no worker comes to this server, so nothing runs on");
  while (StopCount() == 0) {
    if (server->HasExited()) return UnreachableError(absl::StrCat("ablate-server ended; its log is ", log, ":\n", Tail(log)));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return kExitDone;
}

}  // namespace ablate
