// What the scheduler keeps of jobs, sweeps and workers, and what it asks the store to write.
// Plain values: copied out under the coordinator's lock, written later by the store's writer.
// Must not know SQL, gRPC or time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/resources.pb.h"
#include "server/scheduler/job_states.h"

namespace ablate {

// Rows count from 1 and are given by the scheduler; 0: none. They are the integer keys of the store's tables.
using JobRow = int64_t;
using SweepRow = int64_t;

// How the latest attempt of a job stands. Names are stored.
enum class AttemptState { kNone, kRunning, kSucceeded, kFailed, kReleased, kLost, kCancelled };
std::string_view AttemptStateName(AttemptState state);
AttemptState AttemptStateFromName(std::string_view name);  // kNone for others

// What a worker must have to take a job. Equal requirements share one queue.
struct Requirement {
  std::string device;               // "": any
  int64_t memory_bytes = 0;         // 0: any
  std::vector<std::string> labels;  // sorted
  v1::Executor executor = v1::EXECUTOR_TRAINER;

  auto operator<=>(const Requirement&) const = default;
};

// The stored part of a job.
struct JobRecord {
  JobRow row = 0;
  std::string job_id;
  v1::JobKind kind = v1::JOB_KIND_UNSPECIFIED;
  v1::JobState state = v1::BLOCKED;
  std::string key;
  JobRow parent = 0;
  JobRow retry_of = 0;
  JobRow verify_of = 0;  // repeats that job for comparison: stands for no key and belongs to no sweep
  bool sealed = false;   // BLOCKED, and every live sweep that needs it has it sealed
  int64_t attempt = 0;
  AttemptState attempt_state = AttemptState::kNone;
  int32_t failures = 0;
  int32_t max_failures = 0;
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  int64_t diverged_at_step = 0;
  int64_t from_step = 0, to_step = 0;  // of a stage
  Requirement requirement;
  std::string worker_id;  // of the latest attempt
  int32_t slot = 0;
  std::shared_ptr<const v1::Failure> last_failure;  // may be null
  // The workers of the attempts that count as failures, oldest first: as many as `failures`. Stored with the attempts.
  std::vector<std::string> failed_on;
  int64_t created_at_us = 0, started_at_us = 0, ended_at_us = 0;
};

// A file that a sweep's jobs get from the coordinator.
struct SweepData {
  std::string path, sha256;
};
inline constexpr int64_t kMaxTravellingBytes = int64_t{2} << 30;  // larger files lie under workers' --data-root

// What SweepRecord::pause_reason begins with where the coordinator lost such a file: submitting the sweep's file again
// uploads it, and ends the pause.
inline constexpr std::string_view kPausedForData = "paused after its data ";

// SweepRecord::max_failures: as the coordinator's options say.
inline constexpr int32_t kServersMaxFailures = -1;

// The stored part of a sweep. `jobs` are those that stand for its keys now: a retry replaces a failed one.
struct SweepRecord {
  SweepRow row = 0;
  std::string sweep_id;
  std::string name;
  std::string description;
  v1::SweepState state = v1::SWEEP_RUNNING;
  std::string spec_sha256;
  std::string plan_sha256;
  int32_t priority = 0;
  v1::Keep keep = v1::KEEP_NONE;
  int32_t arms = 0;
  int32_t seeds = 0;
  int64_t created_at_us = 0, ended_at_us = 0;
  v1::Phase phase = v1::PLAIN;
  bool pending = false;     // a decision is to come that may let more jobs go: not over
  bool sealed = false;      // confirming work waits for the lock
  std::string waiting_for;  // what the next decision waits for, beside the jobs; for people
  int32_t max_failures = kServersMaxFailures;  // failures of one signature that pause it; 0: never
  bool paused = false;                         // nothing of it is leased until somebody resumes it
  std::string pause_reason;                    // for people
  std::vector<SweepData> data;                 // that jobs get from the coordinator; stored with the sweep's file
  std::vector<JobRow> jobs;
  std::vector<JobRow> sealed_jobs;  // those of `jobs` that this sweep does not want run yet
};

inline bool IsPausedForData(const SweepRecord& sweep) { return sweep.paused && sweep.pause_reason.starts_with(kPausedForData); }
// What ends the pause of a paused sweep, in words.
std::string PauseAdvice(const SweepRecord& sweep);

struct WorkerRecord {
  v1::WorkerInfo info;  // last_contact_at_us is of the last write, not of the last contact
  bool drain_asked = false;
  std::vector<std::string> retired_incarnations;  // read at a restart only
};

// Which parts of a stage's end state are stored.
struct StateAvailability {
  std::string stage_key;
  bool weights = false;
  bool optimizer = false;
  std::string weights_sha256, optimizer_sha256;
};

// Failures of one signature (failure_signature.h) among a sweep's jobs.
struct SweepFailures {
  SweepRow sweep = 0;
  std::string signature;
  int64_t failures = 0;      // ever
  int64_t since_resume = 0;  // what the breaker counts
  JobRow last_job = 0;       // that failed so
};

// Everything the scheduler needs to go on after a restart. Jobs ascend by row; parents come before children.
struct SchedulerSnapshot {
  std::vector<JobRecord> jobs;
  std::vector<SweepRecord> sweeps;
  std::vector<WorkerRecord> workers;
  std::vector<StateAvailability> states;
  std::vector<SweepFailures> sweep_failures;
};

struct Transition {
  JobRow job = 0;
  v1::JobState from, to;
  Cause cause;
  int64_t attempt = 0;
  std::string worker_id;
  std::string text;  // for people; may be empty
};

struct AttemptStart {
  JobRow job = 0;
  int64_t attempt = 0;
  std::string worker_id;
  std::string incarnation;
  int32_t slot = 0;
};

// Also sent when an ended attempt is seen in a new light: lost, then running again (kRunning), or released.
struct AttemptChange {
  JobRow job = 0;
  int64_t attempt = 0;
  AttemptState state = AttemptState::kNone;
  std::optional<v1::Failure> failure;
};

struct SweepJobChange {
  SweepRow sweep = 0;
  JobRow job = 0;
  bool attached = false;  // false: detached
  bool sealed = false;    // of an attached one
};

struct StateCollection {
  std::string stage_key;
  bool weights = false;    // drop the end state's weights
  bool optimizer = false;  // drop the end state's optimiser state
  bool periodic = false;   // drop the checkpoints before the end state
};

// What one event changed, to be written in one transaction, in the order of the members. Records are final values.
struct Effects {
  std::vector<JobRecord> created;
  std::vector<JobRecord> changed;   // each job once
  std::vector<SweepRecord> sweeps;  // each changed sweep once, without `jobs` and `sealed_jobs`
  std::vector<SweepJobChange> sweep_jobs;
  std::vector<SweepJobChange> unsealed;  // attached before, sealed no more
  std::vector<WorkerRecord> workers;
  std::vector<AttemptChange> attempt_changes;  // before the starts: what ends makes room on its slot
  std::vector<AttemptStart> attempt_starts;
  std::vector<Transition> transitions;
  std::vector<JobRow> diverged_unrun;  // recorded DIVERGED without running
  std::vector<SweepFailures> sweep_failures;  // final values
  std::vector<StateCollection> collections;

  bool empty() const {
    return created.empty() && changed.empty() && sweeps.empty() && sweep_jobs.empty() && unsealed.empty() &&
           attempt_starts.empty() &&
           attempt_changes.empty() && transitions.empty() && diverged_unrun.empty() && workers.empty() &&
           sweep_failures.empty() && collections.empty();
  }
};

// The two clocks at one event: leases use `monotonic_us` only, records `wall_us` only.
struct Now {
  int64_t monotonic_us = 0;
  int64_t wall_us = 0;
};

}  // namespace ablate
