// See selection.h.
#include "experiments/claims/selection.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/metrics.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

using Json = nlohmann::ordered_json;

// One candidate's runs in some cells.
struct Score {
  int arm = 0;
  std::optional<double> value;  // mean over the cells of the means over seeds; empty unless every run is there
  std::vector<double> means;    // by cell, as far as a cell has a value; NaN-free because `counts` says where
  std::vector<int> counts;
  std::vector<int64_t> diverged, missing;  // seeds, ascending by their order in the file, each once
  std::vector<std::string> jobs;
};

void AddOnce(int64_t seed, std::vector<int64_t>* seeds) {
  if (std::find(seeds->begin(), seeds->end(), seed) == seeds->end()) seeds->push_back(seed);
}

absl::StatusOr<Score> ScoreOf(const v1::SweepSpec& spec, const Plan& plan, const Measured& measured, int arm,
                              const std::vector<v1::LengthSpec>& lengths) {
  Score score{.arm = arm};
  const v1::SelectionSpec& select = spec.select();
  const std::string metric = select.metric().empty() ? "loss_targets" : select.metric();
  const std::string split = select.split().empty() ? "selection" : select.split();
  for (const v1::LengthSpec& length : lengths) {
    const MeasuredCell cell = CellOf(spec, plan.arms[arm], metric, length, split, select.ntk());
    std::vector<double> values;
    for (const int64_t seed : spec.seeds()) {
      const Found found = measured.Find(arm, seed, v1::SELECTING, cell);
      if (!found.job_id.empty()) score.jobs.push_back(found.job_id);
      if (found.status == MeasurementStatus::kOk) values.push_back(found.value);
      if (found.status == MeasurementStatus::kDiverged) AddOnce(seed, &score.diverged);
      if (found.status == MeasurementStatus::kMissing) AddOnce(seed, &score.missing);
    }
    score.counts.push_back(static_cast<int>(values.size()));
    score.means.push_back(0);
    if (values.empty()) continue;
    ABLATE_ASSIGN_OR_RETURN(const Summary summary, Summarize(values));
    score.means.back() = summary.mean;
  }
  if (score.diverged.empty() && score.missing.empty() && !score.means.empty()) {
    ABLATE_ASSIGN_OR_RETURN(const Summary over_lengths, Summarize(score.means));
    score.value = over_lengths.mean;
  }
  return score;
}

// How much worse `a` is than `b`.
double Regret(const v1::SweepSpec& spec, double a, double b) { return IsGain(spec.select().metric()) ? b - a : a - b; }

const Score* Best(const v1::SweepSpec& spec, const std::vector<Score>& scores) {
  const Score* best = nullptr;
  for (const Score& score : scores) {
    if (!score.value.has_value()) continue;
    if (best == nullptr || Regret(spec, *score.value, *best->value) < 0) best = &score;
  }
  return best;
}

Json ArmJson(const Plan& plan, int arm) {
  Json json = Json::parse(plan.arms[arm].json, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(plan.arms[arm].label) : json;
}

Json Evidence(const Plan& plan, const std::vector<Score>& scores, const std::vector<v1::LengthSpec>& lengths) {
  Json candidates = Json::array();
  for (const Score& score : scores) {
    Json entry = {{"arm", ArmJson(plan, score.arm)}};
    entry["eligible"] = score.value.has_value();
    entry["score"] = score.value.has_value() ? Json(*score.value) : Json(nullptr);
    Json means = Json::array();
    for (size_t i = 0; i < lengths.size(); ++i) {
      Json mean = {{"length", LengthTokens(lengths[i], plan.arms[score.arm].train_length)}, {"n", score.counts[i]}};
      mean["mean"] = score.counts[i] > 0 ? Json(score.means[i]) : Json(nullptr);
      means.push_back(std::move(mean));
    }
    entry["means"] = std::move(means);
    entry["n"] = score.counts.empty() ? 0 : *std::min_element(score.counts.begin(), score.counts.end());
    entry["diverged_seeds"] = score.diverged;
    entry["missing_seeds"] = score.missing;
    entry["jobs"] = score.jobs;
    candidates.push_back(std::move(entry));
  }
  return candidates;
}

std::string Names(const Plan& plan, const std::vector<Score>& scores, std::vector<int64_t> Score::*seeds) {
  std::vector<std::string> names;
  for (const Score& score : scores) {
    if (!(score.*seeds).empty()) {
      names.push_back(absl::StrCat(plan.arms[score.arm].label, " (", SeedsText(score.*seeds), ")"));
    }
  }
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  return names.size() > kShown ? absl::StrCat(text, " and ", names.size() - kShown, " more") : text;
}

}  // namespace

absl::StatusOr<SelectionState> Select(const v1::SweepSpec& spec, const Plan& plan, const Measured& measured) {
  SelectionState state;
  if (plan.candidates.empty()) return absl::InvalidArgumentError("select: the plan has no candidates");
  const std::vector<v1::LengthSpec> lengths(spec.select().lengths().begin(), spec.select().lengths().end());
  const std::vector<v1::LengthSpec> at_1x = {Multiple(1)};
  std::vector<Score> scores, short_scores;
  for (const int arm : plan.candidates) {
    ABLATE_ASSIGN_OR_RETURN(Score score, ScoreOf(spec, plan, measured, arm, lengths));
    scores.push_back(std::move(score));
    ABLATE_ASSIGN_OR_RETURN(Score short_score, ScoreOf(spec, plan, measured, arm, at_1x));
    short_scores.push_back(std::move(short_score));
  }
  const Score* best = Best(spec, scores);
  const std::string which = IsGain(spec.select().metric()) ? "highest" : "lowest";
  const bool missing = std::any_of(scores.begin(), scores.end(), [](const Score& s) { return !s.missing.empty(); });
  const std::string diverged = Names(plan, scores, &Score::diverged);

  Json evidence;
  evidence["rule"] = {{"choose", which + " mean over the lengths of the means over the selecting seeds"},
                      {"metric", spec.select().metric()},
                      {"split", spec.select().split()},
                      {"ntk", spec.select().ntk()},
                      {"seeds", std::vector<int64_t>(spec.seeds().begin(), spec.seeds().end())}};
  evidence["candidates"] = Evidence(plan, scores, lengths);
  evidence["rule_at_1x"] = {{"standing", "exploratory"}, {"candidates", Evidence(plan, short_scores, at_1x)}};

  if (!missing && best != nullptr) {
    state.arm = best->arm;
    state.lock.set_rule_arm_json(plan.arms[best->arm].json);
    state.why = absl::StrCat(which, " score, ", ShortestDouble(*best->value), ", of ", scores.size(),
                             scores.size() == 1 ? " candidate" : " candidates");
    if (!diverged.empty()) absl::StrAppend(&state.why, "; not eligible, because a run diverged: ", diverged);
  } else if (missing) {
    state.waiting_for = absl::StrCat("selecting runs without a result: ", Names(plan, scores, &Score::missing));
  } else {
    state.waiting_for = absl::StrCat("no candidate is eligible, because runs diverged: ", diverged,
                                     "; lock an arm by hand, with a reason, or cancel the sweep");
  }
  const bool short_missing =
      std::any_of(short_scores.begin(), short_scores.end(), [](const Score& s) { return !s.missing.empty(); });
  const Score* short_best = short_missing ? nullptr : Best(spec, short_scores);
  if (short_best != nullptr) {
    state.lock.set_short_rule_arm_json(plan.arms[short_best->arm].json);
    const Score& its = scores[short_best - short_scores.data()];
    if (its.value.has_value() && state.arm.has_value())
      state.lock.set_short_rule_regret(Regret(spec, *its.value, *best->value));
    evidence["rule_at_1x"]["arm"] = ArmJson(plan, short_best->arm);
    if (!its.value.has_value()) evidence["rule_at_1x"]["note"] = "its pick has no score at the selection lengths";
  } else {
    evidence["rule_at_1x"]["note"] =
        short_missing ? "not every candidate has a value at 1x" : "every candidate diverged at 1x";
  }
  state.lock.set_evidence_json(evidence.dump(-1, ' ', false, Json::error_handler_t::replace));
  return state;
}

}  // namespace ablate
