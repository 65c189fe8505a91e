// See claimed.h.
#include "experiments/claims/claimed.h"

#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "experiments/claims/measured.h"

namespace ablate {

absl::StatusOr<ClaimedCells> ClaimedCells::Make(const v1::SweepSpec& spec, const Plan& plan,
                                                const std::string& locked) {
  ClaimedCells cells;
  if (plan.claims.size() != static_cast<size_t>(spec.claims_size())) {
    return absl::InvalidArgumentError("the plan is of another file: its claims are not the spec's");
  }
  int selected = -1;
  if (!locked.empty()) {
    ABLATE_ASSIGN_OR_RETURN(selected, ArmOfJson(plan, locked));
  }
  for (int i = 0; i < spec.claims_size(); ++i) {
    const v1::ClaimSpec& claim = spec.claims(i);
    const int arm = plan.claims[i].arm < 0 ? selected : plan.claims[i].arm;
    if (arm < 0) continue;
    const Arm& ours = plan.arms[arm];
    const Arm& theirs = plan.arms[plan.claims[i].against];
    std::vector<v1::LengthSpec> lengths = {claim.length()};
    if (claim.kind() == v1::RISES_LESS) lengths.push_back(claim.short_length());
    for (const v1::LengthSpec& length : lengths) {
      const std::string metric = claim.metric().empty() ? "loss_targets" : claim.metric();
      const MeasuredCell a = CellOf(spec, ours, metric, length, "", claim.ntk());
      const MeasuredCell b = CellOf(spec, theirs, metric, length, "", claim.ntk());
      cells.numbers_.insert({ours.json, metric, a.length_tokens, a.ntk});
      cells.numbers_.insert({theirs.json, metric, b.length_tokens, b.ntk});
      if (a.length_tokens == b.length_tokens && a.ntk == b.ntk) {
        cells.differences_.insert({ours.json, theirs.json, metric, a.length_tokens, a.ntk});
      }
    }
  }
  return cells;
}

}  // namespace ablate
