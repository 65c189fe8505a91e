#include "cli/report/attention_figure.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "cli/report/svg.h"

namespace ablate {
namespace {

constexpr int kMostPixels = 4096, kLeastTile = 96, kGap = 4;
constexpr uint8_t kUnseen = 255, kPaper = 254, kDarkest = 253;  // places in the palette

// How many pixels a head takes along each side, and how many tokens a pixel, or pixels a token.
struct Grid {
  int shrink = 1, grow = 1, tile = 0;
  int width = 0, height = 0;

  explicit Grid(const AttentionMap& map) {
    const int T = map.length(), across = std::max(map.heads, map.layers);
    while (across * ((T + shrink - 1) / shrink + kGap) > kMostPixels && shrink < T) ++shrink;
    if (shrink == 1) grow = std::max(1, std::min(kLeastTile / T, kMostPixels / (across * T)));
    tile = shrink > 1 ? (T + shrink - 1) / shrink : T * grow;
    width = map.heads * (tile + kGap) - kGap;
    height = map.layers * (tile + kGap) - kGap;
  }
};

uint8_t ShadeOf(float weight) {
  const double share = std::cbrt(std::clamp(static_cast<double>(weight), 0.0, 1.0));
  return static_cast<uint8_t>(std::lround(share * kDarkest));
}

// White to dark blue, evenly lighter to darker, so that it can be told apart in grey too.
std::array<png_color, 256> Palette() {
  std::array<png_color, 256> palette = {};
  for (int i = 0; i <= kDarkest; ++i) {
    const double t = static_cast<double>(i) / kDarkest;
    const auto mix = [&](double white, double blue) {
      return static_cast<png_byte>(std::lround(white + (blue - white) * t));
    };
    palette[i] = {mix(255, 8), mix(255, 29), mix(255, 88)};
  }
  palette[kPaper] = {255, 255, 255};
  palette[kUnseen] = {235, 235, 235};
  return palette;
}

void DrawHead(const AttentionMap& map, int layer, int head, const Grid& grid, std::vector<uint8_t>* pixels) {
  const int T = map.length(), left = head * (grid.tile + kGap), top = layer * (grid.tile + kGap);
  for (int y = 0; y < grid.tile; ++y) {
    uint8_t* row = pixels->data() + static_cast<size_t>(top + y) * grid.width + left;
    for (int x = 0; x < grid.tile; ++x) {
      const int i0 = grid.shrink > 1 ? y * grid.shrink : y / grid.grow, i1 = std::min(T, i0 + grid.shrink);
      const int j0 = grid.shrink > 1 ? x * grid.shrink : x / grid.grow, j1 = std::min(T, j0 + grid.shrink);
      float largest = -1;
      for (int i = i0; i < i1; ++i) {
        for (int j = j0; j < std::min(j1, i + 1); ++j) largest = std::max(largest, map.weight(layer, head, i, j));
      }
      row[x] = largest < 0 ? kUnseen : ShadeOf(largest);
    }
  }
}

absl::StatusOr<std::string> EncodePng(const std::vector<uint8_t>& pixels, int width, int height) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  std::string bytes;
  const std::array<png_color, 256> palette = Palette();
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y)
    rows.push_back(const_cast<png_bytep>(pixels.data() + static_cast<size_t>(y) * width));
  if (info == nullptr || setjmp(png_jmpbuf(png)) != 0) {
    png_destroy_write_struct(&png, &info);
    return absl::InternalError("libpng cannot write the picture");
  }
  png_set_write_fn(
      png, &bytes,
      [](png_structp out, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(out))->append(reinterpret_cast<const char*>(data), size);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, width, height, 8, PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, info);
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> AttentionMapPng(const AttentionMap& map) {
  const Grid grid(map);
  std::vector<uint8_t> pixels(static_cast<size_t>(grid.width) * grid.height, kPaper);
  for (int layer = 0; layer < map.layers; ++layer) {
    for (int head = 0; head < map.heads; ++head) DrawHead(map, layer, head, grid, &pixels);
  }
  return EncodePng(pixels, grid.width, grid.height);
}

absl::StatusOr<std::string> AttentionMapSvg(const AttentionMap& map, const std::string& title) {
  ABLATE_ASSIGN_OR_RETURN(const std::string png, AttentionMapPng(map));
  const Grid grid(map);
  constexpr double kLeft = 60, kTop = 56, kBottom = 56, kRight = 16;
  // At least wide enough for its title.
  const double scale = std::max(1.0, 480.0 / std::max(grid.width, grid.height));
  const double width = grid.width * scale, height = grid.height * scale, step = (grid.tile + kGap) * scale;
  const double page = std::max(kLeft + width + kRight, kLeft + Svg::TextWidth(title, 13) + kRight);
  Svg svg(page, kTop + height + kBottom);
  svg.Text({kLeft, 20}, title, Svg::Anchor::kStart, 13, true);
  svg.Image({kLeft, kTop}, width, height, absl::StrCat("data:image/png;base64,", absl::Base64Escape(png)));
  for (int head = 0; head < map.heads; ++head) {
    svg.Text({kLeft + step * head + grid.tile * scale / 2, kTop - 8}, absl::StrCat("head ", head),
             Svg::Anchor::kMiddle);
  }
  for (int layer = 0; layer < map.layers; ++layer) {
    svg.Text({kLeft - 8, kTop + step * layer + grid.tile * scale / 2}, absl::StrCat("layer ", layer),
             Svg::Anchor::kEnd);
  }
  const std::array<png_color, 256> palette = Palette();
  double x = kLeft;
  const double y = kTop + height + 24;
  for (const double weight : {0.0, 0.001, 0.01, 0.1, 1.0}) {
    const png_color colour = palette[ShadeOf(static_cast<float>(weight))];
    svg.Rectangle({x, y}, 14, 14, absl::StrFormat("#%02x%02x%02x", colour.red, colour.green, colour.blue), "#888888");
    const std::string text = absl::StrFormat("%g", weight);
    svg.Text({x + 20, y + 11}, text);
    x += 34 + Svg::TextWidth(text, 11);
  }
  return svg.Finish(title, absl::StrCat("Attention weights of ", map.length(),
                                        " tokens: queries from top to bottom, keys from left to right, a square for "
                                        "each head."));
}

}  // namespace ablate
