#include "worker/trainer/model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/trainer/model_internal.h"
#include "worker/trainer/philox.h"

namespace ablate {

double DynamicNtkBase(double base, double factor, int64_t length, int64_t train_length, int head_dim) {
  if (length <= train_length || head_dim <= 2) return base;
  const double ratio = static_cast<double>(length) / static_cast<double>(train_length);
  const double d = head_dim;
  return base * std::pow(factor * ratio - (factor - 1.0), d / (d - 2.0));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

absl::StatusOr<std::unique_ptr<Model>> Model::Create(Backend* backend, ModelConfig config, Recompute recompute) {
  config.attention.train_length = config.train_length;
  config.attention.alibi = config.position == PositionKind::kAlibi;
  ABLATE_RETURN_IF_ERROR(ValidateModelConfig(config));
  ABLATE_RETURN_IF_ERROR(backend->CheckHeadDim(config.head_dim()));
  auto impl = std::make_unique<Impl>(backend, std::move(config), recompute);
  ABLATE_ASSIGN_OR_RETURN(void* weights,
                          impl->memory.Allocate(impl->arena_floats * static_cast<int64_t>(sizeof(float))));
  impl->weights = static_cast<float*>(weights);
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

const ModelConfig& Model::config() const { return impl_->config; }
const std::vector<ParameterInfo>& Model::parameters() const { return impl_->table; }
int64_t Model::step() const { return impl_->step; }
void Model::set_step(int64_t step) { impl_->step = step; }
int64_t Model::allocated_bytes() const { return impl_->memory.current_bytes(); }
int64_t Model::peak_bytes() const { return impl_->memory.peak_bytes(); }
int64_t Model::LogitBytes(int64_t rows) const {
  const Backend& backend = *impl_->backend;
  return impl_->LogitRows(rows) * backend.LogitStride(impl_->config.vocab) * backend.activation_bytes();
}

int Model::TrainingGroup(int B, int T) const { return impl_->TrainingGroup(B, T); }
int Model::EvaluationGroup(int B, int T) const { return impl_->EvaluationGroup(B, T); }

int Model::FindParameter(std::string_view name) const {
  for (size_t i = 0; i < impl_->table.size(); ++i) {
    if (impl_->table[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Model::InitWeights(uint64_t seed) {
  std::vector<float> host;
  for (size_t i = 0; i < impl_->table.size(); ++i) {
    const ParameterInfo& info = impl_->table[i];
    host.assign(info.count, info.init_value);
    if (info.init_std > 0) {
      const PhiloxStream stream(seed, "init/" + info.name);
      for (int64_t e = 0; e < info.count; ++e) host[e] = static_cast<float>(info.init_std * stream.Normal(e));
    }
    ABLATE_RETURN_IF_ERROR(WriteState(StateKind::kWeights, static_cast<int>(i), host.data()));
  }
  impl_->step = 0;
  if (impl_->adam_m != nullptr) {
    impl_->backend->Zero(impl_->adam_m, sizeof(float) * impl_->arena_floats);
    impl_->backend->Zero(impl_->adam_v, sizeof(float) * impl_->arena_floats);
    impl_->backend->Zero(impl_->gradients, sizeof(float) * impl_->arena_floats);
  }
  return impl_->backend->Synchronize();
}

absl::Status Model::ReserveTraining(int B, int T) {
  ABLATE_RETURN_IF_ERROR(impl_->EnsureTrainingState());
  return impl_->EnsureActivations(impl_->TrainingGroup(B, T), T);
}

absl::Status Model::ReserveEvaluation(EvaluationPass pass, int B, int T, const EvalOptions& options) {
  const AttentionSpec& spec = options.attention ? *options.attention : impl_->config.attention;
  const int group = impl_->EvaluationGroup(B, T);
  ABLATE_RETURN_IF_ERROR(impl_->EnsureEvalArrays(group, T, spec.qk_norm == QkNorm::kL2));
  switch (pass) {
    case EvaluationPass::kLosses:
      return absl::OkStatus();
    case EvaluationPass::kGeneration:
      return impl_->EnsureGenerationArrays(B, T);
    case EvaluationPass::kStatistics:
      return impl_->EnsureInspectionArrays(group, T, /*maps=*/false);
    case EvaluationPass::kMaps:
      return impl_->EnsureInspectionArrays(group, T, /*maps=*/true);
  }
  return absl::InternalError("unknown pass of evaluation");
}

absl::Status Model::ZeroGradients() {
  ABLATE_RETURN_IF_ERROR(impl_->EnsureTrainingState());
  impl_->backend->Zero(impl_->gradients, sizeof(float) * impl_->arena_floats);
  return impl_->backend->Synchronize();
}

absl::StatusOr<double> Model::GradNorm() {
  ABLATE_RETURN_IF_ERROR(impl_->EnsureTrainingState());
  const double squares = impl_->backend->SumOfSquares(impl_->gradients, impl_->arena_floats);
  ABLATE_RETURN_IF_ERROR(impl_->backend->Synchronize());
  return std::sqrt(squares);
}

absl::StatusOr<double> Model::AdamWStep(const OptimizerParams& params) {
  ABLATE_ASSIGN_OR_RETURN(const double norm, GradNorm());
  if (std::isfinite(norm)) {
    ++impl_->step;
    AdamWParams adam;
    adam.learning_rate = static_cast<float>(params.learning_rate);
    adam.beta1 = static_cast<float>(params.beta1);
    adam.beta2 = static_cast<float>(params.beta2);
    adam.eps = static_cast<float>(params.eps);
    adam.step = impl_->step;
    adam.gradient_scale = params.clip_norm > 0 ? static_cast<float>(std::min(1.0, params.clip_norm / norm)) : 1.0f;
    const std::vector<ParameterInfo>& table = impl_->table;
    // Neighbours with the same decay are one call: biases and layer norms lie side by side.
    for (size_t i = 0; i < table.size();) {
      size_t j = i + 1;
      while (j < table.size() && table[j].decay == table[i].decay) ++j;
      const int64_t begin = table[i].offset, end = j < table.size() ? table[j].offset : impl_->arena_floats;
      adam.weight_decay = table[i].decay ? static_cast<float>(params.weight_decay) : 0.0f;
      impl_->backend->AdamW(impl_->weights + begin, impl_->gradients + begin, impl_->adam_m + begin,
                            impl_->adam_v + begin, end - begin, adam);
      i = j;
    }
  }
  ABLATE_RETURN_IF_ERROR(ZeroGradients());
  return norm;
}

absl::Status Model::ReadState(StateKind kind, int index, float* to_host) {
  ABLATE_ASSIGN_OR_RETURN(float* arena, impl_->Arena(kind, index));
  const ParameterInfo& info = impl_->table[index];
  impl_->backend->CopyToHost(to_host, arena + info.offset, sizeof(float) * info.count);
  return impl_->backend->Synchronize();
}

absl::Status Model::WriteState(StateKind kind, int index, const float* from_host) {
  ABLATE_ASSIGN_OR_RETURN(float* arena, impl_->Arena(kind, index));
  const ParameterInfo& info = impl_->table[index];
  impl_->backend->CopyToDevice(arena + info.offset, from_host, sizeof(float) * info.count);
  return impl_->backend->Synchronize();
}

void Model::ReleaseTrainingState() {
  impl_->memory.Free(std::exchange(impl_->gradients, nullptr));
  impl_->memory.Free(std::exchange(impl_->adam_m, nullptr));
  impl_->memory.Free(std::exchange(impl_->adam_v, nullptr));
  impl_->activations.reset();
}

void Model::ReleaseEvaluationArrays() {
  impl_->eval_arrays.reset();
  impl_->generation_arrays.reset();
  impl_->inspection_arrays.reset();
}

absl::StatusOr<BatchLoss> Model::ForwardBackward(const int32_t* tokens, const int32_t* targets, int B, int T,
                                                 double grad_scale) {
  ABLATE_RETURN_IF_ERROR(impl_->CheckBatch(tokens, targets, B, T, impl_->config.attention));
  ABLATE_RETURN_IF_ERROR(impl_->EnsureTrainingState());
  return impl_->ForwardBackward(tokens, targets, B, T, grad_scale);
}

absl::StatusOr<EvalSetting> Model::Impl::Setting(const EvalOptions& options) const {
  EvalSetting setting{.spec = options.attention.value_or(config.attention), .window = options.window};
  setting.spec.train_length = config.train_length;
  setting.spec.alibi = config.attention.alibi;
  ABLATE_RETURN_IF_ERROR(ValidateAttentionSpec(setting.spec));
  if (options.window < 0) return absl::InvalidArgumentError("the attention window must not be negative");
  setting.rope_base = options.rope_base.value_or(config.rope_base) * options.rope_theta_scale;
  if (!(setting.rope_base > 0) || !std::isfinite(setting.rope_base)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the RoPE base at evaluation is ", setting.rope_base, "; it must be finite and above 0"));
  }
  return setting;
}

absl::StatusOr<BatchLoss> Model::Evaluate(const int32_t* tokens, const int32_t* targets, int B, int T,
                                          const EvalOptions& options, float* losses, int32_t* likeliest) {
  ABLATE_ASSIGN_OR_RETURN(const EvalSetting setting, impl_->Setting(options));
  ABLATE_RETURN_IF_ERROR(impl_->CheckBatch(tokens, targets, B, T, setting.spec));
  return impl_->Evaluate(tokens, targets, B, T, setting, losses, likeliest);
}

}  // namespace ablate
