// A coordinator for tests of the worker: the worker link and the artifact service over real gRPC, jobs and files in
// memory. Keeps to proto/link.proto, without a scheduler: jobs go to free slots in order, an attempt that is given back
// is granted again. Thread rule: any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "proto/link.pb.h"
#include "worker/testing/memory_artifacts.h"

namespace ablate {

class FakeCoordinator {
 public:
  struct Job {
    v1::Task task;
    int64_t attempt = 0;                   // latest granted
    int slot = -1;                         // -1: does not run
    bool wanted = true;                    // false: cancelled
    std::vector<v1::AttemptReport> ended;  // every accepted end
    std::vector<v1::CheckpointRef> checkpoints;
    std::vector<int64_t> point_steps;
    bool finished() const { return !ended.empty() && ended.back().phase() != v1::AttemptReport::RELEASED; }
  };

  // `address`: unix:PATH or 127.0.0.1:0.
  explicit FakeCoordinator(const std::string& address);
  ~FakeCoordinator();

  // Stops and starts serving; jobs and files stay, as with a coordinator that restarts.
  void StopServing();
  void StartServing();
  std::string address() const;

  void AddJob(const std::string& job_id, const v1::Task& task);
  void CancelJob(const std::string& job_id);
  void AskForDrain();
  // Refuses every Sync with this, until OK.
  void Refuse(const absl::Status& status);
  // Blocks until the condition holds, 60 s at most; false: it did not.
  bool Await(const std::function<bool(const std::map<std::string, Job>&)>& condition);
  bool AwaitAllFinished();
  std::map<std::string, Job> jobs();
  v1::SyncRequest last_request();
  int syncs();
  MemoryArtifacts& artifacts() { return artifacts_; }

 private:
  class LinkService;
  class ArtifactService;
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request, const std::function<bool()>& cancelled);
  void Record(const v1::SyncRequest& request, v1::SyncResponse* response) ABLATE_REQUIRES(mutex_);
  void Assign(const v1::SyncRequest& request, v1::SyncResponse* response) ABLATE_REQUIRES(mutex_);

  MemoryArtifacts artifacts_;
  struct Server;
  std::unique_ptr<Server> server_;
  std::string address_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Job> jobs_ ABLATE_GUARDED_BY(mutex_);
  v1::SyncRequest last_request_ ABLATE_GUARDED_BY(mutex_);
  absl::Status refusal_ ABLATE_GUARDED_BY(mutex_);
  int syncs_ ABLATE_GUARDED_BY(mutex_) = 0;
  bool drain_ ABLATE_GUARDED_BY(mutex_) = false;
  bool serving_ ABLATE_GUARDED_BY(mutex_) = false;
};

}  // namespace ablate
