// Length-delimited protobuf messages over file descriptors: a varint length, then that many bytes. The pipe of
// proto/trainer.proto, used by both ends (the worker's slot and the trainer child). Must not know what the messages
// mean.
//
// The caller ignores SIGPIPE; then a closed reader is an error and not the end of the process.
// Thread rule: one reader and one writer thread a descriptor; several writers must lock among themselves.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace ablate {

inline constexpr size_t kMaxPipeMessageBytes = 16 << 20;

// Blocks until one whole message was read; reads not one byte more, so it may be mixed with poll(2).
// OutOfRange: the other end closed before the first byte (the clean end).
// DataLoss: closed inside a message, a length that is no varint, or bytes that do not parse.
// ResourceExhausted: the message is longer than `max_bytes`. Unavailable: the read failed.
// After any error but OutOfRange the stream is of no further use.
absl::Status ReadMessage(int fd, google::protobuf::MessageLite* message, size_t max_bytes = kMaxPipeMessageBytes);

// Blocks until the whole message is written; a descriptor with O_NONBLOCK is waited for, `timeout_ms` at most (-1: for
// ever). ResourceExhausted: longer than kMaxPipeMessageBytes (nothing is written). DeadlineExceeded: the other end
// takes nothing. Unavailable: the other end closed, or the write failed.
absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message, int timeout_ms = -1);

// The reading side for a caller that waits on several descriptors: bytes go in as they come, messages come out.
class MessageBuffer {
 public:
  explicit MessageBuffer(size_t max_bytes = kMaxPipeMessageBytes) : max_bytes_(max_bytes) {}

  void Append(std::string_view bytes) { buffer_.append(bytes); }
  // True: `message` holds the next one. False: more bytes are needed. DataLoss, ResourceExhausted: as ReadMessage.
  absl::StatusOr<bool> Next(google::protobuf::MessageLite* message);
  // Nothing of a message is waiting: an end of file here is a clean one.
  bool AtBoundary() const { return begin_ == buffer_.size(); }

 private:
  const size_t max_bytes_;
  std::string buffer_;
  size_t begin_ = 0;  // what lies before it has been given out
};

}  // namespace ablate
