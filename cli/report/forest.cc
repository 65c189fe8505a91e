// Forest plots: estimates with intervals, one below the other.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "cli/output/report.h"
#include "cli/report/figures.h"
#include "cli/report/panel.h"
#include "cli/result_tables.h"
#include "experiments/table.h"

namespace ablate {
namespace {

struct ForestRow {
  std::string label;
  bool heading = false;
  std::optional<double> estimate, low, high, outer_low, outer_high;
  double margin = 0;    // shaded around 0; 0: none
  std::string numbers;  // at the right
  std::string tooltip;
};

std::string DrawForest(const std::vector<ForestRow>& rows, const std::string& title, const std::string& x_label,
                       std::vector<std::string> footer) {
  constexpr double kRow = 18, kTop = 44, kWidth = 330;
  double labels = 80, numbers = 60;
  std::vector<double> values;
  for (const ForestRow& row : rows) {
    labels = std::max(labels, Svg::TextWidth(row.label, row.heading ? 12 : 11));
    numbers = std::max(numbers, Svg::TextWidth(row.numbers, 10));
    for (const auto& value : {row.estimate, row.low, row.high, row.outer_low, row.outer_high}) {
      if (value) values.push_back(*value);
    }
  }
  int off = 0;
  Range range = RobustRange(std::move(values), &off);
  range.Take(0);
  for (const ForestRow& row : rows) {
    if (row.margin <= 0) continue;
    range.Take(row.margin);
    range.Take(-row.margin);
  }
  range = range.Padded(0.06);
  if (off > 0)
    footer.push_back(
        "what is beyond the axis ends at its edge with an open triangle; the numbers at the right are whole");
  const double left = labels + 24, height = kRow * static_cast<double>(rows.size()) + 10;
  const double footer_top = kTop + height + 54;
  Svg svg(left + kWidth + numbers + 34, footer_top + 14 * static_cast<double>(footer.size()) + 4);
  svg.Text({12, 24}, title, Svg::Anchor::kStart, 13, true);
  Panel panel(&svg, left, kTop, kWidth, height, {.low = range.low, .high = range.high}, {.low = 0, .high = 1});
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = kTop + 14 + kRow * static_cast<double>(i);
    if (rows[i].margin > 0) {
      const double a = panel.At(-rows[i].margin, 0).x, b = panel.At(rows[i].margin, 0).x;
      svg.Polygon({{a, y - kRow / 2}, {b, y - kRow / 2}, {b, y + kRow / 2}, {a, y + kRow / 2}}, "#56B4E9", 0.2);
    }
  }
  panel.Axes(panel.RoundTicks(true, 6), {}, x_label, "", "");
  const double zero = panel.At(0, 0).x;
  svg.Line({zero, panel.top()}, {zero, panel.bottom()}, "#000000", 1.2, "3,3");
  for (size_t i = 0; i < rows.size(); ++i) {
    const ForestRow& row = rows[i];
    const double y = kTop + 14 + kRow * static_cast<double>(i);
    svg.Text({12, y + 4}, row.label, Svg::Anchor::kStart, row.heading ? 12 : 11, row.heading);
    svg.Text({panel.right() + 10, y + 3.5}, row.numbers, Svg::Anchor::kStart, 10);
    const auto x = [&](double value) { return panel.At(value, 0).x; };
    if (row.outer_low && row.outer_high) {
      svg.Line({x(*row.outer_low), y}, {x(*row.outer_high), y}, "#000000", 0.9);
      for (const double end : {*row.outer_low, *row.outer_high})
        svg.Line({x(end), y - 3}, {x(end), y + 3}, "#000000", 0.9);
    }
    if (row.low && row.high) svg.Line({x(*row.low), y}, {x(*row.high), y}, "#0072B2", 3);
    bool below = false, above = false;
    for (const auto& value : {row.estimate, row.low, row.high, row.outer_low, row.outer_high}) {
      below |= value && *value < range.low;
      above |= value && *value > range.high;
    }
    if (below) svg.Triangle({{panel.left(), y}, {panel.left() + 7, y - 4}, {panel.left() + 7, y + 4}}, "#000000", "");
    if (above)
      svg.Triangle({{panel.right(), y}, {panel.right() - 7, y - 4}, {panel.right() - 7, y + 4}}, "#000000", "");
    if (row.estimate && *row.estimate >= range.low && *row.estimate <= range.high)
      svg.Marker(row.low ? 1 : 0, {x(*row.estimate), y}, 3.6, "#000000", 1, row.tooltip);
  }
  double y = footer_top;
  for (const std::string& line : footer) {
    svg.Text({12, y}, line, Svg::Anchor::kStart, 10);
    y += 14;
  }
  return svg.Finish(title, absl::StrJoin(footer, "; "));
}

template <typename Row>
std::optional<double> Opt(const Row& row, bool (Row::*has)() const, double (Row::*get)() const) {
  return (row.*has)() ? std::optional<double>((row.*get)()) : std::nullopt;
}

// Decimals for all rows of a figure, by the median half-width: a column is read at a glance only if its points line up.
template <typename Rows>
int DecimalsOf(const Rows& rows) {
  std::vector<double> half_widths;
  for (const auto& row : rows) {
    if (row.has_low() && row.has_high()) half_widths.push_back((row.high() - row.low()) / 2);
  }
  if (half_widths.empty()) return 4;
  const auto median = half_widths.begin() + static_cast<ptrdiff_t>(half_widths.size() / 2);
  std::nth_element(half_widths.begin(), median, half_widths.end());
  return DecimalsFor(*median);
}

std::string Numbers(std::optional<double> estimate, std::optional<double> low, std::optional<double> high, int64_t n,
                    int decimals) {
  if (!estimate) return absl::StrCat("no value, n = ", n);
  std::string text = absl::StrFormat("%.*f", decimals, *estimate);
  if (low) absl::StrAppend(&text, absl::StrFormat(" [%.*f, %.*f]", decimals, *low, decimals, *high));
  return absl::StrCat(text, ", n = ", n);
}

// "selection split, confirming seeds, NTK off"; for a file's name "selection-confirming".
std::string ViewText(const std::string& split, v1::Phase phase, bool ntk) {
  const std::string word = PhaseText(phase);
  return absl::StrCat(split, " split", word.empty() ? "" : absl::StrCat(", ", word, " seeds"),
                      ntk ? ", NTK on" : ", NTK off");
}
std::string ViewName(const std::string& split, v1::Phase phase, bool ntk) {
  const std::string word = PhaseText(phase);
  return absl::StrCat(split, word.empty() ? "" : "-", word, ntk ? "-ntk" : "");
}

std::string Percent(const std::set<double>& levels) {
  std::vector<std::string> texts;
  for (const double level : levels) texts.push_back(ShortestDouble(level * 100));
  return absl::StrCat(absl::StrJoin(texts, "/"), " %");
}

}  // namespace

std::vector<Figure> DifferenceForests(const std::vector<v1::ComparisonRow>& rows, const std::string& metric) {
  using Key = std::tuple<std::string, v1::Phase, bool>;
  std::map<Key, std::map<int64_t, std::vector<const v1::ComparisonRow*>>> views;
  for (const v1::ComparisonRow& row : rows) {
    if (row.metric() != metric || row.split() == "train" || row.phase() == v1::TUNING) continue;
    views[{row.split(), row.phase(), row.ntk()}][row.length()].push_back(&row);
  }
  const int decimals = DecimalsOf(rows);
  std::vector<Figure> figures;
  for (const auto& [key, lengths] : views) {
    const auto& [split, phase, ntk] = key;
    std::vector<ForestRow> forest;
    std::set<double> levels;
    std::set<std::string> baselines;
    int64_t diverged = 0;
    for (const auto& [length, cells] : lengths) {
      forest.push_back({.label = absl::StrCat("length ", length), .heading = true});
      for (const v1::ComparisonRow* row : cells) {
        using Row = v1::ComparisonRow;
        ForestRow line{.label = absl::StrCat("  ", ArmLabel(row->arm_json())),
                       .estimate = Opt(*row, &Row::has_difference, &Row::difference),
                       .low = Opt(*row, &Row::has_low, &Row::low),
                       .high = Opt(*row, &Row::has_high, &Row::high)};
        line.numbers = Numbers(line.estimate, line.low, line.high, row->n(), decimals);
        if (!row->diverged_seeds().empty())
          absl::StrAppend(&line.numbers, ", ", row->diverged_seeds_size(), " diverged");
        line.tooltip =
            absl::StrCat(ArmLabel(row->arm_json()), " - ", ArmLabel(row->baseline_json()), ", ", line.numbers);
        levels.insert(row->level());
        baselines.insert(ArmLabel(row->baseline_json()));
        diverged += row->diverged_seeds_size();
        forest.push_back(std::move(line));
      }
    }
    const std::string title =
        absl::StrCat(metric, ", difference from ", absl::StrJoin(baselines, " / "), ": ", ViewText(split, phase, ntk));
    std::vector<std::string> footer = {
        absl::StrCat("mean paired difference, arm minus baseline, same seed, with the ", Percent(levels),
                     " paired t interval; unadjusted"),
        "left of 0: lower than the baseline; a dot without a line: one pair, no interval"};
    if (diverged > 0) footer.push_back("diverged seeds are not in the mean (survivors only)");
    figures.push_back({absl::StrCat("differences-", ViewName(split, phase, ntk)),
                       absl::StrCat(title, "; ", footer[0], "."),
                       DrawForest(forest, title, "difference (nats)", footer)});
  }
  return figures;
}

std::optional<Figure> ClaimsForest(const std::vector<v1::ClaimRow>& claims) {
  std::vector<ForestRow> forest;
  static const std::map<v1::VerdictKind, std::string> kWords = {
      {v1::SUPPORTED, "supported"}, {v1::REFUTED, "refuted"}, {v1::UNDECIDED, "undecided"}, {v1::NOT_YET, "not yet"}};
  const int decimals = DecimalsOf(claims);
  bool any = false;
  for (const v1::ClaimRow& row : claims) {
    using Row = v1::ClaimRow;
    ForestRow line{.label = row.claim().name(),
                   .estimate = Opt(row, &Row::has_estimate, &Row::estimate),
                   .low = Opt(row, &Row::has_low, &Row::low),
                   .high = Opt(row, &Row::has_high, &Row::high),
                   .outer_low = Opt(row, &Row::has_family_low, &Row::family_low),
                   .outer_high = Opt(row, &Row::has_family_high, &Row::family_high),
                   .margin = row.claim().margin()};
    any |= line.estimate.has_value();
    const auto word = kWords.find(row.verdict());
    line.numbers = absl::StrCat(word == kWords.end() ? "?" : word->second, "; ",
                                Numbers(line.estimate, line.low, line.high, row.n(), decimals));
    line.tooltip = row.sentence();
    forest.push_back(std::move(line));
  }
  if (!any) return std::nullopt;
  const std::string title = "Claims: estimates and verdicts";
  const std::vector<std::string> footer = {
      "thick: the plain interval; thin with caps: simultaneous over the family (Bonferroni); shaded: the declared "
      "margin",
      "of `rises_less` the estimate is the difference of rises"};
  return Figure{"claims", absl::StrCat(title, "; ", footer[0], "."),
                DrawForest(forest, title, "estimate (in the metric's unit)", footer)};
}

std::vector<Figure> EffectForests(const std::vector<v1::EffectRow>& rows) {
  using Key = std::tuple<std::string, std::string, v1::Phase, bool>;
  std::map<Key, std::map<int64_t, std::vector<const v1::EffectRow*>>> views;
  for (const v1::EffectRow& row : rows)
    views[{row.metric(), row.split(), row.phase(), row.ntk()}][row.length()].push_back(&row);
  const int decimals = DecimalsOf(rows);
  std::vector<Figure> figures;
  for (auto& [key, lengths] : views) {
    const auto& [metric, split, phase, ntk] = key;
    std::vector<ForestRow> forest;
    std::set<double> levels;
    for (auto& [length, cells] : lengths) {
      std::stable_sort(cells.begin(), cells.end(),
                       [](const auto* a, const auto* b) { return a->factors_size() < b->factors_size(); });
      forest.push_back({.label = absl::StrCat("length ", length), .heading = true});
      for (const v1::EffectRow* row : cells) {
        using Row = v1::EffectRow;
        ForestRow line{
            .label = absl::StrCat("  ", absl::StrJoin(row->factors(), " x "), ": ", absl::StrJoin(row->levels(), ", ")),
            .estimate = Opt(*row, &Row::has_effect, &Row::effect),
            .low = Opt(*row, &Row::has_low, &Row::low),
            .high = Opt(*row, &Row::has_high, &Row::high)};
        line.numbers = Numbers(line.estimate, line.low, line.high, row->n(), decimals);
        line.tooltip = absl::StrCat("jobs ", absl::StrJoin(row->job_ids(), " "));
        levels.insert(row->level());
        forest.push_back(std::move(line));
      }
    }
    const std::string title = absl::StrCat("Effects on ", metric, ": ", ViewText(split, phase, ntk));
    const std::vector<std::string> footer = {
        absl::StrCat("main effects and two-way interactions, averaged over the other factors, paired by seed; ",
                     Percent(levels), " t interval, unadjusted")};
    figures.push_back({absl::StrCat("effects-", metric, "-", ViewName(split, phase, ntk)),
                       absl::StrCat(title, "; ", footer[0], "."), DrawForest(forest, title, "effect (nats)", footer)});
  }
  return figures;
}

}  // namespace ablate
