#include "experiments/sweep_reader.h"

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/ranges.h"
#include "experiments/sweep_file.h"

namespace ablate {
namespace {

constexpr double kLargestInteger = 9007199254740992.0;  // 2^53

// What was found, for messages.
std::string Found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  const std::string text = node.text.substr(0, 100);
  return node.quoted ? absl::StrCat("the text \"", text, "\"") : absl::StrCat("\"", text, "\"");
}

}  // namespace

absl::Status SweepReader::Error(const YamlNode& node, const std::string& message) const {
  return YamlError(file_name_, node.line, node.column, message);
}

absl::Status SweepReader::Expected(const YamlNode& node, const std::string& what) const {
  return Error(node, absl::StrCat("expected ", what, ", found ", Found(node)));
}

absl::Status SweepReader::At(const YamlNode& node, const absl::Status& status) const {
  return Error(node, std::string(ToStd(status.message())));
}

absl::Status SweepReader::CheckKeys(const YamlNode& map, const std::string& what,
                                    const std::vector<std::string>& known) const {
  if (!map.is_map()) return Expected(map, what);
  for (size_t i = 0; i < map.items.size(); i += 2) {
    const YamlNode& key = map.items[i];
    bool found = false;
    for (const std::string& name : known) found = found || name == key.text;
    if (found) continue;
    const std::string shown = key.text.substr(0, 100);
    // A common slip: an axis at the top of the file.
    const std::string hint = FindAxis(key.text) != nullptr ? "; it is an axis: put it under settings, axes or arms"
                                                           : DidYouMean(shown, known);
    return Error(key, absl::StrCat("unknown key \"", shown, "\"", hint));
  }
  return absl::OkStatus();
}

const YamlNode* SweepReader::Child(const YamlNode& map, const std::string& key) const {
  for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
    if (map.items[i].text == key) return &map.items[i + 1];
  }
  return nullptr;
}

absl::StatusOr<std::string> SweepReader::ReadText(const YamlNode& node, const std::string& what) const {
  if (!node.is_scalar()) return Expected(node, what);
  return node.text;
}

absl::StatusOr<int64_t> SweepReader::ReadInteger(const YamlNode& node, const std::string& what, int64_t minimum,
                                                 int64_t maximum) const {
  double number = 0;
  if (!node.is_scalar() || node.quoted || !ReadNumber(node.text, &number) || number != std::floor(number) ||
      !(number >= static_cast<double>(minimum) && number <= static_cast<double>(maximum))) {
    return Expected(node, absl::StrCat("a whole number from ", minimum, " to ", maximum, " for ", what));
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<int> SweepReader::ReadChoice(const YamlNode& node, const std::string& what,
                                            const std::vector<std::string>& choices) const {
  if (node.is_scalar()) {
    for (size_t i = 0; i < choices.size(); ++i) {
      if (node.text == choices[i]) return static_cast<int>(i);
    }
  }
  const std::string nearest = node.is_scalar() ? NearestName(node.text.substr(0, 100), choices) : "";
  return Error(node,
               absl::StrCat("expected one of ", absl::StrJoin(choices, ", "), " for ", what, ", found ", Found(node),
                            nearest.empty() ? "" : absl::StrCat(", did you mean \"", nearest, "\"?")));
}

absl::StatusOr<v1::Value> SweepReader::ReadValue(const std::string& axis, const YamlNode& node) const {
  if (!node.is_scalar()) return Expected(node, "one value for " + axis);
  absl::StatusOr<v1::Value> value = ParseSetting(axis, node.text, node.quoted);
  if (!value.ok()) return At(node, value.status());
  return value;
}

absl::StatusOr<std::vector<v1::Value>> SweepReader::ReadRange(const std::string& axis, const YamlNode& node) const {
  const std::string what = "a list of values or a range {from, to, step} or {from, to, factor} for " + axis;
  ABLATE_RETURN_IF_ERROR(CheckKeys(node, what, {"from", "to", "step", "factor"}));
  const YamlNode* factor = Child(node, "factor");
  const YamlNode* step = Child(node, "step");
  if ((factor == nullptr) == (step == nullptr))
    return Error(node, "expected either step or factor in the range of " + axis);
  const char* const keys[] = {"from", "to", factor != nullptr ? "factor" : "step"};
  double numbers[3];
  for (int i = 0; i < 3; ++i) {
    const YamlNode* child = Child(node, keys[i]);
    if (child == nullptr) return Error(node, absl::StrCat("the range of ", axis, " has no ", keys[i]));
    if (!child->is_scalar() || child->quoted || !ReadNumber(child->text, &numbers[i])) {
      return Expected(*child, absl::StrCat("a number for ", keys[i]));
    }
  }
  const auto range = factor != nullptr ? FactorRange(numbers[0], numbers[1], numbers[2], kMaxPoints)
                                       : StepRange(numbers[0], numbers[1], numbers[2], kMaxPoints);
  if (!range.ok()) return At(node, range.status());
  std::vector<v1::Value> values;
  for (const double number : *range) {
    values.push_back(NumberValue(number));
    const absl::Status status = CheckSetting(axis, values.back());
    if (!status.ok()) return At(node, status);
  }
  return values;
}

absl::StatusOr<std::vector<v1::Value>> SweepReader::ReadValues(const std::string& axis, const YamlNode& node) const {
  std::vector<v1::Value> values;
  if (node.is_map()) {
    ABLATE_ASSIGN_OR_RETURN(values, ReadRange(axis, node));
  } else if (node.is_list()) {
    if (node.items.empty()) return Error(node, "expected at least one value for " + axis);
    for (const YamlNode& item : node.items) {
      ABLATE_ASSIGN_OR_RETURN(v1::Value value, ReadValue(axis, item));
      values.push_back(std::move(value));
    }
  } else {
    ABLATE_ASSIGN_OR_RETURN(v1::Value value, ReadValue(axis, node));
    values.push_back(std::move(value));
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string text = ValueText(values[i]);
    if (seen.insert(text).second) continue;
    return Error(node.is_list() ? node.items[i] : node, absl::StrCat(text, " is there twice for ", axis));
  }
  return values;
}

absl::StatusOr<SettingList> SweepReader::ReadSettings(const YamlNode& map, const std::string& what, bool expand) const {
  if (!map.is_map()) return Expected(map, what);
  SettingList list(1);
  for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
    const YamlNode& key = map.items[i];
    if (expand && (key.text == "switch" || key.text == "factors")) continue;
    if (FindAxis(key.text) == nullptr) return At(key, CheckSetting(key.text.substr(0, 100), v1::Value()));
    std::vector<v1::Value> values;
    if (expand) {
      ABLATE_ASSIGN_OR_RETURN(values, ReadValues(key.text, map.items[i + 1]));
    } else {
      ABLATE_ASSIGN_OR_RETURN(v1::Value value, ReadValue(key.text, map.items[i + 1]));
      values.push_back(std::move(value));
    }
    if (list.size() * values.size() > static_cast<size_t>(kMaxPoints)) {
      return Error(map, absl::StrCat("more than ", kMaxPoints, " combinations"));
    }
    SettingList longer;
    longer.reserve(list.size() * values.size());
    for (const v1::Configuration& config : list) {
      for (const v1::Value& value : values) {
        v1::Configuration& with = longer.emplace_back(config);
        v1::Setting* setting = with.add_settings();
        setting->set_axis(key.text);
        *setting->mutable_value() = value;
      }
    }
    list = std::move(longer);
  }
  return list;
}

absl::StatusOr<v1::Configuration> SweepReader::ReadConfiguration(const YamlNode& map, const std::string& what) const {
  ABLATE_ASSIGN_OR_RETURN(SettingList list, ReadSettings(map, what, /*expand=*/false));
  return std::move(list.front());
}

absl::StatusOr<double> SweepReader::ReadPositive(const YamlNode& node, const std::string& what) const {
  double number = 0;
  if (!node.is_scalar() || node.quoted || !ReadNumber(node.text, &number) || !(number > 0 && number < 1e300)) {
    return Expected(node, absl::StrCat("a number above 0 for ", what));
  }
  return number;
}

absl::StatusOr<bool> SweepReader::ReadFlag(const YamlNode& node, const std::string& what) const {
  if (node.is_scalar() && !node.quoted) {
    for (const char* yes : {"true", "yes", "on"}) {
      if (node.text == yes) return true;
    }
    for (const char* no : {"false", "no", "off"}) {
      if (node.text == no) return false;
    }
  }
  return Expected(node, "true or false for " + what);
}

absl::StatusOr<SeedList> SweepReader::ReadSeedList(const YamlNode& node, const std::string& what, int64_t first) const {
  SeedList seeds;
  if (node.is_scalar()) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t count, ReadInteger(node, what + " (a count, or a list of seeds)", 1, 100000));
    for (int64_t seed = first; seed < first + count; ++seed) seeds.Add(seed);
    return seeds;
  }
  if (!node.is_list() || node.items.empty()) return Expected(node, "a count or a list of seeds");
  std::set<int64_t> seen;
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t seed, ReadInteger(item, "a seed", 0, static_cast<int64_t>(kLargestInteger)));
    if (!seen.insert(seed).second) return Error(item, absl::StrCat("seed ", seed, " is there twice"));
    seeds.Add(seed);
  }
  return seeds;
}

absl::StatusOr<v1::LengthSpec> SweepReader::ReadLength(const YamlNode& node) const {
  const std::string what = "a length: a multiple of train.length such as 2x, or a number of tokens";
  double number = 0;
  if (!node.is_scalar() || node.quoted) return Expected(node, what);
  const bool multiple = absl::EndsWith(node.text, "x");
  const std::string digits = multiple ? node.text.substr(0, node.text.size() - 1) : node.text;
  if (!ReadNumber(digits, &number) || !(number > 0 && number <= 16777216)) return Expected(node, what);
  if (!multiple && number != std::floor(number)) return Expected(node, what);
  if (multiple && number > kLongestEvaluation) {
    return Error(node, absl::StrCat(node.text, " is too long: evaluations reach up to ", kLongestEvaluation,
                                    "x train.length (see docs/data.md)"));
  }
  v1::LengthSpec length;
  if (multiple) {
    length.set_multiple(number);
  } else {
    length.set_tokens(static_cast<int64_t>(number));
  }
  return length;
}

}  // namespace ablate
