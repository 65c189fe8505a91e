// 32 workers and 20 readers as dashboards are (half through the coordinator, half with connections of their own, as other
// programs have), all at once on one database: nobody is ever told that it is locked, every job has its result once,
// and readers see whole commits. Once within the process, and once as in the field: over gRPC, a connection each.
// Prints counts. ABLATE_LONG_FAULTS=1: ten times the jobs.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/client_access.h"
#include "base/files.h"
#include "base/grpc_channel.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/link.grpc.pb.h"
#include "server/artifacts/artifact_store.h"
#include "server/coordinator.h"
#include "server/coordinator_test_util.h"
#include "server/services/grpc_server.h"
#include "server/store/check.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

constexpr int kWorkers = 32;
constexpr int kReaders = 20;

// What a worker and a reader call.
class Door {
 public:
  virtual ~Door() = default;
  virtual absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request) = 0;
  virtual absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) = 0;
  virtual absl::Status GetTable(const v1::GetTableRequest& request) = 0;
  virtual absl::Status ListJobs(const v1::ListJobsRequest& request) = 0;
  virtual absl::Status ListWorkers(const v1::ListWorkersRequest& request) = 0;
  virtual absl::Status Query(const v1::QueryRequest& request) = 0;
};

class InProcess final : public Door {
 public:
  explicit InProcess(Coordinator* coordinator) : coordinator_(*coordinator) {}
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request) override {
    return coordinator_.Sync(request, [] { return false; });
  }
  absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) override { return coordinator_.GetSweep(request); }
  absl::Status GetTable(const v1::GetTableRequest& request) override { return coordinator_.GetTable(request).status(); }
  absl::Status ListJobs(const v1::ListJobsRequest& request) override { return coordinator_.ListJobs(request).status(); }
  absl::Status ListWorkers(const v1::ListWorkersRequest& request) override { return coordinator_.ListWorkers(request).status(); }
  absl::Status Query(const v1::QueryRequest& request) override {
    return coordinator_.Query(request, [](const v1::QueryResponse&) { return true; });
  }

 private:
  Coordinator& coordinator_;
};

class OverGrpc final : public Door {
 public:
  explicit OverGrpc(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own, as another program has
    const auto channel = MakeChannel({.address = address}, arguments, nullptr);
    sweeps_ = v1::Sweeps::NewStub(channel);
    jobs_ = v1::Jobs::NewStub(channel);
    results_ = v1::Results::NewStub(channel);
    workers_ = v1::Workers::NewStub(channel);
    link_ = v1::WorkerLink::NewStub(channel);
  }
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request) override {
    return Call<v1::SyncResponse>([&](auto* context, auto* response) { return link_->Sync(context, request, response); });
  }
  absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) override {
    return Call<v1::Sweep>([&](auto* context, auto* response) { return sweeps_->GetSweep(context, request, response); });
  }
  absl::Status GetTable(const v1::GetTableRequest& request) override {
    return Call<v1::GetTableResponse>([&](auto* context, auto* response) { return results_->GetTable(context, request, response); })
        .status();
  }
  absl::Status ListJobs(const v1::ListJobsRequest& request) override {
    return Call<v1::ListJobsResponse>([&](auto* context, auto* response) { return jobs_->ListJobs(context, request, response); })
        .status();
  }
  absl::Status ListWorkers(const v1::ListWorkersRequest& request) override {
    return Call<v1::ListWorkersResponse>(
               [&](auto* context, auto* response) { return workers_->ListWorkers(context, request, response); })
        .status();
  }
  absl::Status Query(const v1::QueryRequest& request) override {
    return Call<v1::QueryResponse>([&](auto* context, auto* response) {
             const auto reader = results_->Query(context, request);
             while (reader->Read(response)) {
             }
             return reader->Finish();
           })
        .status();
  }

 private:
  template <typename Response>
  static absl::StatusOr<Response> Call(const std::function<grpc::Status(grpc::ClientContext*, Response*)>& call) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    Response response;
    const grpc::Status status = call(&context, &response);
    if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    return response;
  }
  std::unique_ptr<v1::Sweeps::Stub> sweeps_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Results::Stub> results_;
  std::unique_ptr<v1::Workers::Stub> workers_;
  std::unique_ptr<v1::WorkerLink::Stub> link_;
};

void RunLoad(bool over_grpc) {
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

  const auto artifacts = ArtifactStore::Open(JoinPath(dir.path(), "artifacts"), 0);
  ASSERT_TRUE(artifacts.ok()) << artifacts.status();
  std::unique_ptr<GrpcServer> server;
  if (over_grpc) {
    auto started = GrpcServer::Start("unix:" + JoinPath(dir.path(), "socket"), &coordinator, artifacts->get());
    ASSERT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  const auto door = [&]() -> std::unique_ptr<Door> {
    if (over_grpc) return std::make_unique<OverGrpc>(server->address());
    return std::make_unique<InProcess>(&coordinator);
  };

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
      const std::unique_ptr<Door> link = door();
      while (done < jobs && failed == 0) {
        const auto response = worker.Sync([&](const v1::SyncRequest& request) { return link->Sync(request); });
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
      const std::unique_ptr<Door> page = door();
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
        const auto sweep = page->GetSweep(get);
        count(sweep.status());
        if (sweep.ok()) {
          const v1::JobCounts& c = sweep->jobs();
          EXPECT_EQ(c.blocked() + c.queued() + c.running() + c.succeeded() + c.failed() + c.cancelled(), jobs);
        }
        v1::GetTableRequest table;
        table.set_sweep("load");
        count(page->GetTable(table));
        v1::ListJobsRequest list;
        list.set_sweep("load");
        list.set_page_size(50);
        count(page->ListJobs(list));
        count(page->ListWorkers(v1::ListWorkersRequest()));
        v1::QueryRequest query;
        query.set_sql("SELECT arm_label, COUNT(*), AVG(value) FROM results GROUP BY arm_label");
        count(page->Query(query));
        reads += 5;
      } while (!over && failed == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  for (std::thread& thread : readers) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%s: %d workers, %d readers: %lld jobs in %.1f s, %lld calls of workers, %lld reads, %lld failed, %lld found it "
              "locked\n",
              over_grpc ? "over gRPC" : "in the process", kWorkers, kReaders, static_cast<long long>(done), seconds, static_cast<long long>(syncs),
              static_cast<long long>(reads), static_cast<long long>(failed), static_cast<long long>(locked));
  EXPECT_EQ(done, jobs);
  EXPECT_EQ(locked, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_GE(reads, kReaders * 3);
  server.reset();
  opened->reset();
  auto db = Connection::Open(JoinPath(dir.path(), "ablate.db"), Connection::Mode::kReadOnly);
  ASSERT_TRUE(db.ok());
  CheckReport report;
  CheckStructure(**db, false, &report);
  CheckInvariants(**db, &report);
  EXPECT_EQ(absl::StrJoin(report.faults, "\n"), "");
}

TEST(Load, ThirtyTwoWorkersAndTwentyReadersNeverFindTheDatabaseLocked) { RunLoad(false); }
TEST(Load, NorOverGrpc) { RunLoad(true); }

}  // namespace
}  // namespace ablate
