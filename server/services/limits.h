// How much may come in: sizes of texts, counts of lists and ranges of numbers in the requests of every service, in one
// table (limits.cc; docs/limits.md says them to users). Must not know gRPC or what a method means.
// Thread rule: free functions over constant tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ablate {

// Of one message, before it is read; gRPC refuses a larger one (ResourceExhausted). What a field may hold is less.
inline constexpr int kMaxMessageBytes = 32 << 20;

// `field` is a name, the same wherever it appears in a request or below it, or "Message.name", which goes before.
struct TextLimit {  // of `string` and `bytes` fields, and of each text of a list
  std::string_view field;
  size_t max_bytes;
  bool required = false;          // of a request itself: must not be empty
  std::string_view instead = {};  // what to do; empty: nothing better to say than the number
};
struct ListLimit {
  std::string_view field;
  int max_items;
  std::string_view instead = {};
};
struct NumberLimit {
  std::string_view field;
  double minimum, maximum;
};

// What is not named: the rows with field "" (the first ones).
std::span<const TextLimit> TextLimits();
std::span<const ListLimit> ListLimits();
std::span<const NumberLimit> NumberLimits();
// As refusals and the page write it: 10000000, not 1e+07.
std::string NumberText(double number);

// InvalidArgument ("SubmitSweepRequest.request_id: must not be empty"): `request`, or a message in it, has a text or
// list that is too long, a number out of range, a hash that is none, a name with a path; of the request itself also
// what is missing.
absl::Status CheckRequest(const google::protobuf::Message& request);

}  // namespace ablate
