#include "experiments/factorial_design.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

std::string CellText(const std::vector<FactorialDesign::Factor>& factors, const std::vector<int>& levels) {
  std::string text;
  for (size_t f = 0; f < factors.size(); ++f) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", factors[f].name, "=", factors[f].levels[levels[f]]);
  }
  return text;
}

absl::Status CheckNames(const std::vector<std::string>& names, std::span<const Arm> arms) {
  if (names.empty()) return Refuse("the factorial has no factors");
  if (names.size() > static_cast<size_t>(kMaxFactors)) {
    return Refuse(absl::StrCat(names.size(), " factors: at most ", kMaxFactors, " are analysed together"));
  }
  std::set<std::string> given, seen;
  for (const Arm& arm : arms) {
    for (const auto& [name, level] : arm.factors) given.insert(name);
  }
  for (const std::string& name : names) {
    if (!seen.insert(name).second) return Refuse(absl::StrCat("factor ", name, " is there twice"));
    if (name == "eval.ntk") {
      return Refuse("eval.ntk is a column of the table, not part of an arm, so it is no factor");
    }
    if (given.count(name) > 0 || FindAxis(name) != nullptr) continue;
    std::vector<std::string> known(given.begin(), given.end());
    for (const std::string& axis : AxisNames()) known.push_back(axis);
    const std::string near = NearestName(name, known);
    return Refuse(absl::StrCat("unknown factor \"", name.substr(0, 100), "\"",
                               near.empty() ? "; a factor is an axis, or a name that arms give under factors"
                                            : absl::StrCat(", did you mean \"", near, "\"?")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FactorialDesign> FactorialDesignOf(const v1::SweepSpec& spec, std::span<const Arm> arms,
                                                  std::span<const std::string> asked) {
  std::vector<std::string> names(asked.begin(), asked.end());
  if (names.empty()) names.assign(spec.factorial().factors().begin(), spec.factorial().factors().end());
  const absl::Status known = CheckNames(names, arms);
  if (!known.ok()) return known;

  FactorialDesign design;
  for (const std::string& name : names) design.factors.push_back({name, {}});
  for (size_t a = 0; a < arms.size(); ++a) {
    const Arm& arm = arms[a];
    if (arm.phase == v1::TUNING) continue;
    v1::Configuration full = spec.settings();
    full.mutable_settings()->MergeFrom(arm.values.settings());
    const ConfigView view(full);
    std::vector<std::string> levels;
    for (const std::string& name : names) {
      if (const auto it = arm.factors.find(name); it != arm.factors.end()) {
        levels.push_back(it->second);
      } else if (FindAxis(name) != nullptr) {
        levels.push_back(ValueText(view.Get(name)));
      }
    }
    if (levels.size() < names.size()) continue;
    FactorialDesign::Cell cell;
    cell.arm = static_cast<int>(a);
    for (size_t f = 0; f < names.size(); ++f) {
      std::vector<std::string>& seen = design.factors[f].levels;
      const auto it = std::find(seen.begin(), seen.end(), levels[f]);
      cell.levels.push_back(static_cast<int>(it - seen.begin()));
      if (it == seen.end()) seen.push_back(levels[f]);
    }
    design.cells.push_back(std::move(cell));
  }
  if (design.cells.empty()) return Refuse("no arm has a level of every factor");
  double cells = 1;
  for (const FactorialDesign::Factor& factor : design.factors) {
    if (factor.levels.size() < 2) {
      return Refuse(
          absl::StrCat("factor ", factor.name, " has one level only, ", factor.levels.front(), ": a factor needs two"));
    }
    cells *= static_cast<double>(factor.levels.size());
  }
  std::map<std::vector<int>, int> arm_of;
  for (const FactorialDesign::Cell& cell : design.cells) {
    const auto [it, fresh] = arm_of.emplace(cell.levels, cell.arm);
    if (fresh) continue;
    return Refuse(absl::StrCat("arms ", arms[it->second].label, " and ", arms[cell.arm].label,
                               " are the same combination: ", CellText(design.factors, cell.levels)));
  }
  if (static_cast<double>(arm_of.size()) == cells) return design;
  // The first combination, in the order of the levels, that no arm has.
  std::vector<int> levels(names.size(), 0);
  while (arm_of.count(levels) > 0) {
    size_t f = levels.size();
    while (f-- > 0 && ++levels[f] == static_cast<int>(design.factors[f].levels.size())) levels[f] = 0;
  }
  return Refuse(absl::StrCat("the factorial is not full: no arm is ", CellText(design.factors, levels), " (",
                             arm_of.size(), " of ", ShortestDouble(cells), " combinations are there)"));
}

}  // namespace ablate
