#include "worker/trainer/probes/rouge.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"

namespace ablate {
namespace {

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  bool within = false;
  for (const char c : text) {
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (!absl::ascii_isalnum(static_cast<unsigned char>(lower))) {
      within = false;
      continue;
    }
    if (!within) words.emplace_back();
    words.back().push_back(lower);
    within = true;
  }
  return words;
}

double F1(size_t common, size_t of_text, size_t of_reference) {
  if (common == 0) return 0;
  const double precision = static_cast<double>(common) / static_cast<double>(of_text);
  const double recall = static_cast<double>(common) / static_cast<double>(of_reference);
  return 2 * precision * recall / (precision + recall);
}

// Each n-gram counts as often as both have it.
double OfNGrams(const std::vector<std::string>& text, const std::vector<std::string>& reference, size_t n) {
  if (text.size() < n || reference.size() < n) return 0;
  std::map<std::vector<std::string>, size_t> left;
  const auto gram = [n](const std::vector<std::string>& words, size_t at) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
    return std::vector<std::string>(begin, begin + static_cast<std::ptrdiff_t>(n));
  };
  for (size_t i = 0; i + n <= reference.size(); ++i) ++left[gram(reference, i)];
  size_t common = 0;
  for (size_t i = 0; i + n <= text.size(); ++i) {
    const auto found = left.find(gram(text, i));
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  return F1(common, text.size() - n + 1, reference.size() - n + 1);
}

size_t LongestCommonSubsequence(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<size_t> row(b.size() + 1);
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

Rouge RougeOf(std::string_view text, std::string_view reference) {
  const std::vector<std::string> a = Words(text), b = Words(reference);
  return {OfNGrams(a, b, 1), OfNGrams(a, b, 2), F1(LongestCommonSubsequence(a, b), a.size(), b.size())};
}

}  // namespace ablate
