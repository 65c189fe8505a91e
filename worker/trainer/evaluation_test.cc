// Evaluation of a trained tiny model: the same targets at every length, NTK where it acts, overrides, refusals.

#include <cmath>
#include <limits>
#include <map>

#include "gmock/gmock.h"
#include "experiments/metrics.h"
#include "gtest/gtest.h"
#include "worker/trainer/evaluation_testing.h"
#include "worker/trainer/gpt2_token_bytes.h"
#include "worker/trainer/scoring.h"
#include "worker/trainer/train_config.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

TEST_F(EvaluationTest, EveryLengthScoresTheSameNumberOfTokensAndTheWeightsAreReadOnce) {
  for (const int64_t length : {16, 32, 64, 128, 256, 8, 24}) {
    const v1::TaskResult result = Measure(At(length));
    EXPECT_EQ(result.outcome(), v1::COMPLETED);
    EXPECT_EQ(Metric(result, "target_tokens"), 4 * 16);
    EXPECT_EQ(Metric(result, "loss_tokens"), length == 24 ? 240 : 256);
    EXPECT_LT(Metric(result, "loss"), 5.0);
    EXPECT_GT(Metric(result, "loss"), 1.0);
    EXPECT_LT(Metric(result, "loss_targets"), 5.0);
    EXPECT_EQ(Metric(result, "zero_rows"), 0);
  }
  EXPECT_EQ(evaluator_->loads(), 1);
}

// The mean is over the positions themselves: recomputed here window by window through the model alone.
TEST_F(EvaluationTest, LossesAreThoseOfTheModelOnTheStatedWindows) {
  const auto config = TrainConfigFrom(SmallConfig(), 256);
  auto opened = CheckpointFile::Open(weights_);
  ASSERT_TRUE(config.ok() && opened.ok());
  auto model = Model::Create(backend_.get(), config->model);
  ASSERT_TRUE(model.ok());
  OpenedState state;
  state.weights = *std::move(opened);
  ASSERT_TRUE(LoadState(state, 3, model->get(), nullptr).ok());
  const auto splits = set_->Splits(16);
  const auto spans = set_->Spans(16, Split::kSelection);
  for (const int length : {16, 64}) {
    const auto targets = TargetWindows(**spans, length, 4);
    const auto all = LossWindows(splits->selection, 16, length, 256);
    for (const auto& [metric, windows] : {std::make_pair("loss_targets", *targets), std::make_pair("loss", *all)}) {
      double sum = 0;
      int64_t count = 0;
      for (const Window& window : windows) {
        std::vector<int32_t> tokens(static_cast<size_t>(length) + 1);
        std::vector<float> losses(static_cast<size_t>(length));
        ASSERT_TRUE(set_->tokens().Read(window.begin, length + 1, tokens.data()).ok());
        ASSERT_TRUE((*model)->Evaluate(tokens.data(), tokens.data() + 1, 1, length, {}, losses.data()).ok());
        for (int i = window.first_scored; i < window.end_scored; ++i, ++count) sum += losses[static_cast<size_t>(i)];
      }
      EXPECT_NEAR(Metric(Measure(At(length)), metric), sum / static_cast<double>(count), 1e-5) << metric << length;
    }
  }
}

TEST_F(EvaluationTest, TheLossByPositionIsTheLossCutIntoBins) {
  const v1::TaskResult result = Measure(At(64));  // T = 16
  const double shares[] = {1, 1, 2, 4, 4, 4, 16, 32};
  const char* const bins[] = {"T/16", "T/8", "T/4", "T/2", "3T/4", "T", "2T", "4T"};
  double sum = 0;
  for (int i = 0; i < 8; ++i) sum += shares[i] * Metric(result, std::string("loss_by_position.") + bins[i]);
  EXPECT_NEAR(sum / 64, Metric(result, "loss"), 1e-12);
  for (const v1::MetricValue& metric : result.metrics()) {
    EXPECT_TRUE(MetricRank(metric.metric()) < static_cast<int>(MetricNames().size())) << metric.metric();
    EXPECT_TRUE(metric.metric() != "loss_by_position.T/32" && metric.metric() != "loss_by_position.8T");
  }
  for (const int T : {1, 3, 16, 100, 1024}) {
    for (int64_t position = 1; position <= 16 * T; ++position) {
      const size_t bin = PositionBinOf(position, T);
      ASSERT_LE(static_cast<double>(position), kPositionBins[bin].end * T);
      if (bin > 0) {
        ASSERT_GT(static_cast<double>(position), kPositionBins[bin - 1].end * T);
      }
    }
  }
}

TEST_F(EvaluationTest, DocumentsAddUpToTheTargetsLoss) {
  for (const int64_t length : {16, 256, 8}) {
    const v1::TaskResult result = Measure(At(length));
    double sum = 0;
    int64_t targets = 0;
    int last = -1;
    for (const v1::DocumentLoss& document : result.documents()) {
      EXPECT_GT(document.document(), last);
      last = document.document();
      sum += document.loss_sum();
      targets += document.targets();
    }
    EXPECT_GE(result.documents_size(), 1);
    EXPECT_EQ(targets, 64);
    EXPECT_NEAR(sum / 64, Metric(result, "loss_targets"), 1e-12);
    EXPECT_EQ(Metric(result, "loss_per_byte"), Metric(result, "loss_targets"));  // a byte is a token
    EXPECT_DOUBLE_EQ(Metric(result, "bits_per_byte"), Metric(result, "loss_targets") / std::log(2.0));
  }
}

TEST_F(EvaluationTest, TheGainIsWhatAWindowOfTheTrainingLengthLoses) {
  const v1::TaskResult plain = Measure(At(64)), window = Measure(With(At(64), "eval.attention.window", 16));
  v1::RunEvaluation request = At(64);
  SetFlag(request.mutable_task()->mutable_eval_config(), "eval.gain", true);
  const v1::TaskResult result = Measure(request);
  EXPECT_EQ(Metric(result, "loss_targets"), Metric(plain, "loss_targets"));
  EXPECT_EQ(Metric(result, "loss_targets_windowed"), Metric(window, "loss_targets"));
  EXPECT_EQ(Metric(result, "gain"), Metric(window, "loss_targets") - Metric(plain, "loss_targets"));
  EXPECT_NE(Metric(result, "gain"), 0);
  Set(request.mutable_task()->mutable_eval_config(), "eval.attention.window", 16);
  const v1::TaskResult neither = Measure(request);
  for (const v1::MetricValue& metric : neither.metrics()) EXPECT_NE(metric.metric(), "gain");
}

TEST(Gpt2TokenBytesTest, IsTheLengthOfTheDecodedToken) {
  EXPECT_EQ(Gpt2TokenBytes(0), 1);      // "!"
  EXPECT_EQ(Gpt2TokenBytes(262), 4);    // " the"
  EXPECT_EQ(Gpt2TokenBytes(15496), 5);  // "Hello"
  EXPECT_EQ(Gpt2TokenBytes(50256), 0);  // end of text
  int64_t all = 0;
  for (int32_t token = 0; token <= 50256; ++token) all += Gpt2TokenBytes(token);
  EXPECT_EQ(all, 320814);
}

TEST_F(EvaluationTest, NtkActsAboveTheTrainingLengthOnly) {
  const std::string at1 = std::to_string(Metric(Measure(At(16)), "loss"));
  EXPECT_EQ(std::to_string(Metric(Measure(With(At(16), "eval.ntk", "dynamic")), "loss")), at1);
  const double off = Metric(Measure(At(128)), "loss"),
               on = Metric(Measure(With(At(128), "eval.ntk", "dynamic")), "loss");
  EXPECT_NE(off, on);
  // base' = 10000 (128 / 16)^(8 / 6) is what a fixed multiplier of the base gives.
  EXPECT_NEAR(Metric(Measure(With(At(128), "eval.rope_theta_scale", std::pow(8.0, 8.0 / 6.0))), "loss"), on, 1e-5);
  EXPECT_NE(Metric(Measure(With(With(At(128), "eval.ntk", "dynamic"), "eval.ntk_factor", 2)), "loss"), on);
}

TEST_F(EvaluationTest, ClampsActAboveTheTrainingLengthOnly) {
  const v1::Configuration config = SmallConfig("lssar");
  const std::string weights = Train(config, "lssar");
  const auto loss = [&](int64_t length, std::initializer_list<const char*> flags, int window = 0) {
    v1::RunEvaluation request = EvaluationRequest(data_, config, length, weights, 30);
    for (const char* flag : flags) SetFlag(request.mutable_task()->mutable_eval_config(), flag, true);
    if (window > 0) request = With(request, "eval.attention.window", window);
    return Metric(Measure(request), "loss_targets");
  };
  const char *scale = "eval.attention.scale_clamp", *sharpen = "eval.attention.sharpen_clamp";
  for (const int64_t length : {8, 16}) {
    EXPECT_EQ(loss(length, {scale, sharpen}), loss(length, {}));
  }
  const double plain = loss(128, {}), by_scale = loss(128, {scale}), by_sharpening = loss(128, {sharpen});
  EXPECT_NE(by_scale, plain);
  EXPECT_NE(by_sharpening, plain);
  EXPECT_NE(by_scale, by_sharpening);
  // Rows of 16 keys: as in training.
  EXPECT_EQ(loss(128, {scale, sharpen}, 16), loss(128, {}, 16));

  v1::RunEvaluation clamped = EvaluationRequest(data_, config, 128, weights, 30);
  SetFlag(clamped.mutable_task()->mutable_eval_config(), scale, true);
  const auto parsed = EvalConfigFrom(config, clamped.task().eval_config(), 128);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->options.attention->scale_clamp, 16);
  EXPECT_EQ(parsed->options.attention->sharpen_clamp, 0);
}

TEST_F(EvaluationTest, OverridesActAndNumbersDoNotDependOnTheBatch) {
  const double plain = Metric(Measure(At(128)), "loss_targets");
  const double windowed = Metric(Measure(With(At(128), "eval.attention.window", 4)), "loss_targets");
  EXPECT_NE(windowed, plain);
  EXPECT_EQ(Metric(Measure(With(At(128), "eval.attention.window", 128)), "loss_targets"), plain);
  EXPECT_NE(Metric(Measure(With(At(128), "eval.attention.p", 3)), "loss_targets"), plain);
  EXPECT_NE(Metric(Measure(With(At(128), "eval.attention.scale", "log_n_inv_sqrt_d")), "loss_targets"), plain);
  EXPECT_EQ(Metric(Measure(At(128)), "loss_targets"), plain) << "an override must not stay";
  EXPECT_NEAR(Metric(Measure(With(At(128), "eval.batch_tokens", 100000)), "loss_targets"), plain, 1e-6);
  v1::RunEvaluation confirmation = At(128);
  confirmation.mutable_task()->set_split("confirmation");
  EXPECT_NE(Metric(Measure(confirmation), "loss_targets"), plain);
  const v1::TaskResult without = Measure(With(At(128), "eval.loss_tokens", 0.0));
  for (const v1::MetricValue& metric : without.metrics()) EXPECT_NE(metric.metric(), "loss");
}

TEST_F(EvaluationTest, WrongInputsSayWhatIsWrong) {
  EXPECT_THAT(Message(At(257)), HasSubstr("257"));
  EXPECT_THAT(Message(At(0)), HasSubstr("length of 0"));
  EXPECT_THAT(Message(At(int64_t{1} << 40)), HasSubstr("1099511627776"));
  v1::RunEvaluation request = At(16);
  request.mutable_task()->set_split("test");
  EXPECT_THAT(Message(request), HasSubstr("\"test\""));
  request = At(16);
  request.mutable_task()->set_seed(8);
  EXPECT_THAT(Message(request), HasSubstr("another seed"));
  request = At(16);
  request.mutable_task()->mutable_state()->set_step(31);
  EXPECT_THAT(Message(request), HasSubstr("another step"));
  request = At(16);
  Set(request.mutable_task()->mutable_config(), "train.learning_rate", 0.5);
  EXPECT_THAT(Message(request), HasSubstr("another configuration"));
  request = At(16);
  request.clear_weights_path();
  EXPECT_THAT(Message(request), HasSubstr("none came"));
  request = At(16);
  request.set_weights_path(dir_.path() + "/none");
  Message(request, absl::StatusCode::kNotFound);
  request.set_weights_path(data_.path);
  EXPECT_THAT(Message(request), HasSubstr("does not start like"));
  request = At(16);
  request.mutable_task()->mutable_state()->mutable_weights()->set_sha256(Sha256Hex("x"));
  Message(request, absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(With(At(16), "eval.attention.scale", "ssmax")), HasSubstr("learned"));
  Message(With(At(16), "eval.attention.p", 0.5));
  Message(With(At(16), "train.steps", 5));
  // After all that the good one still works.
  EXPECT_EQ(Measure(At(16)).outcome(), v1::COMPLETED);
}

TEST_F(EvaluationTest, AnotherFileUnderTheSameNameIsReadAgain) {
  const double before = Metric(Measure(At(16)), "loss");
  const std::string content = *ReadFile(Train(SmallConfig(), "longer", 31));
  ASSERT_TRUE(WriteFileAtomic(weights_, content).ok());
  EXPECT_THAT(Message(At(16)), HasSubstr("another step: 31, expected 30"));
  EXPECT_NE(Metric(Measure(EvaluationRequest(data_, SmallConfig(), 16, weights_, 31)), "loss"), before);
}

TEST_F(EvaluationTest, ALossThatIsNotFiniteIsDiverged) {
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
  const v1::TaskResult result = Measure(EvaluationRequest(data_, SmallConfig(), 16, path, 30));
  EXPECT_EQ(result.outcome(), v1::DIVERGED);
  EXPECT_EQ(result.diverged_at_step(), 30);
  EXPECT_FALSE(std::isfinite(Metric(result, "loss")));
}

TEST_F(EvaluationTest, StopsBetweenBatches) {
  NoControl control;
  control.stop = true;
  v1::TaskResult result;
  const auto done = evaluator_->Run(At(128), set_.get(), &control, &result);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_FALSE(*done);
  EXPECT_EQ(result.metrics_size(), 0);
}

TEST_F(EvaluationTest, EveryVariantOfTheTableTrainsAndIsMeasured) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    const v1::Configuration config = SmallConfig(std::string(variant.name).c_str());
    const std::string weights = Train(config, std::string(variant.name), 3);
    const v1::TaskResult result = Measure(EvaluationRequest(data_, config, 64, weights, 3));
    EXPECT_EQ(result.outcome(), v1::COMPLETED) << variant.name;
    EXPECT_LT(Metric(result, "loss_targets"), 6.0) << variant.name;
  }
}

TEST_F(EvaluationTest, EveryKindOfPositionTrainsAndIsMeasured) {
  for (const char* position : {"none", "learned", "alibi"}) {
    for (const char* variant : {"softmax", "lssar"}) {
      v1::Configuration config = SmallConfig(variant);
      Set(&config, "model.position", position);
      const std::string weights = Train(config, absl::StrCat(position, variant), 30);
      for (const int64_t length : {16, 32, 64, 128}) {
        const v1::RunEvaluation request = EvaluationRequest(data_, config, length, weights, 30);
        if (std::string(position) == "learned" && length > 16) {
          EXPECT_THAT(Message(request), HasSubstr("learned positions end at train.length 16"));
          continue;
        }
        const v1::TaskResult result = Measure(request);
        EXPECT_EQ(result.outcome(), v1::COMPLETED);
        EXPECT_LT(Metric(result, "loss_targets"), 5.0) << position << " " << variant << " at " << length;
      }
    }
  }
}

TEST_F(EvaluationTest, TokenShardsTrainAndAreMeasured) {
  // Two shards, documents of 600 tokens out of 50; T = 16, so every length up to 16x has its context.
  std::vector<std::string> paths;
  v1::DataRef ref;
  ref.set_name("shards");
  ref.set_format(v1::DataRef::TOKEN_SHARDS);
  ref.set_sha256(Sha256Hex("shards"));
  for (int shard = 0; shard < 2; ++shard) {
    const int32_t header[256] = {20240520, 1, 15000};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof(header));
    for (int i = 0; i < 15000; ++i) {
      const uint16_t token = i % 600 == 0 ? 50256 : static_cast<uint16_t>((i * i + 7 * i) % 50 + 50000 * (i % 2));
      bytes.append(reinterpret_cast<const char*>(&token), sizeof(token));
    }
    paths.push_back(JoinPath(dir_.path(), absl::StrCat("shard", shard)));
    ASSERT_TRUE(WriteFileAtomic(paths.back(), bytes).ok());
  }
  auto data = DataSet::Open(ref, paths);
  ASSERT_TRUE(data.ok()) << data.status();
  v1::RunStage stage = StageRequest(data_, SmallConfig(), 0, 12, JoinPath(dir_.path(), "shards"), "shards");
  *stage.mutable_task()->mutable_data() = ref;
  NoControl control;
  FakeClock clock;
  v1::TaskResult result;
  const auto outcome = RunStage(stage, data->get(), backend_.get(), Recompute::kAuto, clock, &control, &result);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_LT(Metric(result, "final_train_loss"), std::log(50257));
  for (const int64_t length : {16, 256}) {
    v1::RunEvaluation request = EvaluationRequest(data_, SmallConfig(), length, control.last.paths.weights, 12);
    *request.mutable_task()->mutable_data() = ref;
    v1::TaskResult measured;
    const auto done = evaluator_->Run(request, data->get(), &control, &measured);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_LT(Metric(measured, "loss_targets"), std::log(50257));
    EXPECT_EQ(Metric(measured, "target_tokens"), 64);
  }
}

}  // namespace
}  // namespace ablate
