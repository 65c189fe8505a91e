// 100,000 jobs through the scheduler. A scan of all jobs anywhere on the way would take minutes: the test's time-out is
// the bound.
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

TEST(SchedulerScale, AHundredThousandJobs) {
  SchedulerRig rig;
  rig.check = false;  // the invariants are full scans
  ASSERT_EQ(rig.Submit(MakeTestPlan("large", 20'000, 4)).new_jobs, 100'000);
  std::vector<WorkerHand> workers;
  for (int i = 0; i < 50; ++i) workers.emplace_back(&rig, absl::StrCat("w", i), 4);
  std::vector<std::vector<JobRow>> running(workers.size());
  int64_t done = 0;
  for (int round = 0; done < 100'000 && round < 10'000; ++round) {
    for (size_t i = 0; i < workers.size(); ++i) {
      std::vector<v1::AttemptReport> reports;
      workers[i].held.clear();
      for (JobRow row : running[i]) {
        reports.push_back(workers[i].Success(row));
        workers[i].held.push_back(rig.job(row).key);
      }
      done += static_cast<int64_t>(reports.size());
      running[i].clear();
      for (const auto& desired : workers[i].Sync(reports).desired) running[i].push_back(desired.job);
    }
    rig.Advance(1'000'000);
    rig.Tick();
  }
  EXPECT_EQ(done, 100'000);
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(rig.scheduler->CheckInvariants(), "");
  rig.Restart();
  EXPECT_EQ(rig.sweep(1).state, v1::SWEEP_SUCCEEDED);
}

}  // namespace
}  // namespace ablate
