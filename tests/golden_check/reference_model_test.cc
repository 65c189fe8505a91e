// The double-precision model against central differences, and worker/trainer's model against it where golden files have
// no case: positions learned, absent and by ALiBi, targets left out, odd shapes, other members of the family.
#include "tests/golden_check/reference_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

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

Case Make(const char* variant, PositionKind position, int T = 7, double spread = 0.35) {
  Case c;
  c.T = T;
  c.config.layers = 2;
  c.config.width = 12;
  c.config.heads = 2;
  c.config.vocab = 11;
  c.config.train_length = T + 2;
  c.config.position = position;
  c.config.attention = FindAttentionVariant(variant)->spec;
  c.config.attention.train_length = T + 2;
  c.shape = {2, 12, 2, 11, c.config.attention, position == PositionKind::kRope ? c.config.rope_base : 0.0};
  c.shape.spec.alibi = position == PositionKind::kAlibi;  // the model sets its own
  int salt = 0;
  for (const ParameterInfo& info : ParameterTable(c.config)) {
    std::vector<double>& values = c.params[info.name];
    ++salt;
    // Values that float holds exactly enough: both sides start from the same numbers.
    for (int64_t i = 0; i < info.count; ++i) {
      const double wave = std::sin(0.3 + 2.399963 * static_cast<double>(i) + salt);
      values.push_back(static_cast<float>(info.init_std > 0 ? spread * wave : info.init_value + 0.1 * wave));
    }
  }
  for (int i = 0; i < c.B * c.T; ++i) {
    c.tokens.push_back((i * i + 3 * i) % 11);
    c.targets.push_back(i % 5 == 1 ? -1 : (i * 7) % 11);
    c.scored += c.targets.back() >= 0 ? 1 : 0;
  }
  return c;
}

std::unique_ptr<Model> TrainersModel(const Case& c, Backend* backend) {
  auto model = Model::Create(backend, c.config);
  EXPECT_TRUE(model.ok()) << model.status();
  const std::vector<ParameterInfo>& table = (*model)->parameters();
  for (size_t i = 0; i < table.size(); ++i) {
    const std::vector<double>& values = c.params.at(table[i].name);
    const std::vector<float> host(values.begin(), values.end());
    EXPECT_TRUE((*model)->WriteState(StateKind::kWeights, static_cast<int>(i), host.data()).ok());
  }
  return *std::move(model);
}

// 1e-5, of what is above 1 (weights of members without l1) as a share.
double Within(double want) { return 1e-5 * std::max(1.0, std::abs(want)); }

// What AttentionStatistics should say of a row's weights, over keys [begin, end).
void ExpectStatistics(const double* weights, int begin, int end, const float* got) {
  double sum = 0, largest = 0, entropy = 0;
  int zeros = 0;
  for (int j = begin; j < end; ++j) {
    sum += weights[j];
    largest = std::max(largest, weights[j]);
    zeros += weights[j] == 0 ? 1 : 0;
  }
  for (int j = begin; j < end; ++j) {
    if (weights[j] > 0) entropy -= weights[j] / sum * std::log(weights[j] / sum);
  }
  EXPECT_NEAR(got[kRowEntropy], entropy, 1e-5);
  EXPECT_NEAR(got[kRowLargest], largest, Within(largest));
  EXPECT_NEAR(got[kRowFirst], begin == 0 ? weights[0] : 0, Within(weights[0]));
  EXPECT_NEAR(got[kRowZeros], static_cast<double>(zeros) / (end - begin), 1e-5);
  EXPECT_EQ(got[kRowKind] == 2, sum == 0);
}

// Every row's statistics and weights, through the model, against the full matrix of the double-precision model.
void CompareAttention(Backend* backend, const Case& c, int window) {
  const int T = c.T, H = c.config.heads;
  const std::vector<double> want = reference::AttentionWeights(c.shape, c.params, c.tokens, c.B, T, window);
  const auto model = TrainersModel(c, backend);
  EvalOptions options;
  options.window = window;
  int rows = 0, maps = 0;
  const auto at = [&](int layer, int b, int h) {
    return &want[((static_cast<size_t>(layer) * c.B + b) * H + h) * static_cast<size_t>(T) * T];
  };
  const auto loss = model->AttentionStatistics(
      c.tokens.data(), c.targets.data(), c.B, T, options, nullptr,
      [&](int layer, int first, int sequences, const float* statistics) {
        for (int b = first; b < first + sequences; ++b) {
          for (int h = 0; h < H; ++h) {
            for (int i = 0; i < T; ++i, ++rows, statistics += kAttentionStatistics) {
              SCOPED_TRACE(std::to_string(layer) + " " + std::to_string(h) + " row " + std::to_string(i));
              ExpectStatistics(at(layer, b, h) + static_cast<size_t>(i) * T, window == 0 ? 0 : std::max(0, i + 1 - window), i + 1,
                               statistics);
            }
          }
        }
      });
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(rows, c.config.layers * c.B * H * T);
  const auto evaluated = model->Evaluate(c.tokens.data(), c.targets.data(), c.B, T, options, nullptr);
  EXPECT_EQ(loss->loss_sum, evaluated->loss_sum);
  EXPECT_EQ(loss->counts.zero_rows, evaluated->counts.zero_rows);
  const auto mapped = model->AttentionMaps(c.tokens.data(), c.targets.data(), T, options, [&](int layer, const float* got) {
    for (int h = 0; h < H; ++h) {
      for (int i = 0; i < T * T; ++i) {
        const double weight = at(layer, 0, h)[i];
        EXPECT_NEAR(got[static_cast<int64_t>(h) * T * T + i], weight, Within(weight));
      }
    }
    ++maps;
  });
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(maps, c.config.layers);
  const auto first = model->Evaluate(c.tokens.data(), c.targets.data(), 1, T, options, nullptr);
  EXPECT_EQ(mapped->loss_sum, first->loss_sum);
  EXPECT_EQ(mapped->counts.zero_rows, first->counts.zero_rows);
  EXPECT_EQ(mapped->counts.uncontrasted_rows, first->counts.uncontrasted_rows);
}

// Scores of moderate size: float32 rounds scores by a share of their size, and a power of 15 multiplies that by 15.
constexpr double kSpread = 0.2;

TEST(AttentionStatisticsTest, AreThoseOfTheFullMatrixForEveryVariant) {
  const auto backend = *NewCpuBackend(2);
  for (const AttentionVariant& variant : AttentionVariants()) {
    for (const PositionKind position : kPositions) {
      SCOPED_TRACE(std::string(variant.name) + " " + std::string(Name(position)));
      CompareAttention(backend.get(), Make(std::string(variant.name).c_str(), position, 45, kSpread), 0);
    }
    SCOPED_TRACE(std::string(variant.name));
    CompareAttention(backend.get(), Make(std::string(variant.name).c_str(), PositionKind::kRope, 45, kSpread), 9);
    CompareAttention(backend.get(), Make(std::string(variant.name).c_str(), PositionKind::kRope, 150, kSpread), 0);
  }
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
      ASSERT_EQ(reference::ModelParametersProblem(c.shape, c.params), "");
      const auto model = TrainersModel(c, backend->get());
      const std::vector<ParameterInfo>& table = model->parameters();
      auto loss = model->ForwardBackward(c.tokens.data(), c.targets.data(), c.B, c.T, 1.0 / c.scored);
      auto evaluated = model->Evaluate(c.tokens.data(), c.targets.data(), c.B, c.T, {}, nullptr);
      ASSERT_TRUE(loss.ok() && evaluated.ok());
      EXPECT_EQ(loss->targets, c.scored);
      EXPECT_NEAR(loss->mean(), want, 2e-5 * want) << std::string(variant.name);
      EXPECT_NEAR(evaluated->mean(), want, 2e-5 * want) << std::string(variant.name);
      for (size_t i = 0; i < table.size(); ++i) {
        std::vector<float> got(table[i].count);
        ASSERT_TRUE(model->ReadState(StateKind::kGradients, static_cast<int>(i), got.data()).ok());
        EXPECT_LT(RelativeError(got, grads.at(table[i].name), 1e-3), 2e-3)
            << std::string(variant.name) << " " << table[i].name;
      }
    }
  }
}

}  // namespace
}  // namespace ablate
