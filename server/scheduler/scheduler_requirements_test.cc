// Which workers may take a job.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class SchedulerRequirementsTest : public ::testing::Test {
 protected:
  SchedulerRig rig;
  WorkerHand worker{&rig, "w", 1};
};

TEST_F(SchedulerRequirementsTest, RequirementsAreMatched) {
  SubmitPlan plan = MakeTestPlan("a", 1, 0);
  plan.requirement = {.device = "cuda", .memory_bytes = int64_t{4} << 30, .labels = {"big", "fast"}};
  rig.Submit(plan);
  EXPECT_TRUE(worker.Sync().desired.empty());
  EXPECT_THAT(rig.scheduler->Explain(1, rig.now()).text,
              HasSubstr("device class cuda, at least 4.0 GiB of memory, labels big, fast"));
  WorkerHand gpu(&rig, "gpu", 1, "cuda");
  gpu.info.add_labels("fast");
  EXPECT_TRUE(gpu.Sync().desired.empty());
  gpu.info.add_labels("big");
  gpu.info.set_memory_bytes(1 << 30);
  EXPECT_TRUE(gpu.Sync().desired.empty());
  gpu.info.set_memory_bytes(int64_t{4} << 30);
  gpu.info.set_executor(v1::EXECUTOR_NOOP);
  EXPECT_TRUE(gpu.Sync().desired.empty());
  gpu.info.set_executor(v1::EXECUTOR_UNSPECIFIED);  // the trainer
  EXPECT_EQ(gpu.Sync().desired.size(), 1u);
}

TEST_F(SchedulerRequirementsTest, ASharedJobAsksForWhatAllItsSweepsAsk) {
  SubmitPlan plan = MakeTestPlan("a", 2, 1);
  plan.requirement = {.memory_bytes = int64_t{4} << 30, .labels = {"big", "nowhere"}};
  rig.Submit(plan);
  EXPECT_TRUE(worker.Sync().desired.empty());
  plan.sweep.name = plan.sweep.sweep_id = "b";
  plan.requirement = {.labels = {"big"}};
  rig.Submit(plan);
  EXPECT_TRUE(worker.Sync().desired.empty());
  EXPECT_THAT(rig.scheduler->Explain(1, rig.now()).text, HasSubstr("labels big."));
  rig.Restart();
  worker.info.add_labels("big");
  EXPECT_EQ(worker.Sync().desired.size(), 1u);
  // What asks for more takes nothing back.
  plan.sweep.name = plan.sweep.sweep_id = "c";
  plan.requirement = {.labels = {"big", "bigger"}};
  rig.Submit(plan);
  EXPECT_EQ(worker.Sync({worker.Success(1)}).desired.size(), 1u);
}

}  // namespace
}  // namespace ablate
