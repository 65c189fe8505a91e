#include "experiments/plan_claims.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

// How a state is known when the learning rate is not chosen yet: as its key, without the rate.
std::string StateWithoutRate(const v1::SweepSpec& spec, const Plan& plan, int stage) {
  std::vector<std::string> segments;  // last first
  int64_t to = plan.stages[stage].to_step;
  std::string config;
  for (int i = stage; i >= 0; i = plan.stages[i].parent) {
    const PlannedStage& part = plan.stages[i];
    v1::Configuration kept;
    for (const v1::Setting& setting : part.config.settings()) {
      if (setting.axis() != "train.learning_rate") *kept.add_settings() = setting;
    }
    const std::string json = ToJson(kept);
    if (json != config && !config.empty()) {
      segments.push_back(absl::StrCat(config, " to ", to));
      to = part.to_step;
    }
    config = json;
  }
  segments.push_back(absl::StrCat(config, " to ", to));
  std::string id =
      absl::StrCat(spec.data().sha256(), " ", static_cast<int>(spec.data().format()), " ", spec.requirements().device(),
                   " ", static_cast<int>(spec.executor()), " ", plan.stages[stage].seed);
  for (const std::string& segment : segments) absl::StrAppend(&id, " ", segment);
  return id;
}

struct StateAt {
  SealedState state;
  int stage = 0;
};

std::vector<StateAt> StatesOf(const v1::SweepSpec& spec, const Plan& plan) {
  std::vector<StateAt> states;
  if (!spec.has_confirm() || !plan.complete) return states;
  const std::vector<int> arms = ConfirmingArms(plan);
  std::map<std::pair<int, int>, size_t> known;  // by stage and arm
  for (const Point& point : plan.points) {
    const bool confirming = point.phase == v1::CONFIRMING;
    if (!confirming && point.phase != v1::SELECTING) continue;
    if (!std::binary_search(arms.begin(), arms.end(), point.arm)) continue;
    const auto [it, fresh] = known.emplace(std::pair(point.stage, point.arm), states.size());
    if (!fresh) {
      states[it->second].state.confirming_seed |= confirming;
      continue;
    }
    StateAt at;
    at.stage = point.stage;
    at.state.stage_key = plan.stages[point.stage].key;
    at.state.arm = point.arm;
    at.state.seed = point.seed;
    at.state.confirming_seed = confirming;
    at.state.split = spec.confirm().split();
    const int64_t one = plan.arms[point.arm].train_length;
    for (const v1::ClaimSpec& claim : spec.claims()) at.state.lengths.insert(LengthTokens(claim.length(), one));
    at.state.lengths.erase(one);
    states.push_back(std::move(at));
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

std::vector<SealedState> SealedStates(const v1::SweepSpec& spec, const Plan& plan) {
  std::vector<SealedState> states;
  for (StateAt& at : StatesOf(spec, plan)) states.push_back(std::move(at.state));
  return states;
}

std::vector<Overlap> Overlaps(const v1::SweepSpec& sealed_spec, const Plan& sealed, const v1::SweepSpec& other_spec,
                              const Plan& other_plan) {
  std::vector<Overlap> overlaps;
  if (!sealed_spec.has_confirm()) return overlaps;
  const bool without_rate = !sealed.complete || !other_plan.complete;
  const Plan sealed_later = sealed.complete ? Plan() : AtAnyRate(sealed_spec, sealed);
  const Plan other_later = other_plan.complete ? Plan() : AtAnyRate(other_spec, other_plan);
  const Plan& whole = sealed.complete ? sealed : sealed_later;
  const Plan& other = other_plan.complete ? other_plan : other_later;
  std::unordered_map<std::string, std::vector<SealedState>> states;
  for (StateAt& at : StatesOf(sealed_spec, whole)) {
    const std::string id = without_rate ? StateWithoutRate(sealed_spec, whole, at.stage) : at.state.stage_key;
    states[id].push_back(std::move(at.state));
  }
  std::unordered_map<int, const std::vector<SealedState>*> by_stage;
  for (size_t e = 0; e < other.evaluations.size(); ++e) {
    const PlannedEvaluation& evaluation = other.evaluations[e];
    const auto [cached, fresh] = by_stage.emplace(evaluation.stage, nullptr);
    if (fresh) {
      const auto it = states.find(without_rate ? StateWithoutRate(other_spec, other, evaluation.stage)
                                               : other.stages[evaluation.stage].key);
      if (it != states.end()) cached->second = &it->second;
    }
    if (cached->second == nullptr) continue;
    for (const SealedState& state : *cached->second) {
      const bool documents = evaluation.split == state.split;
      const bool length = state.lengths.count(evaluation.length_tokens) > 0;
      if (!documents && !length) continue;
      overlaps.push_back(
          {static_cast<int>(e), state.arm, state.seed, state.confirming_seed,
           absl::StrCat(whole.arms[state.arm].label, ", seed ", state.seed, ": ", evaluation.length_tokens,
                        " tokens on ", evaluation.split, " is ", documents ? "on the confirming documents" : "",
                        documents && length ? " and " : "", length ? "a length of the claims" : "")});
    }
  }
  return overlaps;
}

}  // namespace ablate
