// Statistics by hand and through an evaluation, and the file of a map. (That rows and maps are those of the full
// matrix: golden_check probes.)
#include "worker/trainer/probes/attention.h"

#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "experiments/attention_map.h"
#include "experiments/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/evaluation_testing.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

std::map<std::string, double> Values(const v1::TaskResult& result) {
  std::map<std::string, double> values;
  for (const auto& metric : result.metrics()) {
    EXPECT_TRUE(values.emplace(metric.metric(), metric.value()).second) << metric.metric() << " twice";
    EXPECT_LT(MetricRank(metric.metric()), static_cast<int>(MetricNames().size())) << metric.metric() << " has no row";
  }
  return values;
}

TEST(HeadStatisticsTest, MeansAndSlopeByHand) {
  // Entropy, largest, first, zeros, kind.
  const float one[] = {0, 1, 1, 0, 0}, two[] = {0.5f, 0.8f, 0.2f, 0, 0}, plain[] = {1.0f, 0.6f, 0.1f, 0.5f, 1},
              zero[] = {0, 0, 0, 1, 2};
  HeadStatistics head;
  head.Add(one, 1);
  head.Add(two, 2);
  head.Add(plain, 4);
  head.Add(zero, 3);
  EXPECT_FLOAT_EQ(head.largest(), (1 + 0.8 + 0.6) / 4);
  EXPECT_FLOAT_EQ(head.first(), 1.3 / 4);
  EXPECT_FLOAT_EQ(head.zeros(), 1.5 / 4);
  EXPECT_EQ(head.uncontrasted(), 0.25);
  EXPECT_EQ(head.zero_rows(), 0.25);
  EXPECT_FLOAT_EQ(head.entropy(), 1.5 / 3);                                          // the zero row has none
  EXPECT_FLOAT_EQ(head.entropy_ratio(), (0.5 / std::log(2) + 1 / std::log(4)) / 2);  // nor has a row of one key
  EXPECT_FLOAT_EQ(head.entropy_slope(), 0.5 / (std::log(4) - std::log(2)));
  HeadStatistics sum, other;
  other.Add(zero, 3);
  sum.Add(other);
  EXPECT_TRUE(std::isnan(sum.entropy()) && std::isnan(sum.entropy_ratio()) && std::isnan(sum.entropy_slope()));
  v1::TaskResult result;
  AddAttentionMetrics({head, other}, 2, &result);
  const auto values = Values(result);
  EXPECT_FLOAT_EQ(values.at("attention_entropy"), 0.5);  // over rows of both
  EXPECT_FLOAT_EQ(values.at("attention_zero_rows"), 0.4);
  EXPECT_FLOAT_EQ(values.at("attention_zero_rows.l0.h1"), 1);
  EXPECT_FLOAT_EQ(values.at("attention_entropy_slope"), values.at("attention_entropy_slope.l0.h0"));
  EXPECT_EQ(values.count("attention_entropy.l0.h1"), 0u);
  EXPECT_EQ(values.size(), 8 + 8 + 5u);
  // A window: all rows of as many keys have a ratio and no slope.
  HeadStatistics same;
  same.Add(two, 2);
  same.Add(two, 2);
  EXPECT_TRUE(std::isnan(same.entropy_slope()));
  EXPECT_FLOAT_EQ(same.entropy_ratio(), 0.5 / std::log(2));
}

TEST(AttentionMapFileTest, IsReadBackAndDamageIsSeen) {
  AttentionMap map{.layers = 1, .heads = 2, .tokens = {7, 300}};
  const float first[] = {1, 0, 0.25f, 0.75f}, second[] = {0, 0, 0, 0};
  map.maps = {QuantizeAttention(first, 2), QuantizeAttention(second, 2)};
  const std::string bytes = EncodeAttentionMap(map);
  EXPECT_EQ(bytes.size(), 24 + 8 + 2 * (8 + 3u));
  EXPECT_EQ(bytes.substr(0, 8), "ABLATEAM");
  const auto read = DecodeAttentionMap(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tokens, map.tokens);
  EXPECT_FLOAT_EQ(read->weight(0, 0, 0, 0), 1);
  EXPECT_FLOAT_EQ(read->weight(0, 0, 1, 0), 0.25);  // 85 of 255
  EXPECT_FLOAT_EQ(read->weight(0, 0, 1, 1), 0.75);
  EXPECT_EQ(read->weight(0, 1, 1, 0), 0);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(DecodeAttentionMap(bytes.substr(0, size)).ok());
  EXPECT_THAT(std::string(DecodeAttentionMap(bytes + "x").status().message()), HasSubstr("damaged"));
  std::string other = bytes;
  other[8] = 2;
  EXPECT_THAT(std::string(DecodeAttentionMap(other).status().message()), HasSubstr("version 2"));
  other = bytes;
  other[23] = 0x7f;
  EXPECT_THAT(std::string(DecodeAttentionMap(other).status().message()), HasSubstr("which no trainer writes"));
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(), 0, -1, std::numeric_limits<float>::infinity()};
  for (const uint8_t weight : QuantizeAttention(odd, 2).weights) EXPECT_EQ(weight, 0);
}

class AttentionProbeTest : public EvaluationTest {
 protected:
  v1::RunEvaluation Attention(int64_t length, double tokens = 1000) {
    return With(With(At(length), "eval.task", "attention"), "eval.attention.tokens", tokens);
  }
  v1::RunEvaluation Map(const std::string& text) {
    v1::RunEvaluation request = With(At(16), "eval.task", "attention_map");
    request.mutable_task()->set_split("picture");
    request.mutable_task()->add_files()->set_path("picture.txt");
    request.add_file_paths(JoinPath(dir_.path(), "picture.txt"));
    EXPECT_TRUE(WriteFileAtomic(request.file_paths(0), text).ok());
    request.set_output_dir(JoinPath(dir_.path(), "made/here"));
    return request;
  }
  AttentionMap Read(const v1::RunEvaluation& request, const v1::TaskResult& result) {
    EXPECT_EQ(result.artifacts_size(), 1);
    const v1::ResultArtifact& made = result.artifacts(0);
    EXPECT_EQ(made.name(), "attention-map.bin");
    const auto bytes = ReadFile(JoinPath(request.output_dir(), made.name()));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(made.artifact().sha256(), Sha256Hex(*bytes));
    EXPECT_EQ(made.artifact().bytes(), static_cast<int64_t>(bytes->size()));
    const auto map = DecodeAttentionMap(*bytes);
    EXPECT_TRUE(map.ok()) << map.status();
    return *map;
  }
};

TEST_F(AttentionProbeTest, StatisticsOfAnEvaluationStayWithinTheirBounds) {
  for (const int64_t length : {16, 64, 256}) {
    const v1::TaskResult result = Measure(Attention(length));
    EXPECT_EQ(result.outcome(), v1::COMPLETED);
    const auto values = Values(result);
    EXPECT_EQ(values.size(), 8 * 3u);  // one layer of two heads
    EXPECT_GT(values.at("attention_entropy"), 0);
    EXPECT_LT(values.at("attention_entropy"), std::log(static_cast<double>(length)));
    EXPECT_LE(values.at("attention_entropy_ratio"), 1 + 1e-6);
    EXPECT_LE(values.at("attention_entropy_slope"), 1.1);
    EXPECT_GT(values.at("attention_first"), 0);
    EXPECT_EQ(values.at("attention_zeros"), 0);
    for (const char* of : {"attention_entropy", "attention_largest", "attention_first"}) {
      EXPECT_NEAR(values.at(of), (values.at(absl::StrCat(of, ".l0.h0")) + values.at(absl::StrCat(of, ".l0.h1"))) / 2,
                  1e-9);
    }
  }
  EXPECT_NE(Metric(Measure(With(Attention(64), "eval.ntk", "dynamic")), "attention_entropy"),
            Metric(Measure(Attention(64)), "attention_entropy"));
  // A single key has all weight; with the same number of keys in (almost) every row there is little to fit.
  const auto windowed = Values(Measure(With(Attention(64), "eval.attention.window", 1)));
  EXPECT_EQ(windowed.at("attention_entropy"), 0);
  EXPECT_EQ(windowed.at("attention_largest"), 1);
  EXPECT_EQ(windowed.count("attention_entropy_slope"), 0u);
}

TEST_F(AttentionProbeTest, StatisticsDoNotDependOnTheBatch) {
  const auto small = Values(Measure(With(Attention(64), "eval.batch_tokens", 64)));
  const auto large = Values(Measure(With(Attention(64), "eval.batch_tokens", 100000)));
  for (const auto& [metric, value] : small) EXPECT_NEAR(large.at(metric), value, 1e-6) << metric;
}

TEST_F(AttentionProbeTest, SparseMembersShowTheirZeros) {
  const v1::Configuration config = SmallConfig("relu");
  v1::RunEvaluation request =
      With(EvaluationRequest(data_, config, 64, Train(config, "relu"), 30), "eval.task", "attention");
  const auto values = Values(Measure(request));
  EXPECT_GT(values.at("attention_zeros"), 0);
  EXPECT_LT(values.at("attention_zeros"), 1);
}

TEST_F(AttentionProbeTest, AMapIsOfTheTextsFirstTokens) {
  const std::string text = GeneratedText(700);
  for (const size_t size : {1u, 40u, 700u}) {
    const v1::RunEvaluation request = Map(text.substr(0, size));
    const v1::TaskResult result = Measure(request);
    EXPECT_EQ(result.outcome(), v1::COMPLETED);
    const AttentionMap map = Read(request, result);
    EXPECT_EQ(map.layers, 1);
    EXPECT_EQ(map.heads, 2);
    ASSERT_EQ(map.length(), std::min<int>(static_cast<int>(size), 256));  // 16 x train.length
    for (int i = 0; i < map.length(); ++i) {
      EXPECT_EQ(map.tokens[static_cast<size_t>(i)], text[static_cast<size_t>(i)]);
      for (int h = 0; h < 2; ++h) {
        double sum = 0;
        for (int j = 0; j <= i; ++j) sum += map.weight(0, h, i, j);
        EXPECT_NEAR(sum, 1, (i + 1) * map.at(0, h).largest[static_cast<size_t>(i)] / 510 + 1e-5);
      }
    }
    double largest = 0;
    for (int h = 0; h < 2; ++h) {
      for (const float row : map.at(0, h).largest) largest += row / (2.0 * map.length());
    }
    EXPECT_NEAR(Metric(result, "attention_largest"), largest, 1e-5);
  }
  // NTK's base is that of the text's length, though the evaluation's is train.length.
  const v1::RunEvaluation plain = Map(text), with_ntk = With(plain, "eval.ntk", "dynamic");
  EXPECT_NE(Metric(Measure(with_ntk), "attention_entropy"), Metric(Measure(plain), "attention_entropy"));
}

TEST_F(AttentionProbeTest, WhatDoesNotFitSaysWhatToDo) {
  EXPECT_THAT(Message(Map("")), HasSubstr("is empty; name a text"));
  v1::RunEvaluation request = Map("text");
  request.clear_output_dir();
  EXPECT_THAT(Message(request), HasSubstr("no directory"));
  request = Map("text");
  request.clear_file_paths();
  EXPECT_THAT(Message(request), HasSubstr("paths came"));
  request.mutable_task()->clear_files();
  EXPECT_THAT(Message(request), HasSubstr("needs one file, and 0 came"));
  request = Map("text");
  request.set_file_paths(0, JoinPath(dir_.path(), "nowhere"));
  Message(request, absl::StatusCode::kNotFound);
  request = Attention(16);
  request.mutable_task()->set_split("attention");
  EXPECT_THAT(Message(request), HasSubstr("expected selection or confirmation"));
  EXPECT_THAT(Message(With(At(16), "eval.task", "summaries")), HasSubstr("summaries"));
}

TEST_F(AttentionProbeTest, ABrokenModelIsDivergedAndMakesNoMap) {
  const auto config = TrainConfigFrom(SmallConfig(), 256);
  auto model = Model::Create(backend_.get(), config->model);
  ASSERT_TRUE((*model)->InitWeights(3).ok());
  std::vector<float> weights(256 * 16, std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE((*model)->WriteState(StateKind::kWeights, (*model)->FindParameter("wte"), weights.data()).ok());
  const std::string path = JoinPath(dir_.path(), "bad");
  ASSERT_TRUE(SaveState(model->get(),
                        {.config = config->json, .data_sha256 = data_.ref.sha256(), .seed = 3, .step = 30},
                        {30, path, ""}, false)
                  .ok());
  for (v1::RunEvaluation request : {Attention(64), Map("some text")}) {
    request.set_weights_path(path);
    const v1::TaskResult result = Measure(request);
    EXPECT_EQ(result.outcome(), v1::DIVERGED);
    EXPECT_EQ(result.diverged_at_step(), 30);
    EXPECT_EQ(result.artifacts_size(), 0);
  }
}

}  // namespace
}  // namespace ablate
