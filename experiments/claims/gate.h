// The validity gate: before a main sweep, softmax must use context at all, and there must be something to explain.
// Numbers in, a verdict out; must not know of sweeps. Source: docs/statistics.md 6. Thread rule: pure functions.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "experiments/statistics.h"

namespace ablate {

// In nats per byte.
struct GateBounds {
  double context_fall = 0.05;  // at least, in the mean
  double rise = 0.1;           // at least, in the mean, with its interval above 0
};

struct Gate {
  Summary context_fall;  // loss at positions T/8..T/4 less loss at 3T/4..T, by seed
  Summary rise;          // loss at 8x less loss at 1x, NTK off, by seed
  bool uses_context = false, has_rise = false;
  bool passes = false;   // both
  std::string sentence;  // with the numbers, and what to do where it fails
};

// Element s of all four is the same seed of the softmax arm; losses in nats per byte. At least 2 seeds, because the
// rise needs an interval. InvalidArgument: lengths that differ, fewer than 2, what statistics.h refuses.
absl::StatusOr<Gate> ValidityGate(std::span<const double> loss_early, std::span<const double> loss_late,
                                  std::span<const double> loss_1x, std::span<const double> loss_8x, double level = 0.95,
                                  const GateBounds& bounds = {});

}  // namespace ablate
