// The command words of a daemon, made ready for Abseil's flag parser: flags are written with dashes, and Abseil knows them by underscores;
// it would also end with 1 on --help, list the flags of libraries, and guess nothing of a misspelt name.
// Thread rule: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

enum class FlagWords { kRun, kHelp, kVersion };

// Rewrites the names in `words` (the first is the program). `known` are the flags as users write them ("--data-dir"), `switches` those of
// them that take no value. kHelp, kVersion: asked for by --help, -h or --version. InvalidArgument: a flag that is not known, with the
// nearest name.
absl::StatusOr<FlagWords> UnderscoreFlags(const std::vector<std::string>& known, const std::vector<std::string>& switches,
                                          std::vector<std::string>* words);

}  // namespace ablate
