// See confirmation.h.
#include "experiments/claims/confirmation.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

absl::StatusOr<int> ArmOfClaim(const v1::SweepSpec& spec, const Plan& plan, int locked, const v1::ClaimSpec& claim) {
  if (!claim.selected_arm()) return ArmNamed(spec, plan, claim.arm());
  if (locked < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("claim ", claim.name(), " is about the selected arm, and nothing was selected"));
  }
  return locked;
}

absl::StatusOr<int> BaselineOfClaim(const v1::SweepSpec& spec, const Plan& plan, const v1::ClaimSpec& claim) {
  if (claim.against().settings().empty()) return plan.baseline_arm;
  return ArmNamed(spec, plan, claim.against());
}

}  // namespace

bool HigherIsBetter(const std::string& metric) { return metric == "gain"; }

absl::StatusOr<ClaimPairs> PairsOf(const v1::SweepSpec& spec, const Plan& plan, int locked, const v1::ClaimSpec& claim,
                                   std::span<const int64_t> seeds, const Measured& measured) {
  ClaimPairs pairs;
  ABLATE_ASSIGN_OR_RETURN(pairs.arm, ArmOfClaim(spec, plan, locked, claim));
  ABLATE_ASSIGN_OR_RETURN(pairs.baseline, BaselineOfClaim(spec, plan, claim));
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
  for (const int64_t seed : seeds) {
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

absl::StatusOr<std::vector<int>> ConfirmingArms(const v1::SweepSpec& spec, const Plan& plan, int locked) {
  std::set<int> arms = {plan.baseline_arm};
  if (locked >= 0) arms.insert(locked);
  for (const v1::Configuration& fixed : spec.confirm().fixed_arms()) {
    ABLATE_ASSIGN_OR_RETURN(const int arm, ArmNamed(spec, plan, fixed));
    arms.insert(arm);
  }
  for (const v1::ClaimSpec& claim : spec.claims()) {
    ABLATE_ASSIGN_OR_RETURN(const int arm, ArmOfClaim(spec, plan, locked, claim));
    ABLATE_ASSIGN_OR_RETURN(const int baseline, BaselineOfClaim(spec, plan, claim));
    arms.insert(arm);
    arms.insert(baseline);
  }
  return std::vector<int>(arms.begin(), arms.end());
}

absl::StatusOr<Progress> ScheduleOf(const v1::SweepSpec& spec, const Plan& plan, int locked, const Measured& measured) {
  const v1::ConfirmationSpec& confirm = spec.confirm();
  const std::vector<int64_t> seeds = ConfirmingSeeds(spec);
  const int all = static_cast<int>(seeds.size());
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
  ABLATE_ASSIGN_OR_RETURN(
      const ClaimPairs pairs,
      PairsOf(spec, plan, locked, spec.claims(0), std::span(seeds).first(static_cast<size_t>(first)), measured));
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
