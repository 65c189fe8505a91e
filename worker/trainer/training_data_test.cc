// What stages train on beside windows of text: made sequences and synthetic documents. Real stages on the CPU backend.
#include "worker/trainer/training_data.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/mqar.h"
#include "worker/trainer/stage.h"
#include "worker/trainer/testing.h"
#include "worker/trainer/tokenizer.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class Control : public TaskControl {
 public:
  Stop ShouldStop() override { return step_ >= stop_at ? Stop::kWithCheckpoint : Stop::kNo; }
  void Progress(int64_t step, double) override { step_ = step; }
  void Point(std::string_view metric, int64_t step, double value) override {
    if (metric == "train_loss") losses[step] = value;
  }
  void Checkpoint(const SavedState& saved, int64_t, bool) override { last = saved; }
  int64_t stop_at = 1 << 30;
  std::map<int64_t, double> losses;
  SavedState last;

 private:
  int64_t step_ = -1;
};

struct Ran {
  absl::Status status;
  v1::TaskResult result;
  Control control;
  std::string Hashes() const { return result.end_state().weights().sha256() + result.end_state().optimizer().sha256(); }
};

class TrainingDataTest : public ::testing::Test {
 protected:
  static v1::Configuration RecallConfig() {
    v1::Configuration config = SmallConfig();
    Set(&config, "data.mqar.vocabulary", 12);
    Set(&config, "data.mqar.pairs", 3);
    return config;
  }
  v1::RunStage RecallStage(const v1::Configuration& config, int64_t to, const std::string& name) {
    v1::RunStage request = StageRequest(data_, config, 0, to, JoinPath(dir_.path(), name), name);
    *request.mutable_task()->mutable_data() = MqarData();
    request.clear_data_paths();
    return request;
  }
  static Ran Run(const v1::RunStage& request, int64_t stop_at = 1 << 30, int threads = 1) {
    Ran ran;
    ran.control.stop_at = stop_at;
    auto backend = NewCpuBackend(threads);
    EXPECT_TRUE(backend.ok());
    auto data = DataSet::Open(request.task().data(), {request.data_paths().begin(), request.data_paths().end()});
    EXPECT_TRUE(data.ok()) << data.status();
    FakeClock clock;
    ran.status =
        RunStage(request, data->get(), backend->get(), Recompute::kAuto, clock, &ran.control, &ran.result).status();
    return ran;
  }

  TempDir dir_;
  TextData data_{dir_.path()};
};

TEST_F(TrainingDataTest, TheLossOfRecallIsTheMeanOverTheScoredTargets) {
  const Ran ran = Run(RecallStage(RecallConfig(), 1, "a"));
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  // The initial weights on the same batch, by the model alone.
  auto backend = NewCpuBackend(1);
  ASSERT_TRUE(backend.ok());
  auto config = TrainConfigFrom(RecallConfig(), kVocabularyOfConfiguration);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.vocab, 12);
  auto model = Model::Create(backend->get(), config->model);
  ASSERT_TRUE(model.ok() && (*model)->InitWeights(3).ok());
  const auto maker = MqarMaker::Make(12, 3, 16, 3, kMqarTraining);
  ASSERT_TRUE(maker.ok());
  std::vector<int32_t> tokens(4 * 16), targets(4 * 16);
  for (uint64_t i = 0; i < 4; ++i) maker->Fill(i, &tokens[i * 16], &targets[i * 16]);
  const auto loss = (*model)->Evaluate(tokens.data(), targets.data(), 4, 16, {}, nullptr);
  ASSERT_TRUE(loss.ok());
  EXPECT_EQ(loss->targets, 4 * 3);
  EXPECT_NEAR(ran.control.losses.at(1), loss->mean(), 1e-5);
  EXPECT_NEAR(loss->mean(), std::log(12), 0.1);
  // Tokens are what went through the model, scored or not.
  EXPECT_EQ(Metric(ran.result, "tokens"), 4 * 16);
}

TEST_F(TrainingDataTest, RecallIsLearned) {
  v1::Configuration config = RecallConfig();
  Set(&config, "data.mqar.pairs", 1);
  Set(&config, "train.steps", 250);
  const Ran ran = Run(RecallStage(config, 250, "a"));
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  // A single value is asked for: a model that uses the scored targets alone finds it; one trained on others does not.
  EXPECT_LT(ran.control.losses.at(250), 0.5);
}

TEST_F(TrainingDataTest, RecallHasTheSameBitsHoweverItIsInterruptedOrThreaded) {
  const Ran straight = Run(RecallStage(RecallConfig(), 12, "straight"));
  ASSERT_TRUE(straight.status.ok()) << straight.status;
  EXPECT_EQ(Run(RecallStage(RecallConfig(), 12, "threads"), 1 << 30, 3).Hashes(), straight.Hashes());
  const v1::RunStage request = RecallStage(RecallConfig(), 12, "stopped");
  ASSERT_TRUE(Run(request, 5).status.ok());
  const Ran resumed = Run(request);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_EQ(resumed.result.resumed_from_step(), 5);
  EXPECT_EQ(resumed.Hashes(), straight.Hashes());
  v1::RunStage other = RecallStage(RecallConfig(), 12, "seed");
  other.mutable_task()->set_seed(4);
  EXPECT_NE(Run(other).Hashes(), straight.Hashes());
}

TEST_F(TrainingDataTest, AccumulationKeepsTheMeanOfTheStep) {
  v1::Configuration parts = RecallConfig();
  Set(&parts, "train.accumulation", 4);
  const Ran whole = Run(RecallStage(RecallConfig(), 8, "a")), cut = Run(RecallStage(parts, 8, "b"));
  ASSERT_TRUE(whole.status.ok() && cut.status.ok());
  EXPECT_NEAR(cut.control.losses.at(8), whole.control.losses.at(8), 1e-4);
}

TEST_F(TrainingDataTest, AStateOfAnotherVocabularyOrOtherDataIsRefused) {
  const Ran parent = Run(RecallStage(RecallConfig(), 5, "parent"));
  ASSERT_TRUE(parent.status.ok()) << parent.status;
  v1::RunStage child = RecallStage(RecallConfig(), 12, "child");
  child.mutable_task()->set_from_step(5);
  child.set_start_weights_path(parent.control.last.paths.weights);
  child.set_start_optimizer_path(parent.control.last.paths.optimizer);
  child.set_start_step(5);
  EXPECT_TRUE(Run(child).status.ok());
  v1::RunStage other = child;
  Set(other.mutable_task()->mutable_config(), "data.mqar.vocabulary", 14);
  const absl::Status vocabulary = Run(other).status;
  EXPECT_EQ(vocabulary.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(vocabulary.message()), HasSubstr("vocabulary=14"));
  v1::RunStage text = child;
  *text.mutable_task()->mutable_data() = data_.ref;
  text.add_data_paths(data_.path);
  EXPECT_EQ(Run(text).status.code(), absl::StatusCode::kInvalidArgument);
}

class MixtureTest : public TrainingDataTest {
 protected:
  static constexpr int kLength = 150;

  static v1::Configuration Config(double share, const char* prompt = "short", int length = kLength) {
    v1::Configuration config = SmallConfig();
    Set(&config, "train.length", length);
    Set(&config, "data.mixture", share);
    Set(&config, "data.mixture_prompt", prompt);
    return config;
  }
  absl::StatusOr<std::unique_ptr<TrainingData>> Open(const v1::Configuration& config, uint64_t seed = 3) {
    auto train = TrainConfigFrom(config, kTextVocabulary);
    if (!train.ok()) return train.status();
    return MakeTrainingData(set_.get(), *train, seed);
  }
  // The sample's T + 1 bytes.
  static std::string Sample(const TrainingData& data, uint64_t index) {
    std::vector<int32_t> tokens(kLength), targets(kLength);
    EXPECT_TRUE(data.Fill(index, tokens.data(), targets.data()).ok());
    EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
    tokens.push_back(targets.back());
    return ByteTokenizer().Decode(tokens);
  }
  static bool IsMade(const std::string& sample) { return sample.find("What is the pass key?") != std::string::npos; }

  std::unique_ptr<DataSet> set_ = *DataSet::Open(data_.ref, {data_.path});
};

TEST_F(MixtureTest, TheShareIsMadeAndTheRestAreTheWindowsOfBefore) {
  const auto plain = Open(Config(0)), mixed = Open(Config(0.3)), all = Open(Config(1));
  ASSERT_TRUE(plain.ok() && mixed.ok() && all.ok()) << mixed.status();
  EXPECT_EQ((*mixed)->scored_targets(), kLength);
  int made = 0;
  for (uint64_t i = 2000; i-- > 0;) {
    const std::string sample = Sample(**mixed, i);
    made += IsMade(sample) ? 1 : 0;
    EXPECT_EQ(sample, Sample(IsMade(sample) ? **all : **plain, i)) << i;
  }
  EXPECT_NEAR(made, 600, 80);  // four deviations
}

TEST_F(MixtureTest, DocumentsFillTheSampleAndAnswerTheirQuestion) {
  const auto all = Open(Config(1));
  ASSERT_TRUE(all.ok()) << all.status();
  std::set<std::string> seen;
  std::map<int, int> documents;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string sample = Sample(**all, i);
    EXPECT_EQ(sample.size(), static_cast<size_t>(kLength + 1));
    seen.insert(sample);
    int count = 0;
    for (size_t at = 0; (at = sample.find("\nThe pass key is ", at)) != std::string::npos; ++count) {
      const std::string key = sample.substr(at + 17, sample.find('.', at) - at - 17);
      const std::string question = "\nWhat is the pass key? The pass key is ";
      at = sample.find(question, at);
      ASSERT_NE(at, std::string::npos) << sample;
      EXPECT_EQ(sample.substr(at + question.size(), key.size() + 2), key + ".\n") << sample;
    }
    EXPECT_EQ(sample.back(), '\n');
    ++documents[count];
  }
  EXPECT_EQ(seen.size(), 200u);
  // 151 tokens hold one document or two.
  EXPECT_THAT(documents, ::testing::UnorderedElementsAre(::testing::Key(1), ::testing::Key(2)));
  EXPECT_NE(Sample(**Open(Config(1), 4), 0), Sample(**all, 0));
}

TEST_F(MixtureTest, WhatCannotBeMixedIsRefused) {
  EXPECT_THAT(std::string(Open(Config(0.5, "full")).status().message()),
              HasSubstr("or set data.mixture_prompt: short"));
  EXPECT_TRUE(Open(Config(0, "full")).ok());
  EXPECT_THAT(std::string(Open(Config(0.5, "short", 40)).status().message()), HasSubstr("and it is 40"));
  v1::Configuration recall = RecallConfig();
  Set(&recall, "data.mixture", 0.5);
  EXPECT_THAT(std::string(Run(RecallStage(recall, 5, "a")).status.message()), HasSubstr("format mqar has none"));
  // Shards of GPT-2 tokens: a header and enough of them.
  std::string shard(1024 + 2 * 20000, '\0');
  const int32_t header[3] = {20240520, 1, 20000};
  std::memcpy(shard.data(), header, sizeof(header));
  const std::string path = JoinPath(dir_.path(), "shard.bin");
  ASSERT_TRUE(WriteFileAtomic(path, shard).ok());
  v1::DataRef ref;
  ref.set_format(v1::DataRef::TOKEN_SHARDS);
  auto set = DataSet::Open(ref, {path});
  ASSERT_TRUE(set.ok()) << set.status();
  const auto train = TrainConfigFrom(Config(0.5, "short", 100), kGpt2Vocabulary);
  ASSERT_TRUE(train.ok());
  EXPECT_THAT(std::string(MakeTrainingData(set->get(), *train, 1).status().message()), HasSubstr("GPT-2's tokens"));
}

TEST_F(TrainingDataTest, MadeDataHasRulesAndNoFilesAndNoSplits) {
  const auto set = DataSet::Open(MqarData(), {});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_TRUE((*set)->made());
  EXPECT_TRUE((*set)->Is(MqarData(), {}));
  EXPECT_FALSE((*set)->Is(data_.ref, {data_.path}));
  EXPECT_EQ((*set)->vocabulary(), kVocabularyOfConfiguration);
  EXPECT_THAT(std::string((*set)->Splits(16).status().message()), HasSubstr("measure the task mqar instead"));
  EXPECT_FALSE((*set)->Spans(16, Split::kSelection).ok());

  v1::DataRef other = MqarData();
  other.set_sha256(Sha256Hex("mqar 2"));
  EXPECT_THAT(std::string(DataSet::Open(other, {}).status().message()), HasSubstr("this build knows \"mqar 1\""));
  EXPECT_THAT(std::string(DataSet::Open(MqarData(), {data_.path}).status().message()), HasSubstr("but files came"));

  v1::Configuration config = RecallConfig();
  Set(&config, "data.mqar.pairs", 5);
  EXPECT_THAT(std::string(Run(RecallStage(config, 5, "a")).status.message()), HasSubstr("at least 20 tokens"));
}

}  // namespace
}  // namespace ablate
