// What GetGrid, GetCurves and WatchChanges answer, from sweep file to number; and what a seal hides from them.
#include <cmath>
#include <limits>
#include <thread>

#include "experiments/curves.h"
#include "experiments/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_claims_test_util.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class CurvesFixture : public ClaimsFixture {
 protected:
  // What a training stage reports: every 10 steps a loss that tells arm, seed and step apart.
  static double LossAt(const v1::StageTask& task, int64_t step) {
    const double arm = ConfigView(task.config()).Text("attention.variant") == "softmax" ? 0 : 100;
    return arm + static_cast<double>(task.seed()) + 1000.0 / static_cast<double>(step);
  }
  static void AddPoints(const v1::StageTask& task, int64_t until, v1::AttemptReport* report) {
    for (int64_t step = task.from_step() + 10; step <= until; step += 10) {
      for (const char* metric : {"train_loss", "gradient_norm"}) {
        v1::CurvePoint* point = report->add_points();
        point->set_metric(metric);
        point->set_step(step);
        point->set_value(std::string(metric) == "train_loss" ? LossAt(task, step) : 1);
      }
    }
  }
  // Runs all there is, with points; `change` may change what a stage hands in.
  void RunWithPoints(const std::function<void(const v1::StageTask&, v1::AttemptReport*)>& change = nullptr) {
    while (true) {
      const auto response = worker_.Sync(*coordinator_);
      ASSERT_TRUE(response.ok()) << response.status();
      if (response->desired().empty()) return;
      for (const v1::Assignment& assignment : response->desired()) {
        v1::AttemptReport& report = worker_.Succeed(assignment);
        if (!assignment.task().has_stage()) continue;
        const v1::StageTask& task = assignment.task().stage();
        AddPoints(task, task.to_step(), &report);
        if (change) change(task, &report);
      }
    }
  }

  v1::GetCurvesResponse Curves(const std::string& sweep, const std::vector<std::string>& arms = {}, int max_points = 0,
                               const std::vector<std::string>& metrics = {}) {
    v1::GetCurvesRequest request;
    request.set_sweep(sweep);
    request.set_max_points(max_points);
    for (const std::string& arm : arms) request.add_arms_json(arm);
    for (const std::string& metric : metrics) request.add_metrics(metric);
    const auto curves = coordinator_->GetCurves(request);
    EXPECT_TRUE(curves.ok()) << curves.status();
    return curves.value_or(v1::GetCurvesResponse());
  }
  absl::Status CurvesError(const std::function<void(v1::GetCurvesRequest*)>& change) {
    v1::GetCurvesRequest request;
    request.set_sweep("s");
    change(&request);
    return coordinator_->GetCurves(request).status();
  }
  v1::GetGridResponse Grid(const std::string& sweep) {
    v1::GetGridRequest request;
    request.set_sweep(sweep);
    const auto grid = coordinator_->GetGrid(request);
    EXPECT_TRUE(grid.ok()) << grid.status();
    return grid.value_or(v1::GetGridResponse());
  }
  // "S" and the like by arm and seed, the phases of a cell joined; "sealed" ones as "x".
  static std::string Letters(const v1::GetGridResponse& grid, v1::Phase phase) {
    std::string text;
    int arm = -1;
    for (const v1::GetGridResponse::Cell& cell : grid.cells()) {
      if (cell.phase() != phase) continue;
      if (arm >= 0 && cell.arm() != arm) text += "|";
      arm = cell.arm();
      text += cell.sealed() ? "x" : v1::JobState_Name(cell.state()).substr(0, 1);
    }
    return text;
  }
};

constexpr char kPlain[] = R"(name: s
executor: noop
settings: {train.steps: 100}
arms: [{attention.variant: softmax}, {attention.variant: lssa}]
baseline: {attention.variant: lssa}
seeds: 3
evaluate: {lengths: [1x, 2x]}
)";

TEST_F(CurvesFixture, CurvesAreWhatTheWorkersReported) {
  ASSERT_TRUE(Submit(kPlain).ok());
  v1::GetCurvesResponse none = Curves("s");
  EXPECT_EQ(none.curves_size(), 6);
  EXPECT_EQ(none.curves(0).stored_points(), 0);
  EXPECT_EQ(none.curves(0).job_ids_size(), 1);
  EXPECT_EQ(none.means_size(), 0);
  RunWithPoints();
  const v1::GetCurvesResponse curves = Curves("s");
  EXPECT_THAT(curves.arms_json(), ElementsAre(R"({"attention.variant":"softmax"})", R"({"attention.variant":"lssa"})"));
  EXPECT_EQ(curves.level(), 0.95);
  EXPECT_EQ(curves.method(), "student_t");
  EXPECT_EQ(curves.note(), "");
  ASSERT_EQ(curves.curves_size(), 6);
  for (int i = 0; i < 6; ++i) {
    const v1::Curve& curve = curves.curves(i);
    EXPECT_EQ(curve.arm(), i / 3);
    EXPECT_EQ(curve.seed(), i % 3);
    EXPECT_EQ(curve.metric(), "train_loss");
    EXPECT_EQ(curve.phase(), v1::PLAIN);
    EXPECT_EQ(curve.stored_points(), 10);
    EXPECT_EQ(curve.diverged_at_step(), 0);
    ASSERT_EQ(curve.steps_size(), 10);
    for (int k = 0; k < 10; ++k) {
      EXPECT_EQ(curve.steps(k), 10 * (k + 1));
      EXPECT_EQ(curve.values(k), 100 * (i / 3) + i % 3 + 1000.0 / (10 * (k + 1)));
    }
  }
  ASSERT_EQ(curves.means_size(), 2);
  for (const v1::MeanCurve& mean : curves.means()) {
    EXPECT_THAT(mean.seeds(), ElementsAre(0, 1, 2));
    for (int k = 0; k < 10; ++k) {
      std::vector<double> values;
      for (int seed = 0; seed < 3; ++seed) values.push_back(curves.curves(mean.arm() * 3 + seed).values(k));
      const auto summary = Summarize(values);
      EXPECT_EQ(mean.means(k), summary->mean);
      EXPECT_EQ(mean.lows(k), *summary->low);
      EXPECT_EQ(mean.highs(k), *summary->high);
      EXPECT_EQ(mean.n(k), 3);
    }
  }
  // Each job that is named trained it.
  v1::GetJobRequest request;
  request.set_job_id(curves.curves(4).job_ids(0));
  EXPECT_EQ(coordinator_->GetJob(request)->job().task().stage().seed(), 1);
  EXPECT_EQ(Curves("s", {}, 0, {"gradient_norm", "train_loss", "gradient_norm"}).curves_size(), 12);
}

TEST_F(CurvesFixture, AMeanDependsOnNothingElseThatIsShown) {
  ASSERT_TRUE(Submit(kPlain).ok());
  RunWithPoints();
  const std::string lssa = R"({"attention.variant":"lssa"})";
  const v1::GetCurvesResponse both = Curves("s"), one = Curves("s", {lssa, R"({"attention.variant": "lssa"})"});
  EXPECT_THAT(one.arms_json(), ElementsAre(lssa));
  ASSERT_EQ(one.means_size(), 1);
  ASSERT_EQ(one.curves_size(), 3);
  v1::MeanCurve expected = both.means(1);
  expected.set_arm(0);
  EXPECT_EQ(one.means(0).SerializeAsString(), expected.SerializeAsString());
}

TEST_F(CurvesFixture, ThinnedCurvesKeepTheirMeans) {
  std::string yaml = kPlain;
  Replace(&yaml, "train.steps: 100", "train.steps: 5000");
  ASSERT_TRUE(Submit(yaml).ok());
  RunWithPoints();
  const v1::GetCurvesResponse all = Curves("s", {}, 5000), thin = Curves("s", {}, 16);
  EXPECT_EQ(all.note(), "");
  EXPECT_THAT(thin.note(), HasSubstr("6 of 6 curves are thinned to 16 points"));
  EXPECT_EQ(all.curves(0).steps_size(), 500);
  EXPECT_LE(thin.curves(0).steps_size(), 16);
  EXPECT_EQ(thin.curves(0).stored_points(), 500);
  for (int m = 0; m < 2; ++m) {
    EXPECT_LE(thin.means(m).steps_size(), 16);
    for (int k = 0; k < thin.means(m).steps_size(); ++k) {
      const auto place = static_cast<int>(thin.means(m).steps(k) / 10 - 1);
      EXPECT_EQ(thin.means(m).means(k), all.means(m).means(place));
      EXPECT_EQ(thin.means(m).lows(k), all.means(m).lows(place));
    }
  }
}

TEST_F(CurvesFixture, SeedsThatDivergedOrAreMissingAreInView) {
  ASSERT_TRUE(Submit(kPlain).ok());
  RunWithPoints([](const v1::StageTask& task, v1::AttemptReport* report) {
    const bool softmax = ConfigView(task.config()).Text("attention.variant") == "softmax";
    if (softmax && task.seed() == 1) {  // not finite from step 50 on, where it ends
      report->mutable_result()->set_outcome(v1::DIVERGED);
      report->mutable_result()->set_diverged_at_step(50);
      while (report->points(report->points_size() - 1).step() > 50) report->mutable_points()->RemoveLast();
      report->mutable_points(8)->set_value(kNaN);
    }
    if (softmax && task.seed() == 2) report->clear_points();
  });
  const v1::GetCurvesResponse curves = Curves("s");
  ASSERT_EQ(curves.curves_size(), 6);
  EXPECT_EQ(curves.curves(1).diverged_at_step(), 50);
  EXPECT_EQ(curves.curves(1).steps_size(), 5);
  EXPECT_TRUE(std::isnan(curves.curves(1).values(4)));
  EXPECT_EQ(curves.curves(2).stored_points(), 0);
  const v1::MeanCurve& mean = curves.means(0);
  EXPECT_THAT(mean.n(), ElementsAre(2, 2, 2, 2, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(mean.seeds(), ElementsAre(0, 1));
  EXPECT_FALSE(std::isnan(mean.lows(3)));
  EXPECT_TRUE(std::isnan(mean.lows(4)) && std::isnan(mean.highs(4)));
  EXPECT_EQ(mean.means(4), curves.curves(0).values(4));
  const v1::GetGridResponse grid = Grid("s");
  EXPECT_TRUE(grid.cells(1).diverged());
  EXPECT_EQ(grid.cells(1).state(), v1::SUCCEEDED);
  EXPECT_FALSE(grid.cells(0).diverged());
}

TEST_F(CurvesFixture, AChainOfStagesIsOneCurve) {
  std::string yaml = kPlain;
  Replace(&yaml, "arms: [{attention.variant: softmax}, {attention.variant: lssa}]",
          "arms:\n  - {attention.variant: softmax}\n  - {attention.variant: lssa}\n"
          "  - {attention.variant: softmax, switch: [{at_step: 50, attention.variant: ssmax}]}");
  ASSERT_TRUE(Submit(yaml).ok());
  RunWithPoints();
  const v1::GetCurvesResponse curves = Curves("s");
  ASSERT_EQ(curves.curves_size(), 9);
  for (const int i : {0, 6}) {
    EXPECT_EQ(curves.curves(i).job_ids_size(), 2);
    EXPECT_EQ(curves.curves(i).stored_points(), 10);
    for (int k = 0; k < 10; ++k) EXPECT_EQ(curves.curves(i).steps(k), 10 * (k + 1));
  }
  EXPECT_EQ(curves.curves(0).job_ids(0), curves.curves(6).job_ids(0));  // what both share
  EXPECT_NE(curves.curves(0).job_ids(1), curves.curves(6).job_ids(1));
  EXPECT_EQ(curves.curves(6).values(4), curves.curves(0).values(4));
  EXPECT_EQ(curves.curves(6).values(5), curves.curves(0).values(5) + 100);
  EXPECT_EQ(Grid("s").cells(0).jobs(), 2 + 2);
}

TEST_F(CurvesFixture, WhatCannotBeAskedForIsRefused) {
  ASSERT_TRUE(Submit(kPlain).ok());
  const auto refused = [&](const std::function<void(v1::GetCurvesRequest*)>& change) {
    const absl::Status status = CurvesError(change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](auto* request) { request->add_metrics("train_los"); }), HasSubstr("did you mean \"train_loss\"?"));
  EXPECT_THAT(refused([](auto* request) { request->set_max_points(15); }), HasSubstr("16 to 5000"));
  EXPECT_THAT(refused([](auto* request) { request->set_max_points(5001); }), HasSubstr("16 to 5000"));
  refused([](auto* request) { request->set_level(1.5); });
  EXPECT_THAT(refused([](auto* request) { request->add_arms_json(R"({"attention.variant":"relu"})"); }), HasSubstr("arms_json"));
  EXPECT_THAT(refused([](auto* request) { request->add_arms_json("{"); }), HasSubstr("arms_json"));
  EXPECT_EQ(CurvesError([](auto* request) { request->set_sweep("t"); }).code(), absl::StatusCode::kNotFound);
  v1::GetGridRequest request;
  request.set_sweep("t");
  EXPECT_EQ(coordinator_->GetGrid(request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CurvesFixture, TheGridFollowsTheJobs) {
  ASSERT_TRUE(Submit(kPlain).ok());
  v1::GetGridResponse grid = Grid("s");
  ASSERT_EQ(grid.arms_size(), 2);
  EXPECT_FALSE(grid.arms(0).baseline());
  EXPECT_TRUE(grid.arms(1).baseline());
  EXPECT_THAT(grid.seeds(), ElementsAre(0, 1, 2));
  EXPECT_EQ(Letters(grid, v1::PLAIN), "QQQ|QQQ");
  EXPECT_EQ(grid.cells(0).jobs(), 3);
  EXPECT_EQ(grid.cells(0).steps(), 100);
  // One slot: the first stage runs, at step 40.
  worker_ = FakeWorker("w", 1);
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  const v1::Assignment first = worker_.assigned().begin()->second;
  v1::AttemptReport& report = worker_.Report(first, v1::AttemptReport::RUNNING);
  report.set_step(40);
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  worker_.Clear();
  grid = Grid("s");
  ASSERT_EQ(Letters(grid, v1::PLAIN).find('R'), 0u);
  EXPECT_EQ(grid.cells(0).job_id(), first.job_id());
  EXPECT_EQ(grid.cells(0).step(), 40);
  EXPECT_EQ(grid.cells(0).jobs_done(), 0);
  // It fails for good, with all that needs it; the rest succeeds.
  worker_.Fail(first, v1::INVALID_CONFIG);
  RunWithPoints();
  grid = Grid("s");
  EXPECT_EQ(Letters(grid, v1::PLAIN), "FSS|SSS");
  EXPECT_EQ(grid.cells(0).job_id(), first.job_id());
  EXPECT_EQ(grid.cells(0).failure(), v1::INVALID_CONFIG);
  EXPECT_EQ(grid.cells(1).jobs_done(), 3);
  EXPECT_EQ(grid.cells(1).step(), 100);
  EXPECT_EQ(grid.cells(1).failure(), v1::FAILURE_KIND_UNSPECIFIED);
  // A retry makes new jobs for it.
  v1::RetrySweepRequest retry;
  retry.set_sweep("s");
  ASSERT_TRUE(coordinator_->RetrySweep(retry).ok());
  grid = Grid("s");
  EXPECT_EQ(Letters(grid, v1::PLAIN), "QSS|SSS");
  EXPECT_NE(grid.cells(0).job_id(), first.job_id());
  RunWithPoints();
  EXPECT_EQ(Letters(Grid("s"), v1::PLAIN), "SSS|SSS");
  // The same from the disk.
  const std::string before = Grid("s").SerializeAsString();
  Open();
  EXPECT_EQ(Grid("s").SerializeAsString(), before);
}

TEST_F(CurvesFixture, ACancelledSweepShowsWhatWasDone) {
  ASSERT_TRUE(Submit(kPlain).ok());
  worker_ = FakeWorker("w", 1);
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  v1::CancelSweepRequest cancel;
  cancel.set_sweep("s");
  ASSERT_TRUE(coordinator_->CancelSweep(cancel).ok());
  EXPECT_EQ(Letters(Grid("s"), v1::PLAIN), "CCC|CCC");
}

TEST_F(CurvesFixture, WhatIsSealedIsNotShown) {
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  const auto check_sealed = [&] {
    const v1::GetGridResponse grid = Grid("sealed");
    int sealed = 0;
    for (const v1::GetGridResponse::Cell& cell : grid.cells()) {
      EXPECT_EQ(cell.sealed(), cell.phase() == v1::CONFIRMING);
      if (!cell.sealed()) continue;
      ++sealed;
      v1::GetGridResponse::Cell bare;
      bare.set_arm(cell.arm());
      bare.set_seed(cell.seed());
      bare.set_phase(v1::CONFIRMING);
      bare.set_state(v1::BLOCKED);
      bare.set_sealed(true);
      bare.set_jobs(cell.jobs());
      bare.set_steps(600);
      EXPECT_EQ(cell.SerializeAsString(), bare.SerializeAsString());
    }
    EXPECT_EQ(sealed, 5 * 8);
    for (const auto all = Curves("sealed"); const v1::Curve& curve : all.curves()) EXPECT_EQ(curve.phase(), v1::SELECTING);
  };
  check_sealed();
  // Some of the selecting runs are done, not all: nothing is locked.
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
    for (const auto& [key, assignment] : worker_.assigned()) {
      v1::AttemptReport& report = worker_.Succeed(assignment);
      if (assignment.task().has_stage()) AddPoints(assignment.task().stage(), 600, &report);
    }
  }
  check_sealed();
  // The rule locks; the confirming runs are let go: of the candidates only the one that it picked has cells and curves.
  RunUntilOver("sealed");
  std::set<int> confirmed;
  for (const auto all = Grid("sealed"); const v1::GetGridResponse::Cell& cell : all.cells()) {
    EXPECT_FALSE(cell.sealed());
    if (cell.phase() == v1::CONFIRMING) confirmed.insert(cell.arm());
  }
  EXPECT_THAT(confirmed, ElementsAre(0, 3, 4));  // baseline, p = 7 by the rule, p = 15 as declared
  std::set<int> curves;
  for (const auto all = Curves("sealed"); const v1::Curve& curve : all.curves()) {
    if (curve.phase() == v1::CONFIRMING) curves.insert(curve.arm());
  }
  EXPECT_EQ(curves, confirmed);
}

TEST_F(CurvesFixture, WhatWasSeenElsewhereIsStillSealedHere) {
  // A plain sweep has trained and measured what the sealed one confirms.
  std::string plain = kSealedSweep;
  plain.resize(plain.find("select:"));
  Replace(&plain, "name: sealed", "name: before");
  Replace(&plain, "seeds: 5", "seeds: 28");
  ASSERT_TRUE(Submit(plain).ok());
  RunWithPoints();
  std::string sealed = kSealedSweep;
  Replace(&sealed, "  seeds: 8\n", "  seeds: [20, 21, 22, 23, 24, 25, 26, 27]\n");
  ASSERT_TRUE(Submit(sealed).ok());
  int hidden = 0;
  for (const auto all = Grid("sealed"); const v1::GetGridResponse::Cell& cell : all.cells()) {
    if (!cell.sealed()) continue;
    ++hidden;
    EXPECT_EQ(cell.state(), v1::BLOCKED);
    EXPECT_EQ(cell.jobs_done() + cell.step(), 0);
    EXPECT_EQ(cell.job_id(), "");
  }
  EXPECT_GT(hidden, 0);
  for (const auto all = Curves("sealed"); const v1::Curve& curve : all.curves()) EXPECT_NE(curve.phase(), v1::CONFIRMING);
}

TEST_F(CurvesFixture, TuningArmsAreShownWhenAskedFor) {
  ASSERT_TRUE(Submit(kTunedSweep).ok());
  RunWithPoints();
  const v1::GetGridResponse grid = Grid("tuned");
  int tries = 0;
  for (const v1::GetGridResponse::Cell& cell : grid.cells()) {
    EXPECT_EQ(cell.phase() == v1::TUNING, grid.arms(cell.arm()).phase() == v1::TUNING);
    tries += cell.phase() == v1::TUNING;
  }
  EXPECT_GE(tries, 2 * 3 * 2);
  for (const auto all = Curves("tuned"); const v1::Curve& curve : all.curves()) EXPECT_NE(curve.phase(), v1::TUNING);
  std::string tuning;
  for (const v1::GetGridResponse::Arm& arm : grid.arms()) {
    if (arm.phase() == v1::TUNING) tuning = arm.arm_json();
  }
  const v1::GetCurvesResponse curves = Curves("tuned", {tuning});
  ASSERT_GT(curves.curves_size(), 0);
  for (const v1::Curve& curve : curves.curves()) EXPECT_EQ(curve.phase(), v1::TUNING);
}

TEST_F(CurvesFixture, ChangesAreTold) {
  std::atomic<bool> gone = false;
  std::atomic<int64_t> revision = 0;
  absl::Status status;
  std::thread watcher([&] {
    status = coordinator_->WatchChanges(
        {},
        [&](const v1::Changes& changes) {
          EXPECT_GT(changes.revision(), revision);
          revision = changes.revision();
          return true;
        },
        [&] { return gone.load(); });
  });
  const auto wait_beyond = [&](int64_t seen) {
    while (revision <= seen) std::this_thread::yield();
    return revision.load();
  };
  int64_t seen = wait_beyond(0);
  ASSERT_TRUE(Submit(kPlain).ok());
  seen = wait_beyond(seen);
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  seen = wait_beyond(seen);
  // Progress alone is a change too.
  worker_.Report(worker_.assigned().begin()->second, v1::AttemptReport::RUNNING).set_step(1);
  ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
  wait_beyond(seen);
  gone = true;
  watcher.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_F(CurvesFixture, WithoutChangesThereAreSignsOfLife) {
  coordinator_.reset();
  CoordinatorOptions options;
  options.data_dir = dir_->path();
  options.watch_heartbeat_ms = 1;
  options.read_only = true;
  for (const bool read_only : {false, true}) {
    auto opened = read_only ? Coordinator::OpenReadOnly(options, {}) : Coordinator::Open(CoordinatorOptions{
                                  .data_dir = dir_->path(), .watch_heartbeat_ms = 1});
    ASSERT_TRUE(opened.ok()) << opened.status();
    int messages = 0;
    std::set<int64_t> revisions;
    const absl::Status status = (*opened)->WatchChanges(
        {},
        [&](const v1::Changes& changes) {
          revisions.insert(changes.revision());
          if (++messages == 2) (*opened)->Shutdown();
          return true;
        },
        [] { return false; });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(messages, 2);
    EXPECT_EQ(revisions.size(), 1u);
  }
}

// Answers are kept from question to question: whoever asks at every step gets what one gets who asks for the first time.
TEST_F(CurvesFixture, KeptAnswersAreNeverOld) {
  const auto ask = [](Coordinator& coordinator) {
    std::string all;
    for (const char* sweep : {"s", "t"}) {
      const auto add = [&](const auto& answer) {
        EXPECT_TRUE(answer.ok()) << answer.status();
        if (answer.ok()) absl::StrAppend(&all, answer->SerializeAsString(), "\n");
      };
      v1::GetTableRequest table;
      table.set_sweep(sweep);
      add(coordinator.GetTable(table));
      v1::CompareArmsRequest comparison;
      comparison.set_sweep(sweep);
      add(coordinator.CompareArms(comparison));
      v1::GetSpreadRequest spread;
      spread.set_sweep(sweep);
      add(coordinator.GetSpread(spread));
      v1::GetCurvesRequest curves;
      curves.set_sweep(sweep);
      add(coordinator.GetCurves(curves));
      v1::GetGridRequest grid;
      grid.set_sweep(sweep);
      add(coordinator.GetGrid(grid));
    }
    return all;
  };
  std::set<std::string> answers;
  const auto check = [&] {
    CoordinatorOptions options;
    options.data_dir = dir_->path();
    const auto fresh = Coordinator::OpenReadOnly(options, {});
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    const std::string kept = ask(*coordinator_);
    EXPECT_EQ(kept, ask(**fresh)) << "after " << answers.size() << " different answers";
    EXPECT_EQ(ask(*coordinator_), kept);
    answers.insert(kept);
  };
  // Two sweeps that share everything, and one training that fails for both.
  std::string other = kPlain;
  Replace(&other, "name: s", "name: t");
  ASSERT_TRUE(Submit(kPlain).ok());
  ASSERT_TRUE(Submit(other).ok());
  check();
  worker_ = FakeWorker("w", 2);
  worker_.loss_targets = &Loss;
  bool failed = false;
  for (bool more = true; more;) {
    const auto response = worker_.Sync(*coordinator_);
    ASSERT_TRUE(response.ok());
    more = !response->desired().empty();
    for (const v1::Assignment& assignment : response->desired()) {
      v1::AttemptReport& report = worker_.Succeed(assignment);
      if (!assignment.task().has_stage()) continue;
      AddPoints(assignment.task().stage(), 100, &report);
      if (!failed) worker_.Fail(assignment, v1::INVALID_CONFIG).clear_result();
      failed = true;
    }
    check();
  }
  // Only the second makes it again: the first shows it all the same, as its key is measured now.
  v1::RetrySweepRequest retry;
  retry.set_sweep("t");
  ASSERT_TRUE(coordinator_->RetrySweep(retry).ok());
  check();
  const size_t before = answers.size();
  for (bool more = true; more;) {
    const auto response = worker_.Sync(*coordinator_);
    ASSERT_TRUE(response.ok());
    more = !response->desired().empty();
    for (const v1::Assignment& assignment : response->desired()) {
      // Half of its curve first, without a change of state.
      if (assignment.task().has_stage()) {
        v1::AttemptReport& report = worker_.Report(assignment, v1::AttemptReport::RUNNING);
        AddPoints(assignment.task().stage(), 50, &report);
        ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
        worker_.Clear();
        check();
      }
      worker_.Succeed(assignment);
    }
    check();
  }
  EXPECT_GE(answers.size(), before + 3);
}

TEST_F(CurvesFixture, AReadOnlyCoordinatorAnswersTheSame) {
  ASSERT_TRUE(Submit(kPlain).ok());
  RunWithPoints();
  const std::string grid = Grid("s").SerializeAsString(), curves = Curves("s").SerializeAsString();
  coordinator_.reset();
  CoordinatorOptions options;
  options.data_dir = dir_->path();
  auto sound = Coordinator::OpenReadOnly(options, {});
  ASSERT_TRUE(sound.ok());
  coordinator_ = *std::move(sound);
  EXPECT_EQ(Grid("s").SerializeAsString(), grid);
  EXPECT_EQ(Curves("s").SerializeAsString(), curves);
  // Of a damaged database curves are shown with a word about the damage, the grid not at all: jobs may be lost.
  auto damaged = Coordinator::OpenReadOnly(options, {.damage = "3 rows of curves are lost"});
  ASSERT_TRUE(damaged.ok());
  coordinator_ = *std::move(damaged);
  v1::GetGridRequest request;
  request.set_sweep("s");
  EXPECT_EQ(coordinator_->GetGrid(request).status().code(), absl::StatusCode::kDataLoss);
  v1::GetCurvesResponse left = Curves("s");
  EXPECT_EQ(left.note(), "3 rows of curves are lost");
  left.clear_note();
  EXPECT_EQ(left.SerializeAsString(), curves);
}

}  // namespace
}  // namespace ablate
