// The loop that every CPU op runs on: independent items over a backend's threads. Which thread does an item must not
// change a bit of the result, so items are cut by the shapes alone, and sums over items are made afterwards in order.
#pragma once

#include <cstdint>

namespace ablate {

// One compiled body for the serial and the parallel loop: inlined into both, g++ may fuse multiplications and additions
// differently in each, and the number of threads would show in the last bit.
template <typename Body>
[[gnu::noinline]] void RunItem(const Body& body, int64_t item) {
  body(item);
}

// Calls body(item) for item in [0, items).
template <typename Body>
void ParallelFor(int threads, int64_t items, const Body& body) {
  if (threads <= 1 || items <= 1) {
    for (int64_t item = 0; item < items; ++item) RunItem(body, item);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t item = 0; item < items; ++item) RunItem(body, item);
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
