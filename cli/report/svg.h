// A small writer of SVG charts: scales, ticks, and marks in the coordinates of the page. Must not know what is drawn.
// Own code instead of a plotting library: none is packaged for C++ that draws vector files without a display, and the
// figures need lines, bands, dots and text only. Numbers are printed with two decimals, so the same input gives the
// same bytes. Thread rule: plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ablate {

// From data to page coordinates. `low` < `high` in data; on a log scale both above 0.
struct Scale {
  double low = 0, high = 1;
  double from = 0, to = 1;  // where low and high lie on the page
  bool log = false;

  double At(double value) const;
};

// Round values within [low, high] (about `count` of them; at least 2 where the range allows), ascending.
std::vector<double> LinearTicks(double low, double high, int count);
// "1.85", "0.002", "100": as few digits as tell ticks `step` apart.
std::string TickText(double value, double step);

// A dash pattern and a marker for line number `index`: 8 that can be told apart without colour.
struct LineStyle {
  std::string_view colour;  // readable in print on white; safe for the common colour blindnesses (Okabe and Ito 2008)
  std::string_view dash;    // of stroke-dasharray; "" is solid
  int marker = 0;           // of Svg::Marker
};
LineStyle StyleOf(size_t index);
inline constexpr size_t kLineStyles = 8;

class Svg {
 public:
  struct Point {
    double x = 0, y = 0;
  };
  enum class Anchor { kStart, kMiddle, kEnd };

  Svg(double width, double height) : width_(width), height_(height) {}

  void Line(Point a, Point b, std::string_view colour, double width, std::string_view dash = "");
  void Polyline(const std::vector<Point>& points, std::string_view colour, double width, std::string_view dash = "",
                double opacity = 1);
  void Polygon(const std::vector<Point>& points, std::string_view fill, double opacity);
  // 0 circle, 1 square, 2 triangle, 3 diamond, 4 triangle down, 5 plus, 6 cross, 7 ring. `tooltip` shows on hover.
  void Marker(int shape, Point at, double radius, std::string_view colour, double opacity = 1,
              std::string_view tooltip = "");
  // Open, for what lies beyond an axis.
  void Triangle(const std::vector<Point>& corners, std::string_view colour, std::string_view tooltip);
  void Text(Point at, std::string_view text, Anchor anchor = Anchor::kStart, double size = 11, bool bold = false,
            double degrees = 0, std::string_view colour = "");
  void Rectangle(Point corner, double width, double height, std::string_view fill, std::string_view stroke);

  // `address`: a data: URI. Pixels stay sharp.
  void Image(Point corner, double width, double height, std::string_view address);

  // The file. `title` and `description` are for readers that cannot see it.
  std::string Finish(std::string_view title, std::string_view description) const;

  // Width of text of this size on the page, estimated (no font is at hand).
  static double TextWidth(std::string_view text, double size);

 private:
  const double width_, height_;
  std::string body_;
};

}  // namespace ablate
