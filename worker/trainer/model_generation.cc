// Model::Generate: greedy generation with a cache of keys and values. Every array stays on the device from the prompts
// to the last token.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/trainer/model_internal.h"

namespace ablate {

absl::Status Model::Impl::EnsureGenerationArrays(int B, int length) {
  if (generation_arrays != nullptr && generation_arrays->B >= B && generation_arrays->length >= length) {
    return absl::OkStatus();
  }
  generation_arrays.reset();
  auto g = std::make_unique<GenerationArrays>(&memory);
  g->B = B;
  g->length = length;
  const int64_t C = config.width, rows = B;
  struct Arena& arena = g->arena;
  g->keys.resize(config.layers);
  g->values.resize(config.layers);
  for (int l = 0; l < config.layers; ++l) {
    arena.Take(&g->keys[l], rows * length * C);
    arena.Take(&g->values[l], rows * length * C);
  }
  for (Element** p : {&g->x, &g->narrow, &g->attention}) arena.Take(p, rows * C);
  arena.Take(&g->qkv, 3 * rows * C);
  arena.Take(&g->wide, 4 * rows * C);
  arena.Take(&g->logits, LogitRows(rows) * backend->LogitStride(config.vocab));
  arena.Take(&g->mean, rows);
  arena.Take(&g->rstd, rows);
  arena.Take(&g->losses, rows * length);
  for (int32_t** p : {&g->tokens, &g->lengths, &g->positions}) arena.Take(p, rows * length);
  if (config.position == PositionKind::kRope) {
    arena.Take(&g->cos, int64_t{length} * config.head_dim() / 2);
    arena.Take(&g->sin, int64_t{length} * config.head_dim() / 2);
  }
  ABLATE_RETURN_IF_ERROR(arena.Commit());
  generation_arrays = std::move(g);
  return absl::OkStatus();
}

absl::Status Model::Impl::Prefill(const Prompts& prompts, int length, const EvalSetting& setting) {
  const GenerationArrays& g = *generation_arrays;
  const int C = config.width, T = prompts.T, group = EvaluationGroup(prompts.B, length);
  ABLATE_RETURN_IF_ERROR(EnsureEvalArrays(group, T, setting.spec.qk_norm == QkNorm::kL2));
  const EvalArrays& e = *eval_arrays;
  if (config.position == PositionKind::kRope) WriteRopeTable(e.cos, e.sin, T, setting.rope_base);
  const auto cache = [&](int layer, int first, const AttentionShape& shape) {
    const int64_t at = int64_t{first} * g.length * C;
    backend->CacheKeyValue(e.qkv, backend->At(g.keys[layer], at), backend->At(g.values[layer], at), shape, g.length);
    return absl::OkStatus();
  };
  for (int first = 0; first < prompts.B; first += group) {
    const int sequences = std::min(group, prompts.B - first);
    backend->CopyToDevice(e.tokens, prompts.tokens + int64_t{first} * T, sizeof(int32_t) * sequences * T);
    ABLATE_RETURN_IF_ERROR(
        EvalLayers(setting.spec, first, {sequences, T, config.heads, config.head_dim(), setting.window}, cache));
    // Of each sequence the last row alone goes on.
    for (int b = 0; b < sequences; ++b) {
      const int last = (prompts.lengths == nullptr ? T : prompts.lengths[first + b]) - 1;
      backend->LayerNormForward(backend->At(e.x, (int64_t{b} * T + last) * C), Parameter(weights, "lnf.w"),
                                Parameter(weights, "lnf.b"), backend->At(g.narrow, int64_t{first + b} * C), g.mean,
                                g.rstd, 1, C);
    }
  }
  return absl::OkStatus();
}

void Model::Impl::PickTokens(int step, int B) {
  const GenerationArrays& g = *generation_arrays;
  const int C = config.width, V = config.vocab;
  const auto chunk = static_cast<int>(LogitRows(g.B));
  for (int row = 0; row < B; row += chunk) {
    const int part = std::min(chunk, B - row);
    int32_t* const tokens = g.tokens + int64_t{step} * B + row;
    backend->LogitsForward(backend->At(g.narrow, int64_t{row} * C), Parameter(weights, "wte"), g.logits, part, C, V);
    backend->ArgMax(g.logits, tokens, part, V);
    backend->CrossEntropyForward(g.logits, tokens, g.losses + int64_t{step} * B + row, part, V);
  }
}

void Model::Impl::DecodeStep(int step, int B, int T, const EvalSetting& setting) {
  const GenerationArrays& g = *generation_arrays;
  const int C = config.width;
  const AttentionShape shape{B, T, config.heads, config.head_dim(), setting.window};
  const int64_t at = int64_t{step} * B;
  Embed(g.tokens + at - B, g.positions + at, g.x, g.narrow, B);
  for (int l = 0; l < config.layers; ++l) {
    const LayerParameters w = Layer(weights, l);
    backend->LayerNormForward(g.x, w.ln1_w, w.ln1_b, g.narrow, g.mean, g.rstd, B, C);
    backend->LinearForward(g.narrow, w.qkv_w, w.qkv_b, g.qkv, B, C, 3 * C);
    backend->AttentionDecode(setting.spec, shape, g.length, g.lengths + at, g.qkv, g.cos, g.sin, w.ssmax_s, w.ssmax_b,
                             g.keys[l], g.values[l], g.attention);
    backend->LinearForward(g.attention, w.proj_w, w.proj_b, g.narrow, B, C, C);
    backend->Add(g.x, g.narrow, g.x, int64_t{B} * C);
    backend->LayerNormForward(g.x, w.ln2_w, w.ln2_b, g.narrow, g.mean, g.rstd, B, C);
    backend->LinearForward(g.narrow, w.fc_w, w.fc_b, g.wide, B, C, 4 * C);
    backend->GeluForward(g.wide, g.wide, int64_t{B} * 4 * C);
    backend->LinearForward(g.wide, w.fcproj_w, w.fcproj_b, g.narrow, B, 4 * C, C);
    backend->Add(g.x, g.narrow, g.x, int64_t{B} * C);
  }
  backend->LayerNormForward(g.x, Parameter(weights, "lnf.w"), Parameter(weights, "lnf.b"), g.narrow, g.mean, g.rstd, B,
                            C);
}

absl::StatusOr<Generation> Model::Generate(const Prompts& prompts, int new_tokens, int length,
                                           const EvalOptions& options) {
  Impl& m = *impl_;
  const auto [tokens, lengths, B, T] = prompts;
  ABLATE_ASSIGN_OR_RETURN(const EvalSetting setting, m.Setting(options));
  ABLATE_RETURN_IF_ERROR(m.CheckBatch(tokens, nullptr, B, T, setting.spec));
  if (new_tokens < 1 || new_tokens > length - T) {
    return absl::InvalidArgumentError(absl::StrCat("a prompt of ", T, " tokens and ", new_tokens,
                                                   " new ones do not fit in the evaluation's length of ", length));
  }
  if (m.config.position == PositionKind::kLearned && length > m.config.train_length) {
    return absl::InvalidArgumentError(absl::StrCat("learned positions end at the training length ",
                                                   m.config.train_length, "; generation is of ", length, " tokens"));
  }
  // What each step's tokens see: positions from 0, and as many keys as there are tokens up to it.
  std::vector<int32_t> keys(static_cast<size_t>(new_tokens) * B), positions(keys.size());
  for (int b = 0; b < B; ++b) {
    const int prompt = lengths == nullptr ? T : lengths[b];
    if (prompt < 1 || prompt > T) {
      return absl::InvalidArgumentError(absl::StrCat("prompt ", b, " has ", prompt, " tokens in a row of ", T));
    }
    for (int step = 0; step < new_tokens; ++step) {
      keys[static_cast<size_t>(step) * B + b] = prompt + step;
      positions[static_cast<size_t>(step) * B + b] = prompt + step - 1;
    }
  }
  ABLATE_RETURN_IF_ERROR(m.EnsureGenerationArrays(B, length));
  const GenerationArrays& g = *m.generation_arrays;
  const int64_t count = int64_t{new_tokens} * B;
  m.backend->CopyToDevice(g.lengths, keys.data(), sizeof(int32_t) * count);
  m.backend->CopyToDevice(g.positions, positions.data(), sizeof(int32_t) * count);
  if (m.config.position == PositionKind::kRope) m.WriteRopeTable(g.cos, g.sin, T + new_tokens, setting.rope_base);
  ABLATE_RETURN_IF_ERROR(m.Prefill(prompts, length, setting));
  m.PickTokens(0, B);
  for (int step = 1; step < new_tokens; ++step) {
    m.DecodeStep(step, B, T + step, setting);
    m.PickTokens(step, B);
  }
  std::vector<int32_t> by_step(count);
  std::vector<float> losses(count);
  m.backend->CopyToHost(by_step.data(), g.tokens, sizeof(int32_t) * count);
  m.backend->CopyToHost(losses.data(), g.losses, sizeof(float) * count);
  // The prompts' special rows are nobody's: the next evaluation must not find them.
  m.backend->TakeAttentionCounts();
  ABLATE_RETURN_IF_ERROR(m.backend->Synchronize());
  Generation result;
  result.tokens.resize(count);
  result.losses.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = i % B * new_tokens + i / B;
    result.tokens[to] = by_step[i];
    result.losses[to] = losses[i];
  }
  return result;
}

}  // namespace ablate
