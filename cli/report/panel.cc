#include "cli/report/panel.h"

namespace ablate {
namespace {

constexpr char kGrid[] = "#dddddd", kFrame[] = "#555555";
constexpr double kTickSize = 10, kLabelSize = 11, kTitleSize = 12;

}  // namespace

std::vector<Tick> Panel::RoundTicks(bool of_x, int count) const {
  const Scale& scale = of_x ? x_ : y_;
  const std::vector<double> values = LinearTicks(scale.low, scale.high, count);
  const double step = values.size() > 1 ? values[1] - values[0] : 0;
  std::vector<Tick> ticks;
  for (const double value : values) ticks.push_back({value, TickText(value, step)});
  return ticks;
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
    svg_->Text({left_ - 46, top_ + height_ / 2}, y_label, Svg::Anchor::kMiddle, kLabelSize, false, -90);
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
    svg_->Marker(style.marker, At(mark.x, mark.y), thick ? 4 : 3.4, style.colour, 1, mark.tooltip);
  }
}

}  // namespace ablate
