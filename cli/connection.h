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
  // With --data-dir: the server that has the folder open, else a private one, started here and stopped with this object.
  // Else --server, $ABLATE_SERVER, 127.0.0.1:7433, in this order. NotFound: --data-dir has no database.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Invocation& invocation);

  Client& client() { return *client_; }

 private:
  Connection() = default;
  // The client goes first, the server last.
  std::unique_ptr<TempDir> log_dir_;
  std::unique_ptr<LocalServer> server_;
  std::unique_ptr<Client> client_;
};

}  // namespace ablate
