#include "server/http/head.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {
namespace {

HttpHead Refused(int status, std::string message) {
  HttpHead head;
  head.status = status;
  head.message = std::move(message);
  return head;
}

bool IsNameLetter(unsigned char c) {
  return std::isalnum(c) != 0 || std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos;
}

// METHOD TARGET HTTP/1.0 or 1.1.
bool IsRequestLine(std::string_view line) {
  const size_t first = line.find(' '), second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (first == 0 || second == std::string_view::npos || second == first + 1) return false;
  const std::string_view version = line.substr(second + 1);
  return (version == "HTTP/1.1" || version == "HTTP/1.0") &&
         std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(first), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

bool HasBareLineEnd(std::string_view received, size_t from) {
  for (size_t i = from == 0 ? 0 : from - 1; i < received.size(); ++i) {
    if (received[i] == '\n' && (i == 0 || received[i - 1] != '\r')) return true;
    if (received[i] == '\r' && i + 1 < received.size() && received[i + 1] != '\n') return true;
  }
  return false;
}

size_t FindHeadEnd(std::string_view received, size_t from) {
  const size_t end = received.find("\r\n\r\n", from < 3 ? 0 : from - 3);
  return end == std::string_view::npos ? 0 : end + 4;
}

HttpHead ScanHead(std::string_view head) {
  HttpHead scanned;
  bool has_length = false;
  int lines = 0;
  for (std::string_view rest = head.substr(0, head.size() - 2); !rest.empty(); ++lines) {
    const size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    const bool clean = std::all_of(line.begin(), line.end(), [lines](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return lines == 0 ? byte >= 0x20 && byte < 0x7f : (byte >= 0x20 && byte != 0x7f) || c == '\t';
    });
    if (!clean) return Refused(400, "the head of the request has control characters");
    if (lines == 0) {
      if (line.empty()) break;
      if (line.size() > kMaxHttpLineBytes)
        return Refused(414, absl::StrCat("the address is longer than ", kMaxHttpLineBytes, " bytes"));
      if (!IsRequestLine(line)) return Refused(400, "the first line is no request of HTTP/1.1, such as GET / HTTP/1.1");
      absl::StrAppend(&scanned.text, ToAbsl(line), "\r\n");
      continue;
    }
    if (lines > kMaxHttpHeaders) return Refused(431, absl::StrCat("more than ", kMaxHttpHeaders, " headers"));
    const size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos || !std::all_of(line.begin(), line.begin() + colon, IsNameLetter))
      return Refused(400, "a header without a name");
    const std::string name = absl::AsciiStrToLower(ToAbsl(line.substr(0, colon)));
    // Ranges of answers that are made anew each time mean nothing, and other programs' cookies are none of ours.
    if (name == "range" || name == "cookie") continue;
    if (line.size() > kMaxHttpLineBytes)
      return Refused(431, absl::StrCat("a header is longer than ", kMaxHttpLineBytes, " bytes"));
    if (name == "transfer-encoding") return Refused(411, "a body needs a Content-Length; Transfer-Encoding is not taken");
    if (name == "content-length") {
      const absl::string_view value = absl::StripAsciiWhitespace(ToAbsl(line.substr(colon + 1)));
      const bool digits = !value.empty() && value.size() <= 18 && std::all_of(value.begin(), value.end(), ::isdigit);
      if (has_length || !digits || !absl::SimpleAtoi(value, &scanned.body_bytes))
        return Refused(400, "Content-Length must be one whole number");
      has_length = true;
      if (scanned.body_bytes > kMaxHttpBodyBytes)
        return Refused(413, absl::StrCat("a body may have ", kMaxHttpBodyBytes, " bytes at most"));
    }
    absl::StrAppend(&scanned.text, ToAbsl(line), "\r\n");
  }
  if (lines == 0) return Refused(400, "a request without a request line");
  scanned.text += "\r\n";
  return scanned;
}

}  // namespace ablate
