#include "experiments/sweep_file.h"

#include <charconv>
#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/ranges.h"
#include "experiments/yaml_tree.h"

namespace ablate {
namespace {

constexpr double kLargestInteger = 9007199254740992.0;  // 2^53
constexpr int64_t kMaxDataFiles = 10000;
constexpr size_t kMaxSwitches = 100, kMaxRules = 10000;

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

using SettingList = std::vector<v1::Configuration>;

SweepPlaces::Place PlaceOf(const YamlNode& node) { return {node.line, node.column}; }

class Reader {
 public:
  Reader(const std::string& file_name, SweepPlaces* places) : file_name_(file_name), places_(*places) {}

  absl::StatusOr<v1::SweepSpec> Read(const YamlNode& root);

 private:
  absl::Status Error(const YamlNode& node, const std::string& message) const {
    return YamlError(file_name_, node.line, node.column, message);
  }
  absl::Status Expected(const YamlNode& node, const std::string& what) const {
    return Error(node, absl::StrCat("expected ", what, ", found ", Found(node)));
  }
  // A status of the axes' checks, at a place.
  absl::Status At(const YamlNode& node, const absl::Status& status) const {
    return Error(node, std::string(ToStd(status.message())));
  }
  absl::Status CheckKeys(const YamlNode& map, const std::string& what, const std::vector<std::string>& known) const;
  const YamlNode* Child(const YamlNode& map, const std::string& key) const;

  absl::StatusOr<std::string> ReadText(const YamlNode& node, const std::string& what) const;
  absl::StatusOr<int64_t> ReadInteger(const YamlNode& node, const std::string& what, int64_t minimum,
                                      int64_t maximum) const;
  absl::StatusOr<std::string> ReadChoice(const YamlNode& node, const std::string& what,
                                         const std::vector<std::string>& choices) const;

  absl::StatusOr<v1::Value> ReadValue(const std::string& axis, const YamlNode& node) const;
  absl::StatusOr<std::vector<v1::Value>> ReadValues(const std::string& axis, const YamlNode& node) const;
  absl::StatusOr<std::vector<v1::Value>> ReadRange(const std::string& axis, const YamlNode& node) const;
  // {axis: value}; with `expand`, values may be lists and ranges, and the answer is their product.
  absl::StatusOr<SettingList> ReadSettings(const YamlNode& map, const std::string& what, bool expand) const;
  absl::StatusOr<v1::Configuration> ReadConfiguration(const YamlNode& map, const std::string& what) const;

  absl::Status ReadData(const YamlNode& node);
  absl::Status ReadPath(const YamlNode& node);
  absl::Status ReadAxes(const YamlNode& node);
  absl::Status ReadArms(const YamlNode& node);
  absl::Status ReadExclude(const YamlNode& node);
  absl::Status ReadSeeds(const YamlNode& node);
  absl::Status ReadEvaluate(const YamlNode& node);
  absl::Status ReadRequires(const YamlNode& node);
  absl::Status ReadNames(const YamlNode& root);
  absl::Status CheckPoints(const YamlNode& root) const;

  const std::string& file_name_;
  SweepPlaces& places_;
  v1::SweepSpec spec_;
};

absl::Status Reader::CheckKeys(const YamlNode& map, const std::string& what,
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

const YamlNode* Reader::Child(const YamlNode& map, const std::string& key) const {
  for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
    if (map.items[i].text == key) return &map.items[i + 1];
  }
  return nullptr;
}

absl::StatusOr<std::string> Reader::ReadText(const YamlNode& node, const std::string& what) const {
  if (!node.is_scalar()) return Expected(node, what);
  return node.text;
}

absl::StatusOr<int64_t> Reader::ReadInteger(const YamlNode& node, const std::string& what, int64_t minimum,
                                            int64_t maximum) const {
  double number = 0;
  if (!node.is_scalar() || node.quoted || !ReadNumber(node.text, &number) || number != std::floor(number) ||
      !(number >= static_cast<double>(minimum) && number <= static_cast<double>(maximum))) {
    return Expected(node, absl::StrCat("a whole number from ", minimum, " to ", maximum, " for ", what));
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<std::string> Reader::ReadChoice(const YamlNode& node, const std::string& what,
                                               const std::vector<std::string>& choices) const {
  if (node.is_scalar()) {
    for (const std::string& choice : choices) {
      if (node.text == choice) return choice;
    }
  }
  const std::string nearest = node.is_scalar() ? NearestName(node.text.substr(0, 100), choices) : "";
  return Error(node,
               absl::StrCat("expected one of ", absl::StrJoin(choices, ", "), " for ", what, ", found ", Found(node),
                            nearest.empty() ? "" : absl::StrCat(", did you mean \"", nearest, "\"?")));
}

absl::StatusOr<v1::Value> Reader::ReadValue(const std::string& axis, const YamlNode& node) const {
  if (!node.is_scalar()) return Expected(node, "one value for " + axis);
  absl::StatusOr<v1::Value> value = ParseSetting(axis, node.text, node.quoted);
  if (!value.ok()) return At(node, value.status());
  return value;
}

absl::StatusOr<std::vector<v1::Value>> Reader::ReadRange(const std::string& axis, const YamlNode& node) const {
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

absl::StatusOr<std::vector<v1::Value>> Reader::ReadValues(const std::string& axis, const YamlNode& node) const {
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

absl::StatusOr<SettingList> Reader::ReadSettings(const YamlNode& map, const std::string& what, bool expand) const {
  if (!map.is_map()) return Expected(map, what);
  SettingList list(1);
  for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
    const YamlNode& key = map.items[i];
    if (expand && key.text == "switch") continue;
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

absl::StatusOr<v1::Configuration> Reader::ReadConfiguration(const YamlNode& map, const std::string& what) const {
  ABLATE_ASSIGN_OR_RETURN(SettingList list, ReadSettings(map, what, /*expand=*/false));
  return std::move(list.front());
}

// One path, or many by one {first..last} of digits: shard_{000001..000103}.bin.
absl::Status Reader::ReadPath(const YamlNode& node) {
  ABLATE_ASSIGN_OR_RETURN(const std::string path, ReadText(node, "a path"));
  if (path.empty()) return Error(node, "expected a path, found an empty text");
  const size_t open = path.find('{'), dots = path.find("..", open == std::string::npos ? 0 : open),
               close = path.find('}');
  if (open == std::string::npos || dots == std::string::npos || close == std::string::npos || close < dots) {
    if (spec_.data().files_size() >= kMaxDataFiles)
      return Error(node, absl::StrCat("more than ", kMaxDataFiles, " data files"));
    spec_.mutable_data()->add_files()->set_path(path);
    return absl::OkStatus();
  }
  const std::string first = path.substr(open + 1, dots - open - 1), last = path.substr(dots + 2, close - dots - 2);
  int64_t from = 0, to = 0;
  for (const auto& [text, number] : {std::pair(&first, &from), std::pair(&last, &to)}) {
    const auto result = std::from_chars(text->data(), text->data() + text->size(), *number);
    if (result.ec != std::errc() || result.ptr != text->data() + text->size() || *number < 0) {
      return Expected(node, "a path with a range of numbers such as {000001..000103}");
    }
  }
  if (from > to || to - from >= kMaxDataFiles - spec_.data().files_size()) {
    return Error(node, absl::StrCat("expected a range of at most ", kMaxDataFiles, " files, smallest number first"));
  }
  for (int64_t i = from; i <= to; ++i) {
    std::string digits = std::to_string(i);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    spec_.mutable_data()->add_files()->set_path(path.substr(0, open) + digits + path.substr(close + 1));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadData(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(CheckKeys(node, "a map for data", {"name", "path", "paths", "format", "sha256"}));
  v1::DataRef* data = spec_.mutable_data();
  const YamlNode* path = Child(node, "path");
  const YamlNode* paths = Child(node, "paths");
  if ((path == nullptr) == (paths == nullptr)) return Error(node, "expected either path or paths in data");
  if (path != nullptr) {
    ABLATE_RETURN_IF_ERROR(ReadPath(*path));
  } else {
    if (!paths->is_list() || paths->items.empty()) return Expected(*paths, "a list of paths");
    for (const YamlNode& item : paths->items) ABLATE_RETURN_IF_ERROR(ReadPath(item));
  }
  const std::string first = data->files(0).path();
  if (const YamlNode* format = Child(node, "format")) {
    ABLATE_ASSIGN_OR_RETURN(const std::string name, ReadChoice(*format, "format", {"text", "token_shards"}));
    data->set_format(name == "text" ? v1::DataRef::TEXT : v1::DataRef::TOKEN_SHARDS);
  } else {
    data->set_format(absl::EndsWith(first, ".bin") ? v1::DataRef::TOKEN_SHARDS : v1::DataRef::TEXT);
  }
  if (data->format() == v1::DataRef::TEXT && data->files_size() != 1) {
    return Error(node, "expected one file of format text; several are for token_shards");
  }
  if (const YamlNode* name = Child(node, "name")) {
    ABLATE_ASSIGN_OR_RETURN(*data->mutable_name(), ReadText(*name, "a name for the data"));
  } else {
    const std::string base = first.substr(first.rfind('/') + 1);
    data->set_name(base.substr(0, base.find('.')));
  }
  if (const YamlNode* hash = Child(node, "sha256")) {
    if (!hash->is_scalar() || !IsSha256Hex(hash->text)) return Expected(*hash, "64 lower-case hex digits for sha256");
    data->set_sha256(hash->text);
    if (data->files_size() == 1) data->mutable_files(0)->set_sha256(hash->text);
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadAxes(const YamlNode& node) {
  if (!node.is_map()) return Expected(node, "a map of axes to lists of values");
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const YamlNode& key = node.items[i];
    const YamlNode& value = node.items[i + 1];
    if (FindAxis(key.text) == nullptr) return At(key, CheckSetting(key.text.substr(0, 100), v1::Value()));
    if (!value.is_list() && !value.is_map()) {
      return Expected(
          value, absl::StrCat("a list of values or a range for ", key.text, " (one value belongs under settings)"));
    }
    for (const v1::Setting& setting : spec_.settings().settings()) {
      if (setting.axis() == key.text) return Error(key, key.text + " is under settings too; keep one of them");
    }
    v1::AxisSpec* axis = spec_.add_axes();
    axis->set_axis(key.text);
    ABLATE_ASSIGN_OR_RETURN(const std::vector<v1::Value> values, ReadValues(key.text, value));
    axis->mutable_values()->Assign(values.begin(), values.end());
    // As they come: a short file can name many long ranges.
    ABLATE_RETURN_IF_ERROR(CheckPoints(node));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadArms(const YamlNode& node) {
  if (!node.is_list() || node.items.empty()) return Expected(node, "a list of arms");
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(const SettingList arms, ReadSettings(item, "an arm: a map of settings", /*expand=*/true));
    for (const v1::Setting& setting : arms.front().settings()) {
      for (const v1::AxisSpec& axis : spec_.axes()) {
        if (axis.axis() == setting.axis()) {
          return Error(item, setting.axis() + " is under axes too, which multiply every arm; keep one of them");
        }
      }
    }
    std::vector<v1::SwitchSpec> switches;
    if (const YamlNode* list = Child(item, "switch")) {
      if (!list->is_list() || list->items.empty())
        return Expected(*list, "a list of switches such as {at_step: 100, axis: value}");
      if (list->items.size() > kMaxSwitches) return Error(*list, absl::StrCat("more than ", kMaxSwitches, " switches"));
      for (const YamlNode& entry : list->items) {
        if (!entry.is_map()) return Expected(entry, "a switch such as {at_step: 100, axis: value}");
        YamlNode settings = entry;
        settings.items.clear();
        int64_t at_step = -1;
        for (size_t i = 0; i + 1 < entry.items.size(); i += 2) {
          if (entry.items[i].text == "at_step") {
            ABLATE_ASSIGN_OR_RETURN(at_step, ReadInteger(entry.items[i + 1], "at_step", 1, 1000000000));
            continue;
          }
          settings.items.push_back(entry.items[i]);
          settings.items.push_back(entry.items[i + 1]);
        }
        if (at_step < 0) return Error(entry, "the switch has no at_step");
        if (settings.items.empty()) return Error(entry, "the switch changes nothing");
        if (!switches.empty() && at_step <= switches.back().at_step()) {
          return Error(entry, "expected switches in the order of their steps");
        }
        v1::SwitchSpec& change = switches.emplace_back();
        change.set_at_step(at_step);
        ABLATE_ASSIGN_OR_RETURN(*change.mutable_settings(), ReadConfiguration(settings, "settings"));
      }
    }
    if (spec_.arms_size() + arms.size() > static_cast<size_t>(kMaxPoints)) {
      return Error(node, absl::StrCat("more than ", kMaxPoints, " arms"));
    }
    for (const v1::Configuration& settings : arms) {
      v1::ArmSpec* arm = spec_.add_arms();
      *arm->mutable_settings() = settings;
      places_.arms.push_back(PlaceOf(item));
      arm->mutable_switches()->Assign(switches.begin(), switches.end());
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadExclude(const YamlNode& node) {
  if (!node.is_list()) return Expected(node, "a list of rules such as {attention.variant: softmax, attention.p: 3}");
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(const SettingList rules, ReadSettings(item, "a rule: a map of settings", /*expand=*/true));
    if (Child(item, "switch") != nullptr) return Error(item, "a rule cannot name a switch");
    if (item.items.empty()) return Error(item, "a rule without settings would exclude every arm");
    if (spec_.exclude_size() + rules.size() > kMaxRules)
      return Error(item, absl::StrCat("more than ", kMaxRules, " rules"));
    for (const v1::Configuration& rule : rules) *spec_.add_exclude() = rule;
    places_.exclude.insert(places_.exclude.end(), rules.size(), PlaceOf(item));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadSeeds(const YamlNode& node) {
  if (node.is_scalar()) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t count, ReadInteger(node, "seeds (a count, or a list of seeds)", 1, 100000));
    for (int64_t seed = 0; seed < count; ++seed) spec_.add_seeds(seed);
    return absl::OkStatus();
  }
  if (!node.is_list() || node.items.empty()) return Expected(node, "a count or a list of seeds");
  std::set<int64_t> seen;
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t seed, ReadInteger(item, "a seed", 0, static_cast<int64_t>(kLargestInteger)));
    if (!seen.insert(seed).second) return Error(item, absl::StrCat("seed ", seed, " is there twice"));
    spec_.add_seeds(seed);
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadEvaluate(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(CheckKeys(node, "a map for evaluate", {"lengths", "splits"}));
  v1::EvaluationSpec* evaluate = spec_.mutable_evaluate();
  evaluate->Clear();
  const std::string what = "a length: a multiple of train.length such as 2x, or a number of tokens";
  if (const YamlNode* lengths = Child(node, "lengths")) {
    if (!lengths->is_list()) return Expected(*lengths, "a list of lengths such as [1x, 2x, 4096]");
    for (const YamlNode& item : lengths->items) {
      double number = 0;
      if (!item.is_scalar() || item.quoted) return Expected(item, what);
      const bool multiple = absl::EndsWith(item.text, "x");
      const std::string digits = multiple ? item.text.substr(0, item.text.size() - 1) : item.text;
      if (!ReadNumber(digits, &number) || !(number > 0 && number <= 16777216)) return Expected(item, what);
      if (!multiple && number != std::floor(number)) return Expected(item, what);
      if (multiple && number > kLongestEvaluation) {
        return Error(item, absl::StrCat(item.text, " is too long: evaluations reach up to ", kLongestEvaluation,
                                        "x train.length (see docs/data.md)"));
      }
      places_.lengths.push_back(PlaceOf(item));
      v1::LengthSpec* length = evaluate->add_lengths();
      if (multiple) {
        length->set_multiple(number);
      } else {
        length->set_tokens(static_cast<int64_t>(number));
      }
    }
  } else {
    for (const double multiple : {1.0, 2.0, 4.0, 8.0}) evaluate->add_lengths()->set_multiple(multiple);
  }
  if (const YamlNode* splits = Child(node, "splits")) {
    if (!splits->is_list()) return Expected(*splits, "a list of splits such as [selection]");
    for (const YamlNode& item : splits->items) {
      ABLATE_ASSIGN_OR_RETURN(const std::string split, ReadChoice(item, "a split", {"selection", "confirmation"}));
      for (const std::string& other : evaluate->splits()) {
        if (other == split) return Error(item, split + " is there twice");
      }
      evaluate->add_splits(split);
    }
  } else {
    evaluate->add_splits("selection");
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadRequires(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(CheckKeys(node, "a map for requires", {"device", "memory", "labels"}));
  v1::Requirements* required = spec_.mutable_requirements();
  if (const YamlNode* device = Child(node, "device")) {
    ABLATE_ASSIGN_OR_RETURN(*required->mutable_device(), ReadChoice(*device, "device", {"cpu", "cuda"}));
  }
  if (const YamlNode* memory = Child(node, "memory")) {
    static constexpr struct {
      const char* unit;
      double bytes;
    } kUnits[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
                  {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12}};
    const std::string what = "an amount of memory such as 4GiB";
    double number = 0, bytes = 0;
    if (!memory->is_scalar()) return Expected(*memory, what);
    for (const auto& unit : kUnits) {
      if (!absl::EndsWith(memory->text, unit.unit)) continue;
      std::string digits = memory->text.substr(0, memory->text.size() - std::string(unit.unit).size());
      while (!digits.empty() && digits.back() == ' ') digits.pop_back();
      if (ReadNumber(digits, &number)) bytes = number * unit.bytes;
      break;
    }
    if (!(bytes >= 1 && bytes < kLargestInteger)) return Expected(*memory, what);
    required->set_memory_bytes(static_cast<int64_t>(bytes));
  }
  if (const YamlNode* labels = Child(node, "labels")) {
    if (!labels->is_list()) return Expected(*labels, "a list of labels");
    for (const YamlNode& item : labels->items) {
      ABLATE_ASSIGN_OR_RETURN(std::string label, ReadText(item, "a label"));
      if (label.empty()) return Error(item, "expected a label, found an empty text");
      required->add_labels(std::move(label));
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadNames(const YamlNode& root) {
  const YamlNode* name = Child(root, "name");
  std::string text;
  if (name != nullptr) {
    ABLATE_ASSIGN_OR_RETURN(text, ReadText(*name, "a name"));
  } else {
    text = file_name_.substr(file_name_.rfind('/') + 1);
    text = text.substr(0, text.rfind('.'));
  }
  const bool fits =
      !text.empty() && text.size() <= 100 && text[0] != '-' && text[0] != '.' &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == std::string::npos;
  if (!fits) {
    return Error(name != nullptr ? *name : root,
                 absl::StrCat("expected a name of at most 100 letters, digits, '.', '_' and '-', found \"",
                              text.substr(0, 100), "\""));
  }
  spec_.set_name(text);
  if (const YamlNode* description = Child(root, "description")) {
    ABLATE_ASSIGN_OR_RETURN(*spec_.mutable_description(), ReadText(*description, "a text for description"));
  }
  return absl::OkStatus();
}

absl::Status Reader::CheckPoints(const YamlNode& root) const {
  double points = std::max(1, spec_.arms_size()) * static_cast<double>(std::max(1, spec_.seeds_size()));
  for (const v1::AxisSpec& axis : spec_.axes()) points *= axis.values_size();
  if (points <= static_cast<double>(kMaxPoints)) return absl::OkStatus();
  return Error(root, absl::StrCat("the sweep has ", ShortestDouble(points), " points (arms x seeds); at most ",
                                  kMaxPoints, " are planned"));
}

absl::StatusOr<v1::SweepSpec> Reader::Read(const YamlNode& root) {
  ABLATE_RETURN_IF_ERROR(CheckKeys(root, "a sweep file: a map with data and axes or arms",
                                   {"name", "description", "data", "settings", "axes", "arms", "exclude", "baseline",
                                    "seeds", "evaluate", "requires", "priority", "keep", "executor"}));
  ABLATE_RETURN_IF_ERROR(ReadNames(root));
  places_.file_name = file_name_;
  places_.root = places_.axes = places_.baseline = PlaceOf(root);
  spec_.set_executor(v1::EXECUTOR_TRAINER);
  if (const YamlNode* executor = Child(root, "executor")) {
    ABLATE_ASSIGN_OR_RETURN(const std::string name, ReadChoice(*executor, "executor", {"trainer", "noop"}));
    if (name == "noop") spec_.set_executor(v1::EXECUTOR_NOOP);
  }
  if (const YamlNode* data = Child(root, "data")) {
    ABLATE_RETURN_IF_ERROR(ReadData(*data));
  } else if (spec_.executor() == v1::EXECUTOR_TRAINER) {
    return Error(root, "data is missing: name the text to train on, such as data: {path: corpus.txt}");
  }
  if (const YamlNode* settings = Child(root, "settings")) {
    places_.axes = PlaceOf(*settings);
    ABLATE_ASSIGN_OR_RETURN(*spec_.mutable_settings(), ReadConfiguration(*settings, "a map of settings"));
  }
  if (const YamlNode* axes = Child(root, "axes")) {
    places_.axes = PlaceOf(*axes);
    ABLATE_RETURN_IF_ERROR(ReadAxes(*axes));
  }
  if (const YamlNode* arms = Child(root, "arms")) ABLATE_RETURN_IF_ERROR(ReadArms(*arms));
  if (const YamlNode* exclude = Child(root, "exclude")) ABLATE_RETURN_IF_ERROR(ReadExclude(*exclude));
  if (const YamlNode* baseline = Child(root, "baseline")) {
    places_.baseline = PlaceOf(*baseline);
    ABLATE_ASSIGN_OR_RETURN(*spec_.mutable_baseline(), ReadConfiguration(*baseline, "a map of settings"));
  }
  if (const YamlNode* seeds = Child(root, "seeds")) {
    ABLATE_RETURN_IF_ERROR(ReadSeeds(*seeds));
  } else {
    for (int64_t seed = 0; seed < 3; ++seed) spec_.add_seeds(seed);
  }
  if (const YamlNode* evaluate = Child(root, "evaluate")) {
    ABLATE_RETURN_IF_ERROR(ReadEvaluate(*evaluate));
  } else if (spec_.executor() == v1::EXECUTOR_TRAINER) {
    YamlNode empty;
    empty.kind = YamlNode::Kind::kMap;
    ABLATE_RETURN_IF_ERROR(ReadEvaluate(empty));
  }
  if (const YamlNode* required = Child(root, "requires")) ABLATE_RETURN_IF_ERROR(ReadRequires(*required));
  if (const YamlNode* priority = Child(root, "priority")) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t number, ReadInteger(*priority, "priority", -1000, 1000));
    spec_.set_priority(static_cast<int32_t>(number));
  }
  spec_.set_keep(v1::KEEP_WEIGHTS);
  if (const YamlNode* keep = Child(root, "keep")) {
    ABLATE_ASSIGN_OR_RETURN(const std::string name, ReadChoice(*keep, "keep", {"none", "weights", "all"}));
    spec_.set_keep(name == "none" ? v1::KEEP_NONE : name == "all" ? v1::KEEP_ALL : v1::KEEP_WEIGHTS);
  }
  ABLATE_RETURN_IF_ERROR(CheckPoints(root));
  return std::move(spec_);
}

}  // namespace

absl::StatusOr<v1::SweepSpec> ParseSweepFile(const std::string& yaml, const std::string& file_name,
                                             SweepPlaces* places) {
  ABLATE_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(yaml, file_name));
  SweepPlaces unused;
  SweepPlaces& filled = places == nullptr ? unused : *places;
  filled = {};
  return Reader(file_name, &filled).Read(root);
}

}  // namespace ablate
