// Jobs and workers as users see them. See coordinator_impl.h.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "server/coordinator_impl.h"

namespace ablate {

absl::StatusOr<JobRow> CoordinatorImpl::FindJobRow(const std::string& job_id) const {
  ABLATE_RETURN_IF_ERROR(CheckOpen());
  if (const Scheduler::Job* job = scheduler_->FindJob(job_id)) return job->record.row;
  return absl::NotFoundError(absl::StrCat("there is no job \"", job_id, "\"; ablate job list shows all"));
}

v1::Job CoordinatorImpl::MakeJob(JobRow row) const {
  const Scheduler::Job& job = scheduler_->job(row);
  const JobRecord& record = job.record;
  v1::Job message;
  message.set_job_id(record.job_id);
  message.set_kind(record.kind);
  message.set_state(record.state);
  message.set_key(record.key);
  if (record.parent != 0) message.set_parent_job_id(scheduler_->job(record.parent).record.job_id);
  message.set_attempt(record.attempt);
  message.set_failures(record.failures);
  message.set_max_failures(record.max_failures);
  if (record.retry_of != 0) message.set_retry_of(scheduler_->job(record.retry_of).record.job_id);
  for (SweepRow sweep : job.sweeps) message.add_sweep_ids(scheduler_->sweep(sweep).record.sweep_id);
  message.set_outcome(record.outcome);
  if (record.last_failure != nullptr) *message.mutable_last_failure() = *record.last_failure;
  if (record.state == v1::RUNNING) message.set_worker_id(record.worker_id);
  message.set_step(job.progress);
  message.set_total_steps(record.to_step - record.from_step);
  message.set_created_at_us(record.created_at_us);
  message.set_started_at_us(record.started_at_us);
  message.set_ended_at_us(record.ended_at_us);
  message.set_tokens_per_second(job.tokens_per_second);
  message.set_sealed(record.sealed);
  if (record.verify_of != 0) message.set_verify_of(scheduler_->job(record.verify_of).record.job_id);
  return message;
}

absl::Status CoordinatorImpl::FillJob(JobRow row, v1::Job* job) {
  return store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(*job->mutable_task(), ReadTask(db, job->kind(), job->key()));
    return ReadJobDetails(db, row, job);
  });
}

absl::StatusOr<v1::ListJobsResponse> CoordinatorImpl::ListJobs(const v1::ListJobsRequest& request) {
  int64_t start = 1;
  if (!request.page_token().empty() && (!absl::SimpleAtoi(request.page_token(), &start) || start < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token \"", request.page_token(), "\" is none that a list gave"));
  }
  const int size = request.page_size() <= 0 ? 100 : std::min(request.page_size(), 1000);
  v1::ListJobsResponse response;
  std::vector<JobRow> rows;
  SweepRow sweep = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    const auto wanted = [&](JobRow row) {
      return request.states().empty() || std::find(request.states().begin(), request.states().end(),
                                                   scheduler_->job(row).record.state) != request.states().end();
    };
    // False when the page is full: the job starts the next one.
    const auto add = [&](JobRow row) {
      if (!wanted(row)) return true;
      if (static_cast<int>(rows.size()) == size) {
        response.set_next_page_token(std::to_string(row));
        return false;
      }
      rows.push_back(row);
      *response.add_jobs() = MakeJob(row);
      return true;
    };
    if (request.sweep().empty()) {
      for (JobRow row = start; row <= static_cast<JobRow>(scheduler_->job_count()); ++row) {
        if (!add(row)) break;
      }
    } else {
      ABLATE_ASSIGN_OR_RETURN(sweep, FindSweepRow(request.sweep()));
      std::vector<JobRow> of_sweep = scheduler_->sweep(sweep).record.jobs;
      std::sort(of_sweep.begin(), of_sweep.end());
      for (auto place = std::lower_bound(of_sweep.begin(), of_sweep.end(), start); place != of_sweep.end(); ++place) {
        if (!add(*place)) break;
      }
    }
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    for (size_t i = 0; i < rows.size(); ++i) {
      v1::Job* job = response.mutable_jobs(static_cast<int>(i));
      ABLATE_ASSIGN_OR_RETURN(*job->mutable_task(), ReadTask(db, job->kind(), job->key()));
      ABLATE_RETURN_IF_ERROR(ReadJobDetails(db, rows[i], job, sweep));
    }
    return absl::OkStatus();
  }));
  return response;
}

absl::StatusOr<v1::GetJobResponse> CoordinatorImpl::GetJob(const v1::GetJobRequest& request) {
  v1::GetJobResponse response;
  JobRow row = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindJobRow(request.job_id()));
    *response.mutable_job() = MakeJob(row);
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_RETURN_IF_ERROR(FillJob(row, response.mutable_job()));
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(std::vector<v1::Attempt> attempts, ReadAttempts(db, row, request.job_id()));
    for (v1::Attempt& attempt : attempts) *response.add_attempts() = std::move(attempt);
    return absl::OkStatus();
  }));
  return response;
}

absl::StatusOr<v1::GetJobLogsResponse> CoordinatorImpl::GetJobLogs(const v1::GetJobRequest& request) {
  v1::GetJobLogsResponse response;
  JobRow row = 0;
  std::string stage_key;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindJobRow(request.job_id()));
    const JobRecord& record = scheduler_->job(row).record;
    if (record.kind == v1::STAGE) stage_key = record.key;
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(std::vector<v1::Attempt> attempts, ReadAttempts(db, row, request.job_id()));
    for (v1::Attempt& attempt : attempts) *response.add_attempts() = std::move(attempt);
    if (!stage_key.empty()) {
      ABLATE_ASSIGN_OR_RETURN(std::vector<v1::CurvePoint> points, ReadCurve(db, stage_key));
      for (v1::CurvePoint& point : points) *response.add_points() = std::move(point);
    }
    ABLATE_ASSIGN_OR_RETURN(const std::vector<StoredEvent> events, ReadEvents(db, row));
    for (const StoredEvent& event : events) {
      v1::GetJobLogsResponse::Event* message = response.add_events();
      message->set_at_us(event.at_us);
      message->set_text(event.text);
    }
    return absl::OkStatus();
  }));
  return response;
}

absl::StatusOr<v1::ExplainJobResponse> CoordinatorImpl::ExplainJob(const v1::GetJobRequest& request) {
  v1::ExplainJobResponse response;
  JobRow row = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindJobRow(request.job_id()));
    const Scheduler::Explanation explanation = scheduler_->Explain(row, NowTime());
    *response.mutable_job() = MakeJob(row);
    response.set_explanation(explanation.text);
    response.set_next_step(explanation.next_step);
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_RETURN_IF_ERROR(FillJob(row, response.mutable_job()));
  return response;
}

absl::StatusOr<v1::Job> CoordinatorImpl::CancelJob(const v1::CancelJobRequest& request) {
  v1::Job response;
  Change change;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::Job>(request.request_id(), "CancelJob"));
    if (repeated.has_value()) return *repeated;
    ABLATE_ASSIGN_OR_RETURN(const JobRow row, FindJobRow(request.job_id()));
    Effects effects;
    ABLATE_RETURN_IF_ERROR(scheduler_->OnCancelJob(row, NowTime(), &effects));
    response = MakeJob(row);
    change = Enqueue(std::move(effects), request.request_id(), nullptr,
                     Remember(request.request_id(), "CancelJob", response));
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  return response;
}

v1::WorkerInfo CoordinatorImpl::MakeWorker(const Scheduler::Worker& worker) const {
  v1::WorkerInfo info = worker.record.info;
  info.set_draining(worker.draining || worker.record.drain_asked);
  info.set_connected(worker.connected);
  info.set_last_contact_at_us(worker.last_contact_us);
  info.clear_running_job_ids();
  for (const auto& [slot, jobs] : worker.slots) {
    for (JobRow row : jobs) info.add_running_job_ids(scheduler_->job(row).record.job_id);
  }
  return info;
}

absl::StatusOr<v1::ListWorkersResponse> CoordinatorImpl::ListWorkers(const v1::ListWorkersRequest& request) {
  const int size = request.page_size() <= 0 ? 100 : std::min(request.page_size(), 1000);
  v1::ListWorkersResponse response;
  MutexLock lock(&mutex_);
  ABLATE_RETURN_IF_ERROR(CheckOpen());
  const auto& workers = scheduler_->workers();
  for (auto place = workers.lower_bound(request.page_token()); place != workers.end(); ++place) {
    if (response.workers_size() == size) {
      response.set_next_page_token(place->first);
      break;
    }
    *response.add_workers() = MakeWorker(place->second);
  }
  return response;
}

absl::StatusOr<v1::WorkerInfo> CoordinatorImpl::DrainWorker(const v1::DrainWorkerRequest& request) {
  v1::WorkerInfo response;
  Change change;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::WorkerInfo>(request.request_id(), "DrainWorker"));
    if (repeated.has_value()) return *repeated;
    Effects effects;
    ABLATE_RETURN_IF_ERROR(scheduler_->OnDrain(request.worker_id(), NowTime(), &effects));
    response = MakeWorker(*scheduler_->FindWorker(request.worker_id()));
    change = Enqueue(std::move(effects), request.request_id(), nullptr,
                     Remember(request.request_id(), "DrainWorker", response));
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  return response;
}

}  // namespace ablate
