// The grammar of tuning, selection, confirmation, claims and factors; what they mean together: claims_check_test.cc.
#include <random>

#include "experiments/plan_test_util.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kEveryKey[] = R"(name: every-key
settings: {train.length: 128, train.steps: 100}
arms:
  - {attention.variant: softmax, factors: {part: none}}
  - {attention.variant: lssar, attention.p: [3, 15], factors: {part: some}}
seeds: [7, 8]
tune: {learning_rates: [2e-3, 5e-4, 1e-3], seeds: [50, 51], metric: loss, max_extensions: 0}
select: {among: {attention.variant: lssar}, metric: loss, lengths: [2x, 512], ntk: on, split: selection}
confirm:
  seeds: [20, 21, 22, 23, 24, 25, 26, 27, 28, 29]
  fixed: [{attention.variant: lssar, attention.p: [3, 15]}]
  split: confirmation
  looks: [8, 10]
claims:
  - {name: a.1, kind: differs, arm: selected, against: {attention.variant: softmax}, metric: loss, length: 8x, ntk: off,
     direction: higher, margin: 0.25, why: "a, b", smallest_effect: 1e-1, main: on, divergence: worst}
  - {name: b_2, kind: rises_less, arm: {attention.p: 3}, length: 1024, short_length: 0.5x, ntk: yes, margin: 1, why: x,
     main: false, divergence: undecided}
alpha: 0.01
)";

TEST(SweepFileClaims, ReadsEveryKey) {
  const v1::SweepSpec spec = Spec(kEveryKey);
  EXPECT_THAT(spec.tune().learning_rates(), ElementsAre(5e-4, 1e-3, 2e-3)) << "ascending";
  EXPECT_THAT(spec.tune().seeds(), ElementsAre(50, 51));
  EXPECT_EQ(spec.tune().metric(), "loss");
  EXPECT_EQ(spec.tune().max_extensions(), 0);
  EXPECT_EQ(ToJson(spec.select().among()), R"({"attention.variant":"lssar"})");
  EXPECT_EQ(spec.select().metric(), "loss");
  ASSERT_THAT(spec.select().lengths(), SizeIs(2));
  EXPECT_EQ(spec.select().lengths(0).multiple(), 2);
  EXPECT_EQ(spec.select().lengths(1).tokens(), 512);
  EXPECT_TRUE(spec.select().ntk());
  EXPECT_EQ(spec.select().split(), "selection");
  EXPECT_THAT(spec.confirm().seeds(), SizeIs(10));
  EXPECT_THAT(spec.confirm().fixed_arms(), SizeIs(2));
  EXPECT_EQ(spec.confirm().split(), "confirmation");
  EXPECT_THAT(spec.confirm().looks(), ElementsAre(8, 10));
  EXPECT_FALSE(spec.confirm().has_stein());
  ASSERT_THAT(spec.claims(), SizeIs(2));
  const v1::ClaimSpec &a = spec.claims(0), &b = spec.claims(1);
  EXPECT_EQ(a.name(), "a.1");
  EXPECT_EQ(a.kind(), v1::DIFFERS);
  EXPECT_TRUE(a.selected_arm());
  EXPECT_EQ(ToJson(a.against()), R"({"attention.variant":"softmax"})");
  EXPECT_EQ(a.metric(), "loss");
  EXPECT_EQ(a.length().multiple(), 8);
  EXPECT_FALSE(a.has_short_length());
  EXPECT_FALSE(a.ntk());
  EXPECT_EQ(a.direction(), 1);
  EXPECT_EQ(a.margin(), 0.25);
  EXPECT_EQ(a.margin_reason(), "a, b");
  EXPECT_EQ(a.smallest_effect(), 0.1);
  EXPECT_TRUE(a.main());
  EXPECT_TRUE(a.divergence_is_worst());
  EXPECT_EQ(b.kind(), v1::RISES_LESS);
  EXPECT_FALSE(b.selected_arm());
  EXPECT_EQ(ToJson(b.arm()), R"({"attention.p":3})");
  EXPECT_EQ(b.length().tokens(), 1024);
  EXPECT_EQ(b.short_length().multiple(), 0.5);
  EXPECT_TRUE(b.ntk());
  EXPECT_EQ(b.direction(), 0);
  EXPECT_FALSE(b.main());
  EXPECT_EQ(spec.alpha(), 0.01);
  EXPECT_EQ(spec.arms(2).factors().at("part"), "some");
  // S1 sees what selecting takes, as no `evaluate` says more.
  EXPECT_THAT(spec.evaluate().lengths(), SizeIs(3));
  EXPECT_EQ(spec.evaluate().lengths(0).multiple(), 1);
  PlanOf(spec);
}

TEST(SweepFileClaims, Defaults) {
  const v1::SweepSpec spec = Spec(kSealed);
  EXPECT_FALSE(spec.has_tune());
  EXPECT_EQ(spec.select().metric(), "loss_targets");
  ASSERT_THAT(spec.select().lengths(), SizeIs(2));
  EXPECT_EQ(spec.select().lengths(0).multiple(), 2);
  EXPECT_EQ(spec.select().lengths(1).multiple(), 4);
  EXPECT_FALSE(spec.select().ntk());
  EXPECT_EQ(spec.confirm().split(), "confirmation");
  EXPECT_EQ(spec.claims(3).short_length().multiple(), 1);
  EXPECT_EQ(spec.claims(0).metric(), "loss_targets");
  EXPECT_EQ(spec.alpha(), 0);
  const v1::SweepSpec fixed = Spec(kFixed);
  EXPECT_THAT(fixed.confirm().seeds(), ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
  EXPECT_THAT(fixed.seeds(), IsEmpty());
  const v1::SweepSpec tuned = Spec("tune: {learning_rates: [1, 2]}");
  EXPECT_THAT(tuned.tune().seeds(), ElementsAre(1000, 1001));
  EXPECT_EQ(tuned.tune().metric(), "loss_targets");
  EXPECT_EQ(tuned.tune().max_extensions(), 2);
  EXPECT_THAT(tuned.seeds(), ElementsAre(0, 1, 2));
  EXPECT_THAT(tuned.evaluate().lengths(), SizeIs(4));
  const v1::SweepSpec plain = Spec("seeds: 1");
  EXPECT_FALSE(HasPhases(plain));
  EXPECT_EQ(plain.SerializeAsString().find("loss_targets"), std::string::npos) << "stored files stay as they were";
}

TEST(SweepFileClaims, ExamplesOfTheOtherExecutorPlanToo) {
  const std::string yaml = Replaced(kSealed, "settings: {", "executor: noop\nsettings: {noop.seconds: 0.1, ");
  const Plan plan = PlanOf(Spec(yaml));
  CheckInvariants(plan);
  EXPECT_EQ(plan.evaluations.size(), 25u * 3 + 40u * 4);
}

TEST(SweepFileClaims, MutatedFilesNeverCrash) {
  std::mt19937 random(4);
  const std::string alphabet = "{}[]:,-#&*!|>'\"%@`?\n\t \\0123456789.eExXaz\x80\xff";
  int planned = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = std::string(kData) + (i % 2 ? kEveryKey : kSealed);
    for (int e = 1 + static_cast<int>(random() % 3); e > 0; --e) {
      const size_t at = 90 + random() % (text.size() - 90);
      switch (random() % 4) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
          break;
        case 3:
          if (const size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
            text[digit] = "0123456789"[random() % 10];
          }
          break;
      }
      if (text.size() < 200) break;
    }
    SweepPlaces places;
    const auto spec = ParseSweepFile(text, "mutant.yaml", &places);
    if (!spec.ok()) {
      ASSERT_THAT(std::string(spec.status().message()), StartsWith("mutant.yaml:"));
      continue;
    }
    const auto plan = MakePlan(*spec, places);
    if (!plan.ok()) {
      ++refused;
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_THAT(std::string(plan.status().message()), StartsWith("mutant.yaml:")) << text;
      continue;
    }
    ++planned;
    CheckInvariants(*plan);
    ASSERT_FALSE(Summarize(*spec, *plan).plan_sha256().empty());
  }
  EXPECT_GT(planned, 100);
  EXPECT_GT(refused, 100);
}

TEST(SweepFileClaims, WhatNoFileSaysAClientCan) {
  const auto refuses = [](auto change) {
    v1::SweepSpec spec = Spec(kEveryKey);
    change(&spec);
    EXPECT_EQ(MakePlan(spec).status().code(), absl::StatusCode::kInvalidArgument);
  };
  refuses([](v1::SweepSpec* s) { s->mutable_tune()->clear_seeds(); });
  refuses([](v1::SweepSpec* s) { s->mutable_tune()->set_learning_rates(0, 5e-3); });
  refuses([](v1::SweepSpec* s) { s->mutable_tune()->set_max_extensions(11); });
  refuses([](v1::SweepSpec* s) { s->mutable_tune()->set_metric(""); });
  refuses([](v1::SweepSpec* s) { s->mutable_select()->clear_lengths(); });
  refuses([](v1::SweepSpec* s) { s->mutable_select()->add_lengths(); });
  refuses([](v1::SweepSpec* s) { s->mutable_select()->set_split("\",\"x"); });
  refuses([](v1::SweepSpec* s) { s->mutable_select()->mutable_among()->add_settings()->set_axis("nonsense"); });
  refuses([](v1::SweepSpec* s) { s->mutable_confirm()->set_split("test"); });
  refuses([](v1::SweepSpec* s) { s->mutable_confirm()->set_seeds(0, -1); });
  refuses([](v1::SweepSpec* s) { s->mutable_confirm()->clear_seeds(); });
  refuses([](v1::SweepSpec* s) { s->mutable_confirm()->set_reuse_seeds(true); });
  refuses([](v1::SweepSpec* s) { s->mutable_confirm()->add_fixed_arms()->add_settings()->set_axis("nonsense"); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->clear_kind(); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->set_margin(std::nan("")); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->set_margin(-1); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->set_smallest_effect(-1); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->set_direction(2); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->clear_length(); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(0)->set_name("a b"); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(1)->clear_arm(); });
  refuses([](v1::SweepSpec* s) { s->mutable_claims(1)->clear_short_length(); });
  refuses([](v1::SweepSpec* s) { s->clear_confirm(); });
  refuses([](v1::SweepSpec* s) { s->clear_seeds(); });
  refuses([](v1::SweepSpec* s) { s->set_alpha(-1); });
  refuses([](v1::SweepSpec* s) { s->mutable_factorial(); });
  v1::SweepSpec many = Spec(kEveryKey);
  for (int64_t seed = 1; seed < 200000; ++seed) many.mutable_tune()->add_seeds(1000 + seed);
  EXPECT_THAT(std::string(MakePlan(many).status().message()), HasSubstr("points in all phases; at most 1000000"));
}

// Sweeps with phases share with plain ones what both train.
TEST(SweepFileClaims, PhasesChangeNoKey) {
  const Plan sealed = PlanOf(Spec(kSealed));
  const Plan plain = PlanOf(Spec(R"(
settings: {train.length: 128, train.steps: 100}
axes: {eval.ntk: [off, on]}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3, 7, 15]}
seeds: [0, 1, 2, 3, 4, 100, 101, 102, 103, 104, 105, 106, 107]
evaluate: {lengths: [1x, 2x, 4x, 8x, 16x], splits: [selection, confirmation]}
)"));
  EXPECT_THAT(Keys(sealed), ::testing::IsSubsetOf(Keys(plain)));
  EXPECT_EQ(sealed.stages.size(), plain.stages.size());
}

}  // namespace
}  // namespace ablate
