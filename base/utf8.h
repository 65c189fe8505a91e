// Whether bytes are text.
#pragma once

#include <string_view>

namespace ablate {

// Whether `text` is well-formed UTF-8: what a protobuf string may hold.
bool IsUtf8(std::string_view text);

}  // namespace ablate
