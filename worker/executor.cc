#include "worker/executor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace ablate {

StopSignal::StopSignal() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PCHECK(fd_ >= 0) << "no descriptor left for a stop signal";
}

StopSignal::~StopSignal() { ::close(fd_); }

void StopSignal::Raise(Mode mode) {
  MutexLock lock(&mutex_);
  if (mode <= mode_) return;
  mode_ = mode;
  const uint64_t one = 1;
  (void)!::write(fd_, &one, sizeof(one));
  changed_.NotifyAll();
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    if (mode < it->second.at_least) {
      ++it;
      continue;
    }
    it->second.callback();
    it = watchers_.erase(it);
  }
}

int64_t StopSignal::Watch(Mode at_least, std::function<void()> callback) const {
  MutexLock lock(&mutex_);
  const int64_t id = ++last_watcher_;
  if (mode_ >= at_least) {
    callback();
  } else {
    watchers_[id] = {at_least, std::move(callback)};
  }
  return id;
}

void StopSignal::Unwatch(int64_t id) const {
  MutexLock lock(&mutex_);
  watchers_.erase(id);
}

StopSignal::Mode StopSignal::mode() const {
  MutexLock lock(&mutex_);
  return mode_;
}

bool StopSignal::WaitFor(int64_t micros, Mode at_least) const {
  const Clock& clock = Clock::Real();
  const int64_t until = clock.MonotonicMicros() + micros;
  MutexLock lock(&mutex_);
  while (mode_ < at_least) {
    const int64_t left = until - clock.MonotonicMicros();
    if (left <= 0) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

void StopSignal::Drain() const {
  uint64_t count = 0;
  (void)!::read(fd_, &count, sizeof(count));
}

v1::AttemptReport Succeeded(v1::TaskResult result) {
  v1::AttemptReport report;
  report.set_phase(v1::AttemptReport::SUCCEEDED);
  *report.mutable_result() = std::move(result);
  return report;
}

v1::AttemptReport Failed(v1::FailureKind kind, std::string message) {
  v1::Failure failure;
  failure.set_kind(kind);
  failure.set_message(std::move(message));
  return Failed(std::move(failure));
}

v1::AttemptReport Failed(v1::Failure failure) {
  v1::AttemptReport report;
  report.set_phase(v1::AttemptReport::FAILED);
  *report.mutable_failure() = std::move(failure);
  return report;
}

v1::AttemptReport Stopped(const StopSignal& stop) {
  v1::AttemptReport report;
  if (stop.mode() == StopSignal::Mode::kCancel) {
    report.set_phase(v1::AttemptReport::CANCELLED);
  } else {
    report.set_phase(v1::AttemptReport::RELEASED);
    report.mutable_failure()->set_kind(v1::PREEMPTED);
    report.mutable_failure()->set_message("its worker was asked to stop");
  }
  return report;
}

}  // namespace ablate
