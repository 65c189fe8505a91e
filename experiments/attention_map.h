// The file attention-map.bin: the attention weights of every layer and head over one short text, as the trainer's task
// attention_map writes it and the CLI draws it. Must not know models or drawings. Layout: docs/evaluations.md.
// Thread rule: free functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

inline constexpr int kLongestAttentionMap = 512;  // tokens
inline constexpr std::string_view kAttentionMapFile = "attention-map.bin";
inline constexpr std::string_view kAttentionMapMediaType = "application/vnd.ablate.attention-map";

struct AttentionMap {
  struct Head {
    std::vector<float> largest;    // [T]: of each row, its largest weight
    std::vector<uint8_t> weights;  // rows 0 to T - 1 of i + 1 values: the weight over the row's largest, 0 to 255
  };
  int layers = 0, heads = 0;
  std::vector<int32_t> tokens;  // [T], 1 to kLongestAttentionMap
  std::vector<Head> maps;       // [layers, heads]

  int length() const { return static_cast<int>(tokens.size()); }
  const Head& at(int layer, int head) const { return maps[static_cast<size_t>(layer) * heads + head]; }
  // Of query i to key j, j <= i; within largest[i] / 510 of what it was.
  float weight(int layer, int head, int i, int j) const {
    const Head& map = at(layer, head);
    return map.largest[static_cast<size_t>(i)] *
           static_cast<float>(map.weights[static_cast<size_t>(i) * (i + 1) / 2 + j]) / 255;
  }
};

// One head's map of weights [T,T], of which the lower triangle is read. Weights below 0 become 0.
AttentionMap::Head QuantizeAttention(const float* weights, int T);

std::string EncodeAttentionMap(const AttentionMap& map);
// InvalidArgument: it does not start like one, is of a later version, or has another length than it says.
absl::StatusOr<AttentionMap> DecodeAttentionMap(std::string_view bytes);

}  // namespace ablate
