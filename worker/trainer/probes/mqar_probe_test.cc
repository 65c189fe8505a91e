// Associative recall as an evaluation of a tiny model: what is counted, checked by other ways to it, and what is
// refused.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/evaluation_testing.h"
#include "worker/trainer/mqar.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class MqarProbeTest : public EvaluationTest {
 protected:
  void SetUp() override {
    EvaluationTest::SetUp();
    auto data = DataSet::Open(MqarData(), {});
    ASSERT_TRUE(data.ok()) << data.status();
    made_ = *std::move(data);
  }
  static v1::Configuration Config(int pairs) {
    v1::Configuration config = SmallConfig();
    Set(&config, "data.mqar.vocabulary", 12);
    Set(&config, "data.mqar.pairs", pairs);
    Set(&config, "train.steps", 300);
    return config;
  }
  // Trains, and asks for the task at 1x.
  v1::RunEvaluation Trained(const v1::Configuration& config, int64_t steps) {
    v1::RunStage stage = StageRequest(data_, config, 0, steps, JoinPath(dir_.path(), absl::StrCat("mqar", steps)));
    *stage.mutable_task()->mutable_data() = MqarData();
    stage.clear_data_paths();
    NoControl control;
    FakeClock clock;
    v1::TaskResult result;
    const auto outcome = RunStage(stage, made_.get(), backend_.get(), Recompute::kAuto, clock, &control, &result);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    v1::RunEvaluation request = EvaluationRequest(data_, config, 16, control.last.paths.weights, steps);
    *request.mutable_task()->mutable_data() = MqarData();
    request.clear_data_paths();
    v1::Configuration* eval = request.mutable_task()->mutable_eval_config();
    eval->Clear();
    Set(eval, "eval.task", "mqar");
    Set(eval, "eval.mqar.sequences", 20);
    Set(eval, "eval.batch_tokens", 100);
    request.mutable_task()->set_split("mqar");
    return request;
  }
  v1::TaskResult Ask(const v1::RunEvaluation& request) {
    NoControl control;
    v1::TaskResult result;
    const auto done = evaluator_->Run(request, made_.get(), &control, &result);
    EXPECT_TRUE(done.ok() && *done) << done.status();
    return result;
  }
  std::string Refusal(const v1::RunEvaluation& request, DataSet* data) {
    NoControl control;
    v1::TaskResult result;
    const absl::Status status = evaluator_->Run(request, data, &control, &result).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  std::unique_ptr<DataSet> made_;
};

TEST_F(MqarProbeTest, ALearnedPairIsRecalledAndAnUnlearnedOneIsNot) {
  const v1::TaskResult learned = Ask(Trained(Config(1), 300)), begun = Ask(Trained(Config(1), 1));
  EXPECT_EQ(learned.outcome(), v1::COMPLETED);
  EXPECT_GE(Metric(learned, "mqar_accuracy"), 0.9);
  EXPECT_LT(Metric(learned, "mqar_loss"), 0.5);
  EXPECT_EQ(Metric(learned, "mqar_queries"), 20);
  EXPECT_LE(Metric(begun, "mqar_accuracy"), 0.5);
  EXPECT_NEAR(Metric(begun, "mqar_loss"), std::log(12), 0.3);
}

// Another way to the same: the value is the likeliest token when no other token has a lower loss in its place.
TEST_F(MqarProbeTest, AccuracyIsThatOfTheLikeliestTokenAmongAll) {
  const v1::Configuration config = Config(2);
  v1::RunEvaluation request = Trained(config, 40);
  for (const int length : {16, 64}) {
    request.mutable_task()->set_length_tokens(length);
    const v1::TaskResult result = Ask(request);
    const auto train = TrainConfigFrom(config, kVocabularyOfConfiguration);
    ASSERT_TRUE(train.ok());
    auto model = Model::Create(backend_.get(), train->model);
    ASSERT_TRUE(model.ok());
    const auto opened =
        OpenState(request.weights_path(), "", {.data_sha256 = MqarData().sha256(), .seed = 3, .step = 40});
    ASSERT_TRUE(opened.ok()) << opened.status();
    ASSERT_TRUE(LoadState(*opened, 3, model->get(), nullptr).ok());
    const auto maker = MqarMaker::Make(12, 2, length, static_cast<uint64_t>(length), kMqarTrial);
    ASSERT_TRUE(maker.ok());
    const auto L = static_cast<size_t>(length);
    int right = 0;
    double sum = 0;
    for (uint64_t sequence = 0; sequence < 20; ++sequence) {
      std::vector<int32_t> tokens(L), targets(L);
      maker->Fill(sequence, tokens.data(), targets.data());
      std::vector<std::vector<float>> losses(12, std::vector<float>(L));
      for (int32_t token = 0; token < 12; ++token) {
        std::vector<int32_t> instead(L, token);
        ASSERT_TRUE((*model)->Evaluate(tokens.data(), instead.data(), 1, length, {}, losses[token].data()).ok());
      }
      for (size_t i = 0; i < L; ++i) {
        if (targets[i] < 0) continue;
        bool best = true;
        for (const auto& other : losses) best = best && losses[static_cast<size_t>(targets[i])][i] <= other[i];
        right += best ? 1 : 0;
        sum += losses[static_cast<size_t>(targets[i])][i];
      }
    }
    EXPECT_EQ(Metric(result, "mqar_queries"), 40);
    EXPECT_DOUBLE_EQ(Metric(result, "mqar_accuracy"), right / 40.0) << length;
    EXPECT_NEAR(Metric(result, "mqar_loss"), sum / 40, 1e-5) << length;
  }
}

TEST_F(MqarProbeTest, TrialsKeepToLengthAndPairsWhateverTheBatch) {
  v1::RunEvaluation request = Trained(Config(1), 3);
  const std::string one = Ask(request).SerializeAsString();
  Set(request.mutable_task()->mutable_eval_config(), "eval.batch_tokens", 1000);
  EXPECT_EQ(Ask(request).SerializeAsString(), one);
  Set(request.mutable_task()->mutable_eval_config(), "eval.mqar.pairs", 3);
  EXPECT_EQ(Metric(Ask(request), "mqar_queries"), 60);
  Set(request.mutable_task()->mutable_eval_config(), "eval.mqar.pairs", 5);
  EXPECT_THAT(Refusal(request, made_.get()), HasSubstr("lower the pairs to 4"));
}

TEST_F(MqarProbeTest, TasksAndDataThatDoNotFitAreRefused) {
  v1::RunEvaluation request = Trained(Config(1), 3);
  v1::RunEvaluation loss = request;
  Set(loss.mutable_task()->mutable_eval_config(), "eval.task", "loss");
  loss.mutable_task()->set_split("selection");
  EXPECT_THAT(Refusal(loss, made_.get()), HasSubstr("measure the task mqar instead"));
  v1::RunEvaluation passkey = request;
  Set(passkey.mutable_task()->mutable_eval_config(), "eval.task", "passkey");
  EXPECT_THAT(Refusal(passkey, made_.get()), HasSubstr("needs a model of text"));
  v1::RunEvaluation text = At(16);
  Set(text.mutable_task()->mutable_eval_config(), "eval.task", "mqar");
  EXPECT_THAT(Refusal(text, set_.get()), HasSubstr("format mqar"));
}

}  // namespace
}  // namespace ablate
