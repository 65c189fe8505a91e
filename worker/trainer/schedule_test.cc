// The learning rate at the places that matter.
#include "worker/trainer/schedule.h"

#include "gtest/gtest.h"

namespace ablate {
namespace {

TEST(ScheduleTest, WarmsUpThenFollowsTheCosineToItsMinimum) {
  const Schedule schedule{
      .kind = ScheduleKind::kCosine, .peak = 2.0, .min_ratio = 0.1, .warmup_steps = 10, .total_steps = 110};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(9), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(10), 2.0);
  EXPECT_DOUBLE_EQ(schedule.At(60), 0.2 + 1.8 * 0.5);
  EXPECT_GT(schedule.At(109), 0.2);
  EXPECT_LT(schedule.At(109), 0.201);
  EXPECT_DOUBLE_EQ(schedule.At(110), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(100000), 0.2);
  for (int step = 10; step < 110; ++step) EXPECT_LT(schedule.At(step + 1), schedule.At(step));
}

TEST(ScheduleTest, ConstantStaysAndNoWarmUpStartsAtThePeak) {
  const Schedule constant{
      .kind = ScheduleKind::kConstant, .peak = 3.0, .min_ratio = 0.1, .warmup_steps = 2, .total_steps = 4};
  EXPECT_DOUBLE_EQ(constant.At(0), 1.5);
  EXPECT_DOUBLE_EQ(constant.At(1), 3.0);
  EXPECT_DOUBLE_EQ(constant.At(1000), 3.0);
  const Schedule cosine{
      .kind = ScheduleKind::kCosine, .peak = 3.0, .min_ratio = 0.0, .warmup_steps = 0, .total_steps = 4};
  EXPECT_DOUBLE_EQ(cosine.At(0), 3.0);
  EXPECT_DOUBLE_EQ(cosine.At(4), 0.0);
  // Warm-up as long as the run: the cosine has no room, and nothing divides by zero.
  const Schedule short_run{
      .kind = ScheduleKind::kCosine, .peak = 3.0, .min_ratio = 0.5, .warmup_steps = 4, .total_steps = 4};
  EXPECT_DOUBLE_EQ(short_run.At(3), 3.0);
  EXPECT_DOUBLE_EQ(short_run.At(4), 1.5);
}

}  // namespace
}  // namespace ablate
