// The loop that every CPU op runs on: independent items over a pool of threads. Which thread does an item must not
// change a bit of the result, so items are cut by the shapes alone, and sums over items are made afterwards in order.
//
// Not OpenMP's: its threads spin while they wait, and one more process that wants the cores makes a step ten times
// slower (measured: 16,000 tokens a CPU second become 1,300). These spin for some microseconds, then sleep. Thread
// rule: any thread may call ParallelFor, also at the same time; not from inside an item.
#pragma once

#include <cstdint>

namespace ablate {

// Makes sure that the pool has threads - 1 helpers. False when the system gives no more threads: loops then run on
// fewer.
bool EnsureThreads(int threads);

// One compiled body for the serial and the parallel loop: inlined into both, g++ may fuse multiplications and additions
// differently in each, and the number of threads would show in the last bit.
template <typename Body>
[[gnu::noinline]] void RunItem(const void* body, int64_t item) {
  (*static_cast<const Body*>(body))(item);
}

// run(body, item) for every item, by the caller and up to threads - 1 helpers.
void RunInParallel(int threads, int64_t items, void (*run)(const void* body, int64_t item), const void* body);

// Calls body(item) for item in [0, items).
template <typename Body>
void ParallelFor(int threads, int64_t items, const Body& body) {
  if (threads > 1 && items > 1) {
    RunInParallel(threads, items, &RunItem<Body>, &body);
    return;
  }
  for (int64_t item = 0; item < items; ++item) RunItem<Body>(&body, item);
}

// Calls body(begin, end) for blocks of `block` indices of [0, n).
template <typename Body>
void ParallelBlocks(int threads, int64_t n, int64_t block, const Body& body) {
  ParallelFor(threads, (n + block - 1) / block, [&](int64_t item) {
    const int64_t begin = item * block;
    body(begin, begin + block < n ? begin + block : n);
  });
}

}  // namespace ablate
