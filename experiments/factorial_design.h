// A full factorial design among the arms of a sweep: every combination of the factors' levels is exactly one arm.
// Pure; any thread. Must not know values: effects are experiments/claims' business.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/plan.h"
#include "proto/resources.pb.h"

namespace ablate {

inline constexpr int kMaxFactors = 6;

struct FactorialDesign {
  struct Factor {
    std::string name;
    std::vector<std::string> levels;  // in the order of their first arm; two or more
  };
  struct Cell {
    int arm = 0;              // index among the arms given
    std::vector<int> levels;  // [f]: index in factors[f].levels
  };
  std::vector<Factor> factors;  // in the order asked for
  std::vector<Cell> cells;      // one an arm of the design; product of the numbers of levels
};

// A factor's level in an arm: what the arm's `factors` say, else, of an axis, its value there, defaults included. Arms
// without a level of some factor are outside the design, as TUNING arms are.
// `names` empty: SweepSpec.factorial.factors. InvalidArgument: no factor, over 6, one twice, unknown (with the nearest
// known), with one level only; a combination without an arm or with several (named).
absl::StatusOr<FactorialDesign> FactorialDesignOf(const v1::SweepSpec& spec, std::span<const Arm> arms,
                                                  std::span<const std::string> names = {});

}  // namespace ablate
