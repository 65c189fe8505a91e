// The passes of Model: forward and backward with kept activations, and evaluation without.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/trainer/model_internal.h"

namespace ablate {
namespace {

void SumLosses(const std::vector<float>& losses, const int32_t* targets, BatchLoss* total) {
  for (size_t i = 0; i < losses.size(); ++i) {
    total->loss_sum += losses[i];
    total->targets += targets[i] >= 0 ? 1 : 0;
  }
}

}  // namespace

void AddCounts(const AttentionCounts& counts, AttentionCounts* total) {
  total->zero_rows += counts.zero_rows;
  total->uncontrasted_rows += counts.uncontrasted_rows;
}

Model::Impl::Impl(Backend* backend, ModelConfig config, Recompute recompute)
    : backend(backend),
      config(std::move(config)),
      recompute(recompute),
      table(ParameterTable(this->config)),
      arena_floats(ArenaFloats(table)),
      memory(backend) {}
Model::Impl::~Impl() = default;

absl::StatusOr<float*> Model::Impl::Arena(StateKind kind, int index) {
  if (index < 0 || index >= static_cast<int>(table.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the model has no parameter ", index));
  }
  if (kind != StateKind::kWeights) ABLATE_RETURN_IF_ERROR(EnsureTrainingState());
  switch (kind) {
    case StateKind::kWeights:
      return weights;
    case StateKind::kGradients:
      return gradients;
    case StateKind::kAdamM:
      return adam_m;
    case StateKind::kAdamV:
      return adam_v;
  }
  return absl::InternalError("unknown state kind");
}

absl::Status Model::Impl::CheckBatch(const int32_t* tokens, const int32_t* targets, int B, int T,
                                     const AttentionSpec& spec) const {
  if (B < 1 || T < 1)
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", B, " sequences of ", T, " tokens is empty"));
  const int64_t N = int64_t{B} * T;
  if (N * 4 * config.width > (int64_t{1} << 40) || N > INT32_MAX / 4) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", B, " sequences of ", T, " tokens is too large"));
  }
  if (config.position == PositionKind::kLearned && T > config.train_length) {
    return absl::InvalidArgumentError(absl::StrCat("learned positions end at the training length ", config.train_length,
                                                   "; this sequence has ", T, " tokens"));
  }
  if ((spec.has_learned_scale() && !config.attention.has_learned_scale()) ||
      (spec.has_learned_bias() && !config.attention.has_learned_bias())) {
    return absl::InvalidArgumentError(absl::StrCat("the attention scale ", std::string(Name(spec.scale)),
                                                   " needs learned parameters that this model was not trained with"));
  }
  for (int64_t i = 0; i < N; ++i) {
    const int32_t target = targets == nullptr ? -1 : targets[i];
    if (tokens[i] < 0 || tokens[i] >= config.vocab || target < -1 || target >= config.vocab) {
      return absl::InvalidArgumentError(absl::StrCat("token ", tokens[i], " with target ", target, " at position ",
                                                     i % T, " is outside the vocabulary of ", config.vocab));
    }
  }
  return absl::OkStatus();
}

float* Model::Impl::Parameter(float* arena, const char* name) const {
  for (const ParameterInfo& info : table) {
    if (info.name == name) return arena + info.offset;
  }
  return nullptr;
}

LayerParameters Model::Impl::Layer(float* arena, int layer) const {
  auto find = [&](const char* name) { return Parameter(arena, absl::StrCat("h", layer, ".", name).c_str()); };
  return {find("ln1.w"),   find("ln1.b"),  find("qkv.w"),    find("qkv.b"),   find("ssmax.s"),
          find("ssmax.b"), find("proj.w"), find("proj.b"),   find("ln2.w"),   find("ln2.b"),
          find("fc.w"),    find("fc.b"),   find("fcproj.w"), find("fcproj.b")};
}

void Model::Impl::WriteRopeTable(float* cos, float* sin, int T, double base) {
  const int D = config.head_dim(), half = D / 2;
  std::vector<float> host_cos(int64_t{T} * half), host_sin(int64_t{T} * half);
  for (int k = 0; k < half; ++k) {
    const double frequency = std::pow(base, -2.0 * k / D);
    for (int t = 0; t < T; ++t) {
      host_cos[int64_t{t} * half + k] = static_cast<float>(std::cos(t * frequency));
      host_sin[int64_t{t} * half + k] = static_cast<float>(std::sin(t * frequency));
    }
  }
  backend->CopyToDevice(cos, host_cos.data(), sizeof(float) * host_cos.size());
  backend->CopyToDevice(sin, host_sin.data(), sizeof(float) * host_sin.size());
}

void Model::Impl::Embed(const int32_t* tokens, const int32_t* positions, Element* x, Element* scratch, int rows) {
  const int C = config.width;
  backend->EmbeddingForward(tokens, Parameter(weights, "wte"), x, rows, C);
  if (config.position == PositionKind::kLearned) {
    backend->EmbeddingForward(positions, Parameter(weights, "wpe"), scratch, rows, C);
    backend->Add(x, scratch, x, int64_t{rows} * C);
  }
}

absl::StatusOr<BatchLoss> Model::Impl::ForwardBackward(const int32_t* tokens, const int32_t* targets, int B, int T,
                                                       double grad_scale) {
  const int together = TrainingGroup(B, T);
  ABLATE_RETURN_IF_ERROR(EnsureActivations(together, T));
  BatchLoss result;
  for (int b = 0; b < B; b += together) {
    const int64_t first = int64_t{b} * T;
    ABLATE_RETURN_IF_ERROR(Pass(tokens + first, targets + first, std::min(together, B - b), T, grad_scale, &result));
  }
  return result;
}

absl::Status Model::Impl::Pass(const int32_t* tokens, const int32_t* targets, int B, int T, double grad_scale,
                               BatchLoss* result) {
  Activations& a = *activations;
  const int N = B * T;
  const auto scale = static_cast<float>(grad_scale);
  // Another model on this backend must not meet this one's recordings.
  static std::atomic<int64_t> next_key{0};
  const auto [key, is_new] = a.pass_keys.try_emplace({B, scale}, 0);
  if (is_new) key->second = next_key++;
  backend->CopyToDevice(a.tokens, tokens, sizeof(int32_t) * N);
  backend->CopyToDevice(a.targets, targets, sizeof(int32_t) * N);
  backend->Repeat(key->second, [this, B, T, scale] { PassOps(B, T, scale); });
  std::vector<float> losses(N);
  backend->CopyToHost(losses.data(), a.losses, sizeof(float) * N);
  AddCounts(backend->TakeAttentionCounts(), &result->counts);
  ABLATE_RETURN_IF_ERROR(backend->Synchronize());
  SumLosses(losses, targets, result);
  return absl::OkStatus();
}

void Model::Impl::LayerForward(int layer, const AttentionShape& shape, bool again) {
  Activations& a = *activations;
  const LayerActivations& x = a.layers[layer];
  const LayerParameters w = Layer(weights, layer);
  const AttentionSpec& spec = config.attention;
  const int C = config.width, N = shape.B * shape.T;
  const int64_t NC = int64_t{N} * C;
  backend->LayerNormForward(x.residual, w.ln1_w, w.ln1_b, x.ln1, x.mean1, x.rstd1, N, C);
  backend->LinearForward(x.ln1, w.qkv_w, w.qkv_b, a.qkv, N, C, 3 * C);
  backend->QkvForward(a.qkv, a.cos, a.sin, spec.qk_norm, x.q, x.k, x.v, x.q_norm, x.k_norm, shape);
  if (!again) {
    backend->AttentionForward(spec, shape, x.q, x.k, x.v, w.ssmax_s, w.ssmax_b, x.attention, x.row_stats);
  }
  backend->LinearForward(x.attention, w.proj_w, w.proj_b, a.d_narrow, N, C, C);
  backend->Add(x.residual, a.d_narrow, x.middle, NC);
  backend->LayerNormForward(x.middle, w.ln2_w, w.ln2_b, x.ln2, x.mean2, x.rstd2, N, C);
  backend->LinearForward(x.ln2, w.fc_w, w.fc_b, x.fc, N, C, 4 * C);
  backend->GeluForward(x.fc, x.gelu, 4 * NC);
}

// From the gradient of the block's output in d_residual to that of its input.
void Model::Impl::LayerBackward(int layer, const AttentionShape& shape) {
  Activations& a = *activations;
  const LayerActivations& x = a.layers[layer];
  const LayerParameters w = Layer(weights, layer);
  const LayerParameters d = Layer(gradients, layer);
  const AttentionSpec& spec = config.attention;
  const int C = config.width, N = shape.B * shape.T;
  const int64_t NC = int64_t{N} * C;
  // The last layer's activations are still there.
  if (recompute == Recompute::kBlocks && layer + 1 < config.layers) LayerForward(layer, shape, /*again=*/true);
  backend->LinearBackward(a.d_residual, x.gelu, w.fcproj_w, a.wide, d.fcproj_w, d.fcproj_b, N, 4 * C, C);
  backend->GeluBackward(a.wide, x.fc, a.wide, 4 * NC);
  backend->LinearBackward(a.wide, x.ln2, w.fc_w, a.d_narrow, d.fc_w, d.fc_b, N, C, 4 * C);
  backend->LayerNormBackward(a.d_narrow, x.middle, w.ln2_w, x.mean2, x.rstd2, a.d_residual, d.ln2_w, d.ln2_b, N, C);
  backend->LinearBackward(a.d_residual, x.attention, w.proj_w, a.d_narrow, d.proj_w, d.proj_b, N, C, C);
  backend->AttentionBackward(spec, shape, x.q, x.k, x.v, w.ssmax_s, w.ssmax_b, x.attention, a.d_narrow, x.row_stats,
                             a.dq, a.dk, a.dv, d.ssmax_s, d.ssmax_b);
  backend->QkvBackward(a.dq, a.dk, a.dv, x.q, x.k, a.cos, a.sin, spec.qk_norm, x.q_norm, x.k_norm, a.qkv, shape);
  backend->LinearBackward(a.qkv, x.ln1, w.qkv_w, a.d_narrow, d.qkv_w, d.qkv_b, N, C, 3 * C);
  backend->LayerNormBackward(a.d_narrow, x.residual, w.ln1_w, x.mean1, x.rstd1, a.d_residual, d.ln1_w, d.ln1_b, N, C);
}

void Model::Impl::PassOps(int B, int T, float grad_scale) {
  Activations& a = *activations;
  const int C = config.width, V = config.vocab, N = B * T;
  const int64_t NC = int64_t{N} * C;
  const AttentionShape shape{B, T, config.heads, config.head_dim(), 0};
  Embed(a.tokens, a.positions, a.layers[0].residual, a.d_narrow, N);
  for (int l = 0; l < config.layers; ++l) {
    const LayerActivations& x = a.layers[l];
    const LayerParameters w = Layer(weights, l);
    LayerForward(l, shape, /*again=*/false);
    backend->LinearForward(x.gelu, w.fcproj_w, w.fcproj_b, a.d_narrow, N, 4 * C, C);
    backend->Add(x.middle, a.d_narrow, l + 1 < config.layers ? a.layers[l + 1].residual : a.final_residual, NC);
  }
  const float* lnf_w = Parameter(weights, "lnf.w");
  backend->LayerNormForward(a.final_residual, lnf_w, Parameter(weights, "lnf.b"), a.lnf, a.meanf, a.rstdf, N, C);

  // The head, forward and backward, a chunk of rows at a time: logits of all rows are never held when V is large.
  const float* wte = Parameter(weights, "wte");
  float* d_wte = Parameter(gradients, "wte");
  const int64_t chunk = LogitRows(N);
  for (int64_t row = 0; row < N; row += chunk) {
    const int rows = static_cast<int>(std::min(chunk, N - row));
    const Element* lnf = backend->At(a.lnf, row * C);
    backend->LogitsForward(lnf, wte, a.logits, rows, C, V);
    backend->CrossEntropyForwardBackward(a.logits, a.targets + row, a.losses + row, grad_scale, rows, V);
    backend->LogitsBackward(a.logits, lnf, wte, backend->At(a.d_narrow, row * C), d_wte, rows, C, V);
  }

  backend->Zero(a.d_residual, NC * backend->activation_bytes());
  backend->LayerNormBackward(a.d_narrow, a.final_residual, lnf_w, a.meanf, a.rstdf, a.d_residual,
                             Parameter(gradients, "lnf.w"), Parameter(gradients, "lnf.b"), N, C);
  for (int l = config.layers - 1; l >= 0; --l) LayerBackward(l, shape);
  backend->EmbeddingBackward(a.tokens, a.d_residual, d_wte, N, C, V);
  if (config.position == PositionKind::kLearned) {
    backend->EmbeddingBackward(a.positions, a.d_residual, Parameter(gradients, "wpe"), N, C, config.train_length);
  }
}

absl::Status Model::Impl::EvalLayers(const AttentionSpec& spec, int first, const AttentionShape& shape,
                                     const LayerHook& hook) {
  const EvalArrays& e = *eval_arrays;
  const int C = config.width, n = shape.B * shape.T;
  const int64_t wide_rows = std::min(int64_t{e.group} * e.T, EvalRows());
  Embed(e.tokens, e.positions, e.x, e.narrow, n);
  for (int l = 0; l < config.layers; ++l) {
    const LayerParameters w = Layer(weights, l);
    Element* attention = e.qkv;  // free again once it is split
    backend->LayerNormForward(e.x, w.ln1_w, w.ln1_b, e.narrow, e.mean, e.rstd, n, C);
    backend->LinearForward(e.narrow, w.qkv_w, w.qkv_b, e.qkv, n, C, 3 * C);
    backend->QkvForward(e.qkv, e.cos, e.sin, spec.qk_norm, e.q, e.k, e.v, e.q_norm, e.k_norm, shape);
    if (hook) ABLATE_RETURN_IF_ERROR(hook(l, first, shape));
    backend->AttentionForward(spec, shape, e.q, e.k, e.v, w.ssmax_s, w.ssmax_b, attention, nullptr);
    backend->LinearForward(attention, w.proj_w, w.proj_b, e.narrow, n, C, C);
    backend->Add(e.x, e.narrow, e.x, int64_t{n} * C);
    backend->LayerNormForward(e.x, w.ln2_w, w.ln2_b, e.narrow, e.mean, e.rstd, n, C);
    for (int64_t row = 0; row < n; row += wide_rows) {
      const int part = static_cast<int>(std::min<int64_t>(wide_rows, n - row));
      Element* rows_of_part = backend->At(e.narrow, row * C);
      backend->LinearForward(rows_of_part, w.fc_w, w.fc_b, e.wide, part, C, 4 * C);
      backend->GeluForward(e.wide, e.wide, int64_t{part} * 4 * C);
      backend->LinearForward(e.wide, w.fcproj_w, w.fcproj_b, rows_of_part, part, 4 * C, C);
    }
    backend->Add(e.x, e.narrow, e.x, int64_t{n} * C);
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchLoss> Model::Impl::Evaluate(const int32_t* tokens, const int32_t* targets, int B, int T,
                                                const EvalSetting& setting, float* losses, int32_t* likeliest,
                                                const LayerHook& hook) {
  const int C = config.width, V = config.vocab, group = EvaluationGroup(B, T);
  ABLATE_RETURN_IF_ERROR(EnsureEvalArrays(group, T, setting.spec.qk_norm == QkNorm::kL2));
  const EvalArrays& e = *eval_arrays;
  if (config.position == PositionKind::kRope) WriteRopeTable(e.cos, e.sin, T, setting.rope_base);

  BatchLoss result;
  std::vector<float> host_losses;
  for (int b0 = 0; b0 < B; b0 += group) {
    const int sequences = std::min(group, B - b0), n = sequences * T;
    const int64_t first = int64_t{b0} * T;
    backend->CopyToDevice(e.tokens, tokens + first, sizeof(int32_t) * n);
    backend->CopyToDevice(e.targets, targets + first, sizeof(int32_t) * n);
    ABLATE_RETURN_IF_ERROR(
        EvalLayers(setting.spec, b0, {sequences, T, config.heads, config.head_dim(), setting.window}, hook));
    backend->LayerNormForward(e.x, Parameter(weights, "lnf.w"), Parameter(weights, "lnf.b"), e.narrow, e.mean, e.rstd,
                              n, C);
    const int64_t chunk = LogitRows(int64_t{group} * T);
    for (int64_t row = 0; row < n; row += chunk) {
      const int part = static_cast<int>(std::min<int64_t>(chunk, n - row));
      backend->LogitsForward(backend->At(e.narrow, row * C), Parameter(weights, "wte"), e.logits, part, C, V);
      backend->CrossEntropyForward(e.logits, e.targets + row, e.losses + row, part, V);
      // In the place of the targets, which nothing reads any more.
      if (likeliest != nullptr) backend->ArgMax(e.logits, e.targets + row, part, V);
    }
    host_losses.resize(n);
    backend->CopyToHost(host_losses.data(), e.losses, sizeof(float) * n);
    if (likeliest != nullptr) backend->CopyToHost(likeliest + first, e.targets, sizeof(int32_t) * n);
    ABLATE_RETURN_IF_ERROR(backend->Synchronize());
    SumLosses(host_losses, targets + first, &result);
    if (losses != nullptr) std::copy(host_losses.begin(), host_losses.end(), losses + first);
  }
  result.counts = backend->TakeAttentionCounts();
  ABLATE_RETURN_IF_ERROR(backend->Synchronize());
  return result;
}

}  // namespace ablate
