// The report's figures, as SVG, from rows of the coordinator's tables. Must not compute statistics: every mean and
// interval is a row's. Each figure says its statistic, level, n and method; a single seed is a dot without a band;
// diverged and missing seeds are counted in view; all can be read in print and without colour.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/coordinator.pb.h"

namespace ablate {

struct Figure {
  std::string name;     // of its file, without ending
  std::string caption;  // one sentence or two, for the text around it
  std::string svg;
};

// One seed's value, drawn faint behind the mean.
struct SeedValue {
  std::string arm_json;
  std::string metric;
  std::string split;
  v1::Phase phase = v1::PLAIN;
  int64_t length = 0;
  bool ntk = false;
  int64_t seed = 0;
  std::optional<double> value;  // absent: diverged
};

// Loss, or what a task measures, by evaluation length: for each (split, phase, NTK) of `metric` that has two lengths, one figure. Up to 5 arms
// in one panel, more in small multiples. `baseline` is marked.
std::vector<Figure> LossByLength(const std::vector<v1::ConfidenceRow>& rows, const std::vector<SeedValue>& seeds,
                                 const std::string& metric, const std::string& baseline_json);

// Loss by a numeric axis that takes at least 3 values in arms that are else alike (p on a log axis shows 50 and 100 as
// well): for each such axis, split, phase and NTK setting one figure, a panel for each length. Arms without a value of
// the axis (the baseline, say) are level lines.
std::vector<Figure> LossByNumber(const std::vector<v1::ConfidenceRow>& rows, const std::vector<SeedValue>& seeds,
                                 const std::string& metric, const std::string& baseline_json);

// Paired differences from the baseline, one row an arm and length: forest plots, one for each (split, phase, NTK).
std::vector<Figure> DifferenceForests(const std::vector<v1::ComparisonRow>& rows, const std::string& metric);

// Claims: the estimate with its plain interval, thick, and the family-wise one, thin; the margin shaded.
std::optional<Figure> ClaimsForest(const std::vector<v1::ClaimRow>& claims);

// Effects of a factorial, main effects first: one figure for each (metric, split, NTK), a group of rows for each
// length.
std::vector<Figure> EffectForests(const std::vector<v1::EffectRow>& rows);

}  // namespace ablate
