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
