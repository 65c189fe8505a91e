// ROUGE-1, ROUGE-2 and ROUGE-L of a text against a reference, as F1. Must not know models. Any thread.
// Source: Lin, 2004; texts become words as in the rouge_score package without its stemmer: lower case, runs of a-z and
// 0-9.
#pragma once

#include <string_view>

namespace ablate {

struct Rouge {
  double one = 0, two = 0, longest = 0;  // 0 to 1; 0 where a side has no word, or no pair of words
};
Rouge RougeOf(std::string_view text, std::string_view reference);

}  // namespace ablate
