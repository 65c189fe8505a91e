#include "worker/checkpoint_uploader.h"

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace ablate {

absl::StatusOr<PinnedCheckpoint> AdoptCheckpoint(ArtifactCache* cache, const LocalCheckpoint& checkpoint) {
  PinnedCheckpoint pinned;
  pinned.ref = checkpoint.ref;
  ABLATE_ASSIGN_OR_RETURN(pinned.weights, cache->Adopt(checkpoint.weights_path, checkpoint.ref.weights()));
  if (!checkpoint.optimizer_path.empty()) {
    ABLATE_ASSIGN_OR_RETURN(pinned.optimizer, cache->Adopt(checkpoint.optimizer_path, checkpoint.ref.optimizer()));
  }
  return pinned;
}

absl::Status UploadCheckpoint(ArtifactCache* cache, const v1::CheckpointRef& ref, const StopSignal& stop,
                              StopSignal::Mode give_up_at, int64_t patience_ms) {
  ABLATE_RETURN_IF_ERROR(cache->Upload(ref.weights(), stop, give_up_at, patience_ms));
  if (!ref.has_optimizer()) return absl::OkStatus();
  return cache->Upload(ref.optimizer(), stop, give_up_at, patience_ms);
}

CheckpointUploader::CheckpointUploader(ArtifactCache* cache) : cache_(cache), thread_([this] { Loop(); }) {}

CheckpointUploader::~CheckpointUploader() {
  Finish();
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void CheckpointUploader::Offer(const LocalCheckpoint& checkpoint,
                               std::function<void(const v1::CheckpointRef&)> uploaded) {
  absl::StatusOr<PinnedCheckpoint> pinned = AdoptCheckpoint(cache_, checkpoint);
  if (!pinned.ok()) {
    LOG(WARNING) << "checkpoint at step " << checkpoint.ref.step() << " is not uploaded: " << pinned.status().message();
    return;
  }
  MutexLock lock(&mutex_);
  waiting_ = Job{*std::move(pinned), std::move(uploaded), std::make_shared<StopSignal>()};
  changed_.NotifyAll();
}

bool CheckpointUploader::busy() {
  MutexLock lock(&mutex_);
  return waiting_.has_value() || running_ != nullptr;
}

void CheckpointUploader::Finish() {
  MutexLock lock(&mutex_);
  waiting_.reset();
  while (running_ != nullptr) {
    running_->Raise(StopSignal::Mode::kAbandon);
    changed_.Wait(&mutex_);
  }
}

void CheckpointUploader::Loop() {
  for (;;) {
    Job job;
    {
      MutexLock lock(&mutex_);
      while (!waiting_ && !closing_) changed_.Wait(&mutex_);
      if (!waiting_) return;
      job = *std::move(waiting_);
      waiting_.reset();
      running_ = job.stop;
    }
    const v1::CheckpointRef ref = job.checkpoint.ref;
    const absl::Status status = UploadCheckpoint(cache_, ref, *job.stop, StopSignal::Mode::kAbandon);
    if (status.ok()) {
      job.uploaded(ref);
    } else if (!absl::IsCancelled(status)) {
      LOG(WARNING) << "checkpoint at step " << ref.step() << " was not uploaded: " << status.message();
    }
    // The trainer keeps its own copies for this machine; a resumed attempt elsewhere asks the coordinator.
    job = {};
    cache_->Discard(ref.weights().sha256());
    if (ref.has_optimizer()) cache_->Discard(ref.optimizer().sha256());
    MutexLock lock(&mutex_);
    running_.reset();
    changed_.NotifyAll();
  }
}

}  // namespace ablate
