#include "experiments/defaults.h"

#include "experiments/axes.h"
#include "kernels/attention/variants.h"

namespace ablate {
namespace {

struct Preset {
  std::string_view name;
  double layers, width, heads;
  double length, steps, batch, accumulation, learning_rate, warmup;
  double target_spans, loss_tokens, eval_batch_tokens;
};

// Training amounts: tiny and small are for CPUs; the GPT-2 sizes are the LSSAR paper's (524,288 tokens a step, 18,865
// steps).
constexpr Preset kPresets[] = {
    //             shape           training                                   evaluation
    {"tiny", 4, 128, 4, 256, 600, 8, 1, 1e-3, 60, 64, 65536, 8192},
    {"small", 6, 384, 6, 256, 2000, 16, 1, 6e-4, 100, 64, 131072, 8192},
    {"gpt2-45m", 6, 512, 8, 1024, 5000, 128, 4, 1e-3, 250, 128, 1048576, 32768},
    {"gpt2-124m", 12, 768, 12, 1024, 18865, 512, 16, 6e-4, 700, 256, 4194304, 32768},
    {"gpt2-355m", 24, 1024, 16, 1024, 18865, 512, 32, 3e-4, 700, 256, 4194304, 32768},
};

DefaultMap MapOf(const Preset& preset) {
  return {
      {"model.layers", NumberValue(preset.layers)},
      {"model.width", NumberValue(preset.width)},
      {"model.heads", NumberValue(preset.heads)},
      {"train.length", NumberValue(preset.length)},
      {"train.steps", NumberValue(preset.steps)},
      {"train.batch", NumberValue(preset.batch)},
      {"train.accumulation", NumberValue(preset.accumulation)},
      {"train.learning_rate", NumberValue(preset.learning_rate)},
      {"train.warmup_steps", NumberValue(preset.warmup)},
      {"eval.target_spans", NumberValue(preset.target_spans)},
      {"eval.loss_tokens", NumberValue(preset.loss_tokens)},
      {"eval.batch_tokens", NumberValue(preset.eval_batch_tokens)},
  };
}

DefaultMap MapOf(const AttentionSpec& spec) {
  return {
      {"attention.qk_norm", TextValue(Name(spec.qk_norm))},
      {"attention.scale", TextValue(Name(spec.scale))},
      {"attention.scale_constant", NumberValue(spec.scale_constant)},
      {"attention.activation", TextValue(Name(spec.activation))},
      {"attention.normalisation", TextValue(Name(spec.normalisation))},
      {"attention.logit_bias", TextValue(Name(spec.logit_bias))},
      {"attention.p", spec.sharpen_p.has_value() ? NumberValue(*spec.sharpen_p) : TextValue("none")},
      {"attention.offset", NumberValue(spec.sharpen_offset)},
      {"attention.offset_free_rows", NumberValue(spec.offset_free_rows)},
  };
}

const DefaultMap& Lookup(const std::unordered_map<std::string_view, DefaultMap>& maps, std::string_view name) {
  static const auto* const none = new DefaultMap();
  const auto it = maps.find(name);
  return it == maps.end() ? *none : it->second;
}

}  // namespace

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

const DefaultMap& PresetDefaults(std::string_view preset) {
  static const auto* const maps = [] {
    auto* all = new std::unordered_map<std::string_view, DefaultMap>();
    for (const Preset& row : kPresets) all->emplace(row.name, MapOf(row));
    return all;
  }();
  return Lookup(*maps, preset);
}

const DefaultMap& VariantDefaults(std::string_view variant) {
  static const auto* const maps = [] {
    auto* all = new std::unordered_map<std::string_view, DefaultMap>();
    for (const AttentionVariant& row : AttentionVariants()) all->emplace(row.name, MapOf(row.spec));
    return all;
  }();
  return Lookup(*maps, variant);
}

}  // namespace ablate
