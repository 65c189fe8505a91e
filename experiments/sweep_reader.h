// The words that all parts of a sweep file share: keys, numbers, choices, values of axes, settings, seeds, lengths;
// each refusal with file:line:column and what was expected. Private to sweep_file*.cc. Must not know what the parts
// mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/sweep_places.h"
#include "experiments/yaml_tree.h"
#include "proto/resources.pb.h"

namespace ablate {

using SettingList = std::vector<v1::Configuration>;
using SeedList = google::protobuf::RepeatedField<int64_t>;

inline SweepPlaces::Place PlaceOf(const YamlNode& node) { return {node.line, node.column}; }

// All may be called from any thread; InvalidArgument where they refuse.
class SweepReader {
 public:
  explicit SweepReader(const std::string& file_name) : file_name_(file_name) {}

  absl::Status Error(const YamlNode& node, const std::string& message) const;
  absl::Status Expected(const YamlNode& node, const std::string& what) const;
  // A status of the axes' checks, at a place.
  absl::Status At(const YamlNode& node, const absl::Status& status) const;
  absl::Status CheckKeys(const YamlNode& map, const std::string& what, const std::vector<std::string>& known) const;
  const YamlNode* Child(const YamlNode& map, const std::string& key) const;

  absl::StatusOr<std::string> ReadText(const YamlNode& node, const std::string& what) const;
  absl::StatusOr<int64_t> ReadInteger(const YamlNode& node, const std::string& what, int64_t minimum,
                                      int64_t maximum) const;
  // A number above 0.
  absl::StatusOr<double> ReadPositive(const YamlNode& node, const std::string& what) const;
  absl::StatusOr<bool> ReadFlag(const YamlNode& node, const std::string& what) const;
  // The index of the choice that the text is.
  absl::StatusOr<int> ReadChoice(const YamlNode& node, const std::string& what,
                                 const std::vector<std::string>& choices) const;

  absl::StatusOr<v1::Value> ReadValue(const std::string& axis, const YamlNode& node) const;
  absl::StatusOr<std::vector<v1::Value>> ReadValues(const std::string& axis, const YamlNode& node) const;
  absl::StatusOr<std::vector<v1::Value>> ReadRange(const std::string& axis, const YamlNode& node) const;
  // {axis: value}; with `expand`, values may be lists and ranges, and the answer is their product.
  absl::StatusOr<SettingList> ReadSettings(const YamlNode& map, const std::string& what, bool expand) const;
  absl::StatusOr<v1::Configuration> ReadConfiguration(const YamlNode& map, const std::string& what) const;

  // A count, which means `first`, first + 1, ..., or a list.
  absl::StatusOr<SeedList> ReadSeedList(const YamlNode& node, const std::string& what, int64_t first) const;
  // "2x" or tokens.
  absl::StatusOr<v1::LengthSpec> ReadLength(const YamlNode& node) const;

 protected:
  const std::string& file_name_;
};

// evaluate, with its defaults; after data.
absl::Status ReadEvaluatePart(const SweepReader& reader, const YamlNode& evaluate, v1::SweepSpec* spec,
                              SweepPlaces* places);
// tune, select, confirm, claims, alpha and factorial, with their defaults (docs/claims.md); after all other keys.
absl::Status ReadClaimParts(const SweepReader& reader, const YamlNode& root, v1::SweepSpec* spec, SweepPlaces* places);

}  // namespace ablate
