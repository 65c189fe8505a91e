// One accepted connection, in the clear or over TLS, whose every wait has an end. Must not know HTTP.
// Thread rule: a TlsContext may be shared; a connection belongs to one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "server/access/listener.h"

struct ssl_ctx_st;
struct ssl_st;

namespace ablate {

// A server's side of TLS: certificate, key, and whose certificates clients must show.
class TlsContext {
 public:
  // InvalidArgument: OpenSSL does not take the certificate, the key or the CA.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Make(const ListenerSecurity& security);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

class HttpConnection {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  static Deadline In(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

  // Takes `fd`, which must not block. `tls` null: in the clear.
  HttpConnection(int fd, const TlsContext* tls);
  ~HttpConnection();  // says goodbye, without waiting for the answer
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // TLS's handshake; true at once in the clear.
  bool Handshake(Deadline deadline);
  // Bytes read, at least one; 0: the client has ended its side; -1: an error, or the deadline.
  ssize_t Read(char* to, size_t size, Deadline deadline);
  bool Write(std::string_view bytes, Deadline deadline);
  // Whether a Read would have an answer within this time.
  bool WaitToRead(std::chrono::milliseconds time);
  // While one is set, it is asked every 100 ms of waiting; true ends the wait as its deadline would.
  void SetGiveUp(std::function<bool()> give_up) { give_up_ = std::move(give_up); }
  // The client has closed its end. Quick.
  bool PeerGone() const;
  // Ends our side and throws away what still comes, for a moment: closed with unread bytes, a socket is reset, and the
  // client may lose what we wrote last.
  void Linger(std::chrono::milliseconds time);

 private:
  bool Wait(short events, Deadline deadline) const;
  // Waits for what SSL asked for with `result`; false: an error.
  bool WaitForTls(int result, Deadline deadline);

  const int fd_;
  ssl_st* tls_ = nullptr;
  bool broken_ = false;
  std::function<bool()> give_up_;
};

}  // namespace ablate
