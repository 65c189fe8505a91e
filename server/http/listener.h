// Listens for HTTP/1.1 and hands requests to a handler. cpp-httplib parses requests and writes answers; sockets, TLS,
// time and sizes are ours (connection.h, head.h), so that no client holds a thread for longer than it should: a
// connection has a thread, and there are so many and no more. Must not know what is served.
// Thread rule: Start, Shutdown and the destructor from one thread; the handler is called from many.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/listener.h"
#include "server/http/message.h"

namespace ablate {

struct HttpListenerOptions {
  std::string address;        // HOST:PORT, [HOST]:PORT; port 0 takes a free one
  ListenerSecurity security;  // TLS and its certificate; tokens are the handler's business
  int max_connections = 256;  // beyond it: 503, and idle connections are closed
  double head_seconds = 10;   // for TLS's handshake, and from a request's first byte to the end of its head
  double crowded_head_seconds = 1;  // the same while more than 3/4 of max_connections are open
  double body_seconds = 30;
  double idle_seconds = 15;   // between two requests of a connection
  std::vector<std::pair<std::string, std::string>> headers;  // of every answer
};

class HttpListener {
 public:
  // Serves at once. Without TLS, connections whose ends are not both on this machine are closed, whatever the address.
  // `handler` must outlive the listener. InvalidArgument: not an address. Unavailable: cannot listen
  // there (says why).
  static absl::StatusOr<std::unique_ptr<HttpListener>> Start(const HttpListenerOptions& options, HttpHandler* handler);
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  // Where it listens, with the real port.
  const std::string& address() const;
  // Ends streams, and connections after their current request; returns when all are closed, after some seconds at most
  // unless a handler computes for longer.
  void Shutdown();

 private:
  struct State;
  explicit HttpListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ablate
