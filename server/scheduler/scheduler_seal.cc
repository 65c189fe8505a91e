// See scheduler.h. Here: sealed jobs, how they are let go or dropped, jobs that a sweep gets later, and verifications.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "server/scheduler/scheduler.h"

namespace ablate {

bool Scheduler::IsOpen(const Sweep& sweep) {
  return sweep.counts.blocked() - sweep.sealed_blocked + sweep.counts.queued() + sweep.counts.running() > 0;
}

bool Scheduler::AwaitsDecision(SweepRow row) const {
  const Sweep& sweep = this->sweep(row);
  return sweep.record.pending && sweep.record.state != v1::SWEEP_CANCELLED && !IsOpen(sweep);
}

bool Scheduler::IsSealed(const Job& job) const {
  bool live = false;
  for (SweepRow row : job.sweeps) {
    if (!IsLive(row)) continue;
    if (!sweep(row).sealed.contains(job.record.row)) return false;
    live = true;
  }
  return live;
}

void Scheduler::SetSealed(Job& job, bool sealed) {
  if (job.record.sealed == sealed) return;
  job.record.sealed = sealed;
  for (SweepRow row : job.sweeps) SweepAt(row).sealed_blocked += sealed ? 1 : -1;
  MarkDirty(job);
  TouchSweeps(job);
}

void Scheduler::UpdateSeal(JobRow row, Now now) {
  Job& job = At(row);
  const bool sealed = IsSealed(job);
  if (job.record.state == v1::QUEUED && sealed) {
    Move(job, v1::BLOCKED, Cause::kSealed, now, "only sealed sweeps need it now");
  } else if (job.record.state == v1::BLOCKED) {
    SetSealed(job, sealed);
    if (!sealed) Settle(row, now, Cause::kUnsealed);
  }
}

const Scheduler::Job* Scheduler::JobOfSweep(SweepRow row, const std::string& key) const {
  const Job* latest = LatestOfKey(key);
  // Mostly the latest one of the key; an earlier one where another sweep has retried it since.
  while (latest != nullptr) {
    if (std::find(latest->sweeps.begin(), latest->sweeps.end(), row) != latest->sweeps.end()) return latest;
    latest = latest->record.retry_of == 0 ? nullptr : &job(latest->record.retry_of);
  }
  return nullptr;
}

void Scheduler::Drop(SweepRow row, const std::vector<JobRow>& jobs, Now now) {
  // Each erased from the list at once: dropping is of thousands.
  const std::unordered_set<JobRow> dropped(jobs.begin(), jobs.end());
  std::erase_if(SweepAt(row).record.jobs, [&](JobRow job) { return dropped.contains(job); });
  for (JobRow job : jobs) Detach(row, job, false);
  for (JobRow job : jobs) {
    CancelUnneeded(job, now, Cause::kDropped);
    UpdateSeal(job, now);
  }
  for (JobRow job : jobs) {
    if (At(job).record.state == v1::CANCELLED) SettleChildren(job, now);
  }
}

absl::StatusOr<SubmitOutcome> Scheduler::OnPlanChange(const PlanChange& change, Now now, Effects* effects) {
  const SweepRow row = change.sweep.row;
  Sweep& sweep = SweepAt(row);
  if (sweep.record.state == v1::SWEEP_CANCELLED) {
    return absl::FailedPreconditionError(
        absl::StrCat("sweep \"", sweep.record.name, "\" is cancelled: submit it again first"));
  }
  const auto rows_of = [&](const std::vector<std::string>& keys) -> absl::StatusOr<std::vector<JobRow>> {
    std::vector<JobRow> rows;
    rows.reserve(keys.size());
    for (const std::string& key : keys) {
      const Job* job = JobOfSweep(row, key);
      if (job == nullptr)
        return absl::NotFoundError(absl::StrCat("sweep \"", sweep.record.name, "\" has no job ", key));
      rows.push_back(job->record.row);
    }
    return rows;
  };
  absl::StatusOr<std::vector<JobRow>> dropped = rows_of(change.drop);
  if (!dropped.ok()) return dropped.status();
  if (const auto unsealed = rows_of(change.unseal); !unsealed.ok()) return unsealed.status();

  Begin(effects);
  SubmitOutcome outcome;
  outcome.sweep = row;
  SweepRecord& record = sweep.record;
  record.description = change.sweep.description;
  record.spec_sha256 = change.sweep.spec_sha256;
  record.plan_sha256 = change.sweep.plan_sha256;
  record.data = change.sweep.data;
  record.arms = change.sweep.arms;
  record.seeds = change.sweep.seeds;
  record.phase = change.sweep.phase;
  record.pending = change.sweep.pending;
  record.sealed = change.sweep.sealed;
  record.waiting_for = change.sweep.waiting_for;
  sweep.dirty = true;
  if (!sweep.touched) {
    sweep.touched = true;
    touched_sweeps_.push_back(row);
  }
  std::vector<Node> nodes;
  nodes.reserve(change.add.size());
  for (const SubmitPlan::PlannedJob& job : change.add) {
    nodes.push_back({.kind = job.kind,
                     .key = job.key,
                     .parent = job.parent,
                     .from_step = job.from_step,
                     .to_step = job.to_step,
                     .requirement = change.requirement,
                     .sealed = job.sealed});
  }
  Materialise(row, nodes, now, &outcome);
  absl::StatusOr<std::vector<JobRow>> unsealed = rows_of(change.unseal);  // some may have a new job
  for (JobRow job : *unsealed) {
    if (sweep.sealed.erase(job) > 0) effects_->unsealed.push_back({.sweep = row, .job = job, .attached = true});
  }
  // Parents before children, as they were made.
  std::sort(unsealed->begin(), unsealed->end());
  for (JobRow job : *unsealed) UpdateSeal(job, now);
  Drop(row, *dropped, now);
  Finish(now);
  return outcome;
}

absl::Status Scheduler::CanVerify(JobRow row) const {
  const Job& job = this->job(row);
  const JobRecord& record = job.record;
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("job ", record.job_id, " cannot be verified: ", why));
  };
  if (record.verify_of != 0) return refuse("it is a verification itself");
  if (record.sealed) return refuse("it is sealed, and has no result");
  if (record.state != v1::SUCCEEDED)
    return refuse(absl::StrCat("it is ", ToAbsl(StateName(record.state)), ", not done"));
  if (record.attempt == 0) {
    return refuse("it was recorded without running, because the training that it measures diverged");
  }
  if (record.parent == 0 || record.requirement.executor == v1::EXECUTOR_NOOP) return absl::OkStatus();
  const JobRecord& parent = this->job(record.parent).record;
  const Job* stage = LatestOfKey(parent.key);
  const bool with_optimizer = record.kind == v1::STAGE;
  if (stage->record.state != v1::SUCCEEDED || !StateAvailable(parent.key, with_optimizer)) {
    return refuse(with_optimizer
                      ? absl::StrCat("the state that it starts from, of stage ", parent.job_id,
                                     ", is not kept any more; `keep: all` in the sweep file keeps it")
                      : absl::StrCat("the weights that it measures, of stage ", parent.job_id,
                                     ", are not kept any more; `keep: weights` in the sweep file keeps them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JobRow>> Scheduler::OnVerify(const std::vector<JobRow>& jobs, Now now, Effects* effects) {
  for (JobRow row : jobs) {
    if (absl::Status status = CanVerify(row); !status.ok()) return status;
  }
  Begin(effects);
  std::vector<JobRow> made;
  for (JobRow row : jobs) {
    const JobRecord record = At(row).record;
    JobRow parent = 0;
    if (record.parent != 0) parent = LatestOfKey(At(record.parent).record.key)->record.row;
    made.push_back(NewJob({.kind = record.kind,
                           .key = record.key,
                           .from_step = record.from_step,
                           .to_step = record.to_step,
                           .requirement = record.requirement},
                          parent, 0, now, row));
    Settle(made.back(), now);
  }
  Finish(now);
  return made;
}

}  // namespace ablate
