#include "experiments/plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "experiments/attention_config.h"
#include "experiments/axes.h"
#include "experiments/claims_check.h"
#include "experiments/factorial_design.h"
#include "experiments/plan_check.h"
#include "experiments/planner.h"
#include "proto/coordinator.pb.h"

namespace ablate {
namespace {

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

// "300", "end", "end+30": when a switch comes, as names of arms have it.
std::string SwitchText(const v1::SwitchSpec& change) {
  if (!change.at_end()) return std::to_string(change.at_step());
  return change.extra_steps() == 0 ? "end" : absl::StrCat("end+", change.extra_steps());
}

}  // namespace

void AppendSettings(const v1::Configuration& from, v1::Configuration* to) {
  to->mutable_settings()->MergeFrom(from.settings());
}

void AppendSetting(const std::string& axis, const v1::Value& value, v1::Configuration* to) {
  v1::Setting* setting = to->add_settings();
  setting->set_axis(axis);
  *setting->mutable_value() = value;
}

void DropSetting(std::string_view axis, v1::Configuration* config) {
  auto* settings = config->mutable_settings();
  settings->erase(std::remove_if(settings->begin(), settings->end(),
                                 [&](const v1::Setting& setting) { return setting.axis() == axis; }),
                  settings->end());
}

absl::StatusOr<int> Planner::InternConfig(const v1::Configuration& canonical, const v1::Configuration& eval,
                                          const std::string& label) {
  std::string json = ToJson(canonical);
  const auto [it, fresh] = config_by_json_.emplace(json, static_cast<int>(configs_.size()));
  const int index = it->second;
  if (checked_.emplace(index, ToJson(eval)).second) {
    const absl::Status status = CheckConfiguration(canonical, eval);
    if (!status.ok()) return WithContext(status, "arm " + label);
  }
  if (!fresh) return index;
  if (spec_.executor() != v1::EXECUTOR_NOOP) {
    ABLATE_RETURN_IF_ERROR(WithContext(CheckDataAxes(spec_.data(), canonical), "arm " + label));
  }
  const ConfigView view(canonical);
  const std::string& device = spec_.requirements().device();
  if (view.Text("train.precision") == "bf16" && device != "cuda") {
    return Refuse(
        "arm " + label + ": train.precision bf16 runs on CUDA devices only, and " +
        (device.empty() ? "without requires.device a CPU worker may take the jobs" : "requires.device is " + device) +
        ". Write requires: {device: cuda}, or leave train.precision at fp32");
  }
  configs_.push_back({canonical, std::move(json), view.Integer("train.steps"), view.Integer("train.length"),
                      view.Text("model.position")});
  return index;
}

int Planner::InternNode(int parent, int64_t from, int config, bool trains) {
  // A state that is only made over is a leaf of its own: what trains on starts from its parent, so that of any two
  // stages the one that needs the other begins later.
  const auto [it, fresh] = node_by_history_.emplace(std::tuple(parent, from, trains ? config : -1 - config),
                                                    static_cast<int>(nodes_.size()));
  if (fresh) nodes_.push_back({parent, from, config});
  return it->second;
}

namespace {

// Where a switch turns the learned s on in a trained model and no initial value is given: 1 / mean of log n over
// n = 1..T_train, so that the first step changes little (SSMax paper, docs/attention.md). Rounded to four decimals: it
// is part of keys, and the last bits of a logarithm are not the same everywhere.
void AddSwitchedInit(const v1::Configuration& before, v1::Configuration* given) {
  const ConfigView now(*given);
  const absl::StatusOr<AttentionSpec> old_spec = AttentionSpecFrom(ConfigView(before)), spec = AttentionSpecFrom(now);
  if (!old_spec.ok() || !spec.ok() || old_spec->has_learned_scale() || !spec->has_learned_scale()) return;
  for (const v1::Setting& setting : given->settings()) {
    if (setting.axis() == "attention.ssmax_init") return;
  }
  const int64_t length = now.Integer("train.length");
  double sum = 0;
  for (int64_t n = 1; n <= length; ++n) sum += std::log(static_cast<double>(n));
  const double init = static_cast<double>(length) / sum;
  AppendSetting("attention.ssmax_init", NumberValue(std::round(init * 1e4) / 1e4), given);
}

}  // namespace

absl::StatusOr<std::pair<int, int64_t>> Planner::AddHistory(const v1::Configuration& full, const v1::ArmSpec& arm,
                                                            double rate, const v1::Configuration& eval_with_ntk,
                                                            const std::string& label) {
  v1::Configuration given = full;
  if (rate > 0) AppendSetting("train.learning_rate", NumberValue(rate), &given);
  const v1::Configuration none;
  ABLATE_ASSIGN_OR_RETURN(int config, InternConfig(OfScope(Canonical(given), AxisScope::kTraining),
                                                   arm.switches().empty() ? eval_with_ntk : none, label));
  const int64_t steps = configs_[config].steps;
  int64_t end = steps;
  int node = InternNode(-1, 0, config, /*trains=*/true);
  for (int i = 0; i < arm.switches_size(); ++i) {
    const v1::SwitchSpec& change = arm.switches(i);
    if (change.at_step() >= steps) {
      return Refuse(
          absl::StrCat("arm ", label, ": at_step ", change.at_step(), " is not before the last of ", steps, " steps"));
    }
    // On what was given, not on the canonical form: a value that equals its default is still set after the variant has
    // changed.
    const v1::Configuration before = given;
    AppendSettings(change.settings(), &given);
    AddSwitchedInit(before, &given);
    const bool last = i + 1 == arm.switches_size();
    ABLATE_ASSIGN_OR_RETURN(
        config, InternConfig(OfScope(Canonical(given), AxisScope::kTraining), last ? eval_with_ntk : none, label));
    if (change.at_end()) end = steps + change.extra_steps();
    if (config != nodes_[node].config) {
      node = InternNode(node, change.at_end() ? steps : change.at_step(), config, !change.at_end() || end > steps);
    }
  }
  return std::pair(node, end);
}

absl::Status Planner::AddArm(int spec_arm, const v1::ArmSpec& arm, const v1::Configuration& axes) {
  v1::Configuration full = spec_.settings();
  AppendSettings(arm.settings(), &full);
  AppendSettings(axes, &full);
  if (!spec_.exclude().empty()) {
    const ConfigView view(full);
    bool excluded = false;
    for (int i = 0; i < spec_.exclude_size(); ++i) {
      if (!HasValues(full, view, spec_.exclude(i))) continue;
      ++rule_hits_[i];
      excluded = true;
    }
    if (excluded) return absl::OkStatus();
  }

  Arm named;
  AppendSettings(arm.settings(), &named.values);
  AppendSettings(axes, &named.values);
  for (const v1::SwitchSpec& change : arm.switches()) {
    if (change.settings().settings().empty()) {
      AppendSetting("train.steps@end", NumberValue(static_cast<double>(change.extra_steps())), &named.values);
    }
    for (const v1::Setting& setting : change.settings().settings()) {
      AppendSetting(absl::StrCat(setting.axis(), "@", SwitchText(change)), setting.value(), &named.values);
    }
  }
  DropSetting("eval.ntk", &named.values);
  named.json = ToJson(named.values);
  named.label = Label(named.values);
  named.factors.insert(arm.factors().begin(), arm.factors().end());

  v1::Configuration eval = OfScope(Canonical(full), AxisScope::kEvaluation);
  bool ntk = false;
  for (const v1::Setting& setting : eval.settings()) {
    if (setting.axis() == "eval.ntk") ntk = setting.value().text() == "dynamic";
  }
  ABLATE_ASSIGN_OR_RETURN(const auto history, AddHistory(full, arm, /*rate=*/0, eval, named.label));
  const auto [node, steps] = history;
  named.train_length = configs_[nodes_[node].config].length;
  DropSetting("eval.ntk", &eval);

  const std::string identity = absl::StrCat(node, " ", steps, " ", ToJson(eval));
  const auto [it, fresh] = arm_by_identity_.emplace(identity, static_cast<int>(drafts_.size()));
  if (fresh) {
    ArmDraft draft;
    draft.node = node;
    draft.end = steps;
    draft.spec_arm = spec_arm;
    draft.eval = std::move(eval);
    if (spec_.has_tune()) draft.full = full;
    drafts_.push_back(std::move(draft));
    plan_.arms.push_back(std::move(named));
  }
  bool& seen = ntk ? drafts_[it->second].ntk_dynamic : drafts_[it->second].ntk_off;
  const Arm& other = plan_.arms[it->second];
  if (seen || (!fresh && other.json != named.json)) {
    return Refuse(
        absl::StrCat("arms ", other.label, " and ", named.label, " are the same configuration; leave one of them out"));
  }
  seen = true;
  return absl::OkStatus();
}

std::string Planner::SegmentsJson(int node, int64_t end) const {
  std::vector<std::pair<int, int64_t>> path;
  for (int i = node; i >= 0; i = nodes_[i].parent) {
    path.emplace_back(i, end);
    end = nodes_[i].from;
  }
  std::string json = "[";
  for (auto it = path.rbegin(); it != path.rend(); ++it) {
    const Node& segment = nodes_[it->first];
    absl::StrAppend(&json, json.size() > 1 ? "," : "", "[", configs_[segment.config].json, ",", segment.from, ",",
                    it->second, "]");
  }
  return json + "]";
}

std::string Planner::KeyHead() const {
  const v1::DataRef::Format format = spec_.data().format();
  return absl::StrCat("{\"data\":{\"format\":\"",
                      format == v1::DataRef::TOKEN_SHARDS ? "token_shards"
                      : format == v1::DataRef::MQAR       ? "mqar"
                                                          : "text",
                      "\",\"sha256\":\"", spec_.data().sha256(), "\"},\"device\":\"",
                      spec_.requirements().device().empty() ? "any" : spec_.requirements().device(),
                      "\",\"executor\":\"", spec_.executor() == v1::EXECUTOR_NOOP ? "noop" : "trainer",
                      "\",\"numerics\":", kNumericsVersion);
}

void Planner::CountGroup(Group* group) const {
  group->cuts.assign(nodes_.size(), {});
  std::set<std::tuple<int, int64_t, int>> measured;  // state (node and step) and measurement
  for (const Entry& entry : group->entries) {
    const ArmDraft& draft = drafts_[entry.arm];
    int64_t end = draft.end;
    for (int n = draft.node; n >= 0; n = nodes_[n].parent) {
      group->cuts[n].insert(end);
      end = nodes_[n].from;
    }
    for (const int m : *entry.measurements) measured.emplace(draft.node, draft.end, m);
  }
  group->first_stage.clear();
  for (const std::set<int64_t>& cuts : group->cuts) {
    group->first_stage.push_back(static_cast<int>(group->stages));
    group->stages += static_cast<int64_t>(cuts.size());
  }
  group->evaluations = static_cast<int64_t>(measured.size());
}

void Planner::EmitStages(const Group& group, int64_t seed) {
  const std::string head = absl::StrCat(KeyHead(), ",\"seed\":", seed, ",\"segments\":");
  const int base = static_cast<int>(plan_.stages.size());
  for (size_t n = 0; n < group.cuts.size(); ++n) {
    const Node& node = nodes_[n];
    if (group.cuts[n].empty()) continue;
    int parent = -1;
    if (node.parent >= 0) {
      const std::set<int64_t>& before = group.cuts[node.parent];
      parent = base + group.first_stage[node.parent] +
               static_cast<int>(std::distance(before.begin(), before.find(node.from)));
    }
    int64_t from = node.from;
    for (const int64_t cut : group.cuts[n]) {
      PlannedStage stage;
      stage.key = Sha256Hex(absl::StrCat(head, SegmentsJson(static_cast<int>(n), cut), ",\"what\":\"state\"}"));
      stage.parent = parent;
      stage.config = configs_[node.config].config;
      stage.seed = seed;
      stage.from_step = from;
      stage.to_step = cut;
      if (parent >= 0) plan_.stages[parent].has_children = true;
      parent = static_cast<int>(plan_.stages.size());
      plan_.stages.push_back(std::move(stage));
      from = cut;
    }
  }
}

void Planner::EmitGroup(const Group& group) {
  for (const int64_t seed : group.seeds) {
    const int base = static_cast<int>(plan_.stages.size());
    EmitStages(group, seed);
    for (const Entry& entry : group.entries) {
      const ArmDraft& draft = drafts_[entry.arm];
      const std::set<int64_t>& cuts = group.cuts[draft.node];
      Point point;
      point.arm = entry.arm;
      point.seed = seed;
      point.phase = entry.phase;
      point.stage =
          base + group.first_stage[draft.node] + static_cast<int>(std::distance(cuts.begin(), cuts.find(draft.end)));
      for (const int m : *entry.measurements) {
        const auto [it, fresh] = evaluation_of_.emplace(static_cast<int64_t>(point.stage) << 32 | m,
                                                        static_cast<int>(plan_.evaluations.size()));
        point.evaluations.push_back(it->second);
        if (!fresh) continue;
        const Measurement& measurement = measurements_[m];
        PlannedEvaluation evaluation;
        evaluation.key = measurement.key.KeyOf(plan_.stages[point.stage].key);
        evaluation.stage = point.stage;
        evaluation.eval_config = measurement.eval_config;
        evaluation.length_tokens = measurement.length;
        evaluation.ntk = measurement.ntk;
        evaluation.split = measurement.split;
        evaluation.probe = measurement.probe;
        if (measurement.probe >= 0) evaluation.task = spec_.evaluate().probes(measurement.probe).task();
        plan_.evaluations.push_back(std::move(evaluation));
      }
      plan_.points.push_back(std::move(point));
    }
  }
}

void Planner::HashPlan() {
  // Sorted, so that the order of axes, arms and keys in the file is no change of the plan.
  std::vector<std::string> lines;
  for (const Point& point : plan_.points) {
    std::vector<std::string> keys;
    for (const int evaluation : point.evaluations) keys.push_back(plan_.evaluations[evaluation].key);
    std::sort(keys.begin(), keys.end());
    std::string line = absl::StrCat(plan_.arms[point.arm].json, " ", point.seed, " ", plan_.stages[point.stage].key);
    for (const std::string& key : keys) absl::StrAppend(&line, " ", key);
    lines.push_back(Sha256Hex(line));
  }
  std::sort(lines.begin(), lines.end());
  Sha256 hash;
  for (const std::string& line : lines) hash.Update(line.data(), line.size());
  const std::string& baseline = plan_.arms[plan_.baseline_arm].json;
  hash.Update(baseline.data(), baseline.size());
  plan_.sha256 = hash.HexDigest();
}

absl::Status Planner::AddArms() {
  for (int a = 0; a < spec_.arms_size(); ++a) {
    ABLATE_RETURN_IF_ERROR(places_.At(places_.Arm(a), CheckArm(spec_, spec_.arms(a))));
  }
  rule_hits_.assign(spec_.exclude_size(), 0);
  const v1::ArmSpec only;
  std::vector<int> index(spec_.axes_size(), 0);
  for (int a = 0; a < std::max(1, spec_.arms_size()); ++a) {
    const v1::ArmSpec& arm = spec_.arms().empty() ? only : spec_.arms(a);
    // An odometer over the axes, the last one fastest.
    std::fill(index.begin(), index.end(), 0);
    for (bool more = true; more;) {
      v1::Configuration axes;
      for (int i = 0; i < spec_.axes_size(); ++i) {
        AppendSetting(spec_.axes(i).axis(), spec_.axes(i).values(index[i]), &axes);
      }
      ABLATE_RETURN_IF_ERROR(places_.At(places_.Arm(a), AddArm(a, arm, axes)));
      more = false;
      for (int i = spec_.axes_size() - 1; i >= 0 && !more; --i) {
        more = ++index[i] < spec_.axes(i).values_size();
        if (!more) index[i] = 0;
      }
    }
  }
  for (int i = 0; i < spec_.exclude_size(); ++i) {
    if (rule_hits_[i] > 0) continue;
    return places_.At(places_.Exclude(i), Refuse("the exclude rule " + Label(spec_.exclude(i)) + " matches no arm"));
  }
  if (drafts_.empty()) {
    return places_.At(places_.Exclude(0), Refuse("no arm is left: the exclude rules match all of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> Planner::Make() {
  ABLATE_RETURN_IF_ERROR(places_.At(places_.root, CheckSpec(spec_)));
  ABLATE_RETURN_IF_ERROR(CheckTasks(spec_, places_));
  ABLATE_RETURN_IF_ERROR(CheckClaims(spec_, places_));
  ABLATE_RETURN_IF_ERROR(AddArms());
  if (!spec_.baseline().settings().empty()) {
    const absl::StatusOr<int> found = FindBaseline(spec_.settings(), plan_.arms, spec_.baseline());
    if (!found.ok()) return places_.At(places_.baseline, found.status());
    plan_.baseline_arm = *found;
  }
  if (spec_.has_factorial()) {
    const absl::Status design = FactorialDesignOf(spec_, plan_.arms).status();
    if (!design.ok()) return places_.At(places_.Named("factorial"), design);
  }
  plan_.seeds.assign(spec_.seeds().begin(), spec_.seeds().end());
  plan_.tuning_seeds.assign(spec_.tune().seeds().begin(), spec_.tune().seeds().end());
  plan_.confirming_seeds.assign(spec_.confirm().seeds().begin(), spec_.confirm().seeds().end());
  const ConfigView first(configs_[nodes_[drafts_.front().node].config].config);
  plan_.train_tokens_per_step = first.Integer("train.batch") * first.Integer("train.length");

  ABLATE_RETURN_IF_ERROR(ResolveClaims());
  ABLATE_RETURN_IF_ERROR(MeasurePhases());
  const bool phases = HasPhases(spec_);
  if (phases) HashPhases();
  ABLATE_RETURN_IF_ERROR(AddTuningArms());
  ABLATE_RETURN_IF_ERROR(UseTunedRates());
  std::vector<Group> groups = Groups();
  int64_t jobs = 0, points = 0, stages = 0;
  for (Group& group : groups) {
    CountGroup(&group);
    const auto seeds = static_cast<int64_t>(group.seeds.size());
    jobs += (group.stages + group.evaluations) * seeds;
    points += static_cast<int64_t>(group.entries.size()) * seeds;
    stages += group.stages * seeds;
  }
  if (jobs > kMaxJobs) {
    return places_.At(places_.root, Refuse(absl::StrCat("the sweep has ", jobs, " stages and evaluations; at most ",
                                                        kMaxJobs, " are planned: split it")));
  }
  plan_.stages.reserve(stages);
  plan_.points.reserve(points);
  for (const Group& group : groups) EmitGroup(group);
  if (!phases) HashPlan();
  return std::move(plan_);
}

std::string CombinedDataSha256(const v1::DataRef& data) {
  std::string lines;
  for (const v1::DataFile& file : data.files()) {
    if (file.sha256().empty()) return "";
    absl::StrAppend(&lines, file.sha256(), " ", file.bytes(), "\n");
  }
  if (data.files_size() == 0) return "";
  return data.files_size() == 1 ? data.files(0).sha256() : Sha256Hex(lines);
}

absl::StatusOr<Plan> MakePlan(const v1::SweepSpec& spec, const SweepPlaces& places, const TuningResults& tuned) {
  return Planner(spec, places, tuned).Make();
}

bool HasPhases(const v1::SweepSpec& spec) {
  return spec.has_tune() || spec.has_select() || spec.has_confirm() || spec.claims_size() > 0;
}

int64_t LengthTokens(const v1::LengthSpec& length, int64_t train_length) {
  if (!length.has_multiple()) return length.tokens();
  return std::llround(std::clamp(length.multiple() * static_cast<double>(train_length), 0.0, 2 * kMaxLength));
}

TuningResults TuningResultsOf(std::span<const v1::TunedArm> tuning) {
  TuningResults results;
  for (const v1::TunedArm& arm : tuning) {
    if (arm.learning_rate() > 0) results.rates[arm.arm_json()] = arm.learning_rate();
    for (const v1::TunedArm::Try& one : arm.tries()) results.tries[arm.arm_json()].push_back(one.learning_rate());
  }
  return results;
}

v1::StageTask MakeStageTask(const v1::SweepSpec& spec, const PlannedStage& stage) {
  v1::StageTask task;
  task.set_stage_key(stage.key);
  *task.mutable_config() = stage.config;
  task.set_seed(stage.seed);
  task.set_from_step(stage.from_step);
  task.set_to_step(stage.to_step);
  *task.mutable_data() = spec.data();
  task.set_keep_optimizer(stage.has_children || spec.keep() == v1::KEEP_ALL);
  task.set_executor(spec.executor());
  return task;
}

v1::EvaluationTask MakeEvaluationTask(const v1::SweepSpec& spec, const Plan& plan,
                                      const PlannedEvaluation& evaluation) {
  const PlannedStage& stage = plan.stages[evaluation.stage];
  v1::EvaluationTask task;
  task.set_evaluation_key(evaluation.key);
  task.set_stage_key(stage.key);
  *task.mutable_config() = stage.config;
  *task.mutable_eval_config() = evaluation.eval_config;
  task.set_seed(stage.seed);
  task.set_length_tokens(evaluation.length_tokens);
  task.set_split(evaluation.split);
  *task.mutable_data() = spec.data();
  task.set_executor(spec.executor());
  if (evaluation.probe >= 0) {
    *task.mutable_files() = spec.evaluate().probes(evaluation.probe).files();
    *task.mutable_tokenizer() = spec.evaluate().probes(evaluation.probe).tokenizer();
  }
  return task;
}

}  // namespace ablate
