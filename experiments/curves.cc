// See curves.h.
#include "experiments/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
void Keep(const std::vector<size_t>& places, std::vector<T>* values) {
  for (size_t i = 0; i < places.size(); ++i) (*values)[i] = (*values)[places[i]];
  values->resize(places.size());
}

}  // namespace

const std::vector<std::string>& CurveMetrics() {
  static const auto& names = *new std::vector<std::string>{"train_loss", "gradient_norm", "learning_rate"};
  return names;
}

std::vector<size_t> ThinnedPlaces(std::span<const int64_t> steps, std::span<const double> values, int max_points) {
  const size_t size = steps.size();
  std::vector<size_t> places;
  if (size <= static_cast<size_t>(max_points)) {
    places.resize(size);
    for (size_t i = 0; i < size; ++i) places[i] = i;
    return places;
  }
  // Unsigned: the difference of two steps may be more than an int64 holds.
  const uint64_t first = static_cast<uint64_t>(steps.front());
  const uint64_t ranges = static_cast<uint64_t>((max_points - 2) / 2);
  const uint64_t width = (static_cast<uint64_t>(steps.back()) - first) / ranges + 1;
  size_t at = 0;
  while (at < size) {
    const uint64_t range = (static_cast<uint64_t>(steps[at]) - first) / width;
    size_t lowest = size, highest = size;
    const size_t begin = places.size();
    for (; at < size && (static_cast<uint64_t>(steps[at]) - first) / width == range; ++at) {
      if (!std::isfinite(values[at])) {
        places.push_back(at);
        continue;
      }
      if (lowest == size || values[at] < values[lowest]) lowest = at;
      if (highest == size || values[at] > values[highest]) highest = at;
      if (at == 0 || at == size - 1) places.push_back(at);
    }
    if (lowest != size) places.push_back(lowest);
    if (highest != size) places.push_back(highest);
    std::sort(places.begin() + static_cast<ptrdiff_t>(begin), places.end());
    places.erase(std::unique(places.begin() + static_cast<ptrdiff_t>(begin), places.end()), places.end());
  }
  return places;
}

CurvePoints Thinned(const CurvePoints& curve, int max_points) {
  const std::vector<size_t> places = ThinnedPlaces(curve.steps, curve.values, max_points);
  CurvePoints thinned = curve;
  Keep(places, &thinned.steps);
  Keep(places, &thinned.values);
  return thinned;
}

MeanCurvePoints Thinned(const MeanCurvePoints& curve, int max_points) {
  const std::vector<size_t> places = ThinnedPlaces(curve.steps, curve.means, max_points);
  MeanCurvePoints thinned = curve;
  Keep(places, &thinned.steps);
  Keep(places, &thinned.means);
  Keep(places, &thinned.lows);
  Keep(places, &thinned.highs);
  Keep(places, &thinned.n);
  return thinned;
}

absl::StatusOr<MeanCurvePoints> MeanOverSeeds(std::span<const CurvePoints> curves, double level) {
  // Also where no step has a value.
  ABLATE_RETURN_IF_ERROR(TCritical(1, level).status());
  MeanCurvePoints mean;
  std::vector<size_t> at(curves.size(), 0);
  std::vector<bool> used(curves.size(), false);
  std::vector<double> values;
  while (true) {
    bool any = false;
    int64_t step = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < curves.size(); ++i) {
      if (at[i] == curves[i].steps.size()) continue;
      any = true;
      step = std::min(step, curves[i].steps[at[i]]);
    }
    if (!any) break;
    values.clear();
    for (size_t i = 0; i < curves.size(); ++i) {
      if (at[i] == curves[i].steps.size() || curves[i].steps[at[i]] != step) continue;
      const double value = curves[i].values[at[i]++];
      if (!std::isfinite(value)) continue;
      values.push_back(value);
      used[i] = true;
    }
    if (values.empty()) continue;
    const absl::StatusOr<Summary> summary = Summarize(values, level);
    mean.steps.push_back(step);
    mean.n.push_back(static_cast<int32_t>(values.size()));
    // What fails here is too large for a double: one step, not the whole curve.
    mean.means.push_back(summary.ok() ? summary->mean : kNaN);
    mean.lows.push_back(summary.ok() && summary->low.has_value() ? *summary->low : kNaN);
    mean.highs.push_back(summary.ok() && summary->high.has_value() ? *summary->high : kNaN);
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) mean.used.push_back(i);
  }
  return mean;
}

}  // namespace ablate
