// See scheduler.h. Here: restart, the one place that changes states, and what follows from a change.
// scheduler_plan.cc has submission, retry and cancelling; scheduler_sync.cc the worker link; explain.cc the words.
#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ablate {

std::string_view AttemptStateName(AttemptState state) {
  switch (state) {
    case AttemptState::kNone:
      return "none";
    case AttemptState::kRunning:
      return "RUNNING";
    case AttemptState::kSucceeded:
      return "SUCCEEDED";
    case AttemptState::kFailed:
      return "FAILED";
    case AttemptState::kReleased:
      return "RELEASED";
    case AttemptState::kLost:
      return "LOST";
    case AttemptState::kCancelled:
      return "CANCELLED";
  }
  return "none";
}

AttemptState AttemptStateFromName(std::string_view name) {
  for (AttemptState state : {AttemptState::kRunning, AttemptState::kSucceeded, AttemptState::kFailed,
                             AttemptState::kReleased, AttemptState::kLost, AttemptState::kCancelled}) {
    if (AttemptStateName(state) == name) return state;
  }
  return AttemptState::kNone;
}

Scheduler::Scheduler(SchedulerOptions options, IdGenerator* ids) : options_(std::move(options)), ids_(ids) {}

absl::Status Scheduler::OnRestart(const SchedulerSnapshot& snapshot, Now now) {
  CHECK(jobs_.empty() && sweeps_.empty()) << "OnRestart needs a fresh scheduler";
  for (const JobRecord& record : snapshot.jobs) {
    if (record.row != static_cast<JobRow>(jobs_.size()) + 1 ||
        record.parent > static_cast<JobRow>(snapshot.jobs.size())) {
      return absl::DataLossError(absl::StrCat("the database is damaged: job ", record.job_id, " has row ", record.row,
                                              " where ", jobs_.size() + 1, " was expected"));
    }
    Job& job = jobs_.emplace_back();
    job.record = record;
    job.class_id = ready_.ClassOf(record.requirement);
    if (record.kind == v1::STAGE && record.state == v1::SUCCEEDED) job.progress = record.to_step - record.from_step;
    jobs_by_id_[record.job_id] = record.row;
    job.record.sealed = false;  // follows from the sweeps
    if (record.verify_of == 0) latest_by_key_[record.key] = record.row;
  }
  for (const StateAvailability& state : snapshot.states) {
    StageState& known = states_[state.stage_key];
    known.weights = state.weights;
    known.optimizer = state.optimizer;
    known.weights_sha256 = state.weights_sha256;
    known.optimizer_sha256 = state.optimizer_sha256;
  }
  for (Job& job : jobs_) {
    if (job.record.parent != 0) At(job.record.parent).children.push_back(job.record.row);
    // Before the sweeps are attached, which moves what is queued.
    if (job.record.state == v1::QUEUED) EnterQueue(job, 0);
    if (!job.record.failed_on.empty()) job.steer_until_us = now.monotonic_us + options_.steer_us;
  }
  for (const SweepRecord& record : snapshot.sweeps) {
    if (record.row != static_cast<SweepRow>(sweeps_.size()) + 1) {
      return absl::DataLossError(absl::StrCat("the database is damaged: sweep ", record.name, " has row ", record.row,
                                              " where ", sweeps_.size() + 1, " was expected"));
    }
    Sweep& sweep = sweeps_.emplace_back();
    sweep.record = record;
    sweep.record.jobs.clear();
    sweep.record.sealed_jobs.clear();
    sweeps_by_id_[record.sweep_id] = record.row;
    sweeps_by_name_[record.name] = record.row;
    const std::unordered_set<JobRow> sealed(record.sealed_jobs.begin(), record.sealed_jobs.end());
    for (JobRow job : record.jobs) Attach(record.row, job, sealed.contains(job));
  }
  for (const SweepFailures& failures : snapshot.sweep_failures) {
    if (failures.sweep < 1 || failures.sweep > static_cast<SweepRow>(sweeps_.size())) {
      return absl::DataLossError(absl::StrCat("the database is damaged: failures of a sweep with row ", failures.sweep));
    }
    SweepAt(failures.sweep).failures[failures.signature] = failures;
  }
  for (const WorkerRecord& record : snapshot.workers) {
    Worker& worker = workers_[record.info.worker_id()];
    worker.record = record;
    worker.record.retired_incarnations.clear();
    worker.retired_incarnations.insert(record.retired_incarnations.begin(), record.retired_incarnations.end());
    worker.last_contact_us = record.info.last_contact_at_us();
    worker.deadline_us = now.monotonic_us + options_.lease_us;
  }
  for (Job& job : jobs_) {
    if (job.record.state == v1::RUNNING) {
      Worker& worker = workers_[job.record.worker_id];
      worker.record.info.set_worker_id(job.record.worker_id);
      worker.deadline_us = now.monotonic_us + options_.lease_us;
      worker.slots[job.record.slot].push_back(job.record.row);
      job.proven_at_us = now.monotonic_us + options_.proven_us;
    }
    SetSealed(job, job.record.state == v1::BLOCKED && IsSealed(job));
    UpdateNeed(job);
  }
  // Nothing of this is a change: the store has it all.
  for (Job& job : jobs_) job.dirty = false;
  for (Sweep& sweep : sweeps_) sweep.touched = sweep.dirty = false;
  dirty_jobs_.clear();
  touched_sweeps_.clear();
  collection_candidates_.clear();
  return absl::OkStatus();
}

LeaseRank Scheduler::RankOf(const Job& job) const {
  LeaseRank rank{.is_stage = job.record.kind == v1::STAGE};
  rank.sequence = rank.is_stage ? job.record.row : job.record.parent;
  if (job.record.verify_of != 0) return rank;  // asked for by hand: before the sweeps of priority 0
  bool found = false;
  for (SweepRow row : job.sweeps) {
    if (!IsActive(row)) continue;
    const std::pair<int32_t, SweepRow> level{-sweeps_[row - 1].record.priority, row};
    if (!found || level < std::pair(rank.negative_priority, rank.order)) {
      std::tie(rank.negative_priority, rank.order) = level;
      found = true;
    }
  }
  return rank;
}

int Scheduler::LiveSweeps(const Job& job) const {
  return static_cast<int>(
      std::count_if(job.sweeps.begin(), job.sweeps.end(), [&](SweepRow row) { return IsLive(row); }));
}

void Scheduler::Requeue(Job& job) {
  if (job.record.state != v1::QUEUED) return;
  if (RankOf(job) == job.rank && IsHeld(job) == job.held) return;
  const int64_t not_before_us = job.not_before_us;
  LeaveQueue(job);
  EnterQueue(job, not_before_us);
}

void Scheduler::EnterQueue(Job& job, int64_t not_before_us) {
  job.rank = RankOf(job);
  job.not_before_us = not_before_us;
  job.held = IsHeld(job);
  if (job.held) {
    ++held_;
  } else if (not_before_us > 0) {
    delayed_.insert({not_before_us, job.record.row});
  } else {
    ready_.Insert(job.class_id, job.rank, job.record.row);
  }
}

void Scheduler::LeaveQueue(Job& job) {
  if (job.held) {
    --held_;
    job.held = false;
  } else if (job.not_before_us > 0) {
    delayed_.erase({job.not_before_us, job.record.row});
  } else {
    ready_.Remove(job.class_id, job.rank, job.record.row);
  }
}

void Scheduler::MarkDirty(Job& job) {
  if (job.dirty) return;
  job.dirty = true;
  dirty_jobs_.push_back(job.record.row);
}

void Scheduler::Count(Sweep& sweep, const Job& job, int sign) {
  v1::JobCounts& counts = sweep.counts;
  switch (job.record.state) {
    case v1::BLOCKED:
      counts.set_blocked(counts.blocked() + sign);
      break;
    case v1::QUEUED:
      counts.set_queued(counts.queued() + sign);
      break;
    case v1::RUNNING:
      counts.set_running(counts.running() + sign);
      break;
    case v1::SUCCEEDED:
      counts.set_succeeded(counts.succeeded() + sign);
      break;
    case v1::FAILED:
      counts.set_failed(counts.failed() + sign);
      break;
    case v1::CANCELLED:
      counts.set_cancelled(counts.cancelled() + sign);
      break;
    default:
      break;
  }
  if (job.record.outcome == v1::DIVERGED) sweep.diverged += sign;
}

void Scheduler::TouchSweeps(const Job& job) {
  for (SweepRow row : job.sweeps) {
    Sweep& sweep = SweepAt(row);
    if (sweep.touched) continue;
    sweep.touched = true;
    touched_sweeps_.push_back(row);
  }
}

void Scheduler::SetProgress(Job& job, int64_t progress, double tokens_per_second) {
  if (job.record.kind == v1::STAGE) {
    progress = std::clamp<int64_t>(progress, 0, job.record.to_step - job.record.from_step);
  } else {
    progress = 0;
  }
  for (SweepRow row : job.sweeps) {
    SweepAt(row).steps_done += progress - job.progress;
    SweepAt(row).tokens_per_second += tokens_per_second - job.tokens_per_second;
  }
  job.progress = progress;
  job.tokens_per_second = tokens_per_second;
}

void Scheduler::UpdateNeed(Job& job) {
  if (job.record.parent == 0) return;
  // A failed job of a live sweep still needs its parent's state: the user may retry it.
  const bool needs = !IsTerminal(job.record.state) || (job.record.state == v1::FAILED && LiveSweeps(job) > 0);
  if (needs == job.counted_need) return;
  job.counted_need = needs;
  const std::string& key = At(job.record.parent).record.key;
  StageState& state = states_[key];
  (job.record.kind == v1::STAGE ? state.stages_in_need : state.evaluations_in_need) += needs ? 1 : -1;
  if (!needs) collection_candidates_.insert(key);
}

void Scheduler::ReleaseSlot(const Job& job) {
  const auto worker = workers_.find(job.record.worker_id);
  if (worker == workers_.end()) return;
  const auto slot = worker->second.slots.find(job.record.slot);
  if (slot == worker->second.slots.end()) return;
  std::erase(slot->second, job.record.row);
  if (slot->second.empty()) worker->second.slots.erase(slot);
}

void Scheduler::EndAttempt(Job& job, AttemptState state, const v1::Failure* failure) {
  job.record.attempt_state = state;
  AttemptChange change{.job = job.record.row, .attempt = job.record.attempt, .state = state};
  if (failure != nullptr) {
    change.failure = *failure;
    // Being handed back is no failure of the job.
    if (state != AttemptState::kReleased) job.record.last_failure = std::make_shared<const v1::Failure>(*failure);
  }
  effects_->attempt_changes.push_back(std::move(change));
  MarkDirty(job);
}

void Scheduler::Move(Job& job, v1::JobState to, Cause cause, Now now, const std::string& text, v1::Outcome outcome) {
  const v1::JobState from = job.record.state;
  CHECK(IsAllowed(from, to, cause)) << job.record.job_id << ": " << StateName(from) << " -> " << StateName(to) << " by "
                                    << CauseName(cause) << " is no edge of the job state machine";
  for (SweepRow row : job.sweeps) Count(SweepAt(row), job, -1);
  if (from == v1::QUEUED) LeaveQueue(job);
  if (from == v1::RUNNING) {
    ReleaseSlot(job);
    SetProgress(job, job.progress, 0);
  }

  job.record.state = to;
  job.record.outcome = outcome;
  if (to == v1::QUEUED) {
    const bool failed = cause == Cause::kRetryableFailure || cause == Cause::kPreempted;
    EnterQueue(job, failed ? now.monotonic_us + RetryDelay(job.record.failures) : 0);
  }
  SetSealed(job, to == v1::BLOCKED && IsSealed(job));
  if (to == v1::RUNNING && cause == Cause::kLeased) job.record.started_at_us = now.wall_us;
  if (IsTerminal(to)) job.record.ended_at_us = now.wall_us;
  if (to == v1::SUCCEEDED) SetProgress(job, job.record.to_step - job.record.from_step, 0);

  for (SweepRow row : job.sweeps) Count(SweepAt(row), job, +1);
  TouchSweeps(job);
  MarkDirty(job);
  UpdateNeed(job);
  if (job.record.kind == v1::STAGE && IsTerminal(to)) {
    collection_candidates_.insert(job.record.key);
    if (to != v1::FAILED) periodic_candidates_.insert(job.record.key);  // a retry resumes a failed stage
  }
  effects_->transitions.push_back({.job = job.record.row,
                                   .from = from,
                                   .to = to,
                                   .cause = cause,
                                   .attempt = job.record.attempt,
                                   .worker_id = from == v1::RUNNING || to == v1::RUNNING ? job.record.worker_id : "",
                                   .text = text});
  // Never leased while sealed, whatever brought it back into the queue.
  if (to == v1::QUEUED && IsSealed(job)) Move(job, v1::BLOCKED, Cause::kSealed, now, "only sealed sweeps need it now");
}

void Scheduler::CollectStates() {
  for (const std::string& key : collection_candidates_) {
    StageState& state = states_[key];
    StateCollection collection{.stage_key = key};
    if (state.optimizer && state.stages_in_need == 0 && state.keep_all == 0) {
      state.optimizer = false;
      collection.optimizer = true;
    }
    if (state.weights && state.stages_in_need + state.evaluations_in_need == 0 &&
        state.keep_all + state.keep_weights == 0) {
      state.weights = false;
      collection.weights = true;
    }
    if (collection.weights || collection.optimizer) effects_->collections.push_back(std::move(collection));
  }
  collection_candidates_.clear();
  for (const std::string& key : periodic_candidates_) {
    // A rerun of the same stage goes on from them.
    if (IsTerminal(LatestOfKey(key)->record.state))
      effects_->collections.push_back({.stage_key = key, .periodic = true});
  }
  periodic_candidates_.clear();
}

namespace {

// A retry lets go of all jobs and takes most of them up again: only what differs in the end is written.
void NetSweepJobChanges(std::vector<SweepJobChange>* changes) {
  struct Net {
    bool first = false, last = false, sealed = false;
  };
  std::map<std::pair<SweepRow, JobRow>, Net> net;
  bool detached = false;
  for (const SweepJobChange& change : *changes) detached |= !change.attached;
  if (!detached) return;
  for (const SweepJobChange& change : *changes) {
    const auto [place, added] = net.emplace(std::pair(change.sweep, change.job), Net{change.attached, change.attached});
    place->second.last = change.attached;
    place->second.sealed = change.sealed;
  }
  changes->clear();
  for (const auto& [pair, change] : net) {
    if (change.first == change.last) changes->push_back({pair.first, pair.second, change.last, change.sealed});
  }
}

}  // namespace

void Scheduler::Finish(Now now) {
  CollectStates();
  for (SweepRow row : touched_sweeps_) {
    Sweep& sweep = SweepAt(row);
    sweep.touched = false;
    ++sweep.version;
    const v1::SweepState state = StateOf(sweep);
    if (state != sweep.record.state) {
      sweep.record.state = state;
      sweep.record.ended_at_us = state == v1::SWEEP_RUNNING ? 0 : now.wall_us;
      if (state != v1::SWEEP_RUNNING) Unpause(sweep);
      sweep.dirty = true;
    }
    if (!sweep.dirty) continue;
    sweep.dirty = false;
    SweepRecord record = sweep.record;
    record.jobs.clear();
    record.sealed_jobs.clear();
    effects_->sweeps.push_back(std::move(record));
  }
  touched_sweeps_.clear();
  for (JobRow row : created_jobs_) {
    effects_->created.push_back(At(row).record);
    At(row).dirty = false;
  }
  for (JobRow row : dirty_jobs_) {
    Job& job = At(row);
    if (!job.dirty) continue;
    job.dirty = false;
    effects_->changed.push_back(job.record);
  }
  created_jobs_.clear();
  dirty_jobs_.clear();
  NetSweepJobChanges(&effects_->sweep_jobs);
  // Let go, and in the same event replaced by a new job.
  std::erase_if(effects_->unsealed, [&](const SweepJobChange& change) {
    const std::vector<SweepRow>& sweeps = At(change.job).sweeps;
    return std::find(sweeps.begin(), sweeps.end(), change.sweep) == sweeps.end();
  });
  effects_ = nullptr;
}

v1::SweepState Scheduler::StateOf(const Sweep& sweep) {
  if (sweep.record.state == v1::SWEEP_CANCELLED || IsOpen(sweep)) {
    return sweep.record.state == v1::SWEEP_CANCELLED ? v1::SWEEP_CANCELLED : v1::SWEEP_RUNNING;
  }
  // Nothing more is let go while something is missing: whoever waits for the sweep is told.
  if (sweep.counts.failed() + sweep.counts.cancelled() > 0) return v1::SWEEP_FAILED;
  return sweep.record.pending || sweep.sealed_blocked > 0 ? v1::SWEEP_RUNNING : v1::SWEEP_SUCCEEDED;
}

const Scheduler::Job* Scheduler::FindJob(const std::string& job_id) const {
  const auto found = jobs_by_id_.find(job_id);
  return found == jobs_by_id_.end() ? nullptr : &job(found->second);
}

const Scheduler::Job* Scheduler::LatestOfKey(const std::string& key) const {
  const auto found = latest_by_key_.find(key);
  return found == latest_by_key_.end() ? nullptr : &job(found->second);
}

const Scheduler::Sweep* Scheduler::FindSweep(const std::string& id_or_name) const {
  if (const auto found = sweeps_by_id_.find(id_or_name); found != sweeps_by_id_.end()) return &sweep(found->second);
  const auto found = sweeps_by_name_.find(id_or_name);
  return found == sweeps_by_name_.end() ? nullptr : &sweep(found->second);
}

const Scheduler::Worker* Scheduler::FindWorker(const std::string& worker_id) const {
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? nullptr : &found->second;
}

bool Scheduler::StateAvailable(const std::string& stage_key, bool with_optimizer) const {
  const auto found = states_.find(stage_key);
  return found != states_.end() && found->second.weights && (found->second.optimizer || !with_optimizer);
}

bool Scheduler::IsReusable(const std::string& key) const {
  const Job* job = LatestOfKey(key);
  return job != nullptr && job->record.state != v1::FAILED && job->record.state != v1::CANCELLED;
}

}  // namespace ablate
