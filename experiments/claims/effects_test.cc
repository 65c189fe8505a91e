#include "experiments/claims/effects.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "experiments/claims/gate.h"
#include "experiments/claims/spread.h"
#include "experiments/claims/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using namespace claims_testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// phi {exp, softplus} x p {none, 15} x scale {without, with}, the last a factor that the arms name.
struct Design {
  v1::SweepSpec spec;
  Plan plan;
  std::vector<Measurement> m;

  explicit Design(int levels_of_p = 2) {
    for (const char* factor : {"norm", "p", "scale"}) spec.mutable_factorial()->add_factors(factor);
    const char* names[] = {"none", "15", "3"};
    for (const char* norm : {"none", "l2"}) {
      for (int p = 0; p < levels_of_p; ++p) {
        for (const char* scale : {"without", "with"}) {
          v1::Configuration values;
          *values.add_settings() = MakeSetting("attention.p", NumberValue(static_cast<double>(plan.arms.size()) + 1));
          Arm arm = MakeArm(values);
          arm.factors = {{"norm", norm}, {"p", names[p]}, {"scale", scale}};
          plan.arms.push_back(arm);
        }
      }
    }
  }
  // Effects 0.3 of the norm, -0.2 of p, 0.05 of the scale, 0.1 of norm x p; each seed its own level and noise.
  void Fill(int seeds, double noise = 0.001) {
    for (size_t a = 0; a < plan.arms.size(); ++a) {
      const auto& f = plan.arms[a].factors;
      const double norm = f.at("norm") == "l2",
                   p = f.at("p") == "none" ? 0
                       : f.at("p") == "15" ? 1
                                           : 2,
                   scale = f.at("scale") == "with";
      for (int seed = 0; seed < seeds; ++seed) {
        const double value = 2 + seed + 0.3 * norm - 0.2 * p + 0.05 * scale + 0.1 * norm * p +
                             noise * std::sin(static_cast<double>(a * 17 + static_cast<size_t>(seed) * 5));
        m.push_back(Measure(plan.arms[a], seed, v1::PLAIN, 1024, value));
      }
    }
  }
  std::vector<v1::EffectRow> Rows() {
    auto rows = FactorialEffects(spec, plan, {}, {}, 0, m);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : std::vector<v1::EffectRow>();
  }
};

std::string Name(const v1::EffectRow& row) {
  std::string name;
  for (int i = 0; i < row.factors_size(); ++i)
    absl::StrAppend(&name, i > 0 ? " x " : "", row.factors(i), " ", row.levels(i));
  return name;
}

TEST(Effects, MainEffectsAndInteractionsPairedBySeed) {
  Design d;
  d.Fill(5);
  const auto rows = d.Rows();
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(Name(rows[0]), "norm none -> l2");
  EXPECT_EQ(Name(rows[3]), "norm none -> l2 x p none -> 15");
  const double expected[] = {0.35, -0.15, 0.05, 0.1, 0, 0};
  std::vector<double> p_values;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i].effect(), expected[i], 0.003) << Name(rows[i]);
    EXPECT_EQ(rows[i].n(), 5);  // seeds, not arms: the seeds' own levels cancel
    EXPECT_LT(rows[i].high() - rows[i].low(), 0.01);
    EXPECT_EQ(rows[i].family_size(), 6);
    EXPECT_EQ(rows[i].job_ids_size(), 40);
    EXPECT_THAT(rows[i].seeds(), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_EQ(rows[i].phase(), v1::PLAIN);
    EXPECT_EQ(rows[i].note(), "");
    p_values.push_back(rows[i].p());
  }
  const auto holm = Holm(p_values);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].p_adjusted(), (*holm)[i]);
}

TEST(Effects, OneSeedOfEachByHand) {
  Design d;
  d.spec.mutable_factorial()->clear_factors();
  for (const char* factor : {"norm", "p"}) d.spec.mutable_factorial()->add_factors(factor);
  std::vector<Arm> four;  // drop the scale: arms 0, 2, 4, 6
  for (int i : {0, 2, 4, 6}) four.push_back(d.plan.arms[i]);
  d.plan.arms = four;
  const double values[2][4] = {{1, 2, 4, 8}, {1.5, 2, 4, 9}};  // (none,none) (none,15) (l2,none) (l2,15)
  for (int seed = 0; seed < 2; ++seed) {
    for (int a = 0; a < 4; ++a) d.m.push_back(Measure(four[a], seed, v1::PLAIN, 128, values[seed][a]));
  }
  const auto rows = d.Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_DOUBLE_EQ(rows[0].effect(), (4.5 + 4.75) / 2);  // ((4 + 8) - (1 + 2)) / 2 and ((4 + 9) - (1.5 + 2)) / 2
  EXPECT_DOUBLE_EQ(rows[1].effect(), (2.5 + 2.75) / 2);
  EXPECT_DOUBLE_EQ(rows[2].effect(), (3 + 4.5) / 2);  // (8 - 4) - (2 - 1) and (9 - 4) - (2 - 1.5)
  const auto paired = Paired(std::vector<double>{4.5, 4.75}, std::vector<double>{0, 0});
  EXPECT_NEAR(rows[0].p(), *paired->p_two_sided, 1e-12);
}

TEST(Effects, MoreThanTwoLevelsEachAgainstTheFirst) {
  Design d(3);
  d.Fill(4);
  const auto rows = d.Rows();
  ASSERT_EQ(rows.size(), 4u + 2 + 1 + 2);
  EXPECT_EQ(Name(rows[2]), "p none -> 3");
  EXPECT_NEAR(rows[2].effect(), -0.4 + 0.1, 0.003);
  EXPECT_EQ(Name(rows[5]), "norm none -> l2 x p none -> 3");
  EXPECT_NEAR(rows[5].effect(), 0.2, 0.003);
}

TEST(Effects, ADivergedSeedLeavesNoPAndIsSaid) {
  Design d;
  d.Fill(5);
  for (auto& measurement : d.m) {
    if (measurement.seed == 2 && measurement.arm == ArmValuesOf(d.plan.arms[3].values)) {
      measurement.status = MeasurementStatus::kDiverged;
    }
  }
  for (const auto& row : d.Rows()) {
    EXPECT_EQ(row.n(), 4);
    EXPECT_TRUE(row.has_effect() && row.has_low());
    EXPECT_FALSE(row.has_p() || row.has_p_adjusted());
    EXPECT_THAT(row.note(), HasSubstr("survivors only: 1 of 5 seeds diverged (seed 2)"));
  }
}

TEST(Effects, AMissingSeedIsSaidAndOneSeedHasNoInterval) {
  Design d;
  d.Fill(2);
  d.m.pop_back();
  for (const auto& row : d.Rows()) {
    EXPECT_EQ(row.n(), 1);
    EXPECT_FALSE(row.has_low() || row.has_p() || row.has_sd());
    EXPECT_THAT(row.note(), HasSubstr("one pair only"));
    EXPECT_THAT(row.note(), HasSubstr("incomplete: 1 of 2 seeds missing (seed 1)"));
  }
}

TEST(Effects, PhasesAndTuningAreApart) {
  Design d;
  d.Fill(4);
  const size_t count = d.m.size();
  for (size_t i = 0; i < count; ++i) {
    Measurement again = d.m[i];
    again.phase = v1::SELECTING;
    *again.value += 0.5 * (again.arm == ArmValuesOf(d.plan.arms[0].values));
    d.m.push_back(again);
    again.phase = v1::TUNING;
    d.m.push_back(again);
  }
  Measurement lone = d.m[0];  // one arm is confirmed: no design there
  lone.phase = v1::CONFIRMING;
  d.m.push_back(lone);
  const auto rows = d.Rows();
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[0].phase(), v1::PLAIN);
  EXPECT_EQ(rows[6].phase(), v1::SELECTING);
  EXPECT_NEAR(rows[6].effect(), rows[0].effect() - 0.125, 1e-9);
}

TEST(Effects, RefusesWhatIsNoDesign) {
  Design d;
  d.Fill(3);
  d.spec.mutable_factorial()->clear_factors();
  EXPECT_EQ(FactorialEffects(d.spec, d.plan, {}, {}, 0, d.m).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::string> one = {"norm"};  // several arms a level
  EXPECT_FALSE(FactorialEffects(d.spec, d.plan, one, {}, 0, d.m).ok());
  Design other;
  other.Fill(3);
  other.m.push_back(Measure(MakeArm(Lssar(99)), 0, v1::PLAIN, 1024, 1.0));
  EXPECT_FALSE(FactorialEffects(other.spec, other.plan, {}, {}, 0, other.m).ok());
}

// ---- spread ----

DocumentMeasurement Scored(const std::string& arm, int64_t seed, std::vector<double> sums, int32_t targets = 10) {
  DocumentMeasurement out{.arm_json = arm, .seed = seed, .length_tokens = 256, .split = "selection"};
  for (size_t d = 0; d < sums.size(); ++d) {
    v1::DocumentLoss& loss = out.documents.emplace_back();
    loss.set_document(static_cast<int32_t>(d));
    loss.set_targets(targets);
    loss.set_loss_sum(sums[d]);
  }
  return out;
}

TEST(Spread, RowsByArmInAnyOrderOfSeeds) {
  std::vector<DocumentMeasurement> m = {Scored("{}", 2, {20, 30, 25}), Scored("{}", 0, {21, 33, 26}),
                                        Scored("{\"p\":3}", 0, {10, 20, 30}), Scored("{}", 1, {19, 31, 22})};
  const auto rows = SpreadRows(m, 0);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].seeds(), 3);
  EXPECT_EQ((*rows)[0].documents(), 3);
  EXPECT_NEAR((*rows)[0].mean(), (75 + 80 + 72) / 90.0, 1e-12);
  EXPECT_TRUE((*rows)[0].has_low());
  EXPECT_FALSE((*rows)[1].has_low());
  EXPECT_THAT((*rows)[1].note(), HasSubstr("one seed only"));
  std::swap(m[0], m[1]);
  EXPECT_EQ((*SpreadRows(m, 0))[0].low(), (*rows)[0].low());
}

TEST(Spread, OtherDocumentsAreLeftOutAndSaid) {
  const auto rows = SpreadRows(std::vector<DocumentMeasurement>{Scored("{}", 0, {20, 30}), Scored("{}", 1, {21, 33}),
                                                                Scored("{}", 2, {20, 30}, 11), Scored("{}", 3, {})},
                               0.9);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].seeds(), 2);
  EXPECT_EQ((*rows)[0].level(), 0.9);
  EXPECT_THAT((*rows)[0].note(), HasSubstr("left out, other documents: seeds 2, 3"));
  EXPECT_EQ((*SpreadRows(std::vector<DocumentMeasurement>{Scored("{}", 0, {})}, 0))[0].note(), "no losses by document");
}

// ---- the validity gate ----

TEST(Gate, BothPartsAreNeeded) {
  const std::vector<double> early = {2.30, 2.32, 2.29}, late = {2.20, 2.23, 2.18};
  const std::vector<double> at_1x = {2.21, 2.24, 2.20}, at_8x = {2.41, 2.47, 2.42}, flat = {2.22, 2.24, 2.21};
  auto gate = ValidityGate(early, late, at_1x, at_8x);
  ASSERT_TRUE(gate.ok());
  EXPECT_TRUE(gate->passes && gate->uses_context && gate->has_rise);
  EXPECT_NEAR(gate->context_fall.mean, 0.1, 1e-9);
  EXPECT_THAT(gate->sentence, HasSubstr("falls by 0.1000 nats per byte, 0.0752 to 0.1248 (needed: 0.05, reached)"));
  gate = ValidityGate(early, early, at_1x, at_8x);
  EXPECT_FALSE(gate->passes || gate->uses_context);
  EXPECT_THAT(gate->sentence, HasSubstr("Train longer"));
  gate = ValidityGate(early, late, at_1x, flat);
  EXPECT_FALSE(gate->passes || gate->has_rise);
  // A large mean rise whose interval reaches below 0 is none.
  gate = ValidityGate(early, late, at_1x, std::vector<double>{2.2, 3.5, 2.3});
  EXPECT_GT(gate->rise.mean, 0.1);
  EXPECT_FALSE(gate->has_rise);
  EXPECT_FALSE(ValidityGate({early.data(), 1}, {late.data(), 1}, {at_1x.data(), 1}, {at_8x.data(), 1}).ok());
  EXPECT_FALSE(ValidityGate(early, late, {at_1x.data(), 2}, at_8x).ok());
}

}  // namespace
}  // namespace ablate
