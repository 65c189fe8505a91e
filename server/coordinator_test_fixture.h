// For tests: a coordinator with its real store on a FakeClock, two sweep files, and ways to look into its database.
#pragma once

#include <limits>
#include <memory>
#include <set>
#include <string>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator.h"
#include "server/coordinator_test_util.h"

namespace ablate {

inline constexpr char kNoop[] = R"(name: noop
executor: noop
arms:
  - {attention.variant: softmax}
  - {attention.variant: ssmax}
axes: {eval.ntk: [off, on]}
seeds: 3
evaluate: {lengths: [1x, 2x]}
)";

inline constexpr char kTrained[] = R"(name: trained
data: {name: text, path: a.txt, format: text}
settings: {train.steps: 100}
keep: none
arms:
  - {attention.variant: softmax}
  - attention.variant: softmax
    switch: [{at_step: 50, attention.variant: ssmax}]
seeds: 2
evaluate: {lengths: [1x, 2x]}
)";

class CoordinatorTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }

  void Open() {
    coordinator_.reset();
    CoordinatorOptions options;
    options.data_dir = dir_.path();
    options.clock = &clock_;
    options.ids = &ids_;
    options.idle_wait_ms = 0;
    options.has_artifact = [this](const std::string& sha256) { return !missing_.contains(sha256); };
    options.delete_artifact = [this](const std::string& sha256) { deleted_.insert(sha256); };
    options.before_commit = [this] { return commit_error_; };
    auto coordinator = Coordinator::Open(options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
  }

  absl::StatusOr<v1::SubmitSweepResponse> Submit(const std::string& yaml, const std::string& request_id = "") {
    v1::SubmitSweepRequest request;
    request.set_request_id(request_id);
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

  v1::Sweep Get(const std::string& name) {
    v1::GetSweepRequest request;
    request.set_sweep(name);
    auto sweep = coordinator_->GetSweep(request);
    EXPECT_TRUE(sweep.ok()) << sweep.status();
    return sweep.value_or(v1::Sweep());
  }

  std::vector<v1::Job> Jobs(const std::string& sweep) {
    v1::ListJobsRequest request;
    request.set_sweep(sweep);
    request.set_page_size(1000);
    auto jobs = coordinator_->ListJobs(request);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    return {jobs->jobs().begin(), jobs->jobs().end()};
  }

  absl::StatusOr<std::vector<std::string>> Query(const std::string& sql) { return QueryRows(*coordinator_, sql); }
  std::string One(const std::string& sql) {
    const auto rows = Query(sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() && rows->size() == 1 ? rows->front() : absl::StrCat(rows.ok() ? rows->size() : 0, " rows");
  }

  TempDir dir_;
  FakeClock clock_;
  CountingIdGenerator ids_;
  std::set<std::string> missing_, deleted_;
  absl::Status commit_error_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace ablate
