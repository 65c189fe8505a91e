// The coordinator over gRPC: the one file of the worker's library that knows it.
// Thread rule: as the interfaces say.
#pragma once

#include <memory>
#include <string>

#include "base/client_access.h"
#include "worker/transport.h"

namespace ablate {

class GrpcClient : public SyncTransport, public ArtifactTransport {
 public:
  // Nothing is connected yet. Every call is FailedPrecondition when the server is not the pinned one.
  explicit GrpcClient(ClientAccess access);
  ~GrpcClient() override;

  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request, int64_t timeout_ms) override;
  void CancelSync(int64_t sequence) override;

  absl::StatusOr<Stat> StatArtifact(const std::string& sha256, const StopSignal& stop,
                                    StopSignal::Mode cancel_at) override;
  absl::Status Download(const std::string& sha256, int64_t offset,
                        const std::function<absl::Status(std::string_view)>& sink, const StopSignal& stop,
                        StopSignal::Mode cancel_at) override;
  absl::Status Upload(const std::string& sha256, int64_t bytes, int64_t offset,
                      const std::function<absl::StatusOr<std::string>()>& source, const StopSignal& stop,
                      StopSignal::Mode cancel_at) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ablate
