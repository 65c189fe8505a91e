#include "server/http/uri.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ablate {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

absl::StatusOr<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const bool whole = text.size() - i > 2;
      const int high = whole ? HexDigit(text[i + 1]) : -1, low = whole ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return absl::InvalidArgumentError("the address has a % without two hexadecimal digits");
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  for (const char c : decoded) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return absl::InvalidArgumentError("the address has control characters");
  }
  if (!IsUtf8(decoded)) return absl::InvalidArgumentError("the address is not UTF-8");
  return decoded;
}

}  // namespace

absl::StatusOr<Target> ParseTarget(std::string_view target) {
  if (target.empty() || target.front() != '/') return absl::InvalidArgumentError("an address begins with /");
  Target parsed;
  const size_t question = target.find('?');
  std::string_view path = target.substr(0, question);
  parsed.path = std::string(path);
  path.remove_prefix(1);
  while (!path.empty()) {
    const size_t slash = path.find('/');
    ABLATE_ASSIGN_OR_RETURN(std::string segment, Decode(path.substr(0, slash), false));
    parsed.segments.push_back(std::move(segment));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  if (question == std::string_view::npos) return parsed;
  std::string_view query = target.substr(question + 1);
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view item = query.substr(0, end);
    if (!item.empty()) {
      const size_t equals = item.find('=');
      ABLATE_ASSIGN_OR_RETURN(std::string name, Decode(item.substr(0, equals), true));
      ABLATE_ASSIGN_OR_RETURN(std::string value,
                              Decode(equals == std::string_view::npos ? "" : item.substr(equals + 1), true));
      parsed.query.emplace_back(std::move(name), std::move(value));
    }
    if (end == std::string_view::npos) break;
    query.remove_prefix(end + 1);
  }
  return parsed;
}

}  // namespace ablate
