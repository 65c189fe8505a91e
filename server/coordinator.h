// The coordinator: what every service method does, free of gRPC. Joins the pure scheduler (what should happen) and the
// store (what has happened): each change runs the scheduler, is written by the store's single writer, and is answered
// after the commit. If a commit fails, the scheduler is rebuilt from the store, so memory never runs ahead of the disk.
//
// Requests and answers are the messages of proto/coordinator.proto and proto/link.proto, which also name the errors.
// Thread rule: every method may be called from any thread; calls block until their commit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/link.pb.h"

namespace ablate {

class Store;

struct CoordinatorOptions {
  std::string data_dir;  // database at data_dir/ablate.db
  const Clock* clock = &Clock::Real();
  IdGenerator* ids = &IdGenerator::Random();
  int64_t lease_ms = 30'000;        // silence after which a worker's attempts are taken away
  int64_t busy_contact_ms = 2'000;  // how often a busy worker calls
  int64_t idle_wait_ms = 30'000;    // how long an idle worker is kept in the call
  int64_t watch_heartbeat_ms = 15'000;  // between two messages of WatchChanges, where nothing changes
  int32_t max_failures = 3;         // of a job
  int64_t retry_delay_ms = 1'000;   // before a job that failed is tried again; grows with its failures (scheduler.h)
  int32_t sweep_max_failures = 50;  // of one signature, in a sweep that states no number of its own; 0: never pauses
  // Whether an artifact is stored; asked at submission and when a result names an end state. Unset: all are.
  std::function<bool(const std::string& sha256)> has_artifact;
  // Removes an artifact that nothing names any more. Called under the coordinator's lock, after the commit: must be
  // quick.
  std::function<void(const std::string& sha256)> delete_artifact;
  // Called once in Open with a predicate that tells whether a row names the artifact. Unset: nothing is swept.
  std::function<void(const std::function<bool(const std::string& sha256)>& is_named)> sweep_artifacts;
  // Why no job may start now, or ""; asked at each lease. Unset: they may.
  std::function<std::string()> no_new_jobs;
  // Runs before each commit of the database; an error fails it, as a full disk does. For tests.
  std::function<absl::Status()> before_commit;
  // For OpenReadOnly: nothing is written, no lease runs; with sweeps_alone jobs are not loaded.
  bool read_only = false;
  bool sweeps_alone = false;
};

// Of a database that is only read. `damage`: "" where it is sound, else what is lost, in a sentence.
struct ReadOnlyOptions {
  std::string damage;
  bool definitions_whole = true;  // else no tables: they might be of the wrong arms or seeds
};

class Coordinator {
 public:
  // Opens or creates the database, runs migrations, re-arms one full lease for every running attempt.
  // FailedPrecondition: the database is newer than this build, locked by another coordinator, or damaged (says what to
  // do).
  static absl::StatusOr<std::unique_ptr<Coordinator>> Open(const CoordinatorOptions& options);
  // A coordinator that only reads: everything else is refused (FailedPrecondition), and of a damaged database (see
  // server/store/salvage.h) also what cannot be told rightly (DataLoss). data_dir/ablate.db must be of this version.
  static absl::StatusOr<std::unique_ptr<Coordinator>> OpenReadOnly(CoordinatorOptions options,
                                                                   ReadOnlyOptions read_only);
  virtual ~Coordinator() = default;

  virtual absl::StatusOr<v1::PlanSweepResponse> PlanSweep(const v1::PlanSweepRequest& request) = 0;
  virtual absl::StatusOr<v1::SubmitSweepResponse> SubmitSweep(const v1::SubmitSweepRequest& request) = 0;
  virtual absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) = 0;
  virtual absl::StatusOr<v1::ListSweepsResponse> ListSweeps(const v1::ListSweepsRequest& request) = 0;
  // Calls `send` with the sweep now and at each change, at most 5 times a second, until it is over, `send` returns
  // false, or `cancelled` returns true (asked at least every second).
  virtual absl::Status WatchSweep(const v1::WatchSweepRequest& request,
                                  const std::function<bool(const v1::Sweep&)>& send,
                                  const std::function<bool()>& cancelled) = 0;
  virtual absl::StatusOr<v1::GetGridResponse> GetGrid(const v1::GetGridRequest& request) = 0;
  // Calls `send` now, at each change (at most 5 times a second) and after watch_heartbeat_ms without one, until `send`
  // returns false or `cancelled` returns true (asked at least every second).
  virtual absl::Status WatchChanges(const v1::WatchChangesRequest& request,
                                    const std::function<bool(const v1::Changes&)>& send,
                                    const std::function<bool()>& cancelled) = 0;
  virtual absl::StatusOr<v1::Sweep> CancelSweep(const v1::CancelSweepRequest& request) = 0;
  virtual absl::StatusOr<v1::RetrySweepResponse> RetrySweep(const v1::RetrySweepRequest& request) = 0;
  virtual absl::StatusOr<v1::Sweep> ResumeSweep(const v1::ResumeSweepRequest& request) = 0;
  virtual absl::StatusOr<v1::Sweep> LockSweep(const v1::LockSweepRequest& request) = 0;
  virtual absl::StatusOr<v1::SubmitSweepResponse> ExtendSweep(const v1::ExtendSweepRequest& request) = 0;

  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request) = 0;
  virtual absl::StatusOr<v1::GetJobLogsResponse> GetJobLogs(const v1::GetJobRequest& request) = 0;
  virtual absl::StatusOr<v1::ExplainJobResponse> ExplainJob(const v1::GetJobRequest& request) = 0;
  virtual absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request) = 0;
  virtual absl::StatusOr<v1::VerifyJobsResponse> VerifyJobs(const v1::VerifyJobsRequest& request) = 0;
  virtual absl::StatusOr<v1::ListVerificationsResponse> ListVerifications(
      const v1::ListVerificationsRequest& request) = 0;

  virtual absl::StatusOr<v1::GetTableResponse> GetTable(const v1::GetTableRequest& request) = 0;
  virtual absl::StatusOr<v1::CompareArmsResponse> CompareArms(const v1::CompareArmsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetClaimsResponse> GetClaims(const v1::GetClaimsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetEffectsResponse> GetEffects(const v1::GetEffectsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetSpreadResponse> GetSpread(const v1::GetSpreadRequest& request) = 0;
  virtual absl::StatusOr<v1::GetCurvesResponse> GetCurves(const v1::GetCurvesRequest& request) = 0;
  virtual absl::Status Query(const v1::QueryRequest& request,
                             const std::function<bool(const v1::QueryResponse&)>& send) = 0;

  virtual absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request) = 0;
  virtual absl::StatusOr<v1::WorkerInfo> DrainWorker(const v1::DrainWorkerRequest& request) = 0;

  // A fully idle worker is kept until there is work, idle_wait_ms passed, a newer Sync of it came, or `cancelled`.
  virtual absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request,
                                                const std::function<bool()>& cancelled) = 0;

  // The database, for what is no business of the scheduler's: tokens. Null of a fake.
  virtual Store* store() { return nullptr; }

  // Wakes everyone who waits; further calls get Unavailable. Then the destructor may run.
  virtual void Shutdown() = 0;
};

}  // namespace ablate
