// See gate.h.
#include "experiments/claims/gate.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

absl::StatusOr<Summary> Differences(std::span<const double> a, std::span<const double> b, double level) {
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  return Summarize(differences, level);
}

std::string Interval(const Summary& summary) {
  if (!summary.low.has_value()) return absl::StrCat("no interval: ", summary.reason);
  return absl::StrFormat("%.4f to %.4f", *summary.low, *summary.high);
}

}  // namespace

absl::StatusOr<Gate> ValidityGate(std::span<const double> loss_early, std::span<const double> loss_late,
                                  std::span<const double> loss_1x, std::span<const double> loss_8x, double level,
                                  const GateBounds& bounds) {
  const size_t n = loss_early.size();
  if (n < 2 || loss_late.size() != n || loss_1x.size() != n || loss_8x.size() != n) {
    return absl::InvalidArgumentError(
        absl::StrCat("the validity gate takes four losses of each of at least 2 seeds; got ", n, ", ", loss_late.size(),
                     ", ", loss_1x.size(), " and ", loss_8x.size()));
  }
  Gate gate;
  ABLATE_ASSIGN_OR_RETURN(gate.context_fall, Differences(loss_early, loss_late, level));
  ABLATE_ASSIGN_OR_RETURN(gate.rise, Differences(loss_8x, loss_1x, level));
  gate.uses_context = gate.context_fall.mean >= bounds.context_fall;
  gate.has_rise = gate.rise.mean >= bounds.rise && gate.rise.low.has_value() && *gate.rise.low > 0;
  gate.passes = gate.uses_context && gate.has_rise;
  gate.sentence = absl::StrCat(
      gate.passes ? "The validity gate is passed" : "The validity gate is not passed", ", n = ", n,
      ": from positions T/8..T/4 to 3T/4..T the loss falls by ", absl::StrFormat("%.4f", gate.context_fall.mean),
      " nats per byte, ", Interval(gate.context_fall), " (needed: ", ShortestDouble(bounds.context_fall),
      gate.uses_context ? ", reached" : ", not reached", "); from 1x to 8x, NTK off, it rises by ",
      absl::StrFormat("%.4f", gate.rise.mean), ", ", Interval(gate.rise), " (needed: ", ShortestDouble(bounds.rise),
      " with an interval above 0", gate.has_rise ? ", reached" : ", not reached", ").",
      gate.passes ? "" : " Train longer before the main sweep.");
  return gate;
}

}  // namespace ablate
