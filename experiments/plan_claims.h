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

// A state whose numbers must not be seen before the lock: the end of a confirming arm's training at one seed.
struct SealedState {
  std::string stage_key;
  int arm = 0;
  int64_t seed = 0;
  bool confirming_seed = false;  // of S2: its numbers are what confirms; else of S1
  std::string split;             // no evaluation on this one, whatever the length
  std::set<int64_t> lengths;     // and none at these tokens, whatever the split; 1x is free (docs/claims.md)
};
// Each state once. None for a sweep without claims, and for a plan that is not complete (then `Overlaps` still
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
// to be tuned, all that is to come counts, and states are the same at any learning rate. Empty for a sweep without
// claims.
std::vector<Overlap> Overlaps(const v1::SweepSpec& sealed_spec, const Plan& sealed, const v1::SweepSpec& other_spec,
                              const Plan& other);

// Whether the new file only adds to the old one: seeds, arms, lengths, splits. Both plans are of the same tuning
// results. InvalidArgument: something is missing or changed, one line each; FailedPrecondition: it would change what is
// sealed or declared (claims, selection, tuning, S1 or S2, candidates, fixed arms), or add arms that were never tuned.
absl::Status CheckExtends(const v1::SweepSpec& old_spec, const Plan& old_plan, const v1::SweepSpec& new_spec,
                          const Plan& new_plan);

}  // namespace ablate
