// ROUGE against values worked out by hand, and summaries with answers made in the model's place.
#include "worker/trainer/probes/summaries.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/evaluation_testing.h"
#include "worker/trainer/probes/rouge.h"

namespace ablate {
namespace {

using ::testing::DoubleEq;
using ::testing::HasSubstr;

double F1(double precision, double recall) { return 2 * precision * recall / (precision + recall); }

TEST(Rouge, EqualsWhatIsWorkedOutByHand) {
  // the cat sat on the mat / the cat the mat was on: common words the(2) cat on mat = 5 of 6 and 6; pairs: "the cat",
  // "the mat" = 2 of 5 and 5; longest common subsequence the cat the mat = 4.
  const Rouge rouge = RougeOf("The cat sat on the mat.", "the cat; the MAT was on");
  EXPECT_THAT(rouge.one, DoubleEq(F1(5.0 / 6, 5.0 / 6)));
  EXPECT_THAT(rouge.two, DoubleEq(F1(2.0 / 5, 2.0 / 5)));
  EXPECT_THAT(rouge.longest, DoubleEq(F1(4.0 / 6, 4.0 / 6)));
  // A word counts as often as both have it; precision and recall differ.
  const Rouge short_one = RougeOf("a a a b", "a b c d e f");
  EXPECT_THAT(short_one.one, DoubleEq(F1(2.0 / 4, 2.0 / 6)));
  EXPECT_THAT(short_one.two, DoubleEq(F1(1.0 / 3, 1.0 / 5)));
  EXPECT_THAT(short_one.longest, DoubleEq(F1(2.0 / 4, 2.0 / 6)));
  const Rouge same = RougeOf("x-ray 2 Go", "X ray, 2 go");
  EXPECT_EQ(same.one, 1);
  EXPECT_EQ(same.two, 1);
  EXPECT_EQ(same.longest, 1);
  for (const Rouge& none : {RougeOf("", "a b"), RougeOf("a b", "?"), RougeOf("c d", "a b")}) {
    EXPECT_EQ(none.one, 0);
    EXPECT_EQ(none.two, 0);
    EXPECT_EQ(none.longest, 0);
  }
  EXPECT_EQ(RougeOf("a", "a").two, 0);
  EXPECT_EQ(RougeOf("a", "a").one, 1);
}

class SummariesTest : public EvaluationTest, protected ProbeWithoutModel {
 protected:
  absl::StatusOr<bool> Score(const std::vector<SummaryItem>& items, const std::string& said, int length,
                             v1::TaskResult* result) {
    eval_.task = "summaries";
    eval_.summary_tokens = 20;
    const ProbeContext context = Context(length);
    return MeasureSummaries(
        context, bytes_, items,
        [&](const std::vector<int32_t>& prompt, int new_tokens) -> absl::StatusOr<Generation> {
          prompts_.push_back(bytes_.Decode(prompt));
          EXPECT_EQ(new_tokens, 20);
          EXPECT_LE(static_cast<int>(prompt.size()) + new_tokens, length);
          return Generation{.tokens = bytes_.Encode(said), .losses = std::vector<float>(said.size(), 1.0f)};
        },
        result);
  }
  std::vector<std::string> prompts_;
};

TEST_F(SummariesTest, TheFirstLineIsScoredAndMeansAreOverTexts) {
  v1::TaskResult result;
  // Against "the cat sat": all of it; against "a dog": nothing. The second text is cut.
  const auto done = Score({{"A short text.", "the cat sat"}, {std::string(100, 'x'), "a dog"}},
                          " \n the cat sat\nand more", 64, &result);
  ASSERT_TRUE(done.ok() && *done) << done.status();
  EXPECT_EQ(prompts_[0], "A short text.\nTL;DR:");
  EXPECT_EQ(prompts_[1], std::string(37, 'x') + "\nTL;DR:");
  EXPECT_EQ(Metric(result, "rouge1"), 0.5);
  EXPECT_EQ(Metric(result, "rouge2"), 0.5);
  EXPECT_EQ(Metric(result, "rougeL"), 0.5);
  EXPECT_EQ(Metric(result, "summary_items"), 2);
  EXPECT_EQ(Metric(result, "summary_items_cut"), 1);
  EXPECT_THAT(std::string(Score({{"a", "b"}}, "", 27, &result).status().message()),
              HasSubstr("lower eval.summaries.tokens"));
}

TEST_F(SummariesTest, ItemsAreReadByTheirFields) {
  const auto items = ReadSummaryItems("s.jsonl", R"({"article":"a","highlights":"b"})"
                                                 "\n"
                                                 R"({"document":"c","summary":"d"})");
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_EQ((*items)[0].document, "a");
  EXPECT_EQ((*items)[1].summary, "d");
  EXPECT_THAT(std::string(ReadSummaryItems("s.jsonl", "{\"text\":\"a\"}").status().message()),
              HasSubstr("s.jsonl:1: field \"summary\""));
}

TEST_F(SummariesTest, ThroughAnEvaluation) {
  const std::string path = JoinPath(dir_.path(), "s.jsonl");
  ASSERT_TRUE(WriteFileAtomic(path, R"({"text":"ab","summary":"cd"})").ok());
  v1::RunEvaluation request = With(With(At(16), "eval.task", "summaries"), "eval.summaries.tokens", 4);
  request.mutable_task()->set_split("mine");
  request.mutable_task()->add_files()->set_path("mine.jsonl");
  request.add_file_paths(path);
  const v1::TaskResult result = Measure(request);
  EXPECT_EQ(Metric(result, "summary_items"), 1);
  EXPECT_EQ(result.outcome(), v1::COMPLETED);
  EXPECT_EQ(Measure(request).SerializeAsString(), result.SerializeAsString());
}

}  // namespace
}  // namespace ablate
