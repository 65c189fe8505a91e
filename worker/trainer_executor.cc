#include "worker/trainer_executor.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "worker/failure_kind.h"
#include "worker/machine.h"

namespace ablate {
namespace {

using DataFiles = google::protobuf::RepeatedPtrField<v1::DataFile>;
using DataPaths = google::protobuf::RepeatedPtrField<std::string>;

constexpr int64_t kStopPollMicros = 50'000;
constexpr int64_t kReadyMs = 30'000;
constexpr int64_t kWakeMs = 1'000;
constexpr int64_t kReleasePatienceMs = 2'000;
constexpr int64_t kCheckpointLifeSeconds = 7 * 24 * 3600;
constexpr int kExitOutOfMemory = 3;  // ablate-trainer --help
// Above this share of the machine's memory a SIGKILL from nowhere means the kernel's out-of-memory killer.
constexpr double kNearLimit = 0.8;

// Of work around a task. Whether its configuration is valid only the trainer can say.
v1::FailureKind KindOf(const absl::Status& status) {
  const v1::FailureKind kind = FailureKindOf(status);
  return kind == v1::INVALID_CONFIG ? v1::CODE_ERROR : kind;
}

v1::AttemptReport FailedTo(const std::string& what, const absl::Status& status, const StopSignal& stop) {
  if (stop.raised()) return Stopped(stop);
  return Failed(KindOf(status), absl::StrCat("cannot ", what, ": ", status.message()));
}

// A child's first event. `stop` may be null.
absl::StatusOr<v1::TrainerReady> AwaitReady(TrainerProcess* child, const std::string& program, const StopSignal* stop) {
  const int64_t until_us = Clock::Real().MonotonicMicros() + kReadyMs * 1000;
  v1::TrainerEvent event;
  while (Clock::Real().MonotonicMicros() < until_us) {
    if (stop != nullptr && stop->raised()) return absl::CancelledError("stopped while the trainer started");
    switch (child->Wait(&event, stop, kWakeMs)) {
      case TrainerProcess::Wake::kEvent:
        if (event.has_ready()) return event.ready();
        break;
      case TrainerProcess::Wake::kEnded:
      case TrainerProcess::Wake::kBroken:
        return absl::UnavailableError(absl::StrCat(program, " ended at its start: ", child->exit().Describe(), " ",
                                                   child->fault(), "\n", child->stderr_tail()));
      default:
        break;
    }
  }
  return absl::UnavailableError(absl::StrCat(program, " said nothing for ", kReadyMs / 1000, " s after its start"));
}

}  // namespace

bool StageLocks::Acquire(const std::string& stage_key, const StopSignal& stop) {
  MutexLock lock(&mutex_);
  while (held_.count(stage_key) > 0) {
    if (stop.raised()) return false;
    changed_.WaitFor(&mutex_, kStopPollMicros);
  }
  held_.insert(stage_key);
  return true;
}

void StageLocks::Release(const std::string& stage_key) {
  MutexLock lock(&mutex_);
  held_.erase(stage_key);
  changed_.NotifyAll();
}

// How a task ended: exactly one of the members is set.
struct TrainerExecutor::Ending {
  std::optional<v1::TaskResult> done;
  std::optional<v1::Failure> failed;
  bool stopped = false;
};

TrainerExecutor::TrainerExecutor(TrainerExecutorOptions options)
    : options_(std::move(options)), uploader_(options_.cache) {}

TrainerExecutor::~TrainerExecutor() = default;

std::string TrainerExecutor::CheckpointDir(const std::string& stage_key) const {
  return JoinPath(options_.checkpoints_dir, Sha256Hex(stage_key).substr(0, 32));
}

v1::AttemptReport TrainerExecutor::Run(const v1::Assignment& assignment, const TaskEvents& events,
                                       const StopSignal& stop) {
  const v1::Task& task = assignment.task();
  const v1::Executor wanted = task.has_stage() ? task.stage().executor() : task.evaluation().executor();
  if (wanted == v1::EXECUTOR_NOOP) {
    return Failed(v1::INVALID_CONFIG, "a job of the test executor needs a worker with --executor noop");
  }
  if (task.has_stage()) return RunStage(task.stage(), events, stop);
  if (task.has_evaluation()) return RunEvaluation(task.evaluation(), events, stop);
  return Failed(v1::INVALID_CONFIG, "the assignment names no task");
}

v1::AttemptReport TrainerExecutor::RunStage(const v1::StageTask& task, const TaskEvents& events,
                                            const StopSignal& stop) {
  if (!options_.locks->Acquire(task.stage_key(), stop)) return Stopped(stop);
  v1::AttemptReport report = RunLockedStage(task, events, stop);
  uploader_.Finish();
  options_.locks->Release(task.stage_key());
  return report;
}

v1::AttemptReport TrainerExecutor::RunLockedStage(const v1::StageTask& task, const TaskEvents& events,
                                                  const StopSignal& stop) {
  ArtifactCache* const cache = options_.cache;
  v1::TrainerRequest request;
  v1::RunStage* run = request.mutable_run_stage();
  *run->mutable_task() = task;
  std::vector<ArtifactCache::Pin> pins;
  for (const v1::DataFile& file : task.data().files()) {
    absl::StatusOr<ArtifactCache::Pin> pin = cache->FetchData(file, stop);
    if (!pin.ok()) return FailedTo("get the data", pin.status(), stop);
    run->add_data_paths(pin->path());
    pins.push_back(*std::move(pin));
  }
  if (task.has_start()) {
    const auto fetch = [&](const v1::ArtifactRef& ref, const auto& set_path) -> absl::Status {
      ABLATE_ASSIGN_OR_RETURN(ArtifactCache::Pin pin, cache->Fetch(ref, stop));
      set_path(pin.path());
      pins.push_back(std::move(pin));
      return absl::OkStatus();
    };
    absl::Status status =
        fetch(task.start().weights(), [&](const std::string& path) { run->set_start_weights_path(path); });
    if (status.ok() && task.start().has_optimizer()) {
      status = fetch(task.start().optimizer(), [&](const std::string& path) { run->set_start_optimizer_path(path); });
    }
    if (!status.ok()) return FailedTo("get the state to start from", status, stop);
    run->set_start_step(task.start().step());
  }
  // The trainer itself prefers a newer sound checkpoint of this stage that it finds here.
  const std::string dir = CheckpointDir(task.stage_key());
  run->set_checkpoint_dir(dir);
  run->set_checkpoint_seconds(options_.checkpoint_seconds);
  if (const absl::Status made = MakeDirs(dir); !made.ok()) return FailedTo("keep checkpoints", made, stop);

  std::optional<LocalCheckpoint> newest;
  std::optional<LocalCheckpoint> end_state;
  int64_t uploaded_us = Clock::Real().MonotonicMicros();
  const Ending ending = Follow(request, events, stop, [&](const v1::TrainerCheckpoint& checkpoint) {
    LocalCheckpoint local{checkpoint.ref(), checkpoint.weights_path(), checkpoint.optimizer_path()};
    if (checkpoint.end_state()) {
      end_state = std::move(local);
      return;
    }
    newest = std::move(local);
    const int64_t now_us = Clock::Real().MonotonicMicros();
    if (stop.raised() || static_cast<double>(now_us - uploaded_us) < options_.upload_seconds * 1e6 || uploader_.busy())
      return;
    uploaded_us = now_us;
    uploader_.Offer(*newest, events.checkpoint);
  });

  if (ending.failed) return Failed(*ending.failed);
  if (ending.stopped) {
    if (stop.mode() == StopSignal::Mode::kRelease && newest) {
      // Another worker goes on from here, so this is worth the rest of the grace.
      uploader_.Finish();
      const absl::StatusOr<PinnedCheckpoint> pinned = AdoptCheckpoint(cache, *newest);
      absl::Status status = pinned.status();
      // A coordinator that is away as well must not use up the grace: the checkpoint stays on this machine.
      if (status.ok()) {
        status = UploadCheckpoint(cache, pinned->ref, stop, StopSignal::Mode::kCancel, kReleasePatienceMs);
      }
      if (status.ok()) events.checkpoint(newest->ref);
      LOG_IF(WARNING, !status.ok()) << "checkpoint at step " << newest->ref.step()
                                    << " stays on this machine: " << status.message();
    }
    if (stop.mode() == StopSignal::Mode::kCancel) RemoveTree(dir).IgnoreError();
    return Stopped(stop);
  }

  v1::TaskResult result = *ending.done;
  uploader_.Finish();
  if (end_state) {
    absl::StatusOr<PinnedCheckpoint> pinned = AdoptCheckpoint(cache, *end_state);
    if (!pinned.ok()) return FailedTo("keep the end state", pinned.status(), stop);
    v1::CheckpointRef ref = end_state->ref;
    if (!task.keep_optimizer()) ref.clear_optimizer();
    const absl::Status status = UploadCheckpoint(cache, ref, stop, StopSignal::Mode::kCancel);
    if (!status.ok()) return FailedTo("upload the end state", status, stop);
    *result.mutable_end_state() = ref;
    cache->Hold(task.stage_key(), ref.weights().sha256());
  } else {
    result.clear_end_state();
  }
  RemoveTree(dir).IgnoreError();
  return Succeeded(std::move(result));
}

v1::AttemptReport TrainerExecutor::RunEvaluation(const v1::EvaluationTask& task, const TaskEvents& events,
                                                 const StopSignal& stop) {
  v1::TrainerRequest request;
  v1::RunEvaluation* run = request.mutable_run_evaluation();
  *run->mutable_task() = task;
  std::vector<ArtifactCache::Pin> pins;
  for (const v1::DataFile& file : task.data().files()) {
    absl::StatusOr<ArtifactCache::Pin> pin = options_.cache->FetchData(file, stop);
    if (!pin.ok()) return FailedTo("get the data", pin.status(), stop);
    run->add_data_paths(pin->path());
    pins.push_back(*std::move(pin));
  }
  const std::tuple<const char*, const DataFiles*, DataPaths*> inputs[] = {
      {"get the task's file", &task.files(), run->mutable_file_paths()},
      {"get the task's tokenizer", &task.tokenizer(), run->mutable_tokenizer_paths()}};
  for (const auto& [what, files, paths] : inputs) {
    for (const v1::DataFile& file : *files) {
      absl::StatusOr<ArtifactCache::Pin> pin = options_.cache->FetchData(file, stop);
      if (!pin.ok()) return FailedTo(what, pin.status(), stop);
      *paths->Add() = pin->path();
      pins.push_back(*std::move(pin));
    }
  }
  if (!task.has_state()) return Failed(v1::CODE_ERROR, "the evaluation names no state to measure");
  absl::StatusOr<ArtifactCache::Pin> weights = options_.cache->Fetch(task.state().weights(), stop);
  if (!weights.ok()) return FailedTo("get the weights", weights.status(), stop);
  run->set_weights_path(weights->path());
  const std::string made_dir = CheckpointDir("made " + task.evaluation_key());
  RemoveTree(made_dir).IgnoreError();  // of an attempt that was cut off
  if (const absl::Status made = MakeDirs(made_dir); !made.ok()) return FailedTo("keep made files", made, stop);
  run->set_output_dir(made_dir);
  // Steps of an evaluation are batches; what is shown of a job are training steps.
  TaskEvents quiet = events;
  quiet.progress = [](const TaskProgress&) {};
  const Ending ending = Follow(request, quiet, stop, [](const v1::TrainerCheckpoint&) {});
  v1::AttemptReport report = ending.failed    ? Failed(*ending.failed)
                             : ending.stopped ? Stopped(stop)
                                              : UploadMade(*ending.done, made_dir, stop);
  RemoveTree(made_dir).IgnoreError();
  return report;
}

v1::AttemptReport TrainerExecutor::UploadMade(const v1::TaskResult& result, const std::string& dir,
                                              const StopSignal& stop) {
  for (const v1::ResultArtifact& made : result.artifacts()) {
    // What a trainer says leads to no file but one in its folder.
    if (const absl::Status status = CheckFileName("a made file", made.name()); !status.ok())
      return Failed(v1::CODE_ERROR, std::string(status.message()));
    const std::string what = absl::StrCat("upload the made file ", made.name());
    const absl::StatusOr<ArtifactCache::Pin> pin = options_.cache->Adopt(JoinPath(dir, made.name()), made.artifact());
    if (!pin.ok()) return FailedTo(what, pin.status(), stop);
    const absl::Status status = options_.cache->Upload(made.artifact(), stop, StopSignal::Mode::kCancel);
    if (!status.ok()) return FailedTo(what, status, stop);
  }
  return Succeeded(result);
}

absl::Status TrainerExecutor::EnsureChild(const StopSignal& stop) {
  v1::TrainerEvent event;
  if (child_ != nullptr) {
    // It may have ended since its last task, and say so only now.
    TrainerProcess::Wake wake;
    do {
      wake = child_->Wait(&event, nullptr, 0);
    } while (wake == TrainerProcess::Wake::kEvent || wake == TrainerProcess::Wake::kLog);
    if (wake == TrainerProcess::Wake::kTimeout) return absl::OkStatus();
    child_.reset();
  }
  ABLATE_ASSIGN_OR_RETURN(child_, TrainerProcess::Start(options_.command));
  const absl::Status status = AwaitReady(child_.get(), options_.command.argv[0], &stop).status();
  if (!status.ok()) child_.reset();
  return status;
}

v1::Failure TrainerExecutor::DeathOf(const std::string& doing, int64_t kills_before) const {
  const ExitStatus& exit = child_->exit();
  v1::Failure failure;
  failure.set_exit_code(exit.code);
  failure.set_signal(exit.signal);
  failure.set_peak_memory_bytes(exit.peak_rss_bytes);
  failure.set_stderr_tail(child_->stderr_tail());
  failure.set_kind(v1::CODE_ERROR);
  std::string why;
  const int64_t kills = OutOfMemoryKills();
  if (exit.signal == SIGKILL) {
    if (kills_before >= 0 && kills > kills_before) {
      failure.set_kind(v1::OUT_OF_MEMORY);
      why = "the kernel killed it for lack of memory";
    } else if (options_.memory_limit_bytes > 0 && static_cast<double>(exit.peak_rss_bytes) >
                                                      kNearLimit * static_cast<double>(options_.memory_limit_bytes)) {
      failure.set_kind(v1::OUT_OF_MEMORY);
      why = "it used nearly all memory of this machine";
    } else {
      why = "killed from outside";
    }
  } else if (exit.code == kExitOutOfMemory || absl::StrContains(child_->stderr_tail(), "std::bad_alloc")) {
    failure.set_kind(v1::OUT_OF_MEMORY);
    why = "it could not get more memory";
  }
  failure.set_message(absl::StrCat(
      "the trainer ended with ", exit.Describe(), doing, why.empty() ? "" : absl::StrCat(": ", why),
      child_->fault().empty() ? "" : absl::StrCat("; ", child_->fault()),
      "; most memory in use: ", HumanBytes(static_cast<uint64_t>(std::max<int64_t>(exit.peak_rss_bytes, 0)))));
  return failure;
}

TrainerExecutor::Ending TrainerExecutor::Follow(const v1::TrainerRequest& request, const TaskEvents& events,
                                                const StopSignal& stop,
                                                const std::function<void(const v1::TrainerCheckpoint&)>& checkpoint) {
  Ending ending;
  const auto fail = [&](v1::FailureKind kind, std::string message) {
    v1::Failure failure;
    failure.set_kind(kind);
    failure.set_message(std::move(message));
    if (child_ != nullptr) failure.set_stderr_tail(child_->stderr_tail());
    ending.failed = std::move(failure);
  };
  const auto discard_child = [&] {
    child_->Kill();
    child_.reset();
  };

  const int64_t kills_before = OutOfMemoryKills();
  const pid_t child_before = child_ != nullptr ? child_->pid() : 0;
  if (const absl::Status status = EnsureChild(stop); !status.ok()) {
    if (stop.raised()) {
      ending.stopped = true;
    } else {
      fail(KindOf(status), std::string(status.message()));
    }
    return ending;
  }
  const bool kept = child_->pid() == child_before;
  bool heard = false;
  if (kept) child_->ForgetLog();  // of other tasks
  // A child that does not take the request has ended or hangs; the loop finds out which.
  child_->Send(request).IgnoreError();

  const Clock& clock = Clock::Real();
  int64_t alive_us = clock.MonotonicMicros();
  int64_t step = -1;
  int64_t stop_until_us = 0;  // 0: no stop was sent
  const int64_t wake_ms = options_.hang_seconds > 0
                              ? std::clamp<int64_t>(static_cast<int64_t>(options_.hang_seconds * 250), 10, kWakeMs)
                              : kWakeMs;
  StopSignal::Mode stop_sent = StopSignal::Mode::kNone;
  for (;;) {
    const StopSignal::Mode mode = stop.mode();
    if (mode == StopSignal::Mode::kAbandon) {
      discard_child();
      ending.stopped = true;
      return ending;
    }
    if (mode > stop_sent) {
      v1::TrainerRequest stop_request;
      stop_request.mutable_stop()->set_checkpoint(mode == StopSignal::Mode::kRelease);
      child_->Send(stop_request).IgnoreError();
      stop_sent = mode;
      stop_until_us = clock.MonotonicMicros() + options_.stop_ms * 1000;
    }
    // Asked here, not when nothing comes: the child's progress ticks even while a step hangs.
    const int64_t now_us = clock.MonotonicMicros();
    if (stop_until_us != 0 && now_us > stop_until_us) {
      LOG(WARNING) << "the trainer does not stop within " << options_.stop_ms << " ms: killed";
      discard_child();
      ending.stopped = true;
      return ending;
    }
    if (options_.hang_seconds > 0 && static_cast<double>(now_us - alive_us) > options_.hang_seconds * 1e6) {
      fail(v1::TIMEOUT, absl::StrCat("the trainer made no progress for ", HumanSeconds(options_.hang_seconds),
                                     step >= 0 ? absl::StrCat(" after step ", step) : "", "; killed (--hang-seconds)"));
      discard_child();
      return ending;
    }
    v1::TrainerEvent event;
    switch (child_->Wait(&event, &stop, wake_ms)) {
      case TrainerProcess::Wake::kEvent:
        break;
      case TrainerProcess::Wake::kLog:
        alive_us = clock.MonotonicMicros();
        continue;
      case TrainerProcess::Wake::kStop:
      case TrainerProcess::Wake::kTimeout:
        continue;
      case TrainerProcess::Wake::kEnded:
      case TrainerProcess::Wake::kBroken:
        if (kept && !heard && !stop.raised()) {
          // It was dying when it got the task, of something else: a new child decides.
          LOG(WARNING) << "the trainer ended between two tasks: " << child_->exit().Describe();
          child_.reset();
          return Follow(request, events, stop, checkpoint);
        }
        ending.failed = DeathOf(step >= 0 ? absl::StrCat(" after step ", step) : "", kills_before);
        child_.reset();
        if (stop.raised()) {
          ending.failed.reset();
          ending.stopped = true;
        }
        return ending;
    }
    heard = true;
    if (event.has_progress()) {
      const v1::TrainerProgress& progress = event.progress();
      if (progress.step() != step || progress.points_size() > 0) alive_us = clock.MonotonicMicros();
      step = progress.step();
      TaskProgress told;
      told.step = step;
      told.tokens_per_second = progress.tokens_per_second();
      if (progress.has_resumed_from_step()) {
        told.resumed_from_step = progress.resumed_from_step();
        if (*told.resumed_from_step > 0) LOG(INFO) << "the trainer goes on from step " << *told.resumed_from_step;
      }
      told.points.assign(progress.points().begin(), progress.points().end());
      events.progress(told);
    } else if (event.has_checkpoint()) {
      alive_us = clock.MonotonicMicros();
      checkpoint(event.checkpoint());
    } else if (event.has_done()) {
      ending.done = std::move(*event.mutable_done());
      return ending;
    } else if (event.has_failed()) {
      ending.failed = std::move(*event.mutable_failed());
      ending.failed->set_stderr_tail(child_->stderr_tail());
      return ending;
    } else if (event.has_stopped() && stop_sent != StopSignal::Mode::kNone) {
      ending.stopped = true;
      return ending;
    }
  }
}

absl::StatusOr<v1::TrainerReady> ProbeTrainer(const TrainerCommand& command) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<TrainerProcess> child, TrainerProcess::Start(command));
  return AwaitReady(child.get(), command.argv[0], nullptr);
}

void RemoveOldCheckpoints(const std::string& checkpoints_dir) {
  const absl::StatusOr<std::vector<std::string>> names = ListDir(checkpoints_dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(checkpoints_dir, name);
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0 || ::time(nullptr) - info.st_mtime < kCheckpointLifeSeconds) continue;
    LOG(INFO) << "removing " << path << ": an unfinished stage that nobody asked for in a week";
    RemoveTree(path).IgnoreError();
  }
}

}  // namespace ablate
