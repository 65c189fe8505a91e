// Training curves of an arm: thinned for drawing, and their mean over seeds with its t interval. Pure functions of
// numbers; must not know sweeps, jobs, SQL, or how a curve is drawn. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

// What a trainer records as it trains. Permanent names: they are stored in users' databases.
const std::vector<std::string>& CurveMetrics();

// Of one arm and seed: values[i] at steps[i], steps strictly ascending. Values may be NaN or infinite.
struct CurvePoints {
  std::vector<int64_t> steps;
  std::vector<double> values;
};

// Mean over the seeds that have a finite value at a step; a step without any is left out.
struct MeanCurvePoints {
  std::vector<int64_t> steps;
  std::vector<double> means;
  std::vector<double> lows;   // of the t interval (Summarize); NaN where there is none: one seed, or all seeds equal
  std::vector<double> highs;
  std::vector<int32_t> n;     // seeds at this step
  std::vector<size_t> used;   // indices of the curves that are in it somewhere, ascending
};

// The places to keep, ascending: all where there are at most max_points. Else the range from the first step to the last
// is cut into (max_points - 2) / 2 equal ranges of steps, and of each the lowest and the highest finite value stay (the
// first one of equal ones), and besides the first point, the last, and every value that is not finite. So at most
// max_points finite ones stay, and the extremes of all are among them. max_points >= 4.
std::vector<size_t> ThinnedPlaces(std::span<const int64_t> steps, std::span<const double> values, int max_points);
CurvePoints Thinned(const CurvePoints& curve, int max_points);
// Thinned by the mean; the points that stay keep their interval and n.
MeanCurvePoints Thinned(const MeanCurvePoints& curve, int max_points);

// From all points of the curves, so that it depends neither on what else is shown nor on how much was thinned. Where a
// double cannot hold the mean of the values it is NaN, with n as it is. InvalidArgument: a level outside (0, 1).
absl::StatusOr<MeanCurvePoints> MeanOverSeeds(std::span<const CurvePoints> curves, double level);

}  // namespace ablate
