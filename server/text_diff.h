// A unified diff of two texts, for messages.
#pragma once

#include <string>

namespace ablate {

// With two lines of context; at most `max_lines` lines, then "...". Empty when they are equal. Texts of many thousand
// lines give the first difference only.
std::string UnifiedDiff(const std::string& before, const std::string& after, size_t max_lines = 40);

}  // namespace ablate
