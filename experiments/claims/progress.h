// What a sweep with phases does next: tuning, selection, the lock, confirmation, looks. Pure: from the spec, what was
// decided so far, and measured values, to the next decision. Must not know SQL, gRPC, jobs' states or clocks: the
// coordinator calls it whenever the work that was let go is complete, and records what it says in one transaction.
// Source of the rules: docs/statistics.md, parts 3, 4 and 6. Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/plan.h"
#include "experiments/table.h"
#include "proto/coordinator.pb.h"
#include "proto/resources.pb.h"

namespace ablate {

// What was decided in earlier steps, as stored.
struct ClaimsHistory {
  std::vector<v1::TunedArm> tuning;  // learning_rate > 0: chosen; tries: all learning rates asked for so far
  std::optional<v1::Lock> lock;
  int looks_done = 0;        // of ConfirmationSpec.looks; for display: the rules count the seeds that were let go
  int confirming_seeds = 0;  // of S2 that were let go so far, in their order
  bool over = false;         // nothing more will be let go
};

// What the coordinator is to do now; several at once are possible.
struct ClaimsStep {
  std::vector<v1::TunedArm> tuning;  // replaces the history's: rates chosen, or tries added (plan and run them)
  bool tuning_done = false;          // all rates are chosen: plan selection and confirmation with them
  std::optional<v1::Lock> lock;      // (at_us is the caller's); none where the history has one, made by hand for one
  // Whenever there is a lock, here or in the history: arms (of Plan::arms) whose confirming points are let go, for the
  // first release_seeds of S2.
  std::vector<int> confirming_arms;
  int release_seeds = 0;  // S2 seeds to be let go from now on, counted from the first; >= the history's
  int looks_done = 0;     // looks that are complete
  bool over = false;      // the rest of the sealed work is dropped
  // In words; "" when over with every run there. Runs without a result are named: nothing is decided without them, and
  // if they failed for good they must be retried (or, before the lock, an arm locked by hand).
  std::string waiting_for;
};

// `measurements` are of this sweep, with phases (Measurement::phase). Called when every job that was let go is over
// (done or failed for good). InvalidArgument: a bug in the caller (an arm that the plan does not have).
absl::StatusOr<ClaimsStep> NextStep(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                                    std::span<const Measurement> measurements);

// A lock of the candidate that `arm_json` names (axis values, as FindBaseline), against or before the rule: what the
// rule picks or would pick, and the evidence so far, are in it. InvalidArgument: no select, no reason, not one
// candidate. FailedPrecondition: locked already.
absl::StatusOr<v1::Lock> MakeLockByHand(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                                        std::span<const Measurement> measurements, const std::string& arm_json,
                                        const std::string& why);

// A lock by hand that came before the rule could pick, with what the rules pick by now: exploratory, as it came after.
// Nothing where the rule had picked already, cannot pick yet, or made the lock.
absl::StatusOr<std::optional<v1::Lock>> WithLaterRule(const v1::SweepSpec& spec, const Plan& plan,
                                                      std::span<const Measurement> measurements, const v1::Lock& lock);

// Rows for GetClaims: one a claim, in the order of the file. Before the lock: NOT_YET, without any number; so too while
// runs of the look are awaited, unless the history is over: then what is there is shown, without p.
// A claim is decided at the first look that supports or refutes it; later looks do not change it.
// `seen` names, by claim name, the job in which a number it confirms was seen before the lock ("": none).
absl::StatusOr<std::vector<v1::ClaimRow>> JudgeClaims(const v1::SweepSpec& spec, const Plan& plan,
                                                      const ClaimsHistory& history,
                                                      std::span<const Measurement> measurements,
                                                      const std::vector<std::pair<std::string, std::string>>& seen);

// The validity gate (docs/statistics.md 6) on the baseline's selecting seeds, or its plain ones where nothing is
// selected. Nothing: text is not measured in bytes, or fewer than 2 seeds are measured at 1x and 8x on `selection`.
absl::StatusOr<std::optional<v1::ValidityGate>> GateOfBaseline(const v1::SweepSpec& spec, const Plan& plan,
                                                               std::span<const Measurement> measurements);

// Whether claims of these sweeps may be combined. InvalidArgument: two of them are on the same data, or differ in more
// than name, description, data, priority, keep and the claims' margins (says which two).
absl::Status CheckTexts(const std::vector<const v1::SweepSpec*>& specs);

// The same claims on several texts: verdict by the largest p, SUPPORTED only where every one is. InvalidArgument: the
// claims differ.
absl::StatusOr<std::vector<v1::ClaimRow>> CombineTexts(const std::vector<std::vector<v1::ClaimRow>>& texts);

}  // namespace ablate
