// Scheduler::Explain: why a job is not running, in words. See scheduler.h.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "server/scheduler/scheduler.h"

namespace ablate {
namespace {

std::string KindName(v1::JobKind kind) { return kind == v1::STAGE ? "stage" : "evaluation"; }

std::string Describe(const Scheduler::Job& job) {
  const JobRecord& record = job.record;
  std::string text =
      absl::StrCat(KindName(record.kind), " ", record.job_id, ", which is ", ToAbsl(StateName(record.state)));
  if (record.state == v1::RUNNING) {
    absl::StrAppend(&text, " on worker ", record.worker_id);
    if (record.kind == v1::STAGE) {
      absl::StrAppend(&text, " at step ", record.from_step + job.progress, " of ", record.to_step);
    }
  }
  return text;
}

std::string FailureText(const JobRecord& record) {
  if (record.last_failure == nullptr) return "";
  const v1::Failure& failure = *record.last_failure;
  std::string name = "upstream_failed";
  for (const RetryRule& rule : RetryRules()) {
    if (rule.kind == failure.kind()) name = rule.name;
  }
  return failure.message().empty() ? name : absl::StrCat(name, ": ", failure.message());
}

std::string RequirementText(const Requirement& requirement) {
  std::vector<std::string> parts;
  if (requirement.executor == v1::EXECUTOR_NOOP) parts.push_back("the no-op executor");
  if (!requirement.device.empty()) parts.push_back(absl::StrCat("device class ", requirement.device));
  if (requirement.memory_bytes > 0) {
    parts.push_back(
        absl::StrCat("at least ", HumanBytes(static_cast<uint64_t>(requirement.memory_bytes)), " of memory"));
  }
  if (!requirement.labels.empty()) parts.push_back(absl::StrCat("labels ", absl::StrJoin(requirement.labels, ", ")));
  return parts.empty() ? "any device" : absl::StrJoin(parts, ", ");
}

}  // namespace

std::string PauseAdvice(const SweepRecord& sweep) {
  if (IsPausedForData(sweep)) return "`ablate sweep submit FILE` uploads it, and its jobs go on";
  return absl::StrCat("when the cause is mended: ablate sweep resume ", sweep.name);
}

Scheduler::Explanation Scheduler::Explain(JobRow row, Now now) const {
  const Job& job = this->job(row);
  const JobRecord& record = job.record;
  const std::string failures =
      record.failures == 0 ? ""
                           : absl::StrCat(" It has failed ", record.failures, " of at most ", record.max_failures,
                                          " times, ", WhereItFailed(record), "; the last time: ", FailureText(record),
                                          ".");
  switch (record.state) {
    case v1::BLOCKED: {
      if (record.sealed) {
        const auto sealed_by = std::find_if(job.sweeps.begin(), job.sweeps.end(), [&](SweepRow sweep) {
          return IsLive(sweep) && this->sweep(sweep).sealed.contains(row);
        });
        const std::string& name = this->sweep(*sealed_by).record.name;
        return {absl::StrCat("It is sealed: nothing that confirms the claims of sweep \"", name,
                             "\" runs before its selection is locked and asks for it."),
                absl::StrCat("ablate claims ", name, " says what the sweep waits for")};
      }
      const Job& parent = this->job(record.parent);
      return {absl::StrCat("It waits for its parent, ", Describe(parent), "."),
              absl::StrCat("ablate job explain ", parent.record.job_id)};
    }
    case v1::QUEUED: {
      if (job.held) {
        const auto paused = std::find_if(job.sweeps.begin(), job.sweeps.end(), [&](SweepRow row) {
          return IsLive(row) && sweep(row).record.paused;
        });
        const SweepRecord& by = sweep(*paused).record;
        std::string next_step = PauseAdvice(by);
        next_step[0] = absl::ascii_toupper(static_cast<unsigned char>(next_step[0]));
        return {absl::StrCat("It waits, because sweep \"", by.name, "\" is ", by.pause_reason, ".", failures), next_step};
      }
      if (job.not_before_us > now.monotonic_us) {
        return {absl::StrCat("It is tried again in ",
                             HumanSeconds(static_cast<double>(job.not_before_us - now.monotonic_us) * 1e-6), ".",
                             failures.empty() ? absl::StrCat(" The last time: ", FailureText(record), ".") : failures),
                ""};
      }
      if (const std::string why = options_.no_new_jobs ? options_.no_new_jobs() : ""; !why.empty()) {
        return {absl::StrCat("It is ready, but no job starts now: ", why, ".", failures),
                "Make room there: what runs goes on, and others start as soon as there is space"};
      }
      int64_t connected = 0, matching = 0, slots = 0, busy = 0, draining = 0;
      std::vector<std::string> devices;
      for (const auto& [id, worker] : workers_) {
        if (!worker.connected || worker.deadline_us <= now.monotonic_us) continue;
        ++connected;
        devices.push_back(worker.record.info.device_class());
        if (!Satisfies(worker, record.requirement)) continue;
        if (worker.draining || worker.record.drain_asked) {
          ++draining;
          continue;
        }
        ++matching;
        slots += worker.record.info.slots();
        busy += static_cast<int64_t>(worker.slots.size());
      }
      if (connected == 0) {
        return {absl::StrCat("It is ready, but no worker is connected.", failures),
                "Start one: ablate-worker --server ADDRESS"};
      }
      if (matching == 0 && draining > 0) {
        return {absl::StrCat("It is ready, but every worker that could take it (", draining,
                             ") takes no new work now (it drains, or its node is in trouble: its log says which).",
                             failures),
                "Start another worker, or wait for these to come back: ablate worker list"};
      }
      if (matching == 0) {
        std::sort(devices.begin(), devices.end());
        devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
        return {absl::StrCat("It is ready, but none of the ", connected,
                             " connected workers (device classes: ", absl::StrJoin(devices, ", "),
                             ") has what it requires: ", RequirementText(record.requirement), ".", failures),
                record.requirement.executor == v1::EXECUTOR_NOOP
                    ? "Start a worker for test jobs: ablate-worker --executor noop"
                    : "Start a worker that has it, or change `requires` in the sweep file: ablate worker list"};
      }
      if (now.monotonic_us < job.steer_until_us) {
        const bool elsewhere = std::none_of(workers_.begin(), workers_.end(), [&](const auto& item) {
          return item.second.connected && item.second.deadline_us > now.monotonic_us &&
                 !item.second.draining && !item.second.record.drain_asked &&
                 static_cast<int64_t>(item.second.slots.size()) < item.second.record.info.slots() &&
                 Satisfies(item.second, record.requirement) && MayTake(item.second, job, now);
        });
        if (const int64_t others = OthersThatCanTake(job, now);
            elsewhere && busy < slots && others > 0 && !record.failed_on.empty()) {
          return {absl::StrCat("It is ready, and kept from the workers on which it failed: it waits for one of ", others,
                               " others for at most ",
                               HumanSeconds(static_cast<double>(job.steer_until_us - now.monotonic_us) * 1e-6), ".",
                               failures),
                  "Wait, or start another worker"};
        }
      }
      if (IsOnLastTry(job) && busy < slots) {
        const bool waits = std::none_of(workers_.begin(), workers_.end(), [&](const auto& item) {
          return item.second.connected && item.second.deadline_us > now.monotonic_us &&
                 !item.second.draining && !item.second.record.drain_asked &&
                 static_cast<int64_t>(item.second.slots.size()) < item.second.record.info.slots() &&
                 Satisfies(item.second, record.requirement) && !HasUnproven(item.second, false, now);
        });
        if (waits) {
          return {absl::StrCat("It is on its last try and starts alone, so that it is known whether it ends its worker: it "
                               "waits until what runs on some worker has ended, or run for ",
                               HumanSeconds(static_cast<double>(options_.proven_us) * 1e-6), ".", failures),
                  "Wait, or start another worker"};
        }
      }
      const size_t ahead = ready_.CountBefore(job.class_id, job.rank);
      if (busy >= slots) {
        return {absl::StrCat("It is ready, but all ", slots, " slots that could take it are busy; ", ahead,
                             " jobs are ahead of it.", failures),
                "Wait, start more workers, or raise the sweep's priority"};
      }
      return {absl::StrCat("It is ready, and will be leased at a worker's next call; ", ahead, " jobs are ahead of it.",
                           failures),
              ""};
    }
    case v1::RUNNING: {
      const Worker* worker = FindWorker(record.worker_id);
      const bool silent = worker == nullptr || !worker->connected;
      return {absl::StrCat("It is running: attempt ", record.attempt, " on worker ", record.worker_id, ", slot ",
                           record.slot,
                           record.kind == v1::STAGE
                               ? absl::StrCat(", at step ", record.from_step + job.progress, " of ", record.to_step)
                               : "",
                           silent ? "; the worker has not called since the coordinator started" : "", ".", failures),
              ""};
    }
    case v1::SUCCEEDED:
      if (record.outcome == v1::DIVERGED) {
        return {absl::StrCat(
                    "It is done: diverged at step ", record.diverged_at_step,
                    record.attempt == 0 ? " of the training that it measures; it was recorded without running." : "."),
                ""};
      }
      return {"It is done.", ""};
    case v1::FAILED:
      if (record.last_failure != nullptr && record.last_failure->kind() == v1::UPSTREAM_FAILED) {
        if (record.verify_of != 0) {
          return {absl::StrCat("It ended without a second run of ", this->job(record.verify_of).record.job_id, ": ",
                               record.last_failure->message(), "."),
                  ""};
        }
        return {absl::StrCat("It never ran, because its parent failed: ", Describe(this->job(record.parent)), "."),
                absl::StrCat("ablate job explain ", this->job(record.parent).record.job_id)};
      }
      if (record.max_failures > 0 && record.failures >= record.max_failures) {
        return {absl::StrCat("It is quarantined: it failed ", record.failures, record.failures == 1 ? " time, " : " times, ",
                             WhereItFailed(record), "; no worker gets it again. The last time: ", FailureText(record), "."),
                absl::StrCat("ablate job show ", record.job_id, " has the evidence of each attempt; when the cause is "
                             "mended: ablate sweep retry SWEEP")};
      }
      return {absl::StrCat("It failed after ", record.attempt, " attempts. ", FailureText(record), "."),
              absl::StrCat("ablate job logs ", record.job_id, ", then ablate sweep retry SWEEP")};
    case v1::CANCELLED:
      return {"It was cancelled: by the user, with its parent, or because no live sweep needs it.",
              "Submit the sweep again, or: ablate sweep retry SWEEP"};
    default:
      return {"Its state is unknown.", ""};
  }
}

}  // namespace ablate
