// The selection phase: which arm the rule picks, on what evidence. Private to claims/, save MakeLockByHand in
// progress.h. Source: docs/statistics.md 4. Thread rule: pure functions, any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "experiments/claims/measured.h"
#include "experiments/plan.h"
#include "proto/coordinator.pb.h"

namespace ablate {

struct SelectionState {
  // rule_arm_json, evidence_json and what the 1x rule says; arm_json is the caller's. rule_arm_json is "" where the
  // rule cannot pick (yet).
  v1::Lock lock;
  std::optional<int> arm;   // that the rule picks
  std::string why;          // of the pick, in words
  std::string waiting_for;  // why there is none
};

// The lowest mean (of `gain` the highest) over the select lengths of the means over S1. A candidate with a diverged run is not eligible; a run
// that is missing is waited for (never dropped). A tie goes to the earlier arm. The 1x rule: the lowest mean over S1 at
// 1x, over the candidates that have all their runs there; its regret is its score less the winner's.
absl::StatusOr<SelectionState> Select(const v1::SweepSpec& spec, const Plan& plan, const Measured& measured);

}  // namespace ablate
