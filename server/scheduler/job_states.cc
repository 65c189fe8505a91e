// See job_states.h.
#include "server/scheduler/job_states.h"

#include <array>

namespace ablate {

using v1::BLOCKED;
using v1::CANCELLED;
using v1::FAILED;
using v1::QUEUED;
using v1::RUNNING;
using v1::SUCCEEDED;

const std::vector<JobEdge>& JobEdges() {
  static const auto& edges = *new std::vector<JobEdge>{
      {BLOCKED, QUEUED, Cause::kParentSucceeded, "or it has no parent"},
      {BLOCKED, QUEUED, Cause::kUnsealed, "its sweep's selection is locked, and its parent is done"},
      {BLOCKED, SUCCEEDED, Cause::kParentDiverged, "outcome DIVERGED, without running"},
      {BLOCKED, FAILED, Cause::kParentFailed, "failure upstream_failed"},
      {BLOCKED, CANCELLED, Cause::kCancelled, ""},
      {BLOCKED, CANCELLED, Cause::kDropped, "sealed, and not chosen"},
      {QUEUED, RUNNING, Cause::kLeased, "attempt grows by one"},
      {QUEUED, RUNNING, Cause::kReattached, "same attempt; the failure counted for its loss is taken back"},
      {QUEUED, SUCCEEDED, Cause::kLateResult, "a true result is never thrown away"},
      {QUEUED, FAILED, Cause::kInvalidConfig, "told late by the latest attempt"},
      {QUEUED, BLOCKED, Cause::kStateLost, "its parent's stage is trained again"},
      {QUEUED, BLOCKED, Cause::kSealed, "the other sweep that needed it was cancelled"},
      {QUEUED, FAILED, Cause::kStateLost, "of a verification: the first run is not repeated for it"},
      {QUEUED, CANCELLED, Cause::kCancelled, ""},
      {RUNNING, SUCCEEDED, Cause::kResult, ""},
      {RUNNING, QUEUED, Cause::kLeaseExpired, "counted as worker_lost"},
      {RUNNING, QUEUED, Cause::kWorkerRestarted, "counted as worker_lost"},
      {RUNNING, QUEUED, Cause::kReleased, "not counted"},
      {RUNNING, QUEUED, Cause::kPreempted, "not counted"},
      {RUNNING, QUEUED, Cause::kRetryableFailure, "counted"},
      {RUNNING, FAILED, Cause::kFailureLimit, "counted; whatever the failure, a lost worker included"},
      {RUNNING, FAILED, Cause::kInvalidConfig, ""},
      {RUNNING, CANCELLED, Cause::kCancelled, "the worker is told to stop"},
  };
  return edges;
}

bool IsAllowed(v1::JobState from, v1::JobState to, Cause cause) {
  for (const JobEdge& edge : JobEdges()) {
    if (edge.from == from && edge.to == to && edge.cause == cause) return true;
  }
  return false;
}

bool IsTerminal(v1::JobState state) { return state == SUCCEEDED || state == FAILED || state == CANCELLED; }

std::string_view CauseName(Cause cause) {
  switch (cause) {
    case Cause::kParentSucceeded:
      return "parent_succeeded";
    case Cause::kParentDiverged:
      return "parent_diverged";
    case Cause::kParentFailed:
      return "parent_failed";
    case Cause::kLeased:
      return "leased";
    case Cause::kReattached:
      return "reattached";
    case Cause::kResult:
      return "result";
    case Cause::kLateResult:
      return "late_result";
    case Cause::kLeaseExpired:
      return "lease_expired";
    case Cause::kWorkerRestarted:
      return "worker_restarted";
    case Cause::kReleased:
      return "released";
    case Cause::kPreempted:
      return "preempted";
    case Cause::kRetryableFailure:
      return "retryable_failure";
    case Cause::kFailureLimit:
      return "failure_limit";
    case Cause::kStateLost:
      return "state_lost";
    case Cause::kInvalidConfig:
      return "invalid_config";
    case Cause::kUnsealed:
      return "unsealed";
    case Cause::kSealed:
      return "sealed";
    case Cause::kDropped:
      return "dropped";
    case Cause::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string_view StateName(v1::JobState state) {
  switch (state) {
    case BLOCKED:
      return "BLOCKED";
    case QUEUED:
      return "QUEUED";
    case RUNNING:
      return "RUNNING";
    case SUCCEEDED:
      return "SUCCEEDED";
    case FAILED:
      return "FAILED";
    case CANCELLED:
      return "CANCELLED";
    default:
      return "unspecified";
  }
}

const std::vector<RetryRule>& RetryRules() {
  static const auto& rules = *new std::vector<RetryRule>{
      {v1::INVALID_CONFIG, "invalid_config", true, false},    {v1::CODE_ERROR, "code_error", true, true},
      {v1::OUT_OF_MEMORY, "out_of_memory", true, true},       {v1::TIMEOUT, "timeout", true, true},
      {v1::WORKER_LOST, "worker_lost", true, true},           {v1::PREEMPTED, "preempted", false, true},
      {v1::UPSTREAM_FAILED, "upstream_failed", false, false},
  };
  return rules;
}

const RetryRule& RuleFor(v1::FailureKind kind) {
  const RetryRule* code_error = nullptr;
  for (const RetryRule& rule : RetryRules()) {
    if (rule.kind == kind && kind != v1::UPSTREAM_FAILED) return rule;
    if (rule.kind == v1::CODE_ERROR) code_error = &rule;
  }
  return *code_error;
}

}  // namespace ablate
