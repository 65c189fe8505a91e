// The command words of a daemon. Abseil's own parser knows flags by underscores, ends the program with 1 on a bad value
// and on --help, lists the flags of libraries, and guesses nothing of a misspelt name; here flags are written with
// dashes and errors are returned. Thread rule: before other threads read flags.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

enum class FlagWords { kRun, kHelp, kVersion };

// Sets the program's ABSL_FLAGs from `words` (the first is the program). `known` are the flags as users write them
// ("--data-dir"), `switches` those of them that need no value, `pairs` those that take two values, with the ABSL_FLAG of the
// second. kHelp, kVersion: asked for by --help, -h or --version.
// InvalidArgument: a flag that is not known (with the nearest name), one without a value or with one that is none, a
// word that is no flag.
absl::StatusOr<FlagWords> SetFlags(const std::vector<std::string>& known, const std::vector<std::string>& switches,
                                   const std::vector<std::string>& words,
                                   const std::map<std::string, std::string>& pairs = {});

}  // namespace ablate
