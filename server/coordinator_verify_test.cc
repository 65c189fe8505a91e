// Second runs of jobs, compared bit for bit.
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_claims_test_util.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

constexpr char kTrainedSweep[] = R"(name: trained
data: {name: text, path: a.txt, format: text}
settings: {train.steps: 100}
keep: all
arms:
  - {attention.variant: softmax}
  - attention.variant: softmax
    switch: [{at_step: 50, attention.variant: ssmax}]
seeds: 1
evaluate: {lengths: [1x]}
)";

class VerifyTest : public ClaimsFixture {
 protected:
  void SetUp() override {
    ClaimsFixture::SetUp();
    trainer_.loss_targets = [](const v1::EvaluationTask&) { return std::numeric_limits<double>::quiet_NaN(); };
    trainer_.documents = 2;
    ASSERT_TRUE(Submit(kTrainedSweep).ok());
    ASSERT_TRUE(trainer_.RunAll(*coordinator_).ok());
    ASSERT_EQ(Get("trained").state(), v1::SWEEP_SUCCEEDED);
  }

  absl::StatusOr<v1::VerifyJobsResponse> Verify(const std::string& job, const std::string& sweep, int sample = 0) {
    v1::VerifyJobsRequest request;
    request.set_job_id(job);
    request.set_sweep(sweep);
    request.set_sample(sample);
    return coordinator_->VerifyJobs(request);
  }
  std::vector<v1::Verification> Outcomes() {
    v1::ListVerificationsRequest request;
    request.set_sweep("trained");
    auto response = coordinator_->ListVerifications(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return {response->verifications().begin(), response->verifications().end()};
  }
  std::string AnyJob(v1::JobKind kind, bool with_parent = true) {
    for (const v1::Job& job : Jobs("trained")) {
      if (job.kind() == kind && job.parent_job_id().empty() != with_parent) return job.job_id();
    }
    return "";
  }
  // Every number that is stored: a verification changes none.
  std::string Everything() {
    std::string text;
    for (const char* sql : {"SELECT * FROM results ORDER BY job, metric", "SELECT * FROM checkpoints",
                            "SELECT * FROM curves", "SELECT * FROM document_losses", "SELECT * FROM sweep_jobs",
                            "SELECT * FROM confidence_intervals", "SELECT row, state FROM sweeps"}) {
      const auto rows = Query(sql);
      EXPECT_TRUE(rows.ok()) << rows.status();
      for (const std::string& row : *rows) absl::StrAppend(&text, row, "\n");
    }
    return text;
  }

  FakeWorker trainer_{"t", 2, v1::EXECUTOR_TRAINER};
};

TEST_F(VerifyTest, EqualBitsAreTheSameNanAndAll) {
  const std::string before = Everything();
  const auto made = Verify("", "trained", 100);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->jobs_size(), 3 + 2);  // three stages: to 50, on to 100 twice
  for (const v1::Job& job : made->jobs()) {
    EXPECT_FALSE(job.verify_of().empty());
    EXPECT_EQ(job.sweep_ids_size(), 0);
  }
  for (const v1::Verification& one : Outcomes()) EXPECT_EQ(one.result(), v1::Verification::PENDING);
  Open();  // they outlive the coordinator
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  for (const auto& [key, assignment] : trainer_.assigned()) {
    if (!assignment.task().has_stage()) continue;
    const v1::StageTask& task = assignment.task().stage();
    // Never from its own checkpoints: from its parent's end state, or from nothing.
    EXPECT_EQ(task.has_start(), task.from_step() > 0);
    if (task.has_start()) {
      EXPECT_EQ(task.start().step(), task.from_step());
    }
    EXPECT_EQ(One("SELECT COUNT(*) FROM stages WHERE key = '" + task.stage_key() + "'"), "0");
    EXPECT_FALSE(task.keep_optimizer());
  }
  trainer_.Clear();
  // The end state of an equal run is the same file.
  while (true) {
    ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
    if (trainer_.assigned().empty()) break;
    for (const auto& [key, assignment] : trainer_.assigned()) {
      v1::AttemptReport& report = trainer_.Succeed(assignment);
      if (!assignment.task().has_stage()) continue;
      const std::string of =
          One("SELECT o.end_weights_sha256 FROM jobs j JOIN jobs o ON o.row = j.verify_of WHERE "
              "j.job_id = '" +
              assignment.job_id() + "'");
      report.mutable_result()->mutable_end_state()->mutable_weights()->set_sha256(of);
    }
  }
  ASSERT_EQ(Outcomes().size(), 5u);
  for (const v1::Verification& one : Outcomes()) {
    EXPECT_EQ(one.result(), v1::Verification::SAME) << one.difference();
    EXPECT_EQ(one.device_kind(), "cpu/fake");
  }
  EXPECT_EQ(Everything(), before);
  EXPECT_EQ(Get("trained").jobs().succeeded(), 5);
}

TEST_F(VerifyTest, ADifferenceIsReportedWithBothValues) {
  const std::string before = Everything();
  const std::string evaluation = AnyJob(v1::EVALUATION), stage = AnyJob(v1::STAGE, /*with_parent=*/false);
  ASSERT_TRUE(Verify(evaluation, "").ok());
  trainer_.loss_targets = [](const v1::EvaluationTask&) { return 3.25; };
  ASSERT_TRUE(trainer_.RunAll(*coordinator_).ok());
  EXPECT_EQ(Outcomes()[0].result(), v1::Verification::DIFFERENT);
  EXPECT_EQ(Outcomes()[0].job_id(), evaluation);
  EXPECT_EQ(Outcomes()[0].difference(), "loss_targets nan and 3.25");

  ASSERT_TRUE(Verify(stage, "").ok());
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  ASSERT_EQ(trainer_.assigned().size(), 1u);
  v1::AttemptReport& report = trainer_.Succeed(trainer_.assigned().begin()->second);
  report.mutable_result()->mutable_metrics(0)->set_value(std::nextafter(1.5, 2));
  const std::string other = Sha256Hex("other weights");
  report.mutable_result()->mutable_end_state()->mutable_weights()->set_sha256(other);
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  EXPECT_EQ(Outcomes()[0].result(), v1::Verification::DIFFERENT);
  EXPECT_THAT(Outcomes()[0].difference(), HasSubstr("max_gradient_norm 1.5 and 1.5000000000000002; end weights "));
  EXPECT_THAT(Outcomes()[0].difference(), HasSubstr("and " + other));
  // What the second run brought is not kept.
  EXPECT_TRUE(deleted_.contains(other));
  EXPECT_EQ(Everything(), before);
}

TEST_F(VerifyTest, AnotherDeviceAndAFailureAreSaid) {
  const std::string evaluation = AnyJob(v1::EVALUATION);
  ASSERT_TRUE(Verify(evaluation, "").ok());
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  trainer_.Succeed(trainer_.assigned().begin()->second).mutable_result()->set_device_kind("cuda/H200");
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  EXPECT_EQ(Outcomes()[0].result(), v1::Verification::OTHER_DEVICE);
  EXPECT_EQ(Outcomes()[0].device_kind(), "cuda/H200");
  EXPECT_EQ(Outcomes()[0].difference(), "");

  ASSERT_TRUE(Verify(evaluation, "").ok());
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  trainer_.Fail(trainer_.assigned().begin()->second, v1::INVALID_CONFIG);
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  EXPECT_EQ(Outcomes()[0].result(), v1::Verification::FAILED);
  EXPECT_EQ(Outcomes()[0].difference(), "it broke");
  EXPECT_EQ(Get("trained").state(), v1::SWEEP_SUCCEEDED);
}

TEST_F(VerifyTest, LostDataIsToldAndUploadedAgainItAgrees) {
  const std::string stage = AnyJob(v1::STAGE, /*with_parent=*/false);
  const auto made = Verify(stage, "");
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  ASSERT_EQ(trainer_.assigned().size(), 1u);
  missing_.insert(Sha256Hex("the text"));
  trainer_.Fail(trainer_.assigned().begin()->second, v1::CODE_ERROR).mutable_failure()->set_stderr_tail("no such artifact\n");
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  EXPECT_EQ(Outcomes()[0].result(), v1::Verification::FAILED);
  EXPECT_THAT(Outcomes()[0].difference(), HasSubstr("its data a.txt (SHA-256 "));
  EXPECT_THAT(Outcomes()[0].difference(), HasSubstr("`ablate sweep submit FILE`"));
  v1::GetJobRequest request;
  request.set_job_id(made->jobs(0).job_id());
  Open();  // as a restart finds it
  const auto shown = coordinator_->GetJob(request);
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(shown->job().state(), v1::FAILED);
  EXPECT_EQ(shown->job().last_failure().kind(), v1::UPSTREAM_FAILED);
  EXPECT_EQ(shown->job().last_failure().message(), Outcomes()[0].difference());
  EXPECT_EQ(shown->job().failures(), 0);
  ASSERT_EQ(shown->attempts_size(), 1);
  EXPECT_EQ(shown->attempts(0).failure().stderr_tail(), "no such artifact\n");
  EXPECT_EQ(Get("trained").state(), v1::SWEEP_SUCCEEDED);

  missing_.clear();
  ASSERT_TRUE(Submit(kTrainedSweep).ok());
  ASSERT_TRUE(Verify(stage, "").ok());
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  ASSERT_EQ(trainer_.assigned().size(), 1u);
  trainer_.Succeed(trainer_.assigned().begin()->second).mutable_result()->mutable_end_state()->mutable_weights()->set_sha256(
      One("SELECT end_weights_sha256 FROM jobs WHERE job_id = '" + stage + "'"));
  ASSERT_TRUE(trainer_.Sync(*coordinator_).ok());
  EXPECT_EQ(Outcomes()[0].result(), v1::Verification::SAME) << Outcomes()[0].difference();
}

TEST_F(VerifyTest, TheSampleIsDrawnByItsSeedAndRequestsAreChecked) {
  const auto drawn = [&](int64_t seed) {
    v1::VerifyJobsRequest request;
    request.set_sweep("trained");
    request.set_sample(2);
    request.set_seed(seed);
    std::set<std::string> of;
    const auto made = coordinator_->VerifyJobs(request);
    EXPECT_TRUE(made.ok()) << made.status();
    for (const v1::Job& job : made->jobs()) of.insert(job.verify_of());
    return of;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  std::set<std::set<std::string>> all;
  for (int64_t seed = 0; seed < 10; ++seed) all.insert(drawn(seed));
  EXPECT_GT(all.size(), 2u);
  EXPECT_EQ(Verify("", "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Verify("x", "trained").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Verify("x", "").status().code(), absl::StatusCode::kNotFound);
  std::string gone = kTrainedSweep;
  Replace(&gone, "name: trained", "name: gone");
  Replace(&gone, "keep: all", "keep: none");
  Replace(&gone, "seeds: 1", "seeds: [5]");
  ASSERT_TRUE(Submit(gone).ok());
  EXPECT_THAT(std::string(Verify("", "gone").status().message()), HasSubstr("has no finished job to verify yet"));
}

}  // namespace
}  // namespace ablate
