#include "server/scheduler/failure_signature.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "server/scheduler/job_states.h"

namespace ablate {
namespace {

constexpr size_t kMaxBytes = 200;

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

// Ids, counts, sizes, addresses: "job_5f0c", "0x7f21", "1.19", "12:30:07", "2026-11-30".
std::string WithoutNumbers(const std::string& line) {
  std::string out;
  for (size_t i = 0; i < line.size();) {
    if (!IsWord(line[i])) {
      out += line[i++];
      continue;
    }
    const size_t begin = i;
    bool digit = false;
    while (i < line.size()) {
      if (IsWord(line[i])) {
        digit |= IsDigit(line[i]);
      } else if (!(digit && i + 1 < line.size() && IsDigit(line[i + 1]) &&
                   (line[i] == '.' || line[i] == ':' || line[i] == '-' || line[i] == ','))) {
        break;
      }
      ++i;
    }
    if (digit) {
      out += '#';
    } else {
      out.append(line, begin, i - begin);
    }
  }
  return out;
}

}  // namespace

std::string FailureSignature(const v1::Failure& failure) {
  const std::string line = failure.message().substr(0, failure.message().find('\n'));
  std::string text = absl::StrCat(ToAbsl(RuleFor(failure.kind()).name), ": ", WithoutNumbers(line.substr(0, 4 * kMaxBytes)));
  if (text.size() > kMaxBytes) {
    size_t end = kMaxBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text.resize(end);
  }
  return text;
}

}  // namespace ablate
