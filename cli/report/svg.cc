#include "cli/report/svg.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/report.h"

namespace ablate {
namespace {

std::string Num(double value) {
  std::string text = absl::StrFormat("%.2f", value);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters have no place in XML.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string Points(const std::vector<Svg::Point>& points) {
  std::string text;
  for (const Svg::Point& point : points)
    absl::StrAppend(&text, text.empty() ? "" : " ", Num(point.x), ",", Num(point.y));
  return text;
}

std::string Stroke(std::string_view colour, double width, std::string_view dash) {
  std::string text = absl::StrCat(" stroke=\"", std::string(colour), "\" stroke-width=\"", Num(width), "\"");
  if (!dash.empty()) absl::StrAppend(&text, " stroke-dasharray=\"", std::string(dash), "\"");
  return text;
}

std::string Opacity(double opacity) { return opacity == 1 ? "" : absl::StrCat(" opacity=\"", Num(opacity), "\""); }

}  // namespace

double Scale::At(double value) const {
  const double share =
      log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low)) : (value - low) / (high - low);
  return from + share * (to - from);
}

std::vector<double> LinearTicks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor < rough * 0.999) continue;
    step = power * factor;
    break;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push_back(i * step);
  return ticks.size() < 2 && count < 32 ? LinearTicks(low, high, 2 * count) : ticks;
}

std::string TickText(double value, double step) {
  const int decimals = step > 0 ? std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 12) : 3;
  const std::string text = absl::StrFormat("%.*f", decimals, value);
  return text.find_first_not_of("-0.") == std::string::npos ? absl::StrFormat("%.*f", decimals, 0.0) : text;
}

LineStyle StyleOf(size_t index) {
  static constexpr LineStyle kStyles[kLineStyles] = {
      {"#000000", "", 0},     {"#0072B2", "6,3", 1},         {"#D55E00", "2,2", 2}, {"#009E73", "8,3,2,3", 3},
      {"#CC79A7", "10,4", 4}, {"#7A5C00", "4,2,1,2,1,2", 7}, {"#56B4E9", "1,3", 5}, {"#5E3C99", "12,3,3,3", 6}};
  return kStyles[index % kLineStyles];
}

void Svg::Line(Point a, Point b, std::string_view colour, double width, std::string_view dash) {
  absl::StrAppend(&body_, "<line x1=\"", Num(a.x), "\" y1=\"", Num(a.y), "\" x2=\"", Num(b.x), "\" y2=\"", Num(b.y),
                  "\"", Stroke(colour, width, dash), "/>\n");
}

void Svg::Polyline(const std::vector<Point>& points, std::string_view colour, double width, std::string_view dash,
                   double opacity) {
  if (points.size() < 2) return;
  absl::StrAppend(&body_, "<polyline fill=\"none\" points=\"", Points(points), "\"", Stroke(colour, width, dash),
                  Opacity(opacity), "/>\n");
}

void Svg::Polygon(const std::vector<Point>& points, std::string_view fill, double opacity) {
  if (points.size() < 3) return;
  absl::StrAppend(&body_, "<polygon points=\"", Points(points), "\" fill=\"", std::string(fill), "\"", Opacity(opacity),
                  "/>\n");
}

void Svg::Marker(int shape, Point at, double radius, std::string_view colour, double opacity,
                 std::string_view tooltip) {
  const double r = radius, x = at.x, y = at.y;
  const std::string ink(colour), filled = absl::StrCat(" fill=\"", ink, "\"", Opacity(opacity));
  const std::string open = absl::StrCat(" fill=\"none\" stroke=\"", ink, "\" stroke-width=\"1.5\"", Opacity(opacity));
  std::string element, tag = "polygon";
  const auto polygon = [&](const std::vector<Point>& points) {
    element = absl::StrCat("<polygon points=\"", Points(points), "\"", filled);
  };
  const auto path = [&](const std::string& d) {
    tag = "path";
    element = absl::StrCat("<path d=\"", d, "\"", open);
  };
  switch (shape) {
    case 1:
      polygon({{x - r, y - r}, {x + r, y - r}, {x + r, y + r}, {x - r, y + r}});
      break;
    case 2:
      polygon({{x, y - 1.2 * r}, {x + 1.1 * r, y + r}, {x - 1.1 * r, y + r}});
      break;
    case 3:
      polygon({{x, y - 1.3 * r}, {x + 1.3 * r, y}, {x, y + 1.3 * r}, {x - 1.3 * r, y}});
      break;
    case 4:
      polygon({{x, y + 1.2 * r}, {x + 1.1 * r, y - r}, {x - 1.1 * r, y - r}});
      break;
    case 5:
      path(absl::StrCat("M", Num(x - r), " ", Num(y), "H", Num(x + r), "M", Num(x), " ", Num(y - r), "V", Num(y + r)));
      break;
    case 6:
      path(absl::StrCat("M", Num(x - r), " ", Num(y - r), "L", Num(x + r), " ", Num(y + r), "M", Num(x - r), " ",
                        Num(y + r), "L", Num(x + r), " ", Num(y - r)));
      break;
    default:
      tag = "circle";
      element = absl::StrCat("<circle cx=\"", Num(x), "\" cy=\"", Num(y), "\" r=\"", Num(r), "\"",
                             shape == 7 ? open : filled);
  }
  absl::StrAppend(&body_, element);
  if (tooltip.empty()) {
    absl::StrAppend(&body_, "/>\n");
  } else {
    absl::StrAppend(&body_, "><title>", Escaped(tooltip), "</title></", tag, ">\n");
  }
}

void Svg::Triangle(const std::vector<Point>& corners, std::string_view colour, std::string_view tooltip) {
  absl::StrAppend(&body_, "<polygon points=\"", Points(corners), "\" fill=\"#ffffff\"", Stroke(colour, 1.4, ""),
                  "><title>", Escaped(tooltip), "</title></polygon>\n");
}

void Svg::Text(Point at, std::string_view text, Anchor anchor, double size, bool bold, double degrees,
               std::string_view colour) {
  static constexpr const char* kAnchors[] = {"start", "middle", "end"};
  absl::StrAppend(&body_, "<text x=\"", Num(at.x), "\" y=\"", Num(at.y), "\" font-size=\"", Num(size),
                  "\" text-anchor=\"", kAnchors[static_cast<int>(anchor)], "\"", bold ? " font-weight=\"bold\"" : "");
  if (degrees != 0)
    absl::StrAppend(&body_, " transform=\"rotate(", Num(degrees), " ", Num(at.x), " ", Num(at.y), ")\"");
  if (!colour.empty()) absl::StrAppend(&body_, " fill=\"", std::string(colour), "\"");
  absl::StrAppend(&body_, ">", Escaped(text), "</text>\n");
}

void Svg::Rectangle(Point corner, double width, double height, std::string_view fill, std::string_view stroke) {
  absl::StrAppend(&body_, "<rect x=\"", Num(corner.x), "\" y=\"", Num(corner.y), "\" width=\"", Num(width),
                  "\" height=\"", Num(height), "\" fill=\"", std::string(fill), "\" stroke=\"", std::string(stroke),
                  "\"/>\n");
}

void Svg::Image(Point corner, double width, double height, std::string_view address) {
  absl::StrAppend(&body_, "<image x=\"", Num(corner.x), "\" y=\"", Num(corner.y), "\" width=\"", Num(width),
                  "\" height=\"", Num(height), "\" style=\"image-rendering:pixelated\" href=\"", std::string(address),
                  "\"/>\n");
}

std::string Svg::Finish(std::string_view title, std::string_view description) const {
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Num(width_), "\" height=\"", Num(height_),
                      "\" viewBox=\"0 0 ", Num(width_), " ", Num(height_),
                      "\" role=\"img\" font-family=\"Helvetica, Arial, sans-serif\" fill=\"#000000\">\n<title>",
                      Escaped(title), "</title>\n<desc>", Escaped(description),
                      "</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", body_, "</svg>\n");
}

double Svg::TextWidth(std::string_view text, double size) {
  return 0.56 * size * static_cast<double>(DisplayWidth(text));
}

}  // namespace ablate
