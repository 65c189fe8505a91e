// An adversary tries to see a confirming number before the lock, through every interface there is. Each attempt must
// give nothing, or a clear refusal. And what cannot be unseen is said.
#include <functional>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/coordinator_claims_test_util.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A confirming number: what the worker would report for an evaluation of a confirming seed.
constexpr int64_t kFirstSecretSeed = 100;

class SealTest : public ClaimsFixture {
 protected:
  // Every evaluation that a worker is given must be open: of a selecting seed, on the selection split, at most 4x.
  void SetUp() override {
    ClaimsFixture::SetUp();
    worker_.loss_targets = [this](const v1::EvaluationTask& task) {
      if (task.seed() >= kFirstSecretSeed) ++secrets_measured_;
      return Loss(task);
    };
    worker_.documents = 3;
  }

  // All but the lock: the selecting work is done, and one run is missing, so that the sweep cannot lock itself.
  void RunSelection() {
    ASSERT_TRUE(Submit(kSealedSweep).ok());
    FailOneCandidate();
    WaitForDecisions();
    ASSERT_TRUE(Get("sealed").sealed());
  }

  // Another sweep that asks for this one's confirming evaluations.
  static std::string Peeper(const std::string& name, const std::string& arms, const std::string& seeds,
                            const std::string& evaluate) {
    return absl::StrCat("name: ", name, "\nexecutor: noop\nkeep: weights\nsettings: {train.steps: 600}\narms: [", arms,
                        "]\nseeds: ", seeds, "\nevaluate: ", evaluate, "\n");
  }
  static constexpr char kSoftmax[] = "{attention.variant: softmax}";
  static constexpr char kCandidate[] = "{attention.variant: lssar, attention.p: 7}";

  void ExpectRefused(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has sealed until its selection is locked"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("sweep \"sealed\""));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ablate claims sealed"));
  }
  // Nothing of a confirming seed has ever been run.
  void ExpectNothingSeen() {
    ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
    EXPECT_EQ(secrets_measured_, 0);
    EXPECT_EQ(One("SELECT COUNT(*) FROM jobs j JOIN stages s ON s.key = j.key WHERE s.seed >= 100 AND j.attempt > 0"),
              "0");
    EXPECT_EQ(
        One("SELECT COUNT(*) FROM evaluation_results r JOIN evaluations e ON e.row = r.evaluation JOIN stages s ON "
            "s.row = e.stage WHERE s.seed >= 100 OR e.split = 'confirmation'"),
        "0");
  }

  int secrets_measured_ = 0;
};

TEST_F(SealTest, NothingIsInAnyTableOrView) {
  RunSelection();
  const auto tables = Query(
      "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE "
      "'sqlite_%' ORDER BY name");
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_GT(tables->size(), 20u);
  // What a look at the numbers would find: joined by stage or evaluation, whatever the table calls it.
  const std::string secret_stages = "(SELECT row FROM stages WHERE seed >= 100)";
  const std::string secret_evaluations =
      "(SELECT e.row FROM evaluations e JOIN stages s ON s.row = e.stage WHERE s.seed >= 100 OR e.split = "
      "'confirmation')";
  for (const std::string& table : *tables) {
    const auto columns = Query("SELECT name FROM pragma_table_info('" + table + "')");
    if (!columns.ok()) continue;
    for (const std::string& column : *columns) {
      // These hold the plan: what will be run, not what came of it.
      if (table == "points" || table == "point_evaluations" || table == "evaluations" || table == "stages") continue;
      std::string where;
      if (column == "stage") where = absl::StrCat(column, " IN ", secret_stages);
      if (column == "evaluation") where = absl::StrCat(column, " IN ", secret_evaluations);
      if (column == "phase") where = "phase = 'confirming'";
      if (column == "split") where = "split = 'confirmation'";
      if (column == "seed") where = "seed >= 100";
      if (where.empty()) continue;
      EXPECT_EQ(One(absl::StrCat("SELECT COUNT(*) FROM ", table, " WHERE ", where)), "0") << table << "." << column;
    }
  }
  for (const char* view : {"results", "confidence_intervals", "confidence_intervals_by_level"}) {
    EXPECT_EQ(One(absl::StrCat("SELECT COUNT(*) FROM ", view, " WHERE phase = 'confirming'")), "0");
  }
  EXPECT_EQ(One("SELECT COUNT(*) FROM jobs WHERE sealed = 1 AND (state <> 'blocked' OR attempt > 0 OR device IS NOT "
                "NULL OR seconds IS NOT NULL OR end_weights_sha256 IS NOT NULL)"),
            "0");
  EXPECT_EQ(One("SELECT COUNT(*) FROM checkpoints c JOIN stages s ON s.row = c.stage WHERE s.seed >= 100"), "0");
  EXPECT_EQ(One("SELECT COUNT(*) FROM locks"), "0");
  EXPECT_EQ(One("SELECT COUNT(*) FROM events v JOIN jobs j ON j.row = v.job WHERE j.sealed = 1"), "0");
  ExpectNothingSeen();
}

TEST_F(SealTest, NothingIsInAnyAnswer) {
  RunSelection();
  const v1::GetClaimsResponse claims = Claims("sealed");
  for (const v1::ClaimRow& row : claims.claims()) {
    EXPECT_EQ(row.verdict(), v1::NOT_YET);
    EXPECT_FALSE(row.has_estimate() || row.has_low() || row.has_family_low() || row.has_p() || row.has_p_adjusted() ||
                 row.has_smallest_detectable());
    EXPECT_THAT(row.job_ids(), IsEmpty());
  }
  v1::GetTableRequest table;
  table.set_sweep("sealed");
  const auto rows = coordinator_->GetTable(table);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_GT(rows->rows_size(), 0);
  for (const v1::ConfidenceRow& row : rows->rows()) {
    EXPECT_NE(row.phase(), v1::CONFIRMING);
    EXPECT_NE(row.split(), "confirmation");
    EXPECT_EQ(row.standing(), "exploratory");
    for (int64_t seed : row.seeds()) EXPECT_LT(seed, kFirstSecretSeed);
    for (int64_t seed : row.missing_seeds()) EXPECT_LT(seed, kFirstSecretSeed);
  }
  v1::CompareArmsRequest compare;
  compare.set_sweep("sealed");
  const auto differences = coordinator_->CompareArms(compare);
  ASSERT_TRUE(differences.ok()) << differences.status();
  for (const v1::ComparisonRow& row : differences->rows()) EXPECT_NE(row.phase(), v1::CONFIRMING);
  v1::GetSpreadRequest spread;
  spread.set_sweep("sealed");
  const auto spreads = coordinator_->GetSpread(spread);
  ASSERT_TRUE(spreads.ok()) << spreads.status();
  for (const v1::SpreadRow& row : spreads->rows()) EXPECT_NE(row.split(), "confirmation");

  v1::GetCurvesRequest curves;
  curves.set_sweep("sealed");
  const auto trained = coordinator_->GetCurves(curves);
  ASSERT_TRUE(trained.ok()) << trained.status();
  for (const v1::Curve& curve : trained->curves()) EXPECT_LT(curve.seed(), kFirstSecretSeed);
  v1::GetGridRequest grid;
  grid.set_sweep("sealed");
  const auto cells = coordinator_->GetGrid(grid);
  ASSERT_TRUE(cells.ok()) << cells.status();
  for (const v1::GetGridResponse::Cell& cell : cells->cells()) {
    EXPECT_EQ(cell.sealed(), cell.seed() >= kFirstSecretSeed);
    if (!cell.sealed()) continue;
    EXPECT_TRUE(cell.jobs_done() == 0 && cell.step() == 0 && cell.job_id().empty() && !cell.diverged());
  }

  int sealed = 0;
  for (const v1::Job& job : Jobs("sealed")) {
    if (!job.sealed()) continue;
    ++sealed;
    EXPECT_EQ(job.state(), v1::BLOCKED);
    EXPECT_EQ(job.attempt(), 0);
    EXPECT_THAT(job.metrics(), IsEmpty());
    v1::GetJobRequest request;
    request.set_job_id(job.job_id());
    const auto logs = coordinator_->GetJobLogs(request);
    ASSERT_TRUE(logs.ok());
    EXPECT_THAT(logs->attempts(), IsEmpty());
    EXPECT_THAT(logs->points(), IsEmpty());
    EXPECT_THAT(logs->events(), IsEmpty());
    EXPECT_THAT(coordinator_->ExplainJob(request)->explanation(), HasSubstr("It is sealed"));
    v1::VerifyJobsRequest verify;
    verify.set_job_id(job.job_id());
    const absl::Status refused = coordinator_->VerifyJobs(verify).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("it is sealed"));
  }
  EXPECT_EQ(sealed, 40 + 120);
  v1::VerifyJobsRequest sample;
  sample.set_sweep("sealed");
  sample.set_sample(10'000);
  const auto verified = coordinator_->VerifyJobs(sample);
  ASSERT_TRUE(verified.ok()) << verified.status();
  ExpectNothingSeen();
}

TEST_F(SealTest, AnotherSweepIsRefusedWhicheverWayItAsks) {
  RunSelection();
  const struct {
    const char* what;
    std::string yaml;
  } attempts[] = {
      {"the very evaluation", Peeper("p", kCandidate, "[100]", "{lengths: [8x], splits: [confirmation]}")},
      {"the baseline's", Peeper("p", kSoftmax, "[103]", "{lengths: [8x], splits: [confirmation]}")},
      {"other lengths on these documents", Peeper("p", kCandidate, "[100]", "{lengths: [1x], splits: [confirmation]}")},
      {"these lengths on other documents", Peeper("p", kCandidate, "[100]", "{lengths: [16x]}")},
      {"the arm's selecting seeds on these documents",
       Peeper("p", kCandidate, "[2]", "{lengths: [2x], splits: [confirmation]}")},
      {"NTK as an override",
       Peeper("p", "{attention.variant: lssar, attention.p: 7, eval.ntk: dynamic}", "[100]", "{lengths: [8x]}")},
      {"p overridden at evaluation", Peeper("p", "{attention.variant: lssar, attention.p: 7, eval.attention.p: 6.999}",
                                            "[100]", "{lengths: [8x], splits: [confirmation]}")},
      {"a length near the claims'", Peeper("p", kCandidate, "[100]", "{lengths: [2040]}")},
      {"just above 1x", Peeper("p", kCandidate, "[100]", "{lengths: [257]}")},
      {"another device", "requires: {device: cpu}\n" + Peeper("p", kCandidate, "[100]", "{lengths: [8x]}")},
      {"another clip", Peeper("p", "{attention.variant: lssar, attention.p: 7, train.clip: 1.0000001}", "[100]",
                              "{lengths: [8x], splits: [confirmation]}")},
      {"in parts",
       Peeper("p", "{attention.variant: lssar, attention.p: 7, train.accumulation: 2}", "[100]", "{lengths: [8x]}")},
      {"another epsilon", Peeper("p", "{train.epsilon: 1.0000001e-8}", "[100]", "{lengths: [8x]}")},
      {"fewer steps", Peeper("p", "{train.steps: 500}", "[100]", "{lengths: [8x]}")},
      {"the same claims on another device",
       [] {
         std::string yaml = kSealedSweep;
         Replace(&yaml, "name: sealed", "name: p\nrequires: {device: cpu}");
         return yaml;
       }()},
      {"the same claims under another name",
       [] {
         std::string yaml = kSealedSweep;
         Replace(&yaml, "name: sealed", "name: p");
         return yaml;
       }()},
  };
  for (const auto& attempt : attempts) {
    SCOPED_TRACE(attempt.what);
    ExpectRefused(Submit(attempt.yaml).status());
  }
  // What shows nothing is not refused: another arm, the sealed training without sealed evaluations, 1x on the
  // selection split.
  ASSERT_TRUE(Submit(Peeper("free", "{attention.variant: lssar, attention.p: 9}", "[100]",
                            "{lengths: [8x], splits: [confirmation]}"))
                  .ok());
  worker_.loss_targets = [](const v1::EvaluationTask& task) { return Loss(task); };
  ASSERT_TRUE(Submit(Peeper("trains", kCandidate, "[100]", "{lengths: [1x]}")).ok());
  ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("trains").state(), v1::SWEEP_SUCCEEDED);
  // Now it has its checkpoint; extending it does not help.
  v1::ExtendSweepRequest extend;
  extend.set_sweep("trains");
  extend.set_yaml(Peeper("trains", kCandidate, "[100]", "{lengths: [1x, 8x]}"));
  ExpectRefused(coordinator_->ExtendSweep(extend).status());
  // The sealed evaluations of that training wait as before.
  EXPECT_EQ(
      One("SELECT COUNT(*) FROM jobs j JOIN evaluations e ON e.key = j.key JOIN stages s ON s.row = e.stage WHERE "
          "s.seed = 100 AND e.split = 'confirmation' AND j.sealed = 1"),
      "15");
}

TEST_F(SealTest, RetryAndResubmissionDoNotHelpEither) {
  // Asked for before, but cancelled or failed without a number.
  ASSERT_TRUE(Submit(Peeper("cancelled", kCandidate, "[100]", "{lengths: [8x], splits: [confirmation]}")).ok());
  v1::CancelSweepRequest cancel;
  cancel.set_sweep("cancelled");
  ASSERT_TRUE(coordinator_->CancelSweep(cancel).ok());
  ASSERT_TRUE(Submit(Peeper("failed", "{attention.variant: lssar, attention.p: 3}", "[101]",
                            "{lengths: [8x], splits: [confirmation]}"))
                  .ok());
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  worker_.Fail(worker_.assigned().begin()->second, v1::INVALID_CONFIG);
  ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("failed").state(), v1::SWEEP_FAILED);
  RunSelection();
  EXPECT_EQ(One("SELECT COUNT(*) FROM seen_before"), "0");

  v1::RetrySweepRequest retry;
  retry.set_sweep("cancelled");
  ExpectRefused(coordinator_->RetrySweep(retry).status());
  ExpectRefused(Submit(Peeper("cancelled", kCandidate, "[100]", "{lengths: [8x], splits: [confirmation]}")).status());
  retry.set_sweep("failed");
  ExpectRefused(coordinator_->RetrySweep(retry).status());
  EXPECT_EQ(Get("cancelled").state(), v1::SWEEP_CANCELLED);
  EXPECT_EQ(One("SELECT COUNT(*) FROM evaluation_results r JOIN evaluations e ON e.row = r.evaluation WHERE e.split = "
                "'confirmation'"),
            "0");
  // The sweep's own retry lets nothing sealed go.
  retry.set_sweep("sealed");
  ASSERT_TRUE(coordinator_->RetrySweep(retry).ok());
  v1::SyncResponse response = *worker_.Sync(*coordinator_);
  for (const v1::Assignment& assignment : response.desired()) {
    EXPECT_LT(assignment.task().stage().seed(), kFirstSecretSeed);
  }
}

TEST_F(SealTest, CancellingTheSealedSweepIsSeenInItsClaims) {
  RunSelection();
  v1::CancelSweepRequest cancel;
  cancel.set_sweep("sealed");
  ASSERT_TRUE(coordinator_->CancelSweep(cancel).ok());
  EXPECT_FALSE(Get("sealed").sealed());
  // Nobody keeps the seal of a sweep that is not: but it does not come back as if nothing had been seen.
  worker_.loss_targets = [](const v1::EvaluationTask& task) { return Loss(task); };
  ASSERT_TRUE(Submit(Peeper("peeper", kSoftmax, "[100, 101]", "{lengths: [8x], splits: [confirmation]}")).ok());
  ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  RunUntilOver("sealed");
  const v1::GetClaimsResponse claims = Claims("sealed");
  ASSERT_TRUE(claims.has_lock());
  for (const v1::ClaimRow& row : claims.claims()) EXPECT_THAT(row.standing(), HasSubstr("exploratory: seen in job "));
  EXPECT_EQ(One("SELECT COUNT(*) FROM seen_before"), "2");
}

TEST_F(SealTest, WhatWasSeenBeforeIsSaid) {
  ASSERT_TRUE(Submit(Peeper("before", "{attention.variant: lssar, attention.p: 15}", "[104]",
                            "{lengths: [16x], splits: [confirmation]}"))
                  .ok());
  ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
  const std::string job =
      One("SELECT j.job_id FROM jobs j JOIN evaluations e ON e.key = j.key WHERE j.state = 'succeeded'");
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  EXPECT_EQ(Claims("sealed").deviations(0).kind(), "seen_before");
  EXPECT_THAT(Claims("sealed").deviations(0).text(), HasSubstr(job));
  RunUntilOver("sealed");
  const v1::GetClaimsResponse claims = Claims("sealed");
  EXPECT_EQ(claims.claims(0).standing(), "confirmatory");  // of p = 7 and softmax
  EXPECT_EQ(claims.claims(1).standing(), "exploratory: seen in job " + job);
  EXPECT_EQ(claims.claims(2).standing(), "exploratory: seen in job " + job);
  // In tables too, and in the views.
  v1::GetTableRequest table;
  table.set_sweep("sealed");
  table.add_metrics("loss_targets");
  const auto rows = coordinator_->GetTable(table);
  ASSERT_TRUE(rows.ok());
  int seen = 0;
  for (const v1::ConfidenceRow& row : rows->rows()) {
    if (row.phase() != v1::CONFIRMING) continue;
    const bool p15 = row.arm_json().find(":15,") != std::string::npos;
    if (!p15 && row.length() != 8 * 256) continue;  // what no claim is about is in coordinator_claims_test.cc
    EXPECT_EQ(row.standing(), p15 ? "exploratory: seen in job " + job : "confirmatory");
    seen += p15;
  }
  EXPECT_GT(seen, 0);
  EXPECT_EQ(One("SELECT COUNT(DISTINCT standing) FROM confidence_intervals WHERE phase = 'confirming' AND split = "
                "'confirmation'"),
            "2");
}

TEST_F(SealTest, ACopyOfAConfirmedSweepIsExploratory) {
  worker_.loss_targets = [](const v1::EvaluationTask& task) { return Loss(task); };
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  RunUntilOver("sealed");
  for (const v1::ClaimRow& row : ClaimRows("sealed")) EXPECT_EQ(row.standing(), "confirmatory");
  std::string copy = kSealedSweep;
  Replace(&copy, "name: sealed", "name: copy\nrequires: {device: cpu}");
  worker_.refused.clear();
  ASSERT_TRUE(Submit(copy).ok());
  for (const v1::ClaimRow& row : ClaimRows("copy")) EXPECT_THAT(row.standing(), HasSubstr("exploratory: seen in job "));
}

TEST_F(SealTest, ANumberAtAnyLengthAbove1xCountsAsSeen) {
  ASSERT_TRUE(Submit(Peeper("before", "{attention.variant: lssar, attention.p: 15, train.clip: 0.9}", "[104]",
                            "{lengths: [1x, 2040]}"))
                  .ok());
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  EXPECT_EQ(One("SELECT COUNT(*) FROM seen_before"), "1") << "1x is no secret";
  worker_.loss_targets = [](const v1::EvaluationTask& task) { return Loss(task); };
  RunUntilOver("sealed");
  const v1::GetClaimsResponse claims = Claims("sealed");
  EXPECT_EQ(claims.claims(0).standing(), "confirmatory");
  EXPECT_THAT(claims.claims(1).standing(), HasSubstr("exploratory: seen in job "));
  EXPECT_EQ(One("SELECT COUNT(*) FROM results WHERE phase = 'confirming' AND arm LIKE '%15%' AND standing = "
                "'confirmatory'"),
            "0");
}

TEST_F(SealTest, WhatIsAlreadyAskedForCountsAsSeen) {
  ASSERT_TRUE(Submit(Peeper("before", kSoftmax, "[100]", "{lengths: [8x], splits: [confirmation]}")).ok());
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  EXPECT_EQ(One("SELECT COUNT(*) FROM seen_before"), "1");
  worker_.loss_targets = [](const v1::EvaluationTask& task) { return Loss(task); };
  RunUntilOver("sealed");
  for (const v1::ClaimRow& row : ClaimRows("sealed")) EXPECT_THAT(row.standing(), HasSubstr("seen in job"));
}

TEST_F(SealTest, AForgedResultForASealedJobIsRefused) {
  RunSelection();
  std::string sealed_job;
  for (const v1::Job& job : Jobs("sealed")) {
    if (job.sealed() && job.kind() == v1::EVALUATION) sealed_job = job.job_id();
  }
  ASSERT_FALSE(sealed_job.empty());
  v1::Assignment forged;
  forged.set_job_id(sealed_job);
  forged.set_attempt(1);
  forged.mutable_task()->mutable_evaluation()->set_length_tokens(2048);
  worker_.loss_targets = nullptr;
  worker_.refused.clear();
  worker_.Succeed(forged);
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  ASSERT_EQ(worker_.refused.size(), 1u);
  EXPECT_THAT(worker_.refused[0].reason(), HasSubstr("was never granted"));
  ExpectNothingSeen();
  // Cancelling a sealed job gives nothing either.
  v1::CancelJobRequest cancel;
  cancel.set_job_id(sealed_job);
  ASSERT_TRUE(coordinator_->CancelJob(cancel).ok());
  ExpectNothingSeen();
}

TEST_F(SealTest, ReusedSeedsAreSealedByEvaluationAndMarked) {
  std::string yaml = kSealedSweep;
  Replace(&yaml, "seeds: 8", "reuse_seeds: yes");
  Replace(&yaml, "seeds: 5\n", "seeds: 8\n");
  ASSERT_TRUE(Submit(yaml).ok());
  EXPECT_EQ(One("SELECT COUNT(*) FROM jobs WHERE sealed = 1 AND kind = 'stage'"), "0");
  RunUntilOver("sealed");
  const v1::GetClaimsResponse claims = Claims("sealed");
  for (const v1::ClaimRow& row : claims.claims()) {
    EXPECT_EQ(row.standing(), "conditional on the selected checkpoints");
  }
  EXPECT_EQ(One("SELECT DISTINCT standing FROM results WHERE phase = 'confirming' AND split = 'confirmation'"),
            "conditional on the selected checkpoints");
}

}  // namespace
}  // namespace ablate
