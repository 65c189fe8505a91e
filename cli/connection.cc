#include "cli/connection.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const Invocation& invocation) {
  std::unique_ptr<Connection> connection(new Connection);
  const double timeout = invocation.timeout().value_or(300);
  std::string address;
  if (invocation.Has("--data-dir")) {
    const std::string dir = invocation.Get("--data-dir");
    if (!FileExists(JoinPath(dir, "ablate.db"))) {
      return absl::NotFoundError(absl::StrCat(dir, " has no ablate.db: it is not the folder of a run (--data-dir of `ablate run` or ablate-server)"));
    }
    if (const std::optional<std::string> running = RunningServer(dir)) {
      address = *running;
    } else {
      connection->log_dir_ = std::make_unique<TempDir>();
      ABLATE_ASSIGN_OR_RETURN(connection->server_,
                              LocalServer::Start(dir, JoinPath(connection->log_dir_->path(), "server.log")));
      address = connection->server_->address();
    }
  } else {
    const char* variable = std::getenv("ABLATE_SERVER");
    address = invocation.Get("--server", variable != nullptr && *variable != '\0' ? variable : "127.0.0.1:7433");
  }
  connection->client_ = std::make_unique<Client>(address, timeout);
  return connection;
}

}  // namespace ablate
