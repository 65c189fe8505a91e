// Generation with a cache of keys and values against whole passes over all tokens so far, for every member of the
// family: on the CPU and on the CUDA backend's emulator.
#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/variants.h"
#include "worker/trainer/generation_testing.h"
#include "worker/trainer/model.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

// Each token from a pass over the whole text so far: a prompt is passed without reading the cache.
Generation Recomputed(Model* model, std::vector<std::vector<int32_t>> texts, int new_tokens, int length,
                      const EvalOptions& options) {
  const int B = static_cast<int>(texts.size());
  Generation all;
  all.tokens.resize(static_cast<size_t>(B) * new_tokens);
  all.losses.resize(all.tokens.size());
  for (int step = 0; step < new_tokens; ++step) {
    for (int b = 0; b < B; ++b) {
      auto& text = texts[static_cast<size_t>(b)];
      const Generation one = Generated(model, {text}, 1, length, options);
      all.tokens[static_cast<size_t>(b * new_tokens + step)] = one.tokens[0];
      all.losses[static_cast<size_t>(b * new_tokens + step)] = one.losses[0];
      text.push_back(one.tokens[0]);
    }
  }
  return all;
}

void ExpectSame(const Generation& cached, const Generation& whole) {
  EXPECT_EQ(cached.tokens, whole.tokens);
  ASSERT_EQ(cached.losses.size(), whole.losses.size());
  for (size_t i = 0; i < cached.losses.size(); ++i) EXPECT_NEAR(cached.losses[i], whole.losses[i], 2e-4) << i;
}

void CompareEveryVariant(Backend* backend, ModelConfig config, int prompt, int new_tokens) {
  const int length = prompt + new_tokens;
  ASSERT_GT(length, config.train_length);
  for (const AttentionVariant& variant : AttentionVariants()) {
    config.attention = variant.spec;
    const auto model = RandomModel(backend, config);
    std::set<int32_t> seen[2];
    for (const bool ntk : {false, true}) {
      SCOPED_TRACE(absl::StrCat(std::string(variant.name), ntk ? " with NTK" : ""));
      EvalOptions options;
      if (ntk) {
        options.rope_base = DynamicNtkBase(config.rope_base, 1, length, config.train_length, config.head_dim());
        ASSERT_GT(*options.rope_base, config.rope_base);
      }
      const auto texts = RandomTexts(2, prompt, config.vocab);
      const Generation cached = Generated(model.get(), texts, new_tokens, length, options);
      ExpectSame(cached, Recomputed(model.get(), texts, new_tokens, length, options));
      seen[ntk] = {cached.tokens.begin(), cached.tokens.end()};
    }
    EXPECT_GT(seen[0].size() + seen[1].size(), 2u) << variant.name << ": one token over and over shows nothing";
  }
}

TEST(ModelGenerationTest, IsFullRecomputationForEveryVariantOnTheCpu) {
  const auto backend = *NewCpuBackend(2);
  CompareEveryVariant(backend.get(), SmallModel(), 21, 19);
}

TEST(ModelGenerationTest, IsFullRecomputationForEveryKindOfPositionAndOverride) {
  const auto backend = *NewCpuBackend(2);
  for (const PositionKind position :
       {PositionKind::kRope, PositionKind::kNone, PositionKind::kLearned, PositionKind::kAlibi}) {
    for (const char* variant : {"softmax", "lssar", "relu", "ssmax_bias"}) {
      SCOPED_TRACE(absl::StrCat(std::string(Name(position)), " ", variant));
      ModelConfig config = SmallModel(variant);
      config.position = position;
      const auto model = RandomModel(backend.get(), config);
      const int length = position == PositionKind::kLearned ? config.train_length : 2 * config.train_length + 3;
      const auto texts = RandomTexts(3, length / 2, config.vocab);
      EvalOptions window, family, clamped;
      window.window = 5;
      family.attention = FindAttentionVariant("lssar")->spec;
      family.attention->sharpen_p = 2.5;
      clamped.attention = config.attention;
      clamped.attention->scale_clamp = config.train_length;
      clamped.attention->sharpen_clamp = config.attention.sharpen_p ? config.train_length : 0;
      clamped.rope_theta_scale = 50;
      for (const EvalOptions& options : {EvalOptions(), window, family, clamped}) {
        const int new_tokens = length - length / 2;
        ExpectSame(Generated(model.get(), texts, new_tokens, length, options),
                   Recomputed(model.get(), texts, new_tokens, length, options));
      }
    }
  }
}

// The losses that Evaluate has for the text once it is whole, and the most likely of all tokens by asking for each.
TEST(ModelGenerationTest, PicksWhatEvaluationFindsMostLikely) {
  const auto backend = *NewCpuBackend(1);
  const ModelConfig config = SmallModel("ssmax");
  const auto model = RandomModel(backend.get(), config);
  const int prompt = 9, new_tokens = 14, length = 30;
  const auto texts = RandomTexts(2, prompt, config.vocab);
  const Generation made = Generated(model.get(), texts, new_tokens, length, {});
  for (int b = 0; b < 2; ++b) {
    std::vector<int32_t> text = texts[static_cast<size_t>(b)];
    const auto* const said = &made.tokens[static_cast<size_t>(b * new_tokens)];
    text.insert(text.end(), said, said + new_tokens);
    const int T = static_cast<int>(text.size()) - 1;
    std::vector<float> losses(static_cast<size_t>(T));
    for (int32_t candidate = -1; candidate < config.vocab; ++candidate) {
      std::vector<int32_t> targets(text.begin() + 1, text.end());
      if (candidate >= 0) std::fill(targets.begin(), targets.end(), candidate);
      ASSERT_TRUE(model->Evaluate(text.data(), targets.data(), 1, T, {}, losses.data()).ok());
      for (int i = 0; i < new_tokens; ++i) {
        const float loss = losses[static_cast<size_t>(prompt - 1 + i)],
                    best = made.losses[static_cast<size_t>(b * new_tokens + i)];
        if (candidate < 0) {
          EXPECT_NEAR(loss, best, 1e-4);
        } else {
          EXPECT_GE(loss, best - 1e-4);
        }
      }
    }
  }
}

TEST(ModelGenerationTest, ABatchOfOneAndPaddedPromptsGiveTheSameTokens) {
  const auto backend = *NewCpuBackend(2);
  const ModelConfig config = SmallModel("lssar");
  const auto model = RandomModel(backend.get(), config);
  std::vector<std::vector<int32_t>> texts;
  for (const int length : {12, 1, 7, 12, 4}) texts.push_back(RandomTexts(1, length, config.vocab, length)[0]);
  const Generation together = Generated(model.get(), texts, 6, 20, {});
  for (size_t b = 0; b < texts.size(); ++b) {
    const Generation alone = Generated(model.get(), {texts[b]}, 6, 20, {});
    EXPECT_EQ(std::vector<int32_t>(together.tokens.begin() + static_cast<long>(6 * b),
                                   together.tokens.begin() + static_cast<long>(6 * b + 6)),
              alone.tokens);
  }
  // More sequences than go through the prompts' pass at a time.
  const int many = model->EvaluationGroup(1 << 20, 200) * 2 + 1;
  const auto prompts = RandomTexts(many, 180, config.vocab);
  const Generation all = Generated(model.get(), prompts, 3, 200, {});
  for (const int b : {0, many / 2, many - 1}) {
    const Generation alone = Generated(model.get(), {prompts[static_cast<size_t>(b)]}, 3, 200, {});
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(all.tokens[static_cast<size_t>(3 * b + i)], alone.tokens[static_cast<size_t>(i)]);
  }
}

TEST(ModelGenerationTest, WhatDoesNotFitIsRefused) {
  const auto backend = *NewCpuBackend(1);
  ModelConfig config = SmallModel();
  config.position = PositionKind::kLearned;
  const auto model = RandomModel(backend.get(), config);
  const std::vector<int32_t> tokens(16, 1);
  const auto message = [&](const Prompts& prompts, int new_tokens, int length) {
    const auto status = model->Generate(prompts, new_tokens, length, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message({tokens.data(), nullptr, 1, 10}, 7, 16), HasSubstr("10 tokens and 7 new ones do not fit"));
  EXPECT_THAT(message({tokens.data(), nullptr, 1, 10}, 0, 16), HasSubstr("do not fit"));
  EXPECT_THAT(message({tokens.data(), nullptr, 1, 10}, 7, 17), HasSubstr("learned positions end"));
  const int32_t lengths[] = {4, 0};
  EXPECT_THAT(message({tokens.data(), lengths, 2, 8}, 1, 16), HasSubstr("prompt 1 has 0 tokens"));
  const std::vector<int32_t> unknown(4, config.vocab);
  EXPECT_THAT(message({unknown.data(), nullptr, 1, 4}, 1, 16), HasSubstr("outside the vocabulary"));
  EXPECT_TRUE(model->Generate({tokens.data(), nullptr, 1, 10}, 6, 16, {}).ok());
}

TEST(ModelGenerationTest, LeavesNoCountsBehindAndShowsNumbersThatAreNotFinite) {
  const auto backend = *NewCpuBackend(1);
  ModelConfig config = SmallModel("relu");
  const auto model = RandomModel(backend.get(), config);
  const auto texts = RandomTexts(2, 12, config.vocab);
  const std::vector<int32_t> targets(12, 1);
  const auto before = model->Evaluate(texts[0].data(), targets.data(), 1, 12, {}, nullptr);
  for (const float loss : Generated(model.get(), texts, 4, 20, {}).losses) EXPECT_TRUE(std::isfinite(loss));
  const auto after = model->Evaluate(texts[0].data(), targets.data(), 1, 12, {}, nullptr);
  EXPECT_EQ(before->counts.zero_rows, after->counts.zero_rows);
  const int lnf = model->FindParameter("lnf.w");
  std::vector<float> broken(static_cast<size_t>(config.width), NAN);
  ASSERT_TRUE(model->WriteState(StateKind::kWeights, lnf, broken.data()).ok());
  for (const float loss : Generated(model.get(), texts, 4, 20, {}).losses) EXPECT_FALSE(std::isfinite(loss));
}

}  // namespace
}  // namespace ablate
