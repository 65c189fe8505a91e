#include "experiments/plan_claims.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

// The model.* and attention.* settings that act, with their defaults: however they were written.
std::string ModelOf(const v1::Configuration& config) {
  const v1::Configuration canonical = Canonical(config);
  const ConfigView view(canonical);
  std::string text;
  for (const Axis& axis : Axes()) {
    const std::string_view name = axis.name;
    if (name.substr(0, 6) != "model." && name.substr(0, 10) != "attention.") continue;
    // Names for what the other settings say.
    if (name == "model.preset" || name == "attention.variant") continue;
    // Of the sharpening.
    if (name.substr(0, 16) == "attention.offset" && !view.Has("attention.p")) continue;
    if (name == "attention.offset_free_rows" && view.Number("attention.offset") == 0) continue;
    const v1::Value value = view.Get(name);
    absl::StrAppend(&text, ToAbsl(name), "=",
                    value.has_number() ? absl::StrFormat("%.3g", value.number()) : ValueText(value), " ");
  }
  return text;
}

// Of states of one plan.
class Identities {
 public:
  explicit Identities(const Plan& plan) : plan_(plan) {}
  std::string Of(int stage) {
    std::vector<const v1::Configuration*> history;
    std::string path;
    for (int i = stage; i >= 0; i = plan_.stages[i].parent) {
      history.push_back(&plan_.stages[i].config);
      absl::StrAppend(&path, ToJson(plan_.stages[i].config));
    }
    const auto [it, fresh] = known_.try_emplace(path);
    if (fresh) {
      std::reverse(history.begin(), history.end());
      it->second = ArmIdentity(history);
    }
    return it->second;
  }

 private:
  const Plan& plan_;
  std::unordered_map<std::string, std::string> known_;
};

std::vector<SealedState> StatesOf(const v1::SweepSpec& spec, const Plan& plan) {
  std::vector<SealedState> states;
  if (!spec.has_confirm() || !plan.complete) return states;
  const std::vector<int> arms = ConfirmingArms(plan);
  Identities identities(plan);
  std::map<std::pair<int, int>, size_t> known;  // by stage and arm
  for (const Point& point : plan.points) {
    const bool confirming = point.phase == v1::CONFIRMING;
    if (!confirming && point.phase != v1::SELECTING) continue;
    if (!std::binary_search(arms.begin(), arms.end(), point.arm)) continue;
    const auto [it, fresh] = known.emplace(std::pair(point.stage, point.arm), states.size());
    if (!fresh) {
      states[it->second].confirming_seed |= confirming;
      continue;
    }
    SealedState& state = states.emplace_back();
    state.identity = identities.Of(point.stage);
    state.arm = point.arm;
    state.seed = point.seed;
    state.confirming_seed = confirming;
    state.split = spec.confirm().split();
    const int64_t one = plan.arms[point.arm].train_length;
    if (confirming && !spec.confirm().reuse_seeds()) {
      state.longest = one;
      continue;
    }
    for (const v1::ClaimSpec& claim : spec.claims()) {
      state.lengths.insert(LengthTokens(claim.length(), one));
      if (claim.kind() == v1::RISES_LESS) state.lengths.insert(LengthTokens(claim.short_length(), one));
    }
    state.lengths.erase(one);
  }
  return states;
}

}  // namespace

std::vector<int> ConfirmingArms(const Plan& plan) {
  std::set<int> arms(plan.candidates.begin(), plan.candidates.end());
  arms.insert(plan.fixed_arms.begin(), plan.fixed_arms.end());
  arms.insert(plan.baseline_arm);
  return {arms.begin(), arms.end()};
}

Plan AtAnyRate(const v1::SweepSpec& spec, const Plan& plan) {
  if (plan.complete) return plan;
  TuningResults rates;
  for (const Arm& arm : plan.arms) {
    if (arm.phase == v1::TUNING) {
      rates.tries[plan.arms[arm.tunes].json].push_back(arm.learning_rate);
    } else {
      rates.rates[arm.json] = arm.learning_rate > 0 ? arm.learning_rate : spec.tune().learning_rates(0);
    }
  }
  absl::StatusOr<Plan> whole = MakePlan(spec, {}, rates);
  return whole.ok() ? *std::move(whole) : plan;
}

JobSet JobsOfPoints(const Plan& plan, const std::function<bool(const Point&)>& wanted) {
  JobSet jobs;
  jobs.stages.assign(plan.stages.size(), false);
  jobs.evaluations.assign(plan.evaluations.size(), false);
  for (const Point& point : plan.points) {
    if (!wanted(point)) continue;
    for (int i = point.stage; i >= 0 && !jobs.stages[i]; i = plan.stages[i].parent) jobs.stages[i] = true;
    for (const int evaluation : point.evaluations) jobs.evaluations[evaluation] = true;
  }
  return jobs;
}

JobSet SealedJobs(const Plan& plan) {
  JobSet jobs = JobsOfPoints(plan, [](const Point& point) { return point.phase != v1::CONFIRMING; });
  jobs.stages.flip();
  jobs.evaluations.flip();
  return jobs;
}

JobSet ReleasedJobs(const Plan& plan, std::span<const int> arms, int seeds) {
  const size_t count = std::min(plan.confirming_seeds.size(), static_cast<size_t>(std::max(0, seeds)));
  const std::set<int64_t> first(plan.confirming_seeds.begin(), plan.confirming_seeds.begin() + count);
  JobSet jobs = JobsOfPoints(plan, [&](const Point& point) {
    return point.phase == v1::CONFIRMING && first.count(point.seed) > 0 &&
           std::find(arms.begin(), arms.end(), point.arm) != arms.end();
  });
  const JobSet sealed = SealedJobs(plan);
  for (size_t i = 0; i < jobs.stages.size(); ++i) jobs.stages[i] = jobs.stages[i] && sealed.stages[i];
  for (size_t i = 0; i < jobs.evaluations.size(); ++i) {
    jobs.evaluations[i] = jobs.evaluations[i] && sealed.evaluations[i];
  }
  return jobs;
}

bool NeedsLock(const v1::SweepSpec& spec) { return spec.has_select(); }

std::string ArmIdentity(std::span<const v1::Configuration* const> history) {
  std::string identity, last;
  for (const v1::Configuration* config : history) {
    std::string model = ModelOf(*config);
    if (model == last) continue;
    absl::StrAppend(&identity, identity.empty() ? "" : "then ", model);
    last = std::move(model);
  }
  return identity;
}

bool IsSealed(const SealedState& state, int64_t train_length, int64_t length_tokens, const std::string& split) {
  return split == state.split || state.lengths.count(length_tokens) > 0 ||
         (state.longest > 0 && length_tokens > std::min(state.longest, train_length));
}

std::vector<SealedState> SealedStates(const v1::SweepSpec& spec, const Plan& plan) { return StatesOf(spec, plan); }

std::vector<Overlap> Overlaps(const v1::SweepSpec& sealed_spec, const Plan& sealed, const v1::SweepSpec& other_spec,
                              const Plan& other_plan) {
  std::vector<Overlap> overlaps;
  if (!sealed_spec.has_confirm() || sealed_spec.data().sha256() != other_spec.data().sha256() ||
      sealed_spec.executor() != other_spec.executor()) {
    return overlaps;
  }
  const Plan sealed_later = sealed.complete ? Plan() : AtAnyRate(sealed_spec, sealed);
  const Plan other_later = other_plan.complete ? Plan() : AtAnyRate(other_spec, other_plan);
  const Plan& whole = sealed.complete ? sealed : sealed_later;
  const Plan& other = other_plan.complete ? other_plan : other_later;
  std::map<int64_t, std::unordered_map<std::string, std::vector<SealedState>>> by_seed;
  for (SealedState& state : StatesOf(sealed_spec, whole)) {
    by_seed[state.seed][state.identity].push_back(std::move(state));
  }
  Identities identities(other);
  std::unordered_map<int, const std::vector<SealedState>*> by_stage;
  for (size_t e = 0; e < other.evaluations.size(); ++e) {
    const PlannedEvaluation& evaluation = other.evaluations[e];
    const PlannedStage& stage = other.stages[evaluation.stage];
    const auto states = by_seed.find(stage.seed);
    if (states == by_seed.end()) continue;
    const auto [cached, fresh] = by_stage.emplace(evaluation.stage, nullptr);
    if (fresh) {
      const auto it = states->second.find(identities.Of(evaluation.stage));
      if (it != states->second.end()) cached->second = &it->second;
    }
    if (cached->second == nullptr) continue;
    const int64_t one = ConfigView(stage.config).Integer("train.length");
    for (const SealedState& state : *cached->second) {
      if (!IsSealed(state, one, evaluation.length_tokens, evaluation.split)) continue;
      const bool documents = evaluation.split == state.split;
      const bool length = IsSealed(state, one, evaluation.length_tokens, "");
      overlaps.push_back(
          {static_cast<int>(e), state.arm, state.seed, state.confirming_seed,
           absl::StrCat(whole.arms[state.arm].label, ", seed ", state.seed, ": ", evaluation.length_tokens,
                        " tokens on ", evaluation.split, " is ", documents ? "on the confirming documents" : "",
                        documents && length ? " and " : "",
                        !length             ? ""
                        : state.longest > 0 ? "longer than 1x"
                                            : "a length of the claims")});
    }
  }
  return overlaps;
}

}  // namespace ablate
