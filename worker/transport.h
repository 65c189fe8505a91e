// What the worker asks of the coordinator over the wire, as interfaces: gRPC behind them in production
// (grpc_client.cc), fakes in tests. Must not know gRPC. Thread rule: SyncTransport: Sync from one thread, CancelSync
// from any. ArtifactTransport: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/link.pb.h"
#include "worker/executor.h"

namespace ablate {

class SyncTransport {
 public:
  virtual ~SyncTransport() = default;
  // Blocks, `timeout_ms` at most. Codes: those of WorkerLink.Sync in proto/link.proto; Unavailable: the coordinator is
  // not there; DeadlineExceeded: no answer in time; Cancelled: by CancelSync.
  virtual absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request, int64_t timeout_ms) = 0;
  // Ends the Sync of the request with this sequence (and of earlier ones), whether it blocks now or is about to.
  virtual void CancelSync(int64_t sequence) = 0;
};

// One try each; retries are the cache's. Codes: those of proto/artifacts.proto; Unavailable and DeadlineExceeded: try
// again, what was moved so far is kept; Cancelled: `stop` reached `cancel_at`.
class ArtifactTransport {
 public:
  struct Stat {
    bool complete = false;
    int64_t bytes = 0;
  };

  virtual ~ArtifactTransport() = default;
  virtual absl::StatusOr<Stat> StatArtifact(const std::string& sha256, const StopSignal& stop,
                                            StopSignal::Mode cancel_at) = 0;
  // Gives the content from `offset` on to `sink`, chunk after chunk. A sink's error ends the download and is returned.
  virtual absl::Status Download(const std::string& sha256, int64_t offset,
                                const std::function<absl::Status(std::string_view)>& sink, const StopSignal& stop,
                                StopSignal::Mode cancel_at) = 0;
  // Sends what `source` gives (an empty chunk: the end) as the content from `offset` on of an artifact of `bytes` in
  // all.
  virtual absl::Status Upload(const std::string& sha256, int64_t bytes, int64_t offset,
                              const std::function<absl::StatusOr<std::string>()>& source, const StopSignal& stop,
                              StopSignal::Mode cancel_at) = 0;
};

}  // namespace ablate
