// How far each arm and seed is, and that something has changed. See coordinator_impl.h.
#include <algorithm>
#include <chrono>
#include <string_view>
#include <unordered_map>

#include "base/status_macros.h"
#include "server/coordinator_impl.h"

namespace ablate {
namespace {

constexpr int64_t kChangesIntervalMicros = 200'000;
constexpr int64_t kAskMicros = 500'000;    // between questions whether a caller is still there
constexpr size_t kMaxLoadedPoints = 16;    // sweeps; a hundred bytes a job each

// What the grid needs of a job: copied out, so that the lock is held for no longer.
struct Glimpse {
  v1::JobState state = v1::BLOCKED;
  v1::FailureKind failure = v1::FAILURE_KIND_UNSPECIFIED;
  bool diverged = false;
  int64_t progress = 0;
};

Glimpse GlimpseOf(const Scheduler::Job& job) {
  return {.state = job.record.state,
          .failure = job.record.last_failure == nullptr ? v1::FAILURE_KIND_UNSPECIFIED : job.record.last_failure->kind(),
          .diverged = job.record.outcome == v1::DIVERGED,
          .progress = job.progress};
}

// The worst first; SUCCEEDED only where all are.
int Rank(v1::JobState state) {
  switch (state) {
    case v1::FAILED:
      return 0;
    case v1::RUNNING:
      return 1;
    case v1::QUEUED:
      return 2;
    case v1::BLOCKED:
      return 3;
    case v1::CANCELLED:
      return 4;
    default:
      return 5;
  }
}

}  // namespace

void CoordinatorImpl::FindJobs(SweepRow row, Points* points) const {
  points->jobs = scheduler_->sweep(row).record.jobs;
  std::unordered_map<std::string_view, JobRow> row_of_key;
  row_of_key.reserve(points->jobs.size());
  for (JobRow job : points->jobs) row_of_key[scheduler_->job(job).record.key] = job;
  const auto find = [&](const std::string& key, std::vector<JobRow>* rows, std::vector<std::string>* ids) {
    const auto found = row_of_key.find(key);
    rows->push_back(found == row_of_key.end() ? 0 : found->second);
    ids->push_back(found == row_of_key.end() ? "" : scheduler_->job(found->second).record.job_id);
  };
  for (const StoredPoints::Stage& stage : points->stored.stages) {
    find(stage.key, &points->stage_jobs, &points->stage_job_ids);
  }
  for (const std::string& key : points->stored.evaluations) {
    find(key, &points->evaluation_jobs, &points->evaluation_job_ids);
  }
}

absl::StatusOr<std::shared_ptr<const CoordinatorImpl::Points>> CoordinatorImpl::LoadPoints(SweepRow row) {
  auto points = std::make_shared<Points>();
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    const auto found = points_.find(row);
    if (found != points_.end() && found->second->plans_version == plans_version_ &&
        found->second->jobs == scheduler_->sweep(row).record.jobs) {
      return found->second;
    }
    points->plans_version = plans_version_;
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(points->stored, ReadPoints(db, row));
    return absl::OkStatus();
  }));
  MutexLock lock(&mutex_);
  ABLATE_RETURN_IF_ERROR(CheckOpen());
  FindJobs(row, points.get());
  if (points_.size() >= kMaxLoadedPoints) points_.clear();
  points_[row] = points;
  return points;
}

absl::StatusOr<v1::GetGridResponse> CoordinatorImpl::GetGrid(const v1::GetGridRequest& request) {
  SweepRow row = 0;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(request.sweep()));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<const Points> points, LoadPoints(row));
  std::vector<Glimpse> stages, evaluations;
  bool cancelled = false;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    const auto look = [&](const std::vector<JobRow>& rows, std::vector<Glimpse>* glimpses) {
      for (JobRow job : rows) {
        // After a write was undone the last jobs may be gone.
        const bool known = job != 0 && job <= static_cast<JobRow>(scheduler_->job_count());
        glimpses->push_back(known ? GlimpseOf(scheduler_->job(job)) : Glimpse());
      }
    };
    look(points->stage_jobs, &stages);
    look(points->evaluation_jobs, &evaluations);
    cancelled = scheduler_->sweep(row).record.state == v1::SWEEP_CANCELLED;
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));

  const StoredPoints& stored = points->stored;
  v1::GetGridResponse response;
  for (size_t i = 0; i < stored.arms.size(); ++i) {
    v1::GetGridResponse::Arm* arm = response.add_arms();
    arm->set_label(stored.arms[i].label);
    arm->set_arm_json(stored.arms[i].json);
    arm->set_baseline(static_cast<int>(i) == stored.baseline_arm);
    arm->set_phase(stored.arms[i].phase);
  }
  std::set<int64_t> seeds;
  for (const StoredPoint& point : stored.points) {
    seeds.insert(point.seed);
    v1::GetGridResponse::Cell* cell = response.add_cells();
    cell->set_arm(point.arm);
    cell->set_seed(point.seed);
    cell->set_phase(point.phase);
    cell->set_jobs(static_cast<int32_t>(point.stages.size() + point.evaluations.size()));
    int64_t steps = 0;
    for (int stage : point.stages) steps += stored.stages[stage].to_step - stored.stages[stage].from_step;
    cell->set_steps(steps);
    if (point.sealed) {
      cell->set_sealed(true);
      cell->set_state(cancelled ? v1::CANCELLED : v1::BLOCKED);
      continue;
    }
    const Glimpse* shown = nullptr;
    const std::string* job_id = nullptr;
    int64_t done = 0, trained = 0;
    const auto add = [&](const Glimpse& glimpse, const std::string& id) {
      done += glimpse.state == v1::SUCCEEDED;
      if (glimpse.diverged) cell->set_diverged(true);
      if (shown != nullptr && Rank(shown->state) <= Rank(glimpse.state)) return;
      shown = &glimpse;
      job_id = &id;
    };
    for (int stage : point.stages) {
      trained += stages[stage].progress;
      add(stages[stage], points->stage_job_ids[stage]);
    }
    for (int evaluation : point.evaluations) {
      add(evaluations[evaluation], points->evaluation_job_ids[evaluation]);
    }
    cell->set_jobs_done(static_cast<int32_t>(done));
    cell->set_step(trained);
    if (shown == nullptr) continue;
    cell->set_state(shown->state);
    cell->set_job_id(shown->state == v1::SUCCEEDED ? points->stage_job_ids[point.stages.back()] : *job_id);
    cell->set_failure(shown->failure);
  }
  for (int64_t seed : seeds) response.add_seeds(seed);
  return response;
}

absl::Status CoordinatorImpl::WatchChanges(const v1::WatchChangesRequest&,
                                           const std::function<bool(const v1::Changes&)>& send,
                                           const std::function<bool()>& cancelled) {
  // In real time, as in WatchSweep: this is for the client's sake.
  using RealClock = std::chrono::steady_clock;
  const auto heartbeat = std::chrono::milliseconds(options_.watch_heartbeat_ms);
  const auto micros_until = [](RealClock::time_point until) {
    return std::chrono::duration_cast<std::chrono::microseconds>(until - RealClock::now()).count();
  };
  int64_t seen = -1;
  RealClock::time_point sent;
  while (true) {
    v1::Changes changes;
    bool due = false;
    {
      MutexLock lock(&mutex_);
      if (seen >= 0) {
        // Whatever changes meanwhile is told in one message.
        while (!stopping_ && micros_until(sent + std::chrono::microseconds(kChangesIntervalMicros)) > 0) {
          changed_.WaitFor(&mutex_, micros_until(sent + std::chrono::microseconds(kChangesIntervalMicros)));
        }
        if (seen == change_version_ && !stopping_) {
          const int64_t left = micros_until(sent + heartbeat);
          if (left > 0) changed_.WaitFor(&mutex_, std::min(left, kAskMicros));
        }
      }
      if (stopping_) return CheckOpen();
      due = seen < 0 || seen != change_version_ || micros_until(sent + heartbeat) <= 0;
      if (due) {
        seen = change_version_;
        changes.set_revision(first_revision_ + seen);
      }
    }
    if (cancelled()) return absl::CancelledError("the client is gone");
    if (!due) continue;
    if (!send(changes)) return absl::CancelledError("the client is gone");
    sent = RealClock::now();
  }
}

}  // namespace ablate
