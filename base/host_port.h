// HOST:PORT, as flags name what is listened on: the one place that takes it apart. Must not know who listens, nor ask a resolver.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ablate {

struct HostPort {
  std::string host;  // an IPv6 address without its brackets
  int port = 0;      // 0 to 65535
};

// "127.0.0.1:7433", "localhost:0", "[::1]:7433": an IPv6 address stands in brackets. What the host names need not exist.
// InvalidArgument, with `"TEXT" is not HOST:PORT` and examples.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);

// The text again, with brackets where they belong.
std::string ToText(const HostPort& address);

}  // namespace ablate
