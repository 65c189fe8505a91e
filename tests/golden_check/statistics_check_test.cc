// The statistics on the golden values, and the checker on files that it must not pass.
#include "tests/golden_check/statistics_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

std::string Golden() {
  const char* folder = std::getenv("ABLATE_GOLDEN_DIR");
  EXPECT_NE(folder, nullptr) << "set ABLATE_GOLDEN_DIR to tests/golden of the source tree";
  return JoinPath(folder == nullptr ? "tests/golden" : folder, "statistics.json");
}

absl::StatusOr<std::map<std::string, CaseResult>> CheckText(const std::string& text) {
  TempDir dir;
  const std::string path = JoinPath(dir.path(), "statistics.json");
  EXPECT_TRUE(WriteFileAtomic(path, text).ok());
  const auto results = CheckStatisticsFile(path);
  if (!results.ok()) return results.status();
  std::map<std::string, CaseResult> by_name;
  for (const CaseResult& result : *results) by_name[result.name] = result;
  EXPECT_EQ(by_name.size(), results->size()) << "names are not unique";
  return by_name;
}

TEST(StatisticsCheck, GoldenValuesAreMetAndAllCovered) {
  const auto results = CheckStatisticsFile(Golden());
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->size(), 50u);
  for (const CaseResult& result : *results) {
    EXPECT_TRUE(result.covered) << result.name;
    EXPECT_LE(result.max_relative_error, 1e-9) << result.name << " " << result.worst;
  }
}

// One digit of one expected number is changed at a time: its entry, and no other, must be off.
TEST(StatisticsCheck, NoExpectedNumberGoesUnchecked) {
  const auto text = ReadFile(Golden());
  ASSERT_TRUE(text.ok());
  const std::map<std::string, std::string> entry_of = {{"\"sem\": 0.0018802414029432943", "cases[0]"},
                                                       {"\"low\": 3.1857067816513216", "cases[0]"},
                                                       {"\"high\": 3.329287554181916", "cases[0]"},
                                                       {"\"p_two_sided\": 0.06871599133694653", "cases[0]"},
                                                       {"\"cohen_dz\": 6.525534408923311", "cases[0]"},
                                                       {"\"p\": 0.055058786028815504", "cases[0]"},
                                                       {"\"low90\": 0.009747016447605238", "cases[0]"},
                                                       {"\"high90\": 0.051973819712097344", "cases[0]"},
                                                       {"\"sd\": 0.17320508075688776", "ties"},
                                                       {"\"t\": -359.9704681340976", "difference_in_differences[0]"},
                                                       {"\"p95\": 2.919985580355516", "t_critical.2"},
                                                       {"0.22366287766834603,", "holm[3]"},
                                                       {"\"low\": 0.06149194472039626", "wilson[3]"},
                                                       {"\"value\": 3.2640435498142", "smallest_detectable_in_sd[0]"},
                                                       {"\"value\": 2.1169364935501847", "sd_upper_limit[0]"},
                                                       {"\"n\": 19", "stein[0]"},
                                                       {"\"p\": 0.34375", "sign_test[3]"},
                                                       {"\"p\": 0.25", "mcnemar_exact[0]"},
                                                       {"\"high\": -0.004744160368001366", "bonferroni[0]"}};
  for (const auto& [number, name] : entry_of) {
    const size_t at = text->find(number);
    ASSERT_NE(at, std::string::npos) << number;
    std::string changed = *text;
    // The fifth digit after the point, or the last one there is.
    size_t where = at + number.find_last_of("0123456789");
    if (number.find('.') != std::string::npos) where = std::min(where, at + number.find('.') + 5);
    changed[where] = changed[where] == '9' ? '8' : static_cast<char>(changed[where] + 1);
    const auto results = CheckText(changed);
    ASSERT_TRUE(results.ok()) << results.status();
    for (const auto& [other, result] : *results) {
      if (other == name) {
        EXPECT_GT(result.max_relative_error, 1.1e-8) << number << " in " << other;
      } else {
        EXPECT_LE(result.max_relative_error, 1e-9) << other << " though only " << name << " changed";
      }
    }
  }
}

// The allowance for the reference's t quantiles ends at 1e-8 of t, and excuses no other number.
TEST(StatisticsCheck, QuantilesAreExcusedFromTheirDigitsButNotFromTheirLevel) {
  const auto results = CheckText(R"({"t_critical": {
    "3": {"p995": 5.84090929975643}, "4": {"p995": 4.6040952}, "2": {"p975": 1.959963984540054},
    "30": {"p95": 1.6972608866}, "31": {"p95": 1.695519}},
    "smallest_detectable_in_sd": [{"n": 5, "alpha": 0.05, "power": 0.8, "value": 1.6819971}],
    "sd_upper_limit": [{"n": 3, "sd": 1.0, "confidence": 0.8, "value": 2.1169364985}]})");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_LE(results->at("t_critical.3").max_relative_error, 1e-9);
  EXPECT_GT(results->at("t_critical.4").max_relative_error, 1e-8);
  EXPECT_GT(results->at("t_critical.2").max_relative_error, 0.5);  // z for t
  EXPECT_LE(results->at("t_critical.30").max_relative_error, 1e-9);
  EXPECT_GT(results->at("t_critical.31").max_relative_error, 1e-8);
  EXPECT_GT(results->at("smallest_detectable_in_sd[0]").max_relative_error, 1e-8);
  EXPECT_GT(results->at("sd_upper_limit[0]").max_relative_error, 2e-9);
}

TEST(StatisticsCheck, WhatWeDoNotImplementIsNotCovered) {
  const auto results = CheckText(R"({
    "mann_whitney": [{"a": [1, 2], "p": 0.3}],
    "ties": {"values": [1, 2, 4], "bootstrap": {"low": 1}, "ci95": {"n": 3, "mean": 2.3333333333333335, "iqr": 2}},
    "sign_test": [{"wins": 1, "losses": 0}],
    "wilson": [7]})");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_FALSE(results->at("mann_whitney").covered);
  EXPECT_TRUE(results->at("ties").covered);
  EXPECT_FALSE(results->at("ties.bootstrap").covered);
  EXPECT_FALSE(results->at("ties.ci95.iqr").covered);
  EXPECT_FALSE(results->at("sign_test[0]").covered);  // nothing to compare with
  EXPECT_FALSE(results->at("wilson[0]").covered);
}

TEST(StatisticsCheck, NullMeansNoInterval) {
  const auto results = CheckText(R"({"cases": [
    {"arm": [2.5], "ci95": {"n": 1, "mean": 2.5, "sd": null, "low": null, "high": null}},
    {"arm": [2.5], "ci95": {"n": 1, "mean": 2.5, "low": 2.5}},
    {"arm": [2.5, 3.5], "ci95": {"n": 2, "low": null}}]})");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->at("cases[0]").max_relative_error, 0);
  EXPECT_TRUE(std::isinf(results->at("cases[1]").max_relative_error));
  EXPECT_TRUE(std::isinf(results->at("cases[2]").max_relative_error));
}

TEST(StatisticsCheck, ARefusedInputIsAnInfiniteError) {
  const auto results = CheckText(R"({"wilson": [{"successes": 5, "trials": 3, "low": 0, "high": 1}]})");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE(std::isinf(results->at("wilson[0]").max_relative_error));
}

TEST(StatisticsCheck, AMalformedFileIsAnError) {
  EXPECT_EQ(CheckStatisticsFile("/nonexistent/statistics.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckText("[1, 2").status().code(), absl::StatusCode::kInvalidArgument);
  const auto missing = CheckText(R"({"wilson": [{"successes": 5, "low": 0}]})");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("wilson[0]: \"trials\" must be an integer"));
}

}  // namespace
}  // namespace ablate
