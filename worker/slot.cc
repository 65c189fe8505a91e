#include "worker/slot.h"

#include <utility>

#include "base/log.h"

namespace ablate {
namespace {

AttemptKey KeyOf(const v1::Assignment& assignment) { return {assignment.job_id(), assignment.attempt()}; }

v1::AttemptReport NeverStarted(StopSignal::Mode mode) {
  StopSignal stop;
  stop.Raise(mode);
  return Stopped(stop);
}

}  // namespace

Slot::Slot(int index, const ExecutorFactory& factory, SlotEvents events) : index_(index), events_(std::move(events)) {
  thread_ = std::thread([this, factory] { Loop(factory); });
}

Slot::~Slot() {
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  StopAll(StopSignal::Mode::kAbandon);
  thread_.join();
}

void Slot::Enqueue(const v1::Assignment& assignment) {
  MutexLock lock(&mutex_);
  queue_.push_back(assignment);
  changed_.NotifyAll();
}

void Slot::Stop(const AttemptKey& key, StopSignal::Mode mode) {
  bool waited = false;
  {
    MutexLock lock(&mutex_);
    if (stop_ != nullptr && running_ == key) {
      stop_->Raise(mode);
      return;
    }
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      if (KeyOf(*it) != key) continue;
      queue_.erase(it);
      waited = true;
      break;
    }
  }
  if (waited) events_.ended(key, NeverStarted(mode));
}

void Slot::StopAll(StopSignal::Mode mode) {
  std::deque<v1::Assignment> waiting;
  {
    MutexLock lock(&mutex_);
    if (stop_ != nullptr) stop_->Raise(mode);
    waiting.swap(queue_);
  }
  for (const v1::Assignment& assignment : waiting) events_.ended(KeyOf(assignment), NeverStarted(mode));
}

void Slot::Loop(const ExecutorFactory& factory) {
  const std::unique_ptr<Executor> executor = factory(index_);
  for (;;) {
    v1::Assignment assignment;
    std::shared_ptr<StopSignal> stop;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !closing_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      assignment = std::move(queue_.front());
      queue_.pop_front();
      running_ = KeyOf(assignment);
      stop_ = stop = std::make_shared<StopSignal>();
      if (closing_) stop->Raise(StopSignal::Mode::kAbandon);
    }
    const AttemptKey key = KeyOf(assignment);
    TaskEvents events;
    events.progress = [this, &key](const TaskProgress& progress) { events_.progress(key, progress); };
    events.checkpoint = [this, &key](const v1::CheckpointRef& checkpoint) { events_.checkpoint(key, checkpoint); };
    const v1::AttemptReport report = executor->Run(assignment, events, *stop);
    {
      MutexLock lock(&mutex_);
      stop_.reset();
      running_ = {};
    }
    if (report.phase() == v1::AttemptReport::FAILED) {
      LOG(WARNING) << "slot " << index_ << ": " << key.job_id << " attempt " << key.attempt
                   << " failed: " << report.failure().message();
    }
    events_.ended(key, report);
  }
}

}  // namespace ablate
