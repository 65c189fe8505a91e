// TensorBoard files, read back record by record.
#include "cli/report/tensorboard.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace ablate {
namespace {

using google::protobuf::internal::WireFormatLite;

TEST(TensorBoard, CrcIsCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);  // the check value of RFC 3720
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(""), 0u);
}

uint32_t Unmasked(uint32_t crc) {
  const uint32_t rotated = crc - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

struct Event {
  double wall = 0;
  int64_t step = 0;
  std::string version, tag;
  float value = 0;
};

void ReadMessage(const std::string& bytes, Event* event, int depth) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  while (const uint32_t tag = in.ReadTag()) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    uint64_t fixed64 = 0, varint = 0;
    uint32_t fixed32 = 0;
    std::string inner;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_FIXED64:
        ASSERT_TRUE(in.ReadLittleEndian64(&fixed64));
        std::memcpy(&event->wall, &fixed64, 8);
        break;
      case WireFormatLite::WIRETYPE_VARINT:
        ASSERT_TRUE(in.ReadVarint64(&varint));
        event->step = static_cast<int64_t>(varint);
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        ASSERT_TRUE(in.ReadLittleEndian32(&fixed32));
        std::memcpy(&event->value, &fixed32, 4);
        break;
      default: {
        int size = 0;
        ASSERT_TRUE(in.ReadVarintSizeAsInt(&size) && in.ReadString(&inner, size));
        if (depth == 0 && field == 3) event->version = inner;
        if (depth == 0 && field == 5) ReadMessage(inner, event, 1);  // summary
        if (depth == 1 && field == 1) ReadMessage(inner, event, 2);  // value
        if (depth == 2 && field == 1) event->tag = inner;
      }
    }
  }
}

TEST(TensorBoard, RecordsHoldWhatWasGivenAndTheirSums) {
  const std::vector<Scalar> scalars = {{"train/train_loss", 10, 3.25},
                                       {"train/train_loss", 20, std::numeric_limits<double>::quiet_NaN()},
                                       {"by_length/selection/loss", 1024, -0.5}};
  const std::string file = EventFile(scalars, 1.5);
  EXPECT_EQ(file, EventFile(scalars, 1.5));
  std::vector<Event> events;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    uint32_t length_crc = 0, data_crc = 0;
    std::memcpy(&length, &file[at], 8);
    std::memcpy(&length_crc, &file[at + 8], 4);
    EXPECT_EQ(Unmasked(length_crc), Crc32c(file.substr(at, 8)));
    const std::string data = file.substr(at + 12, length);
    std::memcpy(&data_crc, &file[at + 12 + length], 4);
    EXPECT_EQ(Unmasked(data_crc), Crc32c(data));
    events.emplace_back();
    ReadMessage(data, &events.back(), 0);
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].tag, "train/train_loss");
  EXPECT_EQ(events[1].step, 10);
  EXPECT_EQ(events[1].value, 3.25f);
  EXPECT_EQ(events[1].wall, 1.5);
  EXPECT_TRUE(std::isnan(events[2].value));
  EXPECT_EQ(events[3].step, 1024);
}

}  // namespace
}  // namespace ablate
