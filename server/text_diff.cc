// See text_diff.h.
#include "server/text_diff.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ablate {
namespace {

constexpr size_t kContext = 2;
constexpr size_t kMaxCells = 4'000'000;  // of the table of common subsequences

struct Line {
  char sign;  // ' ', '-', '+'
  const std::string* text;
};

std::vector<Line> Compare(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  const size_t n = before.size(), m = after.size();
  std::vector<Line> lines;
  size_t i = 0, j = 0;
  if ((n + 1) * (m + 1) <= kMaxCells) {
    // common[i][j]: length of the longest common subsequence of before[i..] and after[j..].
    std::vector<uint32_t> common((n + 1) * (m + 1), 0);
    const auto at = [&](size_t a, size_t b) -> uint32_t& { return common[a * (m + 1) + b]; };
    for (size_t a = n; a-- > 0;) {
      for (size_t b = m; b-- > 0;) {
        at(a, b) = before[a] == after[b] ? at(a + 1, b + 1) + 1 : std::max(at(a + 1, b), at(a, b + 1));
      }
    }
    while (i < n && j < m) {
      if (before[i] == after[j]) {
        lines.push_back({' ', &before[i++]});
        ++j;
      } else if (at(i + 1, j) >= at(i, j + 1)) {
        lines.push_back({'-', &before[i++]});
      } else {
        lines.push_back({'+', &after[j++]});
      }
    }
  } else {
    while (i < n && j < m && before[i] == after[j]) {
      lines.push_back({' ', &before[i++]});
      ++j;
    }
  }
  while (i < n) lines.push_back({'-', &before[i++]});
  while (j < m) lines.push_back({'+', &after[j++]});
  return lines;
}

}  // namespace

std::string UnifiedDiff(const std::string& before_text, const std::string& after_text, size_t max_lines) {
  if (before_text == after_text) return "";
  const std::vector<std::string> before = absl::StrSplit(before_text, '\n');
  const std::vector<std::string> after = absl::StrSplit(after_text, '\n');
  const std::vector<Line> lines = Compare(before, after);
  std::vector<bool> shown(lines.size(), false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].sign == ' ') continue;
    const size_t end = std::min(lines.size(), i + kContext + 1);
    for (size_t k = i > kContext ? i - kContext : 0; k < end; ++k) shown[k] = true;
  }
  std::string diff;
  size_t count = 0, old_line = 1, new_line = 1;
  bool in_hunk = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (shown[i]) {
      if (count >= max_lines) return absl::StrCat(diff, "...\n");
      if (!in_hunk) absl::StrAppend(&diff, "@@ line ", old_line, " before, line ", new_line, " after @@\n");
      absl::StrAppend(&diff, std::string(1, lines[i].sign), *lines[i].text, "\n");
      ++count;
    }
    in_hunk = shown[i];
    old_line += lines[i].sign != '+';
    new_line += lines[i].sign != '-';
  }
  return diff;
}

}  // namespace ablate
