// The tables of a small sweep in all five formats, against cli/golden/. ABLATE_BLESS=1 writes the files anew: read the
// difference.
#include "cli/result_tables.h"

#include "cli/claim_tables.h"

#include <cstdlib>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ablate {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = JoinPath(ABLATE_CLI_GOLDEN_DIR, name);
  if (std::getenv("ABLATE_BLESS") != nullptr) {
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
  }
  const absl::StatusOr<std::string> golden = ReadFile(path);
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(text, *golden) << name;
}

void ExpectGoldens(const std::string& name, const Report& report) {
  ExpectGolden(name + ".txt", Print(report, OutputFormat::kTable, 160));
  ExpectGolden(name + "_narrow.txt", Print(report, OutputFormat::kTable, 80));
  ExpectGolden(name + ".json", Print(report, OutputFormat::kJson));
  ExpectGolden(name + ".csv", Print(report, OutputFormat::kCsv));
  ExpectGolden(name + ".md", Print(report, OutputFormat::kMarkdown));
  ExpectGolden(name + ".tex", Print(report, OutputFormat::kLatex));
}

const char* const kArms[] = {R"({"attention.variant":"softmax"})", R"({"attention.p":3,"attention.variant":"lssar"})",
                             R"({"attention.p":15,"attention.variant":"lssar"})"};

v1::GetTableResponse Table() {
  v1::GetTableResponse response;
  for (int a = 0; a < 3; ++a) {
    for (const bool ntk : {false, true}) {
      for (const int64_t length : {128, 256, 512}) {
        if (ntk && length == 128) continue;  // identical by construction: measured and shown once
        for (const char* metric : {"loss", "loss_targets"}) {
          v1::ConfidenceRow& row = *response.add_rows();
          row.set_sweep("quickstart");
          row.set_arm_json(kArms[a]);
          row.set_metric(metric);
          row.set_length(length);
          row.set_split("selection");
          row.set_ntk(ntk);
          row.set_level(0.95);
          row.set_method("student_t");
          const bool one_diverged = a == 2 && length == 512 && !ntk, all_diverged = a == 2 && length == 512 && ntk;
          const int n = all_diverged ? 0 : one_diverged ? 1 : 3;
          row.set_n(n);
          if (n > 0) row.set_mean(2.25 + 0.125 * a + static_cast<double>(length) / 1024);
          if (n > 1) {
            row.set_sd(0.015625);
            row.set_low(row.mean() - 0.0388);
            row.set_high(row.mean() + 0.0388);
          } else if (n == 1) {
            row.set_note("survivors only: 2 of 3 seeds diverged (seeds 2, 3)");
          } else {
            row.set_note("all 3 seeds diverged");
          }
          for (int seed = 1; seed <= 3; ++seed) {
            if (seed <= n) {
              row.add_seeds(seed);
              row.add_job_ids("job_" + std::to_string(seed));
            } else {
              row.add_diverged_seeds(seed);
              row.add_diverged_job_ids("job_" + std::to_string(seed));
            }
          }
        }
      }
    }
  }
  return response;
}

v1::CompareArmsResponse Comparison() {
  v1::CompareArmsResponse response;
  for (int a = 1; a < 3; ++a) {
    for (const bool ntk : {false, true}) {
      for (const int64_t length : {128, 256}) {
        if (ntk && length == 128) continue;
        v1::ComparisonRow& row = *response.add_rows();
        row.set_sweep("quickstart");
        row.set_arm_json(kArms[a]);
        row.set_baseline_json(kArms[0]);
        row.set_metric("loss");
        row.set_length(length);
        row.set_split("selection");
        row.set_ntk(ntk);
        row.set_level(0.95);
        row.set_method("paired_t");
        row.set_family_size(6);
        const bool diverged = a == 2 && ntk;
        row.set_n(diverged ? 2 : 3);
        row.set_difference(-0.0625 * a);
        row.set_sd(0.0078125);
        row.set_low(row.difference() - 0.0194);
        row.set_high(row.difference() + 0.0194);
        if (diverged) {
          row.set_note("survivors only: 1 of 3 pairs diverged (seed 3)");
          row.add_diverged_seeds(3);
        } else {
          row.set_p(0.0052 / a);
          row.set_p_adjusted(0.0312 / a);
        }
        for (int seed = 1; seed <= row.n(); ++seed) row.add_seeds(seed);
      }
    }
  }
  return response;
}

TEST(ResultTables, TableInAllFormats) { ExpectGoldens("table", TableReport(Table())); }

TEST(ResultTables, ComparisonInAllFormats) { ExpectGoldens("compare", ComparisonReport(Comparison())); }

TEST(ResultTables, JsonRowsCarryWhatOutsideChecksRelyOn) {
  for (const auto& row : nlohmann::json::parse(Print(TableReport(Table()), OutputFormat::kJson))) {
    for (const char* key : {"sweep", "arm", "metric", "length", "ntk", "split", "n", "mean", "sd", "low", "high",
                            "level", "method", "seeds", "diverged", "diverged_seeds", "missing", "jobs", "note"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_TRUE(row["arm"].is_object());
    EXPECT_EQ(row["n"].get<size_t>(), row["seeds"].size());
    EXPECT_EQ(row["diverged"].get<size_t>(), row["diverged_seeds"].size());
    EXPECT_EQ(row["mean"].is_null(), row["n"] == 0);
  }
  for (const auto& row : nlohmann::json::parse(Print(ComparisonReport(Comparison()), OutputFormat::kJson))) {
    for (const char* key :
         {"difference", "low", "high", "p", "p_adjusted", "n", "baseline", "diverged", "diverged_seeds", "missing",
          "family_size", "note", "arm", "metric", "length", "ntk", "split"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row["baseline"]["attention.variant"], "softmax");
  }
}

TEST(ResultTables, ARateWithoutAnIntervalOverSeedsShowsThatOfItsTries) {
  v1::GetTableResponse table;
  for (int a = 0; a < 2; ++a) {
    v1::ConfidenceRow& row = *table.add_rows();
    row.set_sweep("keys");
    row.set_arm_json(kArms[a]);
    row.set_metric("passkey_accuracy");
    row.set_length(128);
    row.set_split("passkey");
    row.set_level(0.95);
    row.set_method("student_t");
    row.set_n(a == 0 ? 1 : 3);
    row.set_mean(0.85);
    row.set_rate_low(0.7672);
    row.set_rate_high(0.9069);
    row.set_tries(a == 0 ? 100 : 300);
    if (a == 0) continue;
    row.set_low(0.8);
    row.set_high(0.9);
  }
  const std::string text = Print(TableReport(table), OutputFormat::kTable, 160);
  EXPECT_THAT(text, HasSubstr("[0.767, 0.907] (n=1)"));
  EXPECT_THAT(text,
              HasSubstr("[low, high]: 95 % Wilson interval of the tries of all seeds pooled; ignores seed variance"));
  EXPECT_EQ(text.find("0.767"), text.rfind("0.767"));  // where seeds give an interval, that one
  const auto rows = nlohmann::json::parse(Print(TableReport(table), OutputFormat::kJson));
  EXPECT_EQ(rows[1]["rate_low"], 0.7672);
  EXPECT_EQ(rows[1]["tries"], 300);
}

TEST(ResultTables, NothingMeasuredIsNoError) {
  EXPECT_EQ(Print(TableReport({}), OutputFormat::kJson), "[]\n");
  EXPECT_EQ(Print(TableReport({}), OutputFormat::kTable), "(nothing)\n");
  EXPECT_EQ(Print(ComparisonReport({}), OutputFormat::kTable), "(nothing)\n");

  v1::GetTableResponse table;  // as a coordinator answers when every job has failed
  table.add_rows()->set_arm_json(kArms[0]);
  EXPECT_FALSE(KeepMeasured(&table));
  EXPECT_EQ(Print(TableReport(table), OutputFormat::kJson), "[]\n");
  table = Table();
  const int rows = table.rows_size();
  table.add_rows()->set_arm_json(kArms[0]);
  EXPECT_TRUE(KeepMeasured(&table));
  EXPECT_EQ(table.rows_size(), rows);
}

TEST(ResultTables, WhatHoldsForManyCellsIsSaidOnce) {
  v1::GetTableResponse table = Table();
  for (v1::ConfidenceRow& row : *table.mutable_rows()) {
    row.set_n(1);
    row.set_note("one seed: no interval");
  }
  std::string text = Print(TableReport(table), OutputFormat::kTable);
  EXPECT_THAT(text, HasSubstr("every cell: one seed: no interval"));
  EXPECT_THAT(text, HasSubstr("n = 1 seed in every cell"));
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("one seed", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2u);  // one of each metric
  table.mutable_rows(0)->set_note("another");
  text = Print(TableReport(table), OutputFormat::kTable);
  EXPECT_THAT(text, HasSubstr("length 128: another"));
  EXPECT_THAT(text, HasSubstr(" cells: one seed: no interval (which: see -o json)"));

  v1::CompareArmsResponse comparison = Comparison();
  for (v1::ComparisonRow& row : *comparison.mutable_rows()) row.set_family_size(1);
  EXPECT_THAT(Print(ComparisonReport(comparison), OutputFormat::kTable), HasSubstr("over 1 comparison of loss"));
}

// A gate is run before there are claims: it is shown without any.
TEST(ClaimTables, TheGateIsATableOfItsOwn) {
  v1::GetClaimsResponse response;
  v1::ValidityGate& gate = *response.mutable_gate();
  gate.set_passed(true);
  gate.set_context_fall(0.0625);
  gate.set_rise(1.5);
  gate.set_rise_low(1.25);
  gate.set_rise_high(1.75);
  gate.set_text("The validity gate is passed.");
  gate.add_job_ids("job_1");
  const std::string text = Print(ClaimsReport(response), OutputFormat::kTable);
  EXPECT_THAT(text, StartsWith("validity gate: passed\n"));
  for (const char* part : {"0.0625  0.05\n", "1.500 [1.250, 1.750]  0.1, interval above 0\n", "The validity gate is passed.\n", "jobs: job_1\n"})
    EXPECT_THAT(text, HasSubstr(part));
  gate.set_passed(false);
  EXPECT_THAT(Print(ClaimsReport(response), OutputFormat::kTable), StartsWith("validity gate: not passed\n"));
}

}  // namespace
}  // namespace ablate
