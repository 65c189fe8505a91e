// Which arm the others are compared with: one rule, for a sweep's own baseline and for one that a user names later.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "experiments/axes.h"
#include "experiments/plan.h"
#include "experiments/plan_check.h"

namespace ablate {
namespace {

constexpr size_t kShown = 8;

std::string Labels(std::span<const Arm> arms, const std::vector<int>& which) {
  std::string text;
  for (size_t i = 0; i < std::min(which.size(), kShown); ++i) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", arms[which[i]].label);
  }
  return which.size() > kShown ? text + "..." : text;
}

// Base and values together, as one form that equal configurations share; a switch's "axis@step" is kept as it is.
std::string Effective(const v1::Configuration& settings, const v1::Configuration& values) {
  v1::Configuration full;
  for (const v1::Configuration* part : {&settings, &values}) {
    for (const v1::Setting& setting : part->settings()) {
      if (setting.axis() != "eval.ntk") *full.add_settings() = setting;
    }
  }
  return ToJson(Canonical(full));
}

}  // namespace

bool HasValues(const v1::Configuration& config, const ConfigView& view, const v1::Configuration& wanted) {
  return std::all_of(wanted.settings().begin(), wanted.settings().end(), [&](const v1::Setting& setting) {
    if (FindAxis(setting.axis()) != nullptr) return SameValue(view.Get(setting.axis()), setting.value());
    return std::any_of(config.settings().begin(), config.settings().end(), [&](const v1::Setting& given) {
      return given.axis() == setting.axis() && SameValue(given.value(), setting.value());
    });
  });
}

absl::StatusOr<int> FindBaseline(const v1::Configuration& settings, std::span<const Arm> arms,
                                 const v1::Configuration& selector) {
  return FindArm(settings, arms, selector, "baseline");
}

absl::StatusOr<int> FindArm(const v1::Configuration& settings, std::span<const Arm> arms,
                            const v1::Configuration& selector, const std::string& what) {
  for (const v1::Setting& setting : selector.settings()) {
    const std::string axis = setting.axis().substr(0, setting.axis().find('@'));
    ABLATE_RETURN_IF_ERROR(CheckSetting(axis, setting.value()));
    if (axis == "eval.ntk") {
      return absl::InvalidArgumentError(what + ": eval.ntk is a column of the table, not part of an arm");
    }
  }
  const std::string wanted = Effective(settings, selector);
  std::vector<int> all, matching, exact;
  for (size_t i = 0; i < arms.size(); ++i) {
    const int arm = static_cast<int>(i);
    if (arms[i].phase == v1::TUNING) continue;
    all.push_back(arm);
    v1::Configuration full = settings;
    full.mutable_settings()->MergeFrom(arms[i].values.settings());
    if (!HasValues(full, ConfigView(full), selector)) continue;
    matching.push_back(arm);
    if (Effective(settings, arms[i].values) == wanted) exact.push_back(arm);
  }
  if (exact.size() == 1) return exact.front();
  if (matching.size() == 1) return matching.front();
  if (matching.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no arm is the ", what, " ", Label(selector), "; the arms are ",
                                                   Labels(arms, all), ": name one of them"));
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " ", Label(selector), " fits ", matching.size(), " arms (",
                                                 Labels(arms, matching), "); name more of its values"));
}

}  // namespace ablate
