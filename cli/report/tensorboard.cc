#include "cli/report/tensorboard.h"

#include <array>
#include <bit>
#include <cstring>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

namespace ablate {
namespace {

using google::protobuf::internal::WireFormatLite;
static_assert(std::endian::native == std::endian::little);

template <typename T>
void AppendBytes(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

uint32_t MaskedCrc(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void AppendRecord(const std::string& data, std::string* file) {
  std::string length;
  AppendBytes<uint64_t>(data.size(), &length);
  *file += length;
  AppendBytes<uint32_t>(MaskedCrc(length), file);
  *file += data;
  AppendBytes<uint32_t>(MaskedCrc(data), file);
}

// One message, its fields written by `fill`.
template <typename Fill>
std::string Message(const Fill& fill) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    fill(&out);
  }
  return bytes;
}

using Out = google::protobuf::io::CodedOutputStream*;

// Event {1 wall_time, 2 step, 3 file_version, 5 summary}; Summary {1 value}; Value {1 tag, 2 simple_value}.
std::string VersionEvent(double wall) {
  return Message([&](Out out) {
    WireFormatLite::WriteDouble(1, wall, out);
    WireFormatLite::WriteString(3, "brain.Event:2", out);
  });
}
std::string ScalarEvent(const Scalar& scalar, double wall) {
  const std::string value = Message([&](Out out) {
    WireFormatLite::WriteString(1, scalar.tag, out);
    WireFormatLite::WriteFloat(2, static_cast<float>(scalar.value), out);
  });
  const std::string summary = Message([&](Out out) { WireFormatLite::WriteBytes(1, value, out); });
  return Message([&](Out out) {
    WireFormatLite::WriteDouble(1, wall, out);
    WireFormatLite::WriteInt64(2, scalar.step, out);
    WireFormatLite::WriteBytes(5, summary, out);
  });
}

}  // namespace

uint32_t Crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string EventFile(const std::vector<Scalar>& scalars, double wall_seconds) {
  std::string file;
  AppendRecord(VersionEvent(wall_seconds), &file);
  for (const Scalar& scalar : scalars) AppendRecord(ScalarEvent(scalar, wall_seconds), &file);
  return file;
}

}  // namespace ablate
