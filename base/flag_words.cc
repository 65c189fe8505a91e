#include "base/flag_words.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {

absl::StatusOr<FlagWords> UnderscoreFlags(const std::vector<std::string>& known, const std::vector<std::string>& switches,
                                          std::vector<std::string>* words) {
  for (size_t i = 1; i < words->size(); ++i) {
    std::string& word = (*words)[i];
    if (word == "--help" || word == "-h") return FlagWords::kHelp;
    if (word == "--version") return FlagWords::kVersion;
    if (!absl::StartsWith(word, "--")) continue;
    const size_t end = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, end);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag ", name, DidYouMean(name, known)));
    }
    std::replace(word.begin() + 2, word.begin() + static_cast<std::ptrdiff_t>(end), '-', '_');
    // Its value, which may begin with dashes.
    if (end == word.size() && std::find(switches.begin(), switches.end(), name) == switches.end()) ++i;
  }
  return FlagWords::kRun;
}

}  // namespace ablate
