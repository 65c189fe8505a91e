#include "kernels/attention/variants.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {
namespace {

template <class Enum>
using NameRow = std::pair<Enum, std::string_view>;

// In declaration order of each enum: *Names() lists them so.
constexpr NameRow<QkNorm> kQkNorms[] = {{QkNorm::kNone, "none"}, {QkNorm::kL2, "l2"}};
constexpr NameRow<ScoreScale> kScoreScales[] = {
    {ScoreScale::kOne, "one"},
    {ScoreScale::kInvSqrtD, "inv_sqrt_d"},
    {ScoreScale::kLogD, "log_d"},
    {ScoreScale::kLogN, "log_n"},
    {ScoreScale::kLogDLogN, "log_d_log_n"},
    {ScoreScale::kLogNInvSqrtD, "log_n_inv_sqrt_d"},
    {ScoreScale::kSsmax, "ssmax"},
    {ScoreScale::kSsmaxBias, "ssmax_bias"},
    {ScoreScale::kConstant, "constant"},
    {ScoreScale::kConstantLogN, "constant_log_n"},
};
constexpr NameRow<Activation> kActivations[] = {
    {Activation::kExp, "exp"},       {Activation::kSoftplus, "softplus"},        {Activation::kSigmoid, "sigmoid"},
    {Activation::kRelu, "relu"},     {Activation::kReluSquared, "relu_squared"}, {Activation::kAbs, "abs"},
    {Activation::kSquare, "square"},
};
constexpr NameRow<Normalisation> kNormalisations[] = {
    {Normalisation::kL1, "l1"}, {Normalisation::kCount, "count"}, {Normalisation::kNone, "none"}};
constexpr NameRow<ScoreTransform> kScoreTransforms[] = {{ScoreTransform::kNone, "none"},
                                                        {ScoreTransform::kInverted, "inverted"},
                                                        {ScoreTransform::kRecentred, "recentred"}};
constexpr NameRow<LogitBias> kLogitBiases[] = {
    {LogitBias::kNone, "none"}, {LogitBias::kNegLogN, "neg_log_n"}, {LogitBias::kNegLogTrain, "neg_log_t_train"}};

template <class Enum, size_t kSize>
std::string_view NameIn(const NameRow<Enum> (&table)[kSize], Enum value) {
  for (const auto& [row_value, name] : table) {
    if (row_value == value) return name;
  }
  return "invalid";
}

template <class Enum, size_t kSize>
std::optional<Enum> ParseIn(const NameRow<Enum> (&table)[kSize], std::string_view name) {
  for (const auto& [value, row_name] : table) {
    if (row_name == name) return value;
  }
  return std::nullopt;
}

template <class Enum, size_t kSize>
std::vector<std::string> NamesOf(const NameRow<Enum> (&table)[kSize]) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.second);
  return names;
}

}  // namespace

const std::vector<AttentionVariant>& AttentionVariants() {
  static const auto* const variants = new std::vector<AttentionVariant>{
      {"softmax", {}, "the baseline: exp of q.k / sqrt d"},
      {"ssmax", {.scale = ScoreScale::kSsmax}, "softmax of s log n q.k / sqrt d, s learned per head and layer"},
      {"ssmax_bias", {.scale = ScoreScale::kSsmaxBias}, "ssmax with (s log n + b), b learned too"},
      {"ssmax_fixed", {.scale = ScoreScale::kLogNInvSqrtD}, "softmax of log n q.k / sqrt d, nothing learned"},
      {"lssa",
       {.qk_norm = QkNorm::kL2, .scale = ScoreScale::kLogDLogN, .activation = Activation::kSoftplus},
       "softplus of log d log n q.k, q and k of unit length"},
      {"lssar",
       {.qk_norm = QkNorm::kL2, .scale = ScoreScale::kLogDLogN, .activation = Activation::kSoftplus, .sharpen_p = 15.0},
       "lssa re-weighted: max(0, a n - 1)^p"},
      {"cosine_softmax",
       {.qk_norm = QkNorm::kL2, .scale = ScoreScale::kLogDLogN},
       "the control for lssa: its scale and unit lengths with exp"},
      {"softmax_sharpened", {.sharpen_p = 15.0}, "softmax re-weighted as lssar is"},
      {"sigmoid",
       {.activation = Activation::kSigmoid, .normalisation = Normalisation::kNone, .logit_bias = LogitBias::kNegLogN},
       "sigmoid of q.k / sqrt d - log n, not normalised"},
      {"sigmoid_sharpened",
       {.activation = Activation::kSigmoid, .sharpen_p = 15.0},
       "sigmoid of q.k / sqrt d, normalised, re-weighted as lssar is"},
      {"relu",
       {.activation = Activation::kRelu, .normalisation = Normalisation::kCount},
       "relu of q.k / sqrt d, divided by the number of keys"},
      {"relu_squared",
       {.activation = Activation::kReluSquared, .normalisation = Normalisation::kCount},
       "relu squared of q.k / sqrt d, divided by the number of keys"},
  };
  return *variants;
}

const AttentionVariant* FindAttentionVariant(std::string_view name) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    if (variant.name == name) return &variant;
  }
  return nullptr;
}

absl::Status ValidateAttentionSpec(const AttentionSpec& spec) {
  if (spec.sharpen_p.has_value()) {
    if (!(std::isfinite(*spec.sharpen_p) && *spec.sharpen_p >= 1)) {
      return absl::InvalidArgumentError(absl::StrCat("attention.p is ", ShortestDouble(*spec.sharpen_p),
                                                     "; it must be a finite number of at least 1"));
    }
    if (spec.normalisation != Normalisation::kL1) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention.p needs attention.normalisation l1 (sharpening is defined on weights that sum to 1), "
                       "not ",
                       ToAbsl(Name(spec.normalisation)), "; drop attention.p or set l1"));
    }
  }
  if (!(std::isfinite(spec.sharpen_offset) && spec.sharpen_offset >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("attention.offset is ", ShortestDouble(spec.sharpen_offset),
                                                   "; it must be a finite number of at least 0"));
  }
  if (spec.offset_free_rows < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention.offset_free_rows is ", spec.offset_free_rows, "; it must be at least 0"));
  }
  if (spec.has_constant() && !std::isfinite(spec.scale_constant)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention.scale_constant is ", ShortestDouble(spec.scale_constant), "; it must be finite"));
  }
  if (spec.scale_clamp < 0 || spec.sharpen_clamp < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("eval.attention.", spec.scale_clamp < 0 ? "scale_clamp" : "sharpen_clamp", " is to a length of ",
                     std::min(spec.scale_clamp, spec.sharpen_clamp), "; it must be at least 0"));
  }
  return absl::OkStatus();
}

std::string_view Name(QkNorm value) { return NameIn(kQkNorms, value); }
std::string_view Name(ScoreScale value) { return NameIn(kScoreScales, value); }
std::string_view Name(Activation value) { return NameIn(kActivations, value); }
std::string_view Name(Normalisation value) { return NameIn(kNormalisations, value); }
std::string_view Name(LogitBias value) { return NameIn(kLogitBiases, value); }
std::string_view Name(ScoreTransform value) { return NameIn(kScoreTransforms, value); }

std::optional<QkNorm> ParseQkNorm(std::string_view name) { return ParseIn(kQkNorms, name); }
std::optional<ScoreScale> ParseScoreScale(std::string_view name) { return ParseIn(kScoreScales, name); }
std::optional<Activation> ParseActivation(std::string_view name) { return ParseIn(kActivations, name); }
std::optional<Normalisation> ParseNormalisation(std::string_view name) { return ParseIn(kNormalisations, name); }
std::optional<LogitBias> ParseLogitBias(std::string_view name) { return ParseIn(kLogitBiases, name); }
std::optional<ScoreTransform> ParseScoreTransform(std::string_view name) { return ParseIn(kScoreTransforms, name); }

std::vector<std::string> QkNormNames() { return NamesOf(kQkNorms); }
std::vector<std::string> ScoreScaleNames() { return NamesOf(kScoreScales); }
std::vector<std::string> ActivationNames() { return NamesOf(kActivations); }
std::vector<std::string> NormalisationNames() { return NamesOf(kNormalisations); }
std::vector<std::string> LogitBiasNames() { return NamesOf(kLogitBiases); }
std::vector<std::string> ScoreTransformNames() { return NamesOf(kScoreTransforms); }

}  // namespace ablate
