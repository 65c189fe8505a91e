// For tests of sweeps with phases: the coordinator with its real store, a worker whose losses depend on arm, length and
// seed, and sweep files. Waits for what the coordinator's ticker decides, never for a time.
#pragma once

#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "experiments/axes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator.h"
#include "server/coordinator_test_util.h"

namespace ablate {

inline constexpr char kPlainSweep[] = R"(name: plain
executor: noop
keep: weights
arms:
  - {attention.variant: softmax}
  - {attention.variant: ssmax}
seeds: 3
evaluate: {lengths: [1x, 2x]}
)";

inline constexpr char kSealedSweep[] = R"(name: sealed
executor: noop
settings: {train.steps: 600}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3, 7, 15]}
baseline: {attention.variant: softmax}
seeds: 5
evaluate: {lengths: [1x, 2x, 4x]}
select:
confirm:
  seeds: 8
  fixed: [{attention.variant: lssar, attention.p: 15}]
claims:
  - {name: selected-lower, kind: differs, arm: selected, length: 8x, direction: lower, main: yes}
  - {name: p15-lower, kind: differs, arm: {attention.p: 15}, length: 8x, direction: lower}
  - {name: p15-at-16x, kind: differs, arm: {attention.p: 15}, length: 16x}
)";

inline constexpr char kTunedSweep[] = R"(name: tuned
executor: noop
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: 15}
baseline: {attention.variant: softmax}
tune: {learning_rates: [1e-3, 2e-3, 4e-3]}
confirm: {seeds: 8}
claims:
  - {name: p15-lower, kind: differs, arm: {attention.p: 15}, length: 8x, direction: lower, main: yes}
)";

class ClaimsFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    worker_.loss_targets = &Loss;
    Open();
  }

  // p = 7 is best, p = 15 second; with noise that differs by seed and arm. Learning rates: 2e-3 is best for softmax,
  // 8e-3 for the others.
  static double Loss(const v1::EvaluationTask& task) {
    const ConfigView config(task.config());
    const std::string noise = Sha256Hex(absl::StrCat(ToJson(task.config()), task.seed(), " ", task.length_tokens()));
    double loss = 2 + 0.1 * std::log2(static_cast<double>(task.length_tokens())) +
                  0.05 * static_cast<double>(task.seed() % 10) +
                  0.01 * static_cast<double>(std::stoi(noise.substr(0, 3), nullptr, 16)) / 4096;
    if (config.Text("attention.variant") == "lssar") {
      const double p = config.Number("attention.p");
      loss -= p == 7 ? 0.07 : p == 15 ? 0.05 : 0.01;
    }
    const double best = config.Text("attention.variant") == "softmax" ? 2e-3 : 8e-3;
    const double off = std::log2(config.Number("train.learning_rate") / best);
    return task.split() == "selection" && task.length_tokens() == 256 ? loss + 0.2 * off * off : loss;
  }

  // A new coordinator on the same folder.
  void Open() {
    coordinator_.reset();
    fail_next_commit_ = false;
    CoordinatorOptions options;
    options.data_dir = dir_->path();
    options.clock = &clock_;
    options.ids = &ids_;
    options.idle_wait_ms = 0;
    options.has_artifact = [this](const std::string& sha256) { return !missing_.contains(sha256); };
    options.delete_artifact = [this](const std::string& sha256) { deleted_.insert(sha256); };
    options.before_commit = [this]() -> absl::Status {
      ++commits_;
      return fail_next_commit_.exchange(false) ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
    };
    auto coordinator = Coordinator::Open(options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
  }
  // A new folder, and nothing remembered.
  void Reset() {
    coordinator_.reset();
    dir_ = std::make_unique<TempDir>();
    worker_ = FakeWorker("w", 4);
    worker_.loss_targets = &Loss;
    Open();
  }

  absl::StatusOr<v1::SubmitSweepResponse> Submit(const std::string& yaml) {
    v1::SubmitSweepRequest request;
    request.set_yaml(yaml);
    request.set_file_name("test.yaml");
    if (yaml.find("noop") == std::string::npos) {
      v1::DataFile* file = request.mutable_data()->add_files();
      file->set_path("a.txt");
      file->set_sha256(Sha256Hex("the text"));
      file->set_bytes(1000);
    }
    return coordinator_->SubmitSweep(request);
  }
  static void Replace(std::string* text, const std::string& from, const std::string& to) {
    const size_t at = text->find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text->replace(at, from.size(), to);
  }

  v1::Sweep Get(const std::string& name) {
    v1::GetSweepRequest request;
    request.set_sweep(name);
    while (true) {
      auto sweep = coordinator_->GetSweep(request);
      // A commit that a test lets fail is told to whoever asks meanwhile.
      if (absl::IsUnavailable(sweep.status())) continue;
      EXPECT_TRUE(sweep.ok()) << sweep.status();
      return sweep.value_or(v1::Sweep());
    }
  }
  v1::GetClaimsResponse Claims(const std::string& name) {
    v1::GetClaimsRequest request;
    request.set_sweep(name);
    auto claims = coordinator_->GetClaims(request);
    EXPECT_TRUE(claims.ok()) << claims.status();
    return claims.value_or(v1::GetClaimsResponse());
  }
  std::vector<v1::ClaimRow> ClaimRows(const std::string& name) {
    const v1::GetClaimsResponse claims = Claims(name);
    return {claims.claims().begin(), claims.claims().end()};
  }
  std::vector<v1::Job> Jobs(const std::string& sweep) {
    v1::ListJobsRequest request;
    request.set_sweep(sweep);
    request.set_page_size(1000);
    auto jobs = coordinator_->ListJobs(request);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    return {jobs->jobs().begin(), jobs->jobs().end()};
  }

  // Until some job may run, or the sweep says for what else it waits, or is over.
  void WaitForDecisions() {
    while (true) {
      v1::ListSweepsRequest request;
      const auto sweeps = coordinator_->ListSweeps(request);
      bool waits = !sweeps.ok();
      for (int i = 0; sweeps.ok() && i < sweeps->sweeps_size(); ++i) {
        const v1::Sweep& sweep = sweeps->sweeps(i);
        const bool idle = sweep.jobs().queued() + sweep.jobs().running() == 0;
        waits |= idle && sweep.waiting_for().empty() &&
                 (sweep.state() == v1::SWEEP_RUNNING || (sweep.state() == v1::SWEEP_FAILED && sweep.sealed()));
      }
      if (!waits) return;
      std::this_thread::yield();
    }
  }
  // Does all work, whatever is let go, until the sweep is over or waits for something else.
  void RunUntilOver(const std::string& name) {
    while (true) {
      ASSERT_TRUE(worker_.RunAll(*coordinator_).ok());
      WaitForDecisions();
      const v1::Sweep sweep = Get(name);
      if (sweep.jobs().queued() + sweep.jobs().running() == 0) return;
    }
  }

  // Does all work but one selecting training of p = 7, which fails for good: the rule cannot pick.
  void FailOneCandidate() {
    bool failed = false;
    while (true) {
      ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
      if (worker_.assigned().empty()) break;
      for (const auto& [key, assignment] : worker_.assigned()) {
        worker_.Succeed(assignment);
        const ConfigView config(assignment.task().stage().config());
        if (failed || !assignment.task().has_stage() || config.Text("attention.variant") != "lssar" ||
            config.Number("attention.p") != 7) {
          continue;
        }
        worker_.Fail(assignment, v1::INVALID_CONFIG);
        failed = true;
      }
    }
    ASSERT_TRUE(failed);
  }

  absl::StatusOr<std::vector<std::string>> Query(const std::string& sql) { return QueryRows(*coordinator_, sql); }
  std::string One(const std::string& sql) {
    const auto rows = Query(sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() && rows->size() == 1 ? rows->front() : absl::StrCat(rows.ok() ? rows->size() : 0, " rows");
  }

  // What a sweep has come to: everything that must not depend on who died when.
  std::string Outcome(const std::string& name) {
    v1::GetClaimsResponse claims = Claims(name);
    std::string text = claims.plan_sha256();
    claims.mutable_lock()->clear_at_us();
    absl::StrAppend(&text, "\n", claims.lock().arm_json(), claims.lock().rule_arm_json(), "\n");
    for (v1::TunedArm& arm : *claims.mutable_tuning()) {
      absl::StrAppend(&text, arm.arm_json(), " ", arm.learning_rate(), " of ", arm.tries_size(), "\n");
    }
    for (v1::ClaimRow& row : *claims.mutable_claims()) {
      row.clear_job_ids();
      absl::StrAppend(&text, v1::VerdictKind_Name(row.verdict()), " ", row.sentence(), " n ", row.n(), " estimate ",
                      row.estimate(), " p ", row.p_adjusted(), "\n");
    }
    const auto rows = Query(absl::StrCat(
        "SELECT arm, phase, metric, length, split, n, mean, standing FROM confidence_intervals WHERE sweep = '", name,
        "' AND metric = 'loss_targets' AND length <> 768 ORDER BY 1, 2, 3, 4, 5"));
    EXPECT_TRUE(rows.ok()) << rows.status();
    for (const std::string& row : rows.value_or(std::vector<std::string>())) absl::StrAppend(&text, row, "\n");
    return text;
  }

  std::unique_ptr<TempDir> dir_ = std::make_unique<TempDir>();
  FakeClock clock_;
  CountingIdGenerator ids_;
  std::set<std::string> missing_, deleted_;
  std::atomic<bool> fail_next_commit_ = false;
  std::atomic<int64_t> commits_ = 0;
  FakeWorker worker_{"w", 4};
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace ablate
