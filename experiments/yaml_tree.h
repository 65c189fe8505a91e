// YAML text to a plain tree with positions. The only file that knows yaml-cpp; knows nothing of sweeps.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;     // of a scalar
  bool quoted = false;  // of a scalar
  int line = 1, column = 1;
  std::vector<YamlNode> items;  // of a list; of a map: key, value, key, value... in the order of the file

  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
};

inline constexpr size_t kMaxYamlBytes = 1 << 20;
inline constexpr int kMaxYamlDepth = 32;

// "sweep.yaml:12:7: message" for what is wrong at one place.
absl::Status YamlError(const std::string& file_name, int line, int column, const std::string& message);

// One document, without anchors, aliases and tags; keys are scalars, each once a map. An empty document is a kNull
// node. InvalidArgument with file:line:column: anything else, malformed YAML, bytes that are not UTF-8, over 1 MiB,
// deeper than 32.
absl::StatusOr<YamlNode> ParseYaml(const std::string& yaml, const std::string& file_name);

}  // namespace ablate
