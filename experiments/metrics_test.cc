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
