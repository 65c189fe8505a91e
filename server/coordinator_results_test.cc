// What GetTable and CompareArms answer, from sweep file to row.
#include <map>
#include <set>
#include <tuple>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_test_util.h"

namespace ablate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ResultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CoordinatorOptions options;
    options.data_dir = dir_.path();
    options.idle_wait_ms = 0;
    auto coordinator = Coordinator::Open(options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
  }

  absl::Status Submit(const std::string& yaml) {
    v1::SubmitSweepRequest request;
    request.set_file_name("s.yaml");
    request.set_yaml("executor: noop\n" + yaml);
    return coordinator_->SubmitSweep(request).status();
  }
  void Run(const std::string& yaml) {
    const absl::Status submitted = Submit(yaml);
    ASSERT_TRUE(submitted.ok()) << submitted;
    FakeWorker worker("w", 2);
    const auto done = worker.RunAll(*coordinator_);
    ASSERT_TRUE(done.ok()) << done.status();
  }
  absl::StatusOr<v1::GetTableResponse> Table(const std::string& metric = "") {
    v1::GetTableRequest request;
    request.set_sweep("s");
    if (!metric.empty()) request.add_metrics(metric);
    return coordinator_->GetTable(request);
  }
  absl::StatusOr<v1::CompareArmsResponse> Compare(const std::string& baseline = "", const std::string& metric = "") {
    v1::CompareArmsRequest request;
    request.set_sweep("s");
    request.set_baseline_arm_json(baseline);
    if (!metric.empty()) request.add_metrics(metric);
    return coordinator_->CompareArms(request);
  }

  // Each arm but the baseline, wherever the table has it, and nothing else; one family a metric.
  void ExpectAllComparedWith(const std::string& baseline_json, const std::string& asked = "") {
    using Place = std::tuple<std::string, std::string, int64_t, std::string, bool>;
    std::set<Place> measured, compared;
    std::map<std::string, int> family;
    const auto table = Table();
    ASSERT_TRUE(table.ok()) << table.status();
    for (const v1::ConfidenceRow& row : table->rows()) {
      if (row.arm_json() == baseline_json) continue;
      measured.emplace(row.arm_json(), row.metric(), row.length(), row.split(), row.ntk());
      ++family[row.metric()];
    }
    EXPECT_FALSE(measured.empty());
    const auto comparison = Compare(asked);
    ASSERT_TRUE(comparison.ok()) << comparison.status();
    for (const v1::ComparisonRow& row : comparison->rows()) {
      EXPECT_EQ(row.baseline_json(), baseline_json);
      EXPECT_EQ(row.n(), 3);
      EXPECT_EQ(row.family_size(), family[row.metric()]);
      EXPECT_TRUE(compared.emplace(row.arm_json(), row.metric(), row.length(), row.split(), row.ntk()).second);
    }
    EXPECT_EQ(compared, measured);
  }

  TempDir dir_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(ResultsTest, ArmsThatContainTheBaselinesValuesAreCompared) {
  Run(R"(arms:
  - {attention.variant: softmax}
  - {attention.variant: softmax, attention.scale: one}
  - {attention.variant: softmax, attention.scale: log_d}
  - {attention.variant: softmax, switch: [{at_step: 50, attention.variant: ssmax}]}
  - {attention.variant: [ssmax, lssa]}
baseline: {attention.variant: softmax}
evaluate: {lengths: [1x, 2x]}
)");
  ExpectAllComparedWith(R"({"attention.variant":"softmax"})");
  ExpectAllComparedWith(R"({"attention.variant":"softmax"})", R"({"attention.variant":"softmax"})");
  ExpectAllComparedWith(R"({"attention.variant":"lssa"})", R"({"attention.variant":"lssa"})");
  const std::string one = R"({"attention.scale":"one","attention.variant":"softmax"})";
  ExpectAllComparedWith(one, one);
  const auto table = Table("loss");
  ASSERT_TRUE(table.ok());
  for (const v1::ConfidenceRow& row : table->rows()) ExpectAllComparedWith(row.arm_json(), row.arm_json());
}

TEST_F(ResultsTest, TheArmThatSetsNothingIsABaseline) {
  Run("arms: [{}, {attention.scale: one}]\naxes: {eval.ntk: [off, on]}\nevaluate: {lengths: [1x, 2x]}\n");
  ExpectAllComparedWith("{}");
  ExpectAllComparedWith("{}", "{}");
  ExpectAllComparedWith("{}", R"({"attention.variant":"softmax"})");  // defaults included
  ExpectAllComparedWith(R"({"attention.scale":"one"})", R"({"attention.scale":"one"})");
}

TEST_F(ResultsTest, ABaselineThatIsNoArmIsRefused) {
  Run("axes: {attention.variant: [softmax, lssa], train.batch: [2, 4]}\nevaluate: {lengths: [1x]}\n");
  const auto refusal = [&](const std::string& baseline) {
    const auto refused = Compare(baseline);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << baseline;
    return std::string(refused.status().message());
  };
  EXPECT_THAT(refusal(R"({"attention.variant":"lssa"})"), HasSubstr("fits 2 arms"));
  EXPECT_THAT(refusal(R"({"attention.variant":"relu"})"), HasSubstr("no arm is the baseline"));
  EXPECT_THAT(refusal(R"({"attention.varian":"lssa"})"), HasSubstr("attention.variant"));
  refusal(R"({"attention.variant":3})");
  refusal("[]");
  refusal("{");
}

TEST_F(ResultsTest, AMetricThatThereIsNotIsRefused) {
  Run("axes: {attention.variant: [softmax, lssa]}\nevaluate: {lengths: [1x]}\n");
  for (const absl::Status& status : {Table("los").status(), Compare("", "los").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "no metric \"los\" in sweep s, did you mean \"loss\"?");
  }
  EXPECT_EQ(Table("loss")->rows_size(), 2);
  EXPECT_EQ(Table("max_gradient_norm")->rows_size(), 2);
}

TEST_F(ResultsTest, AKnownMetricMayBeAwaitedAndAnUnknownOneMayBeRecorded) {
  ASSERT_TRUE(Submit("axes: {attention.variant: [softmax, lssa]}\nseeds: 1\nevaluate: {lengths: [1x]}\n").ok());
  EXPECT_TRUE(Table("loss").ok());
  EXPECT_FALSE(Table("accuracy").ok());
  FakeWorker worker("w", 1);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  FakeWorker::AddMetric(worker.Succeed(worker.assigned().begin()->second).mutable_result(), "accuracy", 0.5);
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  const auto table = Table("accuracy");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->rows_size(), 1);
}

TEST_F(ResultsTest, EachSeedHasItsJobWhetherMeasuredOrDiverged) {
  ASSERT_TRUE(Submit("axes: {attention.variant: [softmax, lssa]}\nevaluate: {lengths: [1x]}\n").ok());
  FakeWorker worker("w", 1);
  ASSERT_TRUE(worker.Sync(*coordinator_).ok());
  v1::TaskResult* result = worker.Succeed(worker.assigned().begin()->second).mutable_result();
  result->set_outcome(v1::DIVERGED);
  result->clear_metrics();
  ASSERT_TRUE(worker.RunAll(*coordinator_).ok());
  const auto table = Table("loss");
  ASSERT_TRUE(table.ok()) << table.status();
  int diverged = 0;
  for (const v1::ConfidenceRow& row : table->rows()) {
    EXPECT_EQ(row.job_ids_size(), row.seeds_size());
    EXPECT_EQ(row.diverged_job_ids_size(), row.diverged_seeds_size());
    diverged += row.diverged_seeds_size();
    const auto check = [&](int64_t seed, const std::string& job_id) {
      v1::GetJobRequest request;
      request.set_job_id(job_id);
      const auto job = coordinator_->GetJob(request);
      ASSERT_TRUE(job.ok()) << job.status();
      EXPECT_EQ(job->job().task().evaluation().seed(), seed);
    };
    for (int i = 0; i < row.seeds_size(); ++i) check(row.seeds(i), row.job_ids(i));
    for (int i = 0; i < row.diverged_seeds_size(); ++i) check(row.diverged_seeds(i), row.diverged_job_ids(i));
  }
  EXPECT_EQ(diverged, 1);
}

TEST_F(ResultsTest, FaultsOfMeaningAreToldWithTheirPlace) {
  const absl::Status refused = Submit("arms: [{attention.variant: softmax}, {}]\n");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), AllOf(StartsWith("s.yaml:2:38: "), HasSubstr("the same configuration")));
}

}  // namespace
}  // namespace ablate
