// Whether bytes are text.
#pragma once

#include <string>
#include <string_view>

namespace ablate {

// Whether `text` is well-formed UTF-8: what a protobuf string may hold.
bool IsUtf8(std::string_view text);

// `text` with U+FFFD in place of each byte that is no part of well-formed UTF-8: what a program printed, a path, a text
// that was cut. A protobuf message with other bytes in a string is written, and then refused by whoever reads it.
std::string ToUtf8(std::string_view text);

}  // namespace ablate
