// The grid and the curves as people and programs read them.
#include "cli/curve_tables.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ablate {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

v1::GetGridResponse Grid(int seeds) {
  v1::GetGridResponse response;
  const v1::JobState states[] = {v1::SUCCEEDED, v1::FAILED, v1::RUNNING, v1::QUEUED, v1::BLOCKED, v1::CANCELLED};
  for (const char* json : {R"({"attention.variant":"softmax"})", R"({"attention.p":3,"attention.variant":"lssar"})"}) {
    v1::GetGridResponse::Arm* arm = response.add_arms();
    arm->set_arm_json(json);
    arm->set_label("label");
    arm->set_baseline(response.arms_size() == 1);
    for (int seed = 0; seed < seeds; ++seed) {
      v1::GetGridResponse::Cell* cell = response.add_cells();
      cell->set_arm(response.arms_size() - 1);
      cell->set_seed(seed);
      cell->set_phase(v1::PLAIN);
      cell->set_state(states[seed % 6]);
      cell->set_diverged(seed == 0 && response.arms_size() == 2);
      cell->set_jobs(3);
      cell->set_step(45);
      cell->set_steps(100);
      cell->set_job_id(absl::StrCat("job_", response.cells_size()));
      if (cell->state() == v1::FAILED) cell->set_failure(v1::OUT_OF_MEMORY);
    }
  }
  v1::GetGridResponse::Cell* sealed = response.add_cells();
  sealed->set_arm(0);
  sealed->set_seed(50);
  sealed->set_phase(v1::CONFIRMING);
  sealed->set_state(v1::BLOCKED);
  sealed->set_sealed(true);
  return response;
}

TEST(GridTable, HasAWordACell) {
  const Report report = GridReport("s", Grid(6));
  const std::string text = Print(report, OutputFormat::kTable, 160);
  for (const char* word : {"softmax (baseline)", "lssar p=3", "done", "diverged", "failed", "45 %", "queued", "blocked", "cancelled",
                           "s, confirming: arms by seeds", "sealed", "seed 50"}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
  const nlohmann::json rows = nlohmann::json::parse(Print(report, OutputFormat::kJson));
  ASSERT_EQ(rows.size(), 13u);
  EXPECT_EQ(rows[0]["state"], "SUCCEEDED");
  EXPECT_EQ(rows[0]["arm"]["attention.variant"], "softmax");
  EXPECT_EQ(rows[0]["baseline"], true);
  EXPECT_EQ(rows[6]["diverged"], true);
  EXPECT_EQ(rows[1]["failure"], "out_of_memory");
  EXPECT_EQ(rows[1]["job"], "job_2");
  EXPECT_EQ(rows[12]["sealed"], true);
  EXPECT_EQ(rows[12]["phase"], "confirming");
}

TEST(GridTable, ManySeedsAreLettersThatAreExplained) {
  const std::string text = Print(GridReport("s", Grid(12)), OutputFormat::kTable, 160);
  EXPECT_THAT(text, HasSubstr("B blocked, C cancelled, V diverged, D done, F failed, Q queued, R running"));
  EXPECT_THAT(text, Not(HasSubstr("45 %")));
}

v1::GetCurvesResponse Curves() {
  v1::GetCurvesResponse response;
  response.set_level(0.95);
  response.set_method("student_t");
  response.add_arms_json(R"({"attention.variant":"softmax"})");
  response.add_arm_labels("softmax");
  for (int seed = 0; seed < 3; ++seed) {
    v1::Curve* curve = response.add_curves();
    curve->set_seed(seed);
    curve->set_phase(v1::PLAIN);
    curve->set_metric("train_loss");
    if (seed == 2) continue;
    for (int step : {10, 20, 30}) {
      curve->add_steps(step);
      curve->add_values(seed == 1 && step == 30 ? kNaN : 1.0 / step + seed);
    }
    curve->set_stored_points(3);
    if (seed == 1) curve->set_diverged_at_step(30);
  }
  v1::MeanCurve* mean = response.add_means();
  mean->set_phase(v1::PLAIN);
  mean->set_metric("train_loss");
  for (int step : {10, 20, 30}) {
    mean->add_steps(step);
    mean->add_means(0.125);
    mean->add_lows(step == 30 ? kNaN : 0.0625);
    mean->add_highs(step == 30 ? kNaN : 0.1875);
    mean->add_n(step == 30 ? 1 : 2);
  }
  mean->add_seeds(0);
  mean->add_seeds(1);
  return response;
}

TEST(CurveTables, EachPointIsARow) {
  const Report report = CurvesReport("s", Curves());
  const nlohmann::json rows = nlohmann::json::parse(Print(report, OutputFormat::kJson));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0]["value"], 0.1);
  EXPECT_EQ(rows[0]["step"], 10);
  EXPECT_EQ(rows[3]["seed"], 1);
  EXPECT_EQ(rows[5]["value"], nullptr);
  EXPECT_EQ(rows[5]["value_status"], "nan");
  const std::string text = Print(report, OutputFormat::kTable, 160);
  EXPECT_THAT(text, HasSubstr("s: train_loss"));
  EXPECT_THAT(text, HasSubstr("diverged at step 30"));
  EXPECT_THAT(text, HasSubstr("nothing recorded"));
}

TEST(CurveTables, AMeanHasItsIntervalAndItsSeeds) {
  const Report report = MeanCurvesReport("s", Curves());
  const nlohmann::json rows = nlohmann::json::parse(Print(report, OutputFormat::kJson));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["low"], 0.0625);
  EXPECT_EQ(rows[0]["n"], 2);
  EXPECT_EQ(rows[0]["level"], 0.95);
  EXPECT_EQ(rows[0]["seeds"], nlohmann::json({0, 1}));
  // One seed has no interval; that is no number that failed.
  EXPECT_EQ(rows[2]["low"], nullptr);
  EXPECT_FALSE(rows[2].contains("low_status"));
  EXPECT_THAT(Print(report, OutputFormat::kTable, 160), HasSubstr("Student's t interval at 95 %"));
}

}  // namespace
}  // namespace ablate
