// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011), so that every number has an address
// (seed, stream, index) and nothing depends on the order of drawing. Must not know models or data.
// An extra parameter, another batch size or a resume therefore shifts nothing, and no generator state is stored.
// Thread rule: all functions are pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ablate {

// The bijection itself: 10 rounds, the constants of Random123.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// One stream of numbers, addressed by a 64-bit index. key = seed (low word first); counter = {index low, index high,
// stream low, stream high}; stream = FNV-1a of the stream's name. Names are permanent: they fix every result.
//   initial weights: PhiloxStream(seed, "init/" + parameter name), index = element
//   data order:      PhiloxStream(seed, "data_order"), index = global sample index
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, std::string_view stream_name);

  std::array<uint32_t, 4> Block(uint64_t index) const;
  // 64 bits from block `index`.
  uint64_t Bits(uint64_t index) const;
  // In [0, 1), 53 bits, from block `index`.
  double Uniform(uint64_t index) const;
  // In [0, bound), bound >= 1, from block `index`; bias below bound / 2^64.
  uint64_t Below(uint64_t index, uint64_t bound) const;
  // Standard normal by Box-Muller. Number `index` is lane index % 4 of block index / 4: numbers of one stream are
  // independent of each other, but share blocks with Bits and Uniform, so use a stream for one kind only.
  double Normal(uint64_t index) const;

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 2> stream_;
};

}  // namespace ablate
