#include "server/services/adapter.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

constexpr size_t kMaxStatusBytes = 7000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::string_view message = status.message();
  // On the wire, every byte that is not printable ASCII takes three.
  size_t encoded = 0, kept = 0;
  while (kept < message.size()) {
    const unsigned char c = static_cast<unsigned char>(message[kept]);
    encoded += c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3;
    if (encoded > kMaxStatusBytes) break;
    ++kept;
  }
  // Not in the middle of a UTF-8 sequence.
  while (kept > 0 && kept < message.size() && (static_cast<unsigned char>(message[kept]) & 0xc0) == 0x80) --kept;
  std::string text(message.data(), kept);
  if (kept < message.size()) absl::StrAppend(&text, "... (", message.size() - kept, " more bytes)");
  // The two code sets have the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(static_cast<int>(status.code())), text);
}

}  // namespace ablate
