// 32 workers and 20 readers as dashboards are (half through the coordinator, half with connections of their own, as other
// programs have), all at once on one database: nobody is ever told that it is locked, every job has its result once,
// and readers see whole commits. Prints counts. ABLATE_LONG_FAULTS=1: ten times the jobs.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "gtest/gtest.h"
#include "server/coordinator.h"
#include "server/coordinator_test_util.h"
#include "server/store/check.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

constexpr int kWorkers = 32;
constexpr int kReaders = 20;

TEST(Load, ThirtyTwoWorkersAndTwentyReadersNeverFindTheDatabaseLocked) {
  TempDir dir;
  CoordinatorOptions options;
  options.data_dir = dir.path();
  options.idle_wait_ms = 0;
  auto opened = Coordinator::Open(options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Coordinator& coordinator = **opened;
  const int seeds = std::getenv("ABLATE_LONG_FAULTS") != nullptr ? 600 : 60;
  v1::SubmitSweepRequest submit;
  submit.set_yaml(absl::StrCat("name: load\nexecutor: noop\narms:\n  - {attention.variant: softmax}\n  - "
                               "{attention.variant: ssmax}\nseeds: ",
                               seeds, "\nevaluate: {lengths: [1x, 2x]}\n"));
  submit.set_file_name("load.yaml");
  const auto submitted = coordinator.SubmitSweep(submit);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  const int64_t jobs = submitted->new_jobs();

  std::atomic<int64_t> done = 0, syncs = 0, reads = 0, locked = 0, failed = 0;
  std::atomic<bool> over = false;
  const auto count = [&](const absl::Status& status) {
    if (status.ok()) return;
    ++failed;
    locked += absl::StrContains(std::string(status.message()), "locked") ||
              absl::StrContains(std::string(status.message()), "busy");
    ADD_FAILURE() << status;
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      FakeWorker worker(absl::StrCat("w", i), 2);
      while (done < jobs && failed == 0) {
        const auto response = worker.Sync(coordinator);
        count(response.status());
        if (!response.ok()) return;
        ++syncs;
        done += static_cast<int64_t>(worker.accepted.size());
        worker.accepted.clear();
        for (const v1::Assignment& assignment : response->desired()) worker.Succeed(assignment);
        if (response->desired().empty()) std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      int64_t seen = 0;
      do {
        if (i % 2 == 1) {
          // As sqlite3 or a notebook does.
          auto db = Connection::Open(JoinPath(dir.path(), "ablate.db"), Connection::Mode::kReadOnly);
          count(db.status());
          if (!db.ok()) return;
          count((*db)->Script("BEGIN"));
          // In one commit: the job's state, its result, its attempt.
          const auto succeeded = (*db)->QueryInt(-1, "SELECT COUNT(*) FROM jobs WHERE state = 'SUCCEEDED'");
          const auto attempts = (*db)->QueryInt(-1, "SELECT COUNT(*) FROM attempts WHERE state = 'SUCCEEDED'");
          const auto keys = (*db)->QueryInt(-1, "SELECT (SELECT COUNT(DISTINCT evaluation) FROM evaluation_results) + "
                                                "(SELECT COUNT(DISTINCT stage) FROM stage_results)");
          count(succeeded.status());
          count(attempts.status());
          count(keys.status());
          EXPECT_EQ(succeeded.value_or(-1), attempts.value_or(-2));
          EXPECT_EQ(succeeded.value_or(-1), keys.value_or(-2));
          EXPECT_GE(succeeded.value_or(-1), seen);
          seen = succeeded.value_or(0);
          reads += 3;
          continue;
        }
        v1::GetSweepRequest get;
        get.set_sweep("load");
        const auto sweep = coordinator.GetSweep(get);
        count(sweep.status());
        if (sweep.ok()) {
          const v1::JobCounts& c = sweep->jobs();
          EXPECT_EQ(c.blocked() + c.queued() + c.running() + c.succeeded() + c.failed() + c.cancelled(), jobs);
        }
        v1::GetTableRequest table;
        table.set_sweep("load");
        count(coordinator.GetTable(table).status());
        v1::ListJobsRequest list;
        list.set_sweep("load");
        list.set_page_size(50);
        count(coordinator.ListJobs(list).status());
        count(coordinator.ListWorkers(v1::ListWorkersRequest()).status());
        v1::QueryRequest query;
        query.set_sql("SELECT arm_label, COUNT(*), AVG(value) FROM results GROUP BY arm_label");
        count(coordinator.Query(query, [](const v1::QueryResponse&) { return true; }));
        reads += 5;
      } while (!over && failed == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  for (std::thread& thread : readers) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%d workers, %d readers: %lld jobs in %.1f s, %lld calls of workers, %lld reads, %lld failed, %lld found it "
              "locked\n",
              kWorkers, kReaders, static_cast<long long>(done), seconds, static_cast<long long>(syncs),
              static_cast<long long>(reads), static_cast<long long>(failed), static_cast<long long>(locked));
  EXPECT_EQ(done, jobs);
  EXPECT_EQ(locked, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_GE(reads, kReaders * 3);
  opened->reset();
  auto db = Connection::Open(JoinPath(dir.path(), "ablate.db"), Connection::Mode::kReadOnly);
  ASSERT_TRUE(db.ok());
  CheckReport report;
  CheckStructure(**db, false, &report);
  CheckInvariants(**db, &report);
  EXPECT_EQ(absl::StrJoin(report.faults, "\n"), "");
}

}  // namespace
}  // namespace ablate
