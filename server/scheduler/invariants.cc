// Scheduler::CheckInvariants: a full scan for tests. See scheduler.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/scheduler/scheduler.h"

namespace ablate {

std::string Scheduler::CheckInvariants() const {
  size_t queued = 0, held = 0;
  std::unordered_map<std::string, std::pair<int64_t, int64_t>> needs;
  for (const Job& job : jobs_) {
    const JobRecord& record = job.record;
    const std::string name = absl::StrCat("job ", record.job_id, " (row ", record.row, "): ");
    if (record.failures < 0 || record.failures > record.max_failures) return name + "failures out of range";
    if (record.failed_on.size() != static_cast<size_t>(record.failures)) return name + "failures without their workers";
    if (record.failures > record.attempt) return name + "more failures than attempts";
    if (record.state == v1::QUEUED) {
      ++queued;
      const std::set<JobRow>* at = ready_.At(job.class_id, job.rank);
      const bool is_ready = at != nullptr && at->contains(record.row);
      const bool is_delayed = delayed_.contains({job.not_before_us, record.row});
      held += job.held;
      if (job.held != IsHeld(job)) return name + "held, but a sweep that is not paused needs it, or the other way round";
      if (is_ready + is_delayed + job.held != 1) return name + "queued, but not once in the queue";
      if (!job.held && is_delayed != (job.not_before_us > 0))
        return name + "waits without a time, or has one and does not wait";
      if (job.rank != RankOf(job)) return name + "stands at a wrong place in the queue";
    }
    if (record.state == v1::RUNNING) {
      const Worker* worker = FindWorker(record.worker_id);
      if (worker == nullptr || !worker->slots.contains(record.slot)) return name + "running, but on no slot";
      const std::vector<JobRow>& slot = worker->slots.at(record.slot);
      if (std::count(slot.begin(), slot.end(), record.row) != 1) return name + "running, but not once on its slot";
      if (record.attempt_state != AttemptState::kRunning) return name + "running, but its attempt is not";
    } else if (job.tokens_per_second != 0) {
      return name + "has a speed without running";
    }
    if (record.verify_of != 0) {
      if (!job.sweeps.empty()) return name + "a verification, but a sweep has it";
      if (this->job(record.verify_of).record.key != record.key) return name + "verifies a job of another key";
      if (LatestOfKey(record.key)->record.row == record.row) return name + "a verification that stands for its key";
      if (record.state == v1::BLOCKED) return name + "a verification that waits for a parent";
    } else if (!IsTerminal(record.state) && LiveSweeps(job) == 0) {
      return name + "no live sweep needs it, but it is not over";
    }
    if (record.sealed != (record.state == v1::BLOCKED && IsSealed(job))) return name + "sealed flag is wrong";
    if (record.state == v1::QUEUED && IsSealed(job)) return name + "queued, but sealed";
    if (record.state == v1::SUCCEEDED && record.outcome == v1::OUTCOME_UNSPECIFIED)
      return name + "succeeded without outcome";
    for (JobRow child : job.children) {
      if (this->job(child).record.parent != record.row) return name + "has a child of another";
    }
    if (record.parent != 0) {
      const Job& parent = this->job(record.parent);
      if (std::count(parent.children.begin(), parent.children.end(), record.row) != 1)
        return name + "not its parent's child";
      if (record.state == v1::BLOCKED && !record.sealed && IsTerminal(parent.record.state))
        return name + "blocked on a parent that is over";
      if (record.state == v1::QUEUED && parent.record.state != v1::SUCCEEDED)
        return name + "queued before its parent succeeded";
      if (job.counted_need) {
        auto& [stages, evaluations] = needs[parent.record.key];
        ++(record.kind == v1::STAGE ? stages : evaluations);
      }
      const bool needed = !IsTerminal(record.state) || (record.state == v1::FAILED && LiveSweeps(job) > 0);
      if (needed != job.counted_need) return name + "its need of its parent's state is not counted right";
      // Where files can vanish, this is seen at the lease.
      if (!options_.has_artifact && (record.state == v1::QUEUED || record.state == v1::RUNNING) &&
          record.requirement.executor != v1::EXECUTOR_NOOP &&
          !StateAvailable(parent.record.key, record.kind == v1::STAGE)) {
        return name + "the state that it starts from has been collected";
      }
    }
  }
  if (queued != ready_.size() + delayed_.size() + held_ || held != held_) {
    return absl::StrCat("the queue has ", ready_.size(), " jobs, ", delayed_.size(), " that wait and ", held_,
                        " that are held, not ", queued, " with ", held);
  }
  for (const auto& [key, state] : states_) {
    const auto [stages, evaluations] = needs[key];
    if (state.stages_in_need != stages || state.evaluations_in_need != evaluations)
      return "needs of stage " + key + " do not add up";
    if (state.keep_all < 0 || state.keep_weights < 0) return "keeps of stage " + key + " are negative";
    if (state.weights && stages + evaluations == 0 && state.keep_all + state.keep_weights == 0) {
      return "the weights of stage " + key + " should have been collected";
    }
    if (state.optimizer && stages == 0 && state.keep_all == 0) {
      return "the optimizer state of stage " + key + " should have been collected";
    }
  }
  for (const auto& [id, worker] : workers_) {
    for (const auto& [slot, jobs] : worker.slots) {
      if (jobs.empty()) return "worker " + id + " has an empty slot entry";
      for (JobRow row : jobs) {
        if (job(row).record.state != v1::RUNNING || job(row).record.worker_id != id || job(row).record.slot != slot) {
          return absl::StrCat("worker ", id, " holds job row ", row, ", which does not run there");
        }
      }
    }
  }
  for (const Sweep& sweep : sweeps_) {
    v1::JobCounts counts;
    int64_t diverged = 0, steps_done = 0, steps_total = 0;
    int64_t sealed_blocked = 0;
    size_t sealed = 0;
    for (JobRow row : sweep.record.jobs) {
      const JobRecord& record = job(row).record;
      sealed_blocked += record.sealed;
      sealed += sweep.sealed.contains(row);
      switch (record.state) {
        case v1::BLOCKED:
          counts.set_blocked(counts.blocked() + 1);
          break;
        case v1::QUEUED:
          counts.set_queued(counts.queued() + 1);
          break;
        case v1::RUNNING:
          counts.set_running(counts.running() + 1);
          break;
        case v1::SUCCEEDED:
          counts.set_succeeded(counts.succeeded() + 1);
          break;
        case v1::FAILED:
          counts.set_failed(counts.failed() + 1);
          break;
        default:
          counts.set_cancelled(counts.cancelled() + 1);
      }
      diverged += record.outcome == v1::DIVERGED;
      steps_done += job(row).progress;
      steps_total += record.to_step - record.from_step;
    }
    if (counts.SerializeAsString() != sweep.counts.SerializeAsString()) {
      return absl::StrCat("counts of sweep ", sweep.record.name, " do not add up: ", sweep.counts.ShortDebugString(),
                          " for ", counts.ShortDebugString());
    }
    if (diverged != sweep.diverged || steps_done != sweep.steps_done || steps_total != sweep.steps_total) {
      return absl::StrCat("steps or divergences of sweep ", sweep.record.name, " do not add up");
    }
    if (sealed_blocked != sweep.sealed_blocked || sealed != sweep.sealed.size()) {
      return absl::StrCat("sealed jobs of sweep ", sweep.record.name, " do not add up");
    }
    if (sweep.record.paused && sweep.record.state != v1::SWEEP_RUNNING)
      return absl::StrCat("sweep ", sweep.record.name, " is paused, but over");
    if (sweep.record.paused == sweep.record.pause_reason.empty())
      return absl::StrCat("sweep ", sweep.record.name, " is paused without a reason, or has one and is not");
    if (StateOf(sweep) != sweep.record.state) return absl::StrCat("sweep ", sweep.record.name, " is in a wrong state");
  }
  return "";
}

}  // namespace ablate
