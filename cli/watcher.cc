#include "cli/watcher.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"

namespace ablate {
namespace {

constexpr double kLostSeconds = 60;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The stream lives on a thread of its own, so that the command's thread can look at signals and children.
class Watcher {
 public:
  Watcher(Client* client, std::string sweep) : client_(client), sweep_(std::move(sweep)), thread_([this] { Run(); }) {}
  ~Watcher() {
    {
      MutexLock lock(&mutex_);
      stop_ = true;
      if (context_ != nullptr) context_->TryCancel();
      changed_.NotifyAll();
    }
    thread_.join();
  }

  struct State {
    std::optional<v1::Sweep> sweep;
    bool over = false;  // `end` is final
    bool away = false;  // the coordinator does not answer just now
    absl::Status end;
  };
  // Waits up to 0.2 s for a change.
  State Poll() {
    MutexLock lock(&mutex_);
    if (!state_.over) changed_.WaitFor(&mutex_, 200'000);
    return state_;
  }

 private:
  void Run() {
    bool seen = false;
    double lost_at = 0;
    while (true) {
      grpc::ClientContext context;
      {
        MutexLock lock(&mutex_);
        if (stop_) return;
        context_ = &context;
      }
      const absl::Status status = client_->Watch(sweep_, &context, [&](const v1::Sweep& sweep) {
        seen = true;
        lost_at = 0;
        MutexLock lock(&mutex_);
        state_.sweep = sweep;
        state_.away = false;
        changed_.NotifyAll();
        return !stop_;
      });
      MutexLock lock(&mutex_);
      context_ = nullptr;
      if (stop_) return;
      if (lost_at == 0) lost_at = Now();
      if (!absl::IsUnavailable(status) || !seen || Now() - lost_at > kLostSeconds) {
        state_.over = true;
        state_.end = status;
        changed_.NotifyAll();
        return;
      }
      state_.away = true;
      changed_.WaitFor(&mutex_, 300'000);
    }
  }

  Client* const client_;
  const std::string sweep_;
  Mutex mutex_;
  CondVar changed_;
  State state_ ABLATE_GUARDED_BY(mutex_);
  bool stop_ ABLATE_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABLATE_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;  // last: it uses the others
};

bool IsOver(const v1::Sweep& sweep) {
  return sweep.state() != v1::SWEEP_RUNNING && sweep.state() != v1::SWEEP_STATE_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<v1::Sweep> FollowSweep(Client* client, const std::string& sweep, std::optional<double> timeout_seconds,
                                      Progress* progress, const std::function<absl::Status(const v1::Sweep&)>& tick) {
  const double start = Now();
  TimeLeft time_left;
  Watcher watcher(client, sweep);
  while (true) {
    const Watcher::State state = watcher.Poll();
    if (state.sweep && progress != nullptr) {
      const std::optional<double> left = time_left.Update(*state.sweep, Now());
      progress->Show(state.away ? absl::StrCat(state.sweep->name(), ": the coordinator is away, waiting for it")
                                : ProgressLine(*state.sweep, left, progress->width()));
    }
    if (state.over || (state.sweep && IsOver(*state.sweep))) {
      if (progress != nullptr) progress->Clear();
      if (state.sweep && IsOver(*state.sweep)) return *state.sweep;
      if (!state.end.ok()) return state.end;
      if (state.sweep) return *state.sweep;
      return absl::InternalError("the coordinator ended the watch without a word");
    }
    if (state.sweep && state.sweep->needs_person() && !state.away) {
      if (progress != nullptr) progress->Clear();
      return *state.sweep;
    }
    if (tick) {
      const absl::Status status = tick(state.sweep.value_or(v1::Sweep()));
      if (!status.ok()) {
        if (progress != nullptr) progress->Clear();
        return status;
      }
    }
    if (timeout_seconds && Now() - start > *timeout_seconds) {
      if (progress != nullptr) progress->Clear();
      return absl::DeadlineExceededError(
          absl::StrCat("sweep ", sweep, " was not over within ", *timeout_seconds, " s"));
    }
  }
}

bool IsPaused(const v1::Sweep& sweep) {
  return sweep.needs_person() && absl::StartsWith(sweep.waiting_for(), "paused after ");
}

// What to do comes last (coordinator_sweeps.cc).
std::string PauseReason(const v1::Sweep& sweep) {
  return sweep.waiting_for().substr(0, sweep.waiting_for().rfind("; "));
}

ExitCode ExitCodeOfSweep(const v1::Sweep& sweep) {
  return sweep.state() == v1::SWEEP_SUCCEEDED ? kExitDone : kExitJobsFailed;
}

}  // namespace ablate
