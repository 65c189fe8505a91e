// Fuzz target: what comes through a trainer's pipe. First byte: which end reads (a TrainerRequest or a TrainerEvent);
// second: the size of the pieces that it comes in. Both readers must say the same of it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/trainer.pb.h"
#include "tests/fuzz/memory_file.h"
#include "worker/pipe.h"

namespace ablate {
namespace {

constexpr size_t kMaxBytes = 4096;  // less than the product's, so that its edge is met

struct Read {
  std::vector<std::string> messages;
  absl::StatusCode end;
};

// From a descriptor, as the trainer does.
template <typename Message>
Read ReadAll(std::string_view bytes) {
  const MemoryFile file(bytes);
  Read read;
  while (true) {
    Message message;
    const absl::Status status = ReadMessage(file.fd(), &message, kMaxBytes);
    if (!status.ok()) {
      read.end = status.code();
      return read;
    }
    read.messages.push_back(message.SerializeAsString());
    // What was read can be written and read again.
    const MemoryFile copy("");
    CHECK(WriteMessage(copy.fd(), message).ok());
    CHECK_EQ(::lseek(copy.fd(), 0, SEEK_SET), 0);
    Message again;
    CHECK(ReadMessage(copy.fd(), &again).ok());
    CHECK(again.SerializeAsString() == read.messages.back());
  }
}

// As bytes come, as the daemon does.
template <typename Message>
Read Buffer(std::string_view bytes, size_t piece) {
  MessageBuffer buffer(kMaxBytes);
  Read read;
  while (true) {
    const size_t size = std::min(piece, bytes.size());
    buffer.Append(bytes.substr(0, size));
    bytes.remove_prefix(size);
    while (true) {
      Message message;
      const absl::StatusOr<bool> next = buffer.Next(&message);
      if (!next.ok()) {
        read.end = next.status().code();
        return read;
      }
      if (!*next) break;
      read.messages.push_back(message.SerializeAsString());
    }
    if (bytes.empty()) break;
  }
  read.end = buffer.AtBoundary() ? absl::StatusCode::kOutOfRange : absl::StatusCode::kDataLoss;
  return read;
}

template <typename Message>
void Compare(std::string_view bytes, size_t piece) {
  const Read whole = ReadAll<Message>(bytes), pieces = Buffer<Message>(bytes, piece);
  CHECK(whole.end == absl::StatusCode::kOutOfRange || whole.end == absl::StatusCode::kDataLoss ||
        whole.end == absl::StatusCode::kResourceExhausted);
  CHECK(whole.messages == pieces.messages);
  CHECK_EQ(whole.end, pieces.end);
}

}  // namespace
}  // namespace ablate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;                    // NOLINT
  google::protobuf::SetLogHandler(nullptr);  // one line an input that is no UTF-8
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const bool request = TakeByte(&rest) % 2 == 1;
  const size_t piece = 1 + TakeByte(&rest);
  request ? Compare<v1::TrainerRequest>(rest, piece) : Compare<v1::TrainerEvent>(rest, piece);
  return 0;
}
