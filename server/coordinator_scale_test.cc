// 100,000 no-op jobs through the coordinator and its database: submitted, restarted, done. Prints how long each took;
// the test's time-out is the only bound.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/files.h"
#include "gtest/gtest.h"
#include "server/coordinator_test_util.h"

namespace ablate {
namespace {

class Stopwatch {
 public:
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

TEST(CoordinatorScale, AHundredThousandJobs) {
  TempDir dir;
  CoordinatorOptions options;
  options.data_dir = dir.path();
  options.idle_wait_ms = 50;
  auto coordinator = Coordinator::Open(options);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  v1::SubmitSweepRequest submit;
  submit.set_file_name("large.yaml");
  submit.set_yaml(R"(name: large
executor: noop
arms:
  - {attention.variant: softmax}
  - {attention.variant: ssmax}
axes: {eval.ntk: [off, on]}
seeds: 12500
evaluate: {lengths: [1x, 2x]}
)");
  Stopwatch watch;
  const auto submitted = (*coordinator)->SubmitSweep(submit);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  ASSERT_EQ(submitted->new_jobs(), 100'000);
  std::printf("submit: %.2f s\n", watch.Lap());
  coordinator->reset();
  watch.Lap();
  coordinator = Coordinator::Open(options);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  std::printf("open again: %.2f s\n", watch.Lap());

  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      FakeWorker worker(absl::StrCat("w", i), 8);
      while (done < 100'000) {
        const auto response = worker.Sync(**coordinator);
        ASSERT_TRUE(response.ok()) << response.status();
        for (const v1::Assignment& assignment : response->desired()) worker.Succeed(assignment);
        done += response->acks_size();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = watch.Lap();
  std::printf("run: %.2f s, %.0f jobs/s, each leased, recorded and acknowledged durably\n", seconds, 100'000 / seconds);
  v1::GetTableRequest table;
  table.set_sweep("large");
  const auto rows = (*coordinator)->GetTable(table);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->rows(0).n(), 12'500);
  std::printf("table: %.2f s\n", watch.Lap());
  v1::GetSweepRequest get;
  get.set_sweep("large");
  EXPECT_EQ((*coordinator)->GetSweep(get)->state(), v1::SWEEP_SUCCEEDED);
}

}  // namespace
}  // namespace ablate
