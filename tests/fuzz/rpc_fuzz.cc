// Fuzz target: every RPC. The first byte picks the method (kMethods, whose order the kept inputs rest on: append only),
// the rest is its request. What passes the checks is asked of a coordinator with a database, a clock that stands still,
// finished, running and sealed work; of one method of an artifact store. Each input begins with the same database.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/utf8.h"
#include "experiments/sweep_file.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/artifacts.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/link.pb.h"
#include "server/artifacts/artifact_store.h"
#include "server/coordinator.h"
#include "server/coordinator_test_util.h"
#include "server/services/limits.h"
#include "tests/fuzz/plan_size.h"

namespace ablate {
namespace {

constexpr double kMostCells = 200;  // of a sweep that is submitted
constexpr char kText[] = "In the beginning.\n";

constexpr char kDone[] = R"(name: done
executor: noop
arms: [{attention.variant: softmax}, {attention.variant: ssmax}]
axes: {eval.ntk: [off, on]}
seeds: 2
evaluate: {lengths: [1x, 2x]}
)";
constexpr char kRunning[] = R"(name: running
data: {name: text, path: a.txt, format: text}
settings: {train.steps: 100}
arms:
  - {attention.variant: softmax}
  - attention.variant: softmax
    switch: [{at_step: 50, attention.variant: ssmax}]
seeds: 1
evaluate: {lengths: [1x]}
)";
constexpr char kSealed[] = R"(name: sealed
executor: noop
settings: {train.steps: 600}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [3, 15]}
baseline: {attention.variant: softmax}
seeds: 5
evaluate: {lengths: [1x, 2x]}
select:
confirm: {seeds: 5}
claims:
  - {name: lower, kind: differs, arm: selected, length: 8x, direction: lower}
)";

// Names that no earlier run of the same database gave.
class FuzzIds : public IdGenerator {
 public:
  std::string NewId(std::string_view prefix) override { return absl::StrCat(std::string(prefix), "_f", ++count_); }

 private:
  int64_t count_ = 0;
};

CoordinatorOptions Options(const std::string& data_dir, const Clock* clock, IdGenerator* ids) {
  CoordinatorOptions options;
  options.data_dir = data_dir;
  options.clock = clock;
  options.ids = ids;
  options.idle_wait_ms = 0;
  return options;
}

std::unique_ptr<Coordinator> OpenCoordinator(const CoordinatorOptions& options) {
  auto coordinator = Coordinator::Open(options);
  CHECK(coordinator.ok()) << coordinator.status();
  return *std::move(coordinator);
}

// The database that every input begins with.
const std::string& Template() {
  static const auto& content = *[] {
    const TempDir folder;
    FakeClock clock;
    CountingIdGenerator ids;
    {
      const auto coordinator = OpenCoordinator(Options(folder.path(), &clock, &ids));
      for (const char* yaml : {kDone, kRunning, kSealed}) {
        v1::SubmitSweepRequest request;
        request.set_request_id(absl::StrCat("submit ", Sha256Hex(yaml)));
        request.set_yaml(yaml);
        request.set_file_name("fuzz.yaml");
        if (yaml == kRunning) {
          v1::DataFile* file = request.mutable_data()->add_files();
          file->set_path("a.txt");
          file->set_sha256(Sha256Hex(kText));
          file->set_bytes(sizeof(kText) - 1);
        }
        const auto submitted = coordinator->SubmitSweep(request);
        CHECK(submitted.ok()) << submitted.status();
        if (yaml != kDone) continue;
        FakeWorker worker("noop_worker", 2);
        worker.documents = 2;
        CHECK(worker.RunAll(*coordinator).ok());
      }
      FakeWorker trainer("trainer", 1, v1::EXECUTOR_TRAINER), noop("noop_worker_2", 1);
      CHECK(trainer.Sync(*coordinator).ok() && noop.Sync(*coordinator).ok());
      CHECK(!trainer.assigned().empty() && !noop.assigned().empty());
      coordinator->Shutdown();
    }
    auto file = ReadFile(JoinPath(folder.path(), "ablate.db"));
    CHECK(file.ok()) << file.status();
    CHECK_GT(file->size(), 10'000u);
    return new std::string(*std::move(file));
  }();
  return content;
}

class World {
 public:
  World() {
    // Nothing of it must outlive a power cut.
    std::FILE* file = std::fopen(JoinPath(folder_.path(), "ablate.db").c_str(), "wb");
    CHECK(file != nullptr && std::fwrite(Template().data(), 1, Template().size(), file) == Template().size());
    CHECK_EQ(std::fclose(file), 0);
    coordinator_ = OpenCoordinator(Options(folder_.path(), &clock_, &ids_));
    auto artifacts = ArtifactStore::Open(JoinPath(folder_.path(), "artifacts"), 0);
    CHECK(artifacts.ok()) << artifacts.status();
    artifacts_ = *std::move(artifacts);
  }
  ~World() { coordinator_->Shutdown(); }

  Coordinator& coordinator() { return *coordinator_; }
  ArtifactStore& artifacts() { return *artifacts_; }

  static World& Now() {
    if (now_ == nullptr) now_ = new World;
    return *now_;
  }
  static void Forget() {
    delete now_;
    now_ = nullptr;
  }

 private:
  static inline World* now_ = nullptr;
  TempDir folder_;
  FakeClock clock_;
  FuzzIds ids_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ArtifactStore> artifacts_;
};

// What a caller may be told.
void CheckAnswer(const absl::Status& status) {
  CHECK(status.code() != absl::StatusCode::kInternal && status.code() != absl::StatusCode::kUnknown) << status;
  CHECK(status.ok() || !status.message().empty());
}
// The answer can be sent: gRPC serialises it, and the client refuses texts that are no UTF-8.
void CheckAnswer(const google::protobuf::Message& answer) {
  const std::string bytes = answer.SerializeAsString();
  const std::unique_ptr<google::protobuf::Message> read(answer.New());
  CHECK(read->ParseFromString(bytes)) << answer.GetTypeName();
}
template <typename Response>
void CheckAnswer(const absl::StatusOr<Response>& answer) {
  CheckAnswer(answer.status());
  if (answer.ok()) CheckAnswer(*answer);
}

bool IsSmall(const std::string& yaml, const std::string& file_name) {
  const auto spec = ParseSweepFile(yaml, file_name);
  return !spec.ok() || PlanCells(*spec) <= kMostCells;
}

template <typename Request>
bool Parse(std::string_view bytes, Request* request) {
  return bytes.size() <= static_cast<size_t>(kMaxMessageBytes) &&
         request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) && CheckRequest(*request).ok();
}

// A method that only reads: the database is as before.
template <typename Request, typename Response, absl::StatusOr<Response> (Coordinator::*method)(const Request&)>
void Read(std::string_view bytes) {
  Request request;
  if (!Parse(bytes, &request)) return;
  if constexpr (std::is_same_v<Request, v1::PlanSweepRequest>) {
    if (!IsSmall(request.yaml(), request.file_name())) return;
  }
  CheckAnswer((World::Now().coordinator().*method)(request));
}

// One that changes something: asked twice, as who repeats a request that it heard no answer to.
template <typename Request, typename Response, absl::StatusOr<Response> (Coordinator::*method)(const Request&)>
void Change(std::string_view bytes) {
  Request request;
  if (!Parse(bytes, &request)) return;
  if constexpr (std::is_same_v<Request, v1::SubmitSweepRequest> || std::is_same_v<Request, v1::ExtendSweepRequest>) {
    if (!IsSmall(request.yaml(), request.file_name())) return;
  }
  World& world = World::Now();
  const auto first = (world.coordinator().*method)(request), second = (world.coordinator().*method)(request);
  CheckAnswer(first);
  CheckAnswer(second);
  CHECK_EQ(first.ok(), second.ok()) << first.status() << " then " << second.status();
  World::Forget();
}

void WatchSweep(std::string_view bytes) {
  v1::WatchSweepRequest request;
  if (!Parse(bytes, &request)) return;
  CheckAnswer(World::Now().coordinator().WatchSweep(
      request,
      [](const v1::Sweep& sweep) {
        CheckAnswer(sweep);
        return false;
      },
      [] { return true; }));
}

void WatchChanges(std::string_view bytes) {
  v1::WatchChangesRequest request;
  if (!Parse(bytes, &request)) return;
  CheckAnswer(World::Now().coordinator().WatchChanges(
      request,
      [](const v1::Changes& changes) {
        CheckAnswer(changes);
        return false;
      },
      [] { return true; }));
}

void Query(std::string_view bytes) {
  v1::QueryRequest request;
  if (!Parse(bytes, &request)) return;
  // An endless statement is no finding.
  if (request.time_limit_ms() == 0 || request.time_limit_ms() > 100) request.set_time_limit_ms(100);
  CheckAnswer(World::Now().coordinator().Query(request, [](const v1::QueryResponse& response) {
    CheckAnswer(response);
    return true;
  }));
}

void Sync(std::string_view bytes) {
  v1::SyncRequest request;
  if (!Parse(bytes, &request) || !request.has_worker()) return;
  World& world = World::Now();
  CheckAnswer(world.coordinator().Sync(request, [] { return true; }));
  // Whatever a worker said, everybody can still read, and a true worker still work.
  v1::ListJobsRequest jobs;
  CheckAnswer(world.coordinator().ListJobs(jobs));
  CheckAnswer(world.coordinator().ListWorkers(v1::ListWorkersRequest()));
  v1::GetTableRequest table;
  table.set_sweep("running");
  CheckAnswer(world.coordinator().GetTable(table));
  for (int i = 0; i < request.attempts_size() && i < 4; ++i) {
    v1::GetJobRequest job;
    job.set_job_id(request.attempts(i).job_id());
    CheckAnswer(world.coordinator().GetJob(job));
    CheckAnswer(world.coordinator().GetJobLogs(job));
    CheckAnswer(world.coordinator().ExplainJob(job));
  }
  FakeWorker worker("another", 1);
  CHECK(worker.Sync(world.coordinator()).ok());
  World::Forget();
}

void StatArtifact(std::string_view bytes) {
  v1::StatArtifactRequest request;
  if (!Parse(bytes, &request)) return;
  const auto stat = World::Now().artifacts().Stat(request.sha256());
  CheckAnswer(stat.status());
}

// The header, then the same chunk each time.
void UploadArtifact(std::string_view bytes) {
  v1::UploadArtifactRequest request;
  if (!Parse(bytes, &request)) return;
  ArtifactStore& store = World::Now().artifacts();
  const auto& header = request.header();
  const auto upload = store.StartUpload(header.sha256(), header.bytes(), header.offset());
  CheckAnswer(upload.status());
  if (upload.ok()) {
    absl::Status status = (*upload)->Append(kText);
    if (status.ok()) status = (*upload)->Finish();
    CheckAnswer(status);
    CHECK_EQ(status.ok(), header.sha256() == Sha256Hex(kText)) << status;
    CHECK_EQ(store.Has(header.sha256()), status.ok());
  }
  World::Forget();
}

void DownloadArtifact(std::string_view bytes) {
  v1::DownloadArtifactRequest request;
  if (!Parse(bytes, &request)) return;
  CheckAnswer(World::Now().artifacts().OpenReader(request.sha256(), request.offset()).status());
}

struct Method {
  const char* name;  // Service.Method
  void (*run)(std::string_view bytes);
};
#define ABLATE_READ(service, name, request, response) \
  { #service "." #name, Read < v1::request, v1::response, &Coordinator::name> }
#define ABLATE_CHANGE(service, name, request, response) \
  { #service "." #name, Change < v1::request, v1::response, &Coordinator::name> }
constexpr Method kMethods[] = {
    ABLATE_READ(Sweeps, PlanSweep, PlanSweepRequest, PlanSweepResponse),
    ABLATE_CHANGE(Sweeps, SubmitSweep, SubmitSweepRequest, SubmitSweepResponse),
    ABLATE_READ(Sweeps, GetSweep, GetSweepRequest, Sweep),
    ABLATE_READ(Sweeps, ListSweeps, ListSweepsRequest, ListSweepsResponse),
    {"Sweeps.WatchSweep", WatchSweep},
    ABLATE_CHANGE(Sweeps, CancelSweep, CancelSweepRequest, Sweep),
    ABLATE_CHANGE(Sweeps, RetrySweep, RetrySweepRequest, RetrySweepResponse),
    ABLATE_CHANGE(Sweeps, LockSweep, LockSweepRequest, Sweep),
    ABLATE_CHANGE(Sweeps, ExtendSweep, ExtendSweepRequest, SubmitSweepResponse),
    ABLATE_READ(Jobs, ListJobs, ListJobsRequest, ListJobsResponse),
    ABLATE_READ(Jobs, GetJob, GetJobRequest, GetJobResponse),
    ABLATE_READ(Jobs, GetJobLogs, GetJobRequest, GetJobLogsResponse),
    ABLATE_READ(Jobs, ExplainJob, GetJobRequest, ExplainJobResponse),
    ABLATE_CHANGE(Jobs, CancelJob, CancelJobRequest, Job),
    ABLATE_CHANGE(Jobs, VerifyJobs, VerifyJobsRequest, VerifyJobsResponse),
    ABLATE_READ(Jobs, ListVerifications, ListVerificationsRequest, ListVerificationsResponse),
    ABLATE_READ(Results, GetTable, GetTableRequest, GetTableResponse),
    ABLATE_READ(Results, CompareArms, CompareArmsRequest, CompareArmsResponse),
    ABLATE_READ(Results, GetClaims, GetClaimsRequest, GetClaimsResponse),
    ABLATE_READ(Results, GetEffects, GetEffectsRequest, GetEffectsResponse),
    ABLATE_READ(Results, GetSpread, GetSpreadRequest, GetSpreadResponse),
    {"Results.Query", Query},
    ABLATE_READ(Workers, ListWorkers, ListWorkersRequest, ListWorkersResponse),
    ABLATE_CHANGE(Workers, DrainWorker, DrainWorkerRequest, WorkerInfo),
    {"WorkerLink.Sync", Sync},
    {"Artifacts.StatArtifact", StatArtifact},
    {"Artifacts.UploadArtifact", UploadArtifact},
    {"Artifacts.DownloadArtifact", DownloadArtifact},
    ABLATE_CHANGE(Sweeps, ResumeSweep, ResumeSweepRequest, Sweep),
    ABLATE_READ(Sweeps, GetGrid, GetGridRequest, GetGridResponse),
    {"Sweeps.WatchChanges", WatchChanges},
    ABLATE_READ(Results, GetCurves, GetCurvesRequest, GetCurvesResponse),
};

// No method is left out. Those of the service Access need no coordinator (server/services/access_services_test.cc).
bool CheckMethods() {
  std::set<std::string> named;
  for (const Method& method : kMethods) named.insert(method.name);
  for (const auto* file : {v1::GetJobRequest::descriptor()->file(), v1::SyncRequest::descriptor()->file(),
                           v1::StatArtifactRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const std::string name = absl::StrCat(file->service(s)->name(), ".", file->service(s)->method(m)->name());
        CHECK(named.contains(name)) << name << " has no row in tests/fuzz/rpc_fuzz.cc";
      }
    }
  }
  return true;
}

}  // namespace
}  // namespace ablate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  static const bool checked = CheckMethods();
  google::protobuf::SetLogHandler(nullptr);  // one line an input that is no UTF-8
  (void)checked;
  if (size == 0 || data[0] >= std::size(kMethods)) return 0;
  kMethods[data[0]].run({reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
