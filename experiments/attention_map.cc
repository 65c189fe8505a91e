#include "experiments/attention_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "ABLATEAM";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostLayers = 4096, kMostHeads = 4096;

struct Header {
  char magic[8];
  uint32_t version, layers, heads, tokens;
};
static_assert(sizeof(Header) == 24);

size_t Triangle(size_t T) { return T * (T + 1) / 2; }

}  // namespace

AttentionMap::Head QuantizeAttention(const float* weights, int T) {
  AttentionMap::Head head;
  head.largest.resize(static_cast<size_t>(T));
  head.weights.reserve(Triangle(static_cast<size_t>(T)));
  for (int i = 0; i < T; ++i) {
    const float* const row = weights + static_cast<int64_t>(i) * T;
    const float largest = std::max(0.0f, *std::max_element(row, row + i + 1));
    head.largest[static_cast<size_t>(i)] = largest;
    for (int j = 0; j <= i; ++j) {
      const float share = row[j] / largest;  // not a number where there is nothing to show
      head.weights.push_back(static_cast<uint8_t>(share > 0 ? std::lround(std::min(share, 1.0f) * 255) : 0));
    }
  }
  return head;
}

std::string EncodeAttentionMap(const AttentionMap& map) {
  Header header{};
  std::copy(kMagic.begin(), kMagic.end(), header.magic);
  header.version = kVersion;
  header.layers = static_cast<uint32_t>(map.layers);
  header.heads = static_cast<uint32_t>(map.heads);
  header.tokens = static_cast<uint32_t>(map.tokens.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(map.tokens.data()), sizeof(int32_t) * map.tokens.size());
  for (const AttentionMap::Head& head : map.maps) {
    bytes.append(reinterpret_cast<const char*>(head.largest.data()), sizeof(float) * head.largest.size());
    bytes.append(reinterpret_cast<const char*>(head.weights.data()), head.weights.size());
  }
  return bytes;
}

absl::StatusOr<AttentionMap> DecodeAttentionMap(std::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof(header) || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError("this is no attention map: it does not start with ABLATEAM");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("the attention map is of version ", header.version, ", this build reads ", kVersion));
  }
  const size_t T = header.tokens;
  if (header.layers < 1 || header.layers > kMostLayers || header.heads < 1 || header.heads > kMostHeads || T < 1 ||
      T > static_cast<size_t>(kLongestAttentionMap)) {
    return absl::InvalidArgumentError(absl::StrCat("the attention map has ", header.layers, " layers, ", header.heads,
                                                   " heads and ", T, " tokens, which no trainer writes"));
  }
  const size_t heads = size_t{header.layers} * header.heads, head_bytes = sizeof(float) * T + Triangle(T);
  const size_t expected = sizeof(header) + sizeof(int32_t) * T + heads * head_bytes;
  if (bytes.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("the attention map has ", bytes.size(),
                                                   " bytes, but what it says of "
                                                   "itself takes ",
                                                   expected, ": it is damaged"));
  }
  AttentionMap map{.layers = static_cast<int>(header.layers), .heads = static_cast<int>(header.heads)};
  const char* at = bytes.data() + sizeof(header);
  const auto take = [&at](void* to, size_t size) {
    std::memcpy(to, at, size);
    at += size;
  };
  map.tokens.resize(T);
  take(map.tokens.data(), sizeof(int32_t) * T);
  map.maps.resize(heads);
  for (AttentionMap::Head& head : map.maps) {
    head.largest.resize(T);
    take(head.largest.data(), sizeof(float) * T);
    head.weights.resize(Triangle(T));
    take(head.weights.data(), head.weights.size());
  }
  return map;
}

}  // namespace ablate
