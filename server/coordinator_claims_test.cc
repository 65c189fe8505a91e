// Sweeps with phases in the coordinator with its real store: from submission to verdicts, whoever dies in between; and
// what is recorded on the way. The other side, that nothing sealed is seen, is coordinator_seal_test.cc.
#include <set>
#include <thread>

#include "base/files.h"
#include "experiments/axes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_claims_test_util.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ClaimsTest : public ClaimsFixture {};

TEST_F(ClaimsTest, ASealedSweepFromSubmissionToVerdicts) {
  const auto submitted = Submit(kSealedSweep);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(submitted->sweep().phase(), v1::SELECTING);
  EXPECT_TRUE(submitted->sweep().sealed());
  const std::string plan_sha256 = submitted->sweep().plan_sha256();
  EXPECT_EQ(One("SELECT plan_sha256 FROM plan_versions"), plan_sha256);

  // Before the lock: no number, but what it waits for.
  v1::GetClaimsResponse claims = Claims("sealed");
  ASSERT_EQ(claims.claims_size(), 3);
  for (const v1::ClaimRow& row : claims.claims()) {
    EXPECT_EQ(row.verdict(), v1::NOT_YET);
    EXPECT_FALSE(row.has_estimate() || row.has_p());
  }
  EXPECT_THAT(claims.waiting_for(), HasSubstr("jobs of the selecting phase to end"));
  EXPECT_FALSE(claims.has_lock());

  RunUntilOver("sealed");
  const v1::Sweep sweep = Get("sealed");
  EXPECT_EQ(sweep.state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(sweep.phase(), v1::CONFIRMING);
  EXPECT_FALSE(sweep.sealed());
  EXPECT_EQ(sweep.plan_sha256(), plan_sha256);
  claims = Claims("sealed");
  EXPECT_EQ(claims.plan_sha256(), plan_sha256);
  EXPECT_EQ(claims.lock().arm_json(), R"({"attention.p":7,"attention.variant":"lssar"})");
  EXPECT_FALSE(claims.lock().by_hand());
  EXPECT_THAT(claims.lock().evidence_json(), HasSubstr("candidates"));
  EXPECT_EQ(claims.lock().at_us(), clock_.WallMicros());
  EXPECT_EQ(claims.waiting_for(), "");
  EXPECT_THAT(claims.deviations(), IsEmpty());
  ASSERT_EQ(claims.claims_size(), 3);
  EXPECT_EQ(claims.claims(0).verdict(), v1::SUPPORTED) << claims.claims(0).ShortDebugString();
  EXPECT_EQ(claims.claims(0).standing(), "confirmatory");
  EXPECT_EQ(claims.claims(0).n(), 8);
  EXPECT_NEAR(claims.claims(0).estimate(), -0.07, 0.02);
  EXPECT_EQ(claims.claims(1).verdict(), v1::SUPPORTED);
  // p = 1 and 3 were not chosen: no job of theirs at the confirming seeds has run, and the sweep has none.
  EXPECT_EQ(One("SELECT COUNT(*) FROM points WHERE seal = 'dropped'"), "16");
  EXPECT_EQ(One("SELECT COUNT(*) FROM points WHERE seal = 'sealed'"), "0");
  EXPECT_EQ(One("SELECT COUNT(*) FROM jobs WHERE state = 'cancelled' AND attempt > 0"), "0");
  EXPECT_EQ(One("SELECT COUNT(*) FROM jobs j JOIN stages s ON s.key = j.key WHERE s.seed >= 100 AND j.state = "
                "'succeeded'"),
            "24");  // softmax, p = 7 and p = 15 at 8 seeds
  EXPECT_EQ(sweep.jobs().cancelled(), 0);
  EXPECT_EQ(One("SELECT COUNT(DISTINCT standing) FROM results WHERE phase = 'confirming' AND split <> 'train'"), "1");
  EXPECT_EQ(One("SELECT DISTINCT standing FROM confidence_intervals WHERE phase = 'confirming' AND split <> 'train'"),
            "confirmatory");

  v1::GetTableRequest request;
  request.set_sweep("sealed");
  request.add_metrics("loss_targets");
  const auto table = coordinator_->GetTable(request);
  ASSERT_TRUE(table.ok()) << table.status();
  // The claims are about p = 7 (locked) at 8x, and p = 15 at 8x and 16x; about every other length none is.
  const auto claimed_at = [](const std::string& arm) {
    return arm.find(":7") != std::string::npos ? std::set<int64_t>{8 * 256} : std::set<int64_t>{8 * 256, 16 * 256};
  };
  int confirmatory = 0;
  for (const v1::ConfidenceRow& row : table->rows()) {
    EXPECT_EQ(row.standing(), row.phase() != v1::CONFIRMING ? "exploratory"
                              : claimed_at(row.arm_json()).contains(row.length())
                                  ? "confirmatory"
                                  : "exploratory: no claim is about it");
    confirmatory += row.standing() == "confirmatory";
  }
  EXPECT_GT(confirmatory, 0);
  v1::CompareArmsRequest compare;
  compare.set_sweep("sealed");
  compare.add_metrics("loss_targets");
  const auto comparison = coordinator_->CompareArms(compare);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  confirmatory = 0;
  for (const v1::ComparisonRow& row : comparison->rows()) {
    EXPECT_EQ(row.standing(), row.phase() != v1::CONFIRMING ? "exploratory"
                              : claimed_at(row.arm_json()).contains(row.length())
                                  ? "confirmatory"
                                  : "exploratory: no claim is about it");
    confirmatory += row.standing() == "confirmatory";
    EXPECT_EQ(row.job_ids_size(), 2 * row.seeds_size());
  }
  EXPECT_GT(confirmatory, 0);
}

TEST_F(ClaimsTest, TheSameOutcomeWhenTheCoordinatorDiesBetweenAnyTwoSteps) {
  ASSERT_TRUE(Submit(kTunedSweep).ok());
  RunUntilOver("tuned");
  const std::string whole = Outcome("tuned");
  EXPECT_THAT(whole, HasSubstr("SUPPORTED"));
  const int64_t commits = commits_;
  ASSERT_GT(commits, 20) << "too short to die in";

  // Once more, and each commit fails once: the coordinator forgets and goes on from the disk. Then with a new
  // coordinator each time.
  for (const bool reopen : {false, true}) {
    Reset();
    ASSERT_TRUE(Submit(kTunedSweep).ok());
    for (int round = 0; round < 400 && Get("tuned").state() == v1::SWEEP_RUNNING; ++round) {
      if (reopen) {
        Open();
      } else {
        fail_next_commit_ = true;
        (void)worker_.Sync(*coordinator_);
      }
      (void)worker_.Sync(*coordinator_);
      for (const auto& [key, assignment] : worker_.assigned()) worker_.Succeed(assignment);
      if (!worker_.assigned().empty()) continue;
      // The ticker's decision fails, too.
      fail_next_commit_ = !reopen;
      WaitForDecisions();
    }
    EXPECT_EQ(Outcome("tuned"), whole) << "reopen " << reopen;
  }
}

TEST_F(ClaimsTest, TuningFixesTheRatesAndMakesTheNextPlan) {
  ASSERT_TRUE(Submit(kTunedSweep).ok());
  EXPECT_EQ(Get("tuned").phase(), v1::TUNING);
  EXPECT_EQ(Get("tuned").jobs().blocked() + Get("tuned").jobs().queued(), 2 * (2 * 3 * 2));  // stages and evaluations
  RunUntilOver("tuned");
  const v1::GetClaimsResponse claims = Claims("tuned");
  ASSERT_EQ(claims.tuning_size(), 2);
  // The best rate lies at the grid's edge for the second arm: the grid grew until it did not.
  EXPECT_DOUBLE_EQ(claims.tuning(0).learning_rate(), 2e-3);
  EXPECT_NEAR(claims.tuning(1).learning_rate(), 8e-3, 1e-9);
  EXPECT_EQ(claims.tuning(1).tries_size(), 5);
  EXPECT_TRUE(claims.tuning(1).tries(3).extension());
  EXPECT_EQ(One("SELECT group_concat(why, ', ') FROM plan_versions"),
            "submitted, a learning rate more, a learning rate more, tuned");
  EXPECT_EQ(One("SELECT COUNT(DISTINCT plan_sha256) FROM plan_versions"), "1");
  EXPECT_EQ(One("SELECT COUNT(*) FROM tuning_tries"), "8");
  // The tuning seeds are used for nothing else, and the numbers of an arm are of its chosen rate.
  EXPECT_EQ(One("SELECT COUNT(*) FROM points WHERE phase <> 'tuning' AND seed IN (SELECT seed FROM points WHERE phase "
                "= 'tuning')"),
            "0");
  EXPECT_EQ(
      One("SELECT COUNT(DISTINCT json_extract(s.config, '$.\"train.learning_rate\"')) FROM points p JOIN stages s "
          "ON s.row = p.stage WHERE p.phase <> 'tuning'"),
      "2");
  v1::GetTableRequest request;
  request.set_sweep("tuned");
  const auto table = coordinator_->GetTable(request);
  ASSERT_TRUE(table.ok()) << table.status();
  for (const v1::ConfidenceRow& row : table->rows()) EXPECT_NE(row.phase(), v1::TUNING);
}

TEST_F(ClaimsTest, LooksLetGoAndDropSeeds) {
  std::string yaml = kSealedSweep;
  Replace(&yaml, "seeds: 8", "seeds: 12\n  looks: [8, 12]");
  const auto submitted = Submit(yaml);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  RunUntilOver("sealed");
  EXPECT_EQ(Get("sealed").state(), v1::SWEEP_SUCCEEDED);
  const v1::GetClaimsResponse claims = Claims("sealed");
  EXPECT_EQ(claims.claims(0).verdict(), v1::SUPPORTED);
  // Which seeds ran depends on the third claim, which the first look leaves open or not; but none is left over.
  EXPECT_EQ(One("SELECT COUNT(*) FROM points WHERE seal = 'sealed'"), "0");
  EXPECT_GE(claims.claims(0).look(), 1);
}

TEST_F(ClaimsTest, ALockByHandIsADeviation) {
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  v1::LockSweepRequest request;
  request.set_sweep("sealed");
  request.set_arm_json(R"({"attention.p":3})");
  EXPECT_EQ(coordinator_->LockSweep(request).status().code(), absl::StatusCode::kInvalidArgument);  // no reason
  request.set_why("p = 7 is too slow");
  request.set_arm_json(R"({"attention.p":15})");
  EXPECT_EQ(coordinator_->LockSweep(request).status().code(), absl::StatusCode::kInvalidArgument);  // no candidate
  request.set_arm_json(R"({"attention.p":3})");
  request.set_request_id("once");
  // Before the selecting work is done.
  const auto locked = coordinator_->LockSweep(request);
  ASSERT_TRUE(locked.ok()) << locked.status();
  EXPECT_EQ(locked->phase(), v1::CONFIRMING);
  EXPECT_FALSE(locked->sealed());
  EXPECT_EQ(coordinator_->LockSweep(request)->SerializeAsString(), locked->SerializeAsString());
  request.set_request_id("twice");
  EXPECT_EQ(coordinator_->LockSweep(request).status().code(), absl::StatusCode::kFailedPrecondition);
  RunUntilOver("sealed");
  const v1::GetClaimsResponse claims = Claims("sealed");
  EXPECT_TRUE(claims.lock().by_hand());
  EXPECT_EQ(claims.lock().why(), "p = 7 is too slow");
  ASSERT_EQ(claims.deviations_size(), 2);
  EXPECT_EQ(claims.deviations(0).kind(), "lock_by_hand");
  // What the rule would have picked, now that its runs are there.
  EXPECT_EQ(claims.deviations(1).kind(), "rule_after_lock");
  EXPECT_THAT(claims.lock().rule_arm_json(), HasSubstr("\"attention.p\":7"));
  EXPECT_THAT(claims.deviations(0).text(), HasSubstr("p = 7 is too slow"));
  EXPECT_THAT(claims.claims(0).arm_json(), HasSubstr("\"attention.p\":3"));
  EXPECT_THAT(claims.claims(0).standing(), HasSubstr("locked by hand"));
  EXPECT_EQ(Get("sealed").state(), v1::SWEEP_SUCCEEDED);

  ASSERT_TRUE(Submit(kPlainSweep).ok());
  request.set_sweep("plain");
  request.set_request_id("");
  EXPECT_EQ(coordinator_->LockSweep(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClaimsTest, NothingIsLockedWhileARunIsMissing) {
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  FailOneCandidate();
  WaitForDecisions();
  const v1::Sweep sweep = Get("sealed");
  EXPECT_EQ(sweep.state(), v1::SWEEP_FAILED);
  EXPECT_TRUE(sweep.sealed());
  EXPECT_THAT(sweep.waiting_for(), HasSubstr("seed"));
  EXPECT_EQ(Claims("sealed").waiting_for(), sweep.waiting_for());
  EXPECT_FALSE(Claims("sealed").has_lock());
  // The decision is the same after a restart; and a retry goes on.
  Open();
  WaitForDecisions();
  EXPECT_EQ(Get("sealed").waiting_for(), sweep.waiting_for());
  v1::RetrySweepRequest retry;
  retry.set_sweep("sealed");
  const auto retried = coordinator_->RetrySweep(retry);
  ASSERT_TRUE(retried.ok()) << retried.status();
  EXPECT_GT(retried->new_jobs(), 0);
  RunUntilOver("sealed");
  EXPECT_EQ(Get("sealed").state(), v1::SWEEP_SUCCEEDED);
  ASSERT_EQ(Claims("sealed").deviations_size(), 1);
  EXPECT_EQ(Claims("sealed").deviations(0).kind(), "jobs_retried");
  EXPECT_THAT(Claims("sealed").deviations(0).text(), HasSubstr("run again: 4 failed jobs"));
}

TEST_F(ClaimsTest, CancelledJobsThatAreRunAgainAreNotCalledFailed) {
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  v1::CancelSweepRequest cancel;
  cancel.set_sweep("sealed");
  ASSERT_TRUE(coordinator_->CancelSweep(cancel).ok());
  v1::RetrySweepRequest retry;
  retry.set_sweep("sealed");
  const auto retried = coordinator_->RetrySweep(retry);
  ASSERT_TRUE(retried.ok()) << retried.status();
  ASSERT_EQ(Claims("sealed").deviations_size(), 1);
  EXPECT_EQ(Claims("sealed").deviations(0).text(), absl::StrCat("run again: ", retried->new_jobs(), " cancelled jobs"));
}

TEST_F(ClaimsTest, AnotherCommentIsNoOtherSweep) {
  // Maps have no order, so the bytes of two equal files differ now and then.
  std::string yaml = "name: mapped\nexecutor: noop\nseeds: 1\narms:\n";
  for (int arm = 0; arm < 8; ++arm) {
    absl::StrAppend(&yaml, "  - {attention.variant: lssar, attention.p: ", arm + 1, ", factors: {a: x", arm, ", b: y",
                    arm, ", c: z, d: u, e: v, f: w}}\n");
  }
  ASSERT_TRUE(Submit(yaml).ok());
  for (int i = 0; i < 10; ++i) {
    const auto again = Submit(absl::StrCat(yaml, "# comment ", i, "\n"));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_FALSE(again->created());
  }
}

TEST_F(ClaimsTest, DivergedSeedsAreInViewAndALostOneWaits) {
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  Get("sealed");
  // Of the selected p = 7, seed 100 diverges; of p = 15, seed 101 fails for good.
  bool failed = false;
  for (int round = 0; round < 2000; ++round) {
    ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
    if (worker_.assigned().empty()) {
      if (Get("sealed").state() != v1::SWEEP_RUNNING) break;
      WaitForDecisions();
      continue;
    }
    for (const auto& [key, assignment] : worker_.assigned()) {
      worker_.Succeed(assignment);
      if (!assignment.task().has_stage()) continue;
      const v1::StageTask& task = assignment.task().stage();
      const ConfigView config(task.config());
      const bool lssar = config.Text("attention.variant") == "lssar";
      if (task.seed() == 100 && lssar && config.Number("attention.p") == 7) {
        v1::TaskResult* result = worker_.Succeed(assignment).mutable_result();
        result->clear_metrics();
        result->set_outcome(v1::DIVERGED);
        result->set_diverged_at_step(7);
      } else if (task.seed() == 101 && lssar && config.Number("attention.p") == 15 && !failed) {
        failed = true;
        worker_.Report(assignment, v1::AttemptReport::FAILED).mutable_failure()->set_kind(v1::INVALID_CONFIG);
      }
    }
  }
  ASSERT_TRUE(failed);
  EXPECT_EQ(Get("sealed").state(), v1::SWEEP_FAILED);
  while (Get("sealed").waiting_for().empty()) std::this_thread::yield();
  EXPECT_THAT(Get("sealed").waiting_for(), HasSubstr("101"));
  // What is there is shown, without a p.
  EXPECT_EQ(ClaimRows("sealed")[1].verdict(), v1::UNDECIDED);
  EXPECT_FALSE(ClaimRows("sealed")[1].has_p());
  EXPECT_THAT(ClaimRows("sealed")[1].sentence(), HasSubstr("pairs are missing"));
  v1::GetTableRequest request;
  request.set_sweep("sealed");
  request.add_metrics("loss_targets");
  const auto table = coordinator_->GetTable(request);
  ASSERT_TRUE(table.ok()) << table.status();
  int diverged = 0, missing = 0;
  for (const v1::ConfidenceRow& row : table->rows()) {
    if (row.phase() != v1::CONFIRMING) continue;
    if (row.arm_json().find(":7,") != std::string::npos) {
      EXPECT_THAT(row.diverged_seeds(), ElementsAre(100));
      EXPECT_THAT(row.note(), HasSubstr("survivors only: 1 of 8 seeds diverged (seed 100)"));
      ++diverged;
    } else if (row.arm_json().find(":15,") != std::string::npos) {
      EXPECT_THAT(row.missing_seeds(), ElementsAre(101));
      EXPECT_EQ(row.n(), 7);
      ++missing;
    }
  }
  EXPECT_GT(diverged, 0);
  EXPECT_GT(missing, 0);
  v1::RetrySweepRequest retry;
  retry.set_sweep("sealed");
  ASSERT_TRUE(coordinator_->RetrySweep(retry).ok());
  RunUntilOver("sealed");
  // A claim about means with a diverged run is undecided.
  const v1::GetClaimsResponse claims = Claims("sealed");
  EXPECT_EQ(Get("sealed").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(claims.claims(0).verdict(), v1::UNDECIDED) << claims.claims(0).ShortDebugString();
  EXPECT_FALSE(claims.claims(0).has_p());
  EXPECT_EQ(claims.claims(1).verdict(), v1::SUPPORTED);
}

TEST_F(ClaimsTest, AnExtensionIsAnAmendmentAndExploratory) {
  ASSERT_TRUE(Submit(kPlainSweep).ok());
  ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
  ASSERT_EQ(Get("plain").state(), v1::SWEEP_SUCCEEDED);
  std::string more = kPlainSweep;
  Replace(&more, "seeds: 3", "seeds: 5");
  Replace(&more, "lengths: [1x, 2x]", "lengths: [1x, 2x, 4x]");
  v1::ExtendSweepRequest request;
  request.set_sweep("plain");
  request.set_yaml(more);
  request.set_file_name("more.yaml");
  request.set_request_id("once");
  const auto extended = coordinator_->ExtendSweep(request);
  ASSERT_TRUE(extended.ok()) << extended.status();
  EXPECT_TRUE(extended->created());
  EXPECT_EQ(extended->sweep().state(), v1::SWEEP_RUNNING);
  EXPECT_EQ(extended->sweep().seeds(), 5);
  // 2 arms: 2 new seeds with 3 lengths, and the third length of 3 old seeds, whose weights are kept.
  EXPECT_EQ(extended->new_jobs(), 2 * (2 + 2 * 3 + 3));
  EXPECT_EQ(coordinator_->ExtendSweep(request)->new_jobs(), extended->new_jobs());
  request.set_request_id("again");
  const auto again = coordinator_->ExtendSweep(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->created());
  EXPECT_EQ(again->new_jobs(), 0);
  Open();
  ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
  EXPECT_EQ(Get("plain").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(One("SELECT MIN(n), MAX(n), COUNT(*) FROM confidence_intervals WHERE metric = 'loss'"), "5|5|6");
  EXPECT_EQ(One("SELECT kind FROM deviations"), "extended");
  EXPECT_EQ(One("SELECT COUNT(*), COUNT(yaml), COUNT(DISTINCT plan_sha256) FROM plan_versions"), "2|2|2");
  // The new file is the sweep's file now.
  const auto same = Submit(more);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_FALSE(same->created());
  // Taking away is refused, and so is another name, or another number.
  request.set_yaml(kPlainSweep);
  request.set_request_id("less");
  EXPECT_EQ(coordinator_->ExtendSweep(request).status().code(), absl::StatusCode::kInvalidArgument);
  Replace(&more, "name: plain", "name: other");
  request.set_yaml(more);
  EXPECT_EQ(coordinator_->ExtendSweep(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClaimsTest, ASealedSweepGrowsInExploratoryNumbersOnly) {
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  std::string more = kSealedSweep;
  Replace(&more, "seeds: 8", "seeds: 9");
  v1::ExtendSweepRequest request;
  request.set_sweep("sealed");
  request.set_yaml(more);
  EXPECT_EQ(coordinator_->ExtendSweep(request).status().code(), absl::StatusCode::kFailedPrecondition);
  // Nor may it peek at its own confirming lengths while it is sealed.
  more = kSealedSweep;
  Replace(&more, "lengths: [1x, 2x, 4x]", "lengths: [1x, 2x, 4x, 8x]");
  request.set_yaml(more);
  const absl::Status peek = coordinator_->ExtendSweep(request).status();
  EXPECT_FALSE(peek.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(peek) || absl::IsInvalidArgument(peek)) << peek;
  RunUntilOver("sealed");
  const std::string before = Outcome("sealed");
  more = kSealedSweep;
  Replace(&more, "lengths: [1x, 2x, 4x]", "lengths: [1x, 2x, 3x, 4x]");
  request.set_yaml(more);
  const auto extended = coordinator_->ExtendSweep(request);
  ASSERT_TRUE(extended.ok()) << extended.status();
  EXPECT_GT(extended->new_jobs(), 0);
  RunUntilOver("sealed");
  EXPECT_EQ(Get("sealed").state(), v1::SWEEP_SUCCEEDED);
  // The claims are what they were, what was dropped stays dropped, and the plan that was sealed is named as before.
  EXPECT_EQ(Outcome("sealed"), before);
  EXPECT_EQ(One("SELECT COUNT(*) FROM points WHERE seal = 'dropped'"), "16");
  EXPECT_EQ(One("SELECT DISTINCT standing FROM results WHERE length = 3 * 256"), "exploratory");
  EXPECT_THAT(Claims("sealed").deviations(0).text(), HasSubstr("their numbers are exploratory"));
}

TEST_F(ClaimsTest, ClaimsOnSeveralTextsAndSpreadOverDocuments) {
  worker_.documents = 12;
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  RunUntilOver("sealed");
  std::string second = kSealedSweep;
  Replace(&second, "name: sealed", "name: second\ndata: {name: other, path: b.txt, format: text, sha256: \"" +
                                       Sha256Hex("another text") + "\"}");
  ASSERT_TRUE(Submit(second).ok());
  RunUntilOver("second");
  v1::GetClaimsRequest request;
  request.set_sweep("sealed");
  request.add_also("sealed");
  EXPECT_THAT(std::string(coordinator_->GetClaims(request).status().message()), HasSubstr("are on the same text"));
  request.set_also(0, "second");
  const auto both = coordinator_->GetClaims(request);
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->claims_size(), 3);
  EXPECT_EQ(both->claims(0).verdict(), v1::SUPPORTED);

  v1::GetSpreadRequest spread;
  spread.set_sweep("sealed");
  const auto rows = coordinator_->GetSpread(spread);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_GT(rows->rows_size(), 0);
  for (const v1::SpreadRow& row : rows->rows()) {
    EXPECT_EQ(row.documents(), 12);
    EXPECT_TRUE(row.has_mean() && row.has_sd_seeds() && row.has_sd_documents() && row.has_low());
  }
  EXPECT_EQ(One("SELECT MIN(count), MAX(length(documents)) FROM document_losses"), "12|192");
}

TEST_F(ClaimsTest, EffectsOfAFactorial) {
  const auto submitted = Submit(R"(name: factors
executor: noop
settings: {attention.variant: lssar}
axes: {attention.qk_norm: [none, l2], attention.p: [none, 15]}
seeds: 4
evaluate: {lengths: [2x]}
factorial: {factors: [attention.qk_norm, attention.p]}
)");
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  RunUntilOver("factors");
  v1::GetEffectsRequest request;
  request.set_sweep("factors");
  const auto effects = coordinator_->GetEffects(request);
  ASSERT_TRUE(effects.ok()) << effects.status();
  ASSERT_EQ(effects->rows_size(), 3);
  EXPECT_EQ(effects->rows(0).n(), 4);
  EXPECT_EQ(effects->rows(2).factors_size(), 2);
  request.add_factors("attention.pp");
  EXPECT_EQ(coordinator_->GetEffects(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClaimsTest, ASweepWithoutFactorsHasNoEffects) {
  ASSERT_TRUE(Submit("name: plain\nexecutor: noop\nseeds: 2\nevaluate: {lengths: [2x]}\n").ok());
  v1::GetEffectsRequest request;
  request.set_sweep("plain");
  const auto effects = coordinator_->GetEffects(request);
  ASSERT_TRUE(effects.ok()) << effects.status();
  EXPECT_EQ(effects->rows_size(), 0);
}

}  // namespace
}  // namespace ablate
