// One plotting area of a figure: frame, axes with ticks and labels, and marks in data coordinates. Must not know where
// its numbers come from.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/svg.h"

namespace ablate {

// Grows to hold what it is shown.
struct Range {
  double low = 0, high = 0;
  bool empty = true;

  void Take(double value) {
    if (!std::isfinite(value)) return;
    low = empty ? value : std::min(low, value);
    high = empty ? value : std::max(high, value);
    empty = false;
  }
  // With a margin, and never of no width.
  Range Padded(double share) const {
    if (empty) return {0, 1, false};
    const double width = high > low ? high - low : std::max(std::abs(high), 1.0) * 0.1;
    return {low - share * width, high + share * width, false};
  }
};

// The range of values without those so far off that they would press all others into one line: over 20 times the median
// distance from the median away, and over 5 times the median's size. `off`: how many those are.
Range RobustRange(std::vector<double> values, int* off);

struct Tick {
  double value = 0;
  std::string text;
};

class Panel {
 public:
  // `left`, `top`, `width`, `height` are of the area inside the axes. Draws grid, frame, ticks and labels.
  Panel(Svg* svg, double left, double top, double width, double height, Scale x, Scale y)
      : svg_(svg), left_(left), top_(top), width_(width), height_(height), x_(x), y_(y) {
    x_.from = left;
    x_.to = left + width;
    y_.from = top + height;
    y_.to = top;
  }

  void Axes(const std::vector<Tick>& x_ticks, const std::vector<Tick>& y_ticks, const std::string& x_label,
            const std::string& y_label, const std::string& title);
  // Ticks at round values of a linear axis; of y unless `of_x`.
  std::vector<Tick> RoundTicks(bool of_x, int count) const;
  // Room that labels of those ticks need at the left of a panel, with its y label where it has one.
  static double LeftMargin(const Range& range, int count);

  // What is beyond the axes lies at their edge.
  Svg::Point At(double x, double y) const {
    return {x_.At(std::clamp(x, x_.low, x_.high)), y_.At(std::clamp(y, y_.low, y_.high))};
  }
  double left() const { return left_; }
  double right() const { return left_ + width_; }
  double top() const { return top_; }
  double bottom() const { return top_ + height_; }

  // A mean with its interval and its line; points without an interval get a marker alone, points beyond the axis an
  // open triangle at its edge.
  struct Mark {
    double x = 0, y = 0;
    std::optional<double> low, high;
    std::string tooltip;
  };
  void Series(const std::vector<Mark>& marks, const LineStyle& style, bool thick, bool band);

 private:
  Svg* const svg_;
  const double left_, top_, width_, height_;
  Scale x_, y_;
};

}  // namespace ablate
