#include "experiments/axes.h"

#include <charconv>
#include <cmath>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "experiments/defaults.h"
#include "kernels/attention/variants.h"

namespace ablate {
namespace {

constexpr double kMaxSize = 1e6;     // layers, heads, accumulation...
constexpr double kMaxCount = 1e12;   // tokens, steps
constexpr double kMaxNumber = 1e30;  // of factors without a natural limit
constexpr double kSmallest = 1e-30;  // "above 0"

AxisScope ScopeOf(std::string_view name) {
  return name.substr(0, 5) == "eval." ? AxisScope::kEvaluation : AxisScope::kTraining;
}

Axis Number(std::string_view name, double minimum, double maximum, double fallback, std::string_view summary) {
  return {name, AxisKind::kNumber, ScopeOf(name), summary, minimum, maximum, {}, NumberValue(fallback)};
}
Axis Integer(std::string_view name, double minimum, double maximum, double fallback, std::string_view summary) {
  return {name, AxisKind::kInteger, ScopeOf(name), summary, minimum, maximum, {}, NumberValue(fallback)};
}
Axis Text(std::string_view name, std::vector<std::string> choices, std::string_view fallback,
          std::string_view summary) {
  return {name, AxisKind::kText, ScopeOf(name), summary, 0, 0, std::move(choices), TextValue(fallback)};
}
Axis Flag(std::string_view name, bool fallback, std::string_view summary) {
  return {name, AxisKind::kFlag, ScopeOf(name), summary, 0, 0, {}, FlagValue(fallback)};
}
Axis Optional(Axis axis) {
  axis.default_value.clear_kind();
  return axis;
}
Axis OrNone(Axis axis) {
  axis.choices = {"none"};
  if (axis.default_value.kind_case() != v1::Value::KIND_NOT_SET) axis.default_value = TextValue("none");
  return axis;
}

std::vector<std::string> VariantNames() {
  std::vector<std::string> names;
  for (const AttentionVariant& variant : AttentionVariants()) names.emplace_back(variant.name);
  return names;
}

std::vector<std::string> PasskeyPrompts() { return {"full", "short"}; }

// Rows whose fallback is 0 or the first choice and that name a size, a rate or an attention field have their defaults
// in defaults.cc (by preset) or kernels/attention/variants.cc (by variant).
std::vector<Axis> MakeAxes() {
  return {
      Text("model.preset", ModelPresetNames(), kDefaultPreset, "the shape of the model, and its defaults for the rest"),
      Integer("model.layers", 1, 1000, 1, "transformer blocks (default by preset)"),
      Integer("model.width", 1, 65536, 1, "width of the residual stream (default by preset)"),
      Integer("model.heads", 1, 1024, 1, "attention heads; width / heads is the head dimension d (default by preset)"),
      Text("model.position", {"rope", "none", "learned", "alibi"}, "rope",
           "how positions enter the model: rotated q and k, not at all, vectors up to train.length, or ALiBi's bias"),
      Number("model.rope_base", 1, kMaxNumber, 10000, "base of the RoPE angles"),

      Number("data.mixture", 0, 1, 0, "share of training samples that are synthetic passkey documents"),
      Text("data.mixture_prompt", PasskeyPrompts(), "short", "the prompt of those documents"),
      Integer("data.mqar.vocabulary", 4, 65536, 128, "of data format mqar: keys and values, half of it each"),
      Integer("data.mqar.pairs", 1, 65536, 8, "of data format mqar: key-value pairs of a sequence"),

      Text("attention.variant", VariantNames(), "softmax", "a named member of the attention family"),
      Text("attention.qk_norm", QkNormNames(), "none", "normalisation of queries and keys (default by variant)"),
      Text("attention.scale", ScoreScaleNames(), "inv_sqrt_d", "the scale factor of the scores (default by variant)"),
      Number("attention.scale_constant", -kMaxNumber, kMaxNumber, 1,
             "c of attention.scale constant and constant_log_n"),
      Text("attention.activation", ActivationNames(), "exp", "phi, applied to the scores (default by variant)"),
      Text("attention.normalisation", NormalisationNames(), "l1", "of a row's weights (default by variant)"),
      Text("attention.logit_bias", LogitBiasNames(), "none", "added to every score (default by variant)"),
      Text("attention.transform", ScoreTransformNames(), "none",
           "scores as they are, with the sign changed, or less their row's mean"),
      OrNone(Number("attention.p", 1, kMaxSize, 1, "power of the sharpening, or none (default by variant)")),
      Number("attention.offset", 0, kMaxSize, 1, "o: sharpening keeps what is above o times the mean weight"),
      Integer("attention.offset_free_rows", 0, kMaxSize, 3, "first rows in which the offset is 0"),
      Number("attention.ssmax_init", -kMaxSize, kMaxSize, 1, "initial value of the learned s of ssmax"),

      Integer("train.length", 2, 16777216, 2, "T_train: tokens a sequence (default by preset)"),
      Integer("train.steps", 1, 1e9, 1, "optimiser steps (default by preset)"),
      Integer("train.batch", 1, kMaxSize, 1, "sequences a step (default by preset)"),
      Integer("train.accumulation", 1, kMaxSize, 1,
              "parts a step's batch is computed in (default by preset, made to divide train.batch)"),
      Number("train.learning_rate", 0, 10, 0, "the highest learning rate (default by preset)"),
      Number("train.min_learning_rate_ratio", 0, 1, 0.1,
             "learning rate at the end of the cosine, as a share of the highest"),
      Integer("train.warmup_steps", 0, 1e9, 0,
              "steps of linear warm-up (default by preset, at most a tenth of train.steps)"),
      Text("train.schedule", {"cosine", "constant"}, "cosine", "of the learning rate after the warm-up"),
      Number("train.weight_decay", 0, 10, 0.1, "decoupled, on two-dimensional parameters"),
      Number("train.beta1", 0, 0.999999, 0.9, "of AdamW"),
      Number("train.beta2", 0, 0.999999, 0.95, "of AdamW"),
      Number("train.epsilon", kSmallest, 1, 1e-8, "of AdamW"),
      Number("train.clip", 0, kMaxNumber, 1, "largest global gradient norm; 0: no clipping"),
      Text("train.precision", {"fp32", "bf16"}, "fp32",
           "of the matrix products; bf16 needs `requires: {device: cuda}`"),

      Text("eval.ntk", {"off", "dynamic"}, "off", "Dynamic NTK above the training length"),
      Number("eval.ntk_factor", kSmallest, kMaxSize, 1, "factor of Dynamic NTK"),
      Number("eval.rope_theta_scale", kSmallest, kMaxNumber, 1,
             "multiplies the RoPE base at evaluation (the SSMax paper: 50)"),
      OrNone(Optional(Number("eval.attention.p", 1, kMaxSize, 1, "attention.p at evaluation"))),
      Optional(Text("eval.attention.scale", ScoreScaleNames(), "one", "attention.scale at evaluation")),
      Optional(Number("eval.attention.scale_constant", -kMaxNumber, kMaxNumber, 1,
                      "attention.scale_constant at evaluation")),
      Flag("eval.attention.scale_clamp", false, "above train.length, log n of the scale is log train.length"),
      Flag("eval.attention.sharpen_clamp", false, "above train.length, the sharpening's a n - o is a train.length - o"),
      Integer("eval.attention.window", 0, 16777216, 0, "keys a position attends to, itself included; 0: all before it"),
      Integer("eval.target_spans", 1, 1e9, 1, "spans of T_train tokens scored by loss_targets (default by preset)"),
      Integer("eval.loss_tokens", 0, kMaxCount, 0,
              "tokens scored by loss, in whole windows; 0: not measured (default by preset)"),
      Flag("eval.gain", false,
           "above train.length, score loss_targets also with a window of train.length, and their difference"),
      Integer("eval.batch_tokens", 1, 1e9, 1, "tokens a forward pass takes at once (default by preset)"),
      Text("eval.task", {"loss", "passkey", "mqar", "attention", "attention_map", "multiple_choice", "summaries"},
           "loss", "what is measured; set by evaluate.tasks, not by hand"),
      Integer("eval.passkey.trials", 1, 100000, 100, "of task passkey: prompts a length"),
      Text("eval.passkey.prompt", PasskeyPrompts(), "full",
           "of task passkey: the SSMax paper's prompt, or a short one"),
      Integer("eval.passkey.depths", 1, 100, 10, "of task passkey: bins of the key's position"),
      Integer("eval.mqar.sequences", 1, 1e6, 256, "of task mqar: sequences a length"),
      Optional(Integer("eval.mqar.pairs", 1, 65536, 1, "of task mqar: key-value pairs of a sequence")),
      Integer("eval.attention.tokens", 1, kMaxCount, 16384,
              "of task attention: tokens, in whole windows, that the statistics are over"),
      Integer("eval.summaries.tokens", 1, 1e6, 64, "of task summaries: tokens generated at most"),

      Number("noop.seconds", 0, 86400, 0, "of the test executor: how long a job takes"),
      Text("noop.outcome", {"succeed", "diverge", "code_error", "invalid_config", "kill_worker"}, "succeed",
           "of the test executor: how it ends"),
  };
}

std::string Expected(const Axis& axis) {
  const std::string name = absl::StrCat(" for ", ToAbsl(axis.name));
  std::string words;
  if (!axis.choices.empty()) words = absl::StrJoin(axis.choices, ", ");
  switch (axis.kind) {
    case AxisKind::kText:
      return absl::StrCat("expected one of ", words, name);
    case AxisKind::kFlag:
      return absl::StrCat("expected true or false", name);
    case AxisKind::kNumber:
    case AxisKind::kInteger: {
      std::string range;
      if (axis.minimum == kSmallest) {
        range =
            axis.maximum >= kMaxNumber ? " above 0" : absl::StrCat(" above 0, at most ", ShortestDouble(axis.maximum));
      } else if (axis.maximum < kMaxNumber) {
        range = absl::StrCat(" from ", ShortestDouble(axis.minimum), " to ", ShortestDouble(axis.maximum));
      } else if (axis.minimum > -kMaxNumber) {
        range = absl::StrCat(" of at least ", ShortestDouble(axis.minimum));
      }
      return absl::StrCat("expected a ", axis.kind == AxisKind::kInteger ? "whole number" : "number", range,
                          words.empty() ? "" : " or " + words, name);
    }
  }
  return "";
}

absl::Status UnknownAxis(std::string_view name) {
  const std::string unknown = absl::StrCat("unknown axis \"", ToAbsl(name), "\"");
  std::vector<std::string> known = AxisNames();
  if (!NearestName(name, known).empty()) return absl::InvalidArgumentError(unknown + DidYouMean(name, known));
  // The whole list would bury the message: a known group narrows it.
  const std::string group(name.substr(0, name.find('.') + 1));
  std::vector<std::string> same_group;
  for (const std::string& candidate : known) {
    if (!group.empty() && absl::StartsWith(candidate, group)) same_group.push_back(candidate);
  }
  if (!same_group.empty()) return absl::InvalidArgumentError(unknown + DidYouMean(name, same_group));
  return absl::InvalidArgumentError(
      unknown + "; axes are named model.*, data.*, attention.*, train.*, eval.* and noop.* (docs/sweep-files.md)");
}

bool HasChoice(const Axis& axis, std::string_view text) {
  for (const std::string& choice : axis.choices) {
    if (choice == text) return true;
  }
  return false;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

}  // namespace

const std::vector<Axis>& Axes() {
  static const auto* const axes = new std::vector<Axis>(MakeAxes());
  return *axes;
}

const Axis* FindAxis(std::string_view name) {
  static const auto* const by_name = [] {
    auto* map = new std::unordered_map<std::string_view, const Axis*>();
    for (const Axis& axis : Axes()) map->emplace(axis.name, &axis);
    return map;
  }();
  const auto it = by_name->find(name);
  return it == by_name->end() ? nullptr : it->second;
}

std::vector<std::string> AxisNames() {
  std::vector<std::string> names;
  for (const Axis& axis : Axes()) names.emplace_back(axis.name);
  return names;
}

v1::Value NumberValue(double number) {
  v1::Value value;
  value.set_number(number == 0 ? 0.0 : number);  // -0 and 0 are one value
  return value;
}

v1::Value TextValue(std::string_view text) {
  v1::Value value;
  value.set_text(std::string(text));
  return value;
}

v1::Value FlagValue(bool flag) {
  v1::Value value;
  value.set_flag(flag);
  return value;
}

bool SameValue(const v1::Value& a, const v1::Value& b) {
  if (a.kind_case() != b.kind_case()) return false;
  switch (a.kind_case()) {
    case v1::Value::kNumber:
      return a.number() == b.number();
    case v1::Value::kText:
      return a.text() == b.text();
    case v1::Value::kFlag:
      return a.flag() == b.flag();
    case v1::Value::KIND_NOT_SET:
      return true;
  }
  return false;
}

std::string ValueText(const v1::Value& value) {
  switch (value.kind_case()) {
    case v1::Value::kNumber:
      return ShortestDouble(value.number());
    case v1::Value::kText:
      return value.text();
    case v1::Value::kFlag:
      return value.flag() ? "true" : "false";
    case v1::Value::KIND_NOT_SET:
      return "";
  }
  return "";
}

bool ReadNumber(std::string_view text, double* number) {
  // from_chars takes no plus sign; it does take inf and nan, which no axis takes.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

absl::Status CheckSetting(std::string_view name, const v1::Value& value) {
  const Axis* axis = FindAxis(name);
  if (axis == nullptr) return UnknownAxis(name);
  auto refuse = [&](std::string_view found) {
    return absl::InvalidArgumentError(absl::StrCat(Expected(*axis), ", found ", ToAbsl(found)));
  };
  switch (value.kind_case()) {
    case v1::Value::kNumber: {
      const double number = value.number();
      if (axis->kind != AxisKind::kNumber && axis->kind != AxisKind::kInteger) {
        return refuse("the number " + ShortestDouble(number));
      }
      // Written so that NaN fails.
      if (!(number >= axis->minimum && number <= axis->maximum)) return refuse(ShortestDouble(number));
      if (axis->kind == AxisKind::kInteger && number != std::floor(number)) return refuse(ShortestDouble(number));
      return absl::OkStatus();
    }
    case v1::Value::kText: {
      if (HasChoice(*axis, value.text())) return absl::OkStatus();
      const std::string found = absl::StrCat("\"", value.text().substr(0, 100), "\"");
      if (axis->choices.empty() || NearestName(value.text().substr(0, 100), axis->choices).empty())
        return refuse(found);
      return refuse(found + DidYouMean(value.text(), axis->choices));
    }
    case v1::Value::kFlag:
      if (axis->kind == AxisKind::kFlag) return absl::OkStatus();
      return refuse(value.flag() ? "the flag true" : "the flag false");
    case v1::Value::KIND_NOT_SET:
      return refuse("nothing");
  }
  return refuse("nothing");
}

absl::StatusOr<v1::Value> ParseSetting(std::string_view name, std::string_view text, bool quoted) {
  const Axis* axis = FindAxis(name);
  if (axis == nullptr) return UnknownAxis(name);
  v1::Value value = TextValue(text);
  const std::string lower = Lower(text);
  const bool yes = !quoted && (lower == "true" || lower == "on" || lower == "yes");
  const bool no = !quoted && (lower == "false" || lower == "off" || lower == "no");
  double number = 0;
  if (axis->kind == AxisKind::kFlag && (yes || no)) {
    value = FlagValue(yes);
  } else if (name == "eval.ntk" && (yes || no)) {
    value = TextValue(yes ? "dynamic" : "off");
  } else if (axis->kind != AxisKind::kText && ReadNumber(text, &number)) {
    if (quoted) {
      return absl::InvalidArgumentError(
          absl::StrCat(Expected(*axis), ", found the text \"", ToAbsl(text), "\"; write it without the quotes"));
    }
    value = NumberValue(number);
  }
  const absl::Status status = CheckSetting(name, value);
  if (!status.ok()) return status;
  return value;
}

}  // namespace ablate
