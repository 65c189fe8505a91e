// What GetTable and CompareArms answer, from sweep file to row.
#include <sqlite3.h>

#include <functional>
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

// Statements that this thread has run, on every connection that was opened meanwhile.
class StatementCounter {
 public:
  StatementCounter() { sqlite3_auto_extension(reinterpret_cast<void (*)()>(&Trace)); }
  ~StatementCounter() { sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(&Trace)); }
  int64_t Of(const std::function<absl::Status()>& work) {
    count_ = 0;
    const absl::Status status = work();
    EXPECT_TRUE(status.ok()) << status;
    return count_;
  }

 private:
  static int Trace(sqlite3* db, char**, const sqlite3_api_routines*) {
    return sqlite3_trace_v2(
        db, SQLITE_TRACE_STMT,
        [](unsigned, void*, void*, void*) {
          ++count_;
          return 0;
        },
        nullptr);
  }
  static thread_local int64_t count_;
};
thread_local int64_t StatementCounter::count_ = 0;

// A table of some thousand runs takes minutes where each run costs a query. What is computed over runs costs so many, whatever
// the sweep has; what names every one (a page of jobs, the points of all curves) so many look-ups by key each, in this process.
TEST(QueriesTest, AnAnswerAsksNoMoreForMoreRuns) {
  StatementCounter statements;
  TempDir dir;
  CoordinatorOptions options;
  options.data_dir = dir.path();
  options.idle_wait_ms = 0;
  const auto coordinator = Coordinator::Open(options);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  Coordinator& asked = **coordinator;
  FakeWorker worker("w", 64);
  worker.documents = 2;
  const auto run = [&](const std::string& name, const std::string& exponents, int seeds) {
    v1::SubmitSweepRequest request;
    request.set_file_name("s.yaml");
    request.set_yaml(absl::StrCat("name: ", name, "\nexecutor: noop\nsettings: {attention.variant: lssar}\naxes: {attention.p: [",
                                  exponents,
                                  "], attention.qk_norm: [none, l2]}\nfactorial: {factors: [attention.p, attention.qk_norm]}\nseeds: ",
                                  seeds, "\nevaluate: {lengths: [1x, 2x]}\n"));
    const auto submitted = asked.SubmitSweep(request);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    const auto done = worker.RunAll(asked);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_GT(*done, 0);
  };
  run("few", "1, 3", 3);
  run("seeds", "1, 3", 60);
  run("arms", "1, 3, 5, 7, 9, 11, 13, 15", 3);

  const auto cost = [&](const std::string& sweep) {
    std::map<std::string, int64_t> all;
    all["table"] = statements.Of([&] {
      v1::GetTableRequest request;
      request.set_sweep(sweep);
      return asked.GetTable(request).status();
    });
    all["compare"] = statements.Of([&] {
      v1::CompareArmsRequest request;
      request.set_sweep(sweep);
      return asked.CompareArms(request).status();
    });
    all["effects"] = statements.Of([&] {
      v1::GetEffectsRequest request;
      request.set_sweep(sweep);
      return asked.GetEffects(request).status();
    });
    all["spread"] = statements.Of([&] {
      v1::GetSpreadRequest request;
      request.set_sweep(sweep);
      return asked.GetSpread(request).status();
    });
    all["curves"] = statements.Of([&] {
      v1::GetCurvesRequest request;
      request.set_sweep(sweep);
      return asked.GetCurves(request).status();
    });
    all["grid"] = statements.Of([&] {
      v1::GetGridRequest request;
      request.set_sweep(sweep);
      return asked.GetGrid(request).status();
    });
    all["sweep"] = statements.Of([&] {
      v1::GetSweepRequest request;
      request.set_sweep(sweep);
      return asked.GetSweep(request).status();
    });
    all["jobs"] = statements.Of([&] {
      v1::ListJobsRequest request;
      request.set_sweep(sweep);
      request.set_page_size(1000);
      return asked.ListJobs(request).status();
    });
    return all;
  };
  const std::map<std::string, int64_t> few = cost("few");
  for (const auto& [sweep, runs] : std::map<std::string, int64_t>{{"seeds", 4 * 60}, {"arms", 16 * 3}}) {
    const std::map<std::string, int64_t> many = cost(sweep);
    for (const char* what : {"table", "compare", "effects", "spread"}) {
      EXPECT_GT(few.at(what), 0) << "nothing was counted";
      EXPECT_EQ(many.at(what), few.at(what)) << what << " of " << sweep;
    }
    for (const char* what : {"grid", "sweep"}) EXPECT_EQ(many.at(what), 0) << what << " is kept in memory";
    const int64_t more = runs - 12;
    EXPECT_LE(many.at("curves") - few.at("curves"), 2 * more) << sweep;
    EXPECT_LE(many.at("jobs") - few.at("jobs"), 6 * 3 * more) << sweep;  // a training and two evaluations a run
  }
}

TEST_F(ResultsTest, FaultsOfMeaningAreToldWithTheirPlace) {
  const absl::Status refused = Submit("arms: [{attention.variant: softmax}, {}]\n");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), AllOf(StartsWith("s.yaml:2:38: "), HasSubstr("the same configuration")));
}

}  // namespace
}  // namespace ablate
