// For tests of generation: a small model with weights that make attention matter, texts, and one call.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/trainer/model.h"
#include "worker/trainer/philox.h"

namespace ablate {

inline ModelConfig SmallModel(const char* variant = "softmax") {
  ModelConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.vocab = 37;
  config.train_length = 16;
  config.attention = FindAttentionVariant(variant)->spec;
  return config;
}

// Weights of standard deviation 0.3: with GPT-2's initial ones attention is all but uniform.
inline std::unique_ptr<Model> RandomModel(Backend* backend, const ModelConfig& config) {
  auto model = Model::Create(backend, config);
  EXPECT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->InitWeights(3).ok());
  const auto& table = (*model)->parameters();
  for (size_t p = 0; p < table.size(); ++p) {
    if (table[p].shape.size() != 2) continue;
    std::vector<float> values(static_cast<size_t>(table[p].count));
    const PhiloxStream stream(11, table[p].name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.3f * static_cast<float>(stream.Normal(i));
    EXPECT_TRUE((*model)->WriteState(StateKind::kWeights, static_cast<int>(p), values.data()).ok());
  }
  return *std::move(model);
}

inline std::vector<std::vector<int32_t>> RandomTexts(int count, int tokens, int vocab, int salt = 0) {
  const PhiloxStream stream(static_cast<uint64_t>(salt), "texts");
  std::vector<std::vector<int32_t>> texts(static_cast<size_t>(count));
  uint64_t index = 0;
  for (auto& text : texts) {
    for (int i = 0; i < tokens; ++i)
      text.push_back(static_cast<int32_t>(stream.Below(index++, static_cast<uint64_t>(vocab))));
  }
  return texts;
}

// Prompts of any lengths.
inline Generation Generated(Model* model, const std::vector<std::vector<int32_t>>& texts, int new_tokens, int length,
                            const EvalOptions& options) {
  size_t longest = 0;
  bool equal = true;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  std::vector<int32_t> tokens, lengths;
  for (const auto& text : texts) {
    equal = equal && text.size() == longest;
    tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.resize(tokens.size() + longest - text.size(), 1);
    lengths.push_back(static_cast<int32_t>(text.size()));
  }
  const auto made = model->Generate(
      {tokens.data(), equal ? nullptr : lengths.data(), static_cast<int>(texts.size()), static_cast<int>(longest)},
      new_tokens, length, options);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : Generation();
}

}  // namespace ablate
