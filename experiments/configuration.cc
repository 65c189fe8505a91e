// Configurations: defaults, the canonical form, labels and the checks across settings. Table of axes: axes.cc.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/attention_config.h"
#include "experiments/axes.h"
#include "experiments/defaults.h"
#include "experiments/eval_tasks.h"

namespace ablate {
namespace {

using ValueMap = std::map<std::string, v1::Value, std::less<>>;

constexpr std::string_view kEvalAttention = "eval.attention.";

std::string TextIn(const ValueMap& given, std::string_view axis, std::string_view fallback) {
  const auto it = given.find(axis);
  return it != given.end() && it->second.has_text() ? it->second.text() : std::string(fallback);
}

// The default of `axis` beside the other settings.
v1::Value DefaultOf(const Axis& axis, const ValueMap& given);

double NumberOf(std::string_view axis, const ValueMap& given) {
  const auto it = given.find(axis);
  return it != given.end() && it->second.has_number() ? it->second.number()
                                                      : DefaultOf(*FindAxis(axis), given).number();
}

v1::Value DefaultOf(const Axis& axis, const ValueMap& given) {
  if (axis.name.substr(0, 10) == "attention.") {
    const DefaultMap& variant = VariantDefaults(TextIn(given, "attention.variant", "softmax"));
    if (const auto it = variant.find(axis.name); it != variant.end()) return it->second;
  }
  const DefaultMap& preset = PresetDefaults(TextIn(given, "model.preset", kDefaultPreset));
  const auto it = preset.find(axis.name);
  if (it == preset.end()) return axis.default_value;
  if (axis.name == "train.warmup_steps") {
    return NumberValue(std::min(it->second.number(), std::floor(NumberOf("train.steps", given) / 10)));
  }
  if (axis.name == "train.accumulation") {
    return NumberValue(static_cast<double>(
        std::gcd(static_cast<int64_t>(it->second.number()), static_cast<int64_t>(NumberOf("train.batch", given)))));
  }
  return it->second;
}

bool TextIs(std::string_view axis, std::initializer_list<std::string_view> any_of, const ValueMap& given) {
  const auto it = given.find(axis);
  const v1::Value value = it != given.end() ? it->second : DefaultOf(*FindAxis(axis), given);
  return std::find(any_of.begin(), any_of.end(), value.text()) != any_of.end();
}

// Whether a setting changes nothing beside the others: it would only make two keys of one training.
bool CannotAct(std::string_view axis, const ValueMap& given) {
  if (axis == "attention.scale_constant") return !TextIs("attention.scale", {"constant", "constant_log_n"}, given);
  if (axis == "attention.ssmax_init") return !TextIs("attention.scale", {"ssmax", "ssmax_bias"}, given);
  if (axis == "model.rope_base") return !TextIs("model.position", {"rope"}, given);
  if (axis == "train.min_learning_rate_ratio") return !TextIs("train.schedule", {"cosine"}, given);
  if (axis == "data.mixture_prompt") return NumberOf("data.mixture", given) == 0;
  return false;
}

const Axis& Known(std::string_view name) {
  const Axis* axis = FindAxis(name);
  CHECK(axis != nullptr) << "no axis is named " << name;
  return *axis;
}

std::string_view LastPart(std::string_view name) {
  // A switch's "@100" belongs to the last part; axis names hold no '@'.
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

absl::Status Refuse(std::string_view message) { return absl::InvalidArgumentError(ToAbsl(message)); }

absl::Status CheckScope(const v1::Configuration& config, AxisScope scope) {
  for (const v1::Setting& setting : config.settings()) {
    ABLATE_RETURN_IF_ERROR(CheckSetting(setting.axis(), setting.value()));
    if (FindAxis(setting.axis())->scope == scope) continue;
    return Refuse(setting.axis() + (scope == AxisScope::kTraining
                                        ? " acts at evaluation only and cannot shape training"
                                        : " shapes training and cannot be set for an evaluation"));
  }
  return absl::OkStatus();
}

}  // namespace

ConfigView::ConfigView(const v1::Configuration& training, const v1::Configuration& eval) {
  for (const v1::Configuration* config : {&training, &eval}) {
    for (const v1::Setting& setting : config->settings()) {
      if (CheckSetting(setting.axis(), setting.value()).ok()) given_[setting.axis()] = setting.value();
    }
  }
  for (const v1::Setting& setting : eval.settings()) {
    const std::string_view name = setting.axis();
    if (name.substr(0, kEvalAttention.size()) != kEvalAttention) continue;
    const std::string overridden = absl::StrCat("attention.", ToAbsl(name.substr(kEvalAttention.size())));
    if (FindAxis(overridden) != nullptr && given_.count(name) > 0) given_[overridden] = setting.value();
  }
}

v1::Value ConfigView::Get(std::string_view name) const {
  const Axis& axis = Known(name);
  const auto it = given_.find(name);
  return it != given_.end() ? it->second : DefaultOf(axis, given_);
}

double ConfigView::Number(std::string_view name) const {
  const Axis& axis = Known(name);
  CHECK(axis.kind == AxisKind::kNumber || axis.kind == AxisKind::kInteger) << name << " is no number";
  const v1::Value value = Get(name);
  return value.has_number() ? value.number() : std::nan("");
}

int64_t ConfigView::Integer(std::string_view name) const {
  CHECK(Known(name).kind == AxisKind::kInteger) << name << " is no whole number";
  return static_cast<int64_t>(Get(name).number());
}

std::string ConfigView::Text(std::string_view name) const {
  CHECK(Known(name).kind == AxisKind::kText) << name << " is no text";
  return Get(name).text();
}

bool ConfigView::Flag(std::string_view name) const {
  CHECK(Known(name).kind == AxisKind::kFlag) << name << " is no flag";
  return Get(name).flag();
}

bool ConfigView::Has(std::string_view name) const {
  const Axis& axis = Known(name);
  const v1::Value value = Get(name);
  if (value.kind_case() == v1::Value::KIND_NOT_SET) return false;
  const bool word = value.has_text() && axis.kind != AxisKind::kText;
  return !(word && value.text() == "none");
}

v1::Configuration Canonical(const v1::Configuration& config) {
  ValueMap given;
  for (const v1::Setting& setting : config.settings()) given[setting.axis()] = setting.value();
  v1::Configuration canonical;
  for (const auto& [name, value] : given) {
    const Axis* axis = FindAxis(name);
    if (axis != nullptr && (SameValue(value, DefaultOf(*axis, given)) || CannotAct(name, given))) continue;
    v1::Setting* setting = canonical.add_settings();
    setting->set_axis(name);
    *setting->mutable_value() = value;
  }
  return canonical;
}

v1::Configuration OfScope(const v1::Configuration& config, AxisScope scope) {
  v1::Configuration part;
  for (const v1::Setting& setting : config.settings()) {
    const bool eval = setting.axis().compare(0, 5, "eval.") == 0;
    if (eval == (scope == AxisScope::kEvaluation)) *part.add_settings() = setting;
  }
  return part;
}

v1::Configuration ActingFor(std::string_view task, const v1::Configuration& training, const v1::Configuration& eval) {
  v1::Configuration all = training;
  for (const v1::Setting& setting : eval.settings()) {
    const std::string_view of = TaskOfOption(setting.axis());
    // One forward pass, of one text.
    const bool idle = task == "attention_map" && setting.axis() == "eval.batch_tokens";
    if (setting.axis() != "eval.task" && (of.empty() || of == task) && !idle) *all.add_settings() = setting;
  }
  v1::Setting* setting = all.add_settings();
  setting->set_axis("eval.task");
  *setting->mutable_value() = TextValue(task);
  return OfScope(Canonical(all), AxisScope::kEvaluation);
}

std::string Label(const v1::Configuration& config) {
  std::string label;
  for (const v1::Setting& setting : config.settings()) {
    const std::string_view last = LastPart(setting.axis());
    const auto alike = std::count_if(config.settings().begin(), config.settings().end(),
                                     [&](const v1::Setting& other) { return LastPart(other.axis()) == last; });
    absl::StrAppend(&label, label.empty() ? "" : " ", alike > 1 ? absl::string_view(setting.axis()) : ToAbsl(last), "=",
                    ValueText(setting.value()));
  }
  return label.empty() ? "default" : label;
}

absl::StatusOr<AttentionSpec> AttentionSpecFrom(const ConfigView& config) {
  const AttentionVariant* variant = FindAttentionVariant(config.Text("attention.variant"));
  if (variant == nullptr) return Refuse("attention.variant \"" + config.Text("attention.variant") + "\" is unknown");
  AttentionSpec spec = variant->spec;
  spec.qk_norm = ParseQkNorm(config.Text("attention.qk_norm")).value_or(spec.qk_norm);
  spec.scale = ParseScoreScale(config.Text("attention.scale")).value_or(spec.scale);
  spec.scale_constant = config.Number("attention.scale_constant");
  spec.activation = ParseActivation(config.Text("attention.activation")).value_or(spec.activation);
  spec.normalisation = ParseNormalisation(config.Text("attention.normalisation")).value_or(spec.normalisation);
  spec.logit_bias = ParseLogitBias(config.Text("attention.logit_bias")).value_or(spec.logit_bias);
  spec.transform = ParseScoreTransform(config.Text("attention.transform")).value_or(spec.transform);
  spec.train_length = static_cast<int>(config.Integer("train.length"));
  spec.sharpen_p = config.Has("attention.p") ? std::optional<double>(config.Number("attention.p")) : std::nullopt;
  spec.sharpen_offset = config.Number("attention.offset");
  spec.offset_free_rows = static_cast<int>(config.Integer("attention.offset_free_rows"));
  if (config.Flag("eval.attention.scale_clamp")) spec.scale_clamp = spec.train_length;
  if (config.Flag("eval.attention.sharpen_clamp")) spec.sharpen_clamp = spec.train_length;
  ABLATE_RETURN_IF_ERROR(ValidateAttentionSpec(spec));
  return spec;
}

absl::Status CheckConfiguration(const v1::Configuration& training, const v1::Configuration& eval) {
  ABLATE_RETURN_IF_ERROR(CheckScope(training, AxisScope::kTraining));
  ABLATE_RETURN_IF_ERROR(CheckScope(eval, AxisScope::kEvaluation));
  const ConfigView trained(training);
  const int64_t width = trained.Integer("model.width"), heads = trained.Integer("model.heads");
  if (width % heads != 0) {
    return Refuse(absl::StrCat("model.width ", width, " is not divisible by model.heads ", heads));
  }
  const int64_t head_dim = width / heads;
  const std::string position = trained.Text("model.position");
  if (position == "rope" && head_dim % 2 != 0) {
    return Refuse(
        absl::StrCat("model.position rope needs an even head dimension; model.width / model.heads is ", head_dim));
  }
  const int64_t steps = trained.Integer("train.steps"), warmup = trained.Integer("train.warmup_steps");
  if (warmup > steps) {
    return Refuse(absl::StrCat("train.warmup_steps ", warmup, " is more than train.steps ", steps));
  }
  const int64_t batch = trained.Integer("train.batch"), parts = trained.Integer("train.accumulation");
  if (batch % parts != 0) {
    return Refuse(absl::StrCat("train.batch ", batch, " is not divisible by train.accumulation ", parts));
  }
  ABLATE_ASSIGN_OR_RETURN(const AttentionSpec trained_spec, AttentionSpecFrom(trained));

  const ConfigView measured(training, eval);
  ABLATE_ASSIGN_OR_RETURN(const AttentionSpec measured_spec, AttentionSpecFrom(measured));
  if ((measured_spec.has_learned_scale() && !trained_spec.has_learned_scale()) ||
      (measured_spec.has_learned_bias() && !trained_spec.has_learned_bias())) {
    return Refuse(absl::StrCat("eval.attention.scale ", measured.Text("attention.scale"),
                               " needs learned parameters that training with attention.scale ",
                               trained.Text("attention.scale"), " does not make"));
  }
  if (measured_spec.has_constant() && measured_spec.scale != trained_spec.scale &&
      !measured.Has("eval.attention.scale_constant")) {
    return Refuse(absl::StrCat("eval.attention.scale ", measured.Text("attention.scale"),
                               " needs eval.attention.scale_constant"));
  }
  if (measured.Text("eval.ntk") == "dynamic" && position == "rope" && head_dim <= 2) {
    return Refuse(
        absl::StrCat("eval.ntk dynamic needs a head dimension above 2; model.width / model.heads is ", head_dim));
  }
  return absl::OkStatus();
}

absl::Status CheckEvaluationLength(const ConfigView& trained, int64_t tokens) {
  const int64_t length = trained.Integer("train.length"), longest = kLongestEvaluation * length;
  if (tokens < 1 || tokens > longest) {
    return Refuse(absl::StrCat("cannot evaluate at a length of ", tokens, " tokens: expected 1 to ", longest, " (",
                               kLongestEvaluation, "x of train.length ", length,
                               "; longer contexts would reach from one split of the data into the next)"));
  }
  if (trained.Text("model.position") == "learned" && tokens > length) {
    return Refuse(absl::StrCat("learned positions end at train.length ", length, ": cannot evaluate at a length of ",
                               tokens,
                               " tokens. Give arms with model.position learned a sweep of their own, with "
                               "evaluate.lengths up to 1x"));
  }
  return absl::OkStatus();
}

int64_t ParameterCount(const ConfigView& config, int64_t vocabulary) {
  const int64_t width = config.Integer("model.width"), layers = config.Integer("model.layers");
  int64_t block = 12 * width * width + 13 * width;
  const std::string scale = config.Text("attention.scale");
  if (scale == "ssmax" || scale == "ssmax_bias") block += config.Integer("model.heads") * (scale == "ssmax" ? 1 : 2);
  const int64_t positions = config.Text("model.position") == "learned" ? config.Integer("train.length") : 0;
  return (vocabulary + positions) * width + layers * block + 2 * width;
}

}  // namespace ablate
