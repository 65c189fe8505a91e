#include "worker/trainer/parameters.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {

std::string_view Name(PositionKind value) {
  switch (value) {
    case PositionKind::kRope:
      return "rope";
    case PositionKind::kNone:
      return "none";
    case PositionKind::kLearned:
      return "learned";
    case PositionKind::kAlibi:
      return "alibi";
  }
  return "";
}

std::optional<PositionKind> ParsePositionKind(std::string_view name) {
  for (const PositionKind kind :
       {PositionKind::kRope, PositionKind::kNone, PositionKind::kLearned, PositionKind::kAlibi}) {
    if (name == Name(kind)) return kind;
  }
  return std::nullopt;
}

absl::Status ValidateModelConfig(const ModelConfig& config) {
  const struct {
    const char* field;
    int value;
  } sizes[] = {{"layers", config.layers},
               {"width", config.width},
               {"heads", config.heads},
               {"vocab", config.vocab},
               {"train_length", config.train_length}};
  for (const auto& size : sizes) {
    if (size.value < 1) {
      return absl::InvalidArgumentError(absl::StrCat("model.", size.field, " must be at least 1, not ", size.value));
    }
  }
  if (config.width % config.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.width ", config.width, " is not divisible by model.heads ", config.heads));
  }
  if (config.position == PositionKind::kRope) {
    if (config.head_dim() % 2 != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.position rope needs an even head dimension; width / heads is ", config.head_dim()));
    }
    if (!(config.rope_base > 0) || !std::isfinite(config.rope_base)) {
      return absl::InvalidArgumentError("model.rope_base must be a finite number above 0");
    }
  }
  if (!std::isfinite(config.ssmax_s) || !std::isfinite(config.ssmax_b)) {
    return absl::InvalidArgumentError("the initial ssmax s and b must be finite");
  }
  return ValidateAttentionSpec(config.attention);
}

std::vector<ParameterInfo> ParameterTable(const ModelConfig& config) {
  constexpr float kStd = 0.02f;
  const float residual_std = static_cast<float>(0.02 / std::sqrt(2.0 * config.layers));
  const int64_t C = config.width, H = config.heads, V = config.vocab;
  std::vector<ParameterInfo> table;
  int64_t offset = 0;
  auto add = [&](std::string name, std::vector<int64_t> shape, float init_std, float init_value) {
    ParameterInfo info{std::move(name), std::move(shape), 1, offset, false, init_std, init_value};
    for (const int64_t extent : info.shape) info.count *= extent;
    info.decay = info.shape.size() == 2;
    offset += (info.count + 15) / 16 * 16;
    table.push_back(std::move(info));
  };
  auto add_norm = [&](const std::string& name) {
    add(name + ".w", {C}, 0, 1);
    add(name + ".b", {C}, 0, 0);
  };
  auto add_linear = [&](const std::string& name, int64_t out, int64_t in, float init_std) {
    add(name + ".w", {out, in}, init_std, 0);
    add(name + ".b", {out}, 0, 0);
  };
  add("wte", {V, C}, kStd, 0);
  if (config.position == PositionKind::kLearned) add("wpe", {config.train_length, C}, kStd, 0);
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string h = absl::StrCat("h", layer, ".");
    add_norm(h + "ln1");
    add_linear(h + "qkv", 3 * C, C, kStd);
    if (config.attention.has_learned_scale()) add(h + "ssmax.s", {H}, 0, config.ssmax_s);
    if (config.attention.has_learned_bias()) add(h + "ssmax.b", {H}, 0, config.ssmax_b);
    add_linear(h + "proj", C, C, residual_std);
    add_norm(h + "ln2");
    add_linear(h + "fc", 4 * C, C, kStd);
    add_linear(h + "fcproj", C, 4 * C, residual_std);
  }
  add_norm("lnf");
  return table;
}

int64_t ArenaFloats(const std::vector<ParameterInfo>& table) {
  const ParameterInfo& last = table.back();
  return last.offset + (last.count + 15) / 16 * 16;
}

int64_t ParameterCount(const std::vector<ParameterInfo>& table) {
  int64_t count = 0;
  for (const ParameterInfo& info : table) count += info.count;
  return count;
}

}  // namespace ablate
