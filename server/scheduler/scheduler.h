// The scheduler: which job is in which state, who runs it, and what an event changes. Everything in memory.
// Must not know SQL, gRPC, files or clocks: events bring the time along, and what changed is returned as Effects for
// the store. Feeding back what the effects wrote (OnRestart) gives the same scheduler. Thread rule: single-threaded;
// the coordinator calls it under its lock.
//
// Rules (docs/job-states.md has the picture):
//  * An attempt's number grows when a lease is granted and fences: reports of an older one are refused. The latest
//  attempt is
//    accepted while its job is RUNNING or QUEUED again, and its result ends the job.
//  * `failures` counts what RetryRules() says; a release, a preemption and a restart of the coordinator leave it alone.
//  A loss that
//    proves untrue (the attempt reports again as running, or as released) is taken back.
//  * The lease is the worker's: every Sync of the worker renews all its attempts. After a restart each gets one full
//  lease.
//  * A job that failed waits, growing, before it is leased again (RetryDelay).
//  * A job is leased only while the files of the state that it starts from are stored; where they are gone, its
//  parent's stage gets a new job.
//  * A stage that diverged settles its evaluations and child stages as DIVERGED without running them.
//  * A job is shared by all sweeps that need its key, and cancelled when the last live one is.
//  * A sweep may have jobs sealed: BLOCKED, and never leased for it, until it lets them go or drops them (OnPlanChange).
//    A job that another live sweep needs unsealed runs for that one.
//  * A job that failed on a worker goes to another one where one could take it, for a while (steer_us). One that is on
//    its last try and whose last worker was lost starts alone: beside jobs only that have run for a while (proven_us), and
//    for so long nothing else is leased to its worker. So whoever kills the worker then is known, and no job is given up
//    for having run beside it.
//  * A sweep with too many failures of one signature is paused (the breaker): nothing is leased for it until it is
//    resumed; what runs goes on, and a job that another live sweep needs runs for that one.
//  * A job that fails with code_error while a file that it got from the coordinator is gone from there has not failed: its
//    sweeps are paused until the file is there again (OnDataUploaded), and its attempt does not count.
//  * A verification repeats a finished job under the same key: it belongs to no sweep, stands for no key, and changes no
//    stored state.
//  * A stored end state is collected when no job that may still run, and no failed one that may be retried, needs it; a
//  job that
//    comes later and needs it gets a new stage job for the same key (retry_of).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "proto/link.pb.h"
#include "server/scheduler/ready_queue.h"
#include "server/scheduler/records.h"

namespace ablate {

struct SchedulerOptions {
  int64_t lease_us = 30'000'000;
  int32_t max_failures = 3;  // of new jobs: the failure with this number is the last
  int max_batch = 16;        // evaluations of one state in one lease
  // Before a job that failed is leased again: so long after its first failure, five times as long after each further
  // one, a minute at most.
  int64_t retry_delay_us = 1'000'000;
  // How long a job that failed on a worker is kept for another worker, busy as that may be.
  int64_t steer_us = 600'000'000;
  // How long a job runs before it is taken to be no killer of workers.
  int64_t proven_us = 60'000'000;
  // Failures of one signature that pause a sweep that states no number of its own; 0: never.
  int32_t sweep_max_failures = 50;
  // Whether an artifact is stored; asked for end states, when a result names them and when a job is to start from them.
  // Unset: all are.
  std::function<bool(const std::string& sha256)> has_artifact;
  // Why no job may start now (the disk is nearly full), or ""; asked at each lease. Unset: they may.
  std::function<std::string()> no_new_jobs;
};

// A sweep's plan as the scheduler needs it.
struct SubmitPlan {
  struct PlannedJob {
    v1::JobKind kind = v1::STAGE;
    std::string key;
    int parent = -1;  // index in `jobs`, of a stage; parents come before children
    int64_t from_step = 0, to_step = 0;
    bool sealed = false;
  };
  SweepRecord sweep;  // row, state, times, jobs and sealed_jobs are filled in by the scheduler
  Requirement requirement;
  std::vector<PlannedJob> jobs;  // each key once
};

// What a decision of a sweep with phases, or an extension, changes.
struct PlanChange {
  SweepRecord sweep;  // as OnSubmit takes it, with the row: description, hashes, priority, keep, arms, seeds, phase...
  Requirement requirement;
  std::vector<SubmitPlan::PlannedJob> add;  // may name keys that the sweep has: their jobs are left as they are
  std::vector<std::string> unseal;          // keys of the sweep that may run now
  std::vector<std::string> drop;            // keys that the sweep does not need any more
};

struct SubmitOutcome {
  SweepRow sweep = 0;
  int64_t new_jobs = 0;
  int64_t reused_jobs = 0;
};

// The scheduler's part of the answer to a Sync.
struct SyncDecision {
  struct Desired {
    JobRow job = 0;
    std::string job_id;
    int64_t attempt = 0;
    int32_t slot = 0;
    bool keep_optimizer = false;
  };
  std::vector<Desired> desired;
  std::vector<v1::AttemptAck> acks;
  // Indices of request.attempts: those whose result is to be stored, and the others whose points and checkpoint are.
  std::vector<int> results;
  std::vector<int> progress;
  bool drain = false;
  bool fully_idle = false;  // nothing runs and nothing was acknowledged: the worker may be kept waiting
  bool partly_idle = false;
};

class Scheduler {
 public:
  struct Job {
    JobRecord record;
    std::vector<JobRow> children;
    std::vector<SweepRow> sweeps;  // attached, cancelled ones too
    int class_id = 0;
    LeaseRank rank;                // while QUEUED
    bool held = false;             // while QUEUED: every live sweep that needs it is paused; stands in neither queue
    int64_t not_before_us = 0;     // while QUEUED; monotonic: stands in delayed_ until then, 0: stands in ready_
    int64_t proven_at_us = 0;      // while RUNNING; monotonic
    int64_t steer_until_us = 0;    // monotonic: kept from the workers of failed_on until then, where another can take it
    int64_t progress = 0;          // training steps done of this stage
    double tokens_per_second = 0;  // while RUNNING
    bool granted_keep_optimizer = false;
    bool counted_need = false;  // counts in its parent's StageState
    bool dirty = false;
  };
  struct Sweep {
    SweepRecord record;
    v1::JobCounts counts;
    int64_t diverged = 0;
    int64_t steps_done = 0, steps_total = 0;
    double tokens_per_second = 0;
    std::unordered_set<JobRow> sealed;  // of record.jobs
    int64_t sealed_blocked = 0;         // jobs with record.sealed
    std::map<std::string, SweepFailures> failures;  // by signature
    int64_t version = 0;                // grows with every change of a job of the sweep
    bool dirty = false, touched = false;
  };
  struct Worker {
    WorkerRecord record;
    bool connected = false;
    bool draining = false;        // says so itself
    int64_t deadline_us = 0;      // monotonic
    int64_t last_contact_us = 0;  // wall, for people
    int64_t last_sequence = 0;
    std::set<std::string> retired_incarnations;
    std::vector<std::string> held_stage_keys;
    std::vector<int> classes;                      // requirement classes that this worker satisfies
    size_t classes_seen = 0;                       // of how many known ones
    std::map<int32_t, std::vector<JobRow>> slots;  // running jobs, in order
  };

  Scheduler(SchedulerOptions options, IdGenerator* ids);

  // ---- events: each appends to `effects` what is to be written ----

  // Starts from what the store holds. Every running attempt gets one full lease from now on.
  absl::Status OnRestart(const SchedulerSnapshot& snapshot, Now now);

  // Makes the sweep and the jobs it needs that no earlier sweep has. AlreadyExists: the name is taken.
  absl::StatusOr<SubmitOutcome> OnSubmit(const SubmitPlan& plan, Now now, Effects* effects);

  // NotFound; FailedPrecondition: over already.
  absl::Status OnCancelSweep(SweepRow sweep, Now now, Effects* effects);
  // New jobs for those that failed or were cancelled, and what they need. Revives a cancelled sweep, and resumes a paused
  // one. Returns how many.
  absl::StatusOr<int64_t> OnRetry(SweepRow sweep, Now now, Effects* effects);
  // Adds jobs to a sweep that is not cancelled, lets sealed ones go, drops others, and writes down where it stands now.
  // NotFound: a key to unseal or drop is none of the sweep's. FailedPrecondition: the sweep is cancelled.
  absl::StatusOr<SubmitOutcome> OnPlanChange(const PlanChange& change, Now now, Effects* effects);
  // Jobs that repeat finished ones. FailedPrecondition (says what is missing; then nothing is changed): it is sealed, not done, was recorded
  // without running, is itself a verification, or the state that it starts from is not stored any more.
  absl::StatusOr<std::vector<JobRow>> OnVerify(const std::vector<JobRow>& jobs, Now now, Effects* effects);
  absl::Status CanVerify(JobRow job) const;
  // Goes on with a paused sweep; what its breaker counts starts again at 0. With `max_failures`, that is its limit from
  // now on. FailedPrecondition: it is not paused.
  absl::Status OnResume(SweepRow sweep, std::optional<int32_t> max_failures, Now now, Effects* effects);

  // The sweep's file was submitted again. Goes on with a sweep that was paused for its data if all of it is there now, and
  // says whether.
  bool OnDataUploaded(SweepRow sweep, Now now, Effects* effects);
  // The job and all that depend on it. FailedPrecondition: final already.
  absl::Status OnCancelJob(JobRow job, Now now, Effects* effects);

  // FailedPrecondition: protocol version, sequence not above the last one, an incarnation that was replaced.
  // InvalidArgument: malformed.
  absl::StatusOr<SyncDecision> OnSync(const v1::SyncRequest& request, Now now, Effects* effects);
  // For a worker that is kept waiting: work that has come up since. Aborted: a newer Sync of the worker came.
  absl::StatusOr<SyncDecision> OnPoll(const v1::SyncRequest& request, Now now, Effects* effects);
  // Takes the attempts of silent workers away.
  void OnTick(Now now, Effects* effects);
  // The coordinator itself stood still for so long (it was stopped, its machine was): nobody's silence. Call it before
  // the first event after that.
  void OnStall(int64_t stall_us);
  // NotFound: no such worker.
  absl::Status OnDrain(const std::string& worker_id, Now now, Effects* effects);

  // ---- what is known ----

  const Job* FindJob(const std::string& job_id) const;
  const Job& job(JobRow row) const { return jobs_[row - 1]; }
  // Verifications aside.
  const Job* LatestOfKey(const std::string& key) const;
  // The job that stands for this key in the sweep, or null.
  const Job* JobOfSweep(SweepRow sweep, const std::string& key) const;
  // Whether every job that the sweep has let go is over, and a decision is to come.
  bool AwaitsDecision(SweepRow sweep) const;
  size_t job_count() const { return jobs_.size(); }
  // By id, else by name.
  const Sweep* FindSweep(const std::string& id_or_name) const;
  const Sweep& sweep(SweepRow row) const { return sweeps_[row - 1]; }
  size_t sweep_count() const { return sweeps_.size(); }
  const Worker* FindWorker(const std::string& worker_id) const;
  const std::map<std::string, Worker>& workers() const { return workers_; }
  bool StateAvailable(const std::string& stage_key, bool with_optimizer) const;
  // Failures of one signature that pause the sweep; 0: never.
  int32_t FailureLimit(const Sweep& sweep) const;
  // Whether the job would be run as a new one if a sweep asked for it now.
  bool IsReusable(const std::string& key) const;

  // Why the job is not running (or what it does), and what the user can do; full sentences.
  struct Explanation {
    std::string text;
    std::string next_step;
  };
  Explanation Explain(JobRow job, Now now) const;

  // Checks every invariant by a full scan; the first violation in words, or "". For tests.
  std::string CheckInvariants() const;

 private:
  struct StageState {
    bool weights = false, optimizer = false;  // of the end state, stored
    std::string weights_sha256, optimizer_sha256;
    int64_t evaluations_in_need = 0;
    int64_t stages_in_need = 0;
    int64_t keep_weights = 0, keep_all = 0;  // attachments of live sweeps that ask for it
  };
  struct Node {  // of Materialise: a key that a sweep needs
    v1::JobKind kind;
    std::string key;
    int parent = -1;
    int64_t from_step = 0, to_step = 0;
    Requirement requirement;
    bool sealed = false;
    JobRow resolved = 0;
    bool is_new = false;
  };

  // scheduler_plan.cc
  void Materialise(SweepRow sweep, std::vector<Node>& nodes, Now now, SubmitOutcome* outcome);
  JobRow NewJob(const Node& node, JobRow parent, JobRow retry_of, Now now, JobRow verify_of = 0);
  void Relax(Job& job, const Requirement& asked);
  JobRow RerunStage(JobRow old_stage, JobRow needed_by, Now now);
  void Settle(JobRow job, Now now, Cause cause = Cause::kParentSucceeded);
  void SettleChildren(JobRow job, Now now);
  void Attach(SweepRow sweep, JobRow job, bool sealed);
  void Detach(SweepRow sweep, JobRow job, bool erase_from_sweep);
  void CancelUnneeded(JobRow job, Now now, Cause blocked_cause = Cause::kCancelled);
  static bool IsOpen(const Sweep& sweep);  // some job that was let go is not over
  static v1::SweepState StateOf(const Sweep& sweep);

  // scheduler_seal.cc
  bool IsSealed(const Job& job) const;  // every live sweep that needs it has it sealed
  void SetSealed(Job& job, bool sealed);
  void UpdateSeal(JobRow job, Now now);  // after its attachments may have changed
  void Drop(SweepRow sweep, const std::vector<JobRow>& jobs, Now now);

  // scheduler_breaker.cc
  void AddFailure(Job& job, Now now);
  void TakeBackFailure(Job& job);
  void CountFailure(const Job& job, const v1::Failure& failure);  // in the breakers of its sweeps
  void Pause(Sweep& sweep, const std::string& reason);
  void Unpause(Sweep& sweep);
  std::string LostData(const Sweep& sweep) const;  // "a.txt (SHA-256 ...)", or ""
  bool PauseForLostData(const Job& job);           // whether each live sweep of the job has lost data
  // Of a verification that failed: whether data of the run that it repeats is lost. Then that ended it.
  bool EndForLostData(Job& job, const v1::Failure& reported, Now now);
  bool IsActive(SweepRow sweep) const { return IsLive(sweep) && !sweeps_[sweep - 1].record.paused; }
  bool IsHeld(const Job& job) const;
  // Its worker was lost, and one more failure ends it.
  static bool IsOnLastTry(const Job& job);
  // Something runs there that may yet kill the worker.
  bool HasUnproven(const Worker& worker, bool only_last_tries, Now now) const;
  bool MayTake(const Worker& worker, const Job& job, Now now) const;
  int64_t OthersThatCanTake(const Job& job, Now now) const;  // live workers that it has not failed on
  bool AnyToTake(const Worker& worker, const std::set<JobRow>& jobs, Now now) const;
  static std::string WhereItFailed(const JobRecord& record);  // "on workers a (2 times), b"
  static std::string GivenUpText(const JobRecord& record, const std::string& why);

  // scheduler.cc
  Job& At(JobRow row) { return jobs_[row - 1]; }
  Sweep& SweepAt(SweepRow row) { return sweeps_[row - 1]; }
  void Begin(Effects* effects) { effects_ = effects; }
  void Finish(Now now);  // sweep states, collections, records of what changed
  void Move(Job& job, v1::JobState to, Cause cause, Now now, const std::string& text = "",
            v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED);
  void MarkDirty(Job& job);
  void TouchSweeps(const Job& job);
  void Count(Sweep& sweep, const Job& job, int sign);
  void Requeue(Job& job);  // after its rank may have changed
  void EnterQueue(Job& job, int64_t not_before_us);
  void LeaveQueue(Job& job);
  LeaseRank RankOf(const Job& job) const;
  bool IsLive(SweepRow sweep) const { return sweeps_[sweep - 1].record.state != v1::SWEEP_CANCELLED; }
  int LiveSweeps(const Job& job) const;
  void UpdateNeed(Job& job);
  void SetProgress(Job& job, int64_t progress, double tokens_per_second);
  void ReleaseSlot(const Job& job);
  void EndAttempt(Job& job, AttemptState state, const v1::Failure* failure);
  void CollectStates();

  // scheduler_sync.cc
  absl::Status CheckSync(const v1::SyncRequest& request) const;
  void ProcessReport(Worker& worker, const v1::SyncRequest& request, int index, Now now, SyncDecision* decision);
  std::string WhyResultIsBad(const Job& job, const v1::AttemptReport& report) const;
  void ProcessResult(Job& job, const v1::AttemptReport& report, Now now);
  void ProcessFailure(Job& job, const v1::Failure& failure, Now now);
  int64_t RetryDelay(int32_t failures) const;
  void EndDelays(Now now);
  bool StateIsGone(JobRow job, StateCollection* lost) const;
  void LoseState(JobRow needed_by, const StateCollection& lost, Now now);
  void ExpireLeases(Now now);
  void LoseAttempt(Job& job, Cause cause, const std::string& text, Now now);
  bool Satisfies(const Worker& worker, const Requirement& requirement) const;
  void UpdateClasses(Worker& worker);
  void LeaseTo(Worker& worker, Now now);
  bool PickRank(const Worker& worker, Now now, int* class_id, LeaseRank* rank) const;
  void Grant(Worker& worker, int32_t slot, JobRow job, Now now);
  void FillDecision(const Worker& worker, SyncDecision* decision) const;
  int64_t IdleSlots(int class_id) const;

  const SchedulerOptions options_;
  IdGenerator* const ids_;
  std::deque<Job> jobs_;      // row - 1; references stay valid
  std::deque<Sweep> sweeps_;  // row - 1
  std::map<std::string, Worker> workers_;
  std::unordered_map<std::string, JobRow> jobs_by_id_;
  std::unordered_map<std::string, JobRow> latest_by_key_;
  std::unordered_map<std::string, SweepRow> sweeps_by_id_;
  std::unordered_map<std::string, SweepRow> sweeps_by_name_;
  std::unordered_map<std::string, StageState> states_;
  ReadyQueue ready_;
  std::set<std::pair<int64_t, JobRow>> delayed_;  // QUEUED, but not to be leased before this time
  size_t held_ = 0;                               // QUEUED jobs that are held

  // Of the event that is being handled.
  Effects* effects_ = nullptr;
  std::vector<JobRow> dirty_jobs_;
  std::vector<JobRow> created_jobs_;
  std::vector<SweepRow> touched_sweeps_;
  std::set<std::string> collection_candidates_;
  std::set<std::string> periodic_candidates_;
};

}  // namespace ablate
