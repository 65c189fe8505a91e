// For fuzz targets: how much work planning a sweep is, so that an input that is merely large is passed over.
#pragma once

#include <algorithm>

#include "proto/resources.pb.h"

namespace ablate {

// An upper bound of points times what is measured of each.
inline double PlanCells(const v1::SweepSpec& spec) {
  double arms = std::max(1, spec.arms_size());
  for (const v1::AxisSpec& axis : spec.axes()) arms *= axis.values_size();
  int switches = 0;
  for (const v1::ArmSpec& arm : spec.arms()) switches = std::max(switches, arm.switches_size());
  double measured = 1 + spec.evaluate().lengths_size() * std::max(1, spec.evaluate().splits_size());
  for (const v1::ProbeSpec& probe : spec.evaluate().probes()) {
    measured += std::max(1, probe.lengths_size()) * std::max(1, probe.splits_size());
  }
  const double rates = std::max(1, spec.tune().learning_rates_size());
  const double seeds = spec.seeds_size() + spec.confirm().seeds_size() + rates * spec.tune().seeds_size();
  return arms * (1 + seeds) * (measured + switches) * (1 + spec.exclude_size() + spec.claims_size());
}

}  // namespace ablate
