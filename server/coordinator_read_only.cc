// The coordinator of a database that is only read: what changes something is refused, and so is what cannot be told
// rightly from what is left. See Coordinator::OpenReadOnly.
#include "server/coordinator_impl.h"

namespace ablate {
namespace {

class ReadOnlyCoordinator final : public Coordinator {
 public:
  ReadOnlyCoordinator(std::unique_ptr<Coordinator> inner, ReadOnlyOptions options)
      : inner_(std::move(inner)), options_(std::move(options)) {}

  absl::StatusOr<v1::PlanSweepResponse> PlanSweep(const v1::PlanSweepRequest& request) override {
    return Whole([&] { return inner_->PlanSweep(request); });
  }
  absl::StatusOr<v1::Sweep> GetSweep(const v1::GetSweepRequest& request) override {
    return Whole([&] { return inner_->GetSweep(request); });
  }
  absl::StatusOr<v1::ListSweepsResponse> ListSweeps(const v1::ListSweepsRequest& request) override {
    return Whole([&] { return inner_->ListSweeps(request); });
  }
  absl::Status WatchSweep(const v1::WatchSweepRequest&, const std::function<bool(const v1::Sweep&)>&,
                          const std::function<bool()>&) override {
    return Refused();
  }
  absl::StatusOr<v1::GetGridResponse> GetGrid(const v1::GetGridRequest& request) override {
    return Whole([&] { return inner_->GetGrid(request); });
  }
  // Nothing changes: one message, and signs of life.
  absl::Status WatchChanges(const v1::WatchChangesRequest& request, const std::function<bool(const v1::Changes&)>& send,
                            const std::function<bool()>& cancelled) override {
    return inner_->WatchChanges(request, send, cancelled);
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) override {
    return Whole([&] { return inner_->ListJobs(request); });
  }
  absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest& request) override {
    return Whole([&] { return inner_->GetJob(request); });
  }
  absl::StatusOr<v1::GetJobLogsResponse> GetJobLogs(const v1::GetJobRequest& request) override {
    return Whole([&] { return inner_->GetJobLogs(request); });
  }
  absl::StatusOr<v1::ExplainJobResponse> ExplainJob(const v1::GetJobRequest& request) override {
    return Whole([&] { return inner_->ExplainJob(request); });
  }
  absl::StatusOr<v1::ListVerificationsResponse> ListVerifications(
      const v1::ListVerificationsRequest& request) override {
    return Whole([&] { return inner_->ListVerifications(request); });
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers(const v1::ListWorkersRequest& request) override {
    return Whole([&] { return inner_->ListWorkers(request); });
  }

  absl::StatusOr<v1::GetTableResponse> GetTable(const v1::GetTableRequest& request) override {
    return Defined([&] { return inner_->GetTable(request); });
  }
  absl::StatusOr<v1::CompareArmsResponse> CompareArms(const v1::CompareArmsRequest& request) override {
    return Defined([&] { return inner_->CompareArms(request); });
  }
  absl::StatusOr<v1::GetClaimsResponse> GetClaims(const v1::GetClaimsRequest& request) override {
    return Defined([&] { return inner_->GetClaims(request); });
  }
  absl::StatusOr<v1::GetEffectsResponse> GetEffects(const v1::GetEffectsRequest& request) override {
    return Defined([&] { return inner_->GetEffects(request); });
  }
  absl::StatusOr<v1::GetSpreadResponse> GetSpread(const v1::GetSpreadRequest& request) override {
    return Defined([&] { return inner_->GetSpread(request); });
  }
  // Points that are lost leave gaps, which must be told.
  absl::StatusOr<v1::GetCurvesResponse> GetCurves(const v1::GetCurvesRequest& request) override {
    return Defined([&]() -> absl::StatusOr<v1::GetCurvesResponse> {
      ABLATE_ASSIGN_OR_RETURN(v1::GetCurvesResponse response, inner_->GetCurves(request));
      if (!options_.damage.empty()) {
        response.set_note(absl::StrCat(response.note(), response.note().empty() ? "" : "; ", options_.damage));
      }
      return response;
    });
  }
  absl::Status Query(const v1::QueryRequest& request,
                     const std::function<bool(const v1::QueryResponse&)>& send) override {
    bool first = true;
    return inner_->Query(request, [&](const v1::QueryResponse& response) {
      if (!first || options_.damage.empty()) return send(response);
      first = false;
      v1::QueryResponse noted = response;
      noted.set_note(options_.damage);
      return send(noted);
    });
  }

  absl::StatusOr<v1::SubmitSweepResponse> SubmitSweep(const v1::SubmitSweepRequest&) override { return Refused(); }
  absl::StatusOr<v1::Sweep> CancelSweep(const v1::CancelSweepRequest&) override { return Refused(); }
  absl::StatusOr<v1::RetrySweepResponse> RetrySweep(const v1::RetrySweepRequest&) override { return Refused(); }
  absl::StatusOr<v1::Sweep> ResumeSweep(const v1::ResumeSweepRequest&) override { return Refused(); }
  absl::StatusOr<v1::Sweep> LockSweep(const v1::LockSweepRequest&) override { return Refused(); }
  absl::StatusOr<v1::SubmitSweepResponse> ExtendSweep(const v1::ExtendSweepRequest&) override { return Refused(); }
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest&) override { return Refused(); }
  absl::StatusOr<v1::VerifyJobsResponse> VerifyJobs(const v1::VerifyJobsRequest&) override { return Refused(); }
  absl::StatusOr<v1::WorkerInfo> DrainWorker(const v1::DrainWorkerRequest&) override { return Refused(); }
  absl::StatusOr<v1::SyncResponse> Sync(const v1::SyncRequest&, const std::function<bool()>&) override {
    return Refused();
  }
  Store* store() override { return inner_->store(); }
  void Shutdown() override { inner_->Shutdown(); }

 private:
  static absl::Status Refused() {
    return absl::FailedPreconditionError(
        "this coordinator only reads (--read-only): start ablate-server without it to change anything");
  }
  // What needs every job.
  template <typename Call>
  auto Whole(Call call) const -> decltype(call()) {
    if (options_.damage.empty()) return call();
    return absl::DataLossError(absl::StrCat("the database is damaged, and what is left does not say this for certain (",
                                            options_.damage, "). `ablate table` and `ablate query` read it"));
  }
  // What needs all that defines sweeps; results that are lost are told as missing.
  template <typename Call>
  auto Defined(Call call) const -> decltype(call()) {
    if (options_.definitions_whole) return call();
    return absl::DataLossError(absl::StrCat("the database is damaged where sweeps are defined, so that a table might be of "
                                            "the wrong arms or seeds (",
                                            options_.damage, "). `ablate query` reads single rows"));
  }

  const std::unique_ptr<Coordinator> inner_;
  const ReadOnlyOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::OpenReadOnly(CoordinatorOptions options,
                                                                       ReadOnlyOptions read_only) {
  options.read_only = true;
  options.sweeps_alone = !read_only.damage.empty();
  ABLATE_ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> inner, CoordinatorImpl::Open(options));
  return std::make_unique<ReadOnlyCoordinator>(std::move(inner), std::move(read_only));
}

}  // namespace ablate
