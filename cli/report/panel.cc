#include "cli/report/panel.h"

namespace ablate {
namespace {

constexpr char kGrid[] = "#dddddd", kFrame[] = "#555555";
constexpr double kTickSize = 10, kLabelSize = 11, kTitleSize = 12;

double Median(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

double Widest(const std::vector<Tick>& ticks) {
  double widest = 0;
  for (const Tick& tick : ticks) widest = std::max(widest, Svg::TextWidth(tick.text, kTickSize));
  return widest;
}

std::vector<Tick> Round(double low, double high, int count) {
  const std::vector<double> values = LinearTicks(low, high, count);
  const double step = values.size() > 1 ? values[1] - values[0] : 0;
  std::vector<Tick> ticks;
  for (const double value : values) ticks.push_back({value, TickText(value, step)});
  return ticks;
}

}  // namespace

Range RobustRange(std::vector<double> values, int* off) {
  *off = 0;
  Range range;
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return range;
  const double median = Median(&values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - median));
  const double limit = std::max(20 * Median(&distances), 5 * std::abs(median));
  for (const double value : values) {
    if (limit > 0 && std::abs(value - median) > limit)
      ++*off;
    else
      range.Take(value);
  }
  return range;
}

std::vector<Tick> Panel::RoundTicks(bool of_x, int count) const {
  const Scale& scale = of_x ? x_ : y_;
  return Round(scale.low, scale.high, count);
}

double Panel::LeftMargin(const Range& range, int count) {
  return std::max(64.0, Widest(Round(range.low, range.high, count)) + 34);
}

void Panel::Axes(const std::vector<Tick>& x_ticks, const std::vector<Tick>& y_ticks, const std::string& x_label,
                 const std::string& y_label, const std::string& title) {
  for (const Tick& tick : y_ticks) {
    const double y = y_.At(tick.value);
    svg_->Line({left_, y}, {right(), y}, kGrid, 0.7);
    svg_->Text({left_ - 6, y + 3.5}, tick.text, Svg::Anchor::kEnd, kTickSize);
  }
  double last_end = -1e9;
  for (const Tick& tick : x_ticks) {
    const double x = x_.At(tick.value);
    svg_->Line({x, top_}, {x, bottom()}, kGrid, 0.7);
    svg_->Line({x, bottom()}, {x, bottom() + 4}, kFrame, 1);
    // Where ticks are closer than their numbers, some go without.
    const double half = Svg::TextWidth(tick.text, kTickSize) / 2;
    if (x - half < last_end + 3) continue;
    svg_->Text({x, bottom() + 16}, tick.text, Svg::Anchor::kMiddle, kTickSize);
    last_end = x + half;
  }
  svg_->Rectangle({left_, top_}, width_, height_, "none", kFrame);
  if (!x_label.empty()) svg_->Text({left_ + width_ / 2, bottom() + 33}, x_label, Svg::Anchor::kMiddle, kLabelSize);
  if (!y_label.empty())
    svg_->Text({left_ - std::max(46.0, Widest(y_ticks) + 16), top_ + height_ / 2}, y_label, Svg::Anchor::kMiddle,
               kLabelSize, false, -90);
  if (!title.empty()) svg_->Text({left_, top_ - 8}, title, Svg::Anchor::kStart, kTitleSize, true);
}

void Panel::Series(const std::vector<Mark>& marks, const LineStyle& style, bool thick, bool band) {
  std::vector<Svg::Point> line, outline;
  for (const Mark& mark : marks) {
    line.push_back(At(mark.x, mark.y));
    if (mark.high) outline.push_back(At(mark.x, *mark.high));
  }
  for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark) {
    if (mark->low) outline.push_back(At(mark->x, *mark->low));
  }
  if (band) svg_->Polygon(outline, style.colour, 0.13);
  svg_->Polyline(line, style.colour, thick ? 2.4 : 1.4, style.dash);
  for (const Mark& mark : marks) {
    if (mark.low && mark.high) {
      const Svg::Point a = At(mark.x, *mark.low), b = At(mark.x, *mark.high);
      svg_->Line(a, b, style.colour, 1.1);
      for (const Svg::Point end : {a, b}) svg_->Line({end.x - 3, end.y}, {end.x + 3, end.y}, style.colour, 1.1);
    }
    if (mark.y < y_.low || mark.y > y_.high) {
      const Svg::Point at = At(mark.x, mark.y);
      const double tip = mark.y > y_.high ? -6 : 6;
      svg_->Triangle({{at.x, at.y + tip}, {at.x + 5, at.y - tip / 2}, {at.x - 5, at.y - tip / 2}}, style.colour,
                     mark.tooltip);
      continue;
    }
    svg_->Marker(style.marker, At(mark.x, mark.y), thick ? 4 : 3.4, style.colour, 1, mark.tooltip);
  }
}

}  // namespace ablate
