// Ranges of numbers as sweep files write them: {from, to, step} and {from, to, factor}. Knows neither YAML nor axes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

// from, from + step, ... up to `to` (down to it, where step < 0), which is included where a step meets it. Values are
// rounded to 12 digits: steps of 0.1 give 0.3, not 0.30000000000000004. InvalidArgument: never leads there, more than
// `limit` values.
absl::StatusOr<std::vector<double>> StepRange(double from, double to, double step, int64_t limit);

// from, from * factor, ...: as above; all three above 0.
absl::StatusOr<std::vector<double>> FactorRange(double from, double to, double factor, int64_t limit);

}  // namespace ablate
