// The attention family as plain data: what each field of a member may be, and the table of named members.
// Must not know mathematics, CUDA or jobs: `experiments` and `cli` link this file alone.
// Source: the LSSAR paper (arXiv 2501.13428), SSMax (arXiv 2501.19399), as unified in docs/attention.md.
//
// For one head, query row i (1-based), causal, n = i attended keys, head dimension d:
//   q', k' = RoPE(q), RoPE(k), each divided by its l2 norm if qk_norm = l2
//   x_ij   = c_i <q'_i, k'_j>            c_i by `scale`; `transform` inverted: -x_ij instead; recentred:
//                                        x_ij - (1/n) sum_l x_il over the n attended keys l
//   z_ij   = x_ij + b_i                  b_i by `logit_bias`; with `alibi` also - m_h (i - j), m_h the head's slope
//                                        (arXiv 2108.12409; docs/attention.md). Neither is inverted or re-centred.
//   u_ij   = phi(z_ij)                   `activation`
//   a_ij   = u_ij / sum_j u_ij           `normalisation` l1; u/n for count; u for none
//   y_ij   = max(0, a_ij N - o_i)        only if sharpen_p is set; o_i = sharpen_offset, 0 for the first
//   w_ij   = y_ij^p / sum_j y_ij^p       offset_free_rows rows; N = n, or min(n, sharpen_clamp)
//   out_i  = sum_j w_ij v_j
//
// Permanent names: variants, fields and their values are stored in users' databases.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace ablate {

enum class QkNorm { kNone, kL2 };
enum class ScoreScale {
  kOne,           // "one"
  kInvSqrtD,      // "inv_sqrt_d"
  kLogD,          // "log_d"
  kLogN,          // "log_n"
  kLogDLogN,      // "log_d_log_n"
  kLogNInvSqrtD,  // "log_n_inv_sqrt_d"
  kSsmax,         // "ssmax": s log n / sqrt d, s learned per head and layer
  kSsmaxBias,     // "ssmax_bias": (s log n + b) / sqrt d
  kConstant,      // "constant": scale_constant
  kConstantLogN,  // "constant_log_n": scale_constant log n
};
enum class Activation {
  kExp,          // "exp"
  kSoftplus,     // "softplus"
  kSigmoid,      // "sigmoid"
  kRelu,         // "relu"
  kReluSquared,  // "relu_squared"
  kAbs,          // "abs": |z|, slope 0 at 0; not monotone
  kSquare,       // "square": z^2; not monotone
};
enum class Normalisation { kL1, kCount, kNone };
enum class ScoreTransform {
  kNone,       // "none"
  kInverted,   // "inverted": c_i changes its sign
  kRecentred,  // "recentred": a row's scores less their mean over the keys that it attends, before bias and ALiBi
};
enum class LogitBias {
  kNone,         // "none"
  kNegLogN,      // "neg_log_n": -log n_i
  kNegLogTrain,  // "neg_log_t_train": -log of the training length, at every length
};

// One member of the family. Everything that a kernel needs beside shapes and learned parameters.
struct AttentionSpec {
  QkNorm qk_norm = QkNorm::kNone;
  ScoreScale scale = ScoreScale::kInvSqrtD;
  double scale_constant = 1.0;  // c of ScoreScale::kConstant and kConstantLogN
  Activation activation = Activation::kExp;
  Normalisation normalisation = Normalisation::kL1;
  LogitBias logit_bias = LogitBias::kNone;
  ScoreTransform transform = ScoreTransform::kNone;
  int train_length = 0;             // T_train of LogitBias::kNegLogTrain; unused otherwise
  std::optional<double> sharpen_p;  // any real >= 1; unset: no sharpening
  double sharpen_offset = 1.0;
  int offset_free_rows = 3;
  bool alibi = false;  // set by the model from its kind of positions: no axis of the family, not in the table
  // Of evaluation, not in the table; 0: none. Each bounds n in one place, and acts in rows of more keys only.
  int scale_clamp = 0;    // log n of the scale is log min(n, this); that of the logit bias stays
  int sharpen_clamp = 0;  // N of the sharpening is min(n, this)

  bool has_learned_scale() const { return scale == ScoreScale::kSsmax || scale == ScoreScale::kSsmaxBias; }
  bool has_learned_bias() const { return scale == ScoreScale::kSsmaxBias; }
  // Whether c_i is a function of log n.
  bool has_growing_scale() const {
    return scale == ScoreScale::kLogN || scale == ScoreScale::kLogDLogN || scale == ScoreScale::kLogNInvSqrtD ||
           scale == ScoreScale::kConstantLogN || has_learned_scale();
  }
  bool has_constant() const { return scale == ScoreScale::kConstant || scale == ScoreScale::kConstantLogN; }
  bool operator==(const AttentionSpec&) const = default;
};

// InvalidArgument, with the field's axis name and the reason: sharpening without l1, p < 1 or not finite, negative
// offset, negative offset_free_rows, a constant scale that is not finite, a negative clamp.
absl::Status ValidateAttentionSpec(const AttentionSpec& spec);

struct AttentionVariant {
  std::string_view name;  // "lssar"
  AttentionSpec spec;
  std::string_view summary;  // one line for `--help` and the docs
};

// All named members, in the order of the docs: softmax, ssmax, ssmax_bias, ssmax_fixed, lssa, lssar (p = 15),
// cosine_softmax, softmax_sharpened (p = 15), sigmoid, sigmoid_sharpened (p = 15), relu, relu_squared. A new variant is
// one row here.
const std::vector<AttentionVariant>& AttentionVariants();

// nullptr when there is none of that name.
const AttentionVariant* FindAttentionVariant(std::string_view name);

// Names of enum values, both ways; Parse gives nullopt for an unknown name. *Names lists them in declaration order.
std::string_view Name(QkNorm value);
std::string_view Name(ScoreScale value);
std::string_view Name(Activation value);
std::string_view Name(Normalisation value);
std::string_view Name(LogitBias value);
std::string_view Name(ScoreTransform value);
std::optional<QkNorm> ParseQkNorm(std::string_view name);
std::optional<ScoreScale> ParseScoreScale(std::string_view name);
std::optional<Activation> ParseActivation(std::string_view name);
std::optional<Normalisation> ParseNormalisation(std::string_view name);
std::optional<LogitBias> ParseLogitBias(std::string_view name);
std::optional<ScoreTransform> ParseScoreTransform(std::string_view name);
std::vector<std::string> QkNormNames();
std::vector<std::string> ScoreScaleNames();
std::vector<std::string> ActivationNames();
std::vector<std::string> NormalisationNames();
std::vector<std::string> LogitBiasNames();
std::vector<std::string> ScoreTransformNames();

}  // namespace ablate
