// Passkey retrieval: with answers made by hand in the model's place, and through an evaluation.
#include "worker/trainer/probes/passkey.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/evaluation_testing.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class PasskeyTest : public ::testing::Test, protected ProbeWithoutModel {
 protected:
  PasskeyTest() {
    eval_.task = "passkey";
    eval_.batch_tokens = 4 * kLength;
    eval_.passkey = {.trials = 23, .depths = 5, .prompt = PasskeyPrompt::kShort};
  }
  static constexpr int kLength = 200;

  // `say` answers a prompt's key; what it says is cut, or filled with blanks, to the tokens that are generated.
  absl::StatusOr<bool> Measure(const std::function<std::string(int key, size_t place)>& say, v1::TaskResult* result,
                               int length = kLength, float loss = 1) {
    const ProbeContext context = Context(length, /*seed=*/9);
    const auto answer = [&](const std::vector<int32_t>& prompts, int sequences,
                            int tokens) -> absl::StatusOr<Generation> {
      EXPECT_EQ(prompts.size(), static_cast<size_t>(sequences * tokens));
      EXPECT_EQ(tokens, length - 10);
      EXPECT_LE(sequences, 4 * kLength / length);
      Generation made;
      for (int b = 0; b < sequences; ++b) {
        const std::string prompt = bytes_.Decode({prompts.begin() + b * tokens, prompts.begin() + (b + 1) * tokens});
        prompts_.push_back(prompt);
        const size_t at = prompt.find("\nThe pass key is ");
        std::string said = say(std::stoi(prompt.substr(at + 17)), at);
        said.resize(10, ' ');
        for (const int32_t token : bytes_.Encode(said)) made.tokens.push_back(token);
      }
      made.losses.assign(made.tokens.size(), loss);
      return made;
    };
    return MeasurePasskey(context, bytes_, answer, result);
  }
  double Accuracy(const std::function<std::string(int, size_t)>& say) {
    v1::TaskResult result;
    const auto done = Measure(say, &result);
    EXPECT_TRUE(done.ok() && *done) << done.status();
    EXPECT_EQ(result.outcome(), v1::COMPLETED);
    return Metric(result, "passkey_accuracy");
  }

  std::vector<std::string> prompts_;
};

TEST_F(PasskeyTest, TheFirstIntegerIsTheAnswer) {
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat(key); }), 1);
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat(" ", key, "."); }), 1);
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat(key, "abc"); }), 1);
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat("0", key); }), 1);
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat(" ", key, " 77"); }), 1);
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat("7 ", key); }), 0);
  EXPECT_EQ(Accuracy([](int key, size_t) { return absl::StrCat(key, "0"); }), 0);
  EXPECT_EQ(Accuracy([](int, size_t) { return "abc"; }), 0);
  EXPECT_EQ(Accuracy([](int, size_t) { return ""; }), 0);
}

TEST_F(PasskeyTest, DepthsAreBinsOfTheKeysPlace) {
  v1::TaskResult result;
  size_t longest = 0;
  // Right in the first half of the filler alone: 190 - 62 tokens of it, and at most 4 more where the key is short.
  const auto done = Measure(
      [&](int key, size_t place) {
        longest = std::max(longest, place);
        return place < 64 ? absl::StrCat(key) : "no";
      },
      &result);
  ASSERT_TRUE(done.ok());
  EXPECT_GT(longest, 100u);
  std::map<std::string, double> metrics;
  for (const auto& metric : result.metrics()) metrics[metric.metric()] = metric.value();
  EXPECT_EQ(metrics.size(), 12u);
  EXPECT_EQ(metrics["passkey_trials"], 23);
  EXPECT_EQ(metrics["passkey_accuracy.depth_1_of_5"], 1);
  EXPECT_EQ(metrics["passkey_accuracy.depth_2_of_5"], 1);
  EXPECT_EQ(metrics["passkey_accuracy.depth_4_of_5"], 0);
  EXPECT_EQ(metrics["passkey_accuracy.depth_5_of_5"], 0);
  EXPECT_EQ(metrics["passkey_trials.depth_1_of_5"], 5);
  EXPECT_EQ(metrics["passkey_trials.depth_5_of_5"], 4);
  double right = 0;
  for (int bin = 1; bin <= 5; ++bin) {
    const std::string depth = absl::StrCat(".depth_", bin, "_of_5");
    right += metrics["passkey_accuracy" + depth] * metrics["passkey_trials" + depth];
  }
  EXPECT_NEAR(metrics["passkey_accuracy"], right / 23, 1e-12);
}

TEST_F(PasskeyTest, TrialsAreOfTheirIndexWhateverTheBatch) {
  Accuracy([](int, size_t) { return ""; });
  const std::vector<std::string> by_four = prompts_;
  prompts_.clear();
  eval_.batch_tokens = 1;
  Accuracy([](int, size_t) { return ""; });
  EXPECT_EQ(prompts_, by_four);
  EXPECT_EQ(std::set<std::string>(by_four.begin(), by_four.end()).size(), by_four.size());
  prompts_.clear();
  eval_.passkey.trials = 7;
  Accuracy([](int, size_t) { return ""; });
  EXPECT_EQ(prompts_, std::vector<std::string>(by_four.begin(), by_four.begin() + 7));
  for (int i = 0; i < 1000; ++i) {
    const PasskeyDraw draw = DrawPasskeyTrial(1, 64, i, 10);
    EXPECT_EQ(static_cast<int>(draw.place * 10), i % 10);
  }
  EXPECT_NE(DrawPasskeyTrial(1, 64, 0, 10).key, DrawPasskeyTrial(1, 128, 0, 10).key);
}

TEST_F(PasskeyTest, ALengthThatIsTooShortAndALossThatIsNotFinite) {
  v1::TaskResult result;
  const auto say = [](int key, size_t) { return absl::StrCat(key); };
  // 62 tokens of the prompt, 4 for the depths, 10 to answer.
  EXPECT_TRUE(Measure(say, &result, 76).ok());
  auto status = Measure(say, &result, 75).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at a length of 75 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("at least 76"));
  eval_.passkey.prompt = PasskeyPrompt::kFull;
  status = Measure(say, &result, 240).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("eval.passkey.prompt: short"));
  v1::TaskResult diverged;
  ASSERT_TRUE(Measure(say, &diverged, 400, NAN).ok());
  EXPECT_EQ(diverged.outcome(), v1::DIVERGED);
  EXPECT_EQ(Metric(diverged, "passkey_accuracy"), 1);
  eval_.passkey.prompt = PasskeyPrompt::kShort;
  control_.stop = true;
  const auto stopped = Measure(say, &result);
  ASSERT_TRUE(stopped.ok());
  EXPECT_FALSE(*stopped);
}

class PasskeyEvaluationTest : public EvaluationTest {
 protected:
  v1::RunEvaluation Passkey(int64_t length) {
    v1::RunEvaluation request = With(With(At(length), "eval.task", "passkey"), "eval.passkey.prompt", "short");
    request.mutable_task()->set_split("passkey");
    return With(request, "eval.passkey.trials", 6);
  }
};

TEST_F(PasskeyEvaluationTest, RunsAsAnEvaluationAtEveryLengthThatFits) {
  for (const int64_t length : {128, 256}) {
    for (const char* ntk : {"off", "dynamic"}) {
      const v1::TaskResult result = Measure(With(Passkey(length), "eval.ntk", ntk));
      EXPECT_EQ(result.outcome(), v1::COMPLETED);
      EXPECT_EQ(Metric(result, "passkey_trials"), 6);
      EXPECT_EQ(Metric(result, "passkey_accuracy"), 0);  // 30 steps on other text
      EXPECT_EQ(result.documents_size(), 0);
    }
  }
  EXPECT_EQ(evaluator_->loads(), 1);
  EXPECT_THAT(Message(Passkey(64)), HasSubstr("at a length of 64 tokens"));
  EXPECT_THAT(Message(Passkey(257)), HasSubstr("257"));
  v1::RunEvaluation request = Passkey(128);
  request.mutable_task()->add_tokenizer()->set_path("vocab.bpe");
  EXPECT_THAT(Message(request), HasSubstr("paths came"));
  request.add_tokenizer_paths("vocab.bpe");
  EXPECT_THAT(Message(request), HasSubstr("task passkey: the model was trained on text"));
}

}  // namespace
}  // namespace ablate
