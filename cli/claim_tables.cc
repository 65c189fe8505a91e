#include "cli/claim_tables.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "cli/result_tables.h"
#include "experiments/axes.h"
#include "experiments/claims/gate.h"
#include "experiments/table.h"

namespace ablate {
namespace {

template <typename Repeated>
Cell List(const Repeated& values) {
  return Cell::Json(JsonList(std::vector<typename Repeated::value_type>(values.begin(), values.end())));
}
Cell OptionalNumber(bool has, double value) { return has ? Cell::Number(value) : Cell::Null(); }
Cell ArmCell(const std::string& json) { return json.empty() ? Cell::Null() : Cell::Json(json); }

// "0.0312 [0.0201, 0.0423]", "-".
std::string WithInterval(bool has, double value, bool has_interval, double low, double high) {
  if (!has) return "-";
  const int decimals = DecimalsFor(has_interval ? (high - low) / 2 : 0);
  const std::string text = absl::StrFormat("%.*f", decimals, value);
  if (!has_interval) return text;
  return absl::StrCat(text, absl::StrFormat(" [%.*f, %.*f]", decimals, low, decimals, high));
}

std::string PhaseName(v1::Phase phase) {
  const std::string text = PhaseText(phase);
  return text.empty() ? "plain" : text;
}

// ", confirming (exploratory: no claim is about it)"; "" for a sweep without phases.
std::string MarkText(bool phases, v1::Phase phase, const std::string& standing) {
  const std::string name = PhaseText(phase);
  if (!phases && name.empty()) return "";
  return absl::StrCat(name.empty() ? "" : ", ", name, " (", standing, ")");
}

std::string WithoutNumbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

std::string LevelText(double level) { return absl::StrCat(ShortestDouble(level * 100), " %"); }

std::string ConfigurationLabel(const v1::Configuration& config) { return ArmLabel(ToJson(config)); }

std::string KindText(const v1::ClaimSpec& claim) {
  switch (claim.kind()) {
    case v1::EQUIVALENT:
      return absl::StrCat("equivalent within ", ShortestDouble(claim.margin()));
    case v1::RISES_LESS:
      return "rises less";
    default:
      return claim.direction() < 0 ? "lower" : claim.direction() > 0 ? "higher" : "differs";
  }
}

std::string LengthText(const v1::LengthSpec& length) {
  return length.has_multiple() ? absl::StrCat(ShortestDouble(length.multiple()), "x") : absl::StrCat(length.tokens());
}

Sheet ClaimSheet(const v1::GetClaimsResponse& response) {
  Sheet sheet{.title = "claims",
              .columns = {{.title = "claim"},
                          {.title = "kind"},
                          {.title = "arm"},
                          {.title = "against"},
                          {.title = "metric"},
                          {.title = "length", .right = true},
                          {.title = "n", .right = true},
                          {.title = "estimate", .right = true},
                          {.title = "p (Holm)", .right = true},
                          {.title = "verdict"},
                          {.title = "standing"}}};
  for (const v1::ClaimRow& row : response.claims()) {
    const v1::ClaimSpec& claim = row.claim();
    const std::string length =
        absl::StrCat(claim.has_short_length() ? absl::StrCat(LengthText(claim.short_length()), " to ") : "",
                     LengthText(claim.length()), claim.ntk() ? ", NTK" : "");
    std::string p = FormatP(row.has_p() ? std::optional<double>(row.p()) : std::nullopt);
    if (row.has_p_adjusted()) absl::StrAppend(&p, " (", FormatP(row.p_adjusted()), ")");
    sheet.rows.push_back({claim.name(), KindText(claim),
                          row.arm_json().empty() ? claim.selected_arm() ? "selected" : ConfigurationLabel(claim.arm())
                                                 : ArmLabel(row.arm_json()),
                          !row.baseline_json().empty()         ? ArmLabel(row.baseline_json())
                          : claim.against().settings().empty() ? "baseline"
                                                               : ConfigurationLabel(claim.against()),
                          claim.metric(), length, absl::StrCat(row.n()),
                          WithInterval(row.has_estimate(), row.estimate(), row.has_low(), row.low(), row.high()), p,
                          VerdictText(row.verdict()), row.standing()});
  }
  std::map<std::string, int> said;  // by how many claims: what every one says is said once
  for (const v1::ClaimRow& row : response.claims()) {
    for (const std::string& note : row.notes()) ++said[note];
  }
  const auto shared = [&](const std::string& note) {
    return response.claims_size() > 1 && said[note] == response.claims_size();
  };
  for (const v1::ClaimRow& row : response.claims()) {
    if (!row.sentence().empty()) sheet.footer.push_back(absl::StrCat(row.claim().name(), ": ", row.sentence()));
    for (const std::string& note : row.notes()) {
      if (!shared(note)) sheet.footer.push_back(absl::StrCat(row.claim().name(), ": ", note));
    }
    if (row.has_smallest_detectable()) {
      std::string line = absl::StrCat(row.claim().name(), ": smallest detectable difference ",
                                      absl::StrFormat("%.3g", row.smallest_detectable()), " (power 80 %)");
      if (row.has_seeds_to_decide()) {
        const v1::ClaimSpec& claim = row.claim();
        absl::StrAppend(&line, "; ", row.seeds_to_decide(), " seeds would ",
                        claim.kind() == v1::EQUIVALENT
                            ? absl::StrCat("show it within the margin of ", ShortestDouble(claim.margin()),
                                           ", if there is no difference at all")
                            : absl::StrCat("decide the declared effect of ", ShortestDouble(claim.smallest_effect())));
        const int least = claim.main() ? 8 : 5;
        if (row.seeds_to_decide() < least)
          absl::StrAppend(&line, "; at least ", least, " are needed by the rule for a ", claim.main() ? "main " : "",
                          "claim");
      }
      sheet.footer.push_back(line);
    }
  }
  if (response.claims_size() > 1) {
    for (const std::string& note : response.claims(0).notes()) {
      if (shared(note)) sheet.footer.push_back(absl::StrCat("every claim: ", note));
    }
  }
  if (!response.waiting_for().empty()) sheet.footer.push_back(absl::StrCat("waits for: ", response.waiting_for()));
  if (!response.plan_sha256().empty())
    sheet.footer.push_back(absl::StrCat("plan ", response.plan_sha256(), ", hashed before the first lease"));
  return sheet;
}

Sheet LockSheet(const v1::Lock& lock) {
  Sheet sheet{.title = "selection", .columns = {{.title = "what"}, {.title = "arm"}}};
  sheet.rows.push_back(lock.arm_json().empty()
                           ? std::vector<std::string>{"nothing is selected", "the claims name their arms"}
                           : std::vector<std::string>{lock.by_hand() ? "locked by hand" : "locked by the rule",
                                                      ArmLabel(lock.arm_json())});
  if (!lock.rule_arm_json().empty()) sheet.rows.push_back({"the rule picks", ArmLabel(lock.rule_arm_json())});
  if (!lock.short_rule_arm_json().empty())
    sheet.rows.push_back(
        {"the loss at 1x alone would have picked (exploratory)", ArmLabel(lock.short_rule_arm_json())});
  if (lock.has_short_rule_regret())
    sheet.footer.push_back(
        absl::StrCat("regret of the rule at 1x: ", absl::StrFormat("%.4g", lock.short_rule_regret())));
  if (!lock.why().empty()) sheet.footer.push_back(absl::StrCat("why: ", lock.why()));
  return sheet;
}

Sheet TuningSheet(const v1::GetClaimsResponse& response) {
  Sheet sheet{.title = "tuning: mean over the tuning seeds by learning rate",
              .columns = {{.title = "arm"}, {.title = "chosen", .right = true}, {.title = "tried"}}};
  for (const v1::TunedArm& arm : response.tuning()) {
    std::vector<std::string> tries;
    for (const v1::TunedArm::Try& one : arm.tries()) {
      tries.push_back(absl::StrCat(ShortestDouble(one.learning_rate()), ": ",
                                   one.has_mean() ? absl::StrFormat("%.4f", one.mean()) : std::string("-"),
                                   one.diverged() > 0 ? absl::StrCat(" (", one.diverged(), " diverged)") : "",
                                   one.extension() ? " (beyond the grid)" : ""));
    }
    sheet.rows.push_back({ArmLabel(arm.arm_json()),
                          arm.learning_rate() > 0 ? ShortestDouble(arm.learning_rate()) : std::string("-"),
                          absl::StrJoin(tries, ", ")});
    if (!arm.note().empty()) sheet.footer.push_back(absl::StrCat(ArmLabel(arm.arm_json()), ": ", arm.note()));
  }
  return sheet;
}

Sheet GateSheet(const v1::ValidityGate& gate) {
  return {.title = absl::StrCat("validity gate: ", gate.passed() ? "passed" : "not passed"),
          .columns = {{.title = "of the baseline"}, {.title = "measured", .right = true}, {.title = "needed"}},
          .rows = {{"loss at positions T/8..T/4 less loss at 3T/4..T, 1x", absl::StrFormat("%.4f", gate.context_fall()),
                    ShortestDouble(GateBounds().context_fall)},
                   {"rise of the loss from 1x to 8x, NTK off",
                    WithInterval(true, gate.rise(), gate.has_rise_low() && gate.has_rise_high(), gate.rise_low(),
                                 gate.rise_high()),
                    absl::StrCat(ShortestDouble(GateBounds().rise), ", interval above 0")}},
          .footer = {gate.text(), absl::StrCat("jobs: ", absl::StrJoin(gate.job_ids(), ", "))}};
}

Sheet DeviationSheet(const v1::GetClaimsResponse& response) {
  Sheet sheet{.title = "deviations and amendments", .columns = {{.title = "kind"}, {.title = "what"}}};
  for (const v1::Deviation& deviation : response.deviations())
    sheet.rows.push_back({deviation.kind(), deviation.text()});
  return sheet;
}

}  // namespace

std::string VerdictText(v1::VerdictKind verdict) {
  switch (verdict) {
    case v1::SUPPORTED:
      return "supported";
    case v1::REFUTED:
      return "refuted";
    case v1::UNDECIDED:
      return "undecided";
    case v1::NOT_YET:
      return "not yet";
    default:
      return "unknown";
  }
}

std::string VerificationText(v1::Verification::Result result) {
  switch (result) {
    case v1::Verification::PENDING:
      return "pending";
    case v1::Verification::SAME:
      return "same";
    case v1::Verification::DIFFERENT:
      return "different";
    case v1::Verification::FAILED:
      return "failed";
    case v1::Verification::OTHER_DEVICE:
      return "other device";
    default:
      return "unknown";
  }
}

std::string PhaseText(v1::Phase phase) {
  switch (phase) {
    case v1::TUNING:
      return "tuning";
    case v1::SELECTING:
      return "selecting";
    case v1::CONFIRMING:
      return "confirming";
    default:
      return "";
  }
}

Report ClaimsReport(const v1::GetClaimsResponse& response) {
  Report report;
  report.records.columns = {"claim",
                            "kind",
                            "arm",
                            "baseline",
                            "metric",
                            "length",
                            "ntk",
                            "verdict",
                            "standing",
                            "sentence",
                            "n",
                            "look",
                            "estimate",
                            "low",
                            "high",
                            "family_low",
                            "family_high",
                            "p",
                            "p_adjusted",
                            "alpha",
                            "method",
                            "margin",
                            "margin_reason",
                            "smallest_detectable",
                            "seeds_to_decide",
                            "seeds",
                            "jobs",
                            "notes"};
  for (const v1::ClaimRow& row : response.claims()) {
    const v1::ClaimSpec& claim = row.claim();
    report.records.rows.push_back({Cell::Text(claim.name()),
                                   Cell::Text(claim.kind() == v1::EQUIVALENT   ? "equivalent"
                                              : claim.kind() == v1::RISES_LESS ? "rises_less"
                                                                               : "differs"),
                                   ArmCell(row.arm_json()),
                                   ArmCell(row.baseline_json()),
                                   Cell::Text(claim.metric()),
                                   Cell::Text(LengthText(claim.length())),
                                   Cell::Flag(claim.ntk()),
                                   Cell::Text(VerdictText(row.verdict())),
                                   Cell::Text(row.standing()),
                                   Cell::Text(row.sentence()),
                                   Cell::Integer(row.n()),
                                   Cell::Integer(row.look()),
                                   OptionalNumber(row.has_estimate(), row.estimate()),
                                   OptionalNumber(row.has_low(), row.low()),
                                   OptionalNumber(row.has_high(), row.high()),
                                   OptionalNumber(row.has_family_low(), row.family_low()),
                                   OptionalNumber(row.has_family_high(), row.family_high()),
                                   OptionalNumber(row.has_p(), row.p()),
                                   OptionalNumber(row.has_p_adjusted(), row.p_adjusted()),
                                   Cell::Number(row.alpha()),
                                   Cell::Text(row.method()),
                                   Cell::Number(claim.margin()),
                                   Cell::Text(claim.margin_reason()),
                                   OptionalNumber(row.has_smallest_detectable(), row.smallest_detectable()),
                                   row.has_seeds_to_decide() ? Cell::Integer(row.seeds_to_decide()) : Cell::Null(),
                                   List(row.seeds()),
                                   List(row.job_ids()),
                                   List(row.notes())});
  }
  if (response.claims_size() > 0) report.sheets.push_back(ClaimSheet(response));
  if (response.has_gate()) report.sheets.push_back(GateSheet(response.gate()));
  if (response.has_lock()) report.sheets.push_back(LockSheet(response.lock()));
  if (response.tuning_size() > 0) report.sheets.push_back(TuningSheet(response));
  if (response.deviations_size() > 0) report.sheets.push_back(DeviationSheet(response));
  return report;
}

Report EffectsReport(const v1::GetEffectsResponse& response) {
  Report report;
  report.records.columns = {"factors",     "levels", "metric", "length", "ntk",   "split",   "n",
                            "effect",      "sd",     "low",    "high",   "p",     "level",   "p_adjusted",
                            "family_size", "seeds",  "jobs",   "note",   "phase", "standing"};
  for (const v1::EffectRow& row : response.rows()) {
    report.records.rows.push_back({List(row.factors()),
                                   List(row.levels()),
                                   Cell::Text(row.metric()),
                                   Cell::Integer(row.length()),
                                   Cell::Flag(row.ntk()),
                                   Cell::Text(row.split()),
                                   Cell::Integer(row.n()),
                                   OptionalNumber(row.has_effect(), row.effect()),
                                   OptionalNumber(row.has_sd(), row.sd()),
                                   OptionalNumber(row.has_low(), row.low()),
                                   OptionalNumber(row.has_high(), row.high()),
                                   OptionalNumber(row.has_p(), row.p()),
                                   Cell::Number(row.level()),
                                   OptionalNumber(row.has_p_adjusted(), row.p_adjusted()),
                                   Cell::Integer(row.family_size()),
                                   List(row.seeds()),
                                   List(row.job_ids()),
                                   Cell::Text(row.note()),
                                   Cell::Text(PhaseName(row.phase())),
                                   Cell::Text(row.standing())});
    const std::string title =
        absl::StrCat("effects on ", row.metric(), ", length ", row.length(), ", ", row.split(), " split, NTK ",
                     row.ntk() ? "on" : "off", MarkText(response.phases(), row.phase(), row.standing()));
    if (report.sheets.empty() || report.sheets.back().title != title) {
      report.sheets.push_back(
          {.title = title,
           .columns = {{.title = "effect"},
                       {.title = "levels"},
                       {.title = "n", .right = true},
                       {.title = "estimate", .right = true},
                       {.title = "p", .right = true},
                       {.title = "Holm", .right = true}},
           .footer = {absl::StrCat("averaged over the other factors, paired by seed; ", LevelText(row.level()),
                                   " t interval; p two-sided, unadjusted; Holm: over ", row.family_size(),
                                   " effects")}});
    }
    Sheet& sheet = report.sheets.back();
    const auto number = [](bool has, double value) { return has ? std::optional<double>(value) : std::nullopt; };
    sheet.rows.push_back({absl::StrJoin(row.factors(), " x "), absl::StrJoin(row.levels(), ", "), absl::StrCat(row.n()),
                          WithInterval(row.has_effect(), row.effect(), row.has_low(), row.low(), row.high()),
                          FormatP(number(row.has_p(), row.p())),
                          FormatP(number(row.has_p_adjusted(), row.p_adjusted()))});
    if (!row.note().empty())
      sheet.footer.push_back(absl::StrCat(absl::StrJoin(row.factors(), " x "), ": ", row.note()));
  }
  return report;
}

Report SpreadReport(const v1::GetSpreadResponse& response) {
  Report report;
  report.records.columns = {"arm",          "length", "ntk",  "split", "seeds", "documents", "mean",     "sd_seeds",
                            "sd_documents", "low",    "high", "level", "note",  "phase",     "standing", "jobs"};
  Sheet sheet{.title = "loss_targets: spread over seeds and over documents",
              .columns = {{.title = "arm"},
                          {.title = "length", .right = true},
                          {.title = "split"},
                          {.title = "NTK"},
                          {.title = "seeds", .right = true},
                          {.title = "documents", .right = true},
                          {.title = "mean, two-way bootstrap", .right = true},
                          {.title = "sd by seed", .right = true},
                          {.title = "sd by document", .right = true}}};
  if (response.phases()) sheet.columns.push_back({.title = "standing"});
  std::map<std::string, std::vector<std::string>> notes;  // text -> places
  const auto short_number = [](bool has, double value) {
    return has ? absl::StrFormat("%.4f", value) : std::string("-");
  };
  for (const v1::SpreadRow& row : response.rows()) {
    report.records.rows.push_back(
        {ArmCell(row.arm_json()), Cell::Integer(row.length()), Cell::Flag(row.ntk()), Cell::Text(row.split()),
         Cell::Integer(row.seeds()), Cell::Integer(row.documents()), OptionalNumber(row.has_mean(), row.mean()),
         OptionalNumber(row.has_sd_seeds(), row.sd_seeds()), OptionalNumber(row.has_sd_documents(), row.sd_documents()),
         OptionalNumber(row.has_low(), row.low()), OptionalNumber(row.has_high(), row.high()),
         Cell::Number(row.level()), Cell::Text(row.note()), Cell::Text(PhaseName(row.phase())),
         Cell::Text(row.standing()), List(row.job_ids())});
    sheet.rows.push_back({ArmLabel(row.arm_json()), absl::StrCat(row.length()), row.split(), row.ntk() ? "on" : "off",
                          absl::StrCat(row.seeds()), absl::StrCat(row.documents()),
                          WithInterval(row.has_mean(), row.mean(), row.has_low(), row.low(), row.high()),
                          short_number(row.has_sd_seeds(), row.sd_seeds()),
                          short_number(row.has_sd_documents(), row.sd_documents())});
    if (response.phases()) {
      const std::string phase = PhaseText(row.phase());
      sheet.rows.back().push_back(absl::StrCat(phase, phase.empty() ? "" : ": ", row.standing()));
    }
    // Of one note the numbers differ from row to row: it is said once, with those of its first row.
    if (!row.note().empty()) {
      notes[WithoutNumbers(row.note())].push_back(
          absl::StrCat(ArmLabel(row.arm_json()), ", length ", row.length(), ": ", row.note()));
    }
  }
  for (const auto& [text, lines] : notes) {
    sheet.footer.push_back(lines.size() == 1 ? lines.front()
                                             : absl::StrCat(lines.front(), " (and the like of ", lines.size() - 1,
                                                            " other rows: see -o json)"));
  }
  if (!sheet.rows.empty()) report.sheets.push_back(std::move(sheet));
  return report;
}

Report VerificationsReport(const v1::ListVerificationsResponse& response) {
  Report report;
  report.records.columns = {"job", "verify_job", "result", "difference", "device"};
  for (const v1::Verification& one : response.verifications()) {
    report.records.rows.push_back({Cell::Text(one.job_id()), Cell::Text(one.verify_job_id()),
                                   Cell::Text(VerificationText(one.result())), Cell::Text(one.difference()),
                                   Cell::Text(one.device_kind())});
  }
  return report;
}

}  // namespace ablate
