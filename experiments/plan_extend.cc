// What may be added to a sweep that is under way. See plan_claims.h.
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/plan_claims.h"

namespace ablate {
namespace {

constexpr size_t kShown = 20;

class Differences {
 public:
  void Add(const std::string& line) { lines_.push_back(line); }
  bool empty() const { return lines_.empty(); }
  std::string Text() const {
    std::string text = absl::StrJoin(lines_.begin(), lines_.begin() + std::min(kShown, lines_.size()), "\n");
    if (lines_.size() > kShown) absl::StrAppend(&text, "\nand ", lines_.size() - kShown, " more");
    return text;
  }

 private:
  std::vector<std::string> lines_;
};

// "margin: 0.02 -> 0.05", one a field.
template <typename Message>
void AddFields(const std::string& what, const Message& before, const Message& after, Differences* found) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(before, after)) return;
  for (const absl::string_view line : absl::StrSplit(report, '\n', absl::SkipEmpty())) {
    found->Add(absl::StrCat(what, ": ", line));
  }
}

void AddChange(const std::string& what, const std::string& before, const std::string& after, Differences* found) {
  if (before != after) found->Add(absl::StrCat(what, ": ", before, " -> ", after));
}

std::set<std::string> LabelsOf(const Plan& plan, const std::vector<int>& arms) {
  std::set<std::string> labels;
  for (const int arm : arms) labels.insert(plan.arms[arm].label);
  return labels;
}

void AddSets(const std::string& what, const std::set<std::string>& before, const std::set<std::string>& after,
             Differences* found) {
  for (const std::string& name : before) {
    if (after.count(name) == 0) found->Add(absl::StrCat(what, " ", name, " is missing"));
  }
  for (const std::string& name : after) {
    if (before.count(name) == 0) found->Add(absl::StrCat(what, " ", name, " is new"));
  }
}

// Of the plan as declared: what decides which claims are made of what.
Differences Declared(const v1::SweepSpec& old_spec, const Plan& old_plan, const v1::SweepSpec& new_spec,
                     const Plan& new_plan) {
  Differences found;
  const auto part = [&](const char* name, bool before, bool after) {
    if (before != after) found.Add(absl::StrCat(name, after ? " is new" : " is missing"));
  };
  part("tune", old_spec.has_tune(), new_spec.has_tune());
  part("select", old_spec.has_select(), new_spec.has_select());
  part("confirm", old_spec.has_confirm(), new_spec.has_confirm());
  AddFields("tune", old_spec.tune(), new_spec.tune(), &found);
  // Who fits these is compared below, as arms: the same arms may be named in another way.
  v1::SelectionSpec before = old_spec.select(), after = new_spec.select();
  before.clear_among();
  after.clear_among();
  AddFields("select", before, after, &found);
  v1::ConfirmationSpec confirm = old_spec.confirm(), confirms = new_spec.confirm();
  confirm.clear_fixed_arms();
  confirms.clear_fixed_arms();
  AddFields("confirm", confirm, confirms, &found);
  AddSets("candidate", LabelsOf(old_plan, old_plan.candidates), LabelsOf(new_plan, new_plan.candidates), &found);
  AddSets("fixed arm", LabelsOf(old_plan, old_plan.fixed_arms), LabelsOf(new_plan, new_plan.fixed_arms), &found);
  AddFields("factorial", old_spec.factorial(), new_spec.factorial(), &found);
  const auto alpha = [](double given) { return ShortestDouble(given == 0 ? 0.05 : given); };
  AddChange("alpha", alpha(old_spec.alpha()), alpha(new_spec.alpha()), &found);

  std::map<std::string, int> claims;
  std::set<std::string> old_names, new_names;
  for (int i = 0; i < old_spec.claims_size(); ++i) old_names.insert(old_spec.claims(i).name());
  for (int i = 0; i < new_spec.claims_size(); ++i) {
    new_names.insert(new_spec.claims(i).name());
    claims[new_spec.claims(i).name()] = i;
  }
  AddSets("claim", old_names, new_names, &found);
  for (int i = 0; i < old_spec.claims_size(); ++i) {
    const auto it = claims.find(old_spec.claims(i).name());
    if (it == claims.end()) continue;
    v1::ClaimSpec claim = old_spec.claims(i), other = new_spec.claims(it->second);
    const auto arm = [](const Plan& plan, int index) { return index < 0 ? "selected" : plan.arms[index].label; };
    const std::string what = "claim " + claim.name();
    AddChange(what + ": arm", arm(old_plan, old_plan.claims[i].arm), arm(new_plan, new_plan.claims[it->second].arm),
              &found);
    AddChange(what + ": against", arm(old_plan, old_plan.claims[i].against),
              arm(new_plan, new_plan.claims[it->second].against), &found);
    for (v1::ClaimSpec* one : {&claim, &other}) {
      one->clear_arm();
      one->clear_against();
    }
    AddFields(what, claim, other, &found);
  }
  // Seeds and arms that a rule depends on.
  if (old_spec.has_select() || new_spec.has_select()) {
    std::set<std::string> seeds, more;
    for (const int64_t seed : old_plan.seeds) seeds.insert(std::to_string(seed));
    for (const int64_t seed : new_plan.seeds) more.insert(std::to_string(seed));
    AddSets("selecting seed", seeds, more, &found);
  }
  if (old_spec.has_tune()) {
    for (const Arm& added : new_plan.arms) {
      const bool known = std::any_of(old_plan.arms.begin(), old_plan.arms.end(),
                                     [&](const Arm& arm) { return arm.json == added.json; });
      if (!known) found.Add(absl::StrCat("arm ", added.label, " is new, and was never tuned"));
    }
  }
  return found;
}

std::set<std::string> KeysOf(const Plan& plan, const Point& point) {
  std::set<std::string> keys;
  for (const int evaluation : point.evaluations) keys.insert(plan.evaluations[evaluation].key);
  return keys;
}

// What the old plan has and the new one has not, or has otherwise.
Differences Missing(const v1::SweepSpec& old_spec, const Plan& old_plan, const v1::SweepSpec& new_spec,
                    const Plan& new_plan) {
  Differences found;
  AddChange("name", old_spec.name(), new_spec.name(), &found);
  AddChange("data", old_spec.data().sha256(), new_spec.data().sha256(), &found);
  AddFields("requires", old_spec.requirements(), new_spec.requirements(), &found);
  AddChange("priority", std::to_string(old_spec.priority()), std::to_string(new_spec.priority()), &found);
  AddChange("keep", v1::Keep_Name(old_spec.keep()), v1::Keep_Name(new_spec.keep()), &found);
  AddChange("executor", v1::Executor_Name(old_spec.executor()), v1::Executor_Name(new_spec.executor()), &found);
  AddChange("baseline", old_plan.arms[old_plan.baseline_arm].label, new_plan.arms[new_plan.baseline_arm].label, &found);

  std::unordered_map<std::string, int> arms;
  for (size_t a = 0; a < new_plan.arms.size(); ++a) arms[new_plan.arms[a].json] = static_cast<int>(a);
  std::set<int64_t> gone;
  for (const int64_t seed : old_plan.seeds) {
    if (std::find(new_plan.seeds.begin(), new_plan.seeds.end(), seed) != new_plan.seeds.end()) continue;
    gone.insert(seed);
    found.Add(absl::StrCat("seed ", seed, " is missing"));
  }
  for (const Arm& arm : old_plan.arms) {
    if (arms.count(arm.json) == 0) found.Add(absl::StrCat("arm ", arm.label, " is missing"));
  }
  std::map<std::tuple<int, int64_t, int>, const Point*> points;
  for (const Point& point : new_plan.points) points[{point.arm, point.seed, static_cast<int>(point.phase)}] = &point;
  std::set<int> told;  // one line an arm
  for (const Point& point : old_plan.points) {
    const Arm& arm = old_plan.arms[point.arm];
    const auto it = arms.find(arm.json);
    if (it == arms.end() || gone.count(point.seed) > 0 || told.count(point.arm) > 0) continue;
    const auto now = points.find({it->second, point.seed, static_cast<int>(point.phase)});
    if (now == points.end()) {
      found.Add(absl::StrCat("arm ", arm.label, ": seed ", point.seed, " is missing"));
      told.insert(point.arm);
      continue;
    }
    if (old_plan.stages[point.stage].key != new_plan.stages[now->second->stage].key) {
      found.Add(absl::StrCat("arm ", arm.label, " is trained in another way"));
      told.insert(point.arm);
      continue;
    }
    const std::set<std::string> keys = KeysOf(new_plan, *now->second);
    for (const int e : point.evaluations) {
      const PlannedEvaluation& evaluation = old_plan.evaluations[e];
      if (keys.count(evaluation.key) > 0) continue;
      found.Add(absl::StrCat("arm ", arm.label, ": its evaluation at ", evaluation.length_tokens, " tokens on ",
                             evaluation.split, evaluation.ntk ? " with NTK" : "", " is missing or changed"));
      told.insert(point.arm);
    }
  }
  return found;
}

}  // namespace

absl::Status CheckExtends(const v1::SweepSpec& old_spec, const Plan& old_plan, const v1::SweepSpec& new_spec,
                          const Plan& new_plan) {
  if (HasPhases(old_spec) || HasPhases(new_spec)) {
    const Differences declared = Declared(old_spec, old_plan, new_spec, new_plan);
    if (!declared.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("what a sweep declared before it started stays:\n", declared.Text(),
                       "\nGive the file another name to make it a new sweep; what both need is not run again."));
    }
  }
  const Differences missing = Missing(old_spec, old_plan, new_spec, new_plan);
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a sweep is extended by adding seeds, arms, lengths, splits or tasks; this file changes it:\n",
                   missing.Text(), "\nGive the file another name to make it a new sweep."));
}

}  // namespace ablate
