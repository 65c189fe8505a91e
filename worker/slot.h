// One place for one job at a time: a thread that runs the assignments given to it in order, with an executor of its
// own. Must not know the coordinator or what the work is. Thread rule: every method may be called from any thread; the
// callbacks come from the slot's thread (and from threads of its executor), never under the slot's lock.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "worker/executor.h"
#include "worker/link_state.h"

namespace ablate {

struct SlotEvents {
  std::function<void(const AttemptKey&, const TaskProgress&)> progress;
  std::function<void(const AttemptKey&, const v1::CheckpointRef&)> checkpoint;
  // Once for each assignment.
  std::function<void(const AttemptKey&, const v1::AttemptReport&)> ended;
};

class Slot {
 public:
  Slot(int index, const ExecutorFactory& factory, SlotEvents events);
  // Abandons what runs, gives back what waits, and joins.
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void Enqueue(const v1::Assignment& assignment);
  // Stops one attempt: kCancel from the coordinator. One that waits ends at once. Unknown keys are ignored.
  void Stop(const AttemptKey& key, StopSignal::Mode mode);
  // Stops the running attempt and all that wait.
  void StopAll(StopSignal::Mode mode);

 private:
  void Loop(const ExecutorFactory& factory);

  const int index_;
  const SlotEvents events_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::Assignment> queue_ ABLATE_GUARDED_BY(mutex_);
  AttemptKey running_ ABLATE_GUARDED_BY(mutex_);
  std::shared_ptr<StopSignal> stop_ ABLATE_GUARDED_BY(mutex_);  // of the running attempt; null: none runs
  bool closing_ ABLATE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ablate
