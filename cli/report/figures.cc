#include "cli/report/figures.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "cli/output/report.h"
#include "cli/report/panel.h"
#include "cli/result_tables.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"
#include "experiments/table.h"

namespace ablate {
namespace {

constexpr char kGrey[] = "#b8b8b8";

// What is drawn into one figure: cells of one split, phase and NTK setting.
struct View {
  std::string split;
  v1::Phase phase = v1::PLAIN;
  bool ntk = false;
  auto operator<=>(const View&) const = default;
};

std::string NameOf(const std::string& kind, const View& view) {
  const std::string phase = PhaseText(view.phase);
  return absl::StrCat(kind, "-", view.split, phase.empty() ? "" : "-", phase, view.ntk ? "-ntk" : "");
}
std::string TextOf(const View& view) {
  const std::string phase = PhaseText(view.phase);
  return absl::StrCat(SplitText(view.split), phase.empty() ? "" : absl::StrCat(", ", phase, " seeds"),
                      view.ntk ? ", NTK on" : ", NTK off");
}

template <typename Row>
std::set<View> ViewsOf(const std::vector<Row>& rows, const std::string& metric) {
  std::set<View> views;
  for (const Row& row : rows) {
    if (row.metric() == metric && row.split() != "train" && row.phase() != v1::TUNING)
      views.insert({row.split(), row.phase(), row.ntk()});
  }
  return views;
}

using Cells = std::map<std::pair<std::string, int64_t>, const v1::ConfidenceRow*>;  // (arm, length)

// The cells of a view, and the arms in the order of the table. With NTK on, lengths at which it cannot act are those of
// NTK off.
struct ViewData {
  Cells cells;
  std::vector<std::string> arms;
  std::set<int64_t> lengths;
};
ViewData DataOf(const std::vector<v1::ConfidenceRow>& rows, const std::string& metric, const View& view) {
  ViewData data;
  for (const bool ntk : {true, false}) {
    if (ntk && !view.ntk) continue;
    for (const v1::ConfidenceRow& row : rows) {
      if (row.metric() != metric || row.split() != view.split || row.phase() != view.phase || row.ntk() != ntk)
        continue;
      if (!row.has_mean() && row.diverged_seeds().empty()) continue;
      data.cells.emplace(std::pair(row.arm_json(), row.length()), &row);
    }
  }
  for (const v1::ConfidenceRow& row : rows) {
    if (!data.cells.contains({row.arm_json(), row.length()})) continue;
    data.lengths.insert(row.length());
    if (std::find(data.arms.begin(), data.arms.end(), row.arm_json()) == data.arms.end())
      data.arms.push_back(row.arm_json());
  }
  return data;
}

std::string SeedCounts(const std::set<int64_t>& counts) {
  if (counts.empty()) return "n = 0";
  if (counts.size() == 1) return absl::StrCat("n = ", *counts.begin(), " seeds");
  return absl::StrCat("n = ", *counts.begin(), " to ", *counts.rbegin(), " seeds");
}

// "mean over n = 5 seeds with the 95 % Student t interval"
std::string StatisticText(const ViewData& data) {
  std::set<int64_t> counts;
  std::set<std::string> levels;
  for (const auto& [key, row] : data.cells) {
    counts.insert(row->n());
    levels.insert(ShortestDouble(row->level() * 100));
  }
  return absl::StrCat("mean, ", SeedCounts(counts), ", with the ", absl::StrJoin(levels, "/"),
                      " % Student t interval over seeds; faint dots beside it are single seeds");
}

// "lssar p=50 at 1024: 2 seeds diverged"; the first few.
std::vector<std::string> TroubleOf(const ViewData& data) {
  std::vector<std::string> lines;
  for (const std::string& arm : data.arms) {
    std::set<int64_t> diverged, missing;
    for (const auto& [key, row] : data.cells) {
      if (key.first != arm) continue;
      diverged.insert(row->diverged_seeds().begin(), row->diverged_seeds().end());
      missing.insert(row->missing_seeds().begin(), row->missing_seeds().end());
    }
    std::vector<std::string> parts;
    if (!diverged.empty()) parts.push_back(absl::StrCat(diverged.size(), " diverged (not in the mean)"));
    if (!missing.empty()) parts.push_back(absl::StrCat(missing.size(), " missing"));
    if (!parts.empty()) lines.push_back(absl::StrCat(ArmLabel(arm), ": ", absl::StrJoin(parts, ", ")));
  }
  constexpr size_t kMost = 4;
  if (lines.size() > kMost) {
    const size_t more = lines.size() - kMost;
    lines.resize(kMost);
    lines.push_back(absl::StrCat("and ", more, " more arms with diverged or missing seeds"));
  }
  return lines;
}

std::string Tooltip(const v1::ConfidenceRow& row) {
  std::string text = absl::StrCat(ArmLabel(row.arm_json()), ", length ", row.length(), ": ",
                                  absl::StrFormat("%.6g", row.mean()), ", n = ", row.n());
  if (row.has_low())
    absl::StrAppend(&text, ", ", absl::StrFormat("%.6g", row.low()), " to ", absl::StrFormat("%.6g", row.high()));
  return absl::StrCat(text, "; jobs ", absl::StrJoin(row.job_ids(), " "));
}

Panel::Mark MarkOf(double x, const v1::ConfidenceRow& row) {
  Panel::Mark mark{.x = x, .y = row.mean(), .tooltip = Tooltip(row)};
  if (row.has_low() && row.has_high()) {
    mark.low = row.low();
    mark.high = row.high();
  }
  return mark;
}

std::vector<Panel::Mark> MarksByLength(const ViewData& data, const std::string& arm) {
  std::vector<Panel::Mark> marks;
  for (const int64_t length : data.lengths) {
    const auto cell = data.cells.find({arm, length});
    if (cell != data.cells.end() && cell->second->has_mean())
      marks.push_back(MarkOf(static_cast<double>(length), *cell->second));
  }
  return marks;
}

bool Shows(const View& view, const ViewData& data, const SeedValue& seed, const std::string& metric) {
  if (seed.metric != metric || seed.split != view.split || seed.phase != view.phase || !seed.value) return false;
  const auto cell = data.cells.find({seed.arm_json, seed.length});
  return cell != data.cells.end() && cell->second->ntk() == seed.ntk;
}

void TakeRow(const v1::ConfidenceRow& row, std::vector<double>* values) {
  if (!row.has_mean()) return;
  values->push_back(row.mean());
  if (row.has_low()) values->push_back(row.low());
  if (row.has_high()) values->push_back(row.high());
}

// `off`: how many values are beyond it.
Range ValuesOf(const View& view, const ViewData& data, const std::vector<SeedValue>& seeds, const std::string& metric,
               int* off) {
  std::vector<double> values;
  for (const auto& [key, row] : data.cells) TakeRow(*row, &values);
  for (const SeedValue& seed : seeds) {
    if (Shows(view, data, seed, metric)) values.push_back(*seed.value);
  }
  return RobustRange(std::move(values), off).Padded(0.05);
}

std::string OffText(int off) {
  return absl::StrCat(Counted(off, "value"),
                      " (means, ends of intervals, seeds) so far off lie at the edge, means as open "
                      "triangles; the tables have them");
}

// Beside the mean's place: on it, the interval would hide them.
Svg::Point Beside(Svg::Point at) { return {at.x + 5, at.y}; }

// More bands than these in one panel merge to grey in print.
constexpr size_t kMostInOnePanel = 5;

// Parts of the labels of arms, and those that all of them share.
struct Labels {
  std::vector<std::vector<std::string>> own;
  std::vector<std::string> shared;
};
Labels LabelsOf(const std::vector<std::string>& arms) {
  Labels labels;
  for (const std::string& arm : arms) labels.own.push_back(absl::StrSplit(ArmLabel(arm), ' '));
  const std::vector<std::string> first = labels.own.empty() ? std::vector<std::string>{} : labels.own[0];
  for (const std::string& part : first) {
    const auto has = [&](const auto& own) { return std::find(own.begin(), own.end(), part) != own.end(); };
    if (arms.size() > 1 && std::all_of(labels.own.begin(), labels.own.end(), has)) labels.shared.push_back(part);
  }
  for (auto& own : labels.own) {
    std::erase_if(own, [&](const std::string& part) {
      return std::find(labels.shared.begin(), labels.shared.end(), part) != labels.shared.end();
    });
  }
  return labels;
}

// Parts in two lines of `width` columns.
std::array<std::string, 2> InTwoLines(const std::vector<std::string>& parts, size_t width) {
  std::array<std::string, 2> lines;
  size_t line = 0;
  for (const std::string& part : parts) {
    if (line == 0 && !lines[0].empty() && DisplayWidth(lines[0]) + 1 + DisplayWidth(part) > width) line = 1;
    absl::StrAppend(&lines[line], lines[line].empty() ? "" : " ", part);
  }
  for (std::string& text : lines) text = Shortened(text, width);
  return lines;
}

Scale LengthScale(const ViewData& data) {
  const double low = static_cast<double>(*data.lengths.begin()), high = static_cast<double>(*data.lengths.rbegin());
  return {.low = low / 1.15, .high = high * 1.15, .log = true};
}

std::vector<Tick> TicksAt(const std::set<double>& values) {
  std::vector<Tick> ticks;
  for (const double value : values) ticks.push_back({value, ShortestDouble(value)});
  return ticks;
}
std::vector<Tick> LengthTicks(const ViewData& data) { return TicksAt({data.lengths.begin(), data.lengths.end()}); }

// Moves wanted places apart until neighbours are `gap` away from each other.
void Spread(std::vector<double>* places, double gap) {
  std::vector<size_t> order(places->size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (*places)[a] < (*places)[b]; });
  for (int round = 0; round < 200; ++round) {
    bool moved = false;
    for (size_t i = 1; i < order.size(); ++i) {
      double &above = (*places)[order[i - 1]], &below = (*places)[order[i]];
      const double lack = gap - (below - above);
      if (lack <= 1e-6) continue;
      above -= lack / 2;
      below += lack / 2;
      moved = true;
    }
    if (!moved) return;
  }
}

// The lines under a figure, from `top` on; returns where they end.
double Footer(Svg* svg, double left, double top, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    svg->Text({left, top}, line, Svg::Anchor::kStart, 10);
    top += 14;
  }
  return top;
}

Figure OnePanelByLength(const View& view, const ViewData& data, const std::vector<SeedValue>& seeds,
                        const std::string& metric, const std::string& baseline) {
  double label_width = 0;
  for (const std::string& arm : data.arms) label_width = std::max(label_width, Svg::TextWidth(ArmLabel(arm), 11));
  const std::vector<std::string> trouble = TroubleOf(data);
  int off = 0;
  const Range range = ValuesOf(view, data, seeds, metric, &off);
  const double left = Panel::LeftMargin(range, 6), top = 40, width = 470, height = 330;
  const double right = std::max(label_width + 90, 150.0), footer_top = top + height + 54;
  Svg svg(left + width + right, footer_top + 14 * static_cast<double>(2 + trouble.size()) + 4);
  Panel panel(&svg, left, top, width, height, LengthScale(data), {.low = range.low, .high = range.high});
  const std::string title = absl::StrCat(metric, " by evaluation length: ", TextOf(view));
  panel.Axes(LengthTicks(data), panel.RoundTicks(false, 6), "evaluation length (tokens, log scale)",
             absl::StrCat(metric, " (nats)"), title);
  std::vector<double> places;
  std::vector<Svg::Point> ends;
  for (size_t i = 0; i < data.arms.size(); ++i) {
    const LineStyle style = StyleOf(i);
    for (const SeedValue& seed : seeds) {
      if (seed.arm_json == data.arms[i] && Shows(view, data, seed, metric))
        svg.Marker(style.marker, Beside(panel.At(static_cast<double>(seed.length), *seed.value)), 1.6, style.colour,
                   0.5);
    }
    const std::vector<Panel::Mark> marks = MarksByLength(data, data.arms[i]);
    panel.Series(marks, style, data.arms[i] == baseline, true);
    ends.push_back(marks.empty() ? Svg::Point{panel.right(), panel.bottom()}
                                 : panel.At(marks.back().x, marks.back().y));
    places.push_back(ends.back().y);
  }
  Spread(&places, 15);
  for (size_t i = 0; i < data.arms.size(); ++i) {
    const LineStyle style = StyleOf(i);
    const double x = panel.right() + 14;
    svg.Line({ends[i].x + 5, ends[i].y}, {x - 2, places[i]}, kGrey, 0.7);
    svg.Line({x, places[i]}, {x + 26, places[i]}, style.colour, data.arms[i] == baseline ? 2.4 : 1.4, style.dash);
    svg.Marker(style.marker, {x + 13, places[i]}, 3.4, style.colour);
    svg.Text({x + 32, places[i] + 4},
             absl::StrCat(ArmLabel(data.arms[i]), data.arms[i] == baseline ? " (baseline)" : ""));
  }
  std::vector<std::string> footer = {StatisticText(data)};
  if (off > 0) footer.push_back(OffText(off));
  footer.insert(footer.end(), trouble.begin(), trouble.end());
  Footer(&svg, left, footer_top, footer);
  return {NameOf("loss-by-length", view), absl::StrCat(title, "; ", StatisticText(data), "."),
          svg.Finish(title, StatisticText(data))};
}

Figure SmallMultiplesByLength(const View& view, const ViewData& data, const std::vector<SeedValue>& seeds,
                              const std::string& metric, const std::string& baseline) {
  constexpr int kColumns = 4;
  constexpr double kWidth = 150, kHeight = 110, kTop = 72, kStepX = 172, kStepY = 162;
  int off = 0;
  const Range range = ValuesOf(view, data, seeds, metric, &off);
  const double left_margin = Panel::LeftMargin(range, 4);
  const Labels labels = LabelsOf(data.arms);
  const auto rows = static_cast<double>((data.arms.size() + kColumns - 1) / kColumns);
  const std::vector<std::string> trouble = TroubleOf(data);
  const double footer_top = kTop + rows * kStepY + 6;
  Svg svg(left_margin + kColumns * kStepX + 10, footer_top + 14 * static_cast<double>(4 + trouble.size()) + 4);
  const std::string title = absl::StrCat(metric, " (nats) by evaluation length (tokens): ", TextOf(view));
  svg.Text({left_margin, 26}, title, Svg::Anchor::kStart, 13, true);
  for (size_t i = 0; i < data.arms.size(); ++i) {
    const double left = left_margin + static_cast<double>(i % kColumns) * kStepX;
    const double top = kTop + static_cast<double>(i / kColumns) * kStepY;
    Panel panel(&svg, left, top, kWidth, kHeight, LengthScale(data), {.low = range.low, .high = range.high});
    std::vector<Tick> y_ticks = panel.RoundTicks(false, 4);
    if (i % kColumns != 0)
      for (Tick& tick : y_ticks) tick.text.clear();
    panel.Axes(LengthTicks(data), y_ticks, "", "", "");
    std::vector<std::string> parts = labels.own[i];
    if (parts.empty()) parts = {"none of these"};
    if (data.arms[i] == baseline) parts.push_back("(base)");
    const std::array<std::string, 2> title_lines = InTwoLines(parts, 26);
    svg.Text({left, top - (title_lines[1].empty() ? 6 : 18)}, title_lines[0], Svg::Anchor::kStart, 10, true);
    svg.Text({left, top - 6}, title_lines[1], Svg::Anchor::kStart, 10, true);
    for (const std::string& other : data.arms) {
      if (other == data.arms[i]) continue;
      std::vector<Svg::Point> line;
      for (const Panel::Mark& mark : MarksByLength(data, other)) line.push_back(panel.At(mark.x, mark.y));
      const bool base = other == baseline;
      svg.Polyline(line, base ? "#000000" : kGrey, base ? 1.2 : 0.7, base ? "4,3" : "");
    }
    for (const SeedValue& seed : seeds) {
      if (seed.arm_json == data.arms[i] && Shows(view, data, seed, metric))
        svg.Marker(0, Beside(panel.At(static_cast<double>(seed.length), *seed.value)), 1.3, "#0072B2", 0.5);
    }
    LineStyle style = StyleOf(1);
    style.dash = "";
    style.marker = 0;
    panel.Series(MarksByLength(data, data.arms[i]), style, false, true);
  }
  std::vector<std::string> footer = {StatisticText(data),
                                     "each panel: its arm with interval, the baseline dashed, the others grey"};
  if (!labels.shared.empty()) footer.push_back(absl::StrCat("all arms: ", absl::StrJoin(labels.shared, " ")));
  if (off > 0) footer.push_back(OffText(off));
  footer.insert(footer.end(), trouble.begin(), trouble.end());
  Footer(&svg, left_margin, footer_top, footer);
  return {NameOf("loss-by-length", view), absl::StrCat(title, "; ", StatisticText(data), "."),
          svg.Finish(title, StatisticText(data))};
}

// Arms that differ in one numeric axis only.
struct NumberGroup {
  std::string axis, rest;  // rest: JSON of the other values
  std::map<double, std::string> arms;
};
std::vector<NumberGroup> NumberGroups(const std::vector<std::string>& arms) {
  std::map<std::pair<std::string, std::string>, NumberGroup> groups;
  for (const std::string& json : arms) {
    const absl::StatusOr<v1::Configuration> config = ConfigurationFromJson(json);
    if (!config.ok()) continue;
    for (int i = 0; i < config->settings_size(); ++i) {
      if (config->settings(i).value().kind_case() != v1::Value::kNumber) continue;
      v1::Configuration rest = *config;
      rest.mutable_settings()->DeleteSubrange(i, 1);
      const std::pair key(config->settings(i).axis(), ToJson(rest));
      NumberGroup& group = groups[key];
      group.axis = key.first;
      group.rest = key.second;
      group.arms[config->settings(i).value().number()] = json;
    }
  }
  std::vector<NumberGroup> kept;
  for (auto& [key, group] : groups) {
    if (group.arms.size() >= 3) kept.push_back(std::move(group));
  }
  return kept;
}

Figure ByNumber(const View& view, const ViewData& data, const std::vector<SeedValue>& seeds, const std::string& metric,
                const std::string& baseline, const std::string& axis, const std::vector<NumberGroup>& groups) {
  constexpr double kWidth = 300, kHeight = 200, kTop = 66, kStepY = 272;
  const std::string name = axis.substr(axis.rfind('.') + 1);
  const std::vector<std::string> trouble = TroubleOf(data);
  std::set<double> values;
  for (const NumberGroup& group : groups)
    for (const auto& [value, arm] : group.arms) values.insert(value);
  const bool log = *values.begin() > 0 && *values.rbegin() / *values.begin() >= 10;
  const double margin = log ? 1 : 0.04 * (*values.rbegin() - *values.begin());
  const Scale x = log ? Scale{.low = *values.begin() / 1.2, .high = *values.rbegin() * 1.2, .log = true}
                      : Scale{.low = *values.begin() - margin, .high = *values.rbegin() + margin};
  const auto rows = static_cast<double>((data.lengths.size() + 1) / 2);
  const double footer_top = kTop + rows * kStepY - 16;
  std::vector<std::string> footer = {StatisticText(data)};
  if (groups.size() > 1) {
    for (size_t i = 0; i < groups.size(); ++i)
      footer.push_back(absl::StrCat("line ", i + 1, " (marker as drawn): ", ArmLabel(groups[i].rest)));
  }
  const bool has_baseline = std::find(data.arms.begin(), data.arms.end(), baseline) != data.arms.end();
  if (has_baseline)
    footer.push_back(absl::StrCat("level line and grey band: the baseline ", ArmLabel(baseline), " with its interval"));
  footer.insert(footer.end(), trouble.begin(), trouble.end());
  std::vector<Range> ranges;
  double left_margin = 64;
  int off = 0;
  for (const int64_t length : data.lengths) {
    std::vector<double> shown;
    std::set<std::string> drawn;
    if (has_baseline) drawn.insert(baseline);
    for (const NumberGroup& group : groups)
      for (const auto& [value, arm] : group.arms) drawn.insert(arm);
    for (const std::string& arm : drawn) {
      const auto cell = data.cells.find({arm, length});
      if (cell != data.cells.end()) TakeRow(*cell->second, &shown);
    }
    for (const SeedValue& seed : seeds) {
      if (seed.length == length && seed.arm_json != baseline && drawn.contains(seed.arm_json) &&
          Shows(view, data, seed, metric))
        shown.push_back(*seed.value);
    }
    int off_here = 0;
    ranges.push_back(RobustRange(std::move(shown), &off_here).Padded(0.06));
    off += off_here;
    left_margin = std::max(left_margin, Panel::LeftMargin(ranges.back(), 5));
  }
  if (off > 0) footer.push_back(OffText(off));
  const double step_x = kWidth + left_margin + 8;
  Svg svg(left_margin + 2 * step_x - 40, footer_top + 14 * static_cast<double>(footer.size()) + 6);
  const std::string title = absl::StrCat(metric, " (nats) by ", axis, ": ", TextOf(view));
  svg.Text({left_margin, 26}, title, Svg::Anchor::kStart, 13, true);
  size_t index = 0;
  for (const int64_t length : data.lengths) {
    const Range& range = ranges[index];
    const double left = left_margin + static_cast<double>(index % 2) * step_x;
    const double top = kTop + static_cast<double>(index / 2) * kStepY;
    ++index;
    Panel panel(&svg, left, top, kWidth, kHeight, x, {.low = range.low, .high = range.high});
    panel.Axes(TicksAt(values), panel.RoundTicks(false, 5), absl::StrCat(name, log ? " (log scale)" : ""), "",
               absl::StrCat("length ", length));
    if (const auto cell = data.cells.find({baseline, length});
        has_baseline && cell != data.cells.end() && cell->second->has_mean()) {
      const v1::ConfidenceRow& row = *cell->second;
      if (row.has_low() && row.has_high()) {
        svg.Polygon({panel.At(x.low, row.low()), panel.At(x.high, row.low()), panel.At(x.high, row.high()),
                     panel.At(x.low, row.high())},
                    "#000000", 0.1);
      }
      svg.Line(panel.At(x.low, row.mean()), panel.At(x.high, row.mean()), "#000000", 1.4, "6,3");
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      const LineStyle style = StyleOf(g + 1);
      std::vector<Panel::Mark> marks;
      for (const auto& [value, arm] : groups[g].arms) {
        for (const SeedValue& seed : seeds) {
          if (seed.arm_json == arm && seed.length == length && Shows(view, data, seed, metric))
            svg.Marker(0, Beside(panel.At(value, *seed.value)), 1.5, style.colour, 0.5);
        }
        const auto cell = data.cells.find({arm, length});
        if (cell != data.cells.end() && cell->second->has_mean()) marks.push_back(MarkOf(value, *cell->second));
      }
      panel.Series(marks, style, false, false);
    }
  }
  Footer(&svg, left_margin, footer_top, footer);
  return {NameOf(absl::StrCat("loss-by-", name), view), absl::StrCat(title, "; ", StatisticText(data), "."),
          svg.Finish(title, StatisticText(data))};
}

}  // namespace

std::vector<Figure> LossByLength(const std::vector<v1::ConfidenceRow>& rows, const std::vector<SeedValue>& seeds,
                                 const std::string& metric, const std::string& baseline_json) {
  std::vector<Figure> figures;
  for (const View& view : ViewsOf(rows, metric)) {
    const ViewData data = DataOf(rows, metric, view);
    if (data.lengths.size() < 2) continue;
    const bool one = data.arms.size() <= kMostInOnePanel;
    Figure figure = (one ? OnePanelByLength : SmallMultiplesByLength)(view, data, seeds, metric, baseline_json);
    if (!IsLoss(metric)) figure.name.replace(0, 4, metric);  // "loss-by-length": one figure a view
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::vector<Figure> LossByNumber(const std::vector<v1::ConfidenceRow>& rows, const std::vector<SeedValue>& seeds,
                                 const std::string& metric, const std::string& baseline_json) {
  std::vector<Figure> figures;
  std::set<std::string> names;
  for (const View& view : ViewsOf(rows, metric)) {
    const ViewData data = DataOf(rows, metric, view);
    std::map<std::string, std::vector<NumberGroup>> by_axis;
    for (NumberGroup& group : NumberGroups(data.arms)) by_axis[group.axis].push_back(std::move(group));
    for (auto& [axis, groups] : by_axis) {
      // A figure for each few lines: none is left out.
      std::vector<std::vector<NumberGroup>> parts;
      for (size_t i = 0; i < groups.size(); ++i) {
        if (i % kMostInOnePanel == 0) parts.emplace_back();
        parts.back().push_back(std::move(groups[i]));
      }
      for (const std::vector<NumberGroup>& part : parts) {
        Figure figure = ByNumber(view, data, seeds, metric, baseline_json, axis, part);
        // Several of one axis, or of two axes of the same last name.
        const std::string name = figure.name;
        for (int i = 2; !names.insert(figure.name).second; ++i) figure.name = absl::StrCat(name, "-", i);
        figures.push_back(std::move(figure));
      }
    }
  }
  return figures;
}

}  // namespace ablate
