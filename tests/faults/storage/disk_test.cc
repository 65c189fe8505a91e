// A whole sweep (submission, lock, leases, results, a restart) over a disk that fails: each write, fsync, truncation, lock,
// read and opening of the database in turn, once or until it is mended; and power cuts that lose what was not
// fsynced. After each: answers were true (OK is stored, all else is Unavailable), memory is not ahead of the disk, the
// check finds no fault, and in the end the results are those of an undisturbed run, bit for bit, each once.
// ABLATE_LONG_FAULTS=1: every call of the scenario, not a sample; ABLATE_FAULT_SEED chooses the sample.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "server/coordinator.h"
#include "server/coordinator_test_util.h"
#include "server/store/check.h"
#include "server/store/sqlite.h"
#include "server/store/testing/fault_vfs.h"

namespace ablate {
namespace {

constexpr char kSweep[] = R"(name: disk
executor: noop
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3]}
baseline: {attention.variant: softmax}
seeds: 2
evaluate: {lengths: [1x]}
select:
confirm: {seeds: 5}
claims:
  - {name: selected, kind: differs, arm: selected, length: 8x}
)";

bool LongRun() { return std::getenv("ABLATE_LONG_FAULTS") != nullptr; }
uint64_t Seed() {
  const char* seed = std::getenv("ABLATE_FAULT_SEED");
  return seed == nullptr ? 20261130 : std::strtoull(seed, nullptr, 10);
}

std::vector<std::string> Rows(Connection& db, const std::string& sql) {
  std::vector<std::string> all;
  auto rows = db.Query(sql);
  EXPECT_TRUE(rows.ok()) << rows.status();
  while (rows.ok()) {
    const auto more = rows->Step();
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    std::string& text = all.emplace_back();
    for (int i = 0; i < rows->Columns(); ++i) absl::StrAppend(&text, i > 0 ? "|" : "", rows->Text(i));
  }
  return all;
}

std::vector<std::string> Results(const std::string& dir) {
  auto db = Connection::Open(JoinPath(dir, "ablate.db"), Connection::Mode::kReadOnly);
  EXPECT_TRUE(db.ok()) << db.status();
  return Rows(**db, "SELECT arm, seed, metric, length, split, ntk, quote(value), status, phase, standing FROM results "
                    "ORDER BY 1, 2, 3, 4, 5, 6, 9");
}

// What the test has been answered so far.
struct Answered {
  bool submitted = false, locked = false;
  std::set<std::string> jobs;
};

class Scenario {
 public:
  Scenario(std::string dir, FaultVfs* vfs, std::string incarnation = "first")
      : dir_(std::move(dir)), vfs_(vfs), worker_("w", 6) {
    worker_.Restart(incarnation);
  }

  // The whole scenario, or what is left of it.
  void Go() {
    Open();
    v1::SubmitSweepRequest submit;
    submit.set_request_id("submit");
    submit.set_yaml(kSweep);
    submit.set_file_name("disk.yaml");
    if (!Retry([&] { return coordinator_->SubmitSweep(submit).status(); })) return;
    Note([](Answered* answered) { answered->submitted = true; });
    v1::LockSweepRequest lock;
    lock.set_request_id("lock");
    lock.set_sweep("disk");
    lock.set_arm_json(R"({"attention.p":3,"attention.variant":"lssar"})");
    lock.set_why("a test");
    if (!Retry([&] { return coordinator_->LockSweep(lock).status(); })) return;
    Note([](Answered* answered) { answered->locked = true; });
    bool restarted = false;
    for (int calls = 0; calls < 500; ++calls) {
      if (!Retry([&] { return worker_.Sync(*coordinator_).status(); })) return;
      Note([&](Answered* answered) {
        for (const v1::AttemptAck& ack : worker_.accepted) answered->jobs.insert(ack.job_id());
      });
      if (!restarted && worker_.accepted.size() > 20) {
        restarted = true;
        coordinator_.reset();
        Open();
        continue;
      }
      if (worker_.assigned().empty()) break;
      for (const auto& [key, assignment] : worker_.assigned()) worker_.Succeed(assignment);
    }
    EXPECT_TRUE(worker_.refused.empty());
    coordinator_.reset();
    vfs_->Mend();
  }

  void ExpectSound(const std::vector<std::string>& expected) {
    {
      auto db = Connection::Open(JoinPath(dir_, "ablate.db"), Connection::Mode::kReadOnly);
      ASSERT_TRUE(db.ok()) << db.status();
      CheckReport report;
      CheckStructure(**db, false, &report);
      CheckInvariants(**db, &report);
      EXPECT_EQ(absl::StrJoin(report.faults, "\n"), "");
      EXPECT_EQ(Rows(**db, "SELECT state, COUNT(*) FROM jobs WHERE state NOT IN ('SUCCEEDED', 'CANCELLED') GROUP BY 1"),
                std::vector<std::string>());
    }
    EXPECT_EQ(Results(dir_), expected);
  }
  // Of the database as it is now: what had been answered is there.
  static void ExpectHas(const std::string& dir, const Answered& answered) {
    auto db = Connection::Open(JoinPath(dir, "ablate.db"), Connection::Mode::kReadOnly);
    ASSERT_TRUE(db.ok()) << db.status();
    CheckReport report;
    CheckStructure(**db, false, &report);
    CheckInvariants(**db, &report);
    EXPECT_EQ(absl::StrJoin(report.faults, "\n"), "");
    EXPECT_GE(*(*db)->QueryInt(0, "SELECT COUNT(*) FROM sweeps"), answered.submitted);
    EXPECT_GE(*(*db)->QueryInt(0, "SELECT COUNT(*) FROM locks"), answered.locked);
    for (const std::string& job : answered.jobs) {
      EXPECT_EQ(*(*db)->QueryInt(0, "SELECT state = 'SUCCEEDED' FROM jobs WHERE job_id = ?", job), 1) << job;
    }
  }

  Answered answered() {
    MutexLock lock(&mutex_);
    return answered_;
  }
  int refusals() const { return refusals_; }

 private:
  template <typename Change>
  void Note(Change change) {
    MutexLock lock(&mutex_);
    change(&answered_);
  }

  void Open() {
    CoordinatorOptions options;
    options.data_dir = dir_;
    options.clock = &clock_;
    options.ids = &ids_;
    options.idle_wait_ms = 0;
    Retry([&]() -> absl::Status {
      coordinator_.reset();
      auto opened = Coordinator::Open(options);
      if (!opened.ok()) return opened.status();
      coordinator_ = *std::move(opened);
      return absl::OkStatus();
    });
  }

  // Calls until it succeeds, as clients do; the disk is mended after the second refusal.
  template <typename Call>
  bool Retry(Call call) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int tries = 0; std::chrono::steady_clock::now() < deadline; ++tries) {
      const absl::Status status = call();
      if (status.ok()) return true;
      ++refusals_;
      if (status.code() != absl::StatusCode::kUnavailable && status.code() != absl::StatusCode::kResourceExhausted) {
        ADD_FAILURE() << "a failing disk was answered with " << status;
        return false;
      }
      if (tries >= 1) vfs_->Mend();
      if (coordinator_ != nullptr) ExpectMemoryIsTheDisk();
      std::this_thread::sleep_for(std::chrono::milliseconds(tries < 3 ? 0 : 5));
    }
    ADD_FAILURE() << "it never recovered";
    return false;
  }

  void ExpectMemoryIsTheDisk() {
    v1::ListJobsRequest request;
    request.set_sweep("disk");
    request.set_page_size(1000);
    const auto memory = coordinator_->ListJobs(request);
    if (!memory.ok()) return;  // still recovering, or no such sweep
    auto db = Connection::Open(JoinPath(dir_, "ablate.db"), Connection::Mode::kReadOnly);
    if (!db.ok()) return;
    std::map<std::string, std::string> disk;
    for (const std::string& row : Rows(**db, "SELECT job_id, state || ' ' || attempt FROM jobs")) {
      disk[row.substr(0, row.find('|'))] = absl::AsciiStrToUpper(row.substr(row.find('|') + 1));
    }
    for (const v1::Job& job : memory->jobs()) {
      EXPECT_EQ(absl::StrCat(v1::JobState_Name(job.state()), " ", job.attempt()), disk[job.job_id()]) << job.job_id();
    }
  }

  const std::string dir_;
  FaultVfs* const vfs_;
  FakeWorker worker_;
  FakeClock clock_;
  CountingIdGenerator ids_;
  int refusals_ = 0;
  Mutex mutex_;
  Answered answered_ ABLATE_GUARDED_BY(mutex_);
  std::unique_ptr<Coordinator> coordinator_;
};

class DiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // A new database, whose making is not part of the scenario.
    CoordinatorOptions options;
    options.data_dir = JoinPath(dir_.path(), "new");
    ASSERT_TRUE(Coordinator::Open(options).ok());
    fresh_ = *ReadFile(JoinPath(options.data_dir, "ablate.db"));
    Scenario run(Fresh(), &vfs_);
    vfs_.Mend();
    run.Go();
    expected_ = Results(JoinPath(dir_.path(), "run"));
    ASSERT_GT(expected_.size(), 40u);
    run.ExpectSound(expected_);
    ASSERT_FALSE(HasFailure());
  }

  std::string Fresh() {
    const std::string dir = JoinPath(dir_.path(), "run");
    EXPECT_TRUE(RemoveTree(dir).ok() && MakeDirs(dir).ok());
    EXPECT_TRUE(WriteFileAtomic(JoinPath(dir, "ablate.db"), fresh_).ok());
    return dir;
  }

  TempDir dir_;
  FaultVfs vfs_{"/run/ablate.db"};
  std::string fresh_;
  std::vector<std::string> expected_;
};

TEST_F(DiskTest, EachFailingCallIsAnsweredTrulyAndNothingIsLostOrTwice) {
  std::mt19937_64 random(Seed());
  struct Case {
    DiskCall call;
    DiskFault fault;
    bool sticky;
  };
  const Case cases[] = {
      {DiskCall::kWrite, DiskFault::kFull, false}, {DiskCall::kWrite, DiskFault::kFull, true},
      {DiskCall::kWrite, DiskFault::kError, true}, {DiskCall::kSync, DiskFault::kError, false},
      {DiskCall::kSync, DiskFault::kFull, true},   {DiskCall::kTruncate, DiskFault::kError, false},
      {DiskCall::kLock, DiskFault::kError, false}, {DiskCall::kRead, DiskFault::kError, false},
      {DiskCall::kOpen, DiskFault::kError, false}, {DiskCall::kShm, DiskFault::kError, false},
  };
  int runs = 0, refusals = 0;
  for (const Case& test : cases) {
    const int64_t before = vfs_.faults();
    int kind_runs = 0;
    const auto one = [&](int64_t n) {
      SCOPED_TRACE(absl::StrCat(DiskCallName(test.call), " ", n, test.fault == DiskFault::kFull ? " full" : " error",
                                test.sticky ? ", until mended" : ""));
      const int64_t faults = vfs_.faults();
      Scenario run(Fresh(), &vfs_);
      vfs_.FailNth(test.call, n, test.fault, test.sticky);
      run.Go();
      vfs_.Mend();
      run.ExpectSound(expected_);
      refusals += run.refusals();
      ++runs, ++kind_runs;
      return vfs_.faults() > faults;
    };
    if (LongRun()) {
      // The first n that the scenario does not reach ends it.
      for (int64_t n = 1; one(n) && !HasFatalFailure(); ++n) continue;
    } else {
      const int64_t reach = test.call == DiskCall::kTruncate || test.call == DiskCall::kShm ? 2 : test.call == DiskCall::kOpen ? 6 : 40;
      for (int i = 0; i < 2; ++i) one(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(reach)));
    }
    std::printf("%-13s %s%s: %d runs, %lld faults\n", DiskCallName(test.call),
                test.fault == DiskFault::kFull ? "full" : "error", test.sticky ? " until mended" : "", kind_runs,
                static_cast<long long>(vfs_.faults() - before));
  }
  std::printf("%d runs, %lld injected faults (seed %llu), %d calls refused as unavailable; every run ended with the same "
              "%zu results\n",
              runs, static_cast<long long>(vfs_.faults()), static_cast<unsigned long long>(Seed()), refusals,
              expected_.size());
  EXPECT_GT(vfs_.faults(), runs / 3);
}

TEST_F(DiskTest, WhatWasAnsweredSurvivesAPowerCutAtAnyWrite) {
  std::mt19937_64 random(Seed());
  const int64_t cuts = LongRun() ? INT64_MAX : 8;
  int64_t done = 0;
  for (int64_t i = 0; i < cuts; ++i) {
    const int64_t n = LongRun() ? i + 1 : 1 + static_cast<int64_t>(random() % 120);
    SCOPED_TRACE(absl::StrCat("power cut before write or fsync ", n, ", seed ", Seed()));
    const std::string after = JoinPath(dir_.path(), "after");
    ASSERT_TRUE(RemoveTree(after).ok() && MakeDirs(after).ok());
    Answered answered;
    {
      Scenario run(Fresh(), &vfs_);
      vfs_.CutPowerAt(n, after, random(), [&] { answered = run.answered(); });
      run.Go();
      vfs_.CutPowerAt(0, "", 0, nullptr);
    }
    if (!FileExists(JoinPath(after, "ablate.db"))) {
      if (LongRun()) break;  // the scenario is over before
      continue;
    }
    ++done;
    Scenario::ExpectHas(after, answered);
    // The worker lost its power too: a new one does what is left.
    Scenario rest(after, &vfs_, "second");
    rest.Go();
    rest.ExpectSound(expected_);
    if (HasFatalFailure()) break;
  }
  std::printf("%lld power cuts (seed %llu): everything that was answered was there, and the rest was done once\n",
              static_cast<long long>(done), static_cast<unsigned long long>(Seed()));
  EXPECT_GT(done, 3);
}

// Below the floor of free disk space no job starts, and explain says so; what runs is finished and handed in.
TEST(DiskSpace, BelowTheFloorNothingStartsAndWhatRunsGoesOn) {
  TempDir dir;
  std::string reason;
  CoordinatorOptions options;
  options.data_dir = dir.path();
  options.idle_wait_ms = 0;
  options.no_new_jobs = [&] { return reason; };
  auto opened = Coordinator::Open(options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Coordinator& coordinator = **opened;
  v1::SubmitSweepRequest submit;
  submit.set_yaml("name: floor\nexecutor: noop\nseeds: 4\nevaluate: {lengths: [1x]}\n");
  submit.set_file_name("floor.yaml");
  ASSERT_TRUE(coordinator.SubmitSweep(submit).ok());
  FakeWorker worker("w", 2);
  ASSERT_TRUE(worker.Sync(coordinator).ok());
  ASSERT_EQ(worker.assigned().size(), 2u);
  reason = "only 3 bytes are free";
  for (const auto& [key, assignment] : worker.assigned()) worker.Succeed(assignment);
  ASSERT_TRUE(worker.Sync(coordinator).ok());
  EXPECT_EQ(worker.accepted.size(), 2u);
  EXPECT_TRUE(worker.assigned().empty());
  v1::ListJobsRequest list;
  list.set_sweep("floor");
  const auto jobs = coordinator.ListJobs(list);
  ASSERT_TRUE(jobs.ok());
  int explained = 0;
  for (const v1::Job& job : jobs->jobs()) {
    if (job.state() != v1::QUEUED) continue;
    v1::GetJobRequest get;
    get.set_job_id(job.job_id());
    const auto why = coordinator.ExplainJob(get);
    ASSERT_TRUE(why.ok());
    explained += why->DebugString().find("only 3 bytes are free") != std::string::npos;
  }
  EXPECT_GT(explained, 0);
  reason.clear();
  const auto done = worker.RunAll(coordinator);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(worker.accepted.size(), 8u);
}

}  // namespace
}  // namespace ablate
