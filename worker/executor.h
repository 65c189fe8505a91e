// What a slot runs: the seam between the daemon and whatever does the work (the trainer child, the built-in test
// executor). Must not know the coordinator. Thread rule: an executor lives in its slot's thread, from construction to
// destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "proto/link.pb.h"
#include "worker/task_progress.h"

namespace ablate {

// Asks running work to stop. Thread rule: any thread.
class StopSignal {
 public:
  enum class Mode {
    kNone = 0,
    kRelease,  // save the state, hand the attempt back (drain)
    kCancel,   // nobody wants the result
    kAbandon,  // end at once: the daemon's grace is over
  };

  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // A weaker request than the one that stands changes nothing.
  void Raise(Mode mode);
  Mode mode() const;
  bool raised() const { return mode() != Mode::kNone; }
  // Waits until raised to `at_least`, `micros` at most. True when it is.
  bool WaitFor(int64_t micros, Mode at_least = Mode::kRelease) const;
  // Becomes readable with each Raise; for poll(2). Drain() makes it quiet again.
  int fd() const { return fd_; }
  void Drain() const;

  // Calls `callback` once when the request reaches `at_least` (at once if it has). Under the signal's lock: short, and
  // no call of this object in it. After Unwatch returned, it is not called any more.
  int64_t Watch(Mode at_least, std::function<void()> callback) const;
  void Unwatch(int64_t id) const;

 private:
  struct Watcher {
    Mode at_least;
    std::function<void()> callback;
  };
  mutable Mutex mutex_;
  mutable std::map<int64_t, Watcher> watchers_ ABLATE_GUARDED_BY(mutex_);
  mutable int64_t last_watcher_ ABLATE_GUARDED_BY(mutex_) = 0;
  mutable CondVar changed_;
  Mode mode_ ABLATE_GUARDED_BY(mutex_) = Mode::kNone;
  int fd_ = -1;
};

// Where running work reports. Both may be called from any thread until Run returns.
struct TaskEvents {
  std::function<void(const TaskProgress&)> progress;
  std::function<void(const v1::CheckpointRef& checkpoint)> checkpoint;  // uploaded
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Does one assignment. The answer's phase, result and failure are set: SUCCEEDED once everything the result names is
  // uploaded; RELEASED or CANCELLED only when `stop` was raised (work that came to its end all the same is SUCCEEDED).
  virtual v1::AttemptReport Run(const v1::Assignment& assignment, const TaskEvents& events, const StopSignal& stop) = 0;
};

// Called in the slot's thread.
using ExecutorFactory = std::function<std::unique_ptr<Executor>(int slot)>;

// Endings.
v1::AttemptReport Succeeded(v1::TaskResult result);
v1::AttemptReport Failed(v1::FailureKind kind, std::string message);
v1::AttemptReport Failed(v1::Failure failure);
// RELEASED or CANCELLED, as `stop` says.
v1::AttemptReport Stopped(const StopSignal& stop);

}  // namespace ablate
