// std::mutex behind Clang's thread-safety annotations. Debian's Abseil is not instrumented, so
// ThreadSanitizer reports false races with absl::Mutex; this wrapper has none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define ABLATE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define ABLATE_THREAD_ANNOTATION(x)
#endif

#define ABLATE_GUARDED_BY(x) ABLATE_THREAD_ANNOTATION(guarded_by(x))
#define ABLATE_REQUIRES(...) ABLATE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define ABLATE_EXCLUDES(...) ABLATE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace ablate {

class ABLATE_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() ABLATE_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() ABLATE_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABLATE_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABLATE_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABLATE_THREAD_ANNOTATION(release_capability()) { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  // Callers hold `mutex`; it is released while waiting. Spurious wake-ups happen: loop on the condition.
  void Wait(Mutex* mutex) ABLATE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false when `micros` passed without a notification.
  bool WaitFor(Mutex* mutex, int64_t micros) ABLATE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const auto result = condition_.wait_for(lock, std::chrono::microseconds(micros));
    lock.release();
    return result == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace ablate
