// The target of a request, taken apart. Must not know what is served. Thread rule: free functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

struct Target {
  std::vector<std::string> segments;  // of the path, decoded: "/a/b%2Fc" is {"a", "b/c"}, "/" is {}
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order; "x" is {"x", ""}
  std::string path;  // as it was sent
};

// InvalidArgument: not "/path?query", a faulty %-escape, or text that is not UTF-8 or holds control characters once it is decoded.
absl::StatusOr<Target> ParseTarget(std::string_view target);

}  // namespace ablate
