// The tuning phase: from the tuning runs to each arm's learning rate. Private to claims/.
// Source: docs/statistics.md 6. Thread rule: pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/claims/measured.h"
#include "experiments/plan.h"
#include "proto/coordinator.pb.h"

namespace ablate {

struct TuningState {
  std::vector<v1::TunedArm> arms;  // one for each arm that is no learning rate of another, in the plan's order
  bool done = false;               // every arm has its rate
  std::string waiting_for;         // "" when done
};

// The lowest mean over the tuning seeds at 1x on the selection split; a tie goes to the smaller rate; a rate at which a
// seed diverged is not eligible. A best value that is the largest or the smallest rate tried adds the next one (the
// ratio of the last two, and no more than the axis takes), at most max_extensions times an arm; so does the smallest
// where every rate diverged. `before` is what was decided already: chosen rates stay.
absl::StatusOr<TuningState> Tune(const v1::SweepSpec& spec, const Plan& plan, std::span<const v1::TunedArm> before,
                                 const Measured& measured);

}  // namespace ablate
