#include "base/host_port.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

bool HasNoneOf(std::string_view text, std::string_view forbidden) {
  return std::none_of(text.begin(), text.end(), [&](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || forbidden.find(c) != std::string_view::npos;
  });
}

// Whatever else a name may not have is for the resolver to say; these belong to other notations.
bool IsName(std::string_view host) { return !host.empty() && HasNoneOf(host, ":/[]@"); }

bool IsIpv6(std::string_view host) {
  const std::string_view address = host.substr(0, host.find('%')), zone = host.substr(address.size());
  return address.find(':') != std::string_view::npos &&
         address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos && HasNoneOf(zone, "/[]@");
}

bool IsBracketed(std::string_view host) { return host.size() > 2 && host.front() == '[' && host.back() == ']'; }

// -1: none. No sign, no spaces, at most five digits.
int Port(std::string_view digits) {
  if (digits.empty() || digits.size() > 5) return -1;
  int port = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return -1;
    port = port * 10 + (c - '0');
  }
  return port <= 65535 ? port : -1;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const int port = colon == std::string::npos ? -1 : Port(std::string_view(text).substr(colon + 1));
  const bool bracketed = IsBracketed(host);
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (port < 0 || !(bracketed ? IsIpv6(host) : IsName(host))) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not HOST:PORT, e.g. 127.0.0.1:7480 or [::1]:7480"));
  }
  return HostPort{.host = std::move(host), .port = port};
}

std::string ToText(const HostPort& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", address.host, ipv6 ? "]" : "", ":", address.port);
}

}  // namespace ablate
