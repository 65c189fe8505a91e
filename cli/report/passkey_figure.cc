#include "cli/report/passkey_figure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/report/svg.h"
#include "cli/result_tables.h"

namespace ablate {
namespace {

struct Map {
  std::string split;
  v1::Phase phase = v1::PLAIN;
  bool ntk = false;
  int bins = 0;
  std::vector<std::string> arms;  // in the order of their first row
  std::set<int64_t> lengths;
  std::map<std::tuple<std::string, int64_t, int>, double> cells;  // arm, length, bin
  int64_t seeds = 0;
};

// Accuracy 0 is white and 1 dark blue.
std::string ColourOf(double accuracy) {
  const double t = std::clamp(accuracy, 0.0, 1.0);
  const auto mix = [&](double white, double blue) { return static_cast<int>(std::lround(white + (blue - white) * t)); };
  return absl::StrFormat("#%02x%02x%02x", mix(255, 8), mix(255, 48), mix(255, 107));
}

Figure Draw(const Map& map) {
  constexpr double kCellWidth = 46, kCellHeight = 18, kLeft = 84, kTop = 60, kGap = 30;
  const double width = static_cast<double>(map.lengths.size()) * kCellWidth, height = map.bins * kCellHeight;
  double panel = width + kGap;
  for (const std::string& arm : map.arms) panel = std::max(panel, Svg::TextWidth(ArmLabel(arm), 11) + kGap);
  const size_t across = std::max<size_t>(1, std::min<size_t>(map.arms.size(), static_cast<size_t>(900 / panel)));
  const size_t down = (map.arms.size() + across - 1) / across;
  const double row = height + 66;
  Svg svg(kLeft + static_cast<double>(across) * panel, kTop + static_cast<double>(down) * row + 16);
  std::string title =
      absl::StrCat("Passkey accuracy by length and depth, ", map.split, ", NTK ", map.ntk ? "on" : "off");
  svg.Text({16, 22}, title, Svg::Anchor::kStart, 13, true);
  const std::string how = absl::StrCat("mean over seeds (n = ", map.seeds, " at most); depth 1 of ", map.bins,
                                       " is the beginning of the text");
  svg.Text({16, 38}, how);
  for (size_t a = 0; a < map.arms.size(); ++a) {
    const double left = kLeft + static_cast<double>(a % across) * panel,
                 top = kTop + 20 + static_cast<double>(a / across) * row;
    svg.Text({left, top - 6}, ArmLabel(map.arms[a]), Svg::Anchor::kStart, 11, true);
    double x = left;
    for (const int64_t length : map.lengths) {
      for (int bin = 1; bin <= map.bins; ++bin) {
        const double y = top + (bin - 1) * kCellHeight;
        const auto found = map.cells.find({map.arms[a], length, bin});
        const bool there = found != map.cells.end();
        const double value = there ? found->second : 0;
        svg.Rectangle({x, y}, kCellWidth, kCellHeight, there ? ColourOf(value) : "#ffffff", "#bbbbbb");
        if (!there) {
          svg.Line({x, y}, {x + kCellWidth, y + kCellHeight}, "#bbbbbb", 1);
          continue;
        }
        svg.Text({x + kCellWidth / 2, y + kCellHeight - 5}, absl::StrFormat("%.2f", value), Svg::Anchor::kMiddle, 10,
                 false, 0, value > 0.5 ? "#ffffff" : "#000000");
      }
      svg.Text({x + kCellWidth / 2, top + height + 14}, absl::StrCat(length), Svg::Anchor::kMiddle, 10);
      x += kCellWidth;
    }
    if (a % across == 0) {
      for (int bin = 1; bin <= map.bins; ++bin) {
        if (bin != 1 && bin != map.bins) continue;
        svg.Text({left - 6, top + bin * kCellHeight - 5}, absl::StrCat("depth ", bin), Svg::Anchor::kEnd, 10);
      }
    }
    svg.Text({left + width / 2, top + height + 28}, "length, tokens", Svg::Anchor::kMiddle, 10);
  }
  std::string phase = map.phase == v1::PLAIN ? "" : absl::StrCat("-", absl::AsciiStrToLower(v1::Phase_Name(map.phase)));
  return {.name = absl::StrCat("passkey-map-", map.split, map.ntk ? "-ntk" : "", phase,
                               map.bins == 10 ? "" : absl::StrCat("-", map.bins)),
          .caption = absl::StrCat(title, ": ", how, ". Jobs and intervals: data/passkey.csv."),
          .svg = svg.Finish(title, how)};
}

}  // namespace

std::vector<Figure> PasskeyMaps(const std::vector<v1::ConfidenceRow>& rows) {
  std::vector<Map> maps;
  for (const v1::ConfidenceRow& row : rows) {
    int bin = 0, bins = 0, end = 0;
    if (std::sscanf(row.metric().c_str(), "passkey_accuracy.depth_%d_of_%d%n", &bin, &bins, &end) != 2 ||
        end != static_cast<int>(row.metric().size()) || bin < 1 || bin > bins) {
      continue;
    }
    auto map = std::find_if(maps.begin(), maps.end(), [&](const Map& one) {
      return one.split == row.split() && one.phase == row.phase() && one.ntk == row.ntk() && one.bins == bins;
    });
    if (map == maps.end()) {
      maps.push_back({.split = row.split(), .phase = row.phase(), .ntk = row.ntk(), .bins = bins});
      map = maps.end() - 1;
    }
    if (std::find(map->arms.begin(), map->arms.end(), row.arm_json()) == map->arms.end()) {
      map->arms.push_back(row.arm_json());
    }
    map->lengths.insert(row.length());
    map->seeds = std::max<int64_t>(map->seeds, row.n());
    if (row.has_mean()) map->cells[{row.arm_json(), row.length(), bin}] = row.mean();
  }
  // Where NTK does not act, the numbers without it are those with it, and measured once.
  for (Map& on : maps) {
    if (!on.ntk) continue;
    const std::set<int64_t> acting = on.lengths;
    for (const Map& off : maps) {
      if (off.ntk || off.split != on.split || off.phase != on.phase || off.bins != on.bins) continue;
      for (const auto& [cell, mean] : off.cells) {
        if (acting.contains(std::get<1>(cell))) continue;
        on.cells.emplace(cell, mean);
        on.lengths.insert(std::get<1>(cell));
      }
    }
  }
  std::vector<Figure> figures;
  for (const Map& map : maps) figures.push_back(Draw(map));
  return figures;
}

}  // namespace ablate
