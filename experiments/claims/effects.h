// Main effects and two-way interactions of a full factorial design, paired by seed.
// From measured values to rows; must not know SQL, jobs' states or how rows are shown. Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/plan.h"
#include "experiments/table.h"
#include "proto/coordinator.pb.h"
#include "proto/resources.pb.h"

namespace ablate {

// For each cell (metric, length, split, ntk, phase) that an arm of the design has, in the order of the tables: a row
// for each factor and each of its levels but the first (that level less the first, averaged over all combinations of
// the other factors), then a row for each pair of factors and of such levels (the difference of the first factor's
// effect between the second's levels, averaged over the others): Box, Hunter and Hunter 2005, ch. 5, without the
// halving that some give interactions. n is seeds: every seed gives one value of the effect, from all its arms, and the
// t test is on these. A seed with a diverged run gives none, and then no row of the cell has a p (docs/statistics.md
// 2): the row is over survivors. Missing seeds are said. p_adjusted: Holm over the rows of the cell; those without a p
// count as 1. `factors` empty: the spec's. `metrics` empty: loss_targets. `level` 0: 0.95. InvalidArgument: as
// FactorialDesignOf; an arm that the plan does not have; two measurements of one thing.
absl::StatusOr<std::vector<v1::EffectRow>> FactorialEffects(const v1::SweepSpec& spec, const Plan& plan,
                                                            std::span<const std::string> factors,
                                                            std::span<const std::string> metrics, double level,
                                                            std::span<const Measurement> measurements);

}  // namespace ablate
