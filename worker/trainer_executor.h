// Runs stages and evaluations in the slot's trainer child: brings the files they need, resumes from the newest state
// there is, watches the child, brings back what it made, and says of a child that died how and why. Must not know the
// link or gRPC.
//
// The child is started with the first task and kept between tasks; a crash costs the attempt, and the next task gets a
// new child. Thread rule: as Executor. StageLocks: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "worker/artifact_cache.h"
#include "worker/checkpoint_uploader.h"
#include "worker/executor.h"
#include "worker/trainer_process.h"

namespace ablate {

// One attempt at a time works in a stage's checkpoint folder: a new attempt waits until the old one's slot has let go.
class StageLocks {
 public:
  // False: `stop` was raised first.
  bool Acquire(const std::string& stage_key, const StopSignal& stop);
  void Release(const std::string& stage_key);

 private:
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> held_ ABLATE_GUARDED_BY(mutex_);
};

struct TrainerExecutorOptions {
  TrainerCommand command;
  ArtifactCache* cache = nullptr;  // shared by the slots, as are the locks
  StageLocks* locks = nullptr;
  std::string checkpoints_dir;  // one folder a stage below it
  double checkpoint_seconds = 30;
  double upload_seconds = 120;
  double hang_seconds = 3600;      // without a step, a checkpoint or a line of log; 0: never
  int64_t stop_ms = 10'000;        // that the child gets to stop by itself
  int64_t memory_limit_bytes = 0;  // of the machine, to tell what a SIGKILL meant; 0: unknown
};

class TrainerExecutor : public Executor {
 public:
  explicit TrainerExecutor(TrainerExecutorOptions options);
  ~TrainerExecutor() override;

  v1::AttemptReport Run(const v1::Assignment& assignment, const TaskEvents& events, const StopSignal& stop) override;

 private:
  struct Ending;
  v1::AttemptReport RunStage(const v1::StageTask& task, const TaskEvents& events, const StopSignal& stop);
  v1::AttemptReport RunLockedStage(const v1::StageTask& task, const TaskEvents& events, const StopSignal& stop);
  v1::AttemptReport RunEvaluation(const v1::EvaluationTask& task, const TaskEvents& events, const StopSignal& stop);
  // The result, once the files that it names lie in the coordinator's store.
  v1::AttemptReport UploadMade(const v1::TaskResult& result, const std::string& dir, const StopSignal& stop);
  // Sends the request to a living child and follows it to its end. `checkpoint` is told of each state that was written.
  Ending Follow(const v1::TrainerRequest& request, const TaskEvents& events, const StopSignal& stop,
                const std::function<void(const v1::TrainerCheckpoint&)>& checkpoint);
  absl::Status EnsureChild(const StopSignal& stop);
  v1::Failure DeathOf(const std::string& doing, int64_t kills_before) const;
  std::string CheckpointDir(const std::string& stage_key) const;

  const TrainerExecutorOptions options_;
  CheckpointUploader uploader_;
  std::unique_ptr<TrainerProcess> child_;
};

// Starts a trainer, asks what it is, and ends it. Errors: as TrainerProcess::Start; Unavailable: it ended or said
// nothing for 30 seconds (with its last words).
absl::StatusOr<v1::TrainerReady> ProbeTrainer(const TrainerCommand& command);

// Removes folders of checkpoints that nobody touched for a week.
void RemoveOldCheckpoints(const std::string& checkpoints_dir);

}  // namespace ablate
