// A client's gRPC channel to a coordinator: TLS with a pinned or signed certificate, and the token with every call.
// The one place where clients choose credentials. In a library of its own, so that the rest of base stays free of gRPC.
// Thread rule: ServerIdentity is safe from any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/client_access.h"
#include "base/mutex.h"

namespace grpc {
class Channel;
class ChannelArguments;
}  // namespace grpc

namespace ablate {

// What the last handshake said about who the server is; shared by all channels to it.
class ServerIdentity {
 public:
  // FailedPrecondition: the server that answered last is not the pinned one; says both fingerprints and what to do.
  absl::Status Verdict() const;
  void Set(absl::Status verdict);

 private:
  mutable Mutex mutex_;
  absl::Status verdict_ ABLATE_GUARDED_BY(mutex_);
};

// Connects lazily. With a pin only the certificate's fingerprint counts, not its dates, names or signer; with a CA all
// of these. Without TLS only for addresses of this machine (ReadClientAccess sees to it).
std::shared_ptr<grpc::Channel> MakeChannel(const ClientAccess& access, const grpc::ChannelArguments& arguments,
                                           const std::shared_ptr<ServerIdentity>& identity);

}  // namespace ablate
