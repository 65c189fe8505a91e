// Second runs of finished jobs, compared bit for bit. See coordinator_impl.h.
#include <algorithm>

#include "base/hash.h"
#include "server/coordinator_impl.h"

namespace ablate {
namespace {

constexpr int64_t kMaxVerifications = 10'000;

}  // namespace

absl::StatusOr<v1::VerifyJobsResponse> CoordinatorImpl::VerifyJobs(const v1::VerifyJobsRequest& request) {
  if (request.job_id().empty() == request.sweep().empty()) {
    return absl::InvalidArgumentError("name either a job or a sweep to verify");
  }
  v1::VerifyJobsResponse response;
  Change change;
  std::vector<std::pair<JobRow, JobRow>> pairs;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::VerifyJobsResponse>(request.request_id(), "VerifyJobs"));
    if (repeated.has_value()) return *repeated;
    std::vector<JobRow> jobs;
    if (!request.job_id().empty()) {
      ABLATE_ASSIGN_OR_RETURN(const JobRow row, FindJobRow(request.job_id()));
      jobs.push_back(row);
    } else {
      ABLATE_ASSIGN_OR_RETURN(const SweepRow sweep, FindSweepRow(request.sweep()));
      absl::Status why = absl::FailedPreconditionError(
          absl::StrCat("sweep \"", scheduler_->sweep(sweep).record.name, "\" has no finished job to verify yet"));
      std::vector<std::pair<std::string, JobRow>> drawn;
      for (JobRow row : scheduler_->sweep(sweep).record.jobs) {
        const JobRecord& record = scheduler_->job(row).record;
        if (const absl::Status status = scheduler_->CanVerify(row); !status.ok()) {
          if (record.state == v1::SUCCEEDED) why = status;
          continue;
        }
        // By the key, which is the same in every database.
        drawn.push_back({Sha256Hex(absl::StrCat("verify ", request.seed(), " ", record.key)), row});
      }
      if (drawn.empty()) return why;
      std::sort(drawn.begin(), drawn.end());
      const size_t count = std::min<size_t>(drawn.size(), std::max(1, request.sample()));
      for (size_t i = 0; i < count; ++i) jobs.push_back(drawn[i].second);
      std::sort(jobs.begin(), jobs.end());
    }
    Effects effects;
    ABLATE_ASSIGN_OR_RETURN(const std::vector<JobRow> made, scheduler_->OnVerify(jobs, NowTime(), &effects));
    for (size_t i = 0; i < made.size(); ++i) {
      *response.add_jobs() = MakeJob(made[i]);
      pairs.push_back({made[i], jobs[i]});
    }
    const Body remember = Remember(request.request_id(), "VerifyJobs", response);
    const int64_t wall_us = options_.clock->WallMicros();
    change =
        Enqueue(std::move(effects), request.request_id(), nullptr,
                [pairs, remember, wall_us](Connection& db, std::vector<std::string>* unreferenced) -> absl::Status {
                  for (const auto& [job, of_job] : pairs) {
                    ABLATE_RETURN_IF_ERROR(InsertVerification(db, job, of_job, wall_us));
                  }
                  return remember ? remember(db, unreferenced) : absl::OkStatus();
                });
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  for (size_t i = 0; i < pairs.size(); ++i) {
    ABLATE_RETURN_IF_ERROR(FillJob(pairs[i].first, response.mutable_jobs(static_cast<int>(i))));
  }
  return response;
}

absl::StatusOr<v1::ListVerificationsResponse> CoordinatorImpl::ListVerifications(
    const v1::ListVerificationsRequest& request) {
  SweepRow row = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    if (!request.sweep().empty()) {
      ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(request.sweep()));
    }
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  v1::ListVerificationsResponse response;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(std::vector<v1::Verification> all, ReadVerifications(db, row, kMaxVerifications));
    for (v1::Verification& one : all) *response.add_verifications() = std::move(one);
    return absl::OkStatus();
  }));
  return response;
}

}  // namespace ablate
