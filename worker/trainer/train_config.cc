#include "worker/trainer/train_config.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "experiments/attention_config.h"
#include "experiments/axes.h"

namespace ablate {

absl::StatusOr<Precision> PrecisionOf(const v1::Configuration& training) {
  ABLATE_RETURN_IF_ERROR(CheckConfiguration(training));
  const std::string precision = ConfigView(training).Text("train.precision");
  if (precision == "fp32") return Precision::kFloat32;
  if (precision == "bf16") return Precision::kBf16;
  return absl::InvalidArgumentError(absl::StrCat("train.precision \"", precision, "\" is unknown"));
}

absl::StatusOr<TrainConfig> TrainConfigFrom(const v1::Configuration& training, int vocabulary) {
  ABLATE_RETURN_IF_ERROR(CheckConfiguration(training));
  const ConfigView view(training);
  TrainConfig config;
  config.json = ToJson(Canonical(training));
  ABLATE_ASSIGN_OR_RETURN(config.precision, PrecisionOf(training));
  config.model.layers = static_cast<int>(view.Integer("model.layers"));
  config.model.width = static_cast<int>(view.Integer("model.width"));
  config.model.heads = static_cast<int>(view.Integer("model.heads"));
  config.model.vocab =
      vocabulary == kVocabularyOfConfiguration ? static_cast<int>(view.Integer("data.mqar.vocabulary")) : vocabulary;
  config.model.train_length = static_cast<int>(view.Integer("train.length"));
  const auto position = ParsePositionKind(view.Text("model.position"));
  if (!position)
    return absl::InvalidArgumentError(absl::StrCat("model.position \"", view.Text("model.position"), "\" is unknown"));
  config.model.position = *position;
  config.model.rope_base = view.Number("model.rope_base");
  ABLATE_ASSIGN_OR_RETURN(config.model.attention, AttentionSpecFrom(view));
  config.model.ssmax_s = static_cast<float>(view.Number("attention.ssmax_init"));
  ABLATE_RETURN_IF_ERROR(ValidateModelConfig(config.model));

  config.schedule = {
      .kind = view.Text("train.schedule") == "constant" ? ScheduleKind::kConstant : ScheduleKind::kCosine,
      .peak = view.Number("train.learning_rate"),
      .min_ratio = view.Number("train.min_learning_rate_ratio"),
      .warmup_steps = view.Integer("train.warmup_steps"),
      .total_steps = view.Integer("train.steps")};
  config.optimizer = {.beta1 = view.Number("train.beta1"),
                      .beta2 = view.Number("train.beta2"),
                      .eps = view.Number("train.epsilon"),
                      .weight_decay = view.Number("train.weight_decay"),
                      .clip_norm = view.Number("train.clip")};
  config.batch = static_cast<int>(view.Integer("train.batch"));
  config.accumulation = static_cast<int>(view.Integer("train.accumulation"));
  config.mqar_pairs = view.Integer("data.mqar.pairs");
  config.mixture = view.Number("data.mixture");
  const std::string prompt = view.Text("data.mixture_prompt");
  const auto form = ParsePasskeyPrompt(prompt);
  if (!form) return absl::InvalidArgumentError(absl::StrCat("data.mixture_prompt \"", prompt, "\" is unknown"));
  config.mixture_prompt = *form;
  if (config.batch % config.accumulation != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.batch ", config.batch, " is no multiple of train.accumulation ", config.accumulation));
  }
  return config;
}

absl::Status CheckPrecision(const TrainConfig& config, const Backend& backend) {
  if (config.precision == backend.precision()) return absl::OkStatus();
  if (config.precision == Precision::kBf16 && backend.device_class() == "cpu") {
    return absl::InvalidArgumentError("train.precision bf16 needs a CUDA device; on the CPU use fp32");
  }
  return absl::InvalidArgumentError(absl::StrCat("the backend on ", backend.device_kind(), " computes in ",
                                                 backend.precision() == Precision::kBf16 ? "bf16" : "fp32",
                                                 ", the configuration asks for the other"));
}

absl::StatusOr<EvalConfig> EvalConfigFrom(const v1::Configuration& training, const v1::Configuration& eval,
                                          int64_t length) {
  ABLATE_RETURN_IF_ERROR(CheckConfiguration(training, eval));
  const ConfigView view(training, eval);
  EvalConfig config;
  ABLATE_ASSIGN_OR_RETURN(config.options.attention, AttentionSpecFrom(view));
  config.options.rope_theta_scale = view.Number("eval.rope_theta_scale");
  config.options.window = static_cast<int>(view.Integer("eval.attention.window"));
  if (view.Text("eval.ntk") == "dynamic") {
    config.options.rope_base = DynamicNtkBase(
        view.Number("model.rope_base"), view.Number("eval.ntk_factor"), length, view.Integer("train.length"),
        static_cast<int>(view.Integer("model.width") / view.Integer("model.heads")));
  }
  config.target_spans = view.Integer("eval.target_spans");
  config.loss_tokens = view.Integer("eval.loss_tokens");
  config.gain = view.Flag("eval.gain");
  config.batch_tokens = view.Integer("eval.batch_tokens");
  config.task = view.Text("eval.task");
  config.passkey.trials = static_cast<int>(view.Integer("eval.passkey.trials"));
  config.passkey.depths = static_cast<int>(view.Integer("eval.passkey.depths"));
  const std::string prompt = view.Text("eval.passkey.prompt");
  const auto form = ParsePasskeyPrompt(prompt);
  if (!form) return absl::InvalidArgumentError(absl::StrCat("eval.passkey.prompt \"", prompt, "\" is unknown"));
  config.passkey.prompt = *form;
  config.mqar.sequences = static_cast<int>(view.Integer("eval.mqar.sequences"));
  config.mqar.pairs =
      static_cast<int>(view.Integer(view.Has("eval.mqar.pairs") ? "eval.mqar.pairs" : "data.mqar.pairs"));
  config.mqar.vocabulary = static_cast<int>(view.Integer("data.mqar.vocabulary"));
  config.attention_tokens = view.Integer("eval.attention.tokens");
  config.summary_tokens = static_cast<int>(view.Integer("eval.summaries.tokens"));
  return config;
}

std::string ModelText(const ModelConfig& config) {
  return absl::StrCat("layers=", config.layers, " width=", config.width, " heads=", config.heads,
                      " vocabulary=", config.vocab);
}

}  // namespace ablate
