#include "experiments/plan_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/sweep_file.h"

namespace ablate {
namespace {

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

absl::Status CheckSettings(const v1::Configuration& config) {
  for (const v1::Setting& setting : config.settings()) {
    ABLATE_RETURN_IF_ERROR(CheckSetting(setting.axis(), setting.value()));
  }
  return absl::OkStatus();
}

// Of a switch at the end without steps: what shapes steps alone would give another arm's numbers a second name. The
// precision and the pairs of task mqar act at evaluation too.
bool NeedsSteps(const std::string& axis) {
  const bool of_steps = axis.compare(0, 6, "train.") == 0 || axis.compare(0, 5, "data.") == 0;
  return of_steps && axis != "train.precision" && axis != "data.mqar.pairs";
}

}  // namespace

absl::Status CheckSpec(const v1::SweepSpec& spec) {
  double cells = 1;
  std::set<std::string> names;
  for (const v1::AxisSpec& axis : spec.axes()) {
    if (!names.insert(axis.axis()).second) return Refuse(axis.axis() + " is an axis twice");
    if (axis.values().empty()) return Refuse(axis.axis() + " has no values");
    for (const v1::Value& value : axis.values()) ABLATE_RETURN_IF_ERROR(CheckSetting(axis.axis(), value));
    cells *= axis.values_size();
  }
  double switches = 0;
  for (const v1::ArmSpec& arm : spec.arms()) switches += arm.switches_size();
  const double points = cells * std::max(1, spec.arms_size()) * spec.seeds_size();
  if (points > static_cast<double>(kMaxPoints)) {
    return Refuse(absl::StrCat("the sweep has ", ShortestDouble(points), " points (arms x seeds); at most ", kMaxPoints,
                               " are planned"));
  }
  // Before any work is done: what a hostile file could make long.
  if (points + cells * switches * spec.seeds_size() > static_cast<double>(kMaxJobs)) {
    return Refuse(absl::StrCat("the sweep's switches make more than ", kMaxJobs, " stages: split it"));
  }
  if (cells * std::max(1, spec.arms_size()) * spec.exclude_size() > 1e8) {
    return Refuse(absl::StrCat(spec.exclude_size(), " exclude rules are too many for so many arms: split the sweep"));
  }
  std::vector<const v1::Configuration*> configs = {&spec.settings()};
  for (const v1::Configuration& rule : spec.exclude()) {
    if (rule.settings().empty()) return Refuse("an exclude rule without settings would leave no arm");
    configs.push_back(&rule);
  }
  for (const v1::Configuration* config : configs) ABLATE_RETURN_IF_ERROR(CheckSettings(*config));
  // A sweep that selects nothing may have confirming seeds alone.
  const bool confirms_only = spec.has_confirm() && !spec.has_select();
  if (spec.seeds().empty() && !confirms_only) return Refuse("the sweep has no seeds");
  const std::set<int64_t> seeds(spec.seeds().begin(), spec.seeds().end());
  if (static_cast<int>(seeds.size()) != spec.seeds_size()) return Refuse("a seed is there twice");
  if (!seeds.empty() && *seeds.begin() < 0) return Refuse("seeds must be at least 0");
  for (const v1::LengthSpec& length : spec.evaluate().lengths()) {
    const double number = length.has_multiple() ? length.multiple() : static_cast<double>(length.tokens());
    if (!(number > 0 && number <= kMaxLength)) {
      return Refuse(absl::StrCat("evaluate.lengths: expected a length above 0, at most ", ShortestDouble(kMaxLength),
                                 ", found ", ShortestDouble(number)));
    }
  }
  // Both are part of keys, as they are.
  for (const std::string& split : spec.evaluate().splits()) {
    if (split != "selection" && split != "confirmation")
      return Refuse("evaluate.splits: expected selection or confirmation");
  }
  const std::string& device = spec.requirements().device();
  if (!device.empty() && device != "cpu" && device != "cuda") return Refuse("requires.device: expected cpu or cuda");
  if (!spec.data().sha256().empty() && !IsSha256Hex(spec.data().sha256())) {
    return Refuse("data.sha256: expected 64 lower-case hex digits");
  }
  if (spec.executor() != v1::EXECUTOR_NOOP && !IsSha256Hex(spec.data().sha256())) {
    return Refuse("data.sha256 is missing: the data's files are hashed before planning");
  }
  return absl::OkStatus();
}

absl::Status CheckArm(const v1::SweepSpec& spec, const v1::ArmSpec& arm) {
  ABLATE_RETURN_IF_ERROR(CheckSettings(arm.settings()));
  for (const v1::Setting& setting : arm.settings().settings()) {
    for (const v1::AxisSpec& axis : spec.axes()) {
      if (axis.axis() == setting.axis()) return Refuse(setting.axis() + " is both in an arm and an axis");
    }
  }
  if (arm.switches_size() > kMaxSwitches) {
    return Refuse(absl::StrCat("an arm has more than ", kMaxSwitches, " switches"));
  }
  int64_t before = 0;
  for (const v1::SwitchSpec& change : arm.switches()) {
    // Further steps alone are the control of those with other settings.
    if (change.settings().settings().empty() && change.extra_steps() == 0) return Refuse("a switch changes nothing");
    const bool last = &change == &arm.switches(arm.switches_size() - 1);
    if (change.at_end() ? !last || change.at_step() != 0 : change.at_step() <= before) {
      return Refuse("the switches of an arm must be in the order of their steps, above 0");
    }
    if (change.extra_steps() < 0 || change.extra_steps() > 1000000000 ||
        (change.extra_steps() > 0 && !change.at_end())) {
      return Refuse("a switch at the end may have 0 to 1000000000 further steps, another one none");
    }
    before = change.at_step();
    ABLATE_RETURN_IF_ERROR(CheckSettings(change.settings()));
    for (const v1::Setting& setting : change.settings().settings()) {
      const std::string& axis = setting.axis();
      const bool shape = axis.compare(0, 6, "model.") == 0 && axis != "model.rope_base";
      if (shape || axis == "train.steps" || axis == "train.length" || axis == "data.mqar.vocabulary" ||
          axis.compare(0, 5, "eval.") == 0) {
        return Refuse(axis + " cannot be switched during training");
      }
      if (change.at_end() && change.extra_steps() == 0 && NeedsSteps(axis)) {
        return Refuse("switch at: end: " + axis + " cannot act without steps: name `steps`");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace ablate
