// The gRPC server with all services, health and reflection. Must not know how the coordinator works.
// Thread rule: Start, Shutdown and the destructor from one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/artifacts/artifact_store.h"
#include "server/access/listener.h"
#include "server/access/tokens.h"
#include "server/coordinator.h"

namespace ablate {

// InvalidArgument: neither HOST:PORT nor unix:PATH. Abstract sockets, which have no owner and no mode, are refused.
absl::Status CheckAddress(const std::string& address);

// Who may call at a listener.
struct ServerAccess {
  TokenRegistry* tokens = nullptr;  // null: there are none, and the Access service is not served
  ListenerSecurity security;        // the default: no TLS, no tokens, for callers on this machine alone
};

class GrpcServer {
 public:
  // Listens on `address` ("127.0.0.1:7433", "[::1]:0", "unix:/path"); port 0 takes a free one. Each waiting call (an
  // idle worker, a watched sweep) holds a thread: `max_threads` bounds them, and what is beyond is answered
  // ResourceExhausted. Every call is checked against the table of roles (server/access/roles.h) before its handler runs.
  // Without TLS, connections from other machines are refused whatever the address. A Unix socket is open to its owner alone. InvalidArgument: not an address, or a socket path over
  // 107 bytes. Unavailable: cannot listen there (the message says whether it is taken, no address of this machine, or
  // not permitted).
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& address, Coordinator* coordinator,
                                                           ArtifactStore* artifacts, int max_threads = 1024,
                                                           const ServerAccess& access = {});
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Where it listens, with the real port.
  const std::string& address() const;
  // Ends open calls within a second or so. Call Coordinator::Shutdown first, so that nobody waits in it.
  void Shutdown();

 private:
  struct State;
  explicit GrpcServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ablate
