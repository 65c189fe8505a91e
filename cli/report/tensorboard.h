// Scalars as a TensorBoard event file: TFRecord framing around tensorflow.Event messages
// (github.com/tensorflow/tensorflow: core/lib/io/record_writer.h, core/util/event.proto). Must not know sweeps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ablate {

struct Scalar {
  std::string tag;
  int64_t step = 0;
  double value = 0;  // stored as a float; NaN and infinities survive
};

// The whole file; every event carries `wall_seconds`, so that the same scalars give the same bytes.
std::string EventFile(const std::vector<Scalar>& scalars, double wall_seconds);

// CRC-32C (Castagnoli, RFC 3720 appendix B.4).
uint32_t Crc32c(const std::string& bytes);

}  // namespace ablate
