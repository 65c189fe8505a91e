#include "base/flag_words.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {
namespace {

const char* Expected(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<int32_t>() || flag.IsOfType<int64_t>()) return "a whole number";
  if (flag.IsOfType<double>()) return "a number";
  return flag.IsOfType<bool>() ? "true or false" : "another value";
}

}  // namespace

absl::StatusOr<FlagWords> SetFlags(const std::vector<std::string>& known, const std::vector<std::string>& switches,
                                   const std::vector<std::string>& words,
                                   const std::map<std::string, std::string>& pairs) {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") return FlagWords::kHelp;
    if (word == "--version") return FlagWords::kVersion;
    if (!absl::StartsWith(word, "-"))
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", word, "\""));
    const size_t end = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, end);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag ", name, DidYouMean(name, known)));
    }
    std::string value;
    if (end < word.size()) {
      value = word.substr(end + 1);
    } else if (std::find(switches.begin(), switches.end(), name) != switches.end()) {
      value = "true";
    } else if (++i == words.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    } else {
      value = words[i];  // which may begin with dashes
    }
    std::string flag_name = name.substr(2), error;
    std::replace(flag_name.begin(), flag_name.end(), '-', '_');
    absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(flag_name);
    if (flag == nullptr || !flag->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " \"", value, "\": expected ", flag == nullptr ? "no such flag" : Expected(*flag)));
    }
    const auto pair = pairs.find(name);
    if (pair == pairs.end()) continue;
    absl::CommandLineFlag* const second = absl::FindCommandLineFlag(pair->second);
    if (++i == words.size() || absl::StartsWith(words[i], "--"))
      return absl::InvalidArgumentError(absl::StrCat(name, " needs two values"));
    if (second == nullptr || !second->ParseFrom(words[i], &error)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, " \"", words[i], "\": not a value of it"));
    }
  }
  return FlagWords::kRun;
}

}  // namespace ablate
