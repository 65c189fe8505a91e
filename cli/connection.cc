#include "cli/connection.h"

#include "absl/strings/str_cat.h"
#include "base/client_access.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/commands.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const Invocation& invocation) {
  std::unique_ptr<Connection> connection(new Connection);
  const double timeout = invocation.timeout().value_or(300);
  ClientAccess access;
  if (invocation.Has("--data-dir")) {
    const std::string dir = invocation.Get("--data-dir");
    if (!FileExists(JoinPath(dir, "ablate.db"))) {
      return absl::NotFoundError(absl::StrCat(
          dir, " has no ablate.db: it is not the folder of a run (--data-dir of `ablate run` or ablate-server)"));
    }
    if (const std::optional<std::string> running = RunningServer(dir)) {
      access.address = *running;
    } else {
      connection->log_dir_ = std::make_unique<TempDir>();
      ABLATE_ASSIGN_OR_RETURN(connection->server_,
                              LocalServer::StartToRead(dir, JoinPath(connection->log_dir_->path(), "server.log")));
      if (connection->server_->read_only()) Say(absl::StrCat("the disk of ", dir, " is full: it is opened for reading only"));
      access.address = connection->server_->address();
    }
  } else {
    absl::StatusOr<ClientAccess> read = ReadClientAccess({.server = invocation.Get("--server"),
                                                          .token_file = invocation.Get("--token-file"),
                                                          .tls_pin = invocation.Get("--tls-pin"),
                                                          .tls_ca = invocation.Get("--tls-ca"),
                                                          .tls_cert = invocation.Get("--tls-cert"),
                                                          .tls_key = invocation.Get("--tls-key")},
                                                         "127.0.0.1:7433");
    if (absl::IsInvalidArgument(read.status())) return UsageError(ToStd(read.status().message()));
    ABLATE_RETURN_IF_ERROR(read.status());
    access = *std::move(read);
  }
  connection->client_ = std::make_unique<Client>(access, timeout);
  return connection;
}

absl::Status Connection::CheckServed(const Invocation& invocation, const std::string& sweep) {
  if (!is_private()) return absl::OkStatus();
  v1::GetSweepRequest request;
  request.set_sweep(sweep);
  const absl::StatusOr<v1::Sweep> state = client_->Call(&v1::Sweeps::Stub::GetSweep, request);
  if (state.ok() && state->state() != v1::SWEEP_RUNNING) return absl::OkStatus();
  if (!state.ok() && !absl::IsNotFound(state.status())) return state.status();
  const std::string dir = ShellQuoted(invocation.Get("--data-dir"));
  return absl::FailedPreconditionError(absl::StrCat(
      state.ok() ? absl::StrCat("sweep ", sweep, " is not over, but nothing runs") : "nothing runs", " on ", dir,
      ": `ablate run FILE --data-dir ", dir, state.ok() ? "` resumes it" : "` runs a sweep there"));
}

}  // namespace ablate
