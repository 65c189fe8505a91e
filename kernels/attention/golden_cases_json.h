// What the readers of golden files share: the loop over a file's cases, and fields that are checked for type, range and
// shape, since a golden file may be anybody's. Must not know what the numbers mean, nor any implementation.
// The helpers throw std::exception with a message that names the field; ForEachGoldenCase alone catches.
// Thread rule: free functions without state.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention/variants.h"

namespace ablate {

// `parse` once for each of the file's `cases`. NotFound: no such file; InvalidArgument, naming the case: not JSON, no
// cases, or what `parse` threw.
absl::Status ForEachGoldenCase(const std::string& path, const std::function<void(const nlohmann::json&)>& parse);

// A text; a number, not a boolean; an integer in [least, most], not 7.5.
std::string GoldenString(const nlohmann::json& value, const std::string& name);
double GoldenNumber(const nlohmann::json& value, const std::string& name);
int GoldenInteger(const nlohmann::json& value, const std::string& name, int least, int most = 1 << 24);

// A list of numbers, or a list of rows of one length, flattened; `shape` (may be null) receives the lengths, 1 or 2 of
// them.
std::vector<double> GoldenArray(const nlohmann::json& value, const std::string& name, std::vector<size_t>* shape);
// The same, where the shape is known.
std::vector<double> GoldenArray(const nlohmann::json& value, const std::string& name, const std::vector<size_t>& shape);

// Names of the object's fields that are not in `known`, each after `prefix`.
std::vector<std::string> GoldenUnknownFields(const nlohmann::json& object, const std::string& prefix,
                                             const std::set<std::string>& known);

// The "spec" object of a case.
AttentionSpec ParseGoldenAttentionSpec(const nlohmann::json& json);

}  // namespace ablate
