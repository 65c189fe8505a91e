// For tests: a client that sends exactly the bytes that it is told, in the clear or over TLS.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ablate {

struct TestResponse {
  int status = 0;  // 0: the connection ended before there was one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class TestClient {
 public:
  explicit TestClient(const std::string& address, bool tls = false, const std::string& certificate_file = "",
                      const std::string& key_file = "") {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
    // "0.0.0.0", where a server listens everywhere, is this machine for connect().
    ::inet_pton(AF_INET, address.substr(0, address.rfind(':')).c_str(), &to.sin_addr);
    ok_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    if (!ok_ || !tls) return;
    context_ = ::SSL_CTX_new(::TLS_client_method());
    if (!certificate_file.empty()) {
      ok_ = ::SSL_CTX_use_certificate_chain_file(context_, certificate_file.c_str()) == 1 &&
            ::SSL_CTX_use_PrivateKey_file(context_, key_file.c_str(), SSL_FILETYPE_PEM) == 1;
    }
    tls_ = ::SSL_new(context_);
    ::SSL_set_fd(tls_, fd_);
    ok_ = ok_ && ::SSL_connect(tls_) == 1;
  }
  ~TestClient() {
    if (tls_ != nullptr) ::SSL_free(tls_);
    if (context_ != nullptr) ::SSL_CTX_free(context_);
    ::close(fd_);
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool ok() const { return ok_; }
  void Send(const std::string& bytes) {
    if (tls_ != nullptr) {
      (void)::SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()));
    } else {
      (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }
  // More of what came; false: the other side ended, or nothing came for `patience`.
  bool Receive(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    char buffer[16384];
    if (tls_ == nullptr || ::SSL_pending(tls_) == 0) {
      pollfd item = {fd_, POLLIN, 0};
      if (::poll(&item, 1, static_cast<int>(patience.count())) <= 0) return false;
    }
    const ssize_t count = tls_ != nullptr ? ::SSL_read(tls_, buffer, sizeof(buffer)) : ::recv(fd_, buffer, sizeof(buffer), 0);
    if (count <= 0) return false;
    received_.append(buffer, static_cast<size_t>(count));
    return true;
  }
  // Until `text` has come; false: it never did.
  bool ReceiveUntil(const std::string& text) {
    while (received_.find(text) == std::string::npos) {
      if (!Receive()) return false;
    }
    return true;
  }
  const std::string& received() const { return received_; }

  // One response with a Content-Length, or one without a body.
  TestResponse Read(bool head = false) {
    TestResponse response;
    size_t end;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      if (!Receive()) return response;
    }
    response.status = std::atoi(received_.substr(9, 3).c_str());
    for (size_t line = received_.find("\r\n") + 2; line < end;) {
      const size_t line_end = received_.find("\r\n", line), colon = received_.find(": ", line);
      response.headers[absl::AsciiStrToLower(received_.substr(line, colon - line))] =
          received_.substr(colon + 2, line_end - colon - 2);
      line = line_end + 2;
    }
    received_.erase(0, end + 4);
    const auto length = response.headers.find("content-length");
    if (head || response.status == 304 || response.status == 100 || length == response.headers.end()) return response;
    const auto bytes = static_cast<size_t>(std::atoll(length->second.c_str()));
    while (received_.size() < bytes) {
      if (!Receive()) break;
    }
    response.body = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return response;
  }

  TestResponse Get(const std::string& target, const std::string& headers = "") {
    Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n"));
    return Read();
  }
  TestResponse Post(const std::string& target, const std::string& body, const std::string& headers = "") {
    Send(absl::StrCat("POST ", target, " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ",
                      body.size(), "\r\n", headers, "\r\n", body));
    return Read();
  }

 private:
  int fd_ = -1;
  bool ok_ = false;
  SSL_CTX* context_ = nullptr;
  SSL* tls_ = nullptr;
  std::string received_;
};

}  // namespace ablate
