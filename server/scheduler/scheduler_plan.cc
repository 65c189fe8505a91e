// See scheduler.h. Here: which jobs a sweep gets (submission, retry), and who loses them (cancelling).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/strings.h"
#include "server/scheduler/scheduler.h"

namespace ablate {
namespace {

// A no-op executor hands in no files, so nothing can be missing.
bool NeedsFiles(const JobRecord& record) { return record.requirement.executor != v1::EXECUTOR_NOOP; }

}  // namespace

absl::StatusOr<SubmitOutcome> Scheduler::OnSubmit(const SubmitPlan& plan, Now now, Effects* effects) {
  if (sweeps_by_name_.contains(plan.sweep.name)) {
    return absl::AlreadyExistsError(absl::StrCat("a sweep named \"", plan.sweep.name, "\" is there already"));
  }
  Begin(effects);
  SubmitOutcome outcome;
  outcome.sweep = static_cast<SweepRow>(sweeps_.size()) + 1;
  Sweep& sweep = sweeps_.emplace_back();
  sweep.record = plan.sweep;
  sweep.record.row = outcome.sweep;
  sweep.record.state = v1::SWEEP_RUNNING;
  sweep.record.created_at_us = now.wall_us;
  sweep.record.ended_at_us = 0;
  sweep.record.jobs.clear();
  sweep.record.sealed_jobs.clear();
  sweep.dirty = sweep.touched = true;
  touched_sweeps_.push_back(outcome.sweep);
  sweeps_by_id_[sweep.record.sweep_id] = outcome.sweep;
  sweeps_by_name_[sweep.record.name] = outcome.sweep;

  std::vector<Node> nodes;
  nodes.reserve(plan.jobs.size());
  for (const SubmitPlan::PlannedJob& job : plan.jobs) {
    nodes.push_back({.kind = job.kind,
                     .key = job.key,
                     .parent = job.parent,
                     .from_step = job.from_step,
                     .to_step = job.to_step,
                     .requirement = plan.requirement,
                     .sealed = job.sealed});
  }
  Materialise(outcome.sweep, nodes, now, &outcome);
  Finish(now);
  return outcome;
}

// Gives each key the job that stands for it: the sweep's own, whatever became of it; else one that is there, where it
// still can or did succeed; else a new one.
void Scheduler::Materialise(SweepRow sweep, std::vector<Node>& nodes, Now now, SubmitOutcome* outcome) {
  std::vector<char> weights_needed(nodes.size(), 0), optimizer_needed(nodes.size(), 0);
  for (size_t i = nodes.size(); i-- > 0;) {
    Node& node = nodes[i];
    const Job* mine = JobOfSweep(sweep, node.key);
    const Job* standing = mine != nullptr ? mine : LatestOfKey(node.key);
    node.is_new = mine == nullptr && !IsReusable(node.key);
    if (!node.is_new && node.kind == v1::STAGE && standing->record.state == v1::SUCCEEDED &&
        standing->record.outcome != v1::DIVERGED && NeedsFiles(standing->record) &&
        (weights_needed[i] || optimizer_needed[i])) {
      // Finished, but what a new job needs of it has been collected: it is trained again.
      node.is_new = !StateAvailable(node.key, optimizer_needed[i]);
    }
    if (node.is_new && node.parent >= 0) {
      (node.kind == v1::STAGE ? optimizer_needed : weights_needed)[node.parent] = 1;
    }
  }
  for (Node& node : nodes) {
    const Job* latest = LatestOfKey(node.key);
    const Job* mine = JobOfSweep(sweep, node.key);
    if (node.is_new) {
      const JobRow parent = node.parent >= 0 ? nodes[node.parent].resolved : 0;
      node.resolved = NewJob(node, parent, latest != nullptr ? latest->record.row : 0, now);
      ++outcome->new_jobs;
    } else {
      node.resolved = mine != nullptr ? mine->record.row : latest->record.row;
      ++outcome->reused_jobs;
      Relax(At(node.resolved), node.requirement);
    }
    if (!node.is_new && mine != nullptr) continue;
    if (mine != nullptr) Detach(sweep, mine->record.row, true);
    Attach(sweep, node.resolved, node.sealed);
  }
  for (const Node& node : nodes) {
    if (node.is_new) {
      SetSealed(At(node.resolved), IsSealed(At(node.resolved)));
      Settle(node.resolved, now);
    } else {
      UpdateSeal(node.resolved, now);
    }
  }
}

// A job that several sweeps share asks for what all of them ask, or one would wait for workers that only the other wants.
// The device is the same: it is a part of the key.
void Scheduler::Relax(Job& job, const Requirement& asked) {
  if (IsTerminal(job.record.state)) return;
  Requirement common = job.record.requirement;
  common.memory_bytes = std::min(common.memory_bytes, asked.memory_bytes);
  std::erase_if(common.labels, [&](const std::string& label) {
    return std::find(asked.labels.begin(), asked.labels.end(), label) == asked.labels.end();
  });
  if (common == job.record.requirement) return;
  const bool queued = job.record.state == v1::QUEUED;
  const int64_t not_before_us = job.not_before_us;
  if (queued) LeaveQueue(job);
  job.record.requirement = std::move(common);
  job.class_id = ready_.ClassOf(job.record.requirement);
  if (queued) EnterQueue(job, not_before_us);
  MarkDirty(job);
}

JobRow Scheduler::NewJob(const Node& node, JobRow parent, JobRow retry_of, Now now, JobRow verify_of) {
  const JobRow row = static_cast<JobRow>(jobs_.size()) + 1;
  Job& job = jobs_.emplace_back();
  job.record.row = row;
  job.record.job_id = ids_->NewId("job");
  job.record.kind = node.kind;
  job.record.state = v1::BLOCKED;
  job.record.key = node.key;
  job.record.parent = parent;
  job.record.retry_of = retry_of;
  job.record.verify_of = verify_of;
  job.record.max_failures = options_.max_failures;
  job.record.from_step = node.from_step;
  job.record.to_step = node.to_step;
  job.record.requirement = node.requirement;
  job.record.created_at_us = now.wall_us;
  job.class_id = ready_.ClassOf(node.requirement);
  job.dirty = true;
  created_jobs_.push_back(row);
  jobs_by_id_[job.record.job_id] = row;
  if (verify_of == 0) latest_by_key_[job.record.key] = row;
  if (parent != 0) At(parent).children.push_back(row);
  UpdateNeed(job);
  return row;
}

void Scheduler::Attach(SweepRow sweep_row, JobRow row, bool sealed) {
  Job& job = At(row);
  Sweep& sweep = SweepAt(sweep_row);
  sweep.record.jobs.push_back(row);
  job.sweeps.push_back(sweep_row);
  if (sealed) sweep.sealed.insert(row);
  sweep.sealed_blocked += job.record.sealed;
  Count(sweep, job, +1);
  sweep.steps_done += job.progress;
  sweep.steps_total += job.record.to_step - job.record.from_step;
  sweep.tokens_per_second += job.tokens_per_second;
  if (IsLive(sweep_row) && job.record.kind == v1::STAGE) {
    StageState& state = states_[job.record.key];
    state.keep_weights += sweep.record.keep == v1::KEEP_WEIGHTS;
    state.keep_all += sweep.record.keep == v1::KEEP_ALL;
  }
  Requeue(job);
  UpdateNeed(job);
  TouchSweeps(job);
  if (effects_ != nullptr) {
    effects_->sweep_jobs.push_back({.sweep = sweep_row, .job = row, .attached = true, .sealed = sealed});
  }
}

// Takes the sweep off the job. With erase_from_sweep false the caller replaces or clears the sweep's list itself.
void Scheduler::Detach(SweepRow sweep_row, JobRow row, bool erase_from_sweep) {
  Job& job = At(row);
  Sweep& sweep = SweepAt(sweep_row);
  if (erase_from_sweep) std::erase(sweep.record.jobs, row);
  TouchSweeps(job);
  sweep.sealed.erase(row);
  sweep.sealed_blocked -= job.record.sealed;
  Count(sweep, job, -1);
  sweep.steps_done -= job.progress;
  sweep.steps_total -= job.record.to_step - job.record.from_step;
  sweep.tokens_per_second -= job.tokens_per_second;
  if (IsLive(sweep_row) && job.record.kind == v1::STAGE) {
    StageState& state = states_[job.record.key];
    state.keep_weights -= sweep.record.keep == v1::KEEP_WEIGHTS;
    state.keep_all -= sweep.record.keep == v1::KEEP_ALL;
    collection_candidates_.insert(job.record.key);
  }
  std::erase(job.sweeps, sweep_row);
  Requeue(job);
  UpdateNeed(job);
  effects_->sweep_jobs.push_back({.sweep = sweep_row, .job = row, .attached = false});
}

// Moves a BLOCKED job on as far as its parent allows, and then what hangs on it.
void Scheduler::Settle(JobRow first, Now now, Cause cause) {
  std::vector<JobRow> open{first};
  for (size_t next = 0; next < open.size(); ++next) {
    Job& job = At(open[next]);
    if (job.record.state != v1::BLOCKED || IsSealed(job)) continue;
    if (job.record.parent == 0) {
      Move(job, v1::QUEUED, cause, now);
      continue;
    }
    const Job& parent = At(job.record.parent);
    switch (parent.record.state) {
      case v1::SUCCEEDED:
        if (parent.record.outcome == v1::DIVERGED) {
          job.record.diverged_at_step = parent.record.diverged_at_step;
          Move(job, v1::SUCCEEDED, Cause::kParentDiverged, now,
               absl::StrCat("its state diverged at step ", parent.record.diverged_at_step), v1::DIVERGED);
          effects_->diverged_unrun.push_back(job.record.row);
        } else if (NeedsFiles(parent.record) && !StateAvailable(parent.record.key, job.record.kind == v1::STAGE)) {
          RerunStage(parent.record.row, job.record.row, now);
          continue;  // still BLOCKED, on the new job
        } else {
          Move(job, v1::QUEUED, cause, now);
          continue;
        }
        break;
      case v1::FAILED: {
        v1::Failure failure;
        failure.set_kind(v1::UPSTREAM_FAILED);
        failure.set_message(absl::StrCat("its parent ", parent.record.job_id, " failed"));
        job.record.last_failure = std::make_shared<const v1::Failure>(failure);
        Move(job, v1::FAILED, Cause::kParentFailed, now, failure.message());
        break;
      }
      case v1::CANCELLED:
        Move(job, v1::CANCELLED, Cause::kCancelled, now,
             absl::StrCat("its parent ", parent.record.job_id, " was cancelled"));
        break;
      default:
        continue;
    }
    open.insert(open.end(), job.children.begin(), job.children.end());
  }
}

void Scheduler::SettleChildren(JobRow row, Now now) {
  const std::vector<JobRow> children = At(row).children;  // a rerun takes some of them away
  for (JobRow child : children) Settle(child, now);
}

// A new job for a finished stage whose end state is not there any more (or never had the optimiser state that a later
// child needs). `needed_by` and all BLOCKED children of the old job that miss the same wait for the new one.
JobRow Scheduler::RerunStage(JobRow old_row, JobRow needed_by, Now now) {
  const Job& old = At(old_row);
  const Job* latest = LatestOfKey(old.record.key);
  JobRow row = latest->record.row;
  const bool is_new = row == old_row || IsTerminal(latest->record.state);
  if (is_new) {
    JobRow parent = 0;
    if (old.record.parent != 0) parent = LatestOfKey(At(old.record.parent).record.key)->record.row;
    // In the place of the latest, which need not be `old`: JobOfSweep finds every job of a key by this chain.
    const JobRow latest_row = row;
    row = NewJob({.kind = v1::STAGE,
                  .key = old.record.key,
                  .from_step = old.record.from_step,
                  .to_step = old.record.to_step,
                  .requirement = old.record.requirement},
                 parent, latest_row, now);
  }
  Job& child = At(needed_by);
  std::erase(At(old_row).children, needed_by);
  // The need is counted by key, which both jobs share.
  child.record.parent = row;
  At(row).children.push_back(needed_by);
  MarkDirty(child);
  const std::vector<SweepRow> sweeps = child.sweeps;
  for (SweepRow sweep : sweeps) {
    const std::vector<SweepRow>& attached = At(row).sweeps;
    if (!IsLive(sweep) || std::find(attached.begin(), attached.end(), sweep) != attached.end()) continue;
    bool sealed = SweepAt(sweep).sealed.contains(needed_by);
    // Mostly the old job; a later one where a sealed child was left behind when that was made.
    if (const Job* mine = JobOfSweep(sweep, At(old_row).record.key); mine != nullptr) {
      sealed = SweepAt(sweep).sealed.contains(mine->record.row);
      Detach(sweep, mine->record.row, true);
    }
    Attach(sweep, row, sealed);
  }
  UpdateSeal(row, now);
  if (is_new) Settle(row, now);
  return row;
}

absl::StatusOr<int64_t> Scheduler::OnRetry(SweepRow sweep_row, Now now, Effects* effects) {
  Sweep& sweep = SweepAt(sweep_row);
  const std::vector<JobRow> old_jobs = sweep.record.jobs;
  // Parents before children: stages by their first step, then evaluations.
  std::vector<JobRow> ordered = old_jobs;
  std::stable_sort(ordered.begin(), ordered.end(), [&](JobRow a, JobRow b) {
    const JobRecord &left = At(a).record, &right = At(b).record;
    return std::pair(left.kind, left.from_step) < std::pair(right.kind, right.from_step);
  });
  std::unordered_map<std::string, int> index_of;
  std::vector<Node> nodes;
  for (JobRow row : ordered) {
    const JobRecord& record = At(row).record;
    Node node{.kind = record.kind,
              .key = record.key,
              .from_step = record.from_step,
              .to_step = record.to_step,
              .requirement = record.requirement,
              .sealed = sweep.sealed.contains(row)};
    if (record.parent != 0) {
      const auto parent = index_of.find(At(record.parent).record.key);
      if (parent == index_of.end()) {
        return absl::DataLossError(absl::StrCat("the database is damaged: the stage that job ", record.job_id,
                                                " hangs on is not a job of sweep \"", sweep.record.name, "\""));
      }
      node.parent = parent->second;
    }
    if (record.kind == v1::STAGE) index_of[record.key] = static_cast<int>(nodes.size());
    nodes.push_back(std::move(node));
  }

  Begin(effects);
  for (JobRow row : old_jobs) Detach(sweep_row, row, false);
  sweep.record.jobs.clear();
  if (sweep.record.state == v1::SWEEP_CANCELLED) {
    sweep.record.state = v1::SWEEP_RUNNING;
    sweep.record.ended_at_us = 0;
    sweep.dirty = true;
  }
  if (!sweep.touched) {
    sweep.touched = true;
    touched_sweeps_.push_back(sweep_row);
  }
  Unpause(sweep);
  SubmitOutcome outcome;
  Materialise(sweep_row, nodes, now, &outcome);
  if (outcome.new_jobs > 0 && !sweep.record.waiting_for.empty()) {
    sweep.record.waiting_for.clear();  // for what it waited is made again
    sweep.dirty = true;
  }
  // The sweep let go of its jobs for a moment: those that it took up again are needed as before.
  for (JobRow row : old_jobs) {
    CancelUnneeded(row, now);
    UpdateSeal(row, now);
  }
  Finish(now);
  return outcome.new_jobs;
}

void Scheduler::CancelUnneeded(JobRow row, Now now, Cause blocked_cause) {
  Job& job = At(row);
  if (IsTerminal(job.record.state) || job.record.verify_of != 0 || LiveSweeps(job) > 0) return;
  if (job.record.state == v1::RUNNING) EndAttempt(job, AttemptState::kCancelled, nullptr);
  const bool dropped = job.record.state == v1::BLOCKED && blocked_cause == Cause::kDropped;
  Move(job, v1::CANCELLED, dropped ? Cause::kDropped : Cause::kCancelled, now,
       dropped ? "the lock chose another arm" : "no live sweep needs it");
}

absl::Status Scheduler::OnCancelSweep(SweepRow sweep_row, Now now, Effects* effects) {
  Sweep& sweep = SweepAt(sweep_row);
  // One that waits for a retry may still hold a seal.
  const bool waits = sweep.record.state == v1::SWEEP_FAILED && (sweep.record.pending || sweep.sealed_blocked > 0);
  if (sweep.record.state != v1::SWEEP_RUNNING && !waits) {
    return absl::FailedPreconditionError(absl::StrCat("sweep \"", sweep.record.name, "\" is over already"));
  }
  Begin(effects);
  for (JobRow row : sweep.record.jobs) {
    const Job& job = At(row);
    if (job.record.kind != v1::STAGE) continue;
    StageState& state = states_[job.record.key];
    state.keep_weights -= sweep.record.keep == v1::KEEP_WEIGHTS;
    state.keep_all -= sweep.record.keep == v1::KEEP_ALL;
    collection_candidates_.insert(job.record.key);
  }
  Unpause(sweep);
  sweep.record.state = v1::SWEEP_CANCELLED;
  sweep.record.ended_at_us = now.wall_us;
  sweep.dirty = sweep.touched = true;
  touched_sweeps_.push_back(sweep_row);
  // It stays attached, so that its table still shows what was measured; it no longer needs anything.
  for (JobRow row : sweep.record.jobs) {
    CancelUnneeded(row, now);
    Requeue(At(row));
    UpdateSeal(row, now);
    UpdateNeed(At(row));
  }
  for (JobRow row : sweep.record.jobs) {
    if (At(row).record.state == v1::CANCELLED) SettleChildren(row, now);
  }
  Finish(now);
  return absl::OkStatus();
}

absl::Status Scheduler::OnCancelJob(JobRow row, Now now, Effects* effects) {
  Job& job = At(row);
  if (IsTerminal(job.record.state)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.record.job_id, " is over already: ", ToAbsl(StateName(job.record.state))));
  }
  Begin(effects);
  if (job.record.state == v1::RUNNING) EndAttempt(job, AttemptState::kCancelled, nullptr);
  Move(job, v1::CANCELLED, Cause::kCancelled, now, "cancelled by the user");
  SettleChildren(row, now);
  Finish(now);
  return absl::OkStatus();
}

}  // namespace ablate
