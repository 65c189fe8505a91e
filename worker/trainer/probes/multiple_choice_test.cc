// Multiple choice: items of each data set's fields, the scoring with losses made by hand, and through an evaluation.
#include "worker/trainer/probes/multiple_choice.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/evaluation_testing.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<ChoiceItem> Items(std::string_view content, std::string_view labels = {}) {
  auto items = ReadChoiceItems("q.jsonl", content, labels);
  EXPECT_TRUE(items.ok()) << items.status();
  return items.ok() ? *std::move(items) : std::vector<ChoiceItem>();
}
std::string Refusal(std::string_view content, std::string_view labels = {}) {
  const auto items = ReadChoiceItems("q.jsonl", content, labels);
  EXPECT_EQ(items.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(items.status().message());
}

TEST(ChoiceItems, OfEachDataSet) {
  const auto items = Items(
      R"({"id":"a","question":{"stem":"Why?","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"}]},"answerKey":"B"}

{"id":"b","question":"Why?","choices":{"text":["x","y","z"],"label":["1","2","3"]},"answerKey":"1"}
{"ind":3,"activity_label":"Baking","ctx_a":"A man bakes [header] it.","ctx_b":"then He","ctx":"unused","endings":["eats [title] Next","runs  off"],"label":"1"}
{"goal":"Open a jar","sol1":"Twist.","sol2":"Cry.","label":0}
{"support":" Some text.","question":"Which?","distractor1":"a","distractor2":"b","distractor3":"c","correct_answer":"d"}
)");
  ASSERT_EQ(items.size(), 5u);
  EXPECT_EQ(items[0].context, "Question: Why?\nAnswer:");
  EXPECT_THAT(items[0].choices, ElementsAre("x", "y"));
  EXPECT_EQ(items[0].right, 1);
  EXPECT_THAT(items[1].choices, ElementsAre("x", "y", "z"));
  EXPECT_EQ(items[1].right, 0);
  EXPECT_EQ(items[2].context, "Baking: A man bakes it. Then he");
  EXPECT_THAT(items[2].choices, ElementsAre("eats. Next", "runs off"));
  EXPECT_EQ(items[2].right, 1);
  EXPECT_EQ(items[3].context, "Question: Open a jar\nAnswer:");
  EXPECT_THAT(items[3].choices, ElementsAre("Twist.", "Cry."));
  EXPECT_EQ(items[3].right, 0);
  EXPECT_EQ(items[4].context, "Some text.\nQuestion: Which?\nAnswer:");
  EXPECT_THAT(items[4].choices, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(items[4].right, 3);
  // However long what is left out is, or what is never closed.
  const std::string many(300'000, 'x');
  const auto swag = [](const std::string& context) {
    return Items(R"({"ctx":")" + context + R"(","endings":["a [b] c","[d"],"label":1})")[0];
  };
  EXPECT_EQ(swag("a [" + many + "] b").context, "a b");
  EXPECT_EQ(swag("a [" + many).context, "a [" + many);
  EXPECT_THAT(swag("a").choices, ElementsAre("a c", "[d"));
  // PIQA as it is distributed: labels apart; SciQ as it is: one array.
  const std::string piqa = R"({"goal":"g","sol1":"s","sol2":"t"})";
  const auto labelled = Items(piqa + "\n" + piqa + "\n", "1\n0\n");
  EXPECT_EQ(labelled[0].right, 1);
  EXPECT_EQ(labelled[1].right, 0);
  EXPECT_EQ(Items("[" + piqa.substr(0, piqa.size() - 1) + ",\"label\":1}]")[0].right, 1);
}

TEST(ChoiceItems, WhatIsWrongIsSaidWithItsLine) {
  const std::string good = R"({"goal":"g","sol1":"s","sol2":"t","label":1})"
                           "\n";
  EXPECT_THAT(Refusal(good + "{\"goal\":"), HasSubstr("q.jsonl:2: expected a JSON object"));
  EXPECT_THAT(Refusal(good + "\n{\"a\":1}"), HasSubstr("q.jsonl:3: not an item of ARC"));
  EXPECT_THAT(Refusal(R"({"goal":"g","sol1":"s","sol2":"t","label":2})"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(Refusal(R"({"goal":"g","sol1":"s","sol2":"t"})"), HasSubstr("field \"label\""));
  EXPECT_THAT(Refusal(R"({"goal":"g","sol1":"s","sol2":"","label":1})"), HasSubstr("a choice is empty"));
  EXPECT_THAT(Refusal(R"({"question":"q","choices":{"text":["x"],"label":["A"]},"answerKey":"A"})"),
              HasSubstr("fewer than two"));
  EXPECT_THAT(Refusal(R"({"question":"q","choices":{"text":["x","y"],"label":["A","B"]},"answerKey":"C"})"),
              HasSubstr("the label of one choice"));
  EXPECT_THAT(Refusal(good + good, "1\n"), HasSubstr("the file of labels has only 1"));
  EXPECT_THAT(Refusal(good, "1\n0\n"), HasSubstr("1 items, but the file of labels has 2"));
  EXPECT_THAT(Refusal("\n\n"), HasSubstr("no item"));
  EXPECT_THAT(Refusal("[{}"), HasSubstr("not a JSON array"));
}

TEST(ChoiceTokens, TheChoiceWithItsSpaceIsScored) {
  const ByteTokenizer bytes;
  const ChoiceTokens whole = TokensOf(bytes, "Q:", "no", 100);
  EXPECT_EQ(bytes.Decode(whole.tokens), "Q: no");
  EXPECT_EQ(whole.scored, 3);
  EXPECT_FALSE(whole.cut);
  // Four inputs: the prompt loses its beginning. Two: the choice does, but for what has an input before it.
  EXPECT_EQ(bytes.Decode(TokensOf(bytes, "Q:", "no", 3).tokens), ": no");
  EXPECT_EQ(TokensOf(bytes, "Q:", "no", 3).scored, 3);
  EXPECT_TRUE(TokensOf(bytes, "Q:", "no", 3).cut);
  EXPECT_EQ(bytes.Decode(TokensOf(bytes, "Q:", "no", 2).tokens), " no");
  EXPECT_EQ(TokensOf(bytes, "Q:", "no", 2).scored, 2);
  EXPECT_EQ(Characters("naïve"), 5);
}

class MultipleChoiceTest : public EvaluationTest, protected ProbeWithoutModel {
 protected:
  // Every scored byte costs what `cost` says of it.
  v1::TaskResult Score(const std::vector<ChoiceItem>& items, const std::function<float(char)>& cost) {
    eval_.task = "multiple_choice";
    const ProbeContext context = Context(64);
    v1::TaskResult result;
    const auto done = MeasureChoices(
        context, bytes_, items,
        [&](const std::vector<int32_t>&, const std::vector<int32_t>& targets, int, int, std::vector<float>* losses) {
          for (size_t i = 0; i < targets.size(); ++i) {
            (*losses)[i] = targets[i] < 0 ? 0 : cost(static_cast<char>(targets[i]));
          }
          return absl::OkStatus();
        },
        &result);
    EXPECT_TRUE(done.ok() && *done) << done.status();
    return result;
  }
};

TEST_F(MultipleChoiceTest, AccIsBySumAndAccNormByCharacter) {
  // Costs: a space 1, a 1, b 2, c 4. " aaaa": 5 in 4 characters (1.25 a character); " b": 3 in 1 (3); " cc": 9 in 2
  // (4.5).
  const auto cost = [](char c) { return c == 'c' ? 4.0f : c == 'b' ? 2.0f : 1.0f; };
  // The contexts do not count.
  const std::vector<ChoiceItem> items = Items(
      // by sum b (3 < 5), by character aaaa: acc 1, acc_norm 0
      R"({"goal":"Q","sol1":"aaaa","sol2":"b","label":1})"
      "\n"
      // acc 0, acc_norm 1
      R"({"goal":"Q","sol1":"aaaa","sol2":"b","label":0})"
      "\n"
      // neither
      R"({"question":"Q","choices":{"text":["b","aaaa","cc"],"label":["A","B","C"]},"answerKey":"C"})"
      "\n"
      // of equal ones the first: both
      R"({"ctx":"Q","endings":["b","b"],"label":"0"})");
  const v1::TaskResult result = Score(items, cost);
  EXPECT_EQ(Metric(result, "acc"), 2.0 / 4);
  EXPECT_EQ(Metric(result, "acc_norm"), 2.0 / 4);
  EXPECT_EQ(Metric(result, "choice_items"), 4);
  EXPECT_EQ(Metric(result, "choice_items_cut"), 0);
  EXPECT_EQ(result.outcome(), v1::COMPLETED);
  EXPECT_EQ(Score({items[0]}, cost).metrics(0).value(), 1);
  EXPECT_EQ(Metric(Score({items[0]}, cost), "acc_norm"), 0);
  EXPECT_EQ(Metric(Score({items[1]}, cost), "acc_norm"), 1);
}

TEST_F(MultipleChoiceTest, LossesThatAreNotFiniteAreADivergence) {
  const v1::TaskResult result =
      Score({{"Q:", {"a", "b"}, 0}}, [](char) { return std::numeric_limits<float>::quiet_NaN(); });
  EXPECT_EQ(result.outcome(), v1::DIVERGED);
}

TEST_F(MultipleChoiceTest, ThroughAnEvaluation) {
  const std::string path = JoinPath(dir_.path(), "q.jsonl");
  ASSERT_TRUE(WriteFileAtomic(path, R"({"goal":"the","sol1":"cat","sol2":"zqxj vkw","label":0})"
                                    "\n")
                  .ok());
  v1::RunEvaluation request = With(At(16), "eval.task", "multiple_choice");
  request.mutable_task()->set_split("mine");
  request.mutable_task()->add_files()->set_path("mine.jsonl");
  request.add_file_paths(path);
  const v1::TaskResult result = Measure(request);
  EXPECT_EQ(Metric(result, "choice_items"), 1);
  EXPECT_EQ(result.outcome(), v1::COMPLETED);
  const v1::TaskResult again = Measure(request);
  EXPECT_EQ(again.SerializeAsString(), result.SerializeAsString());
  for (int files = 1; files < 3; ++files) {
    request.mutable_task()->add_files()->set_path("more");
    request.add_file_paths(path);
  }
  EXPECT_THAT(Message(request), HasSubstr("needs one file of questions"));
}

}  // namespace
}  // namespace ablate
