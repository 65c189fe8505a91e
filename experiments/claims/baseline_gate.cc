// GateOfBaseline: the validity gate on what a sweep has measured of its baseline. See progress.h and gate.h.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "experiments/claims/gate.h"
#include "experiments/claims/measured.h"
#include "experiments/claims/progress.h"

namespace ablate {

absl::StatusOr<std::optional<v1::ValidityGate>> GateOfBaseline(const v1::SweepSpec& spec, const Plan& plan,
                                                               std::span<const Measurement> measurements) {
  // Losses by position are per token: the gate's bounds are per byte.
  if (spec.data().format() == v1::DataRef::TOKEN_SHARDS) return std::nullopt;
  ABLATE_ASSIGN_OR_RETURN(const Measured measured, Measured::Make(plan, measurements));
  const Arm& arm = plan.arms[plan.baseline_arm];
  const auto cell = [&](const char* metric, double multiple) {
    return CellOf(spec, arm, metric, Multiple(multiple), "selection", /*ntk=*/false);
  };
  // Another byte stands at each position, so with few tokens the bins differ by the text and not by context: at 2 nats
  // of sd a token, the difference of the two bins has a standard error of 0.02 over 2^17 tokens and 0.04 over 2^15.
  constexpr double kLeastTokens = 1 << 17;
  const MeasuredCell tokens = cell("loss_tokens", 1);
  const std::array<MeasuredCell, 4> cells = {cell("loss_by_position.T/4", 1), cell("loss_by_position.T", 1),
                                             cell("loss_targets", 1), cell("loss_targets", 8)};
  std::array<std::vector<double>, 4> values;
  v1::ValidityGate message;
  for (const int64_t seed : plan.seeds) {
    std::array<Found, 4> found;
    bool all = true;
    for (size_t i = 0; i < cells.size(); ++i) {
      found[i] = measured.Find(plan.baseline_arm, seed, spec.has_select() ? v1::SELECTING : v1::PLAIN, cells[i]);
      all = all && found[i].status == MeasurementStatus::kOk;
    }
    const Found scored =
        measured.Find(plan.baseline_arm, seed, spec.has_select() ? v1::SELECTING : v1::PLAIN, tokens);
    if (scored.status == MeasurementStatus::kOk && scored.value < kLeastTokens) all = false;
    if (!all) continue;
    message.add_seeds(seed);
    for (size_t i = 0; i < cells.size(); ++i) {
      values[i].push_back(found[i].value);
      const bool known =
          std::find(message.job_ids().begin(), message.job_ids().end(), found[i].job_id) != message.job_ids().end();
      if (!known && !found[i].job_id.empty()) message.add_job_ids(found[i].job_id);
    }
  }
  if (values[0].size() < 2) return std::nullopt;
  ABLATE_ASSIGN_OR_RETURN(const Gate gate, ValidityGate(values[0], values[1], values[2], values[3]));
  message.set_passed(gate.passes);
  message.set_context_fall(gate.context_fall.mean);
  message.set_rise(gate.rise.mean);
  if (gate.rise.low.has_value()) message.set_rise_low(*gate.rise.low);
  if (gate.rise.high.has_value()) message.set_rise_high(*gate.rise.high);
  message.set_text(gate.sentence);
  return message;
}

}  // namespace ablate
