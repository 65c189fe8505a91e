// Runs the statistics on a file in the format of tests/golden/statistics.json and says how far each entry is off.
// Knows the file's format and experiments/statistics.h; knows no bound (the caller judges) and prints nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

// One entry of the file: "cases[0]", "holm[2]", "t_critical.29".
struct CaseResult {
  std::string name;
  // The largest error over the entry's numbers: |ours - expected| / |expected|, or |ours| where expected is 0.
  // Infinity where ours does not exist, or exists where null is expected, or our function refused the input.
  //
  // Quantiles (t_critical, bounds of t intervals, smallest detectable differences): the smallest of that, of the
  // relative error of the t that the number implies, and, while that t is within 1e-8, of the relative error of its
  // level, density(t) |dt| / q. The file's t quantiles are SciPy 1.10's, whose inversion stops at about 1e-9 of the
  // level: df 3, q 0.995 reads 5.84090929975643, while the tail above it, which is elementary, is 0.005 (1 + 4.8e-9);
  // the quantile is 5.84090930973336. statistics_test.cc holds ours to closed forms at 1e-11 and better.
  double max_relative_error = 0;
  bool covered = true;  // false: an entry, or a number within one, that we do not implement; the error is then 0
  std::string worst;    // the number with that error: "paired.tost.p"
};

// Every entry, in the file's order by name. An unknown top-level name, an unknown field of a known entry, or an entry
// of another shape than the format's is a result of its own with covered = false ("cases[0].paired.foo").
// NotFound, Unavailable: as ReadFile. InvalidArgument: not a JSON object, or an entry lacks an input it needs.
absl::StatusOr<std::vector<CaseResult>> CheckStatisticsFile(const std::string& path);

}  // namespace ablate
