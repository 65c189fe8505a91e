#include "server/http/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "httplib.h"
#include "server/http/connection.h"
#include "server/http/head.h"

namespace ablate {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};          // how soon a waiting connection sees that the server stops
constexpr milliseconds kLinger{500};
constexpr int kNiceness = 5;
constexpr int kMaxRequests = 1000;           // of a connection
constexpr milliseconds kWritePatience{20'000};
constexpr size_t kSlowestBytesPerMs = 10;    // a client that takes an answer more slowly is cut off

milliseconds Millis(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

// One request as httplib sees a connection: the head that was looked at, then as many bytes of body as it announced.
class RequestStream final : public httplib::Stream {
 public:
  RequestStream(HttpConnection* connection, std::string head, std::string* ahead, int64_t body_bytes, HttpConnection::Deadline deadline)
      : connection_(*connection), head_(std::move(head)), ahead_(*ahead), body_left_(body_bytes), deadline_(deadline) {}

  bool body_unread() const { return body_left_ > 0; }
  HttpConnection& connection() { return connection_; }

  // Whoever reads or writes waits there. Releases of httplib differ in which of these they have.
  bool is_readable() const { return true; }
  bool is_writable() const { return true; }
  bool wait_readable() const { return true; }
  bool wait_writable() const { return true; }
  time_t duration() const { return 0; }
  ssize_t read(char* to, size_t size) override {
    if (head_done_ < head_.size()) {
      const size_t count = std::min(size, head_.size() - head_done_);
      std::memcpy(to, head_.data() + head_done_, count);
      head_done_ += count;
      return static_cast<ssize_t>(count);
    }
    size = std::min<size_t>(size, static_cast<size_t>(body_left_));
    if (size == 0) return 0;
    ssize_t count = 0;
    if (!ahead_.empty()) {
      count = static_cast<ssize_t>(std::min(size, ahead_.size()));
      std::memcpy(to, ahead_.data(), static_cast<size_t>(count));
      ahead_.erase(0, static_cast<size_t>(count));
    } else {
      count = connection_.Read(to, size, deadline_);
    }
    if (count > 0) body_left_ -= count;
    return count;
  }
  ssize_t write(const char* from, size_t size) override {
    const auto deadline = HttpConnection::In(kWritePatience + milliseconds(size / kSlowestBytesPerMs));
    return connection_.Write({from, size}, deadline) ? static_cast<ssize_t>(size) : -1;
  }
  // httplib asks only to find numbers too large for select(), which we do not call.
  socket_t socket() const override { return 0; }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}

 private:
  HttpConnection& connection_;
  const std::string head_;
  std::string& ahead_;
  int64_t body_left_;
  const HttpConnection::Deadline deadline_;
  size_t head_done_ = 0;
};

// Of the request that this thread serves.
thread_local HttpConnection* current_connection = nullptr;

HttpRequest ToOurs(const httplib::Request& theirs) {
  HttpRequest request;
  request.method = theirs.method == "HEAD" ? "GET" : theirs.method;
  request.target = theirs.target;
  request.body = theirs.body;
  for (const auto& [name, value] : theirs.headers) request.headers.emplace_back(absl::AsciiStrToLower(name), value);
  return request;
}

class Parser final : public httplib::Server {
 public:
  Parser(HttpHandler* handler, const HttpListenerOptions& options) : handler_(*handler) {
    httplib::Headers headers;
    for (const auto& [name, value] : options.headers) headers.emplace(name, value);
    set_default_headers(std::move(headers));
    set_payload_max_length(kMaxHttpBodyBytes);
    keep_alive_timeout_sec_ = static_cast<time_t>(options.idle_seconds);
    keep_alive_max_count_ = kMaxRequests;
    set_pre_routing_handler([this](const httplib::Request& theirs, httplib::Response& answer) {
      const HttpRequest request = ToOurs(theirs);
      std::optional<HttpResponse> response = handler_.Refuse(request);
      if (!response.has_value()) {
        if (theirs.method == "POST") return HandlerResponse::Unhandled;
        response = handler_.Answer(request);
      } else if (const std::string bytes = theirs.get_header_value("Content-Length"); !bytes.empty() && bytes != "0") {
        // The body stays unread, so the connection ends: a client that kept it would lose its next request.
        answer.set_header("Connection", "close");
      }
      Fill(*std::move(response), &answer);
      return HandlerResponse::Handled;
    });
    Post(".*", [this](const httplib::Request& theirs, httplib::Response& answer) {
      Fill(handler_.Answer(ToOurs(theirs)), &answer);
    });
    // httplib says 0, and a cache would take that for the length of what it has.
    set_post_routing_handler([](const httplib::Request&, httplib::Response& answer) {
      if (answer.status == 304) answer.headers.erase("Content-Length");
    });
    // What httplib itself refuses has no body yet.
    set_error_handler(HandlerWithResponse([this](const httplib::Request&, httplib::Response& answer) {
      if (!answer.body.empty() || answer.content_provider_) return HandlerResponse::Unhandled;
      answer.set_content(handler_.ErrorBody(answer.status, "the request cannot be read"), "application/json");
      return HandlerResponse::Handled;
    }));
    set_exception_handler([this](const httplib::Request&, httplib::Response& answer, std::exception_ptr) {
      LOG(ERROR) << "a request of the dashboard's failed by an exception";
      answer.status = 500;
      answer.set_content(handler_.ErrorBody(500, "the server failed to answer; its log may say more"), "application/json");
    });
    svr_sock_ = 0;  // "open", as httplib sees it
  }
  ~Parser() override { svr_sock_ = INVALID_SOCKET; }

  // Writes of what goes on end.
  void Stop() { svr_sock_ = INVALID_SOCKET; }
  bool stopping() const { return svr_sock_ == INVALID_SOCKET; }

  // False: the connection cannot be used again.
  bool Serve(RequestStream* stream, bool last) {
    bool closed = false;
    current_connection = &stream->connection();
    const bool ok = Process(stream, last, &closed);
    current_connection = nullptr;
    return ok && !closed;
  }

 private:
  // A template, since releases differ in what it takes.
  template <typename AnyStream>
  bool Process(AnyStream* stream, bool last, bool* closed) {
    // Ranges were left out of the head; httplib must not find any.
    const auto setup = [](httplib::Request& request) { request.ranges.clear(); };
    if constexpr (requires { process_request(*stream, last, *closed, setup); }) {
      return process_request(*stream, last, *closed, setup);
    } else {
      return process_request(*stream, "", 0, "", 0, last, *closed, setup);
    }
  }

  class Sink final : public HttpStream {
   public:
    Sink(httplib::DataSink* sink, const Parser* parser) : sink_(*sink), parser_(*parser) {}
    bool Write(std::string_view bytes) override { return !Ended() && sink_.write(bytes.data(), bytes.size()); }
    bool Ended() override { return parser_.stopping() || current_connection == nullptr || current_connection->PeerGone(); }

   private:
    httplib::DataSink& sink_;
    const Parser& parser_;
  };

  void Fill(HttpResponse response, httplib::Response* answer) const {
    answer->status = response.status;
    for (const auto& [name, value] : response.headers) answer->set_header(name, value);
    answer->set_header("Accept-Ranges", "none");
    if (response.stream) {
      answer->set_chunked_content_provider(
          response.media_type, [this, stream = std::move(response.stream)](size_t, httplib::DataSink& theirs) {
            Sink sink(&theirs, this);
            stream(&sink);
            theirs.done();
            return true;
          });
      return;
    }
    // Not set_content, which would compress what is compressed.
    auto body = std::make_shared<const std::string>(std::move(response.body));
    const std::string_view bytes = response.constant_body.empty() ? std::string_view(*body) : response.constant_body;
    if (bytes.empty()) return;
    answer->set_content_provider(bytes.size(), response.media_type,
                                 [body, bytes](size_t offset, size_t length, httplib::DataSink& sink) {
                                   return sink.write(bytes.data() + offset, length);
                                 });
  }

  HttpHandler& handler_;
};

// The socket; `port` gets the real one.
absl::StatusOr<int> Listen(const std::string& address, int* port) {
  ABLATE_ASSIGN_OR_RETURN(const HostPort split, ParseHostPort(address));
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const std::string cannot = absl::StrCat("cannot serve the dashboard on ", address, ": ");
  if (const int code = ::getaddrinfo(split.host.c_str(), absl::StrCat(split.port).c_str(), &hints, &list); code != 0)
    return absl::UnavailableError(absl::StrCat(cannot, "host ", split.host, " is not known (", ::gai_strerror(code), ")"));
  int error = EADDRNOTAVAIL, fd = -1;
  for (const addrinfo* item = list; item != nullptr && fd < 0; item = item->ai_next) {
    fd = ::socket(item->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (fd >= 0 && ::bind(fd, item->ai_addr, item->ai_addrlen) == 0 && ::listen(fd, 128) == 0) break;
    error = errno;
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  ::freeaddrinfo(list);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat(
        cannot, error == EADDRINUSE      ? "another program listens there; choose another port, or 0 for a free one"
                : error == EADDRNOTAVAIL ? absl::StrCat(split.host, " is no address of this machine")
                                         : std::strerror(error)));
  }
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  *port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  return fd;
}

bool IsLoopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return address.ss_family == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127));
}

// Whether both ends are on this machine: "localhost" may be made to mean another address, and a port may be forwarded.
bool IsFromHere(int fd) {
  sockaddr_storage ours = {}, theirs = {};
  socklen_t our_length = sizeof(ours), their_length = sizeof(theirs);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ours), &our_length) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &their_length) == 0 && IsLoopback(ours) && IsLoopback(theirs);
}

}  // namespace

struct HttpListener::State {
  State(const HttpListenerOptions& chosen, HttpHandler* handler_given)
      : options(chosen), handler(*handler_given), parser(handler_given, chosen) {}

  const HttpListenerOptions options;
  HttpHandler& handler;
  Parser parser;
  std::unique_ptr<TlsContext> tls;
  std::string address;
  int fd = -1, wake = -1;
  std::thread acceptor;
  std::atomic<bool> stopping = false;
  std::atomic<int> open = 0;
  Mutex mutex;
  CondVar closed;

  bool crowded() const { return open > options.max_connections * 3 / 4; }

  void AcceptAll();
  void ServeConnection(HttpConnection* connection);
  // Waits for a whole head; false: the connection is over.
  bool ReadHead(HttpConnection* connection, std::string* received, size_t* head_bytes);
  // Waits of this connection end early where others wait for its place, from `crowded_head_seconds` after now on.
  void HurryWhileCrowded(HttpConnection* connection);
  std::string Refusal(int status, std::string_view message) const;
  void Refuse(HttpConnection* connection, int status, std::string_view message);
};

void HttpListener::State::HurryWhileCrowded(HttpConnection* connection) {
  const auto hurried = HttpConnection::In(Millis(options.crowded_head_seconds));
  connection->SetGiveUp(
      [this, hurried] { return stopping || (crowded() && std::chrono::steady_clock::now() > hurried); });
}

std::string HttpListener::State::Refusal(int status, std::string_view message) const {
  const std::string body = handler.ErrorBody(status, message);
  std::string answer = absl::StrCat("HTTP/1.1 ", status, " Refused\r\n");
  for (const auto& [name, value] : options.headers) absl::StrAppend(&answer, name, ": ", value, "\r\n");
  absl::StrAppend(&answer, "Content-Type: application/json\r\nContent-Length: ", body.size(),
                  status == 503 ? "\r\nRetry-After: 2" : "", "\r\nConnection: close\r\n\r\n", body);
  return answer;
}

void HttpListener::State::Refuse(HttpConnection* connection, int status, std::string_view message) {
  connection->SetGiveUp(nullptr);
  if (connection->Write(Refusal(status, message), HttpConnection::In(milliseconds(2000)))) connection->Linger(kLinger);
}

bool HttpListener::State::ReadHead(HttpConnection* connection, std::string* received, size_t* head_bytes) {
  const auto idle_until = HttpConnection::In(Millis(options.idle_seconds));
  while (received->empty() && !connection->WaitToRead(kSlice)) {
    if (stopping || crowded() || std::chrono::steady_clock::now() > idle_until) return false;
  }
  const auto deadline = HttpConnection::In(Millis(options.head_seconds));
  HurryWhileCrowded(connection);
  size_t searched = 0;
  char buffer[16384];
  while ((*head_bytes = FindHeadEnd(*received, searched)) == 0) {
    if (HasBareLineEnd(*received, searched)) {
      Refuse(connection, 400, "a line of the head ends without CR LF");
      return false;
    }
    searched = received->size();
    if (searched > kMaxHttpHeadBytes) {
      Refuse(connection, 431, absl::StrCat("the head of a request may have ", kMaxHttpHeadBytes, " bytes at most"));
      return false;
    }
    const ssize_t count = connection->Read(buffer, sizeof(buffer), deadline);
    if (count <= 0) return false;
    received->append(buffer, static_cast<size_t>(count));
  }
  connection->SetGiveUp(nullptr);
  return true;
}

void HttpListener::State::ServeConnection(HttpConnection* connection) {
  HurryWhileCrowded(connection);
  if (!connection->Handshake(HttpConnection::In(Millis(options.head_seconds)))) return;
  connection->SetGiveUp(nullptr);
  std::string received;
  for (int requests = 0; !stopping; ++requests) {
    size_t head_bytes = 0;
    if (!ReadHead(connection, &received, &head_bytes)) return;
    HttpHead head = ScanHead(std::string_view(received).substr(0, head_bytes));
    if (head.status != 0) return Refuse(connection, head.status, head.message);
    received.erase(0, head_bytes);
    RequestStream stream(connection, std::move(head.text), &received, head.body_bytes,
                         HttpConnection::In(Millis(options.body_seconds)));
    const bool last = requests + 1 >= kMaxRequests || stopping || crowded();
    if (!parser.Serve(&stream, last) || last) {
      if (stream.body_unread()) connection->Linger(kLinger);
      return;
    }
    // Whatever was refused with its body unread: what follows cannot be told from it.
    if (stream.body_unread()) return connection->Linger(kLinger);
  }
}

void HttpListener::State::AcceptAll() {
  while (!stopping) {
    pollfd items[] = {{fd, POLLIN, 0}, {wake, POLLIN, 0}};
    if (::poll(items, 2, -1) < 0 && errno != EINTR) return;
    const int accepted = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) {
      // Out of descriptors or memory: others may give some back.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        pollfd item = {wake, POLLIN, 0};
        ::poll(&item, 1, 50);
      }
      continue;
    }
    if (tls == nullptr && !IsFromHere(accepted)) {
      ::close(accepted);
      continue;
    }
    if (open >= options.max_connections) {
      // In the clear and without waiting: a moment later there may be room.
      HttpConnection connection(accepted, nullptr);
      if (tls == nullptr) (void)connection.Write(Refusal(503, "too many connections"), HttpConnection::In(milliseconds(0)));
      continue;
    }
    ++open;
    try {
      std::thread([this, accepted] {
        // Where a page and a worker want the same core, the worker goes first.
        (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
        {
          HttpConnection connection(accepted, tls.get());
          ServeConnection(&connection);
        }
        MutexLock lock(&mutex);
        --open;
        closed.NotifyAll();
      }).detach();
    } catch (const std::system_error& error) {
      LOG(WARNING) << "no thread for a connection of the dashboard: " << error.what();
      ::close(accepted);
      --open;
    }
  }
}

absl::StatusOr<std::unique_ptr<HttpListener>> HttpListener::Start(const HttpListenerOptions& options, HttpHandler* handler) {
  auto state = std::make_unique<State>(options, handler);
  if (options.security.tls) {
    ABLATE_ASSIGN_OR_RETURN(state->tls, TlsContext::Make(options.security));
  }
  int port = 0;
  ABLATE_ASSIGN_OR_RETURN(state->fd, Listen(options.address, &port));
  state->address = ToText({.host = ParseHostPort(options.address)->host, .port = port});
  state->wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::unique_ptr<HttpListener> listener(new HttpListener(std::move(state)));
  listener->state_->acceptor = std::thread([state = listener->state_.get()] { state->AcceptAll(); });
  return listener;
}

HttpListener::HttpListener(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpListener::~HttpListener() { Shutdown(); }

const std::string& HttpListener::address() const { return state_->address; }

void HttpListener::Shutdown() {
  if (state_->fd < 0) return;
  state_->stopping = true;
  state_->parser.Stop();
  const uint64_t one = 1;
  (void)!::write(state_->wake, &one, sizeof(one));
  if (state_->acceptor.joinable()) state_->acceptor.join();
  ::close(state_->fd);
  ::close(state_->wake);
  state_->fd = -1;
  MutexLock lock(&state_->mutex);
  while (state_->open > 0) state_->closed.Wait(&state_->mutex);
}

}  // namespace ablate
