#include "experiments/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "experiments/axes.h"
#include "experiments/plan_check.h"

namespace ablate {
namespace {

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

void Append(const v1::Configuration& from, v1::Configuration* to) {
  to->mutable_settings()->MergeFrom(from.settings());
}

void Append(const std::string& axis, const v1::Value& value, v1::Configuration* to) {
  v1::Setting* setting = to->add_settings();
  setting->set_axis(axis);
  *setting->mutable_value() = value;
}

void Drop(std::string_view axis, v1::Configuration* config) {
  auto* settings = config->mutable_settings();
  settings->erase(std::remove_if(settings->begin(), settings->end(),
                                 [&](const v1::Setting& setting) { return setting.axis() == axis; }),
                  settings->end());
}

// One training configuration, with what planning asks of it.
struct TrainConfig {
  v1::Configuration config;
  std::string json;
  int64_t steps = 0, length = 0;
  std::string position;
};

// A training history up to and with one configuration: where it starts from, and every step at which some arm ends or
// leaves it. Arms with the same history share the node, so its cuts are where their paths may part.
struct Node {
  int parent = -1;
  int64_t from = 0;  // the parent's step
  int config = 0;
  std::set<int64_t> cuts;
  int first_stage = 0;  // within one seed's stages
};

// One evaluation of an arm, whatever the seed.
struct Measurement {
  v1::Configuration eval_config;
  std::string key_text;  // all of the key's JSON but the state
  int64_t length = 0;
  bool ntk = false;
  std::string split;
};

struct ArmDraft {
  int node = 0;
  int64_t end = 0;
  int spec_arm = 0;        // index in SweepSpec.arms
  v1::Configuration eval;  // canonical, without eval.ntk
  bool ntk_off = false, ntk_dynamic = false;
  std::vector<int> measurements;
};

class Planner {
 public:
  Planner(const v1::SweepSpec& spec, const SweepPlaces& places) : spec_(spec), places_(places) {}
  absl::StatusOr<Plan> Make();

 private:
  absl::Status AddArm(int spec_arm, const v1::ArmSpec& arm, const v1::Configuration& axes);
  absl::StatusOr<int> InternConfig(const v1::Configuration& canonical, const v1::Configuration& eval,
                                   const std::string& label);
  int InternNode(int parent, int64_t from, int config);
  absl::Status AddMeasurements(int arm);
  int InternMeasurement(Measurement measurement);
  void EmitStages(int64_t seed, int seed_index);
  std::string SegmentsJson(int node, int64_t end) const;
  void HashPlan();

  const v1::SweepSpec& spec_;
  const SweepPlaces& places_;
  Plan plan_;
  std::vector<TrainConfig> configs_;
  std::unordered_map<std::string, int> config_by_json_;
  std::set<std::pair<int, std::string>> checked_;
  std::vector<Node> nodes_;
  std::map<std::tuple<int, int64_t, int>, int> node_by_history_;
  std::vector<ArmDraft> drafts_;
  std::unordered_map<std::string, int> arm_by_identity_;
  std::vector<Measurement> measurements_;
  std::unordered_map<std::string, int> measurement_by_key_;
  std::vector<int64_t> rule_hits_;
  int stages_per_seed_ = 0;
};

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

int Planner::InternNode(int parent, int64_t from, int config) {
  const auto [it, fresh] = node_by_history_.emplace(std::tuple(parent, from, config), static_cast<int>(nodes_.size()));
  if (fresh) nodes_.push_back({parent, from, config, {}, 0});
  return it->second;
}

absl::Status Planner::AddArm(int spec_arm, const v1::ArmSpec& arm, const v1::Configuration& axes) {
  v1::Configuration full = spec_.settings();
  Append(arm.settings(), &full);
  Append(axes, &full);
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
  Append(arm.settings(), &named.values);
  Append(axes, &named.values);
  for (const v1::SwitchSpec& change : arm.switches()) {
    for (const v1::Setting& setting : change.settings().settings()) {
      Append(absl::StrCat(setting.axis(), "@", change.at_step()), setting.value(), &named.values);
    }
  }
  Drop("eval.ntk", &named.values);
  named.json = ToJson(named.values);
  named.label = Label(named.values);

  v1::Configuration current = Canonical(full);
  v1::Configuration eval = OfScope(current, AxisScope::kEvaluation);
  bool ntk = false;
  for (const v1::Setting& setting : eval.settings()) {
    if (setting.axis() == "eval.ntk") ntk = setting.value().text() == "dynamic";
  }
  const v1::Configuration eval_with_ntk = eval;
  Drop("eval.ntk", &eval);

  const v1::Configuration none;
  const bool switches = !arm.switches().empty();
  current = OfScope(current, AxisScope::kTraining);
  ABLATE_ASSIGN_OR_RETURN(int config, InternConfig(current, switches ? none : eval_with_ntk, named.label));
  const int64_t steps = configs_[config].steps;
  int node = InternNode(-1, 0, config);
  v1::Configuration given = full;
  for (int i = 0; i < arm.switches_size(); ++i) {
    const v1::SwitchSpec& change = arm.switches(i);
    if (change.at_step() >= steps) {
      return Refuse(absl::StrCat("arm ", named.label, ": at_step ", change.at_step(), " is not before the last of ",
                                 steps, " steps"));
    }
    // On what was given, not on the canonical form: a value that equals its default is still set after the variant has
    // changed.
    Append(change.settings(), &given);
    current = OfScope(Canonical(given), AxisScope::kTraining);
    const bool last = i + 1 == arm.switches_size();
    ABLATE_ASSIGN_OR_RETURN(config, InternConfig(current, last ? eval_with_ntk : none, named.label));
    if (config == nodes_[node].config) continue;
    nodes_[node].cuts.insert(change.at_step());
    node = InternNode(node, change.at_step(), config);
  }
  nodes_[node].cuts.insert(steps);

  const std::string identity = absl::StrCat(node, " ", steps, " ", ToJson(eval));
  const auto [it, fresh] = arm_by_identity_.emplace(identity, static_cast<int>(drafts_.size()));
  if (fresh) {
    ArmDraft draft;
    draft.node = node;
    draft.end = steps;
    draft.spec_arm = spec_arm;
    draft.eval = std::move(eval);
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

int Planner::InternMeasurement(Measurement measurement) {
  measurement.key_text = absl::StrCat("{\"eval\":", ToJson(measurement.eval_config), ",\"length\":", measurement.length,
                                      ",\"split\":\"", measurement.split, "\",\"state\":\"");
  const auto [it, fresh] = measurement_by_key_.emplace(measurement.key_text, static_cast<int>(measurements_.size()));
  if (fresh) measurements_.push_back(std::move(measurement));
  return it->second;
}

absl::Status Planner::AddMeasurements(int arm) {
  ArmDraft& draft = drafts_[arm];
  const TrainConfig& trained = configs_[nodes_[draft.node].config];
  const bool rope = trained.position == "rope";
  const ConfigView training(trained.config);

  v1::Configuration acting = draft.eval;
  if (!rope) Drop("eval.rope_theta_scale", &acting);
  const bool trained_constant = training.Text("attention.scale") == "constant";
  const bool constant = ConfigView(trained.config, acting).Text("attention.scale") == "constant";
  for (const v1::Setting& setting : draft.eval.settings()) {
    const std::string& axis = setting.axis();
    if (axis == "eval.attention.p" || axis == "eval.attention.scale") {
      if (SameValue(setting.value(), training.Get(axis.substr(5)))) Drop(axis, &acting);
    } else if (axis == "eval.attention.scale_constant") {
      const bool repeats = trained_constant && SameValue(setting.value(), training.Get("attention.scale_constant"));
      if (!constant || repeats) Drop(axis, &acting);
    }
  }

  for (int i = 0; i < spec_.evaluate().lengths_size(); ++i) {
    const v1::LengthSpec& length = spec_.evaluate().lengths(i);
    const double exact = length.has_multiple() ? length.multiple() * static_cast<double>(trained.length)
                                               : static_cast<double>(length.tokens());
    const int64_t tokens = std::llround(exact);
    absl::Status fits;
    if (tokens < 1 || exact > kMaxLength) {
      fits = Refuse(absl::StrCat("evaluate.lengths: ", ShortestDouble(exact), " tokens is not from 1 to ",
                                 ShortestDouble(kMaxLength)));
    } else {
      fits = WithContext(CheckEvaluationLength(training, tokens), "arm " + plan_.arms[arm].label);
    }
    if (!fits.ok()) return places_.At(places_.Length(i, draft.spec_arm), fits);
    for (const std::string& split : spec_.evaluate().splits()) {
      for (const bool ntk : {false, true}) {
        if (ntk ? !draft.ntk_dynamic : !draft.ntk_off) continue;
        Measurement measurement;
        measurement.length = tokens;
        measurement.split = split;
        measurement.ntk = ntk && rope && tokens > trained.length;
        measurement.eval_config = acting;
        for (const v1::Setting& setting : acting.settings()) {
          if (setting.axis() == "eval.attention.window" && setting.value().number() >= static_cast<double>(tokens)) {
            Drop(setting.axis(), &measurement.eval_config);
            break;
          }
        }
        const bool windowed = ConfigView({}, measurement.eval_config).Integer("eval.attention.window") > 0;
        if (windowed || tokens <= trained.length) Drop("eval.gain", &measurement.eval_config);
        if (measurement.ntk) {
          Append("eval.ntk", TextValue("dynamic"), &measurement.eval_config);
          std::sort(measurement.eval_config.mutable_settings()->begin(),
                    measurement.eval_config.mutable_settings()->end(),
                    [](const v1::Setting& a, const v1::Setting& b) { return a.axis() < b.axis(); });
        } else {
          Drop("eval.ntk_factor", &measurement.eval_config);
        }
        const int index = InternMeasurement(std::move(measurement));
        const auto& known = draft.measurements;
        if (std::find(known.begin(), known.end(), index) == known.end()) draft.measurements.push_back(index);
      }
    }
  }
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

void Planner::EmitStages(int64_t seed, int seed_index) {
  const bool noop = spec_.executor() == v1::EXECUTOR_NOOP;
  const std::string head = absl::StrCat(
      "{\"data\":{\"format\":\"", spec_.data().format() == v1::DataRef::TOKEN_SHARDS ? "token_shards" : "text",
      "\",\"sha256\":\"", spec_.data().sha256(), "\"},\"device\":\"",
      spec_.requirements().device().empty() ? "any" : spec_.requirements().device(), "\",\"executor\":\"",
      noop ? "noop" : "trainer", "\",\"numerics\":", kNumericsVersion, ",\"seed\":", seed, ",\"segments\":");
  const int base = seed_index * stages_per_seed_;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    int parent = -1;
    if (node.parent >= 0) {
      const Node& before = nodes_[node.parent];
      parent =
          base + before.first_stage + static_cast<int>(std::distance(before.cuts.begin(), before.cuts.find(node.from)));
    }
    int64_t from = node.from;
    for (const int64_t cut : node.cuts) {
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

absl::StatusOr<Plan> Planner::Make() {
  ABLATE_RETURN_IF_ERROR(places_.At(places_.root, CheckSpec(spec_)));
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
      for (int i = 0; i < spec_.axes_size(); ++i) Append(spec_.axes(i).axis(), spec_.axes(i).values(index[i]), &axes);
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
  if (!spec_.baseline().settings().empty()) {
    const absl::StatusOr<int> found = FindBaseline(spec_.settings(), plan_.arms, spec_.baseline());
    if (!found.ok()) return places_.At(places_.baseline, found.status());
    plan_.baseline_arm = *found;
  }

  int64_t measurements = 0;
  for (size_t arm = 0; arm < drafts_.size(); ++arm) {
    ABLATE_RETURN_IF_ERROR(AddMeasurements(static_cast<int>(arm)));
    measurements += static_cast<int64_t>(drafts_[arm].measurements.size());
  }
  int64_t stages = 0;
  for (Node& node : nodes_) {
    node.first_stage = static_cast<int>(stages);
    stages += static_cast<int64_t>(node.cuts.size());
  }
  if ((stages + measurements) * spec_.seeds_size() > kMaxJobs) {
    return places_.At(places_.root,
                      Refuse(absl::StrCat("the sweep has ", (stages + measurements) * spec_.seeds_size(),
                                          " stages and evaluations; at most ", kMaxJobs, " are planned: split it")));
  }
  stages_per_seed_ = static_cast<int>(stages);

  plan_.seeds.assign(spec_.seeds().begin(), spec_.seeds().end());
  plan_.stages.reserve(stages * plan_.seeds.size());
  plan_.points.reserve(drafts_.size() * plan_.seeds.size());
  std::unordered_map<int64_t, int> evaluation_of;  // stage << 32 | measurement
  for (size_t s = 0; s < plan_.seeds.size(); ++s) {
    EmitStages(plan_.seeds[s], static_cast<int>(s));
    for (size_t a = 0; a < drafts_.size(); ++a) {
      const ArmDraft& draft = drafts_[a];
      const Node& node = nodes_[draft.node];
      Point point;
      point.arm = static_cast<int>(a);
      point.seed = plan_.seeds[s];
      point.stage = static_cast<int>(s) * stages_per_seed_ + node.first_stage +
                    static_cast<int>(std::distance(node.cuts.begin(), node.cuts.find(draft.end)));
      for (const int m : draft.measurements) {
        const auto [it, fresh] = evaluation_of.emplace(static_cast<int64_t>(point.stage) << 32 | m,
                                                       static_cast<int>(plan_.evaluations.size()));
        point.evaluations.push_back(it->second);
        if (!fresh) continue;
        const Measurement& measurement = measurements_[m];
        PlannedEvaluation evaluation;
        evaluation.key =
            Sha256Hex(absl::StrCat(measurement.key_text, plan_.stages[point.stage].key, "\",\"what\":\"evaluation\"}"));
        evaluation.stage = point.stage;
        evaluation.eval_config = measurement.eval_config;
        evaluation.length_tokens = measurement.length;
        evaluation.ntk = measurement.ntk;
        evaluation.split = measurement.split;
        plan_.evaluations.push_back(std::move(evaluation));
      }
      plan_.points.push_back(std::move(point));
    }
  }
  const ConfigView first(configs_[nodes_[drafts_.front().node].config].config);
  plan_.train_tokens_per_step = first.Integer("train.batch") * first.Integer("train.length");
  HashPlan();
  return std::move(plan_);
}

}  // namespace

std::string CombinedDataSha256(const v1::DataRef& data) {
  std::string lines;
  for (const v1::DataFile& file : data.files()) {
    if (file.sha256().empty()) return "";
    absl::StrAppend(&lines, file.sha256(), " ", file.bytes(), "\n");
  }
  if (data.files_size() == 0) return "";
  return data.files_size() == 1 ? data.files(0).sha256() : Sha256Hex(lines);
}

absl::StatusOr<Plan> MakePlan(const v1::SweepSpec& spec, const SweepPlaces& places) {
  return Planner(spec, places).Make();
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
  return task;
}

}  // namespace ablate
