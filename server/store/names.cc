// Words of enums as the database has them. See records.h.
#include "server/scheduler/job_states.h"
#include "server/store/records.h"

namespace ablate {

std::string_view ExecutorName(v1::Executor executor) { return executor == v1::EXECUTOR_NOOP ? "noop" : "trainer"; }

std::string_view KeepName(v1::Keep keep) {
  if (keep == v1::KEEP_ALL) return "all";
  return keep == v1::KEEP_WEIGHTS ? "weights" : "none";
}

std::string_view SweepStateName(v1::SweepState state) {
  switch (state) {
    case v1::SWEEP_SUCCEEDED:
      return "SUCCEEDED";
    case v1::SWEEP_FAILED:
      return "FAILED";
    case v1::SWEEP_CANCELLED:
      return "CANCELLED";
    default:
      return "RUNNING";
  }
}

std::string_view PhaseName(v1::Phase phase) {
  switch (phase) {
    case v1::TUNING:
      return "tuning";
    case v1::SELECTING:
      return "selecting";
    case v1::CONFIRMING:
      return "confirming";
    default:
      return "plain";
  }
}

v1::Phase PhaseFromName(std::string_view name) {
  for (v1::Phase phase : {v1::TUNING, v1::SELECTING, v1::CONFIRMING}) {
    if (PhaseName(phase) == name) return phase;
  }
  return v1::PLAIN;
}

std::string_view FailureKindName(v1::FailureKind kind) {
  for (const RetryRule& rule : RetryRules()) {
    if (rule.kind == kind) return rule.name;
  }
  return "unspecified";
}

v1::FailureKind FailureKindFromName(std::string_view name) {
  for (const RetryRule& rule : RetryRules()) {
    if (rule.name == name) return rule.kind;
  }
  return v1::FAILURE_KIND_UNSPECIFIED;
}

}  // namespace ablate
