// The HTTP side of the coordinator: the dashboard's page, the JSON interface behind it and its stream of changes
// (docs/http-api.md). The same methods, tokens and roles as over gRPC. Must not know how the coordinator works.
// Thread rule: Start, Shutdown and the destructor from one thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator.h"
#include "server/http/listener.h"
#include "server/http/static_files.h"
#include "server/services/grpc_server.h"

namespace ablate {

// Streams of changes that are open at once; each holds a thread.
inline constexpr int kMaxHttpStreams = 64;

struct HttpServerOptions {
  std::string address;                  // HOST:PORT; port 0 takes a free one
  std::vector<std::string> host_names;  // by which browsers may call the server, beside its own
  bool read_only = false;               // the coordinator only reads: the page offers no change
  ServerAccess access;                  // security: of this listener
  std::span<const EmbeddedFile> files = DashboardFiles();
  int max_streams = kMaxHttpStreams;
  HttpListenerOptions listener;         // address, security and headers are set by Start
};

class HttpServer {
 public:
  // InvalidArgument, Unavailable: as HttpListener.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, Coordinator* coordinator);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const;  // with the real port
  std::string url() const;             // "http://127.0.0.1:7480/"
  // Call Coordinator::Shutdown first, so that nobody waits in it.
  void Shutdown();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ablate
