#include "worker/trainer/session.h"

#include <unistd.h>

#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "base/version.h"
#include "proto/trainer.pb.h"
#include "worker/failure_kind.h"
#include "worker/pipe.h"
#include "worker/trainer/data_set.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/stage.h"
#include "worker/trainer/train_config.h"

namespace ablate {
namespace {

// Well under the second that the contract allows, for a machine whose cores are all busy.
constexpr int64_t kTickMicros = 400'000;

// The largest resident size since the last reset. The kernel keeps it; where it cannot be reset, it is that of the
// process.
void ResetPeakMemory() {
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
}
int64_t PeakMemoryBytes() {
  const auto status = ReadFile("/proc/self/status");
  if (!status.ok()) return 0;
  const size_t at = status->find("VmHWM:");
  return at == std::string::npos ? 0 : std::atoll(status->c_str() + at + 6) * 1024;
}

class Session : public TaskControl {
 public:
  Session(int in_fd, int out_fd, Device* device, const SessionOptions& options, const Clock& clock)
      : in_fd_(in_fd), out_fd_(out_fd), device_(device), options_(options), clock_(clock) {}

  int Serve();

  Stop ShouldStop() override;
  void Progress(int64_t step, double tokens_per_second) override;
  void Point(std::string_view metric, int64_t step, double value) override;
  void Checkpoint(const SavedState& saved, int64_t step, bool end_state) override;

 private:
  struct Request {
    int64_t number;  // of the task, counted from 1
    v1::TrainerRequest request;
  };

  void ReadLoop() ABLATE_EXCLUDES(mutex_);
  void TickLoop() ABLATE_EXCLUDES(mutex_);
  std::optional<v1::TrainerRequest> NextTask() ABLATE_EXCLUDES(mutex_);
  void EndTask() ABLATE_EXCLUDES(mutex_);
  void DoTask(const v1::TrainerRequest& request);
  absl::StatusOr<Backend*> OpenDevice(const v1::Configuration& config);
  absl::Status DoStage(const v1::RunStage& request, v1::TaskResult* result, std::optional<int64_t>* stopped_at);
  absl::Status DoEvaluation(const v1::RunEvaluation& request, v1::TaskResult* result,
                            std::optional<int64_t>* stopped_at);
  absl::StatusOr<DataSet*> Data(const v1::DataRef& ref, const google::protobuf::RepeatedPtrField<std::string>& paths);
  void SendFailure(v1::FailureKind kind, const std::string& message);
  // Sends `event` after the points and the progress that wait.
  void Send(const v1::TrainerEvent& event) ABLATE_EXCLUDES(mutex_);
  void SendWaiting() ABLATE_REQUIRES(mutex_);
  void Write(const v1::TrainerEvent& event) ABLATE_REQUIRES(mutex_);

  const int in_fd_, out_fd_;
  Device* const device_;
  const SessionOptions options_;
  const Clock& clock_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Request> queue_ ABLATE_GUARDED_BY(mutex_);
  int64_t received_ ABLATE_GUARDED_BY(mutex_) = 0;  // tasks so far
  int64_t running_ ABLATE_GUARDED_BY(mutex_) = 0;   // number of the running task; 0: none
  // A stop holds for the tasks that had come before it, so one that arrives late never stops a later task.
  int64_t stop_number_ ABLATE_GUARDED_BY(mutex_) = 0;
  bool stop_with_checkpoint_ ABLATE_GUARDED_BY(mutex_) = false;
  bool closed_ ABLATE_GUARDED_BY(mutex_) = false;  // nobody is left to work for
  bool broken_ ABLATE_GUARDED_BY(mutex_) = false;  // ... because the pipe carried nonsense
  bool ended_ ABLATE_GUARDED_BY(mutex_) = false;   // the ticker may go
  v1::TrainerProgress waiting_ ABLATE_GUARDED_BY(mutex_);
  int64_t progress_sent_us_ ABLATE_GUARDED_BY(mutex_) = 0;

  // Of the working thread alone.
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<Evaluator> evaluator_;  // of the device's backend; null: none yet
  std::string stage_key_;
  bool device_lost_ = false;  // nothing more can be done in this process
};

void Session::ReadLoop() {
  while (true) {
    v1::TrainerRequest request;
    const absl::Status status = ReadMessage(in_fd_, &request);
    MutexLock lock(&mutex_);
    if (!status.ok()) {
      closed_ = true;
      if (status.code() != absl::StatusCode::kOutOfRange) {
        broken_ = true;
        LOG(ERROR) << "cannot read requests: " << status;
      }
      changed_.NotifyAll();
      return;
    }
    if (request.has_stop()) {
      stop_number_ = received_;
      stop_with_checkpoint_ = request.stop().checkpoint();
    } else {
      queue_.push_back({++received_, std::move(request)});
    }
    changed_.NotifyAll();
  }
}

void Session::TickLoop() {
  MutexLock lock(&mutex_);
  while (!ended_) {
    changed_.WaitFor(&mutex_, kTickMicros);
    if (running_ != 0 && !closed_ && clock_.MonotonicMicros() - progress_sent_us_ >= kTickMicros / 2) SendWaiting();
  }
}

std::optional<v1::TrainerRequest> Session::NextTask() {
  MutexLock lock(&mutex_);
  while (queue_.empty() && !closed_) changed_.Wait(&mutex_);
  if (closed_) return std::nullopt;
  Request next = std::move(queue_.front());
  queue_.pop_front();
  running_ = next.number;
  waiting_.Clear();
  progress_sent_us_ = clock_.MonotonicMicros();
  return std::move(next.request);
}

void Session::EndTask() {
  MutexLock lock(&mutex_);
  running_ = 0;
}

TaskControl::Stop Session::ShouldStop() {
  MutexLock lock(&mutex_);
  if (closed_) return Stop::kYes;
  if (stop_number_ < running_) return Stop::kNo;
  return stop_with_checkpoint_ ? Stop::kWithCheckpoint : Stop::kYes;
}

void Session::Progress(int64_t step, double tokens_per_second) {
  MutexLock lock(&mutex_);
  // A stage tells its first step before it trains; until then the ticker's messages say nothing of it.
  if (!waiting_.has_resumed_from_step()) waiting_.set_resumed_from_step(step);
  waiting_.set_step(step);
  waiting_.set_tokens_per_second(tokens_per_second);
}

void Session::Point(std::string_view metric, int64_t step, double value) {
  MutexLock lock(&mutex_);
  v1::CurvePoint* point = waiting_.add_points();
  point->set_metric(std::string(metric));
  point->set_step(step);
  point->set_value(value);
}

void Session::Checkpoint(const SavedState& saved, int64_t step, bool end_state) {
  {
    // The points of a stage's last step come with that step's progress.
    MutexLock lock(&mutex_);
    waiting_.set_step(step);
  }
  v1::TrainerEvent event;
  v1::TrainerCheckpoint* checkpoint = event.mutable_checkpoint();
  checkpoint->set_weights_path(saved.paths.weights);
  checkpoint->set_optimizer_path(saved.paths.optimizer);
  checkpoint->set_end_state(end_state);
  v1::CheckpointRef* ref = checkpoint->mutable_ref();
  ref->set_step(step);
  ref->mutable_weights()->set_sha256(saved.weights.sha256);
  ref->mutable_weights()->set_bytes(saved.weights.bytes);
  if (!saved.paths.optimizer.empty()) {
    ref->mutable_optimizer()->set_sha256(saved.optimizer.sha256);
    ref->mutable_optimizer()->set_bytes(saved.optimizer.bytes);
  }
  ref->set_stage_key(stage_key_);
  Send(event);
}

void Session::Write(const v1::TrainerEvent& event) {
  if (closed_) return;
  const absl::Status status = WriteMessage(out_fd_, event);
  if (status.ok()) return;
  LOG(ERROR) << "cannot send an event: " << status;
  closed_ = true;
  changed_.NotifyAll();
}

void Session::SendWaiting() {
  v1::TrainerEvent event;
  *event.mutable_progress() = waiting_;
  waiting_.clear_points();
  progress_sent_us_ = clock_.MonotonicMicros();
  Write(event);
}

void Session::Send(const v1::TrainerEvent& event) {
  MutexLock lock(&mutex_);
  if (waiting_.points_size() > 0) SendWaiting();
  Write(event);
}

void Session::SendFailure(v1::FailureKind kind, const std::string& message) {
  v1::TrainerEvent event;
  v1::Failure* failure = event.mutable_failed();
  failure->set_kind(kind);
  failure->set_message(ToUtf8(message));  // it may name what was in a file
  failure->set_peak_memory_bytes(PeakMemoryBytes());
  Send(event);
}

absl::StatusOr<DataSet*> Session::Data(const v1::DataRef& ref,
                                       const google::protobuf::RepeatedPtrField<std::string>& paths) {
  const std::vector<std::string> list(paths.begin(), paths.end());
  if (data_ == nullptr || !data_->Is(ref, list)) {
    data_.reset();
    ABLATE_ASSIGN_OR_RETURN(data_, DataSet::Open(ref, list));
  }
  return data_.get();
}

// A backend of the precision that the task's configuration names.
absl::StatusOr<Backend*> Session::OpenDevice(const v1::Configuration& config) {
  ABLATE_ASSIGN_OR_RETURN(const Precision precision, PrecisionOf(config));
  if (!device_->Holds(precision)) evaluator_.reset();
  return device_->Open(precision);
}

absl::Status Session::DoStage(const v1::RunStage& request, v1::TaskResult* result, std::optional<int64_t>* stopped_at) {
  // Training needs the memory more than the next evaluation needs the time.
  evaluator_.reset();
  stage_key_ = request.task().stage_key();
  ABLATE_ASSIGN_OR_RETURN(Backend * backend, OpenDevice(request.task().config()));
  ABLATE_ASSIGN_OR_RETURN(DataSet * data, Data(request.task().data(), request.data_paths()));
  ABLATE_ASSIGN_OR_RETURN(const StageOutcome outcome,
                          RunStage(request, data, backend, options_.recompute, clock_, this, result));
  *stopped_at = outcome.stopped_at;
  return absl::OkStatus();
}

absl::Status Session::DoEvaluation(const v1::RunEvaluation& request, v1::TaskResult* result,
                                   std::optional<int64_t>* stopped_at) {
  ABLATE_ASSIGN_OR_RETURN(Backend * backend, OpenDevice(request.task().config()));
  if (evaluator_ == nullptr) evaluator_ = std::make_unique<Evaluator>(backend);
  ABLATE_ASSIGN_OR_RETURN(DataSet * data, Data(request.task().data(), request.data_paths()));
  ABLATE_ASSIGN_OR_RETURN(const bool done, evaluator_->Run(request, data, this, result));
  if (!done) *stopped_at = 0;
  return absl::OkStatus();
}

void Session::DoTask(const v1::TrainerRequest& request) {
  ResetPeakMemory();
  const int64_t begin = clock_.MonotonicMicros();
  v1::TrainerEvent event;
  v1::TaskResult result;
  std::optional<int64_t> stopped_at;
  absl::Status status = absl::InvalidArgumentError("a request of a kind that this build does not know");
  if (request.has_run_stage()) status = DoStage(request.run_stage(), &result, &stopped_at);
  if (request.has_run_evaluation()) status = DoEvaluation(request.run_evaluation(), &result, &stopped_at);
  if (!status.ok()) {
    if (status.code() == absl::StatusCode::kResourceExhausted) evaluator_.reset();
    LOG(ERROR) << "task failed: " << status;
    // After a device fault every further call on this process's context fails, too.
    device_lost_ = status.code() == absl::StatusCode::kInternal || device_->backend() == nullptr;
    SendFailure(FailureKindOf(status), std::string(status.message()));
    return;
  }
  if (stopped_at) {
    event.mutable_stopped()->set_step(*stopped_at);
  } else {
    result.set_device_kind(device_->backend()->device_kind());
    result.set_seconds(static_cast<double>(clock_.MonotonicMicros() - begin) * 1e-6);
    result.set_peak_memory_bytes(PeakMemoryBytes());
    *event.mutable_done() = std::move(result);
  }
  Send(event);
}

int Session::Serve() {
  v1::TrainerEvent event;
  event.mutable_ready()->set_device_class(device_->backend()->device_class());
  event.mutable_ready()->set_device_kind(device_->backend()->device_kind());
  event.mutable_ready()->set_build(BuildVersion());
  Send(event);
  std::thread reader([this] { ReadLoop(); });
  std::thread ticker([this] { TickLoop(); });
  int code = kExitOk;
  while (code == kExitOk) {
    const std::optional<v1::TrainerRequest> request = NextTask();
    if (!request) break;
    try {
      DoTask(*request);
      if (device_lost_) code = kExitDeviceLost;
    } catch (const std::bad_alloc&) {
      SendFailure(
          v1::OUT_OF_MEMORY,
          absl::StrCat("out of host memory; the most in use was ", HumanBytes(static_cast<uint64_t>(PeakMemoryBytes())),
                       "; lower train.batch (or raise train.accumulation), eval.batch_tokens or the "
                       "number of slots"));
      code = kExitOutOfMemory;
    } catch (const std::exception& error) {
      SendFailure(v1::CODE_ERROR, absl::StrCat("unexpected exception: ", error.what()));
      code = kExitCodeError;
    }
    EndTask();
  }
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    if (code == kExitOk && broken_) code = kExitProtocol;
    changed_.NotifyAll();
  }
  ticker.join();
  if (code == kExitOk || code == kExitProtocol) {
    reader.join();
  } else {
    // It waits for a request that will not be served; the process ends under it.
    reader.detach();
  }
  return code;
}

}  // namespace

int ServePipe(int in_fd, int out_fd, Device* device, const SessionOptions& options, const Clock& clock) {
  // Not destroyed: after a fatal failure the reader may still wait on it.
  auto* const session = new Session(in_fd, out_fd, device, options, clock);
  return session->Serve();
}

}  // namespace ablate
