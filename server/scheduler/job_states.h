// The job state machine: every allowed edge with its cause, in one table (job_states.cc), drawn in docs/job-states.md.
// Must not know queues, workers, SQL or time. Thread rule: constant data, pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "proto/resources.pb.h"

namespace ablate {

// Why a job changed its state. Names are stored in users' databases (CauseName) and never change.
enum class Cause {
  kParentSucceeded,   // its state to start from is there
  kParentDiverged,    // recorded DIVERGED without running
  kParentFailed,      // upstream_failed: never leased
  kLeased,            // granted to a worker's slot as a new attempt
  kReattached,        // the worker that was thought lost still runs this attempt
  kResult,            // the running attempt handed in its result
  kLateResult,        // the latest attempt handed in its result after it was taken for lost, or given back
  kLeaseExpired,      // the worker was silent for a whole lease
  kWorkerRestarted,   // a new incarnation of the worker, which does not have this attempt
  kReleased,          // given back unfinished (drain, SIGTERM): no failure counted
  kPreempted,         // the node was taken away: no failure counted
  kRetryableFailure,  // failed, and attempts are left
  kFailureLimit,      // failed, and none is left
  kStateLost,         // the stored state that it starts from is gone: it waits for a new job of its parent's stage
  kInvalidConfig,     // failed in a way that a retry cannot mend
  kUnsealed,          // the selection is locked: it may run
  kSealed,            // only sealed sweeps need it now
  kDropped,           // the lock did not choose it
  kCancelled,         // by the user, or no live sweep needs it, or its parent was cancelled
};

std::string_view CauseName(Cause cause);
std::string_view StateName(v1::JobState state);  // "QUEUED": as in SQL, the CLI and the dashboard
bool IsTerminal(v1::JobState state);

struct JobEdge {
  v1::JobState from;
  v1::JobState to;
  Cause cause;
  std::string_view note;
};

// Every allowed edge, each (from, to, cause) once. Jobs are made BLOCKED. No edge leaves a terminal state.
const std::vector<JobEdge>& JobEdges();
bool IsAllowed(v1::JobState from, v1::JobState to, Cause cause);

// What happens to a job whose attempt ended with this failure.
struct RetryRule {
  v1::FailureKind kind;
  std::string_view name;  // "out_of_memory": as stored and shown
  bool counts;            // towards Job.failures
  bool retried;           // while failures are below the limit
};
const std::vector<RetryRule>& RetryRules();
const RetryRule& RuleFor(v1::FailureKind kind);  // of CODE_ERROR for kinds that no worker may report

}  // namespace ablate
