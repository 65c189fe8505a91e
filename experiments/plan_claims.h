// What of a plan is sealed, which work the lock lets go, what another sweep would see too early, and what may be added
// to a sweep that is under way. Pure; any thread. The rules: docs/claims.md; source: docs/statistics.md, part 4.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/plan.h"
#include "proto/resources.pb.h"

namespace ablate {

// Arms that have CONFIRMING points: the baseline, the fixed arms and all candidates, in order.
std::vector<int> ConfirmingArms(const Plan& plan);

// `plan` as if each learning rate that is not chosen yet were the grid's lowest; itself where it is complete.
Plan AtAnyRate(const v1::SweepSpec& spec, const Plan& plan);

// Jobs of a plan, [i] of Plan::stages and Plan::evaluations.
struct JobSet {
  std::vector<bool> stages, evaluations;
};
// What the points that `wanted` says yes to need: their evaluations, their stages, and all stages before these.
JobSet JobsOfPoints(const Plan& plan, const std::function<bool(const Point&)>& wanted);

// Jobs that CONFIRMING points alone need: not to be run before they are let go. (With reuse_seeds the stages are
// SELECTING's too, so evaluations alone are sealed.)
JobSet SealedJobs(const Plan& plan);
// Of these, what is let go for `arms` on the first `seeds` of Plan::confirming_seeds. What is sealed and never let go
// is dropped when the sweep is over.
JobSet ReleasedJobs(const Plan& plan, std::span<const int> arms, int seeds);

// Whether confirming work waits for a lock. False: no arm is selected, so nothing can be chosen after a look; the work
// is let go as soon as the plan is stored with its hash (and learning rates are tuned).
bool NeedsLock(const v1::SweepSpec& spec);

// Whose numbers a state's are, as far as the seal goes: the model.* and attention.* settings that acted while it was
// trained, one after the other where they were switched, defaults and variants resolved, numbers to three digits. Not
// when they were switched, and nothing of train.*, numerics or the device: with another clipping, learning rate or
// number of steps the same arm at the same seed still tells how that arm does there. `history`: of its stages, the
// first first.
std::string ArmIdentity(std::span<const v1::Configuration* const> history);

// An arm and seed whose numbers must not be seen before the lock; on the sweep's data and executor.
struct SealedState {
  std::string identity;  // ArmIdentity
  int arm = 0;
  int64_t seed = 0;
  bool confirming_seed = false;  // of S2: its numbers are what confirms; else of S1
  std::string split;             // no evaluation on this one, whatever the length
  // On any split none above so many tokens, nor above the state's own 1x. 0 (S1, and reused seeds): `lengths` instead.
  int64_t longest = 0;
  std::set<int64_t> lengths;  // of the claims; 1x is free (docs/claims.md)
};
// Whether a measurement of such a state, trained at `train_length` tokens, must not be seen.
bool IsSealed(const SealedState& state, int64_t train_length, int64_t length_tokens, const std::string& split);
// Each arm and seed once. None for a sweep without claims, and for a plan that is not complete (then `Overlaps` still
// answers).
std::vector<SealedState> SealedStates(const v1::SweepSpec& spec, const Plan& plan);

// Evaluations of another plan that would show a sealed number.
struct Overlap {
  int evaluation = 0;  // index in the other plan (AtAnyRate of it, where it is not complete)
  int arm = 0;         // of the sealed plan
  int64_t seed = 0;
  bool confirming_seed = false;  // true: seen before the lock, the claims on this arm are exploratory
  std::string text;  // "variant=lssar p=15, seed 100: 2048 tokens on confirmation is on the confirming documents"
};
// While `sealed` waits for its lock, a sweep whose plan overlaps is refused. Where learning rates of either are still
// to be tuned, all that is to come counts. Empty for a sweep without claims.
std::vector<Overlap> Overlaps(const v1::SweepSpec& sealed_spec, const Plan& sealed, const v1::SweepSpec& other_spec,
                              const Plan& other);

// Whether the new file only adds to the old one: seeds, arms, lengths, splits, tasks. Both plans are of the same tuning
// results. InvalidArgument: something is missing or changed, one line each; FailedPrecondition: it would change what is
// sealed or declared (claims, selection, tuning, S1 or S2, candidates, fixed arms), or add arms that were never tuned.
absl::Status CheckExtends(const v1::SweepSpec& old_spec, const Plan& old_plan, const v1::SweepSpec& new_spec,
                          const Plan& new_plan);

}  // namespace ablate
