// Counts and costs of a plan. Every seed has the same stages and evaluations, so one seed is counted and multiplied.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "experiments/axes.h"
#include "experiments/plan.h"
#include "proto/coordinator.pb.h"

namespace ablate {
namespace {

struct StageCost {
  int64_t steps = 0, tokens = 0;  // of this stage
  int64_t total_steps = 0;        // of one training of its own
  int64_t train_length = 0;
  int64_t weights_bytes = 0;
  double target_spans = 0, loss_tokens = 0;
  int arms = 0;  // that need it
};

double Override(const v1::Configuration& config, std::string_view axis, double fallback) {
  for (const v1::Setting& setting : config.settings()) {
    if (setting.axis() == axis) return setting.value().number();
  }
  return fallback;
}

}  // namespace

v1::PlanSummary Summarize(const v1::SweepSpec& spec, const Plan& plan) {
  v1::PlanSummary summary;
  const auto seeds = static_cast<int64_t>(plan.seeds.size());
  const int64_t vocabulary = spec.data().format() == v1::DataRef::TOKEN_SHARDS ? 50257 : 256;
  summary.set_name(spec.name());
  summary.set_seeds(static_cast<int32_t>(seeds));
  summary.set_points(static_cast<int64_t>(plan.points.size()));
  summary.set_stages(static_cast<int64_t>(plan.stages.size()));
  summary.set_evaluations(static_cast<int64_t>(plan.evaluations.size()));
  summary.set_plan_sha256(plan.sha256);
  if (seeds == 0) return summary;

  const size_t stages = plan.stages.size() / seeds;
  std::vector<StageCost> costs(stages);
  int64_t steps = 0, tokens = 0, disk = 0, largest = 0;
  for (size_t i = 0; i < stages; ++i) {
    const PlannedStage& stage = plan.stages[i];
    const ConfigView view(stage.config);
    StageCost& cost = costs[i];
    cost.steps = stage.to_step - stage.from_step;
    cost.tokens = cost.steps * view.Integer("train.batch") * view.Integer("train.length");
    cost.total_steps = view.Integer("train.steps");
    cost.train_length = view.Integer("train.length");
    cost.weights_bytes = 4 * ParameterCount(view, vocabulary);
    cost.target_spans = view.Number("eval.target_spans");
    cost.loss_tokens = view.Number("eval.loss_tokens");
    steps += cost.steps;
    tokens += cost.tokens;
    const bool optimizer = stage.has_children || spec.keep() == v1::KEEP_ALL;
    disk += cost.weights_bytes * (optimizer ? 3 : 1);
    largest = std::max(largest, cost.weights_bytes);
  }
  int64_t evaluation_tokens = 0;
  for (const PlannedEvaluation& evaluation : plan.evaluations) {
    if (static_cast<size_t>(evaluation.stage) >= stages) continue;
    const StageCost& cost = costs[evaluation.stage];
    const auto length = static_cast<double>(evaluation.length_tokens);
    const double spans = Override(evaluation.eval_config, "eval.target_spans", cost.target_spans);
    const double loss = Override(evaluation.eval_config, "eval.loss_tokens", cost.loss_tokens);
    const double windows = loss > 0 ? std::max(1.0, std::floor(loss / length)) : 0;
    evaluation_tokens += static_cast<int64_t>((spans + windows) * length);
  }
  int64_t alone = 0;
  std::vector<std::vector<int>> paths(plan.arms.size());
  std::vector<int64_t> evaluations(plan.arms.size(), 0);
  for (const Point& point : plan.points) {
    if (point.seed != plan.seeds.front()) continue;
    for (int i = point.stage; i >= 0; i = plan.stages[i].parent) {
      paths[point.arm].push_back(i);
      ++costs[i].arms;
    }
    // An arm with NTK off and on would be two trainings without the sharing: `eval.ntk` is an axis like any other,
    // although tables give it a column.
    bool off = false, on = false;
    for (int i : point.evaluations) {
      const PlannedEvaluation& evaluation = plan.evaluations[i];
      on = on || evaluation.ntk;
      off = off || (!evaluation.ntk && evaluation.length_tokens > costs[point.stage].train_length);
    }
    alone += costs[point.stage].total_steps * (off && on ? 2 : 1);
    evaluations[point.arm] = static_cast<int64_t>(point.evaluations.size());
  }
  for (size_t a = 0; a < plan.arms.size(); ++a) {
    v1::PlanSummary::Arm* arm = summary.add_arms();
    arm->set_label(plan.arms[a].label);
    arm->set_arm_json(plan.arms[a].json);
    arm->set_stages(static_cast<int32_t>(static_cast<int64_t>(paths[a].size()) * seeds));
    arm->set_evaluations(static_cast<int32_t>(evaluations[a] * seeds));
    const auto shared = std::count_if(paths[a].begin(), paths[a].end(), [&](int i) { return costs[i].arms > 1; });
    arm->set_shared_stages(static_cast<int32_t>(shared * seeds));
  }
  summary.set_steps(steps * seeds);
  summary.set_steps_without_sharing(alone * seeds);
  summary.set_train_tokens(tokens * seeds);
  summary.set_evaluation_tokens(evaluation_tokens * seeds);
  // While a training runs, one checkpoint with optimiser state is there beside what has ended.
  summary.set_peak_disk_bytes(spec.executor() == v1::EXECUTOR_NOOP ? 0 : disk * seeds + 3 * largest);
  return summary;
}

}  // namespace ablate
