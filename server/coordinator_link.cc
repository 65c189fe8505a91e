// The worker link: reports in, assignments out. See coordinator_impl.h.
#include <algorithm>

#include "base/hash.h"
#include "base/log.h"
#include "server/coordinator_impl.h"

namespace ablate {
namespace {

constexpr int64_t kPartlyIdleContactMs = 500;  // a slot is free, and nobody else would tell the worker of new work
constexpr int64_t kAskMicros = 500'000;        // between questions whether the caller is still there
constexpr size_t kMaxCachedTasks = 20'000;
constexpr size_t kMaxNamed = 100'000;
constexpr int64_t kNamedForChanges = 50'000;

// Whether a report brings anything for the database besides its phase.
bool HasNews(const v1::AttemptReport& report) { return report.points_size() > 0 || report.has_checkpoint(); }

}  // namespace

absl::StatusOr<CoordinatorImpl::LinkChange> CoordinatorImpl::Decide(const v1::SyncRequest& request) {
  CheckStall();
  Effects effects;
  LinkChange link;
  ABLATE_ASSIGN_OR_RETURN(link.decision, scheduler_->OnSync(request, NowTime(), &effects));
  struct Report {
    JobRef job;
    v1::AttemptReport report;
    bool result = false;
    bool verification = false;
  };
  auto reports = std::make_shared<std::vector<Report>>();
  const auto add = [&](int index, bool result) {
    const v1::AttemptReport& report = request.attempts(index);
    if (!result && !HasNews(report)) return;
    const JobRecord& record = scheduler_->FindJob(report.job_id())->record;
    if (report.points_size() > 0) NoteMeasured(record.row, /*curves_alone=*/true);
    reports->push_back({{record.row, record.kind, record.key}, report, result, record.verify_of != 0});
    for (const v1::CheckpointRef* ref : {&report.checkpoint(), &report.result().end_state()}) {
      for (const std::string* sha256 : {&ref->weights().sha256(), &ref->optimizer().sha256()}) {
        if (!sha256->empty()) named_at_[*sha256] = sequence_ + 1;
      }
    }
  };
  for (int index : link.decision.progress) add(index, false);
  for (int index : link.decision.results) add(index, true);
  if (named_at_.size() > kMaxNamed) {
    std::erase_if(named_at_, [&](const auto& named) { return named.second + kNamedForChanges < sequence_; });
  }
  if (effects.empty() && reports->empty()) {
    // Progress alone is not stored, but those who watch want to see it.
    if (!link.decision.progress.empty()) {
      ++change_version_;
      changed_.NotifyAll();
    }
    link.earlier = last_change_;  // what is answered may rest on a write that is not committed yet
    return link;
  }
  const int64_t wall_us = options_.clock->WallMicros();
  link.change = Enqueue(
      std::move(effects), "", nullptr,
      [reports, wall_us](Connection& db, std::vector<std::string>* unreferenced) -> absl::Status {
        for (const Report& report : *reports) {
          if (report.verification) {
            ABLATE_RETURN_IF_ERROR(report.result
                                       ? WriteVerification(db, report.job, report.report, wall_us, unreferenced)
                                       : ForgetVerificationProgress(db, report.report, unreferenced));
            continue;
          }
          ABLATE_RETURN_IF_ERROR(report.result ? WriteResult(db, report.job, report.report, wall_us)
                                               : WriteProgress(db, report.job, report.report, wall_us, unreferenced));
        }
        return absl::OkStatus();
      });
  return link;
}

absl::StatusOr<CoordinatorImpl::LinkChange> CoordinatorImpl::WaitForWork(const v1::SyncRequest& request,
                                                                         const std::function<bool()>& cancelled) {
  const int64_t until = options_.clock->MonotonicMicros() + options_.idle_wait_ms * 1000;
  LinkChange link;
  int64_t seen = -1;
  while (true) {
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      if (seen == work_version_) work_changed_.WaitFor(&mutex_, std::min(kAskMicros, options_.idle_wait_ms * 1000));
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      seen = work_version_;
      Effects effects;
      ABLATE_ASSIGN_OR_RETURN(link.decision, scheduler_->OnPoll(request, NowTime(), &effects));
      if (!effects.empty()) link.change = Enqueue(std::move(effects));
    }
    if (!link.decision.fully_idle || link.decision.drain || options_.clock->MonotonicMicros() >= until) return link;
    if (cancelled()) return absl::CancelledError("the worker is gone");
  }
}

absl::StatusOr<v1::SyncResponse> CoordinatorImpl::Sync(const v1::SyncRequest& request,
                                                       const std::function<bool()>& cancelled) {
  LinkChange link;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(link, Decide(request));
    // An older call of this worker that still waits ends now.
    work_changed_.NotifyAll();
  }
  ABLATE_RETURN_IF_ERROR(link.change.has_value() ? Finish(*link.change) : Settle(link.earlier));
  if (link.decision.fully_idle && !link.decision.drain && !request.draining() && options_.idle_wait_ms > 0) {
    ABLATE_ASSIGN_OR_RETURN(link, WaitForWork(request, cancelled));
    if (link.change.has_value()) ABLATE_RETURN_IF_ERROR(Finish(*link.change));
  }
  return Answer(request, link.decision);
}

absl::StatusOr<v1::Task> CoordinatorImpl::TaskOf(JobRow row, int64_t attempt) {
  {
    MutexLock lock(&tasks_mutex_);
    if (const auto found = tasks_.find({row, attempt}); found != tasks_.end()) return found->second;
  }
  v1::JobKind kind;
  std::string key;
  bool verification = false;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    kind = scheduler_->job(row).record.kind;
    key = scheduler_->job(row).record.key;
    verification = scheduler_->job(row).record.verify_of != 0;
  }
  v1::Task task;
  std::vector<std::string> lost;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(task, ReadTask(db, kind, key, options_.has_artifact, &lost, verification));
    return absl::OkStatus();
  }));
  // A name of its own: the worker keeps no checkpoint of it from the first run.
  if (verification && task.has_stage()) {
    task.mutable_stage()->set_stage_key(Sha256Hex(absl::StrCat("verification ", row, " of ", key)));
  }
  for (const std::string& line : lost) {
    LOG(WARNING) << line << "; it starts from "
                 << (task.stage().has_start() ? absl::StrCat("step ", task.stage().start().step()) : "the beginning");
  }
  MutexLock lock(&tasks_mutex_);
  if (tasks_.size() >= kMaxCachedTasks) tasks_.clear();
  tasks_[{row, attempt}] = task;
  return task;
}

absl::StatusOr<v1::SyncResponse> CoordinatorImpl::Answer(const v1::SyncRequest& request, const SyncDecision& decision) {
  v1::SyncResponse response;
  for (const SyncDecision::Desired& desired : decision.desired) {
    v1::Assignment* assignment = response.add_desired();
    assignment->set_attempt(desired.attempt);
    assignment->set_slot(desired.slot);
    ABLATE_ASSIGN_OR_RETURN(*assignment->mutable_task(), TaskOf(desired.job, desired.attempt));
    if (assignment->task().has_stage())
      assignment->mutable_task()->mutable_stage()->set_keep_optimizer(desired.keep_optimizer);
    assignment->set_job_id(desired.job_id);
  }
  for (const v1::AttemptAck& ack : decision.acks) *response.add_acks() = ack;
  for (const std::vector<int>* indices : {&decision.progress, &decision.results}) {
    for (int index : *indices) {
      const v1::AttemptReport& report = request.attempts(index);
      if (report.points_sequence() == 0) continue;
      v1::PointsAck* ack = response.add_points_acks();
      ack->set_job_id(report.job_id());
      ack->set_attempt(report.attempt());
      ack->set_points_sequence(report.points_sequence());
    }
  }
  response.set_lease_ms(options_.lease_ms);
  response.set_drain(decision.drain);
  const bool takes_work = !decision.drain && !request.draining();
  int64_t next = options_.busy_contact_ms;
  if (takes_work && decision.desired.empty() && options_.idle_wait_ms > 0) {
    next = 1;  // the next call waits here
  } else if (takes_work && decision.partly_idle) {
    next = std::min(next, kPartlyIdleContactMs);
  }
  response.set_next_contact_ms(next);
  return response;
}

}  // namespace ablate
