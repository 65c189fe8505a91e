#include "worker/pipe.h"

#include <google/protobuf/message_lite.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

// 2^35 is far above any limit, so a sixth byte can only be garbage.
constexpr int kMaxVarintBytes = 5;

absl::Status BadLength() { return absl::DataLossError("the pipe's message length is not a varint"); }

absl::Status TooLong(uint64_t bytes, size_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a pipe message of ", bytes, " bytes is above the limit of ", limit));
}

absl::Status Parse(const char* data, size_t size, google::protobuf::MessageLite* message) {
  if (message->ParseFromArray(data, static_cast<int>(size))) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a pipe message of ", size, " bytes is no ", message->GetTypeName()));
}

// Reads exactly `size` bytes. OutOfRange when the end comes before the first.
absl::Status ReadExactly(int fd, char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(fd, data + done, size - done);
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count == 0) {
      if (done == 0) return absl::OutOfRangeError("the other end of the pipe closed");
      return absl::DataLossError("the pipe closed inside a message");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      struct pollfd wait = {fd, POLLIN, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("cannot read from the pipe: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::Status AsTruncation(const absl::Status& status) {
  if (absl::IsOutOfRange(status)) return absl::DataLossError("the pipe closed inside a message");
  return status;
}

}  // namespace

absl::Status ReadMessage(int fd, google::protobuf::MessageLite* message, size_t max_bytes) {
  uint64_t length = 0;
  for (int i = 0;; ++i) {
    if (i == kMaxVarintBytes) return BadLength();
    char byte = 0;
    const absl::Status status = ReadExactly(fd, &byte, 1);
    if (!status.ok()) return i == 0 ? status : AsTruncation(status);
    length |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) break;
  }
  if (length > max_bytes) return TooLong(length, max_bytes);
  std::string bytes(length, '\0');
  if (length > 0) ABLATE_RETURN_IF_ERROR(AsTruncation(ReadExactly(fd, bytes.data(), length)));
  return Parse(bytes.data(), bytes.size(), message);
}

absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message, int timeout_ms) {
  const size_t length = message.ByteSizeLong();
  if (length > kMaxPipeMessageBytes) return TooLong(length, kMaxPipeMessageBytes);
  std::string bytes;
  for (uint64_t rest = length;; rest >>= 7) {
    bytes.push_back(static_cast<char>((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0)));
    if (rest <= 0x7f) break;
  }
  if (!message.AppendToString(&bytes))
    return absl::InvalidArgumentError("a required field of the pipe message is not set");

  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      struct pollfd wait = {fd, POLLOUT, 0};
      if (::poll(&wait, 1, timeout_ms) == 0) {
        return absl::DeadlineExceededError(
            absl::StrCat("the other end of the pipe took nothing for ", timeout_ms, " ms"));
      }
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("cannot write to the pipe: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageBuffer::Next(google::protobuf::MessageLite* message) {
  uint64_t length = 0;
  size_t at = begin_;
  for (int i = 0;; ++i) {
    if (i == kMaxVarintBytes) return BadLength();
    if (at == buffer_.size()) return false;
    const unsigned char byte = static_cast<unsigned char>(buffer_[at++]);
    length |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) break;
  }
  if (length > max_bytes_) return TooLong(length, max_bytes_);
  if (buffer_.size() - at < length) return false;
  ABLATE_RETURN_IF_ERROR(Parse(buffer_.data() + at, length, message));
  begin_ = at + length;
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > (64u << 10)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return true;
}

}  // namespace ablate
