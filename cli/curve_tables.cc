#include "cli/curve_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "cli/result_tables.h"
#include "experiments/table.h"

namespace ablate {
namespace {

constexpr int kWordSeeds = 10;  // more seeds than this, and a cell is a letter

// The first letter tells words apart, but for two.
std::string Letter(const std::string& word) {
  if (word == "diverged") return "V";
  if (word.find('%') != std::string::npos) return "R";
  return std::string(1, absl::ascii_toupper(static_cast<unsigned char>(word[0])));
}

std::string ArmJsonCell(const std::string& json) { return json.empty() ? "{}" : json; }

std::string PhaseTitle(v1::Phase phase) {
  const std::string text = PhaseText(phase);
  return text.empty() ? "" : absl::StrCat(", ", text);
}

std::string Number(double value) { return std::isfinite(value) ? absl::StrFormat("%.5g", value) : ShortestDouble(value); }

using Group = std::pair<v1::Phase, std::string>;  // phase and metric

}  // namespace

std::string CellWord(const v1::GetGridResponse::Cell& cell) {
  if (cell.sealed()) return "sealed";
  switch (cell.state()) {
    case v1::SUCCEEDED:
      return cell.diverged() ? "diverged" : "done";
    case v1::RUNNING:
      if (cell.steps() > 0 && cell.step() < cell.steps()) {
        return absl::StrCat(static_cast<int64_t>(100.0 * static_cast<double>(cell.step()) / static_cast<double>(cell.steps())),
                            " %");
      }
      return "running";
    default:
      return absl::AsciiStrToLower(v1::JobState_Name(cell.state()));
  }
}

Report GridReport(const std::string& sweep, const v1::GetGridResponse& response) {
  Report report;
  report.records.columns = {"sweep",    "arm",  "arm_label", "baseline", "seed",  "phase", "state", "sealed",
                            "diverged", "jobs_done", "jobs",  "step",     "steps", "job",   "failure"};
  std::map<v1::Phase, std::vector<const v1::GetGridResponse::Cell*>> phases;
  for (const v1::GetGridResponse::Cell& cell : response.cells()) {
    const v1::GetGridResponse::Arm& arm = response.arms(cell.arm());
    const std::string phase = PhaseText(cell.phase());
    report.records.rows.push_back(
        {Cell::Text(sweep), Cell::Json(ArmJsonCell(arm.arm_json())), Cell::Text(arm.label()), Cell::Flag(arm.baseline()),
         Cell::Integer(cell.seed()), Cell::Text(phase.empty() ? "plain" : phase),
         Cell::Text(v1::JobState_Name(cell.state())), Cell::Flag(cell.sealed()), Cell::Flag(cell.diverged()),
         Cell::Integer(cell.jobs_done()), Cell::Integer(cell.jobs()), Cell::Integer(cell.step()),
         Cell::Integer(cell.steps()), Cell::Text(cell.job_id()),
         Cell::Text(cell.failure() == v1::FAILURE_KIND_UNSPECIFIED
                        ? ""
                        : absl::AsciiStrToLower(v1::FailureKind_Name(cell.failure())))});
    phases[cell.phase()].push_back(&cell);
  }
  for (const auto& [phase, cells] : phases) {
    std::map<int64_t, size_t> column_of;  // by seed
    for (const auto* cell : cells) column_of[cell->seed()] = 0;
    const bool words = static_cast<int>(column_of.size()) <= kWordSeeds;
    Sheet sheet;
    sheet.title = absl::StrCat(sweep, PhaseTitle(phase), ": ", words ? "arms by seeds" : "arms by seeds, a letter a seed");
    sheet.columns.push_back({.title = "arm"});
    for (auto& [seed, column] : column_of) {
      column = sheet.columns.size();
      sheet.columns.push_back({.title = absl::StrCat(words ? "seed " : "", seed)});
    }
    std::map<std::string, std::string> letters;  // word -> letter, of those that are there
    int last_arm = -1;
    for (const auto* cell : cells) {
      if (cell->arm() != last_arm) {
        const v1::GetGridResponse::Arm& arm = response.arms(cell->arm());
        sheet.rows.emplace_back(sheet.columns.size());
        sheet.rows.back()[0] = absl::StrCat(ArmLabel(arm.arm_json()), arm.baseline() ? " (baseline)" : "");
        last_arm = cell->arm();
      }
      const std::string word = CellWord(*cell);
      sheet.rows.back()[column_of[cell->seed()]] = words ? word : Letter(word);
      letters[word.find('%') == std::string::npos ? word : "running"] = Letter(word);
    }
    if (!words) {
      std::vector<std::string> meanings;
      for (const auto& [word, letter] : letters) meanings.push_back(absl::StrCat(letter, " ", word));
      sheet.footer.push_back(absl::StrJoin(meanings, ", "));
    }
    report.sheets.push_back(std::move(sheet));
  }
  return report;
}

Report CurvesReport(const std::string& sweep, const v1::GetCurvesResponse& response) {
  Report report;
  report.records.columns = {"sweep", "arm", "arm_label", "seed", "phase", "metric", "step", "value"};
  std::map<Group, Sheet> sheets;
  for (const v1::Curve& curve : response.curves()) {
    const std::string phase = PhaseText(curve.phase());
    for (int i = 0; i < curve.steps_size(); ++i) {
      report.records.rows.push_back({Cell::Text(sweep), Cell::Json(ArmJsonCell(response.arms_json(curve.arm()))),
                                     Cell::Text(response.arm_labels(curve.arm())), Cell::Integer(curve.seed()),
                                     Cell::Text(phase.empty() ? "plain" : phase), Cell::Text(curve.metric()),
                                     Cell::Integer(curve.steps(i)), Cell::Number(curve.values(i))});
    }
    Sheet& sheet = sheets[{curve.phase(), curve.metric()}];
    if (sheet.columns.empty()) {
      sheet.title = absl::StrCat(sweep, ": ", curve.metric(), PhaseTitle(curve.phase()));
      sheet.columns = {{.title = "arm"},
                       {.title = "seed", .right = true},
                       {.title = "points", .right = true},
                       {.title = "first", .right = true},
                       {.title = "lowest", .right = true},
                       {.title = "at step", .right = true},
                       {.title = "last", .right = true},
                       {.title = "at step", .right = true},
                       {.title = ""}};
    }
    std::vector<std::string> row = {ArmLabel(response.arms_json(curve.arm())), absl::StrCat(curve.seed()),
                                    absl::StrCat(curve.stored_points())};
    const int size = curve.steps_size();
    int lowest = -1;
    for (int i = 0; i < size; ++i) {
      if (std::isfinite(curve.values(i)) && (lowest < 0 || curve.values(i) < curve.values(lowest))) lowest = i;
    }
    row.push_back(size == 0 ? "" : Number(curve.values(0)));
    row.push_back(lowest < 0 ? "" : Number(curve.values(lowest)));
    row.push_back(lowest < 0 ? "" : absl::StrCat(curve.steps(lowest)));
    row.push_back(size == 0 ? "" : Number(curve.values(size - 1)));
    row.push_back(size == 0 ? "" : absl::StrCat(curve.steps(size - 1)));
    row.push_back(curve.diverged_at_step() > 0 ? absl::StrCat("diverged at step ", curve.diverged_at_step())
                  : size == 0                  ? "nothing recorded"
                                               : "");
    sheet.rows.push_back(std::move(row));
  }
  for (auto& [group, sheet] : sheets) report.sheets.push_back(std::move(sheet));
  return report;
}

Report MeanCurvesReport(const std::string& sweep, const v1::GetCurvesResponse& response) {
  Report report;
  report.records.columns = {"sweep", "arm", "arm_label", "phase", "metric", "step", "n",
                            "mean",  "low", "high",      "level", "method", "seeds"};
  const auto bound = [](double value) { return std::isnan(value) ? Cell::Null() : Cell::Number(value); };
  std::map<Group, Sheet> sheets;
  for (const v1::MeanCurve& mean : response.means()) {
    const std::string phase = PhaseText(mean.phase());
    const std::string seeds = JsonList(std::vector<int64_t>(mean.seeds().begin(), mean.seeds().end()));
    for (int i = 0; i < mean.steps_size(); ++i) {
      report.records.rows.push_back({Cell::Text(sweep), Cell::Json(ArmJsonCell(response.arms_json(mean.arm()))),
                                     Cell::Text(response.arm_labels(mean.arm())), Cell::Text(phase.empty() ? "plain" : phase),
                                     Cell::Text(mean.metric()), Cell::Integer(mean.steps(i)), Cell::Integer(mean.n(i)),
                                     Cell::Number(mean.means(i)), bound(mean.lows(i)), bound(mean.highs(i)),
                                     Cell::Number(response.level()), Cell::Text(response.method()), Cell::Json(seeds)});
    }
    Sheet& sheet = sheets[{mean.phase(), mean.metric()}];
    if (sheet.columns.empty()) {
      sheet.title = absl::StrCat(sweep, ": ", mean.metric(), PhaseTitle(mean.phase()), ", mean over seeds");
      sheet.columns = {{.title = "arm"},
                       {.title = "seeds", .right = true},
                       {.title = "points", .right = true},
                       {.title = "at the last step", .right = true},
                       {.title = "n", .right = true},
                       {.title = "step", .right = true}};
      sheet.footer.push_back(absl::StrCat("± half of Student's t interval at ", ShortestDouble(response.level() * 100),
                                          " %; none with one seed, or where all agree"));
    }
    const int last = mean.steps_size() - 1;
    if (last < 0) continue;
    const bool has = !std::isnan(mean.lows(last)) && !std::isnan(mean.highs(last));
    const int decimals = DecimalsFor(has ? (mean.highs(last) - mean.lows(last)) / 2 : 0);
    sheet.rows.push_back(
        {ArmLabel(response.arms_json(mean.arm())), absl::StrCat(mean.seeds_size()), absl::StrCat(mean.steps_size()),
         FormatMeanInterval(mean.means(last), has ? std::optional(mean.lows(last)) : std::nullopt,
                            has ? std::optional(mean.highs(last)) : std::nullopt, decimals),
         absl::StrCat(mean.n(last)), absl::StrCat(mean.steps(last))});
  }
  for (auto& [group, sheet] : sheets) report.sheets.push_back(std::move(sheet));
  return report;
}

}  // namespace ablate
