// The one implementation of Coordinator, shared by its .cc files: coordinator.cc (opening, writing, recovery),
// coordinator_sweeps.cc, coordinator_extend.cc, coordinator_jobs.cc, coordinator_verify.cc, coordinator_results.cc,
// coordinator_grid.cc, coordinator_curves.cc, coordinator_claims.cc (decisions of sweeps with phases), coordinator_seal.cc (who
// asks for what is sealed), coordinator_link.cc.
// Must not be included outside server/coordinator*.
//
// How a change is made: under mutex_ the scheduler handles the event and its effects are enqueued at the store, so the
// order of commits is the order of events; the caller then waits for its commit without the lock. When a commit fails,
// every write that was enqueued after it is refused too (they build on it), and the scheduler is rebuilt from the
// store. How a read is made: the answer is built under mutex_, then waits for the last enqueued write, so that nobody
// is told what may yet be undone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "experiments/claims/progress.h"
#include "experiments/plan.h"
#include "server/answer_cache.h"
#include "server/coordinator.h"
#include "server/scheduler/scheduler.h"
#include "server/store/claims.h"
#include "server/store/records.h"
#include "server/store/store.h"

namespace ablate {

class CoordinatorImpl final : public Coordinator {
 public:
  static absl::StatusOr<std::unique_ptr<Coordinator>> Open(const CoordinatorOptions& options);
  ~CoordinatorImpl() override;

  absl::StatusOr<v1::PlanSweepResponse> PlanSweep(const v1::PlanSweepRequest& request) override;
  absl::StatusOr<v1::SubmitSweepResponse> SubmitSweep(const v1::SubmitSweepRequest& request) override;
  absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) override;
  absl::StatusOr<v1::ListSweepsResponse> ListSweeps(const v1::ListSweepsRequest& request) override;
  absl::Status WatchSweep(const v1::WatchSweepRequest& request, const std::function<bool(const v1::Sweep&)>& send,
                          const std::function<bool()>& cancelled) override;
  absl::StatusOr<v1::GetGridResponse> GetGrid(const v1::GetGridRequest& request) override;
  absl::Status WatchChanges(const v1::WatchChangesRequest& request, const std::function<bool(const v1::Changes&)>& send,
                            const std::function<bool()>& cancelled) override;
  absl::StatusOr<v1::Sweep> CancelSweep(const v1::CancelSweepRequest& request) override;
  absl::StatusOr<v1::RetrySweepResponse> RetrySweep(const v1::RetrySweepRequest& request) override;
  absl::StatusOr<v1::Sweep> ResumeSweep(const v1::ResumeSweepRequest& request) override;
  absl::StatusOr<v1::Sweep> LockSweep(const v1::LockSweepRequest& request) override;
  absl::StatusOr<v1::SubmitSweepResponse> ExtendSweep(const v1::ExtendSweepRequest& request) override;

  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) override;
  absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request) override;
  absl::StatusOr<v1::GetJobLogsResponse> GetJobLogs(const v1::GetJobRequest& request) override;
  absl::StatusOr<v1::ExplainJobResponse> ExplainJob(const v1::GetJobRequest& request) override;
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request) override;
  absl::StatusOr<v1::VerifyJobsResponse> VerifyJobs(const v1::VerifyJobsRequest& request) override;
  absl::StatusOr<v1::ListVerificationsResponse> ListVerifications(const v1::ListVerificationsRequest& request) override;

  absl::StatusOr<v1::GetTableResponse> GetTable(const v1::GetTableRequest& request) override;
  absl::StatusOr<v1::CompareArmsResponse> CompareArms(const v1::CompareArmsRequest& request) override;
  absl::StatusOr<v1::GetClaimsResponse> GetClaims(const v1::GetClaimsRequest& request) override;
  absl::StatusOr<v1::GetEffectsResponse> GetEffects(const v1::GetEffectsRequest& request) override;
  absl::StatusOr<v1::GetSpreadResponse> GetSpread(const v1::GetSpreadRequest& request) override;
  absl::StatusOr<v1::GetCurvesResponse> GetCurves(const v1::GetCurvesRequest& request) override;
  absl::Status Query(const v1::QueryRequest& request,
                     const std::function<bool(const v1::QueryResponse&)>& send) override;

  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request) override;
  absl::StatusOr<v1::WorkerInfo> DrainWorker(const v1::DrainWorkerRequest& request) override;

  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request,
                                        const std::function<bool()>& cancelled) override;

  Store* store() override { return store_.get(); }

  void Shutdown() override;

 private:
  explicit CoordinatorImpl(const CoordinatorOptions& options) : options_(options) {}

  // ---- coordinator.cc ----

  // One enqueued change. `unreferenced` is filled by the writer.
  struct Change {
    Store::Ticket ticket;
    int64_t epoch = 0;
    int64_t sequence = 0;
    std::string request_id;
    std::shared_ptr<std::vector<std::string>> unreferenced = std::make_shared<std::vector<std::string>>();
  };
  using Body = std::function<absl::Status(Connection&, std::vector<std::string>* unreferenced)>;

  Now NowTime() const { return {options_.clock->MonotonicMicros(), options_.clock->WallMicros()}; }
  absl::Status CheckOpen() const ABLATE_REQUIRES(mutex_);
  std::unique_ptr<Scheduler> NewScheduler();
  // Rows before the effects (a sweep that they refer to), the effects, rows after them (results), then collections.
  Change Enqueue(Effects effects, const std::string& request_id = "", Body before = nullptr, Body after = nullptr)
      ABLATE_REQUIRES(mutex_);
  absl::Status Finish(const Change& change) ABLATE_EXCLUDES(mutex_);
  // Everything that was enqueued so far is committed. Unavailable: something was undone.
  absl::Status Settle(const std::optional<Change>& last) ABLATE_EXCLUDES(mutex_);
  void Recover(int64_t epoch) ABLATE_EXCLUDES(mutex_);
  void DeleteUnreferenced(const Change& change) ABLATE_REQUIRES(mutex_);
  void TickerLoop();
  // Whether this process stood still since the last call or StillHere; then no lease may run out for it.
  void CheckStall() ABLATE_REQUIRES(mutex_);
  void StillHere() ABLATE_REQUIRES(mutex_);
  void Announce(const Effects& effects) ABLATE_REQUIRES(mutex_);
  // Something that was measured for the job's key, or the job itself, is new: in each sweep that shows it.
  void NoteMeasured(JobRow job, bool curves_alone) ABLATE_REQUIRES(mutex_);

  // The stored or in-flight answer to this request, if it came before. InvalidArgument: the id was used for another
  // method.
  template <typename Response>
  absl::StatusOr<std::optional<Response>> Repeated(const std::string& request_id, const char* method)
      ABLATE_REQUIRES(mutex_);
  absl::StatusOr<std::optional<StoredRequest>> FindRepeated(const std::string& request_id, const char* method)
      ABLATE_REQUIRES(mutex_);
  // Makes a change remember its answer.
  Body Remember(const std::string& request_id, const char* method, const google::protobuf::Message& response)
      ABLATE_REQUIRES(mutex_);

  // An evaluation in the store of a state that confirms claims.
  struct Candidate {
    std::string arm_json;
    std::string arm_label;
    int64_t seed = 0;
    std::string evaluation_key;
  };

  // ---- coordinator_sweeps.cc ----
  struct Planned {
    SweepFile file;
    Plan plan;
  };
  using DataFiles = google::protobuf::RepeatedPtrField<v1::DataFile>;
  absl::StatusOr<Planned> ReadAndPlan(const std::string& yaml, const std::string& file_name, const v1::DataRef& data,
                                      const DataFiles& task_files, const TuningResults& tuned = {}) const;
  // Of the data and of all tasks.
  absl::Status CheckDataIsHere(const v1::SweepSpec& spec) const;
  static std::string SpecSha256(const SweepFile& file);
  // What is to be checked before a sweep's failed and cancelled jobs are made again.
  struct Revival {
    int64_t plans_version = 0;
    std::vector<Candidate> candidates;
  };
  absl::StatusOr<Revival> PrepareRevival(SweepRow row) ABLATE_EXCLUDES(mutex_);
  // OK: the file is that of the stored sweep. AlreadyExists: another one, with a diff.
  absl::Status CheckSameFile(SweepRow row, const std::string& spec_sha256, const Planned& planned);
  absl::StatusOr<SweepRow> FindSweepRow(const std::string& id_or_name) const ABLATE_REQUIRES(mutex_);
  v1::Sweep MakeSweep(SweepRow row) const ABLATE_REQUIRES(mutex_);

  // ---- coordinator_claims.cc ----

  // A sweep with all that was decided, planned by it, of one moment.
  struct Loaded {
    SweepRow row = 0;
    SweepFile file;
    StoredClaims stored;
    Plan plan;
    StoredTable table;
    int64_t version = 0;        // Scheduler::Sweep::version
    int64_t plans_version = 0;  // plans_version_
  };
  absl::StatusOr<std::shared_ptr<Loaded>> LoadSweep(const std::string& id_or_name) ABLATE_EXCLUDES(mutex_);
  absl::StatusOr<std::shared_ptr<Loaded>> LoadSweep(SweepRow row) ABLATE_EXCLUDES(mutex_);
  // What a decision comes to. With `by_hand`, it is a lock that a user asked for. Aborted: somebody else has changed
  // the sweep since it was loaded; load again.
  struct ByHand {
    std::string request_id;
    v1::Deviation deviation;
    v1::Sweep* response;
  };
  absl::Status Apply(const Loaded& loaded, const ClaimsStep& step, const ByHand* by_hand) ABLATE_EXCLUDES(mutex_);
  absl::Status Decide(SweepRow row) ABLATE_EXCLUDES(mutex_);
  // What a sweep waits for, in words; "" when it is over.
  std::string WaitingFor(SweepRow row) const ABLATE_REQUIRES(mutex_);
  // Decides for every sweep whose work that was let go is over. By the ticker alone.
  void DecideAll() ABLATE_EXCLUDES(mutex_);

  // ---- coordinator_seal.cc ----

  // FailedPrecondition: the plan asks for numbers that some live sweep has sealed. With `unless_there`, evaluations
  // that have a job already (finished or not) are let pass. `self` aside.
  absl::Status CheckSeals(const v1::SweepSpec& spec, const Plan& plan, SweepRow self, bool unless_there)
      ABLATE_EXCLUDES(mutex_);
  // Evaluations in the store of the states that confirm the claims of this plan.
  absl::StatusOr<std::vector<Candidate>> FindCandidates(const v1::SweepSpec& spec, const Plan& plan)
      ABLATE_EXCLUDES(mutex_);
  // Those of them that were measured, or will be, without a seal; and what is to be recorded of it.
  std::vector<Seen> SeenOf(const std::vector<Candidate>& candidates) const ABLATE_REQUIRES(mutex_);
  Body RecordSeen(SweepRow row, std::vector<Seen> seen, const std::vector<Candidate>& candidates) const
      ABLATE_REQUIRES(mutex_);

  // ---- coordinator_jobs.cc ----
  absl::StatusOr<JobRow> FindJobRow(const std::string& job_id) const ABLATE_REQUIRES(mutex_);
  v1::Job MakeJob(JobRow row) const ABLATE_REQUIRES(mutex_);
  absl::Status FillJob(JobRow row, v1::Job* job);
  v1::WorkerInfo MakeWorker(const Scheduler::Worker& worker) const ABLATE_REQUIRES(mutex_);

  // ---- coordinator_results.cc ----
  struct LoadedTable {
    SweepRow row = 0;
    StoredTable table;
    SweepFile file;
    StoredClaims stored;
  };
  absl::StatusOr<LoadedTable> LoadTable(const std::string& sweep) ABLATE_EXCLUDES(mutex_);
  // The answer that is kept, where neither the plans nor what was measured for this sweep has changed since (with `curves`:
  // nor a point of a curve); else `compute`'s, kept from now on.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Kept(const char* method, const Request& request, bool curves,
                                absl::StatusOr<Response> (CoordinatorImpl::*compute)(const Request&))
      ABLATE_EXCLUDES(mutex_);
  absl::StatusOr<v1::GetTableResponse> ComputeTable(const v1::GetTableRequest& request);
  absl::StatusOr<v1::CompareArmsResponse> ComputeComparison(const v1::CompareArmsRequest& request);
  absl::StatusOr<v1::GetEffectsResponse> ComputeEffects(const v1::GetEffectsRequest& request);
  absl::StatusOr<v1::GetSpreadResponse> ComputeSpread(const v1::GetSpreadRequest& request);

  // ---- coordinator_curves.cc ----
  absl::StatusOr<v1::GetCurvesResponse> ComputeCurves(const v1::GetCurvesRequest& request);

  // ---- coordinator_grid.cc ----
  // What a sweep's points consist of, and the jobs that stand for it.
  struct Points {
    StoredPoints stored;
    int64_t plans_version = 0;
    std::vector<JobRow> jobs;  // SweepRecord::jobs, by which the rest was found
    // Of stored.stages and stored.evaluations; 0 and "": no job stands for it.
    std::vector<JobRow> stage_jobs, evaluation_jobs;
    std::vector<std::string> stage_job_ids, evaluation_job_ids;
  };
  // Read anew only when the sweep's plan or its jobs have changed.
  absl::StatusOr<std::shared_ptr<const Points>> LoadPoints(SweepRow row) ABLATE_EXCLUDES(mutex_);
  void FindJobs(SweepRow row, Points* points) const ABLATE_REQUIRES(mutex_);

  // ---- coordinator_link.cc ----
  struct LinkChange {
    SyncDecision decision;
    std::optional<Change> change;   // of this call
    std::optional<Change> earlier;  // of somebody else, to be waited for
  };
  absl::StatusOr<LinkChange> Decide(const v1::SyncRequest& request) ABLATE_REQUIRES(mutex_);
  absl::StatusOr<LinkChange> WaitForWork(const v1::SyncRequest& request, const std::function<bool()>& cancelled);
  absl::StatusOr<v1::SyncResponse> Answer(const v1::SyncRequest& request, const SyncDecision& decision);
  absl::StatusOr<v1::Task> TaskOf(JobRow row, int64_t attempt);

  // Constant after Open.
  const CoordinatorOptions options_;
  std::unique_ptr<Store> store_;
  std::thread ticker_;

  // Writes of epochs up to this one are refused: one of them failed. Set by the store's writer, read by it.
  std::atomic<int64_t> failed_epoch_ = -1;
  std::atomic<int64_t> current_epoch_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;       // change_version_ grew, or stopping_
  CondVar work_changed_;  // work_version_ grew, or stopping_
  std::unique_ptr<Scheduler> scheduler_ ABLATE_GUARDED_BY(mutex_);
  bool stopping_ ABLATE_GUARDED_BY(mutex_) = false;
  // When this process was last seen to go on: by the real clock and by options_.clock, which stands still in tests.
  int64_t alive_real_us_ ABLATE_GUARDED_BY(mutex_) = 0, alive_us_ ABLATE_GUARDED_BY(mutex_) = 0;
  bool broken_ ABLATE_GUARDED_BY(mutex_) = false;  // could not be rebuilt: tried again at the next call
  int64_t first_revision_ = 0;  // constant after Open: tells starts of the server apart
  int64_t sequence_ ABLATE_GUARDED_BY(mutex_) = 0;
  int64_t change_version_ ABLATE_GUARDED_BY(mutex_) = 0;
  int64_t work_version_ ABLATE_GUARDED_BY(mutex_) = 0;
  std::optional<Change> last_change_ ABLATE_GUARDED_BY(mutex_);
  std::map<std::string, StoredRequest> requests_in_flight_ ABLATE_GUARDED_BY(mutex_);
  // Grows with everything that may change who asks for what: submissions, extensions, retries, cancellations,
  // decisions.
  int64_t plans_version_ ABLATE_GUARDED_BY(mutex_) = 0;
  // What tables and curves of a sweep rest on, beside the plans: grows with every result, and with every point.
  struct MeasuredVersion {
    int64_t results = 0, points = 0;
  };
  std::unordered_map<SweepRow, MeasuredVersion> measured_ ABLATE_GUARDED_BY(mutex_);
  std::map<SweepRow, std::shared_ptr<const Points>> points_ ABLATE_GUARDED_BY(mutex_);  // of few sweeps: see LoadPoints
  // Scheduler::Sweep::version for which there was nothing to decide.
  std::map<SweepRow, int64_t> decided_version_ ABLATE_GUARDED_BY(mutex_);
  // When a hash was last named by a report that was accepted: a collection from before must not delete it.
  std::unordered_map<std::string, int64_t> named_at_ ABLATE_GUARDED_BY(mutex_);

  AnswerCache answers_{size_t{64} << 20};

  Mutex tasks_mutex_;
  std::map<std::pair<JobRow, int64_t>, v1::Task> tasks_ ABLATE_GUARDED_BY(tasks_mutex_);  // of granted attempts
};

template <typename Request, typename Response>
absl::StatusOr<Response> CoordinatorImpl::Kept(const char* method, const Request& request, bool curves,
                                               absl::StatusOr<Response> (CoordinatorImpl::*compute)(const Request&)) {
  std::string question;
  AnswerCache::Version version;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(const SweepRow row, FindSweepRow(request.sweep()));
    question = absl::StrCat(method, " ", row, " ");
    // What is read later is at least as new.
    version = {plans_version_, measured_[row].results + (curves ? measured_[row].points : 0)};
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  Request without_name = request;
  without_name.clear_sweep();
  question += without_name.SerializeAsString();
  Response response;
  if (const auto kept = answers_.Find(question, version); kept != nullptr && response.ParseFromString(*kept)) return response;
  ABLATE_ASSIGN_OR_RETURN(response, (this->*compute)(request));
  answers_.Put(question, version, response.SerializeAsString());
  return response;
}

template <typename Response>
absl::StatusOr<std::optional<Response>> CoordinatorImpl::Repeated(const std::string& request_id, const char* method) {
  ABLATE_ASSIGN_OR_RETURN(const std::optional<StoredRequest> stored, FindRepeated(request_id, method));
  if (!stored.has_value()) return std::optional<Response>();
  Response response;
  if (!response.ParseFromString(stored->response)) return absl::DataLossError("the stored answer cannot be read");
  return std::optional<Response>(std::move(response));
}

}  // namespace ablate
