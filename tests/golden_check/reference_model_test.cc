// The double-precision model against central differences, and worker/trainer's model against it where golden files have
// no case: positions learned, absent and by ALiBi, targets left out, odd shapes, other members of the family.
#include "tests/golden_check/reference_model.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/golden_check/checks.h"
#include "worker/trainer/model.h"

namespace ablate {
namespace {

constexpr PositionKind kPositions[] = {PositionKind::kRope, PositionKind::kLearned, PositionKind::kNone,
                                       PositionKind::kAlibi};

struct Case {
  ModelConfig config;
  reference::ModelShape shape;
  TensorMap params;
  std::vector<int32_t> tokens, targets;
  int B = 2, T = 7, scored = 0;
};

Case Make(const char* variant, PositionKind position) {
  Case c;
  c.config.layers = 2;
  c.config.width = 12;
  c.config.heads = 2;
  c.config.vocab = 11;
  c.config.train_length = 9;
  c.config.position = position;
  c.config.attention = FindAttentionVariant(variant)->spec;
  c.config.attention.train_length = 9;
  c.shape = {2, 12, 2, 11, c.config.attention, position == PositionKind::kRope ? c.config.rope_base : 0.0};
  c.shape.spec.alibi = position == PositionKind::kAlibi;  // the model sets its own
  int salt = 0;
  for (const ParameterInfo& info : ParameterTable(c.config)) {
    std::vector<double>& values = c.params[info.name];
    ++salt;
    // Values that float holds exactly enough: both sides start from the same numbers.
    for (int64_t i = 0; i < info.count; ++i) {
      const double wave = std::sin(0.3 + 2.399963 * static_cast<double>(i) + salt);
      values.push_back(static_cast<float>(info.init_std > 0 ? 0.35 * wave : info.init_value + 0.1 * wave));
    }
  }
  for (int i = 0; i < c.B * c.T; ++i) {
    c.tokens.push_back((i * i + 3 * i) % 11);
    c.targets.push_back(i % 5 == 1 ? -1 : (i * 7) % 11);
    c.scored += c.targets.back() >= 0 ? 1 : 0;
  }
  return c;
}

TEST(ReferenceModelTest, GradientsAreCentralDifferences) {
  for (const PositionKind position : kPositions) {
    for (const char* variant : {"ssmax_bias", "lssar"}) {
      Case c = Make(variant, position);
      TensorMap grads;
      reference::ModelLoss(c.shape, c.params, c.tokens, c.targets, c.B, c.T, &grads);
      for (auto& [name, values] : c.params) {
        for (size_t i = 0; i < values.size(); i += 1 + values.size() / 5) {
          const double keep = values[i], h = 1e-6;
          values[i] = keep + h;
          const double above = reference::ModelLoss(c.shape, c.params, c.tokens, c.targets, c.B, c.T, nullptr);
          values[i] = keep - h;
          const double below = reference::ModelLoss(c.shape, c.params, c.tokens, c.targets, c.B, c.T, nullptr);
          values[i] = keep;
          EXPECT_NEAR(grads[name][i], (above - below) / (2 * h), 2e-7) << variant << " " << name << "[" << i << "]";
        }
      }
    }
  }
}

TEST(ReferenceModelTest, TheTrainersModelAgrees) {
  auto backend = NewCpuBackend(1);
  ASSERT_TRUE(backend.ok());
  for (const PositionKind position : kPositions) {
    for (const AttentionVariant& variant : AttentionVariants()) {
      SCOPED_TRACE(std::string(Name(position)));
      const Case c = Make(std::string(variant.name).c_str(), position);
      TensorMap grads;
      const double want = reference::ModelLoss(c.shape, c.params, c.tokens, c.targets, c.B, c.T, &grads);
      auto model = Model::Create(backend->get(), c.config);
      ASSERT_TRUE(model.ok()) << model.status();
      const std::vector<ParameterInfo>& table = (*model)->parameters();
      ASSERT_EQ(reference::ModelParametersProblem(c.shape, c.params), "");
      for (size_t i = 0; i < table.size(); ++i) {
        const std::vector<double>& values = c.params.at(table[i].name);
        const std::vector<float> host(values.begin(), values.end());
        ASSERT_TRUE((*model)->WriteState(StateKind::kWeights, static_cast<int>(i), host.data()).ok());
      }
      auto loss = (*model)->ForwardBackward(c.tokens.data(), c.targets.data(), c.B, c.T, 1.0 / c.scored);
      auto evaluated = (*model)->Evaluate(c.tokens.data(), c.targets.data(), c.B, c.T, {}, nullptr);
      ASSERT_TRUE(loss.ok() && evaluated.ok());
      EXPECT_EQ(loss->targets, c.scored);
      EXPECT_NEAR(loss->mean(), want, 2e-5 * want) << std::string(variant.name);
      EXPECT_NEAR(evaluated->mean(), want, 2e-5 * want) << std::string(variant.name);
      for (size_t i = 0; i < table.size(); ++i) {
        std::vector<float> got(table[i].count);
        ASSERT_TRUE((*model)->ReadState(StateKind::kGradients, static_cast<int>(i), got.data()).ok());
        EXPECT_LT(RelativeError(got, grads.at(table[i].name), 1e-3), 2e-3)
            << std::string(variant.name) << " " << table[i].name;
      }
    }
  }
}

}  // namespace
}  // namespace ablate
