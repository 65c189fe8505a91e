// Arms whose settings change during training, after it, or at evaluation only: what they share.
#include "base/hash.h"
#include "experiments/axes.h"
#include "experiments/plan.h"
#include "experiments/plan_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

Plan PlanOf(const std::string& yaml) { return ablate::PlanOf(Spec(yaml)); }
using ablate::PlanOf;

TEST(Plan, SwitchesShareTheTrainingBeforeThem) {
  const v1::SweepSpec spec = Spec(kSwitches);
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  EXPECT_EQ(plan.arms[3].json,
            R"({"attention.variant":"softmax","attention.variant@40":"ssmax","train.learning_rate@80":0.00001})");
  std::vector<std::tuple<int64_t, int64_t, std::string>> stages;
  for (const PlannedStage& stage : plan.stages)
    stages.emplace_back(stage.from_step, stage.to_step, ToJson(stage.config));
  // 1 / mean log n over the 256 tokens of T_train.
  const std::string softmax = R"({"train.steps":100})",
                    ssmax = R"({"attention.ssmax_init":0.2193,"attention.variant":"ssmax","train.steps":100})";
  EXPECT_THAT(
      stages,
      ElementsAre(
          std::tuple(0, 40, softmax), std::tuple(40, 60, softmax), std::tuple(60, 100, softmax),
          std::tuple(60, 100, ssmax), std::tuple(40, 80, ssmax), std::tuple(80, 100, ssmax),
          std::tuple(
              80, 100,
              R"({"attention.ssmax_init":0.2193,"attention.variant":"ssmax","train.learning_rate":0.00001,"train.steps":100})"),
          std::tuple(60, 100, R"({"attention.variant":"lssa","train.steps":100})")));
  const v1::PlanSummary summary = Summarize(spec, plan);
  EXPECT_EQ(summary.steps(), 40 + 20 + 40 + 40 + 40 + 20 + 20 + 40);
  EXPECT_EQ(summary.steps_without_sharing(), 500);
  EXPECT_EQ(summary.arms(0).stages(), 3);
  EXPECT_EQ(summary.arms(0).shared_stages(), 2);
}

constexpr char kUses[] = R"(
settings: {train.steps: 100, train.length: 1024, attention.variant: softmax}
arms:
  - {attention.variant: softmax}
  - {attention.variant: ssmax}
  - {attention.variant: softmax, switch: [{at_step: 60, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at: end, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at: end, steps: 30, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at: end, steps: 30, attention.variant: lssar}]}
  - {attention.variant: softmax, switch: [{at_step: 60, attention.variant: ssmax}, {at: end, steps: 30, train.schedule: constant, train.learning_rate: 1e-5}]}
seeds: 1
evaluate: {lengths: [1x]}
)";

TEST(Plan, SwitchesAtTheEndGoOnFromTheSharedTraining) {
  const v1::SweepSpec spec = Spec(kUses);
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  EXPECT_EQ(plan.arms[3].json, R"({"attention.variant":"softmax","attention.variant@end":"ssmax"})");
  EXPECT_EQ(plan.arms[4].label, "variant=softmax variant@end+30=ssmax");
  std::vector<std::tuple<int64_t, int64_t, int64_t, std::string>> stages;  // from, to, where it continues from
  for (const PlannedStage& stage : plan.stages) {
    stages.emplace_back(stage.from_step, stage.to_step, stage.parent < 0 ? -1 : plan.stages[stage.parent].to_step,
                        ConfigView(stage.config).Text("attention.variant"));
  }
  EXPECT_THAT(stages, UnorderedElementsAre(std::tuple(0, 60, -1, "softmax"), std::tuple(60, 100, 60, "softmax"),
                                           std::tuple(0, 100, -1, "ssmax"), std::tuple(60, 100, 60, "ssmax"),
                                           std::tuple(100, 100, 100, "ssmax"), std::tuple(100, 130, 100, "ssmax"),
                                           std::tuple(100, 130, 100, "lssar"), std::tuple(100, 130, 100, "ssmax")));
  // Where it is swapped in, s starts at 1 / mean log n; from the start at 1, which is the default.
  const auto config_of = [&](int arm) { return ToJson(plan.stages[plan.points[arm].stage].config); };
  EXPECT_THAT(config_of(3), HasSubstr(R"("attention.ssmax_init":0.1685)"));
  EXPECT_EQ(config_of(2), config_of(3));
  EXPECT_EQ(config_of(4), config_of(3));
  EXPECT_THAT(config_of(1), Not(HasSubstr("ssmax_init")));
  EXPECT_THAT(config_of(6), HasSubstr(R"("attention.ssmax_init":0.1685,"attention.variant":"ssmax")"));
  // Permanent: a state that is only made over ends with a segment without a step.
  const std::string softmax = R"({"train.length":1024,"train.steps":100})";
  EXPECT_EQ(plan.stages[plan.points[3].stage].key,
            Sha256Hex(R"({"data":{"format":"text","sha256":")" + std::string(64, 'a') +
                      R"("},"device":"any","executor":"trainer","numerics":1,"seed":0,"segments":[[)" + softmax +
                      ",0,100],[" + config_of(3) + R"(,100,100]],"what":"state"})"));
  const v1::PlanSummary summary = Summarize(spec, plan);
  EXPECT_EQ(summary.steps(), 100 + 100 + 40 + 3 * 30);
  EXPECT_EQ(summary.steps_without_sharing(), 4 * 100 + 3 * 130);
  // Each arm is found by what tables print of it.
  for (size_t i = 0; i < plan.arms.size(); ++i) {
    const auto found = FindBaseline(spec.settings(), plan.arms, plan.arms[i].values);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, static_cast<int>(i));
  }
}

TEST(Plan, WhatShapesStepsIsNotSwitchedWhereNoneFollow) {
  const auto refused = [](const std::string& change) {
    return Refusal("seeds: 1\narms:\n  - {attention.variant: softmax, switch: [{at: end, " + change + "}]}");
  };
  for (const std::string change : {"train.learning_rate: 1e-5", "train.schedule: constant", "data.mixture: 0.5",
                                   "steps: 0, train.batch: 4", "attention.variant: ssmax, train.clip: 0"}) {
    EXPECT_THAT(refused(change), HasSubstr("cannot act without steps: name `steps`")) << change;
  }
  EXPECT_THAT(refused("train.clip: 0"), HasSubstr("f.yaml:4:5: switch at: end: train.clip cannot act"));
  const auto plans = [](const std::string& change) {
    return MakePlan(Spec("requires: {device: cuda}\nseeds: 1\narms: [{switch: [" + change + "]}]")).status();
  };
  EXPECT_TRUE(plans("{at: end, steps: 5, train.learning_rate: 1e-5}").ok());
  EXPECT_TRUE(plans("{at_step: 5, train.learning_rate: 1e-5}, {at: end, attention.variant: ssmax}").ok());
  EXPECT_TRUE(plans("{at: end, train.precision: bf16}").ok()) << "evaluations have a precision too";
}

TEST(Plan, GoingOnAsBeforeIsTheControlOfAShortContinuation) {
  const v1::SweepSpec spec = Spec(
      "settings: {train.steps: 100, attention.variant: softmax}\nseeds: 1\nevaluate: {lengths: [1x]}\narms:\n"
      "  - {}\n  - {switch: [{at: end, steps: 30}]}\n  - {switch: [{at: end, steps: 30, attention.variant: ssmax}]}\n"
      "  - {switch: [{at_step: 60, attention.variant: ssmax}, {at: end, steps: 30}]}\n"
      "  - {switch: [{at: end, steps: 5}]}");
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  std::vector<std::string> labels;
  for (const Arm& arm : plan.arms) labels.push_back(arm.label);
  EXPECT_THAT(labels, ElementsAre("default", "steps@end=30", "variant@end+30=ssmax", "variant@60=ssmax steps@end=30",
                                  "steps@end=5"));
  EXPECT_EQ(plan.arms[1].json, R"({"train.steps@end":30})");
  const PlannedStage& control = plan.stages[plan.points[1].stage];
  EXPECT_EQ(control.to_step, 130);
  EXPECT_EQ(plan.stages[plan.points[3].stage].to_step, 130);
  // Permanent: the same settings, further.
  EXPECT_EQ(control.key, Sha256Hex(R"({"data":{"format":"text","sha256":")" + std::string(64, 'a') +
                                   R"("},"device":"any","executor":"trainer","numerics":1,"seed":0,"segments":[[)"
                                   R"({"train.steps":100},0,130]],"what":"state"})"));
  EXPECT_EQ(ToJson(control.config), R"({"train.steps":100})");
  EXPECT_EQ(Summarize(spec, plan).steps(), 100 + 5 + 25 + 30 + 40 + 30);  // 40: from step 60 on, with ssmax
  for (size_t i = 0; i < plan.arms.size(); ++i) {
    const auto found = FindBaseline(spec.settings(), plan.arms, plan.arms[i].values);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, static_cast<int>(i));
  }
  EXPECT_THAT(Refusal("seeds: 1\narms: [{switch: [{at: end, steps: 5}]}, {switch: [{at: end, steps: 5}]}]"),
              HasSubstr("steps@end=5 are the same configuration"));
  v1::SweepSpec nothing = spec;
  nothing.mutable_arms(1)->mutable_switches(0)->clear_extra_steps();
  EXPECT_FALSE(MakePlan(nothing).ok());
}

TEST(Plan, AGivenInitialValueOfSStays) {
  const auto init = [](const std::string& arm) {
    const Plan plan = PlanOf("settings: {train.length: 128}\nseeds: 1\narms: [" + arm + "]");
    return ConfigView(plan.stages.back().config).Number("attention.ssmax_init");
  };
  EXPECT_EQ(init("{switch: [{at_step: 5, attention.variant: ssmax_bias}]}"), 0.2579);
  EXPECT_EQ(init("{switch: [{at_step: 5, attention.variant: ssmax, attention.ssmax_init: 1}]}"), 1);
  EXPECT_EQ(init("{attention.ssmax_init: 0.5, switch: [{at: end, attention.scale: ssmax}]}"), 0.5);
  // s is learned before and after.
  EXPECT_EQ(init("{attention.variant: ssmax, switch: [{at: end, attention.variant: ssmax_bias}]}"), 1);
}

// What a value of p, the scale or NTK does to a trained model needs no training of its own.
TEST(Plan, OverridesAtEvaluationShareTheTraining) {
  const Plan plan = PlanOf(
      "arms:\n  - {attention.variant: lssar}\n  - {attention.variant: lssar, eval.attention.p: [1, 3]}\n  - "
      "{attention.variant: lssar, eval.attention.scale: log_d}\naxes: {eval.ntk: [off, dynamic]}\nseeds: 2");
  EXPECT_EQ(plan.arms.size(), 4u);
  EXPECT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.evaluations.size(), 4u * 2 * 7);
}

TEST(Plan, WhereThePlannerCutsChangesNoKey) {
  const Plan alone = PlanOf("settings: {train.steps: 100}\nseeds: 1");
  const Plan with_switches = PlanOf(kSwitches);
  const int end = with_switches.points[0].stage;
  EXPECT_EQ(with_switches.stages[end].from_step, 60);
  EXPECT_EQ(with_switches.stages[end].key, alone.stages[0].key);
}

TEST(Plan, ASwitchKeepsWhatTheArmSet) {
  // p = 15 is lssar's default, and still given after the variant has changed.
  const Plan plan = PlanOf(
      "arms: [{attention.variant: lssar, attention.p: 15, switch: [{at_step: 5, attention.variant: softmax}]}]\nseeds: "
      "1");
  EXPECT_EQ(ToJson(plan.stages[0].config), R"({"attention.variant":"lssar"})");
  EXPECT_EQ(ToJson(plan.stages[1].config), R"({"attention.p":15})");
}

}  // namespace
}  // namespace ablate
