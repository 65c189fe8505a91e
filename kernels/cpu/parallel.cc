#include "kernels/cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <system_error>
#include <thread>

#include "base/mutex.h"

namespace ablate {
namespace {

// About ten microseconds: the gap between two ops of a small model.
constexpr int kSpins = 500;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Loop {
  void (*run)(const void* body, int64_t item);
  const void* body;
  int64_t items;
  std::atomic<int64_t> next{0};
  int wanted;                   // helpers that may still join; guarded by the pool's mutex
  std::atomic<int> helpers{0};  // helpers at work; grows under the pool's mutex

  void Work() {
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) run(body, item);
  }
};

// Never destroyed: its threads wait in it until the process ends.
class Pool {
 public:
  static Pool& Get() {
    static Pool* const pool = new Pool;
    return *pool;
  }

  bool Ensure(int helpers) {
    const MutexLock lock(&mutex_);
    while (started_ < helpers) {
      try {
        std::thread([this] { Help(); }).detach();
      } catch (const std::system_error&) {
        return false;
      }
      ++started_;
    }
    return true;
  }

  void Run(int helpers, Loop* loop) {
    Ensure(helpers);
    {
      const MutexLock lock(&mutex_);
      loop->wanted = helpers;
      loops_.push_back(loop);
      open_.store(static_cast<int>(loops_.size()), std::memory_order_release);
    }
    for (int i = 0; i < helpers; ++i) wake_.NotifyOne();
    loop->Work();
    {
      const MutexLock lock(&mutex_);
      loops_.remove(loop);  // no one joins any more
      open_.store(static_cast<int>(loops_.size()), std::memory_order_release);
    }
    for (int spin = 0; loop->helpers.load(std::memory_order_acquire) > 0; ++spin) {
      if (spin < kSpins) {
        Pause();
        continue;
      }
      const MutexLock lock(&mutex_);
      while (loop->helpers.load(std::memory_order_acquire) > 0) done_.Wait(&mutex_);
      break;
    }
  }

 private:
  void Help() {
    for (;;) {
      for (int spin = 0; spin < kSpins && open_.load(std::memory_order_acquire) == 0; ++spin) Pause();
      Loop* loop = nullptr;
      {
        const MutexLock lock(&mutex_);
        while ((loop = Joinable()) == nullptr) wake_.Wait(&mutex_);
        --loop->wanted;
        loop->helpers.fetch_add(1, std::memory_order_relaxed);
      }
      loop->Work();
      // Under the mutex: once the count is zero the caller may return, and the loop is gone.
      const MutexLock lock(&mutex_);
      if (loop->helpers.fetch_sub(1, std::memory_order_release) == 1) done_.NotifyAll();
    }
  }

  Loop* Joinable() ABLATE_REQUIRES(mutex_) {
    for (Loop* loop : loops_) {
      if (loop->wanted > 0 && loop->next.load(std::memory_order_relaxed) < loop->items) return loop;
    }
    return nullptr;
  }

  Mutex mutex_;
  CondVar wake_, done_;
  int started_ ABLATE_GUARDED_BY(mutex_) = 0;
  std::list<Loop*> loops_ ABLATE_GUARDED_BY(mutex_);
  std::atomic<int> open_{0};  // the size of loops_
};

}  // namespace

bool EnsureThreads(int threads) { return Pool::Get().Ensure(threads - 1); }

void RunInParallel(int threads, int64_t items, void (*run)(const void* body, int64_t item), const void* body) {
  Loop loop{.run = run, .body = body, .items = items, .wanted = 0};
  Pool::Get().Run(static_cast<int>(std::min<int64_t>(threads, items)) - 1, &loop);
}

}  // namespace ablate
