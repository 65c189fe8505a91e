// Phases of a plan: tuning arms, whom claims are about, what selecting and confirming seeds are asked, and the hash of
// all that is declared. See planner.h, plan.h and docs/claims.md.
#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/plan_check.h"
#include "experiments/plan_claims.h"
#include "experiments/planner.h"

namespace ablate {
namespace {

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

v1::LengthSpec OneTimes() {
  v1::LengthSpec length;
  length.set_multiple(1);
  return length;
}

std::string LengthText(const v1::LengthSpec& length) {
  return length.has_multiple() ? ShortestDouble(length.multiple()) + "x" : std::to_string(length.tokens());
}

template <typename List>
std::string SortedJoin(const List& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(absl::StrCat(value));
  std::sort(texts.begin(), texts.end());
  return absl::StrJoin(texts, ",");
}

std::string Place(const char* list, int i, const char* key) { return absl::StrCat(list, "[", i, "]", key); }

}  // namespace

const v1::ArmSpec& Planner::SpecArm(const ArmDraft& draft) const {
  static const auto& none = *new v1::ArmSpec();
  return draft.spec_arm < spec_.arms_size() ? spec_.arms(draft.spec_arm) : none;
}

absl::StatusOr<int> Planner::FindClaimArm(const v1::Configuration& selector, const std::string& what,
                                          const std::string& place) {
  absl::StatusOr<int> found = FindArm(spec_.settings(), plan_.arms, selector, what);
  if (!found.ok()) return places_.At(places_.Named(place), found.status());
  return found;
}

absl::Status Planner::ResolveClaims() {
  std::set<int> fixed;
  for (int i = 0; i < spec_.confirm().fixed_arms_size(); ++i) {
    ABLATE_ASSIGN_OR_RETURN(const int arm,
                            FindClaimArm(spec_.confirm().fixed_arms(i), "fixed arm", Place("confirm.fixed", i, "")));
    fixed.insert(arm);
  }
  for (int i = 0; i < spec_.claims_size(); ++i) {
    const v1::ClaimSpec& claim = spec_.claims(i);
    const std::string of = "arm of claim " + claim.name();
    PlannedClaim planned;
    planned.against = plan_.baseline_arm;
    if (!claim.selected_arm()) {
      ABLATE_ASSIGN_OR_RETURN(planned.arm, FindClaimArm(claim.arm(), of, Place("claims", i, ".arm")));
      fixed.insert(planned.arm);
    }
    if (!claim.against().settings().empty()) {
      ABLATE_ASSIGN_OR_RETURN(planned.against, FindClaimArm(claim.against(), of, Place("claims", i, ".against")));
      fixed.insert(planned.against);
    }
    if (planned.arm == planned.against) {
      return places_.At(
          places_.Named(Place("claims", i, ".arm")),
          Refuse(absl::StrCat("claim ", claim.name(), " compares ", plan_.arms[planned.arm].label, " with itself",
                              claim.against().settings().empty() ? ", the baseline" : "")));
    }
    plan_.claims.push_back(planned);
  }
  fixed.erase(plan_.baseline_arm);
  plan_.fixed_arms.assign(fixed.begin(), fixed.end());
  if (spec_.has_select()) {
    const v1::Configuration& among = spec_.select().among();
    for (size_t a = 0; a < plan_.arms.size(); ++a) {
      const int arm = static_cast<int>(a);
      if (arm == plan_.baseline_arm) continue;
      v1::Configuration full = spec_.settings();
      AppendSettings(plan_.arms[a].values, &full);
      const bool fits = among.settings().empty() ? fixed.count(arm) == 0 : HasValues(full, ConfigView(full), among);
      if (fits) plan_.candidates.push_back(arm);
    }
    if (plan_.candidates.empty()) {
      return places_.At(places_.Named("select.among"),
                        Refuse("select has no candidate: " + (among.settings().empty()
                                                                  ? "every arm is the baseline or fixed"
                                                                  : "no arm but the baseline has " + Label(among))));
    }
  }
  for (int i = 0; i < spec_.claims_size(); ++i) {
    const int against = plan_.claims[i].against;
    const bool candidate = std::count(plan_.candidates.begin(), plan_.candidates.end(), against) > 0;
    if (plan_.claims[i].arm >= 0 || !candidate) continue;
    return places_.At(places_.Named(Place("claims", i, ".against")),
                      Refuse(absl::StrCat("claim ", spec_.claims(i).name(), ": ", plan_.arms[against].label,
                                          " is a candidate, so it may be the selected arm itself; leave it out of "
                                          "select.among")));
  }
  for (const int arm : ConfirmingArms(plan_)) ABLATE_RETURN_IF_ERROR(CheckLengths(arm));
  return absl::OkStatus();
}

// docs/claims.md, "Lengths and documents".
absl::Status Planner::CheckLengths(int arm) {
  const int64_t one = plan_.arms[arm].train_length;
  for (const v1::LengthSpec& length : spec_.select().lengths()) {
    if (std::count(plan_.candidates.begin(), plan_.candidates.end(), arm) == 0) break;
    ABLATE_RETURN_IF_ERROR(CheckMeasured(arm, drafts_[arm].eval, spec_.select().metric(), length, "select.metric", ""));
  }
  for (int i = 0; i < spec_.claims_size(); ++i) {
    const v1::ClaimSpec& claim = spec_.claims(i);
    const bool rises = claim.kind() == v1::RISES_LESS;
    const int64_t length = LengthTokens(claim.length(), one), shorter = LengthTokens(claim.short_length(), one);
    const std::string who = absl::StrCat("claim ", claim.name(), ": ");
    const auto refuse = [&](const std::string& place, const std::string& message) {
      return places_.At(places_.Named(place), Refuse(message));
    };
    if (rises && shorter >= length) {
      return refuse(Place("claims", i, ".short_length"),
                    absl::StrCat(who, "short_length (", shorter, " tokens) is not below length (", length, ")"));
    }
    const PlannedClaim& planned = plan_.claims[i];
    const bool selected = planned.arm < 0 && std::count(plan_.candidates.begin(), plan_.candidates.end(), arm) > 0;
    if (planned.arm == arm || selected) {
      const int64_t other = plan_.arms[planned.against].train_length;
      if (LengthTokens(claim.length(), other) != length ||
          (rises && LengthTokens(claim.short_length(), other) != shorter)) {
        return refuse(Place("claims", i, ".length"),
                      absl::StrCat(who, plan_.arms[arm].label, " and ", plan_.arms[planned.against].label,
                                   " have another train.length, so ", LengthText(claim.length()),
                                   " is not one length; give lengths in tokens"));
      }
    }
    if (planned.arm == arm || selected || planned.against == arm) {
      const std::string place = Place("claims", i, ".metric");
      ABLATE_RETURN_IF_ERROR(CheckMeasured(arm, drafts_[arm].eval, claim.metric(), claim.length(), place, who));
      if (rises) {
        ABLATE_RETURN_IF_ERROR(CheckMeasured(arm, drafts_[arm].eval, claim.metric(), claim.short_length(), place, who));
      }
    }
    if (!spec_.has_select()) continue;
    for (const v1::LengthSpec& chosen : spec_.select().lengths()) {
      const int64_t tokens = LengthTokens(chosen, one);
      if (tokens != length && !(rises && tokens == shorter && shorter != one)) continue;
      return refuse(Place("claims", i, tokens == length ? ".length" : ".short_length"),
                    absl::StrCat(who, LengthText(chosen), " (", tokens,
                                 " tokens) is among select.lengths: what chose the arm cannot confirm it"));
    }
    for (int e = 0; e < spec_.evaluate().lengths_size(); ++e) {
      const int64_t tokens = LengthTokens(spec_.evaluate().lengths(e), one);
      if (tokens == one || (tokens != length && !(rises && tokens == shorter))) continue;
      return places_.At(
          places_.Length(e, drafts_[arm].spec_arm),
          Refuse(absl::StrCat(who, "evaluate.lengths has its ", tokens == length ? "length " : "short_length ", tokens,
                              ", which stays unseen until the lock; leave it out there")));
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::MeasurePhases() {
  const bool alone = spec_.seeds().empty();
  std::vector<Asked> selecting, confirming;
  if (spec_.has_select()) {
    const v1::SelectionSpec& select = spec_.select();
    for (const v1::LengthSpec& length : select.lengths()) {
      selecting.push_back({length, select.split(), select.ntk(), places_.Named("select.lengths"), "select.lengths"});
    }
    // What the 1x rule would have picked is reported.
    selecting.push_back({OneTimes(), select.split(), false, places_.Named("select"), "select"});
  }
  if (spec_.has_confirm()) {
    const std::string& split = spec_.confirm().split();
    confirming.push_back({OneTimes(), split, false, places_.Named("confirm"), "confirm"});
    for (int i = 0; i < spec_.claims_size(); ++i) {
      const v1::ClaimSpec& claim = spec_.claims(i);
      if (claim.kind() == v1::RISES_LESS) {
        confirming.push_back({claim.short_length(), split, claim.ntk(),
                              places_.Named(Place("claims", i, ".short_length")), "short_length"});
      }
      confirming.push_back(
          {claim.length(), split, claim.ntk(), places_.Named(Place("claims", i, ".length")), "length"});
    }
  }
  for (size_t a = 0; a < drafts_.size() && !alone; ++a) {
    ArmDraft& draft = drafts_[a];
    std::vector<Asked> asked = AskedByEvaluate(draft);
    asked.insert(asked.end(), selecting.begin(), selecting.end());
    ABLATE_RETURN_IF_ERROR(Measure(static_cast<int>(a), draft.eval, asked, &draft.measurements));
  }
  for (const int arm : spec_.has_confirm() ? ConfirmingArms(plan_) : std::vector<int>()) {
    ABLATE_RETURN_IF_ERROR(Measure(arm, drafts_[arm].eval, confirming, &drafts_[arm].confirming));
  }
  return absl::OkStatus();
}

absl::Status Planner::AddTry(int arm, double rate) {
  const ArmDraft of = drafts_[arm];
  ABLATE_RETURN_IF_ERROR(
      places_.At(places_.Named("tune.learning_rates"), CheckSetting("train.learning_rate", NumberValue(rate))));
  Arm named;
  named.values = plan_.arms[arm].values;
  AppendSetting("train.learning_rate", NumberValue(rate), &named.values);
  named.json = ToJson(named.values);
  named.label = Label(named.values);
  named.phase = v1::TUNING;
  named.tunes = arm;
  named.learning_rate = rate;
  named.train_length = plan_.arms[arm].train_length;
  ArmDraft draft;
  draft.spec_arm = of.spec_arm;
  ABLATE_ASSIGN_OR_RETURN(const auto history, AddHistory(of.full, SpecArm(of), rate, {}, named.label));
  draft.node = history.first;
  draft.end = history.second;
  drafts_.push_back(draft);
  plan_.arms.push_back(std::move(named));

  // As it was trained, whatever the arm changes at evaluation: arms that differ in that alone are one training, and
  // so must have one rate.
  v1::Configuration eval = OfScope(of.full, AxisScope::kTraining);
  for (const v1::Setting& setting : spec_.settings().settings()) {
    for (const char* how : {"eval.target_spans", "eval.loss_tokens", "eval.batch_tokens"}) {
      if (setting.axis() == how) AppendSetting(how, setting.value(), &eval);
    }
  }
  eval = OfScope(Canonical(eval), AxisScope::kEvaluation);
  const int tried = static_cast<int>(drafts_.size()) - 1;
  ABLATE_RETURN_IF_ERROR(CheckMeasured(tried, eval, spec_.tune().metric(), OneTimes(), "tune.metric", ""));
  std::vector<int> measurements;
  ABLATE_RETURN_IF_ERROR(
      Measure(tried, eval, {{OneTimes(), "selection", false, places_.Named("tune"), "tune"}}, &measurements));
  drafts_.back().measurements = std::move(measurements);
  return absl::OkStatus();
}

absl::Status Planner::AddTuningArms() {
  if (!spec_.has_tune()) return absl::OkStatus();
  const int arms = static_cast<int>(drafts_.size());
  const auto& grid = spec_.tune().learning_rates();
  for (int a = 0; a < arms; ++a) {
    for (const double rate : grid) ABLATE_RETURN_IF_ERROR(AddTry(a, rate));
  }
  for (int a = 0; a < arms; ++a) {
    const auto it = tuned_.tries.find(plan_.arms[a].json);
    if (it == tuned_.tries.end()) continue;
    std::set<double> known(grid.begin(), grid.end());
    for (const double rate : it->second) {
      if (known.insert(rate).second) ABLATE_RETURN_IF_ERROR(AddTry(a, rate));
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::UseTunedRates() {
  if (!spec_.has_tune()) return absl::OkStatus();
  for (size_t a = 0; a < plan_.arms.size(); ++a) {
    Arm& arm = plan_.arms[a];
    if (arm.phase == v1::TUNING) continue;
    const auto it = tuned_.rates.find(arm.json);
    if (it == tuned_.rates.end()) {
      plan_.complete = false;
      continue;
    }
    arm.learning_rate = it->second;
    ABLATE_RETURN_IF_ERROR(CheckSetting("train.learning_rate", NumberValue(it->second)));
    ABLATE_ASSIGN_OR_RETURN(const auto history,
                            AddHistory(drafts_[a].full, SpecArm(drafts_[a]), it->second, {}, arm.label));
    drafts_[a].node = history.first;
  }
  return absl::OkStatus();
}

std::vector<Planner::Group> Planner::Groups() {
  std::vector<Group> groups;
  Group tuning, own, confirming;
  tuning.seeds = plan_.tuning_seeds;
  own.seeds = plan_.seeds;
  confirming.seeds = plan_.confirming_seeds;
  for (size_t a = 0; a < drafts_.size(); ++a) {
    const bool tries = plan_.arms[a].phase == v1::TUNING;
    const v1::Phase phase = tries ? v1::TUNING : spec_.has_select() ? v1::SELECTING : v1::PLAIN;
    (tries ? tuning : own).entries.push_back({static_cast<int>(a), phase, &drafts_[a].measurements});
  }
  if (spec_.has_confirm()) {
    for (const int arm : ConfirmingArms(plan_)) {
      confirming.entries.push_back({arm, v1::CONFIRMING, &drafts_[arm].confirming});
    }
  }
  // The same checkpoints: one group, so that their stages are planned once.
  const bool reuse = spec_.confirm().reuse_seeds();
  if (reuse) own.entries.insert(own.entries.end(), confirming.entries.begin(), confirming.entries.end());
  if (spec_.has_tune()) groups.push_back(std::move(tuning));
  if (plan_.complete) {
    groups.push_back(std::move(own));
    if (spec_.has_confirm() && !reuse) groups.push_back(std::move(confirming));
  }
  return groups;
}

void Planner::HashPhases() {
  std::vector<std::string> lines;
  const std::set<int> candidates(plan_.candidates.begin(), plan_.candidates.end());
  const std::set<int> fixed(plan_.fixed_arms.begin(), plan_.fixed_arms.end());
  for (size_t a = 0; a < drafts_.size(); ++a) {
    const ArmDraft& draft = drafts_[a];
    const int arm = static_cast<int>(a);
    std::string line =
        absl::StrCat("arm ", plan_.arms[a].json, " ", SegmentsJson(draft.node, draft.end),
                     arm == plan_.baseline_arm ? " baseline" : "", candidates.count(arm) > 0 ? " candidate" : "",
                     fixed.count(arm) > 0 ? " fixed" : "");
    for (const auto& [factor, level] : plan_.arms[a].factors) absl::StrAppend(&line, " ", factor, "=", level);
    for (const std::vector<int>* measured : {&draft.measurements, &draft.confirming}) {
      std::vector<std::string> keys;
      for (const int m : *measured) {
        const Measurement& one = measurements_[m];
        keys.push_back(one.probe < 0 ? one.key.before : one.key.before + one.key.after);
      }
      absl::StrAppend(&line, " [", SortedJoin(keys), "]");
    }
    lines.push_back(std::move(line));
  }
  lines.push_back(absl::StrCat("seeds ", SortedJoin(spec_.seeds())));
  lines.push_back(absl::StrCat("factors ", SortedJoin(spec_.factorial().factors())));
  if (spec_.has_tune()) {
    const v1::TuningSpec& tune = spec_.tune();
    std::vector<std::string> rates;
    for (const double rate : tune.learning_rates()) rates.push_back(ShortestDouble(rate));
    lines.push_back(absl::StrCat("tune ", SortedJoin(rates), " seeds ", SortedJoin(tune.seeds()), " ", tune.metric(),
                                 " ", tune.max_extensions()));
  }
  if (spec_.has_select()) {
    const v1::SelectionSpec& select = spec_.select();
    std::vector<std::string> lengths;
    for (const v1::LengthSpec& length : select.lengths()) lengths.push_back(LengthText(length));
    lines.push_back(absl::StrCat("select ", select.metric(), " ", SortedJoin(lengths), " ", select.split(), " ",
                                 select.ntk() ? "ntk" : ""));
  }
  if (spec_.has_confirm()) {
    const v1::ConfirmationSpec& confirm = spec_.confirm();
    // With looks or stages the order of the seeds is that of their use.
    const bool ordered = confirm.looks_size() > 0 || confirm.has_stein();
    lines.push_back(absl::StrCat(
        "confirm ", ordered ? absl::StrJoin(confirm.seeds(), ",") : SortedJoin(confirm.seeds()),
        confirm.reuse_seeds() ? " reused" : "", " ", confirm.split(), " looks ", absl::StrJoin(confirm.looks(), ","),
        " alpha ", ShortestDouble(spec_.alpha() == 0 ? 0.05 : spec_.alpha())));
    if (confirm.has_stein() && spec_.claims_size() > 0) {
      lines.push_back(absl::StrCat("stein ", confirm.stein().first(), " ", ShortestDouble(confirm.stein().half_width()),
                                   " ", spec_.claims(0).name()));
    }
  }
  for (int i = 0; i < spec_.claims_size(); ++i) {
    const v1::ClaimSpec& claim = spec_.claims(i);
    const PlannedClaim& planned = plan_.claims[i];
    lines.push_back(absl::StrCat("claim ", claim.name(), " ", v1::ClaimKind_Name(claim.kind()), " ",
                                 planned.arm < 0 ? "selected" : plan_.arms[planned.arm].json, " against ",
                                 plan_.arms[planned.against].json, " ", claim.metric(), " ", LengthText(claim.length()),
                                 " ", LengthText(claim.short_length()), " ", claim.ntk() ? "ntk" : "", " ",
                                 claim.direction(), " margin ", ShortestDouble(claim.margin()), " ",
                                 Sha256Hex(claim.margin_reason()), " effect ", ShortestDouble(claim.smallest_effect()),
                                 claim.main() ? " main" : "", claim.divergence_is_worst() ? " worst" : ""));
  }
  std::sort(lines.begin(), lines.end());
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    // Each line by its own hash, so that no text can run into the next.
    const std::string digest = Sha256Hex(text);
    hash.Update(digest.data(), digest.size());
  };
  add(KeyHead());
  for (const std::string& line : lines) add(line);
  plan_.sha256 = hash.HexDigest();
}

}  // namespace ablate
