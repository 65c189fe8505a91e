// For tests of the services: a coordinator that answers what it is told and remembers what it was asked.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/coordinator.h"

namespace ablate {

class FakeCoordinator : public Coordinator {
 public:
  // While not OK, every call is answered with it.
  absl::Status error;
  std::vector<v1::QueryResponse> query_answers;
  std::atomic<int> calls = 0;
  std::atomic<int> waiting = 0;

  absl::StatusOr<v1::PlanSweepResponse> PlanSweep(const v1::PlanSweepRequest& request) override {
    v1::PlanSweepResponse response;
    response.mutable_summary()->set_name(request.file_name());
    return Say(response);
  }
  absl::StatusOr<v1::SubmitSweepResponse> SubmitSweep(const v1::SubmitSweepRequest& request) override {
    v1::SubmitSweepResponse response;
    response.mutable_sweep()->set_name(request.request_id());
    return Say(response);
  }
  absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) override {
    return Say(Named(request.sweep()));
  }
  absl::StatusOr<v1::ListSweepsResponse> ListSweeps(const v1::ListSweepsRequest& request) override {
    v1::ListSweepsResponse response;
    response.set_next_page_token(request.page_token());
    return Say(response);
  }
  absl::Status WatchSweep(const v1::WatchSweepRequest& request, const std::function<bool(const v1::Sweep&)>& send,
                          const std::function<bool()>& cancelled) override {
    ++calls;
    if (!error.ok()) return error;
    send(Named(request.sweep()));
    WaitUntil(cancelled);
    return absl::CancelledError("watched enough");
  }
  absl::StatusOr<v1::GetGridResponse> GetGrid(const v1::GetGridRequest& request) override {
    v1::GetGridResponse response;
    response.add_arms()->set_label(request.sweep());
    return Say(response);
  }
  absl::Status WatchChanges(const v1::WatchChangesRequest&, const std::function<bool(const v1::Changes&)>& send,
                            const std::function<bool()>& cancelled) override {
    ++calls;
    if (!error.ok()) return error;
    v1::Changes changes;
    changes.set_revision(7);
    send(changes);
    WaitUntil(cancelled);
    return absl::CancelledError("watched enough");
  }
  absl::StatusOr<v1::GetCurvesResponse> GetCurves(const v1::GetCurvesRequest& request) override {
    v1::GetCurvesResponse response;
    *response.mutable_arms_json() = request.arms_json();
    return Say(response);
  }
  absl::StatusOr<v1::Sweep> CancelSweep(const v1::CancelSweepRequest& request) override {
    return Say(Named(request.sweep()));
  }
  absl::StatusOr<v1::RetrySweepResponse> RetrySweep(const v1::RetrySweepRequest&) override {
    return Say(v1::RetrySweepResponse());
  }
  absl::StatusOr<v1::Sweep> ResumeSweep(const v1::ResumeSweepRequest& request) override {
    return Say(Named(request.sweep()));
  }
  absl::StatusOr<v1::Sweep> LockSweep(const v1::LockSweepRequest& request) override {
    return Say(Named(request.sweep()));
  }
  absl::StatusOr<v1::SubmitSweepResponse> ExtendSweep(const v1::ExtendSweepRequest& request) override {
    v1::SubmitSweepResponse response;
    response.mutable_sweep()->set_name(request.sweep());
    return Say(response);
  }
  absl::StatusOr<v1::VerifyJobsResponse> VerifyJobs(const v1::VerifyJobsRequest&) override {
    return Say(v1::VerifyJobsResponse());
  }
  absl::StatusOr<v1::ListVerificationsResponse> ListVerifications(const v1::ListVerificationsRequest&) override {
    return Say(v1::ListVerificationsResponse());
  }
  absl::StatusOr<v1::GetClaimsResponse> GetClaims(const v1::GetClaimsRequest&) override {
    return Say(v1::GetClaimsResponse());
  }
  absl::StatusOr<v1::GetEffectsResponse> GetEffects(const v1::GetEffectsRequest&) override {
    return Say(v1::GetEffectsResponse());
  }
  absl::StatusOr<v1::GetSpreadResponse> GetSpread(const v1::GetSpreadRequest&) override {
    return Say(v1::GetSpreadResponse());
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest&) override {
    return Say(v1::ListJobsResponse());
  }
  absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request) override {
    v1::GetJobResponse response;
    response.mutable_job()->set_job_id(request.job_id());
    return Say(response);
  }
  absl::StatusOr<v1::GetJobLogsResponse> GetJobLogs(const v1::GetJobRequest&) override {
    return Say(v1::GetJobLogsResponse());
  }
  absl::StatusOr<v1::ExplainJobResponse> ExplainJob(const v1::GetJobRequest&) override {
    return Say(v1::ExplainJobResponse());
  }
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest&) override { return Say(v1::Job()); }
  absl::StatusOr<v1::GetTableResponse> GetTable(const v1::GetTableRequest&) override {
    return Say(v1::GetTableResponse());
  }
  absl::StatusOr<v1::CompareArmsResponse> CompareArms(const v1::CompareArmsRequest&) override {
    return Say(v1::CompareArmsResponse());
  }
  absl::Status Query(const v1::QueryRequest&, const std::function<bool(const v1::QueryResponse&)>& send) override {
    ++calls;
    for (const v1::QueryResponse& answer : query_answers) {
      if (!send(answer)) return absl::CancelledError("the client is gone");
    }
    return error;
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest&) override {
    return Say(v1::ListWorkersResponse());
  }
  absl::StatusOr<v1::WorkerInfo> DrainWorker(const v1::DrainWorkerRequest&) override { return Say(v1::WorkerInfo()); }
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest& request,
                                        const std::function<bool()>& cancelled) override {
    v1::SyncResponse response;
    response.set_next_contact_ms(request.sequence());
    if (request.worker().worker_id() == "waits") WaitUntil(cancelled);
    return Say(response);
  }
  void Shutdown() override {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }

 private:
  static v1::Sweep Named(const std::string& name) {
    v1::Sweep sweep;
    sweep.set_name(name);
    return sweep;
  }
  template <typename Response>
  absl::StatusOr<Response> Say(Response response) {
    ++calls;
    if (!error.ok()) return error;
    return response;
  }
  void WaitUntil(const std::function<bool()>& cancelled) {
    ++waiting;
    MutexLock lock(&mutex_);
    while (!stopped_ && !cancelled()) changed_.WaitFor(&mutex_, 10'000);
    --waiting;
  }

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABLATE_GUARDED_BY(mutex_) = false;
};

}  // namespace ablate
