// The axes: every knob that a sweep may vary or fix. One table (axes.cc), one row an axis.
// Must not know YAML, SQL, gRPC or how a knob is used: the trainer asks a ConfigView for values by name.
// Permanent names: axis names and their values are stored in users' databases.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/resources.pb.h"

namespace ablate {

enum class AxisKind { kNumber, kInteger, kText, kFlag };

// Where an axis acts. kTraining shapes training and holds at evaluation; kEvaluation (`eval.*`) acts at evaluation only.
enum class AxisScope { kTraining, kEvaluation };

struct Axis {
  std::string_view name;
  AxisKind kind;
  AxisScope scope;
  std::string_view summary;                 // one line for help and docs
  double minimum, maximum;                  // of numbers
  std::vector<std::string> choices;         // of texts; empty: any
  // Default of presets; what depends on the model preset or the variant is looked up there first.
  v1::Value default_value;
};

const std::vector<Axis>& Axes();
const Axis* FindAxis(std::string_view name);
std::vector<std::string> AxisNames();

// InvalidArgument, with what was expected and the nearest name: unknown axis, wrong type, out of range, unknown choice.
absl::Status CheckSetting(std::string_view axis, const v1::Value& value);

// A configuration with defaults filled in: value = explicit setting, else the variant's or the preset's, else the table's.
class ConfigView {
 public:
  // `eval` overrides `training` where an `eval.attention.*` axis names a field (evaluation only).
  explicit ConfigView(const v1::Configuration& training, const v1::Configuration& eval = {});

  double Number(std::string_view axis) const;
  int64_t Integer(std::string_view axis) const;
  std::string Text(std::string_view axis) const;
  bool Flag(std::string_view axis) const;
  // Whether an optional axis (attention.p, eval.attention.p) has a value at all.
  bool Has(std::string_view axis) const;
  v1::Value Get(std::string_view axis) const;

 private:
  std::map<std::string, v1::Value, std::less<>> values_;
};

// Sorted, duplicates resolved (the later one wins), values equal to their default left out.
v1::Configuration Canonical(const v1::Configuration& config);

// {"attention.p":3,"attention.variant":"lssar"}: compact JSON, sorted by name; the form that is hashed and stored.
std::string ToJson(const v1::Configuration& config);
absl::StatusOr<v1::Configuration> ConfigurationFromJson(std::string_view json);

// "variant=lssar p=3": for people; the group is left out where no other axis of the list has the same last part.
std::string Label(const v1::Configuration& config);

// The whole configuration checked together: attention fields fit each other, width divisible by heads, warm-up within steps...
absl::Status CheckConfiguration(const v1::Configuration& training, const v1::Configuration& eval = {});

}  // namespace ablate
