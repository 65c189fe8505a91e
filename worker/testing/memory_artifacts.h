// The coordinator's files, in memory, with faults on demand: an ArtifactTransport for tests, and the store behind
// FakeCoordinator. Thread rule: any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "worker/transport.h"

namespace ablate {

class MemoryArtifacts : public ArtifactTransport {
 public:
  std::string Put(const std::string& content);  // gives its SHA-256
  bool Has(const std::string& sha256);
  std::string Get(const std::string& sha256);

  // The next downloads and uploads end with Unavailable after so many bytes; one entry a transfer.
  void CutNext(int64_t bytes, int times = 1);
  // The next downloads carry a wrong byte.
  void CorruptNext(int times);
  // While away, everything ends so.
  void SetAway(bool away, absl::Status how = absl::UnavailableError("away"));
  // Downloads wait until let go.
  void Hold(bool hold);
  // Blocks until a download waits in Hold.
  void AwaitHeld();

  std::vector<int64_t> download_offsets();
  std::vector<int64_t> upload_offsets();
  int calls();  // of any kind

  absl::StatusOr<Stat> StatArtifact(const std::string& sha256, const StopSignal& stop,
                                    StopSignal::Mode cancel_at) override;
  absl::Status Download(const std::string& sha256, int64_t offset,
                        const std::function<absl::Status(std::string_view)>& sink, const StopSignal& stop,
                        StopSignal::Mode cancel_at) override;
  absl::Status Upload(const std::string& sha256, int64_t bytes, int64_t offset,
                      const std::function<absl::StatusOr<std::string>()>& source, const StopSignal& stop,
                      StopSignal::Mode cancel_at) override;

 private:
  int64_t NextCut() ABLATE_REQUIRES(mutex_);  // -1: none

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> whole_ ABLATE_GUARDED_BY(mutex_);
  std::map<std::string, std::string> partial_ ABLATE_GUARDED_BY(mutex_);
  std::vector<int64_t> cuts_ ABLATE_GUARDED_BY(mutex_);
  std::vector<int64_t> download_offsets_ ABLATE_GUARDED_BY(mutex_), upload_offsets_ ABLATE_GUARDED_BY(mutex_);
  int corrupt_ ABLATE_GUARDED_BY(mutex_) = 0;
  int calls_ ABLATE_GUARDED_BY(mutex_) = 0;
  int held_ ABLATE_GUARDED_BY(mutex_) = 0;
  absl::Status how_away_ ABLATE_GUARDED_BY(mutex_);
  bool away_ ABLATE_GUARDED_BY(mutex_) = false, hold_ ABLATE_GUARDED_BY(mutex_) = false;
};

}  // namespace ablate
