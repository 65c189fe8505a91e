// See confirmation.h.
#include "experiments/claims/confirmation.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/metrics.h"
#include "experiments/statistics.h"

namespace ablate {
bool HigherIsBetter(const std::string& metric) { return IsGain(metric); }

absl::StatusOr<ClaimPairs> PairsOf(const v1::SweepSpec& spec, const Plan& plan, int locked, int index, int seeds,
                                   const Measured& measured) {
  if (plan.claims.size() != static_cast<size_t>(spec.claims_size())) {
    return absl::InvalidArgumentError("the plan is of another file: its claims are not the spec's");
  }
  const v1::ClaimSpec& claim = spec.claims(index);
  ClaimPairs pairs{.arm = plan.claims[index].arm < 0 ? locked : plan.claims[index].arm,
                   .baseline = plan.claims[index].against};
  if (pairs.arm < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("claim ", claim.name(), " is about the selected arm, and nothing was selected"));
  }
  const bool rises = claim.kind() == v1::RISES_LESS;
  const std::string split = spec.confirm().split().empty() ? "confirmation" : spec.confirm().split();
  const auto cell = [&](int arm, const v1::LengthSpec& length) {
    return CellOf(spec, plan.arms[arm], claim.metric().empty() ? "loss_targets" : claim.metric(), length, split,
                  claim.ntk());
  };
  struct Side {
    int arm;
    MeasuredCell at_long, at_short;
    bool diverged, missing;
    double long_value, short_value;
  };
  Side sides[2] = {{pairs.arm, cell(pairs.arm, claim.length()), {}, false, false, 0, 0},
                   {pairs.baseline, cell(pairs.baseline, claim.length()), {}, false, false, 0, 0}};
  if (rises) {
    for (Side& side : sides) side.at_short = cell(side.arm, claim.short_length());
  }
  std::set<std::string> jobs;
  const auto count = std::clamp<size_t>(static_cast<size_t>(std::max(0, seeds)), 0, plan.confirming_seeds.size());
  for (const int64_t seed : std::span(plan.confirming_seeds).first(count)) {
    for (Side& side : sides) {
      side.diverged = side.missing = false;
      side.short_value = 0;
      const auto read = [&](const MeasuredCell& at, double* value) {
        const Found found = measured.Find(side.arm, seed, v1::CONFIRMING, at);
        if (!found.job_id.empty() && jobs.insert(found.job_id).second) pairs.job_ids.push_back(found.job_id);
        if (found.status == MeasurementStatus::kOk) *value = found.value;
        if (found.status == MeasurementStatus::kDiverged) side.diverged = true;
        if (found.status == MeasurementStatus::kMissing) side.missing = true;
      };
      read(side.at_long, &side.long_value);
      if (rises) read(side.at_short, &side.short_value);
    }
    // A diverged run is a result although the other side is still awaited; judged only when both are there.
    if (sides[0].missing || sides[1].missing) {
      pairs.missing.push_back(seed);
      continue;
    }
    pairs.seeds.push_back({.seed = seed,
                           .arm_long = sides[0].long_value,
                           .baseline_long = sides[1].long_value,
                           .arm_short = sides[0].short_value,
                           .baseline_short = sides[1].short_value,
                           .arm_diverged = sides[0].diverged,
                           .baseline_diverged = sides[1].diverged});
  }
  return pairs;
}

std::vector<int> ArmsLetGo(const Plan& plan, int locked) {
  std::set<int> arms(plan.fixed_arms.begin(), plan.fixed_arms.end());
  arms.insert(plan.baseline_arm);
  if (locked >= 0) arms.insert(locked);
  return {arms.begin(), arms.end()};
}

absl::StatusOr<Progress> ScheduleOf(const v1::SweepSpec& spec, const Plan& plan, int locked, const Measured& measured) {
  const v1::ConfirmationSpec& confirm = spec.confirm();
  const int all = static_cast<int>(plan.confirming_seeds.size());
  Progress progress;
  Schedule& schedule = progress.schedule;
  if (!confirm.has_stein()) {
    for (const int look : confirm.looks()) {
      if (look > 0 && look <= all && (schedule.looks.empty() || look > schedule.looks.back()))
        schedule.looks.push_back(look);
    }
    if (schedule.looks.empty()) schedule.looks.push_back(all);
    return progress;
  }
  const int first = confirm.stein().first();
  if (first < 2 || first > all || spec.claims().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("confirm.stein: first is ", first, "; it must lie from 2 to the ", all, " confirming seeds"));
  }
  schedule.stein_first = first;
  ABLATE_ASSIGN_OR_RETURN(const ClaimPairs pairs, PairsOf(spec, plan, locked, 0, first, measured));
  if (!pairs.missing.empty()) {
    schedule.looks.push_back(first);
    progress.first_stage = true;
    return progress;
  }
  ABLATE_ASSIGN_OR_RETURN(const ClaimTest test, TestClaim(spec.claims(0), pairs.seeds));
  if (!test.arm_diverged.empty() || !test.baseline_diverged.empty()) {
    schedule.looks.push_back(all);
    schedule.note =
        absl::StrCat("Stein's rule: a run of the first ", first, " diverged, so all ", all, " seeds are used");
    return progress;
  }
  const double s0 = test.main.sd.value_or(0);
  ABLATE_ASSIGN_OR_RETURN(const SteinPlan plan_n,
                          SteinSampleSize(first, s0, confirm.stein().half_width(), all, 1 - AlphaOf(spec)));
  schedule.looks.push_back(static_cast<int>(plan_n.n));
  schedule.note = absl::StrCat("Stein's rule: sd ", ShortestDouble(s0), " of the first ", first, " pairs gives ",
                               plan_n.n, " seeds for a half-width of ", ShortestDouble(confirm.stein().half_width()));
  if (plan_n.capped) {
    absl::StrAppend(&schedule.note, "; the maximum of ", all, " binds, so the half-width is not reached");
  }
  return progress;
}

}  // namespace ablate
