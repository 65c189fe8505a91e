// The pool of threads: every item once, callers at the same time, more threads than items.
#include "kernels/cpu/parallel.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

TEST(ParallelTest, EveryItemOnceWhateverTheThreads) {
  ASSERT_TRUE(EnsureThreads(4));
  for (const int threads : {1, 2, 4, 9}) {
    for (const int64_t items : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> seen(items);
      ParallelFor(threads, items, [&](int64_t item) { ++seen[item]; });
      for (const auto& count : seen) ASSERT_EQ(count, 1) << threads << " threads, " << items << " items";
    }
  }
}

TEST(ParallelTest, BlocksCoverTheRange) {
  std::vector<std::atomic<int>> seen(103);
  ParallelBlocks(3, 103, 10, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin % 10, 0);
    EXPECT_LE(end - begin, 10);
    for (int64_t i = begin; i < end; ++i) ++seen[i];
  });
  for (const auto& count : seen) EXPECT_EQ(count, 1);
}

// Two items that wait for each other can only end if two threads run them.
TEST(ParallelTest, ItemsRunAtTheSameTime) {
  ASSERT_TRUE(EnsureThreads(2));
  Mutex mutex;
  CondVar arrived;
  int inside = 0;
  ParallelFor(2, 2, [&](int64_t) {
    const MutexLock lock(&mutex);
    ++inside;
    arrived.NotifyAll();
    while (inside < 2) arrived.Wait(&mutex);
  });
  EXPECT_EQ(inside, 2);
}

TEST(ParallelTest, ManyShortLoopsFromSeveralCallers) {
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 3000; ++loop) {
        std::atomic<int64_t> sum{0};
        ParallelFor(3, 5, [&](int64_t item) { sum += item; });
        total += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 3 * 3000 * 10);
}

}  // namespace
}  // namespace ablate
