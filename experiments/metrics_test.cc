#include "experiments/metrics.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

TEST(Metrics, HeadlinesComeFirstAndNamesAreUnique) {
  const std::vector<std::string> names = MetricNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_TRUE(
      std::is_partitioned(names.begin(), names.end(), [](const std::string& name) { return IsHeadline(name); }));
  EXPECT_TRUE(IsHeadline("loss") && IsHeadline("loss_targets"));
  EXPECT_FALSE(IsHeadline("tokens") || IsHeadline("los") || IsHeadline(""));
  EXPECT_LT(MetricRank("loss_targets"), MetricRank("loss"));
  EXPECT_EQ(MetricRank("los"), static_cast<int>(names.size()));
  for (const Metric& metric : Metrics()) EXPECT_TRUE(metric.of_evaluation || metric.of_stage) << metric.name;
}

TEST(Metrics, LossesAreLosses) {
  std::vector<std::string> losses;
  for (const std::string& name : MetricNames()) {
    if (IsLoss(name) && PositionsOf(name).to == 0) losses.push_back(name);
  }
  EXPECT_THAT(losses, ::testing::ElementsAre("loss_targets", "loss", "loss_per_byte", "bits_per_byte",
                                             "loss_targets_windowed"));
  EXPECT_TRUE(IsLoss("loss_by_position.16T") && IsGain("gain"));
  EXPECT_FALSE(IsLoss("gain") || IsLoss("lossy") || IsLoss("tokens"));
  EXPECT_EQ(PositionsOf("loss_by_position.T/64").from, 0);
  EXPECT_EQ(PositionsOf("loss_by_position.T/64").to, 1.0 / 64);
  EXPECT_EQ(PositionsOf("loss_by_position.3T/4").from, 0.5);
  EXPECT_EQ(PositionsOf("loss_by_position.3T/4").to, 0.75);
  EXPECT_EQ(PositionsOf("loss_by_position.16T").from, 8);
  EXPECT_EQ(PositionsOf("loss_by_position.16T").to, 16);
}

TEST(Metrics, MembersOfAFamilyAreOfItsRow) {
  ASSERT_NE(FindMetric("attention_entropy.l0.h11"), nullptr);
  EXPECT_EQ(FindMetric("attention_entropy.l0.h11")->name, "attention_entropy.l<layer>.h<head>");
  EXPECT_FALSE(IsHeadline("attention_entropy.l0.h11"));
  EXPECT_TRUE(IsHeadline("attention_entropy") && IsHeadline("passkey_accuracy"));
  EXPECT_EQ(FindMetric("passkey_accuracy.depth_3_of_10")->task, "passkey");
  EXPECT_TRUE(IsOfFamily("passkey_accuracy.depth_3_of_10") && !IsOfFamily("passkey_accuracy") && !IsOfFamily("los"));
  EXPECT_EQ(TriesOf("passkey_accuracy.depth_3_of_10"), "passkey_trials.depth_3_of_10");
  EXPECT_EQ(TriesOf("acc_norm"), "choice_items");
  EXPECT_EQ(TriesOf("passkey_accuracy"), "passkey_trials");
  EXPECT_EQ(TriesOf("loss"), "");
  EXPECT_EQ(TriesOf("passkey_accuracy_"), "");
  EXPECT_LT(MetricRank("attention_entropy"), MetricRank("attention_entropy.l0.h0"));
  for (const char* none : {"attention_entropy.l.h0", "attention_entropy.l0.h0.", "attention_entropy.l0", "acc.l0.h0",
                           "passkey_accuracy.depth_x_of_10", "attention_entropy.l-1.h0"}) {
    EXPECT_EQ(FindMetric(none), nullptr) << none;
  }
  for (const Metric& metric : Metrics()) {
    EXPECT_EQ(FindMetric(metric.name.substr(0, metric.name.find('<'))) == &metric,
              metric.name.find('<') == std::string_view::npos)
        << metric.name;
  }
}

TEST(Metrics, APatternNamesMany) {
  EXPECT_TRUE(MatchesMetric("loss", "loss") && !MatchesMetric("loss", "loss_targets"));
  EXPECT_TRUE(MatchesMetric("attention_entropy.*", "attention_entropy.l1.h2"));
  EXPECT_FALSE(MatchesMetric("attention_entropy.*", "attention_entropy"));
  EXPECT_TRUE(MatchesMetric("*.l1.*", "attention_entropy.l1.h2") && MatchesMetric("*", ""));
  EXPECT_FALSE(MatchesMetric("*.l1.*", "attention_entropy.l2.h1"));
}

TEST(Metrics, TheDocsPrintTheTable) {
  const auto docs = ReadFile(ABLATE_DOCS_DIR "/results-database.md");
  ASSERT_TRUE(docs.ok()) << docs.status();
  std::string table = "## Metrics\n\n| metric | of | what it is |\n|---|---|---|\n";
  for (const Metric& metric : Metrics()) {
    table += "| `" + std::string(metric.name) + "` | " + (metric.of_evaluation ? "evaluation" : "");
    table += std::string(metric.of_evaluation && metric.of_stage ? ", " : "") + (metric.of_stage ? "training" : "");
    table += " | " + std::string(metric.summary) + " |\n";
  }
  EXPECT_THAT(*docs, ::testing::HasSubstr(table + "\n"));
}

}  // namespace
}  // namespace ablate
