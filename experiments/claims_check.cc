#include "experiments/claims_check.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"
#include "experiments/plan_check.h"
#include "experiments/sweep_file.h"

namespace ablate {
namespace {

constexpr size_t kMaxClaims = 100;
constexpr int kMaxRates = 20, kMaxExtensions = 10;

class Checker {
 public:
  Checker(const v1::SweepSpec& spec, const SweepPlaces& places) : spec_(spec), places_(places) {}
  absl::Status Check() const;

 private:
  absl::Status Refuse(const std::string& place, const std::string& message) const {
    return places_.At(places_.Named(place), absl::InvalidArgumentError(message));
  }
  absl::Status CheckSeeds(const std::string& place, const google::protobuf::RepeatedField<int64_t>& seeds) const;
  absl::Status CheckApart(const std::string& place, const google::protobuf::RepeatedField<int64_t>& seeds,
                          const google::protobuf::RepeatedField<int64_t>& others, const std::string& whose) const;
  absl::Status CheckLength(const std::string& place, const v1::LengthSpec& length) const;
  absl::Status CheckMetric(const std::string& place, const std::string& metric, bool only_losses = false) const;
  absl::Status CheckSplit(const std::string& place, const std::string& split) const;
  absl::Status CheckTune() const;
  absl::Status CheckSelect() const;
  absl::Status CheckConfirm() const;
  absl::Status CheckClaim(int i) const;
  absl::Status CheckPoints() const;

  const v1::SweepSpec& spec_;
  const SweepPlaces& places_;
};

absl::Status Checker::CheckSeeds(const std::string& place,
                                 const google::protobuf::RepeatedField<int64_t>& seeds) const {
  std::set<int64_t> seen;
  for (const int64_t seed : seeds) {
    if (seed < 0) return Refuse(place, "seeds must be at least 0");
    if (!seen.insert(seed).second) return Refuse(place, absl::StrCat("seed ", seed, " is there twice"));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckApart(const std::string& place, const google::protobuf::RepeatedField<int64_t>& seeds,
                                 const google::protobuf::RepeatedField<int64_t>& others,
                                 const std::string& whose) const {
  const std::set<int64_t> taken(others.begin(), others.end());
  for (const int64_t seed : seeds) {
    if (taken.count(seed) > 0) return Refuse(place, absl::StrCat("seed ", seed, " is among ", whose));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckLength(const std::string& place, const v1::LengthSpec& length) const {
  const double number = length.has_multiple() ? length.multiple() : static_cast<double>(length.tokens());
  if (number > 0 && number <= kMaxLength) return absl::OkStatus();
  return Refuse(place, absl::StrCat("expected a length above 0, at most ", ShortestDouble(kMaxLength), ", found ",
                                    ShortestDouble(number)));
}

absl::Status Checker::CheckMetric(const std::string& place, const std::string& metric, bool only_losses) const {
  const bool made_up = static_cast<size_t>(MetricRank(metric)) == Metrics().size();
  if (spec_.executor() == v1::EXECUTOR_NOOP && made_up && !metric.empty())
    return absl::OkStatus();  // it may report any
  std::vector<std::string> known;
  for (const Metric& row : Metrics()) {
    if (row.of_evaluation) known.emplace_back(row.name);
  }
  if (std::find(known.begin(), known.end(), metric) == known.end()) {
    return Refuse(place, absl::StrCat("unknown metric \"", metric.substr(0, 100), "\"", DidYouMean(metric, known)));
  }
  if (IsLoss(metric) || (!only_losses && IsGain(metric))) return absl::OkStatus();
  if (const Metric* row = FindMetric(metric); row->task != "loss") {
    return Refuse(place, absl::StrCat("metric ", metric, " is of task ", std::string(row->task),
                                      ": tuning, selection and claims go by what is sealed with them, losses and gain on the "
                                      "data's splits; compare it with ablate compare, which adjusts over all arms"));
  }
  return Refuse(place, absl::StrCat("metric ", metric,
                                    only_losses ? " is no loss, and nothing else is compared here"
                                                : " is neither a loss nor gain",
                                    ": take loss_targets"));
}

absl::Status Checker::CheckSplit(const std::string& place, const std::string& split) const {
  if (split == "selection" || split == "confirmation") return absl::OkStatus();
  return Refuse(place, "expected selection or confirmation");
}

absl::Status Checker::CheckTune() const {
  const v1::TuningSpec& tune = spec_.tune();
  if (tune.learning_rates_size() < 2 || tune.learning_rates_size() > kMaxRates) {
    return Refuse("tune.learning_rates",
                  absl::StrCat("expected 2 to ", kMaxRates, " learning rates, found ", tune.learning_rates_size()));
  }
  double before = 0;
  for (const double rate : tune.learning_rates()) {
    ABLATE_RETURN_IF_ERROR(
        places_.At(places_.Named("tune.learning_rates"), CheckSetting("train.learning_rate", NumberValue(rate))));
    if (!(rate > before)) {
      return Refuse("tune.learning_rates", "expected learning rates above 0, each once, in ascending order");
    }
    before = rate;
  }
  if (tune.seeds().empty()) return Refuse("tune.seeds", "tune has no seeds");
  ABLATE_RETURN_IF_ERROR(CheckSeeds("tune.seeds", tune.seeds()));
  ABLATE_RETURN_IF_ERROR(
      CheckApart("tune.seeds", tune.seeds(), spec_.seeds(), "seeds: what tuned a learning rate is never used again"));
  ABLATE_RETURN_IF_ERROR(CheckApart("tune.seeds", tune.seeds(), spec_.confirm().seeds(),
                                    "confirm.seeds: what tuned a learning rate is never used again"));
  ABLATE_RETURN_IF_ERROR(CheckMetric("tune.metric", tune.metric(), /*only_losses=*/true));
  if (tune.max_extensions() < 0 || tune.max_extensions() > kMaxExtensions) {
    return Refuse("tune.max_extensions", absl::StrCat("expected 0 to ", kMaxExtensions, " extensions of the grid"));
  }
  const std::string why = "tune chooses train.learning_rate; leave it out here";
  const auto sets = [](const v1::Configuration& config) {
    return std::any_of(config.settings().begin(), config.settings().end(),
                       [](const v1::Setting& setting) { return setting.axis() == "train.learning_rate"; });
  };
  if (sets(spec_.settings())) return Refuse("settings.train.learning_rate", why);
  for (const v1::AxisSpec& axis : spec_.axes()) {
    if (axis.axis() == "train.learning_rate") return Refuse("axes.train.learning_rate", why);
  }
  for (int a = 0; a < spec_.arms_size(); ++a) {
    const v1::ArmSpec& arm = spec_.arms(a);
    const bool switched = std::any_of(arm.switches().begin(), arm.switches().end(),
                                      [&](const v1::SwitchSpec& change) { return sets(change.settings()); });
    if (sets(arm.settings()) || switched) return places_.At(places_.Arm(a), absl::InvalidArgumentError(why));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckSelect() const {
  const v1::SelectionSpec& select = spec_.select();
  if (std::none_of(spec_.claims().begin(), spec_.claims().end(),
                   [](const v1::ClaimSpec& claim) { return claim.selected_arm(); })) {
    return Refuse("select", "no claim is about the selected arm: state one with arm: selected, or leave select out");
  }
  if (spec_.seeds().empty()) return Refuse("select", "select needs seeds to select on");
  for (const v1::Setting& setting : select.among().settings()) {
    ABLATE_RETURN_IF_ERROR(places_.At(places_.Named("select.among"), CheckSetting(setting.axis(), setting.value())));
    if (setting.axis() == "eval.ntk") {
      return Refuse("select.among", "eval.ntk is a column of the table, not part of an arm; say ntk: on beside among");
    }
  }
  ABLATE_RETURN_IF_ERROR(CheckMetric("select.metric", select.metric()));
  if (select.lengths().empty()) return Refuse("select.lengths", "select has no lengths");
  for (const v1::LengthSpec& length : select.lengths()) {
    ABLATE_RETURN_IF_ERROR(CheckLength("select.lengths", length));
  }
  ABLATE_RETURN_IF_ERROR(CheckSplit("select.split", select.split()));
  if (select.split() == spec_.confirm().split()) {
    return Refuse(places_.named.count("confirm.split") > 0 ? "confirm.split" : "select.split",
                  absl::StrCat("select and confirm both use the split ", select.split(),
                               ": documents that chose the arm cannot confirm it"));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckConfirm() const {
  const v1::ConfirmationSpec& confirm = spec_.confirm();
  if (spec_.claims().empty()) return Refuse("confirm", "there are no claims to confirm: state them under claims");
  ABLATE_RETURN_IF_ERROR(CheckSplit("confirm.split", confirm.split()));
  if (confirm.seeds().empty()) return Refuse("confirm.seeds", "confirm has no seeds");
  ABLATE_RETURN_IF_ERROR(CheckSeeds("confirm.seeds", confirm.seeds()));
  if (confirm.reuse_seeds()) {
    if (!spec_.has_select()) {
      return Refuse("confirm.reuse_seeds",
                    "reuse_seeds is of sweeps that select: without select no checkpoint is used twice");
    }
    if (std::set<int64_t>(confirm.seeds().begin(), confirm.seeds().end()) !=
        std::set<int64_t>(spec_.seeds().begin(), spec_.seeds().end())) {
      return Refuse("confirm.seeds",
                    "with reuse_seeds the confirming seeds are those under seeds; leave them out here");
    }
  } else {
    ABLATE_RETURN_IF_ERROR(CheckApart(
        "confirm.seeds", confirm.seeds(), spec_.seeds(),
        "seeds: a checkpoint that helped to select is lucky, so confirming takes fresh ones (or say reuse_seeds: true, "
        "which marks the numbers as conditional on the selected checkpoints)"));
  }
  const bool main = std::any_of(spec_.claims().begin(), spec_.claims().end(),
                                [](const v1::ClaimSpec& claim) { return claim.main(); });
  const int least = main ? kMinMainClaimSeeds : kMinClaimSeeds;
  const std::string need = absl::StrCat(main ? "a main claim" : "a claim", " needs at least ", least, " seeds");
  const int seeds = confirm.seeds_size();
  if (seeds < least) {
    return Refuse("confirm.seeds",
                  absl::StrCat(need, ", found ", seeds,
                               ": with fewer only differences of several standard deviations are found"));
  }
  if (confirm.looks_size() > 0 && confirm.has_stein()) {
    return Refuse("confirm.stein", "looks and stein exclude each other: each spends the error rate in its own way");
  }
  if (confirm.looks_size() > kMaxLooks) {
    return Refuse("confirm.looks", absl::StrCat("at most ", kMaxLooks, " looks, found ", confirm.looks_size()));
  }
  int before = 0;
  for (const int look : confirm.looks()) {
    if (look <= before) return Refuse("confirm.looks", "expected numbers of seeds in ascending order");
    before = look;
    if (look < least) return Refuse("confirm.looks", absl::StrCat(need, ", and a look at ", look, " is a test"));
    if (look > seeds) {
      return Refuse("confirm.looks", absl::StrCat("a look at ", look, " seeds: confirm.seeds has ", seeds));
    }
  }
  if (confirm.looks_size() > 0 && before != seeds) {
    return Refuse("confirm.looks", absl::StrCat("the last look is at ", before, " seeds of ", seeds,
                                                ": the others would never be used"));
  }
  if (confirm.has_stein()) {
    if (!(confirm.stein().half_width() > 0) || !std::isfinite(confirm.stein().half_width())) {
      return Refuse("confirm.stein.half_width", "expected a half-width above 0");
    }
    if (confirm.stein().first() < least || confirm.stein().first() > seeds) {
      return Refuse("confirm.stein.first",
                    absl::StrCat("expected ", least, " to ", seeds, " seeds in the first stage (", need,
                                 "; confirm.seeds has ", seeds, ")"));
    }
  }
  // The confirming documents are seen by what confirms, and by nothing else.
  const auto& splits = spec_.evaluate().splits();
  if (!spec_.seeds().empty() && !spec_.evaluate().lengths().empty() &&
      std::find(splits.begin(), splits.end(), confirm.split()) != splits.end()) {
    return Refuse("evaluate.splits", absl::StrCat("evaluate measures ", confirm.split(),
                                                  ", the split of the confirming documents; leave it out there"));
  }
  for (int i = 0; i < spec_.evaluate().probes_size() && !spec_.seeds().empty(); ++i) {
    const auto& of_task = spec_.evaluate().probes(i).splits();
    if (std::find(of_task.begin(), of_task.end(), confirm.split()) == of_task.end()) continue;
    return Refuse(absl::StrCat("evaluate.tasks[", i, "].splits"),
                  absl::StrCat("task ", spec_.evaluate().probes(i).task(), " measures ", confirm.split(),
                               ", the split of the confirming documents; leave it out there"));
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckClaim(int i) const {
  const v1::ClaimSpec& claim = spec_.claims(i);
  const std::string here = absl::StrCat("claims[", i, "]"), who = "claim " + claim.name() + ": ";
  const auto refuse = [&](const std::string& key, const std::string& message) {
    return Refuse(here + key, who + message);
  };
  const bool named = !claim.name().empty() && claim.name().size() <= 100 &&
                     claim.name().find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string::npos;
  if (!named) {
    return Refuse(here + ".name", "expected a name of at most 100 letters, digits, '.', '_' and '-' for the claim");
  }
  for (int other = 0; other < i; ++other) {
    if (spec_.claims(other).name() == claim.name()) {
      return Refuse(here + ".name", absl::StrCat("two claims are named ", claim.name()));
    }
  }
  if (claim.kind() != v1::DIFFERS && claim.kind() != v1::EQUIVALENT && claim.kind() != v1::RISES_LESS) {
    return refuse(".kind", "expected differs, equivalent or rises_less");
  }
  if (claim.selected_arm() && !spec_.has_select()) {
    return refuse(".arm", "arm: selected needs a rule that selects: add select, or name the arm");
  }
  if (!claim.selected_arm() && claim.arm().settings().empty() && !claim.has_arm()) {
    return refuse(".arm", "which arm? Write selected, or its values");
  }
  ABLATE_RETURN_IF_ERROR(CheckMetric(here + ".metric", claim.metric(), claim.kind() == v1::RISES_LESS));
  ABLATE_RETURN_IF_ERROR(CheckLength(here + ".length", claim.length()));
  if (claim.kind() == v1::RISES_LESS) {
    ABLATE_RETURN_IF_ERROR(CheckLength(here + ".short_length", claim.short_length()));
  } else if (claim.has_short_length()) {
    return refuse(".short_length", "short_length is of rises_less alone");
  }
  if (claim.direction() < -1 || claim.direction() > 1) return refuse(".direction", "expected lower, higher or either");
  if (claim.direction() != 0 && claim.kind() != v1::DIFFERS) {
    return refuse(".direction", "direction is of differs alone");
  }
  if (!(claim.margin() >= 0) || !std::isfinite(claim.margin())) return refuse(".margin", "expected a margin above 0");
  if (claim.margin() == 0 && claim.kind() == v1::EQUIVALENT) {
    return refuse("",
                  "equivalent needs a margin: how far apart may they be and still count as equal? (margin, and why)");
  }
  if (claim.margin() == 0 && claim.kind() == v1::RISES_LESS) {
    return refuse("", absl::StrCat("rises_less needs a margin: how much worse may the arm be at the short length? A "
                                   "smaller rise alone rewards arms that are worse to begin with (margin, and why)"));
  }
  if (claim.margin() > 0 && claim.margin_reason().empty()) {
    return refuse(".margin", absl::StrCat("margin ", ShortestDouble(claim.margin()),
                                          " needs its reason, written before the numbers are seen: why: \"...\""));
  }
  if (claim.margin() == 0 && !claim.margin_reason().empty()) {
    return refuse(".why", "why gives the reason of a margin, and there is none");
  }
  if (!(claim.smallest_effect() >= 0) || !std::isfinite(claim.smallest_effect())) {
    return refuse(".smallest_effect", "expected a number above 0");
  }
  return absl::OkStatus();
}

absl::Status Checker::CheckPoints() const {
  double cells = std::max(1, spec_.arms_size());
  for (const v1::AxisSpec& axis : spec_.axes()) cells *= axis.values_size();
  const double tries = static_cast<double>(spec_.tune().seeds_size()) *
                       (spec_.tune().learning_rates_size() + spec_.tune().max_extensions());
  const double points = cells * (spec_.seeds_size() + spec_.confirm().seeds_size() + tries);
  if (points <= static_cast<double>(kMaxPoints)) return absl::OkStatus();
  return Refuse("", absl::StrCat("the sweep has ", ShortestDouble(points), " points in all phases; at most ",
                                 kMaxPoints, " are planned"));
}

absl::Status Checker::Check() const {
  if (spec_.alpha() != 0 && !(spec_.alpha() > 0 && spec_.alpha() <= 0.5)) {
    return Refuse("alpha", "expected an error rate above 0, at most 0.5");
  }
  if (spec_.alpha() != 0 && spec_.claims().empty())
    return Refuse("alpha", "alpha is the error rate of claims: none are stated");
  if (spec_.claims_size() > 0 && !spec_.has_confirm()) {
    return Refuse("claims", "claims need fresh seeds to be confirmed on: add confirm: {seeds: 8}");
  }
  if (static_cast<size_t>(spec_.claims_size()) > kMaxClaims) {
    return Refuse("claims", absl::StrCat("at most ", kMaxClaims, " claims, found ", spec_.claims_size()));
  }
  if (spec_.has_select() && !spec_.has_confirm()) {
    return Refuse("select", "select picks the arm that claims are about: state claims and confirm, or leave it out");
  }
  for (int i = 0; i < spec_.claims_size(); ++i) ABLATE_RETURN_IF_ERROR(CheckClaim(i));
  if (spec_.has_tune()) ABLATE_RETURN_IF_ERROR(CheckTune());
  if (spec_.has_select()) ABLATE_RETURN_IF_ERROR(CheckSelect());
  if (spec_.has_confirm()) ABLATE_RETURN_IF_ERROR(CheckConfirm());
  return CheckPoints();
}

}  // namespace

absl::Status CheckClaims(const v1::SweepSpec& spec, const SweepPlaces& places) { return Checker(spec, places).Check(); }

}  // namespace ablate
