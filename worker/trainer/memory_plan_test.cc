// A plan is what the model then takes; what does not fit is refused before anything is computed, with a way out.
#include "worker/trainer/memory_plan.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/forwarding_backend.h"

namespace ablate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A GPU as the plan sees it: all rows at once, and only so much memory.
class LimitedBackend : public ForwardingBackend {
 public:
  explicit LimitedBackend(int64_t free = std::numeric_limits<int64_t>::max())
      : ForwardingBackend(*NewCpuBackend(1)), free(free) {}
  int64_t preferred_rows() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t FreeBytes() override { return free; }
  int64_t WorkspaceBytes(const AttentionShape& shape, int V, bool backward) const override {
    return backward ? int64_t{shape.B} * shape.T * V : 0;
  }
  int64_t free;
};

ModelConfig Config(const char* variant = "lssar") {
  ModelConfig config;
  config.layers = 6;
  config.width = 32;
  config.heads = 2;
  config.vocab = 50;
  config.train_length = 32;
  config.attention = FindAttentionVariant(variant)->spec;
  return config;
}

int64_t Total(const Backend& backend, int B, Recompute recompute) {
  const auto need = TrainingNeed(backend, Config(), B, 32, recompute);
  EXPECT_TRUE(need.ok()) << need.status();
  return need->total();
}

TEST(MemoryPlanTest, APlanIsWhatTrainingTakes) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
    LimitedBackend backend;
    const auto need = TrainingNeed(backend, Config(), 4, 32, recompute);
    ASSERT_TRUE(need.ok()) << need.status();
    const auto model = Model::Create(&backend, Config(), recompute);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->peak_bytes(), need->weights);
    const std::vector<int32_t> tokens(4 * 32, 7);
    ASSERT_TRUE((*model)->ForwardBackward(tokens.data(), tokens.data(), 4, 32, 1).ok());
    ASSERT_TRUE((*model)->AdamWStep({}).ok());
    EXPECT_EQ((*model)->peak_bytes(), need->total() - need->workspace);
    EXPECT_EQ(need->workspace, 4 * 32 * 50);
    EXPECT_EQ(need->logits, 4 * 32 * 50 * 4);
    EXPECT_GT(need->activations, 0);
  }
}

TEST(MemoryPlanTest, APlanIsWhatEvaluationTakes) {
  LimitedBackend backend;
  for (const int T : {32, 512}) {
    const auto need = EvaluationNeed(backend, Config(), EvaluationPass::kLosses, 3, T, {});
    ASSERT_TRUE(need.ok()) << need.status();
    const auto model = Model::Create(&backend, Config());
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<int32_t> tokens(3 * static_cast<size_t>(T), 7);
    ASSERT_TRUE((*model)->Evaluate(tokens.data(), tokens.data(), 3, T, {}, nullptr).ok());
    EXPECT_EQ((*model)->peak_bytes(), need->total());
  }
}

TEST(MemoryPlanTest, APlanIsWhatPassesOfEveryKindTake) {
  LimitedBackend backend;
  ModelConfig config = Config();
  const int T = 96;
  const std::vector<int32_t> tokens(3 * static_cast<size_t>(T), 7);
  for (const EvaluationPass pass : {EvaluationPass::kStatistics, EvaluationPass::kMaps, EvaluationPass::kGeneration}) {
    const int B = pass == EvaluationPass::kMaps ? 1 : 3;
    const auto need = EvaluationNeed(backend, config, pass, B, T, {});
    ASSERT_TRUE(need.ok()) << need.status();
    const auto model = *Model::Create(&backend, config);
    ASSERT_TRUE(model->InitWeights(1).ok());
    switch (pass) {
      case EvaluationPass::kStatistics:
        ASSERT_TRUE(model
                        ->AttentionStatistics(tokens.data(), tokens.data(), B, T, {}, nullptr,
                                              [](int, int, int, const float*) {})
                        .ok());
        break;
      case EvaluationPass::kMaps:
        ASSERT_TRUE(model->AttentionMaps(tokens.data(), tokens.data(), T, {}, [](int, const float*) {}).ok());
        break;
      default:
        // The prompt is shorter than what is planned for.
        ASSERT_TRUE(model->Generate({tokens.data(), nullptr, B, T - 1}, 1, T, {}).ok());
        EXPECT_EQ(need->workspace, 4 * B * config.heads * T);
        EXPECT_LE(model->peak_bytes(), need->total() - need->workspace);
        EXPECT_GT(model->peak_bytes(), need->total() * 9 / 10);
        // Keys and values of every layer.
        EXPECT_GT(need->activations, int64_t{2} * B * T * config.width * config.layers * 4);
        continue;
    }
    EXPECT_EQ(model->peak_bytes(), need->total());
    model->ReleaseEvaluationArrays();
    EXPECT_EQ(model->allocated_bytes(), need->weights);
  }
}

TEST(MemoryPlanTest, RecomputationIsChosenWhereItIsNeededAndEnough) {
  LimitedBackend backend;
  const int64_t all = Total(backend, 4, Recompute::kNone), blocks = Total(backend, 4, Recompute::kBlocks);
  EXPECT_LT(blocks, all);
  const auto plan = [&](int64_t free, Recompute wanted) {
    backend.free = free;
    return PlanTraining(&backend, Config(), 8, 2, 32, wanted);
  };
  EXPECT_EQ(*plan(all, Recompute::kAuto), Recompute::kNone);
  EXPECT_EQ(*plan(all - 1, Recompute::kAuto), Recompute::kBlocks);
  EXPECT_EQ(*plan(all, Recompute::kBlocks), Recompute::kBlocks);
  EXPECT_EQ(*plan(blocks, Recompute::kAuto), Recompute::kBlocks);
  const absl::Status refused = plan(all - 1, Recompute::kNone).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--recompute auto"));
}

TEST(MemoryPlanTest, WhatDoesNotFitSaysHowMuchForWhatAndWhatToDo) {
  LimitedBackend backend(Total(LimitedBackend(), 2, Recompute::kBlocks));
  absl::Status refused = PlanTraining(&backend, Config(), 8, 1, 32, Recompute::kAuto).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  for (const char* words :
       {"training with recomputed activations needs ", " are free (weights ", "gradients ", "optimiser ",
        "activations ", "logits ", "workspace ", "train.accumulation 4 instead of 1"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(words));
  }
  backend.free = 1000;
  refused = PlanTraining(&backend, Config(), 8, 1, 32, Recompute::kAuto).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Not even one sequence"));
}

TEST(MemoryPlanTest, TheAdviceIsForTheModeAskedFor) {
  const auto refusal = [](int64_t free, Recompute wanted) {
    LimitedBackend backend(free);
    const absl::Status refused = PlanTraining(&backend, Config(), 8, 1, 32, wanted).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    return std::string(refused.message());
  };
  const LimitedBackend backend;
  const auto total = [&backend](int B, Recompute recompute) { return Total(backend, B, recompute); };
  // Room for one sequence with all its activations, and not for the batch without them.
  const int64_t one = total(1, Recompute::kNone);
  ASSERT_LT(one, total(8, Recompute::kBlocks));
  EXPECT_THAT(refusal(one, Recompute::kNone), AllOf(HasSubstr("training with --recompute none needs "),
                                                    HasSubstr("With train.accumulation 8 instead of 1 it")));
  // Only without them; then the advice says so.
  ASSERT_LT(total(1, Recompute::kBlocks), one);
  EXPECT_THAT(refusal(one - 1, Recompute::kNone), AllOf(HasSubstr("training with --recompute none needs "),
                                                        HasSubstr("With --recompute auto and train.accumulation ")));
  EXPECT_THAT(refusal(one - 1, Recompute::kAuto),
              AllOf(HasSubstr("training with recomputed activations needs "), HasSubstr("With train.accumulation ")));
  EXPECT_THAT(refusal(1000, Recompute::kNone),
              AllOf(HasSubstr("training with --recompute none needs "), HasSubstr("Not even one sequence")));
}

TEST(MemoryPlanTest, AnEvaluationCountsWhatItHoldsAlready) {
  LimitedBackend backend;
  const int64_t need = EvaluationNeed(backend, Config(), EvaluationPass::kLosses, 4, 64, {})->total();
  const int64_t one = EvaluationNeed(backend, Config(), EvaluationPass::kLosses, 1, 64, {})->total();
  backend.free = need - 100;
  EXPECT_TRUE(PlanEvaluation(&backend, Config(), EvaluationPass::kLosses, 4, 64, {}, 100).ok());
  absl::Status refused = PlanEvaluation(&backend, Config(), EvaluationPass::kLosses, 4, 64, {}, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Lower eval.batch_tokens: 64"));
  backend.free = one - 1;
  refused = PlanEvaluation(&backend, Config(), EvaluationPass::kLosses, 4, 64, {}, 0);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Not even one sequence"));
}

TEST(MemoryPlanTest, AModelThatCannotBeIsAnErrorOfItsOwn) {
  LimitedBackend backend;
  ModelConfig config = Config();
  config.heads = 5;
  EXPECT_EQ(PlanTraining(&backend, config, 8, 1, 32, Recompute::kAuto).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ablate
