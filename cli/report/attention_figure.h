// Attention maps as pictures: a grid of heads, layers from top to bottom. Must not know where maps come from.
// The only file that knows libpng. Thread rule: free functions without state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "experiments/attention_map.h"

namespace ablate {

// A PNG of the grid alone: queries from top to bottom, keys from left to right. The darker, the larger the weight: the
// colour goes by its cube root, from white at 0 to dark blue at 1 and above (0.001: a tenth of the way, 0.1: about half);
// keys that a query cannot see are grey. A map of few tokens is enlarged, one wider than 4096 pixels in all shows the
// largest weight of each block of pixels. Internal: libpng fails.
absl::StatusOr<std::string> AttentionMapPng(const AttentionMap& map);

// The same as an SVG, which holds the PNG, with the numbers of layers and heads, a scale and `title`.
absl::StatusOr<std::string> AttentionMapSvg(const AttentionMap& map, const std::string& title);

}  // namespace ablate
