#include "server/http/origin.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {
namespace {

struct Authority {
  std::string host;  // in lower case; an IPv6 address with its brackets
  std::string port;  // "": none
};

// Host "" where `text` is none.
Authority ParseAuthority(std::string_view text) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(text));
  const size_t bracket = lower.rfind(']');
  const size_t colon = lower.find(':', bracket == std::string::npos ? 0 : bracket);
  Authority authority{lower.substr(0, colon), colon == std::string::npos ? "" : lower.substr(colon + 1)};
  const bool digits = std::all_of(authority.port.begin(), authority.port.end(), absl::ascii_isdigit);
  const bool clean = std::all_of(lower.begin(), lower.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
  });
  if (!digits || !clean || authority.port.size() > 5) return {};
  // "localhost." is the same name.
  if (authority.host.size() > 1 && authority.host.back() == '.') authority.host.pop_back();
  return authority;
}

}  // namespace

OriginChecker::OriginChecker(const std::string& address, const std::vector<std::string>& more_names, bool any_host, bool tls)
    : names_({"localhost", "127.0.0.1", "[::1]", ParseAuthority(address).host}), any_host_(any_host), tls_(tls) {
  for (const std::string& name : more_names) names_.push_back(ParseAuthority(name).host);
  std::erase(names_, "");
}

absl::Status OriginChecker::Check(std::string_view host, bool has_origin, std::string_view origin) const {
  const Authority named = ParseAuthority(host);
  if (named.host.empty()) return absl::PermissionDeniedError("the request needs one Host header, with a name");
  if (!any_host_ && std::find(names_.begin(), names_.end(), named.host) == names_.end()) {
    return absl::PermissionDeniedError(absl::StrCat(
        named.host, " is no name of this server: open the address that it printed at its start, or start it with --http-host ",
        named.host, " if that name is yours (docs/security.md)"));
  }
  if (!has_origin) return absl::OkStatus();
  const size_t scheme = origin.find("://");
  const Authority from = scheme == std::string_view::npos ? Authority() : ParseAuthority(origin.substr(scheme + 3));
  const bool web = absl::StartsWith(ToAbsl(origin), "http://") || absl::StartsWith(ToAbsl(origin), "https://");
  // A port that is left out is that of the scheme, and a proxy in front of us may speak another one than we do.
  const auto port_of = [](const Authority& authority, bool secure) {
    return authority.port.empty() ? (secure ? "443" : "80") : authority.port;
  };
  const bool origin_secure = absl::StartsWith(ToAbsl(origin), "https:");
  const bool same = web && from.host == named.host && port_of(from, origin_secure) == port_of(named, named.port.empty() ? origin_secure : tls_);
  if (same) return absl::OkStatus();
  return absl::PermissionDeniedError("the request comes from a page of another site");
}

}  // namespace ablate
