#include "server/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

namespace ablate {
namespace {

struct BioFree {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
};

std::unique_ptr<BIO, BioFree> BioOf(const std::string& pem) {
  return std::unique_ptr<BIO, BioFree>(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

X509* ReadCertificate(BIO* bio) { return ::PEM_read_bio_X509(bio, nullptr, nullptr, nullptr); }

// The first certificate is the server's, the others its chain.
bool UseIdentity(SSL_CTX* context, const KeyAndCertificate& identity) {
  const auto key_bio = BioOf(identity.key_pem), chain_bio = BioOf(identity.certificate_pem);
  EVP_PKEY* key = ::PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr);
  X509* certificate = ReadCertificate(chain_bio.get());
  bool ok = key != nullptr && certificate != nullptr && ::SSL_CTX_use_certificate(context, certificate) == 1 &&
            ::SSL_CTX_use_PrivateKey(context, key) == 1;
  ::X509_free(certificate);
  ::EVP_PKEY_free(key);
  while (ok) {
    X509* const next = ReadCertificate(chain_bio.get());
    if (next == nullptr) break;
    ok = ::SSL_CTX_add0_chain_cert(context, next) == 1;
    if (!ok) ::X509_free(next);
  }
  ::ERR_clear_error();  // of the read that found the end
  return ok;
}

bool DemandCertificates(SSL_CTX* context, const std::string& ca_pem) {
  const auto bio = BioOf(ca_pem);
  X509_STORE* const store = ::SSL_CTX_get_cert_store(context);
  int count = 0;
  for (X509* ca; (ca = ReadCertificate(bio.get())) != nullptr; ++count) {
    const bool added = ::X509_STORE_add_cert(store, ca) == 1 && ::SSL_CTX_add_client_CA(context, ca) == 1;
    ::X509_free(ca);
    if (!added) return false;
  }
  ::ERR_clear_error();
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return count > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Make(const ListenerSecurity& security) {
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_server_method());
  if (context == nullptr) return absl::InternalError("cannot make a TLS context");
  std::unique_ptr<TlsContext> made(new TlsContext(context));
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Required where client certificates are checked; sessions themselves would only let a revoked one go on.
  static constexpr unsigned char kName[] = "ablate";
  ::SSL_CTX_set_session_id_context(context, kName, sizeof(kName) - 1);
  if (!security.client_ca_pem.empty()) ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  if (!UseIdentity(context, security.identity))
    return absl::InvalidArgumentError("OpenSSL does not take the server's certificate and key");
  if (!security.client_ca_pem.empty() && !DemandCertificates(context, security.client_ca_pem))
    return absl::InvalidArgumentError("OpenSSL does not take the certificates of --tls-client-ca");
  return made;
}

TlsContext::~TlsContext() { ::SSL_CTX_free(context_); }

HttpConnection::HttpConnection(int fd, const TlsContext* tls) : fd_(fd) {
  const int yes = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (tls == nullptr) return;
  tls_ = ::SSL_new(tls->get());
  broken_ = tls_ == nullptr || ::SSL_set_fd(tls_, fd_) != 1;
  if (!broken_) ::SSL_set_accept_state(tls_);
}

HttpConnection::~HttpConnection() {
  if (tls_ != nullptr) {
    if (!broken_) ::SSL_shutdown(tls_);
    ::SSL_free(tls_);
    ::ERR_clear_error();
  }
  ::close(fd_);
}

bool HttpConnection::Wait(short events, Deadline deadline) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() < 0 || (give_up_ && give_up_())) return false;
    pollfd item = {fd_, events, 0};
    const int ready = ::poll(&item, 1, static_cast<int>(std::min<int64_t>(left.count(), give_up_ ? 100 : 60'000)) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool HttpConnection::WaitForTls(int result, Deadline deadline) {
  switch (::SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ:
      return Wait(POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE:
      return Wait(POLLOUT, deadline);
    default:
      broken_ = true;
      ::ERR_clear_error();
      return false;
  }
}

bool HttpConnection::Handshake(Deadline deadline) {
  if (tls_ == nullptr) return !broken_;
  while (!broken_) {
    ::ERR_clear_error();
    const int result = ::SSL_accept(tls_);
    if (result == 1) return true;
    if (!WaitForTls(result, deadline)) {
      broken_ = true;
      return false;
    }
  }
  return false;
}

ssize_t HttpConnection::Read(char* to, size_t size, Deadline deadline) {
  const int most = static_cast<int>(std::min<size_t>(size, 1 << 20));
  while (!broken_) {
    if (tls_ == nullptr) {
      const ssize_t count = ::recv(fd_, to, static_cast<size_t>(most), 0);
      if (count >= 0) return count;
      if (errno == EINTR) continue;
      if ((errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLIN, deadline)) return -1;
    } else {
      ::ERR_clear_error();
      const int count = ::SSL_read(tls_, to, most);
      if (count > 0) return count;
      if (::SSL_get_error(tls_, count) == SSL_ERROR_ZERO_RETURN) return 0;
      if (!WaitForTls(count, deadline)) return -1;
    }
  }
  return -1;
}

bool HttpConnection::Write(std::string_view bytes, Deadline deadline) {
  while (!broken_ && !bytes.empty()) {
    if (tls_ == nullptr) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
      } else if (count < 0 && errno != EINTR) {
        if ((errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLOUT, deadline)) broken_ = true;
      }
    } else {
      ::ERR_clear_error();
      const int count = ::SSL_write(tls_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)));
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
      } else if (!WaitForTls(count, deadline)) {
        broken_ = true;  // half a record may be out: nothing can follow
      }
    }
  }
  return !broken_;
}

bool HttpConnection::WaitToRead(std::chrono::milliseconds time) {
  if (broken_) return true;
  if (tls_ != nullptr && ::SSL_pending(tls_) > 0) return true;
  return Wait(POLLIN, In(time));
}

bool HttpConnection::PeerGone() const {
  if (broken_) return true;
  pollfd item = {fd_, POLLRDHUP, 0};
  return ::poll(&item, 1, 0) > 0 && (item.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void HttpConnection::Linger(std::chrono::milliseconds time) {
  const Deadline deadline = In(time);
  if (tls_ != nullptr && !broken_) ::SSL_shutdown(tls_);
  ::shutdown(fd_, SHUT_WR);
  broken_ = true;
  char scrap[16384];
  for (int rounds = 0; rounds < 64; ++rounds) {
    const ssize_t count = ::recv(fd_, scrap, sizeof(scrap), 0);
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLIN, deadline)) return;
  }
}

}  // namespace ablate
