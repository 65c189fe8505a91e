#include "experiments/sweep_file.h"

#include <charconv>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/mqar_rules.h"
#include "experiments/sweep_reader.h"
#include "experiments/yaml_tree.h"

namespace ablate {
namespace {

constexpr double kLargestInteger = 9007199254740992.0;  // 2^53
constexpr int64_t kMaxDataFiles = 10000;
constexpr size_t kMaxSwitches = 100, kMaxRules = 10000;

class Reader : public SweepReader {
 public:
  Reader(const std::string& file_name, SweepPlaces* places) : SweepReader(file_name), places_(*places) {}

  absl::StatusOr<v1::SweepSpec> Read(const YamlNode& root);

 private:
  absl::Status ReadData(const YamlNode& node);
  absl::Status ReadMadeData(const YamlNode& node);
  absl::Status ReadPath(const YamlNode& node);
  absl::Status ReadAxes(const YamlNode& node);
  absl::Status ReadArms(const YamlNode& node);
  absl::StatusOr<std::vector<v1::SwitchSpec>> ReadSwitches(const YamlNode& list) const;
  absl::Status ReadExclude(const YamlNode& node);
  absl::Status ReadRequires(const YamlNode& node);
  absl::Status ReadNames(const YamlNode& root);
  absl::Status CheckPoints(const YamlNode& root) const;

  SweepPlaces& places_;
  v1::SweepSpec spec_;
};

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
  const YamlNode* format = Child(node, "format");
  int which = -1;
  if (format != nullptr) {
    ABLATE_ASSIGN_OR_RETURN(which, ReadChoice(*format, "format", {"text", "token_shards", "mqar"}));
  }
  if (which == 2) return ReadMadeData(node);
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
  if (format != nullptr) {
    data->set_format(which == 0 ? v1::DataRef::TEXT : v1::DataRef::TOKEN_SHARDS);
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

// Without files: the trainer makes it. Its hash is that of the rules it is made by.
absl::Status Reader::ReadMadeData(const YamlNode& node) {
  for (const char* key : {"path", "paths", "sha256"}) {
    if (const YamlNode* child = Child(node, key)) {
      return Error(*child, absl::StrCat("data of format mqar is made by the trainer and has no ", key));
    }
  }
  v1::DataRef* data = spec_.mutable_data();
  data->set_format(v1::DataRef::MQAR);
  data->set_name("mqar");
  if (const YamlNode* name = Child(node, "name")) {
    ABLATE_ASSIGN_OR_RETURN(*data->mutable_name(), ReadText(*name, "a name for the data"));
  }
  data->set_sha256(Sha256Hex(kMqarRules));
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

absl::StatusOr<std::vector<v1::SwitchSpec>> Reader::ReadSwitches(const YamlNode& list) const {
  if (!list.is_list() || list.items.empty()) {
    return Expected(list, "a list of switches such as {at_step: 100, axis: value}");
  }
  if (list.items.size() > kMaxSwitches) return Error(list, absl::StrCat("more than ", kMaxSwitches, " switches"));
  std::vector<v1::SwitchSpec> switches;
  for (const YamlNode& entry : list.items) {
    if (!entry.is_map()) return Expected(entry, "a switch such as {at_step: 100, axis: value}");
    YamlNode settings = entry;
    settings.items.clear();
    v1::SwitchSpec change;
    const YamlNode* steps = nullptr;
    for (size_t i = 0; i + 1 < entry.items.size(); i += 2) {
      const YamlNode &key = entry.items[i], &value = entry.items[i + 1];
      if (key.text == "at_step") {
        ABLATE_ASSIGN_OR_RETURN(const int64_t at_step, ReadInteger(value, "at_step", 1, 1000000000));
        change.set_at_step(at_step);
      } else if (key.text == "at") {
        if (!value.is_scalar() || value.text != "end") {
          return Expected(value, "end for at (a step of training is at_step)");
        }
        change.set_at_end(true);
      } else if (key.text == "steps") {
        steps = &key;
        ABLATE_ASSIGN_OR_RETURN(const int64_t extra, ReadInteger(value, "steps after the end", 0, 1000000000));
        change.set_extra_steps(extra);
      } else {
        settings.items.push_back(key);
        settings.items.push_back(value);
      }
    }
    if (change.at_end() && change.at_step() > 0) return Error(entry, "the switch has both at_step and at: end");
    if (!change.at_end() && change.at_step() == 0) return Error(entry, "the switch has no at_step, nor at: end");
    if (steps != nullptr && !change.at_end()) {
      return Error(*steps, "steps are those after the end, of at: end; a switch at a step lasts to train.steps");
    }
    if (settings.items.empty() && change.extra_steps() == 0) {
      return Error(entry, change.at_end() ? "the switch changes nothing: name settings, or steps to go on as before"
                                          : "the switch changes nothing");
    }
    if (!switches.empty() &&
        (switches.back().at_end() || (!change.at_end() && change.at_step() <= switches.back().at_step()))) {
      return Error(entry, "expected switches in the order of their steps");
    }
    ABLATE_ASSIGN_OR_RETURN(*change.mutable_settings(), ReadConfiguration(settings, "settings"));
    switches.push_back(std::move(change));
  }
  return switches;
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
      ABLATE_ASSIGN_OR_RETURN(switches, ReadSwitches(*list));
    }
    std::map<std::string, std::string> factors;
    if (const YamlNode* map = Child(item, "factors")) {
      if (!map->is_map()) return Expected(*map, "a map of factors to levels");
      for (size_t i = 0; i + 1 < map->items.size(); i += 2) {
        const YamlNode& name = map->items[i];
        if (FindAxis(name.text) != nullptr) {
          return Error(name, name.text + " is an axis: its value is its level; name something else");
        }
        ABLATE_ASSIGN_OR_RETURN(factors[name.text], ReadText(map->items[i + 1], "a level of the factor"));
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
      arm->mutable_factors()->insert(factors.begin(), factors.end());
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadExclude(const YamlNode& node) {
  if (!node.is_list()) return Expected(node, "a list of rules such as {attention.variant: softmax, attention.p: 3}");
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(const SettingList rules, ReadSettings(item, "a rule: a map of settings", /*expand=*/true));
    for (const char* key : {"switch", "factors"}) {
      if (Child(item, key) != nullptr) return Error(item, absl::StrCat("a rule names values of axes, not ", key));
    }
    if (item.items.empty()) return Error(item, "a rule without settings would exclude every arm");
    if (spec_.exclude_size() + rules.size() > kMaxRules)
      return Error(item, absl::StrCat("more than ", kMaxRules, " rules"));
    for (const v1::Configuration& rule : rules) *spec_.add_exclude() = rule;
    places_.exclude.insert(places_.exclude.end(), rules.size(), PlaceOf(item));
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadRequires(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(CheckKeys(node, "a map for requires", {"device", "memory", "labels"}));
  v1::Requirements* required = spec_.mutable_requirements();
  if (const YamlNode* device = Child(node, "device")) {
    ABLATE_ASSIGN_OR_RETURN(const int cuda, ReadChoice(*device, "device", {"cpu", "cuda"}));
    required->set_device(cuda == 1 ? "cuda" : "cpu");
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
                                   {"name",     "description", "data",     "settings", "axes",   "arms",    "exclude",
                                    "baseline", "seeds",       "evaluate", "tune",     "select", "confirm", "claims",
                                    "alpha",    "factorial",   "requires", "priority", "keep",   "executor"}));
  ABLATE_RETURN_IF_ERROR(ReadNames(root));
  places_.file_name = file_name_;
  places_.root = places_.axes = places_.baseline = PlaceOf(root);
  spec_.set_executor(v1::EXECUTOR_TRAINER);
  if (const YamlNode* executor = Child(root, "executor")) {
    ABLATE_ASSIGN_OR_RETURN(const int noop, ReadChoice(*executor, "executor", {"trainer", "noop"}));
    if (noop == 1) spec_.set_executor(v1::EXECUTOR_NOOP);
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
    ABLATE_ASSIGN_OR_RETURN(*spec_.mutable_seeds(), ReadSeedList(*seeds, "seeds", 0));
  } else {
    for (int64_t seed = 0; seed < 3; ++seed) spec_.add_seeds(seed);
  }
  if (const YamlNode* evaluate = Child(root, "evaluate")) {
    ABLATE_RETURN_IF_ERROR(ReadEvaluatePart(*this, *evaluate, &spec_, &places_));
  } else if (spec_.executor() == v1::EXECUTOR_TRAINER) {
    YamlNode empty;
    empty.kind = YamlNode::Kind::kMap;
    ABLATE_RETURN_IF_ERROR(ReadEvaluatePart(*this, empty, &spec_, &places_));
  }
  if (const YamlNode* required = Child(root, "requires")) ABLATE_RETURN_IF_ERROR(ReadRequires(*required));
  if (const YamlNode* priority = Child(root, "priority")) {
    ABLATE_ASSIGN_OR_RETURN(const int64_t number, ReadInteger(*priority, "priority", -1000, 1000));
    spec_.set_priority(static_cast<int32_t>(number));
  }
  spec_.set_keep(v1::KEEP_WEIGHTS);
  if (const YamlNode* keep = Child(root, "keep")) {
    ABLATE_ASSIGN_OR_RETURN(const int what, ReadChoice(*keep, "keep", {"none", "weights", "all"}));
    spec_.set_keep(what == 0 ? v1::KEEP_NONE : what == 2 ? v1::KEEP_ALL : v1::KEEP_WEIGHTS);
  }
  ABLATE_RETURN_IF_ERROR(ReadClaimParts(*this, root, &spec_, &places_));
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
