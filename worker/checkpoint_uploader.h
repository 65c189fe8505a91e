// Uploads a running stage's checkpoints beside its training: one thread, always the newest one offered, and the state
// is reported only once the coordinator has all of it. Must not know the trainer. Thread rule: every method from one
// thread (the slot's); the callback comes from the uploader's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "proto/resources.pb.h"
#include "worker/artifact_cache.h"
#include "worker/executor.h"

namespace ablate {

// A state that lies in files of this machine. `optimizer_path` is empty where there is none.
struct LocalCheckpoint {
  v1::CheckpointRef ref;
  std::string weights_path, optimizer_path;
};

// Takes the files into the cache and uploads them; the pins keep them there. Errors: as ArtifactCache::Adopt and
// Upload.
struct PinnedCheckpoint {
  v1::CheckpointRef ref;
  ArtifactCache::Pin weights, optimizer;
};
absl::StatusOr<PinnedCheckpoint> AdoptCheckpoint(ArtifactCache* cache, const LocalCheckpoint& checkpoint);
absl::Status UploadCheckpoint(ArtifactCache* cache, const v1::CheckpointRef& ref, const StopSignal& stop,
                              StopSignal::Mode give_up_at, int64_t patience_ms = 0);

class CheckpointUploader {
 public:
  explicit CheckpointUploader(ArtifactCache* cache);
  ~CheckpointUploader();
  CheckpointUploader(const CheckpointUploader&) = delete;
  CheckpointUploader& operator=(const CheckpointUploader&) = delete;

  // Takes the files in at once (they may be removed afterwards) and uploads them later; replaces one that still waits.
  // `uploaded` is called when it is done, never after Finish.
  void Offer(const LocalCheckpoint& checkpoint, std::function<void(const v1::CheckpointRef&)> uploaded);
  bool busy();
  // Gives up what waits and what is under way; returns when no callback can come any more.
  void Finish();

 private:
  struct Job {
    PinnedCheckpoint checkpoint;
    std::function<void(const v1::CheckpointRef&)> uploaded;
    std::shared_ptr<StopSignal> stop;
  };
  void Loop();

  ArtifactCache* const cache_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<Job> waiting_ ABLATE_GUARDED_BY(mutex_);
  std::shared_ptr<StopSignal> running_ ABLATE_GUARDED_BY(mutex_);  // null: nothing is under way
  bool closing_ ABLATE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ablate
