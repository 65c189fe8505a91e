// What the coordinator does where its stored files are gone: states are trained again, data is waited for.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_test_fixture.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

TEST_F(CoordinatorTest, StatesThatVanishFromTheDiskCostTrainingAndNothingElse) {
  ASSERT_TRUE(Submit(kTrained).ok());
  FakeWorker worker("w", 8, v1::EXECUTOR_TRAINER);
  auto response = worker.Sync(*coordinator_);
  ASSERT_EQ(response->desired_size(), 2);
  const std::string first_key = response->desired(0).task().stage().stage_key();
  // Of the first root only a checkpoint is there, and its file vanishes: it starts from the beginning.
  v1::AttemptReport& report = worker.Report(response->desired(0), v1::AttemptReport::RELEASED);
  report.mutable_checkpoint()->set_step(25);
  *report.mutable_checkpoint()->mutable_weights() = FakeWorker::Artifact("25", "weights");
  *report.mutable_checkpoint()->mutable_optimizer() = FakeWorker::Artifact("25", "optimizer");
  missing_.insert(FakeWorker::Artifact("25", "optimizer").sha256());
  response = worker.Sync(*coordinator_);
  for (const v1::Assignment& assignment : response->desired()) {
    EXPECT_FALSE(assignment.task().stage().has_start());
    worker.Succeed(assignment);
  }
  ASSERT_TRUE(worker.Sync(*coordinator_, /*draining=*/true).ok());
  // Its end state vanishes before a child has started: it is trained again, and the sweep needs no retry.
  missing_ = {FakeWorker::Artifact(first_key, "weights").sha256()};
  response = worker.Sync(*coordinator_);
  EXPECT_EQ(One("SELECT COUNT(*) FROM events WHERE cause = 'state_lost'"), "2");
  missing_.clear();
  for (const v1::Assignment& assignment : response->desired()) worker.Succeed(assignment);
  Open();
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("trained").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(Get("trained").jobs().failed(), 0);
  EXPECT_EQ(One("SELECT COUNT(*) FROM attempts WHERE state = 'FAILED'"), "0");
}

TEST_F(CoordinatorTest, JobsWhoseDataTheCoordinatorLostWaitForItAndNoFailureCounts) {
  ASSERT_TRUE(Submit(kTrained).ok());
  const std::string data = Sha256Hex("the text");
  FakeWorker worker("w", 2, v1::EXECUTOR_TRAINER);
  auto response = worker.Sync(*coordinator_);
  ASSERT_TRUE(response.ok()) << response.status();
  const auto fail = [&](const v1::Assignment& assignment) {
    v1::AttemptReport& report = worker.Report(assignment, v1::AttemptReport::FAILED);
    report.mutable_failure()->set_kind(v1::CODE_ERROR);
    report.mutable_failure()->set_message("cannot get the data: it is not here");
  };
  ASSERT_EQ(response->desired_size(), 2);
  const v1::Assignment first = response->desired(0), second = response->desired(1);
  // With the data there it is the job's own failure.
  fail(first);
  response = worker.Sync(*coordinator_);
  EXPECT_EQ(One("SELECT SUM(failures) FROM jobs"), "1");
  missing_.insert(data);
  fail(second);
  response = worker.Sync(*coordinator_);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(One("SELECT SUM(failures) FROM jobs"), "1");
  v1::Sweep sweep = Get("trained");
  EXPECT_TRUE(sweep.needs_person());
  EXPECT_THAT(sweep.waiting_for(), HasSubstr(absl::StrCat("its data a.txt (SHA-256 ", data, ")")));
  EXPECT_THAT(sweep.waiting_for(), HasSubstr("ablate sweep submit FILE"));
  Open();  // as a restart finds it
  clock_.Advance(60'000'000);
  response = worker.Sync(*coordinator_);
  EXPECT_EQ(response->desired_size(), 0);
  v1::GetJobRequest request;
  request.set_job_id(second.job_id());
  const auto why = coordinator_->ExplainJob(request);
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_THAT(why->ShortDebugString(), HasSubstr("its data a.txt"));
  EXPECT_THAT(why->ShortDebugString(), HasSubstr("ablate sweep submit FILE"));
  // Submitted while it is still missing: nothing changes. Then it is there.
  auto again = Submit(kTrained);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->sweep().needs_person());
  missing_.clear();
  again = Submit(kTrained);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->sweep().needs_person());
  clock_.Advance(60'000'000);
  const auto done = worker.RunAll(*coordinator_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Get("trained").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(One("SELECT SUM(failures) FROM jobs"), "1");
}

}  // namespace
}  // namespace ablate
