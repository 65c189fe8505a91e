// Counts and costs of a plan.
#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"
#include "experiments/plan.h"
#include "experiments/plan_claims.h"
#include "proto/coordinator.pb.h"

namespace ablate {
namespace {

// Of one training configuration.
struct ConfigCost {
  int64_t step_tokens = 0;
  int64_t train_length = 0;
  int64_t weights_bytes = 0;
  double target_spans = 0, loss_tokens = 0;
};

ConfigCost CostOf(const v1::Configuration& config, int64_t vocabulary) {
  const ConfigView view(config);
  ConfigCost cost;
  cost.step_tokens = view.Integer("train.batch") * view.Integer("train.length");
  cost.train_length = view.Integer("train.length");
  cost.weights_bytes = 4 * ParameterCount(view, vocabulary);
  cost.target_spans = view.Number("eval.target_spans");
  cost.loss_tokens = view.Number("eval.loss_tokens");
  return cost;
}

double Override(const v1::Configuration& config, std::string_view axis, double fallback) {
  for (const v1::Setting& setting : config.settings()) {
    if (setting.axis() == axis) return setting.value().number();
  }
  return fallback;
}

int64_t VocabularyOf(const v1::DataRef& data, const v1::Configuration& config) {
  if (data.format() == v1::DataRef::MQAR) return ConfigView(config).Integer("data.mqar.vocabulary");
  return data.format() == v1::DataRef::TOKEN_SHARDS ? 50257 : 256;
}

// Tokens that one evaluation of a task goes through. Of a task with a file its bytes stand for its tokens.
double TaskTokens(const v1::ProbeSpec& probe, const PlannedStage& stage, const PlannedEvaluation& evaluation) {
  const ConfigView view(stage.config, evaluation.eval_config);
  const auto length = static_cast<double>(evaluation.length_tokens);
  if (probe.task() == "passkey") return view.Number("eval.passkey.trials") * length;
  if (probe.task() == "mqar") return view.Number("eval.mqar.sequences") * length;
  if (probe.task() == "attention") {
    return std::max(1.0, std::floor(view.Number("eval.attention.tokens") / length)) * length;
  }
  double bytes = 0;
  for (const v1::DataFile& file : probe.files()) bytes += static_cast<double>(file.bytes());
  return bytes;
}

// "0 to 4", "0, 2, 5".
std::string SeedsText(const std::vector<int64_t>& seeds) {
  std::vector<int64_t> sorted = seeds;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.size() > 2 && sorted.back() - sorted.front() == static_cast<int64_t>(sorted.size()) - 1) {
    return absl::StrCat(sorted.front(), " to ", sorted.back());
  }
  return absl::StrJoin(sorted, ", ");
}

template <typename Lengths>
std::string LengthsText(const Lengths& lengths) {
  return absl::StrJoin(lengths, ", ", [](std::string* out, const v1::LengthSpec& length) {
    absl::StrAppend(out, length.has_multiple() ? ShortestDouble(length.multiple()) + "x"
                                               : absl::StrCat(length.tokens(), " tokens"));
  });
}

// What is measured beside the loss, a line a task.
void AddTaskNotes(const v1::SweepSpec& spec, const Plan& plan, v1::PlanSummary* summary) {
  for (int p = 0; p < spec.evaluate().probes_size(); ++p) {
    const v1::ProbeSpec& probe = spec.evaluate().probes(p);
    const auto count = std::count_if(plan.evaluations.begin(), plan.evaluations.end(),
                                     [&](const PlannedEvaluation& evaluation) { return evaluation.probe == p; });
    summary->add_notes(absl::StrCat(
        "task ", probe.task(), probe.name().empty() || probe.name() == probe.task() ? "" : " (" + probe.name() + ")",
        probe.lengths().empty() ? "" : " at " + LengthsText(probe.lengths()),
        probe.splits().empty() ? "" : " on " + absl::StrJoin(probe.splits(), ", "), ": ", count,
        count == 1 ? " evaluation" : " evaluations"));
  }
}

void AddNotes(const v1::SweepSpec& spec, const Plan& plan, v1::PlanSummary* summary) {
  if (spec.has_tune()) {
    const v1::TuningSpec& tune = spec.tune();
    std::vector<std::string> rates;
    for (const double rate : tune.learning_rates()) rates.push_back(ShortestDouble(rate));
    summary->add_notes(absl::StrCat("tuned first: each arm's learning rate, of ", absl::StrJoin(rates, ", "), " by ",
                                    tune.metric(), " at 1x on selection, seeds ", SeedsText(plan.tuning_seeds),
                                    ", which are not used again; a best one at the edge adds ", tune.max_extensions(),
                                    " more at most"));
  }
  if (spec.has_select()) {
    const v1::SelectionSpec& select = spec.select();
    summary->add_notes(
        absl::StrCat("selected by rule: of ", plan.candidates.size(),
                     IsGain(select.metric()) ? " candidates the highest mean " : " candidates the lowest mean ",
                     select.metric(), " over ", LengthsText(select.lengths()), " on ", select.split(), ", NTK ",
                     select.ntk() ? "on" : "off", ", seeds ", SeedsText(plan.seeds)));
  }
  if (!spec.has_confirm()) return;
  const v1::ConfirmationSpec& confirm = spec.confirm();
  std::vector<std::string> arms = {plan.arms[plan.baseline_arm].label};
  for (const int arm : plan.fixed_arms) arms.push_back(plan.arms[arm].label);
  if (spec.has_select()) arms.push_back("the selected arm");
  summary->add_notes(absl::StrCat(
      spec.has_select() ? "sealed until the lock: " : "confirmed, without a selection: ", absl::StrJoin(arms, "; "),
      " on seeds ", SeedsText(plan.confirming_seeds), " and ", confirm.split(),
      spec.has_select() ? "; the other candidates are never run there" : ""));
  if (confirm.reuse_seeds()) {
    summary->add_notes(
        "the confirming seeds are those that select: numbers will be conditional on the selected checkpoints");
  }
  if (confirm.looks_size() > 0) {
    summary->add_notes(absl::StrCat("claims are looked at with ", absl::StrJoin(confirm.looks(), ", "),
                                    " seeds, each time at alpha / ", confirm.looks_size()));
  }
  if (confirm.has_stein()) {
    summary->add_notes(absl::StrCat("after ", confirm.stein().first(), " seeds as many more run as a half-width of ",
                                    ShortestDouble(confirm.stein().half_width()), " takes, ", confirm.seeds_size(),
                                    " in all at most"));
  }
}

}  // namespace

v1::PlanSummary Summarize(const v1::SweepSpec& spec, const Plan& given) {
  // What comes after tuning costs the same at any learning rate.
  const Plan assumed = given.complete ? Plan() : AtAnyRate(spec, given);
  const Plan& plan = given.complete ? given : assumed;
  v1::PlanSummary summary;
  std::set<int64_t> seeds(plan.seeds.begin(), plan.seeds.end());
  seeds.insert(plan.tuning_seeds.begin(), plan.tuning_seeds.end());
  seeds.insert(plan.confirming_seeds.begin(), plan.confirming_seeds.end());
  summary.set_name(spec.name());
  summary.set_seeds(static_cast<int32_t>(seeds.size()));
  summary.set_points(static_cast<int64_t>(plan.points.size()));
  summary.set_stages(static_cast<int64_t>(plan.stages.size()));
  summary.set_evaluations(static_cast<int64_t>(plan.evaluations.size()));
  summary.set_plan_sha256(plan.sha256);

  std::unordered_map<std::string, ConfigCost> by_config;
  std::vector<const ConfigCost*> costs;  // by stage
  costs.reserve(plan.stages.size());
  for (const PlannedStage& stage : plan.stages) {
    const auto [it, fresh] = by_config.try_emplace(stage.config.SerializeAsString());
    if (fresh) it->second = CostOf(stage.config, VocabularyOf(spec.data(), stage.config));
    costs.push_back(&it->second);
  }

  // As if the first candidate were locked: which one changes no count but by what it shares.
  std::vector<bool> dropped(plan.arms.size(), false);
  for (size_t c = 1; c < plan.candidates.size(); ++c) dropped[plan.candidates[c]] = true;
  for (const int arm : plan.fixed_arms) dropped[arm] = false;
  const auto runs = [&](const Point& point) { return point.phase != v1::CONFIRMING || !dropped[point.arm]; };
  const JobSet used = JobsOfPoints(plan, runs);

  int64_t steps = 0, tokens = 0, disk = 0, largest = 0, evaluation_tokens = 0, alone = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    if (!used.stages[i]) continue;
    const PlannedStage& stage = plan.stages[i];
    const int64_t trained = stage.to_step - stage.from_step;
    steps += trained;
    tokens += trained * costs[i]->step_tokens;
    const bool optimizer = stage.has_children || spec.keep() == v1::KEEP_ALL;
    disk += costs[i]->weights_bytes * (optimizer ? 3 : 1);
    largest = std::max(largest, costs[i]->weights_bytes);
  }
  for (size_t i = 0; i < plan.evaluations.size(); ++i) {
    if (!used.evaluations[i]) continue;
    const PlannedEvaluation& evaluation = plan.evaluations[i];
    const ConfigCost& cost = *costs[evaluation.stage];
    if (evaluation.probe >= 0) {
      evaluation_tokens += static_cast<int64_t>(
          TaskTokens(spec.evaluate().probes(evaluation.probe), plan.stages[evaluation.stage], evaluation));
      continue;
    }
    const auto length = static_cast<double>(evaluation.length_tokens);
    const double spans = Override(evaluation.eval_config, "eval.target_spans", cost.target_spans);
    const double loss = Override(evaluation.eval_config, "eval.loss_tokens", cost.loss_tokens);
    const double windows = loss > 0 ? std::max(1.0, std::floor(loss / length)) : 0;
    evaluation_tokens += static_cast<int64_t>((spans + windows) * length);
  }

  std::vector<std::vector<int>> paths(plan.arms.size());
  std::vector<int64_t> evaluations(plan.arms.size(), 0);
  for (const Point& point : plan.points) {
    const int tunes = plan.arms[point.arm].tunes, arm = tunes >= 0 ? tunes : point.arm;
    for (int i = point.stage; i >= 0; i = plan.stages[i].parent) paths[arm].push_back(i);
    // An arm with NTK off and on would be two trainings without the sharing: `eval.ntk` is an axis like any other,
    // although tables give it a column.
    bool off = false, on = false;
    for (const int i : point.evaluations) {
      const PlannedEvaluation& evaluation = plan.evaluations[i];
      on = on || evaluation.ntk;
      off = off || (!evaluation.ntk && evaluation.length_tokens > costs[point.stage]->train_length);
    }
    if (runs(point)) alone += plan.stages[point.stage].to_step * (off && on ? 2 : 1);
    evaluations[arm] += static_cast<int64_t>(point.evaluations.size());
  }
  std::vector<int> owner(plan.stages.size(), -1);
  std::vector<bool> shared(plan.stages.size(), false);
  for (size_t a = 0; a < paths.size(); ++a) {
    std::sort(paths[a].begin(), paths[a].end());
    paths[a].erase(std::unique(paths[a].begin(), paths[a].end()), paths[a].end());
    for (const int i : paths[a]) {
      if (owner[i] >= 0) shared[i] = true;
      owner[i] = static_cast<int>(a);
    }
  }
  for (size_t a = 0; a < plan.arms.size(); ++a) {
    if (plan.arms[a].phase == v1::TUNING) continue;
    v1::PlanSummary::Arm* arm = summary.add_arms();
    arm->set_label(plan.arms[a].label);
    arm->set_arm_json(plan.arms[a].json);
    arm->set_stages(static_cast<int32_t>(paths[a].size()));
    arm->set_evaluations(static_cast<int32_t>(evaluations[a]));
    arm->set_shared_stages(
        static_cast<int32_t>(std::count_if(paths[a].begin(), paths[a].end(), [&](int i) { return shared[i]; })));
  }
  summary.set_steps(steps);
  summary.set_steps_without_sharing(alone);
  summary.set_train_tokens(tokens);
  summary.set_evaluation_tokens(evaluation_tokens);
  // While a training runs, one checkpoint with optimiser state is there beside what has ended.
  summary.set_peak_disk_bytes(spec.executor() == v1::EXECUTOR_NOOP || plan.stages.empty() ? 0 : disk + 3 * largest);
  AddTaskNotes(spec, plan, &summary);
  if (!HasPhases(spec)) return summary;

  JobSet before;
  before.stages.assign(plan.stages.size(), false);
  before.evaluations.assign(plan.evaluations.size(), false);
  for (const v1::Phase phase : {v1::TUNING, v1::PLAIN, v1::SELECTING, v1::CONFIRMING}) {
    const JobSet jobs = JobsOfPoints(plan, [&](const Point& point) { return point.phase == phase; });
    v1::PlanSummary::PhaseWork work;
    work.set_phase(phase);
    std::set<int64_t> phase_seeds;
    std::set<int> arms;
    for (const Point& point : plan.points) {
      if (point.phase != phase) continue;
      work.set_points(work.points() + 1);
      phase_seeds.insert(point.seed);
      arms.insert(point.arm);
    }
    if (work.points() == 0) continue;
    for (const int64_t seed : phase_seeds) work.add_seeds(seed);
    work.set_arms(static_cast<int32_t>(arms.size()));
    work.set_sealed(phase == v1::CONFIRMING && NeedsLock(spec));
    for (size_t i = 0; i < jobs.stages.size(); ++i) {
      if (!jobs.stages[i] || before.stages[i]) continue;
      before.stages[i] = true;
      work.set_stages(work.stages() + 1);
      if (used.stages[i]) work.set_steps(work.steps() + plan.stages[i].to_step - plan.stages[i].from_step);
      if (!used.stages[i]) work.set_unused_stages(work.unused_stages() + 1);
    }
    for (size_t i = 0; i < jobs.evaluations.size(); ++i) {
      if (!jobs.evaluations[i] || before.evaluations[i]) continue;
      before.evaluations[i] = true;
      work.set_evaluations(work.evaluations() + 1);
      if (!used.evaluations[i]) work.set_unused_evaluations(work.unused_evaluations() + 1);
    }
    *summary.add_phases() = std::move(work);
  }
  AddNotes(spec, plan, &summary);
  return summary;
}

}  // namespace ablate
