// See scheduler.h. Here: the worker link. Reports of attempts, leases, silence.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/strings.h"
#include "base/version.h"
#include "server/scheduler/scheduler.h"

namespace ablate {
namespace {

constexpr int kMaxSlots = 4096;
constexpr size_t kMaxHeldKeys = 4096;  // looked up at each lease
constexpr int64_t kMaxRetryDelayMicros = 60'000'000;

bool HasEnded(v1::AttemptReport::Phase phase) {
  return phase != v1::AttemptReport::RUNNING && phase != v1::AttemptReport::PHASE_UNSPECIFIED;
}

// Its evidence is the worker's own word; a worker of an earlier build gives none.
v1::Failure WhyHandedBack(const JobRecord& record, const v1::AttemptReport& report) {
  v1::Failure why = report.failure();
  why.set_kind(v1::PREEMPTED);
  if (why.message().empty()) {
    why.set_message(report.phase() == v1::AttemptReport::CANCELLED ? "its worker had been told to stop it"
                                                                   : "its worker was asked to stop");
  }
  why.set_message(absl::StrCat("handed back, ", why.message()));
  if (record.kind == v1::STAGE && report.step() > record.from_step) {
    absl::StrAppend(why.mutable_message(), ", after step ", report.step());
  }
  return why;
}

}  // namespace

absl::Status Scheduler::CheckSync(const v1::SyncRequest& request) const {
  if (request.protocol_version() != kProtocolVersion && request.protocol_version() != kProtocolVersion - 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("protocol version ", request.protocol_version(), " is not spoken here (", kProtocolVersion - 1,
                     " and ", kProtocolVersion, " are): install the worker of the coordinator's release"));
  }
  const v1::WorkerInfo& info = request.worker();
  if (info.worker_id().empty()) return absl::InvalidArgumentError("worker.worker_id is empty");
  if (info.incarnation().empty()) return absl::InvalidArgumentError("worker.incarnation is empty");
  if (info.slots() < 1 || info.slots() > kMaxSlots) {
    return absl::InvalidArgumentError(absl::StrCat("worker.slots is ", info.slots(), ", not in 1 to ", kMaxSlots));
  }
  for (int i = 0; i < request.attempts_size(); ++i) {
    const v1::AttemptReport& report = request.attempts(i);
    if (report.job_id().empty() || report.attempt() < 1 || report.slot() < 0 || report.slot() >= kMaxSlots ||
        report.phase() == v1::AttemptReport::PHASE_UNSPECIFIED) {
      return absl::InvalidArgumentError(absl::StrCat(
          "attempts[", i, "] needs a job_id, an attempt above 0, a slot below ", kMaxSlots, " and a phase"));
    }
  }
  const Worker* worker = FindWorker(info.worker_id());
  if (worker == nullptr) return absl::OkStatus();
  if (worker->retired_incarnations.contains(info.incarnation())) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", info.worker_id(),
                                                      " was started again since: incarnation ", info.incarnation(),
                                                      " is over. If two daemons run under this "
                                                      "name, give one of them another --work-dir"));
  }
  if (worker->record.info.incarnation() == info.incarnation() && request.sequence() <= worker->last_sequence) {
    return absl::FailedPreconditionError(absl::StrCat("sequence ", request.sequence(), " is not above the last one, ",
                                                      worker->last_sequence, ", of worker ", info.worker_id()));
  }
  return absl::OkStatus();
}

absl::StatusOr<SyncDecision> Scheduler::OnSync(const v1::SyncRequest& request, Now now, Effects* effects) {
  if (absl::Status status = CheckSync(request); !status.ok()) return status;
  Begin(effects);
  SyncDecision decision;
  Worker& worker = workers_[request.worker().worker_id()];
  v1::WorkerInfo& stored = worker.record.info;
  v1::WorkerInfo info = request.worker();
  info.set_draining(false);
  info.set_connected(false);
  info.clear_running_job_ids();
  if (info.executor() == v1::EXECUTOR_UNSPECIFIED) info.set_executor(v1::EXECUTOR_TRAINER);
  info.set_last_contact_at_us(stored.last_contact_at_us());
  const bool new_incarnation = stored.incarnation() != info.incarnation();
  if (new_incarnation) {
    if (!stored.incarnation().empty()) worker.retired_incarnations.insert(stored.incarnation());
    worker.record.drain_asked = false;
  }
  if (new_incarnation || stored.SerializeAsString() != info.SerializeAsString()) {
    stored = std::move(info);
    stored.set_last_contact_at_us(now.wall_us);
    worker.classes.clear();
    worker.classes_seen = 0;
    effects_->workers.push_back(worker.record);
  }
  worker.connected = true;
  worker.draining = request.draining();
  worker.last_sequence = request.sequence();
  worker.last_contact_us = now.wall_us;
  worker.deadline_us = now.monotonic_us + options_.lease_us;
  worker.held_stage_keys.assign(
      request.held_stage_keys().begin(),
      request.held_stage_keys().begin() + std::min<int64_t>(request.held_stage_keys_size(), kMaxHeldKeys));

  std::set<JobRow> reported;
  for (int i = 0; i < request.attempts_size(); ++i) {
    ProcessReport(worker, request, i, now, &decision);
    if (const Job* job = FindJob(request.attempts(i).job_id())) reported.insert(job->record.row);
  }
  {
    // A worker has no more jobs than slots, whatever it had before.
    std::vector<JobRow> lost;
    for (const auto& [slot, jobs] : worker.slots) {
      if (slot >= stored.slots()) lost.insert(lost.end(), jobs.begin(), jobs.end());
    }
    for (JobRow row : lost) {
      LoseAttempt(At(row), Cause::kWorkerRestarted,
                  absl::StrCat("worker ", stored.worker_id(), " has only ", stored.slots(), " slots now"), now);
    }
  }
  if (new_incarnation) {
    // Its former self's attempts died with it, those aside that it says it has.
    std::vector<JobRow> lost;
    for (const auto& [slot, jobs] : worker.slots) {
      std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(lost),
                   [&](JobRow row) { return !reported.contains(row); });
    }
    for (JobRow row : lost) {
      LoseAttempt(At(row), Cause::kWorkerRestarted, absl::StrCat("worker ", stored.worker_id(), " was started again"),
                  now);
    }
  }
  ExpireLeases(now);
  LeaseTo(worker, now);
  FillDecision(worker, &decision);
  Finish(now);
  return decision;
}

absl::StatusOr<SyncDecision> Scheduler::OnPoll(const v1::SyncRequest& request, Now now, Effects* effects) {
  const auto found = workers_.find(request.worker().worker_id());
  if (found == workers_.end() || found->second.record.info.incarnation() != request.worker().incarnation() ||
      found->second.last_sequence != request.sequence()) {
    return absl::AbortedError("a newer Sync of this worker came");
  }
  Begin(effects);
  SyncDecision decision;
  Worker& worker = found->second;
  // It hangs in the call, so it is there.
  worker.connected = true;
  worker.deadline_us = now.monotonic_us + options_.lease_us;
  worker.last_contact_us = now.wall_us;
  LeaseTo(worker, now);
  FillDecision(worker, &decision);
  Finish(now);
  return decision;
}

void Scheduler::ProcessReport(Worker& worker, const v1::SyncRequest& request, int index, Now now,
                              SyncDecision* decision) {
  const v1::AttemptReport& report = request.attempts(index);
  const bool ended = HasEnded(report.phase());
  const auto answer = [&](bool accepted, const std::string& reason) {
    if (!ended) return;
    v1::AttemptAck& ack = decision->acks.emplace_back();
    ack.set_job_id(report.job_id());
    ack.set_attempt(report.attempt());
    ack.set_accepted(accepted);
    ack.set_reason(reason);
  };
  const auto found = jobs_by_id_.find(report.job_id());
  if (found == jobs_by_id_.end()) return answer(false, absl::StrCat("there is no job ", report.job_id()));
  Job& job = At(found->second);
  JobRecord& record = job.record;
  if (report.attempt() < record.attempt) {
    return answer(false,
                  absl::StrCat("attempt ", report.attempt(), " is old: attempt ", record.attempt, " was granted"));
  }
  if (report.attempt() > record.attempt) {
    return answer(false,
                  absl::StrCat("attempt ", report.attempt(), " was never granted; the last one is ", record.attempt));
  }
  if (record.worker_id != worker.record.info.worker_id()) {
    return answer(false, absl::StrCat("attempt ", report.attempt(), " was granted to worker ", record.worker_id));
  }

  if (IsTerminal(record.state)) {
    const bool again =
        (report.phase() == v1::AttemptReport::SUCCEEDED && record.attempt_state == AttemptState::kSucceeded) ||
        (report.phase() == v1::AttemptReport::FAILED && record.attempt_state == AttemptState::kFailed) ||
        (report.phase() == v1::AttemptReport::RELEASED && record.attempt_state == AttemptState::kReleased) ||
        (report.phase() == v1::AttemptReport::CANCELLED && record.attempt_state == AttemptState::kCancelled);
    return answer(again, again ? "" : absl::StrCat("the job is over: ", ToAbsl(StateName(record.state))));
  }

  // Thought lost, and meanwhile the state that it had started from was lost too, or the sweep that wanted it went away:
  // not wanted, the worker stops it.
  if (record.state == v1::BLOCKED) {
    return answer(false, record.sealed ? "the job is sealed: only sweeps whose selection is not locked need it"
                                       : "the job waits for its parent's stage, which is trained again");
  }

  const bool running = record.state == v1::RUNNING;
  switch (report.phase()) {
    case v1::AttemptReport::RUNNING: {
      if (!running) {
        const auto slot = worker.slots.find(report.slot());
        // Only evaluations of one state share a slot.
        // On the slot that it was granted, if the worker still has it.
        const bool slot_taken = report.slot() != record.slot || report.slot() >= worker.record.info.slots() ||
                                (slot != worker.slots.end() &&
                                (record.kind == v1::STAGE || At(slot->second.front()).record.kind == v1::STAGE ||
                                 At(slot->second.front()).record.parent != record.parent));
        if (record.attempt_state != AttemptState::kLost || slot_taken) return;
        TakeBackFailure(job);  // it was counted for a loss that was none
        EndAttempt(job, AttemptState::kRunning, nullptr);
        Move(job, v1::RUNNING, Cause::kReattached, now);
        worker.slots[report.slot()].push_back(record.row);
      }
      SetProgress(job, report.step() - record.from_step, report.tokens_per_second());
      decision->progress.push_back(index);
      return;
    }
    case v1::AttemptReport::SUCCEEDED: {
      const std::string bad = WhyResultIsBad(job, report);
      if (!bad.empty()) {
        v1::Failure failure;
        failure.set_kind(v1::CODE_ERROR);
        failure.set_message(bad);
        ProcessFailure(job, failure, now);
        return answer(false, bad);
      }
      ProcessResult(job, report, now);
      decision->results.push_back(index);
      return answer(true, "");
    }
    case v1::AttemptReport::FAILED:
      decision->progress.push_back(index);  // its last points and checkpoint: a retry goes on from there
      ProcessFailure(job, report.failure(), now);
      return answer(true, "");
    case v1::AttemptReport::RELEASED:
    case v1::AttemptReport::CANCELLED: {  // of a job that is wanted: as good as given back
      decision->progress.push_back(index);
      const v1::Failure why = WhyHandedBack(record, report);
      if (running) {
        EndAttempt(job, AttemptState::kReleased, &why);
        Move(job, v1::QUEUED, Cause::kReleased, now, why.message());
      } else if (record.attempt_state == AttemptState::kLost) {
        TakeBackFailure(job);
        EndAttempt(job, AttemptState::kReleased, &why);
      }
      return answer(true, "");
    }
    default:
      return;
  }
}

std::string Scheduler::WhyResultIsBad(const Job& job, const v1::AttemptReport& report) const {
  const v1::TaskResult& result = report.result();
  if (result.outcome() != v1::COMPLETED && result.outcome() != v1::DIVERGED) return "the result states no outcome";
  std::set<std::string> names;
  for (const v1::ResultArtifact& made : result.artifacts()) {
    const std::string& sha256 = made.artifact().sha256();
    // The name becomes that of a file on the machine of whoever fetches it.
    if (const absl::Status status = CheckFileName("a made file", made.name()); !status.ok())
      return std::string(status.message());
    if (!names.insert(made.name()).second) return absl::StrCat("two made files are named ", made.name());
    if (!IsSha256Hex(sha256)) return absl::StrCat("the made file ", made.name(), " has no SHA-256");
    if (!options_.has_artifact || options_.has_artifact(sha256)) continue;
    return absl::StrCat("the made file ", made.name(), " is not stored here: upload it before the result is reported");
  }
  if (job.record.kind != v1::STAGE || result.outcome() == v1::DIVERGED ||
      job.record.requirement.executor == v1::EXECUTOR_NOOP) {
    return "";
  }
  const v1::CheckpointRef& state = result.end_state();
  if (state.weights().sha256().empty()) return "the result of a stage names no end state";
  if (job.granted_keep_optimizer && state.optimizer().sha256().empty()) {
    const auto need = states_.find(job.record.key);
    if (need != states_.end() && need->second.stages_in_need > 0) {
      return "the end state has no optimizer state, although a later stage needs it";
    }
  }
  for (const v1::ArtifactRef* artifact : {&state.weights(), &state.optimizer()}) {
    if (artifact->sha256().empty() || !options_.has_artifact || options_.has_artifact(artifact->sha256())) continue;
    return absl::StrCat("the end state ", artifact->sha256(),
                        " is not stored here: upload it before the result is reported");
  }
  return "";
}

void Scheduler::ProcessResult(Job& job, const v1::AttemptReport& report, Now now) {
  const v1::TaskResult& result = report.result();
  const bool late = job.record.state == v1::QUEUED;
  job.record.diverged_at_step = result.outcome() == v1::DIVERGED ? result.diverged_at_step() : 0;
  if (job.record.kind == v1::STAGE && result.outcome() == v1::COMPLETED && job.record.verify_of == 0) {
    StageState& state = states_[job.record.key];
    state.weights = !result.end_state().weights().sha256().empty();
    state.optimizer = !result.end_state().optimizer().sha256().empty();
    state.weights_sha256 = result.end_state().weights().sha256();
    state.optimizer_sha256 = result.end_state().optimizer().sha256();
  }
  if (late && job.record.attempt_state == AttemptState::kLost) TakeBackFailure(job);  // its loss was none
  EndAttempt(job, AttemptState::kSucceeded, nullptr);
  Move(job, v1::SUCCEEDED, late ? Cause::kLateResult : Cause::kResult, now,
       result.outcome() == v1::DIVERGED ? absl::StrCat("diverged at step ", result.diverged_at_step()) : "",
       result.outcome());
  SettleChildren(job.record.row, now);
}

void Scheduler::ProcessFailure(Job& job, const v1::Failure& reported, Now now) {
  JobRecord& record = job.record;
  // What it could not get because the coordinator lost it is not its failure.
  const bool may_lack_data = RuleFor(reported.kind()).kind == v1::CODE_ERROR;
  if (may_lack_data && EndForLostData(job, reported, now)) return;
  const bool lost_data = may_lack_data && PauseForLostData(job);
  const RetryRule& rule = RuleFor(lost_data ? v1::PREEMPTED : reported.kind());
  v1::Failure failure = reported;
  failure.set_kind(rule.kind);
  if (lost_data) {
    failure.set_message(absl::StrCat("the coordinator lost data of its sweep, so this does not count: ", reported.message()));
  }
  if (record.state == v1::QUEUED) {
    // Told late: the loss was counted when it was noticed. An attempt that said already how it ended has said it all.
    if (record.attempt_state != AttemptState::kLost) return;
    EndAttempt(job, AttemptState::kFailed, &failure);
    if (!rule.counts) TakeBackFailure(job);
    if (rule.counts) CountFailure(job, failure);
    if (!rule.retried) {
      Move(job, v1::FAILED, Cause::kInvalidConfig, now, failure.message());
      SettleChildren(record.row, now);
    }
    return;
  }
  EndAttempt(job, AttemptState::kFailed, &failure);
  if (rule.counts) {
    AddFailure(job, now);
    CountFailure(job, failure);
  }
  if (!rule.counts) {
    Move(job, v1::QUEUED, Cause::kPreempted, now, failure.message());
  } else if (rule.retried && record.failures < record.max_failures) {
    Move(job, v1::QUEUED, Cause::kRetryableFailure, now, failure.message());
  } else {
    Move(job, v1::FAILED, rule.retried ? Cause::kFailureLimit : Cause::kInvalidConfig, now,
         rule.retried ? GivenUpText(record, failure.message()) : failure.message());
    SettleChildren(record.row, now);
  }
}

void Scheduler::LoseAttempt(Job& job, Cause cause, const std::string& text, Now now) {
  v1::Failure failure;
  failure.set_kind(v1::WORKER_LOST);
  failure.set_message(text);
  // The first loss is the node's trouble as a rule; a job that loses one worker after the other counts.
  const bool again = job.record.failures > 0 && job.record.last_failure != nullptr &&
                     job.record.last_failure->kind() == v1::WORKER_LOST;
  EndAttempt(job, AttemptState::kLost, &failure);
  AddFailure(job, now);
  if (again) CountFailure(job, failure);
  if (job.record.failures < job.record.max_failures) {
    Move(job, v1::QUEUED, cause, now, text);
  } else {
    Move(job, v1::FAILED, Cause::kFailureLimit, now, GivenUpText(job.record, text));
    SettleChildren(job.record.row, now);
  }
}

int64_t Scheduler::RetryDelay(int32_t failures) const {
  int64_t delay_us = options_.retry_delay_us;
  for (int32_t i = 1; i < failures && delay_us < kMaxRetryDelayMicros; ++i) delay_us *= 5;
  return std::min(delay_us, kMaxRetryDelayMicros);
}

void Scheduler::EndDelays(Now now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now.monotonic_us) {
    Job& job = At(delayed_.begin()->second);
    LeaveQueue(job);
    EnterQueue(job, 0);
  }
}

// Whether the stored state that a queued job starts from is gone from the disk, and which parts of it.
bool Scheduler::StateIsGone(JobRow row, StateCollection* lost) const {
  const JobRecord& record = job(row).record;
  if (record.parent == 0 || record.requirement.executor == v1::EXECUTOR_NOOP || !options_.has_artifact) return false;
  const std::string& key = job(record.parent).record.key;
  const auto found = states_.find(key);
  if (found == states_.end()) return false;
  const auto gone = [&](bool stored, const std::string& sha256) {
    return stored && !sha256.empty() && !options_.has_artifact(sha256);
  };
  const StageState& state = found->second;
  lost->stage_key = key;
  lost->weights = gone(state.weights, state.weights_sha256);
  // Without weights an optimizer state is of no use.
  lost->optimizer = state.optimizer && (lost->weights || gone(true, state.optimizer_sha256));
  const bool with_optimizer = record.kind == v1::STAGE;
  return lost->weights || (with_optimizer && lost->optimizer) || !StateAvailable(key, with_optimizer);
}

// Its parent's stage is trained again, for this job and for all others that wait for the same.
void Scheduler::LoseState(JobRow needed_by, const StateCollection& lost, Now now) {
  StageState& state = states_[lost.stage_key];
  state.weights = state.weights && !lost.weights;
  state.optimizer = state.optimizer && !lost.optimizer;
  if (lost.weights || lost.optimizer) effects_->collections.push_back(lost);
  const JobRow parent = job(needed_by).record.parent;
  LOG(WARNING) << "the end state of stage " << job(parent).record.job_id
               << " is gone from the disk: it is trained again";
  const std::vector<JobRow> children = At(parent).children;  // a rerun takes them away
  for (JobRow row : children) {
    Job& child = At(row);
    if (child.record.state != v1::QUEUED || StateAvailable(lost.stage_key, child.record.kind == v1::STAGE)) continue;
    if (child.record.verify_of != 0) {
      v1::Failure failure;
      failure.set_kind(v1::UPSTREAM_FAILED);
      failure.set_message(absl::StrCat("the end state of ", job(parent).record.job_id, " is gone from the coordinator's disk"));
      child.record.last_failure = std::make_shared<const v1::Failure>(failure);
      Move(child, v1::FAILED, Cause::kStateLost, now, failure.message());
      continue;
    }
    Move(child, v1::BLOCKED, Cause::kStateLost, now,
         absl::StrCat("the end state of ", job(parent).record.job_id, " is gone from the coordinator's disk"));
    Settle(row, now);
  }
}

void Scheduler::OnTick(Now now, Effects* effects) {
  Begin(effects);
  EndDelays(now);
  ExpireLeases(now);
  Finish(now);
}

void Scheduler::OnStall(int64_t stall_us) {
  for (auto& [id, worker] : workers_) worker.deadline_us += stall_us;
}

void Scheduler::ExpireLeases(Now now) {
  for (auto& [id, worker] : workers_) {
    if (worker.deadline_us > now.monotonic_us) continue;
    worker.connected = false;
    std::vector<JobRow> lost;
    for (const auto& [slot, jobs] : worker.slots) lost.insert(lost.end(), jobs.begin(), jobs.end());
    for (JobRow row : lost) {
      LoseAttempt(At(row), Cause::kLeaseExpired,
                  absl::StrCat("worker ", id, " was silent for ", options_.lease_us / 1'000'000, " s"), now);
    }
  }
}

absl::Status Scheduler::OnDrain(const std::string& worker_id, Now now, Effects* effects) {
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return absl::NotFoundError(absl::StrCat("there is no worker ", worker_id));
  Begin(effects);
  if (!found->second.record.drain_asked) {
    found->second.record.drain_asked = true;
    effects_->workers.push_back(found->second.record);
  }
  Finish(now);
  return absl::OkStatus();
}

bool Scheduler::Satisfies(const Worker& worker, const Requirement& requirement) const {
  const v1::WorkerInfo& info = worker.record.info;
  if (info.executor() != requirement.executor) return false;
  if (!requirement.device.empty() && requirement.device != info.device_class()) return false;
  if (requirement.memory_bytes > info.memory_bytes()) return false;
  return std::all_of(requirement.labels.begin(), requirement.labels.end(), [&](const std::string& label) {
    return std::find(info.labels().begin(), info.labels().end(), label) != info.labels().end();
  });
}

void Scheduler::UpdateClasses(Worker& worker) {
  const std::vector<Requirement>& known = ready_.requirements();
  for (; worker.classes_seen < known.size(); ++worker.classes_seen) {
    if (Satisfies(worker, known[worker.classes_seen])) worker.classes.push_back(static_cast<int>(worker.classes_seen));
  }
}

// The next thing for this worker: the first in lease order that it may take; among equals of one level, one whose state
// the worker holds.
bool Scheduler::PickRank(const Worker& worker, Now now, int* class_id, LeaseRank* rank) const {
  bool found = false;
  for (int id : worker.classes) {
    for (const auto& [first, jobs] : ready_.queue(id)) {
      if (found && !(first < *rank)) break;
      if (!AnyToTake(worker, jobs, now)) continue;
      *class_id = id;
      *rank = first;
      found = true;
      break;
    }
  }
  if (!found) return false;
  for (const std::string& key : worker.held_stage_keys) {
    const Job* stage = LatestOfKey(key);
    if (stage == nullptr || stage->record.kind != v1::STAGE) continue;
    LeaseRank held = *rank;
    const auto may_take = [&] {
      const std::set<JobRow>* jobs = ready_.At(*class_id, held);
      return jobs != nullptr && AnyToTake(worker, *jobs, now);
    };
    if (!rank->is_stage) {
      held.sequence = stage->record.row;
      if (may_take()) {
        *rank = held;
        break;
      }
      continue;
    }
    for (JobRow child : stage->children) {
      held.sequence = child;
      if (job(child).record.kind == v1::STAGE && may_take()) {
        *rank = held;
        return true;
      }
    }
  }
  return true;
}

int64_t Scheduler::IdleSlots(int class_id) const {
  int64_t idle = 0;
  for (const auto& [id, worker] : workers_) {
    if (!worker.connected || worker.draining || worker.record.drain_asked) continue;
    if (!Satisfies(worker, ready_.requirements()[class_id])) continue;
    idle += std::max<int64_t>(0, worker.record.info.slots() - static_cast<int64_t>(worker.slots.size()));
  }
  return idle;
}

void Scheduler::LeaseTo(Worker& worker, Now now) {
  if (worker.draining || worker.record.drain_asked) return;
  if (options_.no_new_jobs && !options_.no_new_jobs().empty()) return;
  EndDelays(now);
  UpdateClasses(worker);
  for (int32_t slot = 0; slot < worker.record.info.slots(); ++slot) {
    if (worker.slots.contains(slot)) continue;
    if (HasUnproven(worker, /*only_last_tries=*/true, now)) return;
    int class_id = 0;
    LeaseRank rank;
    if (!PickRank(worker, now, &class_id, &rank)) return;
    const std::set<JobRow>& ready = *ready_.At(class_id, rank);
    // Those of one rank start from the same state.
    if (StateCollection lost; StateIsGone(*ready.begin(), &lost)) {
      LoseState(*ready.begin(), lost, now);
      --slot;
      continue;
    }
    // Several evaluations of one state share a lease, but never so many that other idle slots go without.
    size_t batch = 1;
    if (!rank.is_stage) {
      const size_t idle = static_cast<size_t>(std::max<int64_t>(1, IdleSlots(class_id)));
      batch = std::clamp<size_t>((ready_.evaluations(class_id) + idle - 1) / idle, 1, options_.max_batch);
    }
    std::vector<JobRow> taken;
    for (JobRow row : ready) {
      if (taken.size() == batch) break;
      if (!MayTake(worker, job(row), now)) continue;
      const bool alone = IsOnLastTry(job(row));
      if (alone && !taken.empty()) continue;
      // The slot is kept for it: what runs beside it ends or is proven soon.
      if (alone && HasUnproven(worker, /*only_last_tries=*/false, now)) return;
      taken.push_back(row);
      if (alone) break;
    }
    for (JobRow row : taken) Grant(worker, slot, row, now);
  }
}

void Scheduler::Grant(Worker& worker, int32_t slot, JobRow row, Now now) {
  Job& job = At(row);
  JobRecord& record = job.record;
  record.attempt += 1;
  record.worker_id = worker.record.info.worker_id();
  record.slot = slot;
  record.attempt_state = AttemptState::kRunning;
  job.proven_at_us = now.monotonic_us + options_.proven_us;
  const auto state = states_.find(record.key);
  job.granted_keep_optimizer = record.kind == v1::STAGE && record.verify_of == 0 && state != states_.end() &&
                               (state->second.stages_in_need > 0 || state->second.keep_all > 0);
  Move(job, v1::RUNNING, Cause::kLeased, now);
  worker.slots[slot].push_back(row);
  effects_->attempt_starts.push_back({.job = row,
                                      .attempt = record.attempt,
                                      .worker_id = record.worker_id,
                                      .incarnation = worker.record.info.incarnation(),
                                      .slot = slot});
}

void Scheduler::FillDecision(const Worker& worker, SyncDecision* decision) const {
  for (const auto& [slot, jobs] : worker.slots) {
    for (JobRow row : jobs) {
      const auto state = states_.find(job(row).record.key);
      const bool keep_optimizer = job(row).record.kind == v1::STAGE && job(row).record.verify_of == 0 && state != states_.end() &&
                                  (state->second.stages_in_need > 0 || state->second.keep_all > 0);
      decision->desired.push_back({.job = row,
                                   .job_id = job(row).record.job_id,
                                   .attempt = job(row).record.attempt,
                                   .slot = slot,
                                   .keep_optimizer = keep_optimizer});
    }
  }
  decision->drain = worker.record.drain_asked;
  decision->fully_idle = worker.slots.empty() && decision->acks.empty();
  decision->partly_idle = static_cast<int32_t>(worker.slots.size()) < worker.record.info.slots();
}

}  // namespace ablate
