// See scheduler.h. Here: what keeps one bad job, worker or build from taking the rest along. Sweeps that are paused, jobs
// that are kept from workers on which they failed, and those on their last try.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/strings.h"
#include "server/scheduler/failure_signature.h"
#include "server/scheduler/scheduler.h"

namespace ablate {
namespace {

constexpr size_t kMaxSignatures = 200;  // of one sweep

}  // namespace

void Scheduler::AddFailure(Job& job, Now now) {
  job.record.failures += 1;
  job.record.failed_on.push_back(job.record.worker_id);
  job.steer_until_us = now.monotonic_us + options_.steer_us;
}

// Of the latest attempt: its loss was none, or its failure does not count.
void Scheduler::TakeBackFailure(Job& job) {
  job.record.failures -= 1;
  job.record.failed_on.pop_back();
}

int32_t Scheduler::FailureLimit(const Sweep& sweep) const {
  return sweep.record.max_failures == kServersMaxFailures ? options_.sweep_max_failures : sweep.record.max_failures;
}

void Scheduler::CountFailure(const Job& job, const v1::Failure& failure) {
  const std::string own = FailureSignature(failure);
  for (SweepRow row : job.sweeps) {
    if (!IsLive(row)) continue;
    Sweep& sweep = SweepAt(row);
    // Messages that are all different do not fill the database.
    const bool counted_apart = sweep.failures.contains(own) || sweep.failures.size() < kMaxSignatures;
    const std::string signature = counted_apart ? own : absl::StrCat(ToAbsl(RuleFor(failure.kind()).name), ": (others)");
    SweepFailures& count = sweep.failures[signature];
    count.sweep = row;
    count.signature = signature;
    count.failures += 1;
    count.since_resume += 1;
    count.last_job = job.record.row;
    effects_->sweep_failures.push_back(count);
    const int32_t limit = FailureLimit(sweep);
    if (limit > 0 && count.since_resume >= limit && !sweep.record.paused) {
      Pause(sweep,
            absl::StrCat("paused after ", count.since_resume, " failures of one kind (", signature, "), the last one of ",
                         job.record.job_id));
    }
  }
}

void Scheduler::Pause(Sweep& sweep, const std::string& reason) {
  LOG(WARNING) << "sweep \"" << sweep.record.name << "\" is " << reason;
  sweep.record.paused = true;
  sweep.record.pause_reason = reason;
  sweep.dirty = true;
  if (!sweep.touched) {
    sweep.touched = true;
    touched_sweeps_.push_back(sweep.record.row);
  }
  for (JobRow job : sweep.record.jobs) Requeue(At(job));
}

// The caller sees to it that the sweep is looked at by Finish.
void Scheduler::Unpause(Sweep& sweep) {
  if (!sweep.record.paused) return;
  sweep.record.paused = false;
  sweep.record.pause_reason.clear();
  sweep.dirty = true;
  for (auto& [signature, count] : sweep.failures) {
    if (count.since_resume == 0) continue;
    count.since_resume = 0;
    effects_->sweep_failures.push_back(count);
  }
  for (JobRow job : sweep.record.jobs) Requeue(At(job));
}

absl::Status Scheduler::OnResume(SweepRow row, std::optional<int32_t> max_failures, Now now, Effects* effects) {
  Sweep& sweep = SweepAt(row);
  if (!sweep.record.paused) {
    return absl::FailedPreconditionError(
        absl::StrCat("sweep \"", sweep.record.name, "\" is not paused: it is ",
                     sweep.record.state == v1::SWEEP_RUNNING     ? "running"
                     : sweep.record.state == v1::SWEEP_CANCELLED ? "cancelled; submit its file again"
                                                                 : "over; `ablate sweep retry` makes what failed again"));
  }
  Begin(effects);
  sweep.touched = true;
  touched_sweeps_.push_back(row);
  if (max_failures.has_value()) sweep.record.max_failures = *max_failures;
  Unpause(sweep);
  Finish(now);
  return absl::OkStatus();
}

std::string Scheduler::LostData(const Sweep& sweep) const {
  std::string lost;
  for (const SweepData& file : sweep.record.data) {
    if (!options_.has_artifact || options_.has_artifact(file.sha256)) continue;
    absl::StrAppend(&lost, lost.empty() ? "" : ", ", file.path, " (SHA-256 ", file.sha256, ")");
  }
  return lost;
}

bool Scheduler::PauseForLostData(const Job& job) {
  bool all = job.record.requirement.executor != v1::EXECUTOR_NOOP && LiveSweeps(job) > 0;
  if (!all) return false;
  for (SweepRow row : job.sweeps) {
    if (!IsLive(row)) continue;
    Sweep& sweep = SweepAt(row);
    const std::string lost = LostData(sweep);
    all &= !lost.empty();
    if (lost.empty() || sweep.record.paused) continue;
    Pause(sweep, absl::StrCat(ToAbsl(kPausedForData), lost, " was lost or damaged on the coordinator's disk"));
  }
  return all;
}

bool Scheduler::EndForLostData(Job& job, const v1::Failure& reported, Now now) {
  JobRecord& record = job.record;
  if (record.verify_of == 0 || record.requirement.executor == v1::EXECUTOR_NOOP) return false;
  const JobRecord& first = At(record.verify_of).record;
  std::string lost;
  for (SweepRow row : At(record.verify_of).sweeps) {
    if (lost.empty()) lost = LostData(SweepAt(row));
  }
  if (lost.empty()) return false;
  // Not the attempt's failure, and no other attempt would fare better: no sweep waits for the data, so nobody would be told.
  v1::Failure failure = reported;
  failure.set_kind(v1::PREEMPTED);
  failure.set_message(absl::StrCat("its data ", lost, " was lost or damaged on the coordinator's disk; `ablate sweep submit FILE` with the "
                                   "sweep's file uploads it again, then `ablate job verify ", first.job_id,
                                   "` (the worker said: ", reported.message(), ")"));
  if (record.state == v1::QUEUED) {
    if (record.attempt_state != AttemptState::kLost) return true;
    EndAttempt(job, AttemptState::kFailed, &failure);
    TakeBackFailure(job);
  } else {
    EndAttempt(job, AttemptState::kFailed, &failure);
    Move(job, v1::QUEUED, Cause::kPreempted, now, reported.message());
  }
  failure.set_kind(v1::UPSTREAM_FAILED);
  record.last_failure = std::make_shared<const v1::Failure>(failure);
  Move(job, v1::FAILED, Cause::kStateLost, now, failure.message());
  return true;
}

bool Scheduler::OnDataUploaded(SweepRow row, Now now, Effects* effects) {
  Sweep& sweep = SweepAt(row);
  if (!IsPausedForData(sweep.record)) return false;
  if (!LostData(sweep).empty()) return false;
  Begin(effects);
  if (!sweep.touched) touched_sweeps_.push_back(row);
  sweep.touched = true;
  Unpause(sweep);
  Finish(now);
  return true;
}

bool Scheduler::IsHeld(const Job& job) const {
  if (job.record.verify_of != 0) return false;
  return std::none_of(job.sweeps.begin(), job.sweeps.end(), [&](SweepRow row) { return IsActive(row); });
}

bool Scheduler::IsOnLastTry(const Job& job) {
  const JobRecord& record = job.record;
  return record.failures > 0 && record.failures == record.max_failures - 1 && record.last_failure != nullptr &&
         record.last_failure->kind() == v1::WORKER_LOST;
}

int64_t Scheduler::OthersThatCanTake(const Job& job, Now now) const {
  const std::vector<std::string>& failed_on = job.record.failed_on;
  return std::count_if(workers_.begin(), workers_.end(), [&](const auto& item) {
    const auto& [id, worker] = item;
    return worker.connected && worker.deadline_us > now.monotonic_us && !worker.draining &&
           !worker.record.drain_asked && std::find(failed_on.begin(), failed_on.end(), id) == failed_on.end() &&
           Satisfies(worker, job.record.requirement);
  });
}

bool Scheduler::MayTake(const Worker& worker, const Job& job, Now now) const {
  const std::vector<std::string>& failed_on = job.record.failed_on;
  if (failed_on.empty()) return true;
  if (now.monotonic_us >= job.steer_until_us) return true;
  if (std::find(failed_on.begin(), failed_on.end(), worker.record.info.worker_id()) == failed_on.end()) return true;
  return OthersThatCanTake(job, now) == 0;
}

bool Scheduler::HasUnproven(const Worker& worker, bool only_last_tries, Now now) const {
  for (const auto& [slot, jobs] : worker.slots) {
    for (JobRow row : jobs) {
      const Job& job = this->job(row);
      if (now.monotonic_us < job.proven_at_us && (!only_last_tries || IsOnLastTry(job))) return true;
    }
  }
  return false;
}

bool Scheduler::AnyToTake(const Worker& worker, const std::set<JobRow>& jobs, Now now) const {
  return std::any_of(jobs.begin(), jobs.end(), [&](JobRow row) { return MayTake(worker, job(row), now); });
}

std::string Scheduler::WhereItFailed(const JobRecord& record) {
  std::vector<std::pair<std::string, int>> counts;  // in the order of the first failure
  for (const std::string& id : record.failed_on) {
    const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& item) { return item.first == id; });
    if (known == counts.end()) {
      counts.emplace_back(id, 1);
    } else {
      ++known->second;
    }
  }
  return absl::StrCat(counts.size() == 1 ? "on worker " : "on workers ",
                      absl::StrJoin(counts, ", ", [](std::string* out, const auto& item) {
                        absl::StrAppend(out, item.first,
                                        item.second > 1 ? absl::StrCat(" (", item.second, " times)") : "");
                      }));
}

std::string Scheduler::GivenUpText(const JobRecord& record, const std::string& why) {
  return absl::StrCat("quarantined after ", record.failures, record.failures == 1 ? " failure " : " failures ",
                      WhereItFailed(record), ": ", why);
}

}  // namespace ablate
