#include "base/grpc_channel.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_interceptor.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/certificates.h"

namespace ablate {
namespace {

using grpc::experimental::TlsCustomVerificationCheckRequest;

class PinVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  PinVerifier(std::string address, std::string pin, std::shared_ptr<ServerIdentity> identity)
      : address_(std::move(address)), pin_(std::move(pin)), identity_(std::move(identity)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    // The handshake has shown that the other side holds the key of this certificate.
    const grpc::string_ref pem = request->peer_cert();
    const absl::StatusOr<std::string> found = CertificateFingerprint({pem.data(), pem.size()});
    const std::string shown = found.ok() ? *found : "no certificate";
    if (shown == pin_) {
      identity_->Set(absl::OkStatus());
      *sync_status = grpc::Status::OK;
    } else {
      identity_->Set(absl::FailedPreconditionError(absl::StrCat(
          "the server at ", address_, " is not the pinned one: it shows ", shown, ", and the pin is ", pin_,
          ". Nothing was sent to it. Somebody may stand in between; or the coordinator has a new certificate: compare "
          "with what `ablate-server` prints at its start, on its machine, and change --tls-pin (ABLATE_TLS_PIN) then")));
      *sync_status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "not the pinned certificate");
    }
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string address_, pin_;
  const std::shared_ptr<ServerIdentity> identity_;
};

// The token with every call, whoever makes the call's context. Call credentials would not do: they need a channel that
// gRPC thinks secure, which one to this machine need not be.
class TokenSender : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(const std::string& header) : header_(header) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->emplace("authorization", header_);
    methods->Proceed();
  }

 private:
  const std::string& header_;
};

class TokenSenderFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenderFactory(const std::string& token) : header_(absl::StrCat("Bearer ", token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new TokenSender(header_);  // gRPC deletes it
  }

 private:
  const std::string header_;
};

std::shared_ptr<grpc::ChannelCredentials> Credentials(const ClientAccess& access,
                                                      const std::shared_ptr<ServerIdentity>& identity) {
  if (!access.pin.empty()) {
    // gRPC 1.51 wants roots even where it shall not use them (its issue 29667): a certificate that nobody has the key
    // of.
    const absl::StatusOr<KeyAndCertificate> nobody = MakeSelfSignedCertificate({});
    grpc::experimental::TlsChannelCredentialsOptions options;
    std::vector<grpc::experimental::IdentityKeyCertPair> own;
    if (!access.key_pem.empty()) own.push_back({access.key_pem, access.certificate_pem});
    options.set_certificate_provider(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
        nobody.ok() ? nobody->certificate_pem : "", own));
    options.watch_root_certs();
    if (!own.empty()) options.watch_identity_key_cert_pairs();
    options.set_verify_server_certs(false);
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<PinVerifier>(access.address, access.pin, identity));
    return grpc::experimental::TlsCredentials(options);
  }
  if (!access.ca_pem.empty()) {
    return grpc::SslCredentials({.pem_root_certs = access.ca_pem,
                                 .pem_private_key = access.key_pem,
                                 .pem_cert_chain = access.certificate_pem});
  }
  return grpc::InsecureChannelCredentials();
}

}  // namespace

absl::Status ServerIdentity::Verdict() const {
  MutexLock lock(&mutex_);
  return verdict_;
}

void ServerIdentity::Set(absl::Status verdict) {
  MutexLock lock(&mutex_);
  verdict_ = std::move(verdict);
}

std::shared_ptr<grpc::Channel> MakeChannel(const ClientAccess& access, const grpc::ChannelArguments& arguments,
                                           const std::shared_ptr<ServerIdentity>& identity) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!access.token.empty()) interceptors.push_back(std::make_unique<TokenSenderFactory>(access.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(access.address, Credentials(access, identity), arguments,
                                                                 std::move(interceptors));
}

}  // namespace ablate
