#include "experiments/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "experiments/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

ArmValues Arm(const std::string& variant) { return {{"attention.variant", "\"" + variant + "\""}}; }

Measurement Make(const std::string& variant, int64_t seed, std::optional<double> value, int64_t length = 128,
                 bool ntk = false, const std::string& metric = "loss") {
  return {.sweep = "s",
          .arm = Arm(variant),
          .seed = seed,
          .metric = metric,
          .length_tokens = length,
          .split = "selection",
          .ntk = ntk,
          .value = value,
          .job_id = variant + "-" + std::to_string(seed)};
}

Measurement Lost(MeasurementStatus status, const std::string& variant, int64_t seed, int64_t length = 128,
                 const std::string& metric = "loss") {
  Measurement measurement = Make(variant, seed, std::nullopt, length, false, metric);
  measurement.status = status;
  return measurement;
}

// A sweep with every arm's values different.
std::vector<Measurement> Sweep(const std::vector<std::string>& variants, int seeds, uint64_t random_seed = 1) {
  std::mt19937_64 engine(random_seed);
  std::vector<Measurement> out;
  for (const std::string& variant : variants) {
    for (int seed = 0; seed < seeds; ++seed) {
      for (int64_t length : {128, 1024}) {
        for (bool ntk : {false, true}) {
          if (ntk && length == 128) continue;
          out.push_back(Make(variant, seed, 3 + static_cast<double>(engine() % 10007) * 1e-5, length, ntk));
        }
      }
    }
  }
  return out;
}

TableOptions Options() { return {.baseline = Arm("softmax")}; }

std::vector<ConfidenceRow> Rows(const std::vector<Measurement>& measurements, const TableOptions& options = {}) {
  auto rows = ConfidenceTable(measurements, options);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : std::vector<ConfidenceRow>{};
}

std::vector<ComparisonRow> Comparisons(const std::vector<Measurement>& measurements,
                                       const TableOptions& options = Options()) {
  auto rows = ComparisonTable(measurements, options);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : std::vector<ComparisonRow>{};
}

void ExpectSame(const ConfidenceRow& a, const ConfidenceRow& b) {
  EXPECT_EQ(a.arm, b.arm);
  EXPECT_EQ(a.length_tokens, b.length_tokens);
  EXPECT_EQ(a.ntk, b.ntk);
  EXPECT_EQ(a.n, b.n);
  EXPECT_EQ(a.mean, b.mean);  // to the bit
  EXPECT_EQ(a.sd, b.sd);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_EQ(a.seeds, b.seeds);
  EXPECT_EQ(a.job_ids, b.job_ids);
  EXPECT_EQ(a.diverged_seeds, b.diverged_seeds);
  EXPECT_EQ(a.missing_seeds, b.missing_seeds);
  EXPECT_EQ(a.note, b.note);
}

TEST(ConfidenceTable, MeansIntervalsSeedsAndJobs) {
  const auto rows = Rows({Make("softmax", 2, 0.8), Make("softmax", 0, 0.5), Make("softmax", 1, 0.5)});
  ASSERT_EQ(rows.size(), 1u);
  const auto summary = Summarize(std::vector<double>{0.5, 0.5, 0.8});
  EXPECT_EQ(rows[0].n, 3);  // equal values are not merged
  EXPECT_EQ(rows[0].mean, summary->mean);
  EXPECT_EQ(rows[0].low, summary->low);
  EXPECT_EQ(rows[0].high, summary->high);
  EXPECT_EQ(rows[0].method, "student_t");
  EXPECT_EQ(rows[0].level, 0.95);
  EXPECT_THAT(rows[0].seeds, ElementsAre(0, 1, 2));
  EXPECT_THAT(rows[0].job_ids, ElementsAre("softmax-0", "softmax-1", "softmax-2"));
  EXPECT_EQ(rows[0].diverged, 0);
  EXPECT_EQ(rows[0].note, "");
  EXPECT_EQ(rows[0].reason, "");
}

TEST(ConfidenceTable, OneSeedHasNoBandOfNoWidth) {
  const auto rows = Rows({Make("softmax", 0, 3.5)});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].n, 1);
  EXPECT_EQ(rows[0].mean, 3.5);
  EXPECT_FALSE(rows[0].sd || rows[0].low || rows[0].high);
  EXPECT_THAT(rows[0].reason, HasSubstr("one value"));
}

TEST(ConfidenceTable, ADivergedSeedIsCountedInView) {
  const auto rows = Rows({Make("lssa", 0, 3.0), Make("lssa", 1, 3.2), Lost(MeasurementStatus::kDiverged, "lssa", 2)});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].n, 2);
  EXPECT_DOUBLE_EQ(*rows[0].mean, 3.1);
  EXPECT_EQ(rows[0].diverged, 1);
  EXPECT_THAT(rows[0].diverged_seeds, ElementsAre(2));
  EXPECT_THAT(rows[0].diverged_job_ids, ElementsAre("lssa-2"));
  EXPECT_EQ(rows[0].note, "survivors only: 1 of 3 seeds diverged (seed 2)");
}

TEST(ConfidenceTable, NonFiniteValuesCountAsDivergedAndNeverEscape) {
  const auto rows = Rows({Make("lssa", 0, kNan), Make("lssa", 1, kInf), Make("lssa", 2, std::nullopt),
                          Make("lssa", 3, 3.0), Make("lssa", 4, 3.5)});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].n, 2);
  EXPECT_EQ(rows[0].diverged, 3);
  EXPECT_TRUE(std::isfinite(*rows[0].mean) && std::isfinite(*rows[0].low) && std::isfinite(*rows[0].high));
  const auto all = Rows({Make("lssa", 0, kNan), Make("lssa", 1, -kInf)});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].n, 0);
  EXPECT_FALSE(all[0].mean || all[0].sd || all[0].low);
  EXPECT_EQ(all[0].reason, "no value: every seed diverged");
}

TEST(ConfidenceTable, MissingSeedsMarkedOrInferredFromTheArmItself) {
  const auto rows = Rows({Make("lssa", 0, 3.0), Make("lssa", 1, 3.1), Lost(MeasurementStatus::kMissing, "lssa", 2),
                          Make("lssa", 0, 3.3, 1024), Make("lssa", 1, 3.4, 1024)});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0].missing_seeds, ElementsAre(2));
  EXPECT_THAT(rows[1].missing_seeds, ElementsAre(2));
  EXPECT_EQ(rows[1].note, "incomplete: 1 of 3 seeds missing (seed 2)");
}

TEST(ConfidenceTable, SeedsOfAnotherSplitAreNotMissing) {
  std::vector<Measurement> measurements = {Make("lssa", 0, 3.0), Make("lssa", 1, 3.1), Make("lssa", 10, 3.3),
                                           Make("lssa", 11, 3.4)};
  measurements[2].split = measurements[3].split = "confirmation";
  const auto rows = Rows(measurements);
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) EXPECT_THAT(row.missing_seeds, IsEmpty());
}

TEST(ConfidenceTable, ARunLostWithoutMetricsShowsInEveryCellOfItsArm) {
  auto measurements = Sweep({"softmax", "lssa"}, 2);
  Measurement run = Lost(MeasurementStatus::kDiverged, "lssa", 2, 0, "");
  run.split.clear();
  measurements.push_back(run);
  for (const auto& row : Rows(measurements)) {
    EXPECT_EQ(row.diverged, row.arm == Arm("lssa") ? 1 : 0);
    EXPECT_EQ(row.n, 2);
  }
  // An arm that has nothing else takes the sweep's cells.
  run.arm = Arm("ssmax");
  measurements.push_back(run);
  int cells = 0;
  for (const auto& row : Rows(measurements)) {
    if (row.arm != Arm("ssmax")) continue;
    ++cells;
    EXPECT_EQ(row.n, 0);
    EXPECT_EQ(row.diverged, 1);
  }
  EXPECT_EQ(cells, 3);
  // A whole sweep without any value still says so.
  const auto alone = Rows({run});
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].metric, "");
  EXPECT_EQ(alone[0].diverged, 1);
}

TEST(ConfidenceTable, OneEvaluationLostWithoutMetrics) {
  auto measurements = Sweep({"lssa"}, 2);
  measurements.push_back(Make("lssa", 2, 3.0));
  measurements.push_back(Lost(MeasurementStatus::kDiverged, "lssa", 2, 1024, ""));
  const auto rows = Rows(measurements);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].n, 3);
  EXPECT_THAT(rows[1].diverged_seeds, ElementsAre(2));  // 1024, NTK off
  EXPECT_THAT(rows[2].diverged_seeds, IsEmpty());       // 1024, NTK on: not known yet
  EXPECT_THAT(rows[2].missing_seeds, ElementsAre(2));
}

TEST(ConfidenceTable, ADuplicateIsRefusedWithBothJobs) {
  Measurement again = Make("softmax", 0, 3.0);
  again.job_id = "other";
  const auto rows = ConfidenceTable(std::vector<Measurement>{Make("softmax", 0, 3.0), again}, {});
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("jobs softmax-0 and other"));
}

TEST(ConfidenceTable, AddingAnArmChangesNoOtherRow) {
  const auto before = Rows(Sweep({"softmax", "lssa"}, 3));
  auto more = Sweep({"softmax", "lssa"}, 3);
  for (const auto& measurement : Sweep({"ssmax", "lssar"}, 7, 99)) more.push_back(measurement);
  const auto after = Rows(more);
  ASSERT_EQ(before.size(), 6u);
  ASSERT_EQ(after.size(), 12u);
  for (size_t i = 0; i < before.size(); ++i) ExpectSame(before[i], after[i]);
}

TEST(ConfidenceTable, InputOrderChangesNoBit) {
  auto measurements = Sweep({"softmax", "lssa", "ssmax"}, 5);
  const TableOptions options{.arm_order = {Arm("ssmax"), Arm("softmax"), Arm("lssa")}};
  const auto expected = Rows(measurements, options);
  EXPECT_EQ(expected.front().arm, Arm("ssmax"));
  std::mt19937_64 engine(5);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(measurements.begin(), measurements.end(), engine);
    const auto rows = Rows(measurements, options);
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) ExpectSame(rows[i], expected[i]);
  }
}

TEST(ConfidenceTable, OrderAndFilters) {
  auto measurements = Sweep({"softmax", "lssa"}, 2);
  measurements.push_back(Make("lssa", 0, 1.0, 128, false, "accuracy"));
  const auto rows = Rows(measurements, {.metrics = {"loss", "accuracy"}});
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[0].arm, Arm("softmax"));
  EXPECT_EQ(rows[0].length_tokens, 128);
  EXPECT_FALSE(rows[0].ntk);
  EXPECT_EQ(rows[1].length_tokens, 1024);
  EXPECT_FALSE(rows[1].ntk);
  EXPECT_TRUE(rows[2].ntk);
  EXPECT_EQ(rows[6].metric, "accuracy");
  EXPECT_EQ(Rows(measurements)[3].metric, "accuracy");  // by name without a list
  EXPECT_EQ(Rows(measurements, {.metrics = {"accuracy"}}).size(), 1u);
  EXPECT_THAT(Rows(measurements, {.splits = {"confirmation"}}), IsEmpty());
}

TEST(ComparisonTable, PairsBySeedAgainstTheBaseline) {
  const auto rows = Comparisons({Make("softmax", 0, 1.0), Make("softmax", 1, 5.0), Make("softmax", 2, 9.0),
                                 Make("lssa", 2, 9.1), Make("lssa", 0, 1.2), Make("lssa", 1, 5.3)});
  ASSERT_EQ(rows.size(), 1u);
  const auto paired = Paired(std::vector<double>{1.2, 5.3, 9.1}, std::vector<double>{1.0, 5.0, 9.0});
  EXPECT_EQ(rows[0].arm, Arm("lssa"));
  EXPECT_EQ(rows[0].baseline, Arm("softmax"));
  EXPECT_EQ(rows[0].n, 3);
  EXPECT_EQ(rows[0].difference, paired->mean_difference);
  EXPECT_EQ(rows[0].sd, paired->sd_difference);
  EXPECT_EQ(rows[0].low, paired->low);
  EXPECT_EQ(rows[0].p, paired->p_two_sided);
  EXPECT_EQ(rows[0].p_adjusted, rows[0].p);  // a family of one
  EXPECT_EQ(rows[0].family_size, 1);
  EXPECT_THAT(rows[0].seeds, ElementsAre(0, 1, 2));
}

TEST(ComparisonTable, HolmOverAllComparisonsOfAMetric) {
  auto measurements = Sweep({"softmax", "lssa", "ssmax"}, 4);
  for (const auto& measurement : Sweep({"softmax", "lssa"}, 4, 77)) {
    measurements.push_back(measurement);
    measurements.back().metric = "accuracy";
  }
  std::map<std::string, std::vector<double>> raw, adjusted;
  for (const auto& row : Comparisons(measurements)) {
    raw[row.metric].push_back(*row.p);
    adjusted[row.metric].push_back(*row.p_adjusted);
    EXPECT_EQ(row.family_size, row.metric == "loss" ? 6 : 3);
  }
  EXPECT_EQ(raw["loss"].size(), 6u);
  for (const auto& [metric, p_values] : raw) EXPECT_EQ(adjusted[metric], *Holm(p_values)) << metric;
}

TEST(ComparisonTable, ADivergedRunLeavesThePEmptyAndShowsSurvivors) {
  const auto rows =
      Comparisons({Make("softmax", 0, 1.0), Make("softmax", 1, 2.0), Make("softmax", 2, 3.0), Make("lssa", 0, 1.1),
                   Make("lssa", 1, 2.3), Lost(MeasurementStatus::kDiverged, "lssa", 2), Make("ssmax", 0, 1.5),
                   Make("ssmax", 1, 2.4), Make("ssmax", 2, 3.6)});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].n, 2);
  EXPECT_NEAR(*rows[0].difference, 0.2, 1e-12);
  EXPECT_FALSE(rows[0].p || rows[0].p_adjusted);
  EXPECT_THAT(rows[0].diverged_seeds, ElementsAre(2));
  EXPECT_EQ(rows[0].note, "survivors only: 1 of 3 pairs diverged (seed 2)");
  EXPECT_THAT(rows[0].reason, HasSubstr("undecided"));
  // The undecided comparison still counts in the other's family.
  EXPECT_EQ(rows[1].family_size, 2);
  EXPECT_EQ(*rows[1].p_adjusted, 2 * *rows[1].p);
}

TEST(ComparisonTable, ADivergedBaselineTouchesEveryComparison) {
  const auto rows =
      Comparisons({Make("softmax", 0, 1.0), Make("softmax", 1, 2.0), Lost(MeasurementStatus::kDiverged, "softmax", 2),
                   Make("lssa", 0, 1.1), Make("lssa", 1, 2.3), Make("lssa", 2, 3.0)});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_FALSE(rows[0].p);
  EXPECT_THAT(rows[0].diverged_seeds, ElementsAre(2));
}

TEST(ComparisonTable, MissingSeedsAreSaidAndOnePairHasNoTest) {
  const auto rows = Comparisons({Make("softmax", 0, 1.0), Make("softmax", 1, 2.0), Make("lssa", 1, 2.5)});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].n, 1);
  EXPECT_EQ(rows[0].difference, 0.5);
  EXPECT_FALSE(rows[0].sd || rows[0].low || rows[0].p || rows[0].p_adjusted);
  EXPECT_EQ(rows[0].note, "incomplete: 1 of 2 pairs missing (seed 0)");
  EXPECT_THAT(rows[0].reason, HasSubstr("one pair"));
  const auto none = Comparisons({Make("softmax", 0, 1.0), Make("lssa", 1, 2.5)});
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].n, 0);
  EXPECT_FALSE(none[0].difference);
  EXPECT_EQ(none[0].reason, "no complete pair");
}

TEST(ComparisonTable, AddingAnArmChangesNoRawNumber) {
  const auto before = Comparisons(Sweep({"softmax", "lssa"}, 3));
  auto more = Sweep({"softmax", "lssa"}, 3);
  for (const auto& measurement : Sweep({"ssmax"}, 8, 99)) more.push_back(measurement);
  const auto after = Comparisons(more);
  ASSERT_EQ(before.size(), 3u);
  ASSERT_EQ(after.size(), 6u);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].arm, after[i].arm);
    EXPECT_EQ(before[i].n, after[i].n);
    EXPECT_EQ(before[i].difference, after[i].difference);
    EXPECT_EQ(before[i].low, after[i].low);
    EXPECT_EQ(before[i].high, after[i].high);
    EXPECT_EQ(before[i].p, after[i].p);
    EXPECT_EQ(before[i].note, after[i].note);
    EXPECT_EQ(after[i].family_size, 6);
  }
}

// Whatever the arms' names have in common, all but the baseline are compared, in every cell they have, as one family.
TEST(ComparisonTable, EveryArmButTheBaselineIsThereInEveryCellItHas) {
  std::mt19937_64 engine(11);
  for (int round = 0; round < 200; ++round) {
    std::set<ArmValues> arms;
    for (const size_t count = 1 + engine() % 9; arms.size() < count;) {
      ArmValues values;
      for (const char* axis : {"attention.variant", "attention.scale", "attention.p", "train.batch"}) {
        if (engine() % 2 == 0) values[axis] = std::to_string(engine() % 3);
      }
      arms.insert(values);
    }
    const std::vector<ArmValues> list(arms.begin(), arms.end());
    using Place = std::tuple<ArmValues, std::string, int64_t, bool>;
    std::set<Place> expected;
    std::map<std::string, int64_t> family;
    std::vector<Measurement> measurements;
    const TableOptions options{.baseline = list[engine() % list.size()]};
    for (const ArmValues& arm : list) {
      for (const char* metric : {"loss", "loss_targets"}) {
        for (const int64_t length : {128, 256}) {
          for (const bool ntk : {false, true}) {
            if (engine() % 4 == 0) continue;  // not measured there
            for (int seed = 0; seed < 3; ++seed) {
              measurements.push_back(Make("", seed, static_cast<double>(engine() % 1000), length, ntk, metric));
              measurements.back().arm = arm;
            }
            if (arm == *options.baseline) continue;
            expected.emplace(arm, metric, length, ntk);
            ++family[metric];
          }
        }
      }
    }
    std::set<Place> found;
    for (const ComparisonRow& row : Comparisons(measurements, options)) {
      EXPECT_TRUE(found.emplace(row.arm, row.metric, row.length_tokens, row.ntk).second);
      EXPECT_EQ(row.baseline, *options.baseline);
      EXPECT_EQ(row.family_size, family[row.metric]);
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(ComparisonTable, TheArmThatSetsNothingCanBeTheBaseline) {
  std::vector<Measurement> measurements = {Make("lssa", 0, 1.0), Make("lssa", 1, 2.0), Make("", 0, 0.5),
                                           Make("", 1, 1.4)};
  measurements[2].arm = measurements[3].arm = {};
  const auto rows = Comparisons(measurements, {.baseline = ArmValues{}});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].arm, Arm("lssa"));
  EXPECT_NEAR(*rows[0].difference, 0.55, 1e-12);
}

TEST(ComparisonTable, ABaselineThatIsNotMeasuredYetHidesNoArm) {
  const auto rows = Comparisons(Sweep({"lssa", "ssmax"}, 2));
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& row : rows) {
    EXPECT_EQ(row.n, 0);
    EXPECT_EQ(row.reason, "no complete pair");
  }
  EXPECT_EQ(ComparisonTable(Sweep({"lssa"}, 2), {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ComparisonTable, SweepsAreFamiliesOfTheirOwn) {
  auto measurements = Sweep({"softmax", "lssa"}, 3);
  const auto alone = Comparisons(measurements);
  for (auto measurement : Sweep({"softmax", "lssa", "ssmax"}, 4, 12)) {
    measurement.sweep = "another";
    measurements.push_back(measurement);
  }
  const auto both = Comparisons(measurements);
  ASSERT_EQ(both.size(), 9u);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i].p_adjusted, both[i].p_adjusted);
}

// The phases of a sweep with claims: selecting and confirming seeds are never in one mean, tuning runs not shown.
std::vector<Measurement> PhasedSweep() {
  std::vector<Measurement> measurements;
  for (const char* variant : {"softmax", "lssa"}) {
    for (int seed = 0; seed < 6; ++seed) {
      Measurement measurement = Make(variant, seed, 3 + 0.01 * seed * seed + (variant[0] == 'l' ? 0.1 * seed : 0));
      measurement.phase = seed < 2 ? v1::SELECTING : seed < 5 ? v1::CONFIRMING : v1::TUNING;
      measurements.push_back(measurement);
    }
  }
  return measurements;
}

TEST(Phases, ARowHasOnePhaseAndTuningIsLeftOut) {
  const auto measurements = PhasedSweep();
  const auto rows = Rows(measurements);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].phase, v1::SELECTING);
  EXPECT_THAT(rows[0].seeds, ElementsAre(0, 1));
  EXPECT_THAT(rows[0].missing_seeds, IsEmpty());
  EXPECT_EQ(rows[1].phase, v1::CONFIRMING);
  EXPECT_THAT(rows[1].seeds, ElementsAre(2, 3, 4));
  const auto tuning = Rows(measurements, {.phases = {v1::TUNING}});
  ASSERT_EQ(tuning.size(), 2u);
  EXPECT_THAT(tuning[0].seeds, ElementsAre(5));
}

TEST(Phases, EachIsAFamilyOfItsOwn) {
  const auto rows = Comparisons(PhasedSweep());
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) {
    EXPECT_EQ(row.family_size, 1);
    EXPECT_EQ(row.p_adjusted, row.p);
  }
  EXPECT_EQ(rows[0].phase, v1::SELECTING);
  EXPECT_EQ(rows[0].n, 2);
  EXPECT_EQ(rows[1].phase, v1::CONFIRMING);
  EXPECT_EQ(rows[1].n, 3);
}

TEST(Phases, TheSameSeedMayStandInTwoOfThem) {
  auto measurements = PhasedSweep();
  for (Measurement measurement : PhasedSweep()) {  // reused seeds
    if (measurement.phase != v1::SELECTING) continue;
    measurement.phase = v1::CONFIRMING;
    measurements.push_back(measurement);
  }
  const auto rows = Rows(measurements);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(rows[0].seeds, ElementsAre(0, 1));
  EXPECT_THAT(rows[1].seeds, ElementsAre(0, 1, 2, 3, 4));
}

TEST(Phases, ALostRunIsLostInItsOwnOnly) {
  auto measurements = PhasedSweep();
  Measurement lost = Lost(MeasurementStatus::kDiverged, "lssa", 9, 0, "");
  lost.split.clear();
  lost.phase = v1::CONFIRMING;
  measurements.push_back(lost);
  const auto rows = Rows(measurements);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(rows[2].diverged_seeds, IsEmpty());
  EXPECT_EQ(rows[3].phase, v1::CONFIRMING);
  EXPECT_THAT(rows[3].diverged_seeds, ElementsAre(9));
}

TEST(Format, EnoughDecimalsForTheHalfWidth) {
  EXPECT_EQ(FormatMeanInterval(3.2213436, 3.1933951, 3.2492921, 4), "3.2213 ± 0.0279");
  EXPECT_EQ(FormatMeanInterval(1234.5, 1000.0, 1469.0, 0), "1234 ± 234");
  EXPECT_EQ(FormatMeanInterval(3.5, std::nullopt, std::nullopt, 4), "3.5000");
  EXPECT_EQ(FormatMeanInterval(std::nullopt, std::nullopt, std::nullopt, 4), "-");
  EXPECT_EQ(DecimalsFor(0), 4);
  EXPECT_EQ(DecimalsFor(kNan), 4);
  EXPECT_EQ(DecimalsFor(1e-300), 12);
  EXPECT_EQ(FormatP(0.03125), "0.0312");
  EXPECT_EQ(FormatP(1e-9), "<0.0001");
  EXPECT_EQ(FormatP(std::nullopt), "-");
}

}  // namespace
}  // namespace ablate
