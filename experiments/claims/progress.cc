// See progress.h. Tuning, selection and the judgement of looks are in files of their own.
#include "experiments/claims/progress.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/claims/confirmation.h"
#include "experiments/claims/measured.h"
#include "experiments/claims/selection.h"
#include "experiments/claims/tuning.h"

namespace ablate {
namespace {

// True: tuning is over and was over before.
absl::StatusOr<bool> TuningIsPast(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                                  const Measured& measured, ClaimsStep* step) {
  if (!spec.has_tune()) return true;
  ABLATE_ASSIGN_OR_RETURN(TuningState tuning, Tune(spec, plan, history.tuning, measured));
  const bool was_done = !history.tuning.empty() && history.tuning.size() == tuning.arms.size() &&
                        std::all_of(history.tuning.begin(), history.tuning.end(),
                                    [](const v1::TunedArm& t) { return t.learning_rate() > 0; });
  step->tuning = std::move(tuning.arms);
  step->waiting_for = std::move(tuning.waiting_for);
  // Asked again after a restart between the choice and the plan made with it: said again.
  step->tuning_done = tuning.done && (!was_done || !plan.complete);
  if (step->tuning_done) step->waiting_for = "the runs with the learning rates that tuning chose";
  return tuning.done && !step->tuning_done;
}

std::string LockWaits(const v1::SweepSpec& spec, size_t arms, int seeds) {
  return absl::StrCat("the confirming runs of ", arms, arms == 1 ? " arm" : " arms", ", ", seeds,
                      spec.confirm().reuse_seeds() ? " reused" : "", seeds == 1 ? " seed" : " seeds", " each");
}

// The runs of the claims that are awaited among the first `seeds` of S2; "" when there are none.
absl::StatusOr<std::string> MissingRuns(const v1::SweepSpec& spec, const Plan& plan, int locked, int seeds,
                                        const Measured& measured) {
  std::string text;
  for (int i = 0; i < spec.claims_size(); ++i) {
    ABLATE_ASSIGN_OR_RETURN(const ClaimPairs pairs, PairsOf(spec, plan, locked, i, seeds, measured));
    if (pairs.missing.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", "claim ", spec.claims(i).name(), ", ", SeedsText(pairs.missing));
  }
  return text;
}

absl::Status Confirm(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                     std::span<const Measurement> measurements, int locked, const Measured& measured,
                     ClaimsStep* step) {
  step->confirming_arms = ArmsLetGo(plan, locked);
  ABLATE_ASSIGN_OR_RETURN(const Progress progress, ScheduleOf(spec, plan, locked, measured));
  const std::vector<int>& looks = progress.schedule.looks;
  step->release_seeds = history.confirming_seeds;
  if (history.confirming_seeds <= 0) {
    step->release_seeds = progress.schedule.stein_first > 0 ? progress.schedule.stein_first : looks.front();
    step->waiting_for = LockWaits(spec, step->confirming_arms.size(), step->release_seeds);
    return absl::OkStatus();
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string missing,
                          MissingRuns(spec, plan, locked, history.confirming_seeds, measured));
  const auto done = std::upper_bound(looks.begin(), looks.end(), history.confirming_seeds) - looks.begin();
  if (!missing.empty()) {
    step->waiting_for = absl::StrCat("confirming runs without a result: ", missing);
    step->looks_done = std::max<int>(0, static_cast<int>(done) - 1);
    // Nothing is sealed any more, and a retry can still fill the gap: what is there may be shown, without p.
    step->over = !progress.first_stage && history.confirming_seeds >= looks.back();
    return absl::OkStatus();
  }
  step->looks_done = static_cast<int>(done);
  if (history.confirming_seeds >= looks.back()) {
    step->over = true;
    return absl::OkStatus();
  }
  if (progress.schedule.stein_first == 0) {
    ABLATE_ASSIGN_OR_RETURN(const std::vector<v1::ClaimRow> rows, JudgeClaims(spec, plan, history, measurements, {}));
    step->over = std::all_of(rows.begin(), rows.end(), [](const v1::ClaimRow& row) {
      return row.verdict() == v1::SUPPORTED || row.verdict() == v1::REFUTED;
    });
    if (step->over) return absl::OkStatus();
  }
  step->release_seeds = *std::upper_bound(looks.begin(), looks.end(), history.confirming_seeds);
  step->waiting_for = progress.schedule.stein_first > 0
                          ? progress.schedule.note
                          : absl::StrCat("look ", step->looks_done + 1, " of ", looks.size(), ", at ",
                                         step->release_seeds, " seeds: not every claim is decided");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClaimsStep> NextStep(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                                    std::span<const Measurement> measurements) {
  ClaimsStep step;
  step.tuning = history.tuning;
  step.release_seeds = history.confirming_seeds;
  step.over = history.over;
  ABLATE_ASSIGN_OR_RETURN(const Measured measured, Measured::Make(plan, measurements));
  if (history.over) return step;
  ABLATE_ASSIGN_OR_RETURN(const bool tuned, TuningIsPast(spec, plan, history, measured, &step));
  if (!tuned) return step;

  int locked = -1;
  if (history.lock.has_value()) {
    if (!history.lock->arm_json().empty()) {
      ABLATE_ASSIGN_OR_RETURN(locked, ArmOfJson(plan, history.lock->arm_json()));
    }
  } else if (spec.has_select()) {
    ABLATE_ASSIGN_OR_RETURN(SelectionState selection, Select(spec, plan, measured));
    if (!selection.arm.has_value()) {
      step.waiting_for = std::move(selection.waiting_for);
      return step;
    }
    locked = *selection.arm;
    step.lock = std::move(selection.lock);
    step.lock->set_arm_json(plan.arms[locked].json);
    step.lock->set_why(std::move(selection.why));
  } else if (spec.has_confirm()) {
    step.lock.emplace();
    step.lock->set_why("the file selects nothing: its claims are about arms that it names");
  }
  if (!spec.has_confirm()) {
    step.over = true;
    return step;
  }
  ABLATE_RETURN_IF_ERROR(Confirm(spec, plan, history, measurements, locked, measured, &step));
  return step;
}

absl::StatusOr<v1::Lock> MakeLockByHand(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                                        std::span<const Measurement> measurements, const std::string& arm_json,
                                        const std::string& why) {
  if (!spec.has_select()) return absl::InvalidArgumentError("the sweep selects nothing, so there is nothing to lock");
  if (history.lock.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the selection is locked already, at ", history.lock->arm_json()));
  }
  if (why.find_first_not_of(" \t\r\n") == std::string::npos) {
    return absl::InvalidArgumentError("a lock by hand needs a reason: it is recorded as a deviation from the plan");
  }
  ABLATE_ASSIGN_OR_RETURN(const v1::Configuration selector, ConfigurationFromJson(arm_json));
  ABLATE_ASSIGN_OR_RETURN(const int arm, FindBaseline(spec.settings(), plan.arms, selector));
  if (std::find(plan.candidates.begin(), plan.candidates.end(), arm) == plan.candidates.end()) {
    return absl::InvalidArgumentError(absl::StrCat(plan.arms[arm].label,
                                                   " is not among the arms that the rule of this "
                                                   "sweep chooses from"));
  }
  ABLATE_ASSIGN_OR_RETURN(const Measured measured, Measured::Make(plan, measurements));
  ABLATE_ASSIGN_OR_RETURN(SelectionState selection, Select(spec, plan, measured));
  v1::Lock lock = std::move(selection.lock);
  lock.set_arm_json(plan.arms[arm].json);
  lock.set_by_hand(true);
  lock.set_why(why);
  return lock;
}

absl::StatusOr<std::optional<v1::Lock>> WithLaterRule(const v1::SweepSpec& spec, const Plan& plan,
                                                      std::span<const Measurement> measurements, const v1::Lock& lock) {
  std::optional<v1::Lock> later;
  if (!lock.by_hand() || !lock.rule_arm_json().empty() || !spec.has_select()) return later;
  ABLATE_ASSIGN_OR_RETURN(const Measured measured, Measured::Make(plan, measurements));
  ABLATE_ASSIGN_OR_RETURN(const SelectionState selection, Select(spec, plan, measured));
  if (!selection.arm.has_value()) return later;
  later = lock;
  later->set_rule_arm_json(selection.lock.rule_arm_json());
  later->set_short_rule_arm_json(selection.lock.short_rule_arm_json());
  if (selection.lock.has_short_rule_regret()) later->set_short_rule_regret(selection.lock.short_rule_regret());
  return later;
}

}  // namespace ablate
