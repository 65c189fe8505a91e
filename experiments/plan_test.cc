#include "experiments/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/files.h"
#include "base/hash.h"
#include "experiments/axes.h"
#include "experiments/plan_test_util.h"
#include "experiments/sweep_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace ablate {
namespace {

// Random tests are twenty times as slow under a sanitizer.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kOfRounds = 10;
#else
constexpr int kOfRounds = 1;
#endif

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

Plan PlanOf(const std::string& yaml) { return ablate::PlanOf(Spec(yaml)); }
using ablate::PlanOf;

// Of planning alone, a spec that has no file: the message has no place.
std::string PlanRefusal(const std::string& yaml) {
  const auto plan = MakePlan(Spec(yaml));
  EXPECT_FALSE(plan.ok()) << yaml;
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(plan.status().message());
}

std::vector<std::string> Labels(const Plan& plan) {
  std::vector<std::string> labels;
  for (const Arm& arm : plan.arms) labels.push_back(arm.label);
  return labels;
}

std::set<std::string> StageKeys(const Plan& plan) {
  std::set<std::string> keys;
  for (const PlannedStage& stage : plan.stages) EXPECT_TRUE(keys.insert(stage.key).second) << "a stage twice";
  return keys;
}

// What must hold of any plan without phases, beside what holds of every plan.
void CheckInvariants(const v1::SweepSpec& spec, const Plan& plan) {
  CheckInvariants(plan);
  for (const PlannedStage& stage : plan.stages) ASSERT_LT(stage.from_step, stage.to_step);
  for (const Point& point : plan.points) ASSERT_EQ(point.phase, v1::PLAIN);
  ASSERT_EQ(plan.points.size(), plan.arms.size() * plan.seeds.size());
  const v1::PlanSummary summary = Summarize(spec, plan);
  ASSERT_EQ(summary.points(), static_cast<int64_t>(plan.points.size()));
  ASSERT_LE(summary.steps(), summary.steps_without_sharing());
  int64_t steps = 0;
  for (const PlannedStage& stage : plan.stages) steps += stage.to_step - stage.from_step;
  ASSERT_EQ(summary.steps(), steps);
  // Each arm is named by what tables print of it.
  for (size_t i = 0; i < plan.arms.size() && plan.arms.size() < 200; ++i) {
    const auto found = FindBaseline(spec.settings(), plan.arms, plan.arms[i].values);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, static_cast<int>(i)) << plan.arms[i].json;
  }
}

constexpr char kArms[] = R"(
settings: {train.steps: 100}
axes: {eval.ntk: [off, dynamic]}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [3, 15]}
seeds: 2
evaluate: {lengths: [1x, 2x, 4x]}
)";

TEST(Plan, ArmsTimesAxesWithNtkAsAColumn) {
  const v1::SweepSpec spec = Spec(kArms);
  const Plan plan = PlanOf(spec);
  CheckInvariants(spec, plan);
  EXPECT_THAT(Labels(plan), ElementsAre("variant=softmax", "variant=lssar p=3", "variant=lssar p=15"));
  EXPECT_EQ(plan.arms[2].json, R"({"attention.p":15,"attention.variant":"lssar"})");
  EXPECT_EQ(plan.stages.size(), 6u);
  // 1x without NTK; 2x and 4x with and without.
  EXPECT_EQ(plan.points[0].evaluations.size(), 5u);
  EXPECT_EQ(plan.evaluations.size(), 30u);
  std::vector<std::pair<int64_t, bool>> cells;
  for (const int e : plan.points[0].evaluations)
    cells.emplace_back(plan.evaluations[e].length_tokens, plan.evaluations[e].ntk);
  EXPECT_THAT(cells, ElementsAre(std::pair(256, false), std::pair(512, false), std::pair(512, true),
                                 std::pair(1024, false), std::pair(1024, true)));
  EXPECT_EQ(plan.train_tokens_per_step, 2048);
}

// Permanent: these keys are in users' databases. A change here means that finished work is run again; bump
// kNumericsVersion instead.
TEST(Plan, GoldenKeys) {
  const Plan plan = PlanOf(kArms);
  EXPECT_EQ(
      plan.stages[1].key,
      Sha256Hex(
          "{\"data\":{\"format\":\"text\",\"sha256\":\"" + std::string(64, 'a') +
          "\"},\"device\":\"any\",\"executor\":\"trainer\",\"numerics\":1,\"seed\":0,\"segments\":[[{\"attention.p\":3,"
          "\"attention.variant\":\"lssar\",\"train.steps\":100},0,100]],\"what\":\"state\"}"));
  EXPECT_EQ(plan.evaluations[plan.points[1].evaluations[2]].key,
            Sha256Hex("{\"eval\":{\"eval.ntk\":\"dynamic\"},\"length\":512,\"split\":\"selection\",\"state\":\"" +
                      plan.stages[1].key + "\",\"what\":\"evaluation\"}"));
  EXPECT_EQ(plan.stages[0].key, "9209834967b238a95c099c127ad363f13d0fe24e0d191a7d154213e9cca96f0c");
  EXPECT_EQ(plan.evaluations[0].key, "e62477da2241112a84c6e0abf3e6e3400402ee7ecf41b8b2d2cdc05a0f65bd2b");
  EXPECT_EQ(plan.sha256, "f962d428b18425d62ecf4ebec6d8b6e99619e334e1d2052047a87215d436a4a4");
}

TEST(Plan, EvaluationAxesNeverAddATraining) {
  const std::string base = "settings: {train.steps: 100}\nseeds: 2\naxes:\n  attention.variant: [softmax, lssar]\n";
  const Plan plain = PlanOf(base);
  const std::string axes[] = {"eval.ntk: [off, dynamic]",
                              "eval.rope_theta_scale: [1, 50]",
                              "eval.ntk_factor: [1, 2]",
                              "eval.attention.window: [0, 256]",
                              "eval.target_spans: [8, 16]",
                              "eval.attention.p: [none, 3]",
                              "eval.attention.scale: [one, log_d]",
                              "eval.gain: [false, true]",
                              "eval.attention.scale_clamp: [false, true]",
                              "eval.attention.sharpen_clamp: [false, true]"};
  std::string all = base;
  for (const std::string& axis : axes) {
    const v1::SweepSpec spec = Spec(base + "  " + axis + "\n");
    const Plan plan = PlanOf(spec);
    CheckInvariants(spec, plan);
    EXPECT_EQ(StageKeys(plan), StageKeys(plain)) << axis;
    all += "  " + axis + "\n";
  }
  EXPECT_EQ(StageKeys(PlanOf(all)), StageKeys(plain));
}

TEST(Plan, WhatCannotActIsComputedOnce) {
  // NTK without RoPE; a window as long as the text; an override that repeats training.
  const Plan none = PlanOf(
      "settings: {model.position: none}\naxes: {eval.ntk: [off, dynamic], eval.rope_theta_scale: [1, 50]}\nseeds: 1");
  EXPECT_EQ(none.arms.size(), 2u);
  EXPECT_EQ(none.evaluations.size(), 4u);
  const Plan window = PlanOf("axes: {eval.attention.window: [0, 256]}\nseeds: 1\nevaluate: {lengths: [1x, 2x]}");
  EXPECT_EQ(window.evaluations.size(), 3u);
  const Plan gain = PlanOf("axes: {eval.gain: [false, true]}\nseeds: 1\nevaluate: {lengths: [0.5x, 1x, 2x]}");
  EXPECT_EQ(gain.evaluations.size(), 4u);
  const Plan repeated = PlanOf(
      "settings: {attention.variant: lssar}\naxes: {eval.attention.p: [3, 15, none]}\nseeds: 1\nevaluate: {lengths: "
      "[1x]}");
  const Plan plain = PlanOf("settings: {attention.variant: lssar}\nseeds: 1\nevaluate: {lengths: [1x]}");
  EXPECT_EQ(repeated.evaluations[1].key, plain.evaluations[0].key);
  EXPECT_EQ(repeated.evaluations.size(), 3u);
  // A constant that only the evaluation has stays, whatever its value; beside another scale it cannot act.
  const Plan constant = PlanOf(
      "settings: {eval.attention.scale: constant, eval.attention.scale_constant: 1}\nseeds: 1\nevaluate: {lengths: "
      "[1x]}");
  EXPECT_EQ(ToJson(constant.evaluations[0].eval_config),
            R"({"eval.attention.scale":"constant","eval.attention.scale_constant":1})");
  const Plan idle = PlanOf("settings: {eval.attention.scale_constant: 2}\nseeds: 1\nevaluate: {lengths: [1x]}");
  EXPECT_EQ(ToJson(idle.evaluations[0].eval_config), "{}");
  for (const PlannedEvaluation* planned :
       {&constant.evaluations[0], &idle.evaluations[0], &none.evaluations[0], &window.evaluations[1]}) {
    // What is left out must leave a configuration that the trainer takes.
    EXPECT_TRUE(CheckConfiguration({}, planned->eval_config).ok()) << CheckConfiguration({}, planned->eval_config);
  }
  const Plan lengths = PlanOf("seeds: 1\nevaluate: {lengths: [1x, 256, 512, 2x]}");
  EXPECT_EQ(lengths.evaluations.size(), 2u);
}

// A clamp acts above 1x alone, and on what it clamps.
TEST(Plan, ClampsThatCannotActAreLeftOut) {
  const std::string clamps =
      "axes: {eval.attention.scale_clamp: [false, true], eval.attention.sharpen_clamp: [false, true]}\nseeds: 1\n"
      "evaluate: {lengths: [0.5x, 1x, 2x]}\n";
  const auto evaluations = [&](const std::string& settings) {
    const v1::SweepSpec spec = Spec("settings: {" + settings + "}\n" + clamps);
    const Plan plan = PlanOf(spec);
    CheckInvariants(spec, plan);
    EXPECT_EQ(plan.arms.size(), 4u);
    EXPECT_EQ(plan.stages.size(), 1u);
    std::vector<std::string> above;
    for (const PlannedEvaluation& planned : plan.evaluations) {
      if (planned.length_tokens <= 256) {
        EXPECT_EQ(ToJson(planned.eval_config).find("clamp"), std::string::npos);
      } else {
        above.push_back(ToJson(planned.eval_config));
      }
    }
    EXPECT_EQ(plan.evaluations.size(), 2 + above.size());
    return above;
  };
  const std::string scale = R"("eval.attention.scale_clamp":true)", sharpen = R"("eval.attention.sharpen_clamp":true)";
  EXPECT_THAT(evaluations("attention.variant: lssar"),
              UnorderedElementsAre("{}", "{" + scale + "}", "{" + sharpen + "}", "{" + scale + "," + sharpen + "}"));
  EXPECT_THAT(evaluations("attention.variant: lssa"), UnorderedElementsAre("{}", "{" + scale + "}"));
  EXPECT_THAT(evaluations("attention.variant: ssmax"), UnorderedElementsAre("{}", "{" + scale + "}"));
  EXPECT_THAT(evaluations("attention.variant: softmax_sharpened"), UnorderedElementsAre("{}", "{" + sharpen + "}"));
  EXPECT_THAT(evaluations("attention.variant: lssar, attention.offset: 0"),
              UnorderedElementsAre("{}", "{" + scale + "}"));
  EXPECT_THAT(evaluations("attention.variant: softmax"), UnorderedElementsAre("{}"));
  // What evaluation overrides decides.
  EXPECT_THAT(evaluations("attention.variant: lssar, eval.attention.p: none"), SizeIs(2));
  EXPECT_THAT(evaluations("attention.variant: lssar, eval.attention.scale: log_d"), SizeIs(2));
  EXPECT_THAT(evaluations("eval.attention.scale: constant_log_n, eval.attention.scale_constant: 2"), SizeIs(2));
  // No row attends more keys than the window.
  EXPECT_THAT(evaluations("attention.variant: lssar, eval.attention.window: 256"), SizeIs(1));
  EXPECT_THAT(evaluations("attention.variant: lssar, eval.attention.window: 257"), SizeIs(4));
}

TEST(Plan, OrderInTheFileChangesNoKey) {
  const Plan a = PlanOf(R"(
settings: {train.steps: 100, train.batch: 4}
axes:
  attention.variant: [softmax, lssar, ssmax]
  train.learning_rate: [1e-3, 1e-4]
  eval.ntk: [off, dynamic]
seeds: [1, 2]
baseline: {attention.variant: softmax, train.learning_rate: 1e-3}
)");
  const Plan b = PlanOf(R"(
seeds: [2, 1]
baseline: {train.learning_rate: 0.001, attention.variant: softmax}
axes:
  eval.ntk: [on, off]
  train.learning_rate: [0.0001, 0.001]
  attention.variant: [ssmax, softmax, lssar]
settings: {train.batch: 4, train.steps: 1e2, model.preset: tiny}
)");
  EXPECT_EQ(Keys(a), Keys(b));
  EXPECT_EQ(a.sha256, b.sha256);
  EXPECT_EQ(a.arms[a.baseline_arm].json, b.arms[b.baseline_arm].json);
}

TEST(Plan, AddingAnArmOrASeedChangesNoOtherKey) {
  const auto keys = Keys(PlanOf(kArms));
  std::string more = kArms;
  more.replace(
      more.find("  - {attention.variant: softmax}"), 0,
      "  - {attention.variant: relu}\n  - {attention.variant: softmax, switch: [{at_step: 50, attention.p: 3}]}\n");
  more.replace(more.find("seeds: 2"), 8, "seeds: 4");
  EXPECT_THAT(keys, IsSubsetOf(Keys(PlanOf(more))));
}

TEST(Plan, SweepsShareKeysWhenDataDeviceExecutorAndSeedAgree) {
  const v1::SweepSpec spec = Spec("name: one\nseeds: 1");
  v1::SweepSpec other = Spec("name: two\ndescription: else\nseeds: 1\npriority: 5\nkeep: all");
  EXPECT_EQ(Keys(PlanOf(spec)), Keys(PlanOf(other)));
  std::set<std::string> firsts = {PlanOf(spec).stages[0].key};
  auto differs = [&](auto change) {
    v1::SweepSpec changed = spec;
    change(&changed);
    EXPECT_TRUE(firsts.insert(PlanOf(changed).stages[0].key).second);
  };
  differs([](v1::SweepSpec* s) { s->mutable_data()->set_sha256(std::string(64, 'b')); });
  differs([](v1::SweepSpec* s) { s->mutable_data()->set_format(v1::DataRef::TOKEN_SHARDS); });
  differs([](v1::SweepSpec* s) { s->mutable_requirements()->set_device("cpu"); });
  differs([](v1::SweepSpec* s) { s->mutable_requirements()->set_device("cuda"); });
  differs([](v1::SweepSpec* s) { s->set_executor(v1::EXECUTOR_NOOP); });
  differs([](v1::SweepSpec* s) { s->set_seeds(0, 7); });
}

TEST(Plan, ExcludeMatchesByValueAndKeepsTheRest) {
  const std::string yaml = R"(
axes:
  attention.variant: [softmax, lssar]
  attention.p: [none, 3, 15]
  eval.ntk: [off, dynamic]
seeds: 1
exclude:
  - {attention.variant: softmax, attention.p: [3, 15]}
  - {attention.p: none, eval.ntk: dynamic}
)";
  const v1::SweepSpec spec = Spec(yaml);
  const Plan plan = PlanOf(spec);
  CheckInvariants(spec, plan);
  EXPECT_THAT(Labels(plan),
              ElementsAre("variant=softmax p=none", "variant=lssar p=none", "variant=lssar p=3", "variant=lssar p=15"));
  EXPECT_EQ(plan.points[0].evaluations.size(), 4u);
  EXPECT_EQ(plan.points[2].evaluations.size(), 7u);
  EXPECT_THAT(PlanRefusal(yaml + "  - {attention.p: 4}\n"), HasSubstr("p=4 matches no arm"));
  EXPECT_THAT(PlanRefusal("axes: {attention.p: [3, 4]}\nexclude: [{attention.p: [3, 4]}]"),
              HasSubstr("no arm is left"));
}

TEST(Plan, BaselineIsFoundByValue) {
  EXPECT_EQ(PlanOf("axes: {attention.variant: [lssar, softmax]}").baseline_arm, 0);
  EXPECT_EQ(PlanOf("axes: {attention.variant: [lssar, softmax]}\nbaseline: {attention.p: none}").baseline_arm, 1);
  EXPECT_EQ(PlanOf("arms: [{attention.variant: [softmax_sharpened, softmax]}, {attention.variant: softmax, switch: "
                   "[{at_step: 9, attention.p: 3}]}]\n"
                   "baseline: {attention.variant: softmax}")
                .baseline_arm,
            1);
  EXPECT_THAT(PlanRefusal("axes: {attention.variant: [lssar, lssa]}\nbaseline: {attention.variant: softmax}"),
              HasSubstr("no arm is the baseline"));
  EXPECT_THAT(
      PlanRefusal("axes: {attention.variant: [lssar, lssa], train.batch: [2, 4]}\nbaseline: {attention.variant: lssa}"),
      HasSubstr("name more of its values"));
}

TEST(Plan, KindsOfPositionAreAnAxis) {
  const Plan plan = PlanOf(
      "axes: {model.position: [rope, none, alibi], eval.ntk: [off, dynamic]}\nseeds: 1\nevaluate: {lengths: [1x, 8x, "
      "16x]}");
  EXPECT_THAT(Labels(plan), ElementsAre("position=rope", "position=none", "position=alibi"));
  EXPECT_EQ(plan.stages.size(), 3u);
  // NTK acts on RoPE alone, above 1x.
  EXPECT_EQ(plan.points[0].evaluations.size(), 5u);
  EXPECT_EQ(plan.points[1].evaluations.size(), 3u);
  EXPECT_EQ(plan.points[2].evaluations.size(), 3u);
}

TEST(Plan, EveryArmIsNamedByWhatTablesPrint) {
  for (const char* yaml : {kArms, kSwitches,
                           "arms: [{}, {attention.scale: one}, {attention.variant: softmax, train.batch: 2}]\n"
                           "axes: {model.rope_base: [10000, 5000], eval.attention.scale: [log_d, one]}"}) {
    const v1::SweepSpec spec = Spec(yaml);
    CheckInvariants(spec, PlanOf(spec));
  }
}

TEST(Plan, RefusalsNameTheArm) {
  EXPECT_THAT(PlanRefusal("axes: {attention.variant: [softmax, relu], attention.p: [3]}"),
              HasSubstr("arm variant=relu p=3: attention.p needs"));
  EXPECT_THAT(PlanRefusal("axes: {model.heads: [4, 3]}"), HasSubstr("arm heads=3: model.width 128"));
  EXPECT_THAT(PlanRefusal("axes: {eval.attention.scale: [log_d, ssmax]}"), HasSubstr("arm scale=ssmax: "));
  EXPECT_THAT(PlanRefusal("arms: [{attention.variant: lssar}, {attention.variant: lssar, attention.p: 15}]"),
              HasSubstr("are the same configuration"));
  EXPECT_THAT(PlanRefusal("arms: [{switch: [{at_step: 600, attention.p: 3}]}]"),
              HasSubstr("not before the last of 600 steps"));
  EXPECT_THAT(PlanRefusal("arms: [{switch: [{at_step: 6, model.width: 64}]}]"), HasSubstr("cannot be switched"));
  EXPECT_THAT(PlanRefusal("arms: [{switch: [{at_step: 6, eval.ntk: on}]}]"), HasSubstr("cannot be switched"));
  EXPECT_THAT(PlanRefusal("settings: {model.position: learned}"),
              HasSubstr("learned positions end at train.length 256"));
  EXPECT_THAT(
      PlanRefusal("axes: {model.position: [rope, learned]}\nevaluate: {lengths: [1x, 257]}"),
      HasSubstr("arm position=learned: learned positions end at train.length 256: cannot evaluate at a length of 257"));
  EXPECT_THAT(PlanRefusal("axes: {train.length: [128, 64]}\nevaluate: {lengths: [1x, 2048]}"),
              HasSubstr("arm length=64: cannot evaluate at a length of 2048 tokens: expected 1 to 1024"));
  EXPECT_THAT(PlanRefusal("settings: {train.precision: bf16}\nrequires: {device: cpu}"),
              HasSubstr("requires.device is cpu. Write requires: {device: cuda}"));
  EXPECT_THAT(
      PlanRefusal("axes: {train.precision: [fp32, bf16]}"),
      HasSubstr("arm precision=bf16: train.precision bf16 runs on CUDA devices only, and without requires.device"));
  PlanOf("settings: {train.precision: bf16}\nrequires: {device: cuda}");
  v1::SweepSpec spec = Spec("seeds: 1");
  spec.mutable_data()->clear_sha256();
  EXPECT_EQ(MakePlan(spec).status().code(), absl::StatusCode::kInvalidArgument);
  auto refuses = [](auto change) {
    v1::SweepSpec changed = Spec("seeds: 1");
    change(&changed);
    EXPECT_EQ(MakePlan(changed).status().code(), absl::StatusCode::kInvalidArgument);
  };
  // What no file can say, but a client can.
  refuses([](v1::SweepSpec* s) { s->mutable_evaluate()->set_splits(0, "\",\"x\":\""); });
  refuses([](v1::SweepSpec* s) { s->mutable_requirements()->set_device("\""); });
  refuses([](v1::SweepSpec* s) { s->mutable_data()->set_sha256("A"); });
  refuses([](v1::SweepSpec* s) { s->mutable_evaluate()->mutable_lengths(0)->set_multiple(std::nan("")); });
  refuses([](v1::SweepSpec* s) { s->mutable_evaluate()->mutable_lengths(0)->set_tokens(-5); });
  refuses([](v1::SweepSpec* s) { s->mutable_evaluate()->mutable_lengths(0)->clear_kind(); });
  refuses([](v1::SweepSpec* s) { s->add_axes()->set_axis("attention.p"); });
  refuses([](v1::SweepSpec* s) { s->mutable_settings()->add_settings()->set_axis("attention.p"); });
  refuses([](v1::SweepSpec* s) { s->mutable_baseline()->add_settings()->set_axis("nonsense"); });
  refuses([](v1::SweepSpec* s) { s->add_exclude(); });
  refuses([](v1::SweepSpec* s) { s->add_arms()->add_switches()->set_at_step(1); });
  refuses([](v1::SweepSpec* s) { s->add_seeds(0); });
  refuses([](v1::SweepSpec* s) { s->set_seeds(0, -1); });
  spec = Spec("seeds: 1");
  spec.clear_seeds();
  EXPECT_FALSE(MakePlan(spec).ok());
  EXPECT_FALSE(MakePlan(v1::SweepSpec()).ok());
}

TEST(Plan, NoopSweepsHaveStagesOnlyUnlessAsked) {
  auto spec = ParseSweepFile("executor: noop\naxes: {noop.seconds: [0, 1]}\nseeds: 5", "n.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Plan plan = PlanOf(*spec);
  CheckInvariants(*spec, plan);
  EXPECT_EQ(plan.stages.size(), 10u);
  EXPECT_TRUE(plan.evaluations.empty());
  EXPECT_EQ(MakeStageTask(*spec, plan.stages[0]).executor(), v1::EXECUTOR_NOOP);
}

TEST(Plan, TasksCarryWhatTheWorkerNeeds) {
  const v1::SweepSpec spec = Spec(kSwitches);
  const Plan plan = PlanOf(spec);
  const v1::StageTask stage = MakeStageTask(spec, plan.stages[1]);
  EXPECT_EQ(stage.stage_key(), plan.stages[1].key);
  EXPECT_EQ(stage.from_step(), 40);
  EXPECT_EQ(stage.to_step(), 60);
  EXPECT_TRUE(stage.keep_optimizer());
  EXPECT_FALSE(MakeStageTask(spec, plan.stages[2]).keep_optimizer());
  EXPECT_EQ(stage.data().files(0).path(), "a.txt");
  const PlannedEvaluation& planned = plan.evaluations[1];
  const v1::EvaluationTask evaluation = MakeEvaluationTask(spec, plan, planned);
  EXPECT_EQ(evaluation.stage_key(), plan.stages[planned.stage].key);
  EXPECT_EQ(ToJson(evaluation.config()), ToJson(plan.stages[planned.stage].config));
  EXPECT_EQ(evaluation.length_tokens(), 512);
  EXPECT_EQ(evaluation.split(), "selection");
}

TEST(Plan, CostsAreCounted) {
  const v1::SweepSpec spec = Spec(
      "settings: {train.steps: 10, eval.target_spans: 2, eval.loss_tokens: 1000}\nseeds: 2\nevaluate: {lengths: [1x, "
      "2x]}");
  const v1::PlanSummary summary = Summarize(spec, PlanOf(spec));
  EXPECT_EQ(summary.train_tokens(), 2 * 10 * 8 * 256);
  EXPECT_EQ(summary.evaluation_tokens(), 2 * (2 * 256 + 3 * 256 + 2 * 512 + 1 * 512));
  const int64_t weights = 4 * (256 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128);
  EXPECT_EQ(summary.peak_disk_bytes(), 2 * weights + 3 * weights);
  EXPECT_EQ(summary.steps(), 20);
  EXPECT_EQ(summary.arms(0).evaluations(), 4);
}

TEST(Plan, RandomSweepsKeepTheInvariants) {
  std::mt19937 random(7);
  auto one_of = [&](std::vector<std::string> list) { return list[random() % list.size()]; };
  for (int i = 0; i < 200 / kOfRounds; ++i) {
    std::set<int> steps;
    std::string yaml = "settings: {train.steps: 50}\nseeds: " + std::to_string(1 + random() % 3) +
                       "\naxes:\n  eval.ntk: " + one_of({"[off]", "[off, on]", "[on]"}) +
                       "\n  train.batch: " + one_of({"[8]", "[8, 16]", "{from: 1, to: 3, step: 1}"}) +
                       "\n  eval.rope_theta_scale: " + one_of({"[1]", "[1, 50]"}) + "\narms:\n";
    std::set<std::string> lines;
    for (int a = 0; a < 6; ++a) {
      std::string line = "  - {attention.variant: " + one_of({"softmax", "lssa", "cosine_softmax"});
      if (random() % 2) {
        const int first = 1 + static_cast<int>(random() % 4) * 10;
        line += ", switch: [{at_step: " + std::to_string(first) + ", attention.variant: " + one_of({"ssmax", "lssar"}) +
                "}";
        if (random() % 2)
          line +=
              ", {at_step: " + std::to_string(first + 5) + ", train.learning_rate: " + one_of({"1e-5", "2e-5"}) + "}";
        line += "]";
      }
      lines.insert(line + "}\n");
    }
    for (const std::string& line : lines) yaml += line;
    const v1::SweepSpec spec = Spec(yaml);
    const Plan plan = PlanOf(spec);
    CheckInvariants(spec, plan);
    ASSERT_EQ(plan.points.size(),
              lines.size() * spec.axes(1).values_size() * spec.axes(2).values_size() * spec.seeds_size());
    // The same file with everything turned round.
    v1::SweepSpec turned = spec;
    std::reverse(turned.mutable_axes()->pointer_begin(), turned.mutable_axes()->pointer_end());
    std::reverse(turned.mutable_arms()->pointer_begin(), turned.mutable_arms()->pointer_end());
    std::reverse(turned.mutable_seeds()->begin(), turned.mutable_seeds()->end());
    const Plan other = PlanOf(turned);
    ASSERT_EQ(Keys(plan), Keys(other)) << yaml;
  }
}

TEST(Plan, MutatedFilesNeverCrashThePlanner) {
  std::mt19937 random(11);
  const std::string seed = "data: {path: a.txt, sha256: " + std::string(64, 'a') + "}\n" + kSwitches +
                           "axes: {eval.ntk: [off, on], attention.p: [none, 3], eval.attention.window: [0, "
                           "100]}\nexclude: [{attention.p: 3, eval.ntk: on}]\n";
  PlanOf(*ParseSweepFile(seed, "seed.yaml"));
  int planned = 0;
  for (int i = 0; i < 5000 / kOfRounds; ++i) {
    std::string text = seed;
    for (int e = 0; e < 4; ++e) {
      const size_t at = text.find_first_of("0123456789", 100 + random() % (text.size() - 120));
      if (at == std::string::npos) continue;
      if (random() % 3) {
        text[at] = "0123456789"[random() % 10];
      } else {
        text.insert(at, std::to_string(random() % 1000));
      }
    }
    const auto spec = ParseSweepFile(text, "mutant.yaml");
    if (!spec.ok() || spec->seeds_size() > 100) continue;
    const auto plan = MakePlan(*spec);
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++planned;
    CheckInvariants(*spec, *plan);
  }
  EXPECT_GT(planned, 50 / kOfRounds);
}

TEST(Plan, AHundredThousandPoints) {
  const v1::SweepSpec spec = Spec(
      "axes:\n  attention.p: {from: 1, to: 100, step: 1}\n  train.learning_rate: {from: 1e-5, to: 1e-3, step: 1e-5}\n  "
      "eval.ntk: [off, on]\nseeds: 10");
  const Plan plan = PlanOf(spec);
  EXPECT_EQ(plan.points.size(), 100000u);
  EXPECT_EQ(plan.stages.size(), 100000u);
  EXPECT_EQ(plan.evaluations.size(), 700000u);
  EXPECT_EQ(Summarize(spec, plan).points(), 100000);
}

TEST(Plan, OverTheLimitIsRefusedBeforeWork) {
  v1::SweepSpec spec =
      Spec("axes: {attention.offset: {from: 0, to: 1, step: 0.00001}}\nseeds: 1\nevaluate: {lengths: []}");
  v1::ArmSpec* arm = spec.add_arms();
  for (int i = 1; i <= 100; ++i) {
    arm->add_switches()->set_at_step(i);
    *arm->mutable_switches(i - 1)->mutable_settings() =
        Spec("settings: {train.clip: " + std::to_string(i) + "}").settings();
  }
  EXPECT_THAT(std::string(MakePlan(spec).status().message()), HasSubstr("more than 3000000 stages"));
  v1::SweepSpec many = spec;
  many.clear_axes();
  EXPECT_TRUE(MakePlan(many).ok()) << MakePlan(many).status();
  *many.mutable_arms(0)->add_switches() = arm->switches(99);
  EXPECT_THAT(std::string(MakePlan(many).status().message()), HasSubstr("more than 100 switches"));
  spec.clear_arms();
  for (int i = 0; i < 2000; ++i) *spec.add_exclude() = Spec("settings: {train.clip: 3}").settings();
  EXPECT_THAT(std::string(MakePlan(spec).status().message()), HasSubstr("too many for so many arms"));
  EXPECT_THAT(PlanRefusal("axes: {attention.offset: {from: 0, to: 1, step: 0.00001}}\nseeds: 9"),
              HasSubstr("at most 3000000 are planned"));
}

TEST(Docs, TheWorkedExampleComesToWhatIsSaid) {
  const auto docs = ReadFile(ABLATE_DOCS_DIR "/sweep-files.md");
  ASSERT_TRUE(docs.ok());
  const size_t begin = docs->find("```yaml\n") + 8;
  auto spec = ParseSweepFile(docs->substr(begin, docs->find("```", begin) - begin), "example.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->mutable_data()->set_sha256(std::string(64, 'a'));
  const Plan plan = PlanOf(*spec);
  CheckInvariants(*spec, plan);
  EXPECT_THAT(*docs, HasSubstr(std::to_string(plan.arms.size()) + " arms are left"));
  EXPECT_THAT(*docs, HasSubstr(std::to_string(plan.points.size()) + " points. Trained are " +
                               std::to_string(plan.stages.size()) + " stages"));
  EXPECT_THAT(*docs, HasSubstr(std::to_string(plan.evaluations.size()) + " evaluations.\n"));
  for (const Axis& axis : Axes()) EXPECT_THAT(*docs, HasSubstr("| `" + std::string(axis.name) + "` |"));
  for (const std::string& preset : FindAxis("model.preset")->choices)
    EXPECT_THAT(*docs, HasSubstr("| `" + preset + "` |"));
}

TEST(CombinedDataSha256, IsTheOneFilesHashOrCoversAll) {
  v1::DataRef data;
  EXPECT_EQ(CombinedDataSha256(data), "");
  data.add_files()->set_sha256(std::string(64, 'b'));
  data.mutable_files(0)->set_bytes(5);
  EXPECT_EQ(CombinedDataSha256(data), std::string(64, 'b'));
  data.add_files();
  EXPECT_EQ(CombinedDataSha256(data), "");
  data.mutable_files(1)->set_sha256(std::string(64, 'c'));
  data.mutable_files(1)->set_bytes(6);
  EXPECT_EQ(CombinedDataSha256(data), Sha256Hex(std::string(64, 'b') + " 5\n" + std::string(64, 'c') + " 6\n"));
}

}  // namespace
}  // namespace ablate
