// The worker's files by content: fetches data and checkpoints from the coordinator, keeps them under a size limit
// (least recently used go first), uploads what was made here. Every file is verified against its hash before it is
// given out. Transfers resume, and are tried again, with growing pauses, while the coordinator is away. Must not know
// gRPC, slots or what the files hold.
//
// On disk: DIR/<sha256> whole files, DIR/<sha256>.part unfinished downloads. One process a folder.
// Thread rule: every method may be called from any thread; slots that want the same file share one download.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "proto/resources.pb.h"
#include "worker/transport.h"

namespace ablate {

// Data files above this do not travel: they must lie under the worker's data root.
inline constexpr int64_t kMaxTravellingDataBytes = int64_t{2} << 30;

struct ArtifactCacheOptions {
  std::string dir;
  int64_t max_bytes = int64_t{20} << 30;   // pinned files may exceed it
  std::string data_root;                   // "": none
  ArtifactTransport* transport = nullptr;  // must outlive the cache
  int64_t first_backoff_ms = 200;
  int64_t max_backoff_ms = 5'000;
};

class ArtifactCache {
 public:
  // A file that stays where it is as long as this object lives (or that is not the cache's: data used in place).
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept { *this = std::move(other); }
    Pin& operator=(Pin&& other) noexcept;
    ~Pin() { Release(); }
    const std::string& path() const { return path_; }
    void Release();

   private:
    friend class ArtifactCache;
    ArtifactCache* cache_ = nullptr;
    std::string sha256_, path_;
  };

  // Takes over what an earlier process left in the folder. Unavailable: the folder cannot be made or read.
  static absl::StatusOr<std::unique_ptr<ArtifactCache>> Open(ArtifactCacheOptions options);

  // Blocks until the file is here. InvalidArgument: not a SHA-256. NotFound: the coordinator does not have it.
  // DataLoss: what it sends has another hash, three times. Cancelled: `stop` was raised. As FileError: files of this
  // machine (a full disk, ...).
  absl::StatusOr<Pin> Fetch(const v1::ArtifactRef& ref, const StopSignal& stop);

  // A data file: in place where data_root has it at its path with this size and hash, else as Fetch.
  // FailedPrecondition: too large to travel and not under the data root.
  absl::StatusOr<Pin> FetchData(const v1::DataFile& file, const StopSignal& stop);

  // Takes in a file made here whose hash the caller vouches for (by a hard link where it can; `path` stays).
  absl::StatusOr<Pin> Adopt(const std::string& path, const v1::ArtifactRef& ref);

  // Returns once the coordinator has the file. Keeps trying until `stop` reaches `give_up_at` (Cancelled). DataLoss:
  // the local file is damaged. As FileError: it cannot be read here. A coordinator whose disk is full
  // (ResourceExhausted) is asked again. InvalidArgument and others of the coordinator: refused for good. With
  // `patience_ms`, Unavailable once the coordinator has not answered for so long.
  absl::Status Upload(const v1::ArtifactRef& ref, const StopSignal& stop, StopSignal::Mode give_up_at,
                      int64_t patience_ms = 0);

  // Removes a file unless it is pinned.
  void Discard(const std::string& sha256);

  // Remembers that these are the end weights of the stage. The newest stages whose weights are still here, at most 256.
  void Hold(const std::string& stage_key, const std::string& weights_sha256);
  std::vector<std::string> HeldStageKeys() const;

  int64_t bytes() const;

 private:
  struct Entry {
    int64_t bytes = 0;
    int64_t last_use = 0;
    int pins = 0;
    bool here = false;      // the whole file is on disk
    bool verified = false;  // by this process
    bool busy = false;      // someone fetches or verifies it
  };

  explicit ArtifactCache(ArtifactCacheOptions options) : options_(std::move(options)) {}
  absl::Status Scan();
  std::string PathOf(const std::string& sha256) const;
  Pin PinLocked(const std::string& sha256) ABLATE_REQUIRES(mutex_);
  void Unpin(const std::string& sha256);
  // Ends what set `busy`: the file is here now, or `status` says why not.
  absl::StatusOr<Pin> SettleLocked(const std::string& sha256, const absl::Status& status, int64_t bytes)
      ABLATE_REQUIRES(mutex_);
  void EvictLocked() ABLATE_REQUIRES(mutex_);
  // The steps of Fetch, without the lock; only for the one who set `busy`.
  absl::Status Verify(const std::string& sha256, int64_t bytes);
  absl::Status Download(const v1::ArtifactRef& ref, const StopSignal& stop);
  absl::Status DownloadOnce(const v1::ArtifactRef& ref, const StopSignal& stop);
  // False when `stop` reached `at` first.
  bool BackOff(int64_t* wait_ms, const StopSignal& stop, StopSignal::Mode at) const;
  bool InPlace(const v1::DataFile& file, std::string* path);

  const ArtifactCacheOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABLATE_GUARDED_BY(mutex_);
  int64_t uses_ ABLATE_GUARDED_BY(mutex_) = 0;
  int64_t total_bytes_ ABLATE_GUARDED_BY(mutex_) = 0;
  std::list<std::pair<std::string, std::string>> held_ ABLATE_GUARDED_BY(mutex_);  // (stage key, weights), newest first
  std::map<std::string, bool> in_place_ ABLATE_GUARDED_BY(mutex_);  // path, size, time and hash -> whether they agree
};

}  // namespace ablate
