#include "worker/trainer/philox.h"

#include <cmath>

namespace ablate {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

PhiloxStream::PhiloxStream(uint64_t seed, std::string_view stream_name)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : stream_name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  stream_ = {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

std::array<uint32_t, 4> PhiloxStream::Block(uint64_t index) const {
  return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), stream_[0], stream_[1]}, key_);
}

uint64_t PhiloxStream::Bits(uint64_t index) const {
  const auto block = Block(index);
  return (uint64_t{block[1]} << 32) | block[0];
}

double PhiloxStream::Uniform(uint64_t index) const { return static_cast<double>(Bits(index) >> 11) * 0x1p-53; }

uint64_t PhiloxStream::Below(uint64_t index, uint64_t bound) const {
  __extension__ using uint128 = unsigned __int128;
  return static_cast<uint64_t>((static_cast<uint128>(Bits(index)) * bound) >> 64);
}

double PhiloxStream::Normal(uint64_t index) const {
  const auto block = Block(index / 4);
  const int pair = static_cast<int>(index % 4) / 2;
  // The half step keeps both uniforms away from 0, so the logarithm is finite; the largest normal is 6.8.
  const double u = (block[2 * pair] + 0.5) * 0x1p-32;
  const double angle = 2.0 * M_PI * ((block[2 * pair + 1] + 0.5) * 0x1p-32);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace ablate
