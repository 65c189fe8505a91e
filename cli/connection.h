// Which coordinator a command talks to: a running one, or a private one on --data-dir for the time of the command.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/local_server.h"

namespace ablate {

class Connection {
 public:
  // With --data-dir: the server that has the folder open, else a private one, started here and stopped with this
  // object. Else as
  // ReadClientAccess says: --server, $ABLATE_SERVER, the configuration file, 127.0.0.1:7433, in this order. NotFound: --data-dir has no database.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Invocation& invocation);

  Client& client() { return *client_; }
  // The server was started here, for this command: no worker will come.
  bool is_private() const { return server_ != nullptr; }
  // FailedPrecondition, with what to do, when the server is private and the sweep is not over.
  absl::Status CheckServed(const Invocation& invocation, const std::string& sweep);

 private:
  Connection() = default;
  // The client goes first, the server last.
  std::unique_ptr<TempDir> log_dir_;
  std::unique_ptr<LocalServer> server_;
  std::unique_ptr<Client> client_;
};

}  // namespace ablate
