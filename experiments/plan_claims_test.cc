#include "experiments/plan_claims.h"

#include <algorithm>
#include <map>
#include <set>

#include "experiments/axes.h"
#include "experiments/factorial_design.h"
#include "experiments/sweep_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace ablate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr char kData[] =
    "data: {path: a.txt, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n";

struct Read {
  v1::SweepSpec spec;
  SweepPlaces places;
};
Read ReadFile(const std::string& yaml) {
  Read read;
  auto spec = ParseSweepFile(kData + yaml, "f.yaml", &read.places);
  EXPECT_TRUE(spec.ok()) << spec.status() << "\n" << yaml;
  if (spec.ok()) read.spec = *spec;
  return read;
}
v1::SweepSpec Spec(const std::string& yaml) { return ReadFile(yaml).spec; }

Plan PlanOf(const v1::SweepSpec& spec, const TuningResults& tuned = {}) {
  auto plan = MakePlan(spec, {}, tuned);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

// Of reading or of planning: whichever refuses.
std::string Refusal(const std::string& yaml) {
  SweepPlaces places;
  const auto spec = ParseSweepFile(kData + yaml, "f.yaml", &places);
  const absl::Status status = spec.ok() ? MakePlan(*spec, places).status() : spec.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
  return std::string(status.message());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::vector<std::string> Labels(const Plan& plan, const std::vector<int>& arms) {
  std::vector<std::string> labels;
  for (const int arm : arms) labels.push_back(plan.arms[arm].label);
  return labels;
}

std::set<std::string> Keys(const Plan& plan) {
  std::set<std::string> keys;
  for (const PlannedStage& stage : plan.stages) EXPECT_TRUE(keys.insert(stage.key).second) << "a stage twice";
  for (const PlannedEvaluation& evaluation : plan.evaluations) EXPECT_TRUE(keys.insert(evaluation.key).second);
  return keys;
}

int64_t Count(const std::vector<bool>& bits) { return std::count(bits.begin(), bits.end(), true); }

std::map<v1::Phase, int> PointsByPhase(const Plan& plan) {
  std::map<v1::Phase, int> counts;
  for (const Point& point : plan.points) ++counts[point.phase];
  return counts;
}

// What must hold of any plan with phases.
void CheckInvariants(const Plan& plan) {
  std::set<std::tuple<int, int64_t, int>> points;
  std::set<int> used_stages, used_evaluations;
  for (const Point& point : plan.points) {
    ASSERT_TRUE(points.emplace(point.arm, point.seed, point.phase).second) << "a point twice";
    ASSERT_EQ(plan.arms[point.arm].phase == v1::TUNING, point.phase == v1::TUNING);
    int64_t to = -1;
    for (int i = point.stage; i >= 0; i = plan.stages[i].parent) {
      const PlannedStage& stage = plan.stages[i];
      used_stages.insert(i);
      ASSERT_EQ(stage.seed, point.seed);
      ASSERT_LT(stage.parent, i) << "a parent after its child";
      if (to >= 0) {
        ASSERT_EQ(stage.to_step, to);
        ASSERT_TRUE(stage.has_children);
      }
      to = stage.from_step;
    }
    ASSERT_EQ(to, 0);
    for (const int e : point.evaluations) {
      used_evaluations.insert(e);
      ASSERT_EQ(plan.evaluations[e].stage, point.stage);
    }
  }
  ASSERT_EQ(used_stages.size(), plan.stages.size()) << "a stage that no point needs";
  ASSERT_EQ(used_evaluations.size(), plan.evaluations.size());
  ASSERT_EQ(Keys(plan).size(), plan.stages.size() + plan.evaluations.size());
  std::set<std::string> arms;
  for (const Arm& arm : plan.arms) ASSERT_TRUE(arms.insert(arm.json).second) << arm.json;
}

constexpr char kSealed[] = R"(name: sealed
settings: {train.length: 128, train.steps: 100}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3, 7, 15]}
baseline: {attention.variant: softmax}
seeds: 5
select:
confirm:
  seeds: 8
  fixed: [{attention.variant: lssar, attention.p: 15}]
claims:
  - {name: selected-lower, kind: differs, arm: selected, length: 8x, direction: lower, main: yes}
  - {name: p15-lower, kind: differs, arm: {attention.p: 15}, length: 16x, direction: lower}
  - {name: p15-ntk, kind: differs, arm: {attention.p: 15}, length: 8x, ntk: on}
  - name: p15-rises-less
    kind: rises_less
    arm: {attention.p: 15}
    length: 8x
    margin: 0.02
    why: a fifth of softmax's own rise in a pilot
)";

TEST(SealedPlan, PhasesAndArms) {
  const v1::SweepSpec spec = Spec(kSealed);
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  EXPECT_TRUE(plan.complete);
  EXPECT_THAT(plan.seeds, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(plan.confirming_seeds, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
  EXPECT_THAT(Labels(plan, plan.candidates),
              ElementsAre("variant=lssar p=1", "variant=lssar p=3", "variant=lssar p=7"));
  EXPECT_THAT(Labels(plan, plan.fixed_arms), ElementsAre("variant=lssar p=15"));
  ASSERT_THAT(plan.claims, SizeIs(4));
  EXPECT_EQ(plan.claims[0].arm, -1);
  EXPECT_EQ(plan.claims[1].arm, 4);
  EXPECT_EQ(plan.claims[1].against, 0);
  EXPECT_EQ(plan.arms[0].train_length, 128);
  EXPECT_THAT(PointsByPhase(plan), ElementsAre(std::pair(v1::SELECTING, 25), std::pair(v1::CONFIRMING, 40)));
  // Selecting sees 1x, 2x and 4x of its split; confirming 1x, 8x with and without NTK, and 16x of the other.
  for (const Point& point : plan.points) {
    std::set<std::tuple<int64_t, bool, std::string>> cells;
    for (const int e : point.evaluations) {
      const PlannedEvaluation& evaluation = plan.evaluations[e];
      cells.emplace(evaluation.length_tokens, evaluation.ntk, evaluation.split);
    }
    if (point.phase == v1::SELECTING) {
      EXPECT_THAT(cells, ElementsAre(std::tuple(128, false, "selection"), std::tuple(256, false, "selection"),
                                     std::tuple(512, false, "selection")));
    } else {
      EXPECT_THAT(cells, ElementsAre(std::tuple(128, false, "confirmation"), std::tuple(1024, false, "confirmation"),
                                     std::tuple(1024, true, "confirmation"), std::tuple(2048, false, "confirmation")));
    }
  }
  // One training an (arm, seed), whatever NTK and the phases ask.
  EXPECT_EQ(plan.stages.size(), 25u + 40u);
  EXPECT_EQ(plan.evaluations.size(), 25u * 3 + 40u * 4);
}

TEST(SealedPlan, ConfirmingJobsAreSealedAndOnlyWhatIsLockedIsReleased) {
  const v1::SweepSpec spec = Spec(kSealed);
  const Plan plan = PlanOf(spec);
  EXPECT_TRUE(NeedsLock(spec));
  const JobSet sealed = SealedJobs(plan);
  EXPECT_EQ(Count(sealed.stages), 40);
  EXPECT_EQ(Count(sealed.evaluations), 160);
  for (size_t i = 0; i < plan.stages.size(); ++i) EXPECT_EQ(sealed.stages[i], plan.stages[i].seed >= 100);
  for (size_t i = 0; i < plan.evaluations.size(); ++i) {
    EXPECT_EQ(sealed.evaluations[i], plan.evaluations[i].split == "confirmation");
  }
  const std::vector<int> locked = {0, 3, 4};  // baseline, p = 7, p = 15
  const JobSet released = ReleasedJobs(plan, locked, 5);
  EXPECT_EQ(Count(released.stages), 15);
  EXPECT_EQ(Count(released.evaluations), 60);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    EXPECT_TRUE(!released.stages[i] || plan.stages[i].seed < 105);
  }
  EXPECT_EQ(Count(ReleasedJobs(plan, locked, 0).stages), 0);
  EXPECT_EQ(Count(ReleasedJobs(plan, locked, 99).stages), 24);
}

TEST(SealedPlan, ReusedSeedsTrainOnce) {
  const std::string yaml =
      Replaced(Replaced(kSealed, "seeds: 5", "seeds: 8"), "seeds: 8\n  fixed", "reuse_seeds: true\n  fixed");
  const Plan plan = PlanOf(Spec(yaml));
  CheckInvariants(plan);
  EXPECT_THAT(plan.confirming_seeds, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(plan.stages.size(), 40u);
  EXPECT_THAT(PointsByPhase(plan), ElementsAre(std::pair(v1::SELECTING, 40), std::pair(v1::CONFIRMING, 40)));
  const JobSet sealed = SealedJobs(plan);
  EXPECT_EQ(Count(sealed.stages), 0);
  EXPECT_EQ(Count(sealed.evaluations), 160);
}

// The decisive test: nothing is selected, so nothing waits for a lock, and no other seeds are needed.
constexpr char kFixed[] = R"(
settings: {train.length: 128}
arms: [{attention.variant: softmax}, {attention.variant: lssar, attention.p: 15}]
confirm: {}
claims:
  - {name: lower, kind: differs, arm: {attention.p: 15}, length: 8x, direction: lower, main: yes}
)";

TEST(SealedPlan, ArmsFixedBeforehandNeedNoSelection) {
  const v1::SweepSpec spec = Spec(kFixed);
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  EXPECT_FALSE(NeedsLock(spec));
  EXPECT_THAT(plan.seeds, IsEmpty());
  EXPECT_THAT(PointsByPhase(plan), ElementsAre(std::pair(v1::CONFIRMING, 16)));
  EXPECT_EQ(Count(SealedJobs(plan).stages), 16);
  EXPECT_EQ(Count(ReleasedJobs(plan, ConfirmingArms(plan), 8).evaluations), 32);
  // With seeds of its own it has exploratory numbers beside, on the other documents, at any length.
  const Plan beside = PlanOf(Spec(std::string(kFixed) + "seeds: 3\n"));
  CheckInvariants(beside);
  EXPECT_THAT(PointsByPhase(beside), ElementsAre(std::pair(v1::PLAIN, 6), std::pair(v1::CONFIRMING, 16)));
}

constexpr char kTuned[] = R"(name: tuned
settings: {train.length: 128, train.steps: 100, eval.target_spans: 8}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [3, 15]}
  - {attention.variant: softmax, switch: [{at_step: 50, attention.variant: ssmax}]}
  - {attention.variant: softmax, eval.attention.p: 3}
seeds: 2
tune: {learning_rates: {from: 5e-4, to: 4e-3, factor: 2}, seeds: 2}
evaluate: {lengths: [1x, 4x]}
)";

TuningResults AllAt(const Plan& plan, double rate) {
  TuningResults tuned;
  for (const Arm& arm : plan.arms) {
    if (arm.phase != v1::TUNING) tuned.rates[arm.json] = rate;
  }
  return tuned;
}

TEST(TunedPlan, TuningComesFirstAlone) {
  const v1::SweepSpec spec = Spec(kTuned);
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  EXPECT_FALSE(plan.complete);
  EXPECT_THAT(plan.tuning_seeds, ElementsAre(1000, 1001));
  ASSERT_EQ(plan.arms.size(), 5u + 5u * 4);
  EXPECT_EQ(plan.arms[5].tunes, 0);
  EXPECT_EQ(plan.arms[5].learning_rate, 5e-4);
  EXPECT_EQ(plan.arms[5].json, R"({"attention.variant":"softmax","train.learning_rate":0.0005})");
  EXPECT_EQ(plan.arms[24].tunes, 4);
  EXPECT_THAT(PointsByPhase(plan), ElementsAre(std::pair(v1::TUNING, 40)));
  for (const PlannedEvaluation& evaluation : plan.evaluations) {
    EXPECT_EQ(evaluation.length_tokens, 128);
    EXPECT_EQ(evaluation.split, "selection");
    EXPECT_EQ(ToJson(evaluation.eval_config), R"({"eval.target_spans":8})");
  }
  // Four histories, of which one goes on with another variant; what differs at evaluation alone is tuned as one.
  EXPECT_EQ(plan.stages.size(), 2u * 4 * (1 + 1 + 1 + 1 + 1));
  EXPECT_EQ(plan.evaluations.size(), 2u * 4 * 4);
  // The table's own baseline is none of the tries.
  EXPECT_EQ(*FindBaseline(spec.settings(), plan.arms, spec.arms(0).settings()), 0);
}

TEST(TunedPlan, RatesCompleteItAndChangeNoKey) {
  const v1::SweepSpec spec = Spec(kTuned);
  const Plan before = PlanOf(spec);
  TuningResults tuned = AllAt(before, 2e-3);
  tuned.rates[before.arms[1].json] = 8e-3;
  tuned.tries[before.arms[1].json] = {4e-3, 8e-3};  // what the history lists: tries of the grid too
  const Plan after = PlanOf(spec, tuned);
  CheckInvariants(after);
  EXPECT_TRUE(after.complete);
  EXPECT_EQ(after.sha256, before.sha256) << "the plan is named before the first lease";
  EXPECT_THAT(Keys(before), IsSubsetOf(Keys(after)));
  EXPECT_EQ(after.arms.size(), before.arms.size() + 1);
  EXPECT_EQ(after.arms.back().learning_rate, 8e-3);
  EXPECT_EQ(after.arms.back().tunes, 1);
  EXPECT_EQ(after.arms[1].learning_rate, 8e-3);
  EXPECT_EQ(after.arms[1].json, before.arms[1].json);
  EXPECT_THAT(PointsByPhase(after), ElementsAre(std::pair(v1::PLAIN, 10), std::pair(v1::TUNING, 42)));
  for (const Point& point : after.points) {
    if (point.phase == v1::TUNING) continue;
    EXPECT_EQ(ConfigView(after.stages[point.stage].config).Number("train.learning_rate"),
              after.arms[point.arm].learning_rate);
  }
  // One rate missing: still tuning, with the tries.
  tuned.rates.erase(before.arms[0].json);
  const Plan partly = PlanOf(spec, tuned);
  EXPECT_FALSE(partly.complete);
  EXPECT_THAT(PointsByPhase(partly), ElementsAre(std::pair(v1::TUNING, 42)));
  EXPECT_FALSE(MakePlan(spec, {}, {.rates = {}, .tries = {{before.arms[0].json, {11}}}}).ok()) << "no learning rate";
}

TEST(TunedPlan, ResultsComeFromWhatIsStored) {
  v1::TunedArm arm;
  arm.set_arm_json("{}");
  arm.add_tries()->set_learning_rate(1e-3);
  arm.add_tries()->set_learning_rate(2e-3);
  v1::TunedArm done = arm;
  done.set_arm_json("{\"a\":1}");
  done.set_learning_rate(2e-3);
  const TuningResults results = TuningResultsOf(std::vector<v1::TunedArm>{arm, done});
  EXPECT_EQ(results.rates, (std::map<std::string, double>{{"{\"a\":1}", 2e-3}}));
  EXPECT_THAT(results.tries.at("{}"), ElementsAre(1e-3, 2e-3));
}

TEST(PlanHash, CoversEveryDeclarationAndNoOrder) {
  const std::string base = std::string(kSealed) + "tune: {learning_rates: [1e-3, 2e-3], seeds: 2}\nalpha: 0.04\n";
  const std::string hash = PlanOf(Spec(base)).sha256;
  const std::pair<const char*, const char*> changes[] = {
      {"selected-lower", "selected-less"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 7}, length: 16x"},
      {"length: 8x, direction: lower", "length: 9x, direction: lower"},
      {"length: 8x, direction: lower", "length: 8x, direction: higher"},
      {"direction: lower, main: yes", "direction: lower"},
      {"direction: lower, main: yes", "direction: lower, main: yes, divergence: worst"},
      {"direction: lower, main: yes", "direction: lower, main: yes, smallest_effect: 0.1"},
      {"direction: lower, main: yes", "direction: lower, main: yes, metric: loss"},
      {"direction: lower, main: yes", "direction: lower, main: yes, against: {attention.p: 1}"},
      {"length: 16x, direction: lower}", "length: 16x, direction: lower, ntk: on}"},
      {"kind: rises_less", "kind: equivalent"},
      {"margin: 0.02", "margin: 0.03"},
      {"a fifth", "two fifths"},
      {"    length: 8x\n", "    length: 8x\n    short_length: 0.5x\n"},
      {"select:\n", "select: {lengths: [2x]}\n"},
      {"select:\n", "select: {metric: loss}\n"},
      {"select:\n", "select: {ntk: on}\n"},
      {"select:\n", "select: {among: {attention.p: [3]}}\n"},
      {"  seeds: 8\n", "  seeds: 9\n"},
      {"  seeds: 8\n", "  seeds: 8\n  looks: [8]\n"},
      {"  seeds: 8\n", "  seeds: 8\n  stein: {first: 8, half_width: 0.1}\n"},
      {"  seeds: 8\n", "  seeds: 8\n  stein: {first: 8, half_width: 0.2}\n"},
      {"fixed: [", "fixed: [{attention.p: 7}, "},
      {"\nseeds: 5", "\nseeds: 6"},
      {"1e-3, 2e-3", "1e-3, 4e-3"},
      {"2e-3], seeds: 2", "2e-3], seeds: 3"},
      {"2e-3], seeds: 2", "2e-3], seeds: 2, max_extensions: 1"},
      {"alpha: 0.04", "alpha: 0.05"},
      {"train.steps: 100", "train.steps: 101"},
      {"baseline: {attention.variant: softmax}", "baseline: {attention.p: 1}"},
  };
  std::set<std::string> hashes = {hash};
  for (const auto& [from, to] : changes) {
    std::string yaml = Replaced(base, from, to);
    if (std::string(to).find("among") != std::string::npos) yaml = Replaced(yaml, "[3]", "3");
    EXPECT_TRUE(hashes.insert(PlanOf(Spec(yaml)).sha256).second) << from << " -> " << to;
  }
  const Plan turned = PlanOf(Spec(R"(
alpha: 0.04
tune: {seeds: [1001, 1000], learning_rates: [0.002, 0.001]}
claims:
  - why: a fifth of softmax's own rise in a pilot
    margin: 2e-2
    length: 8x
    short_length: 1x
    arm: {attention.variant: lssar, attention.p: 15}
    kind: rises_less
    name: p15-rises-less
  - {length: 8x, ntk: true, name: p15-ntk, kind: differs, arm: {attention.p: 15}, direction: either}
  - {name: p15-lower, direction: lower, kind: differs, arm: {attention.p: 15}, length: 16x}
  - {main: true, name: selected-lower, kind: differs, arm: selected, length: 8x, direction: lower, metric: loss_targets,
     against: {attention.variant: softmax}}
confirm: {fixed: [{attention.p: 15}], seeds: [107, 106, 105, 104, 103, 102, 101, 100]}
select: {lengths: [4x, 2x], metric: loss_targets, split: selection, ntk: off}
seeds: [4, 3, 2, 1, 0]
arms:
  - {attention.p: [15, 7, 3, 1], attention.variant: lssar}
  - {attention.variant: softmax}
baseline: {attention.variant: softmax}
settings: {train.steps: 100, train.length: 128}
name: turned
)"));
  EXPECT_EQ(turned.sha256, hash);
}

TEST(Claims, RefusalsSayWhereAndWhy) {
  const std::string sealed = kSealed;
  const struct {
    const char *from, *to, *where, *part;
  } cases[] = {
      {"confirm:\n  seeds: 8\n  fixed: [{attention.variant: lssar, attention.p: 15}]\n", "",
       "f.yaml:11:", "claims need fresh seeds"},
      {"  seeds: 8", "  seeds: [4, 5, 6, 7, 8, 9, 10, 11]",
       "f.yaml:11:10: ", "seed 4 is among seeds: a checkpoint that helped"},
      {"  seeds: 8", "  seeds: [100, 100]", "f.yaml:11:16: ", "seed 100 is there twice"},
      {"  seeds: 8", "  seeds: 7", "f.yaml:11:10: ", "a main claim needs at least 8 seeds, found 7"},
      {"  seeds: 8", "  seeds: 8\n  reuse_seeds: true",
       "f.yaml:11:10: ", "with reuse_seeds the confirming seeds are those"},
      {"  seeds: 8", "  seeds: 8\n  reuse_seed: true", "f.yaml:12:3: ", "did you mean \"reuse_seeds\"?"},
      {"  seeds: 8", "  seeds: 10\n  looks: [5, 10]", "f.yaml:12:", "a look at 5 is a test"},
      {"  seeds: 8", "  seeds: 10\n  looks: [8, 9]", "f.yaml:12:", "the others would never be used"},
      {"  seeds: 8", "  seeds: 10\n  looks: [8, 11]", "f.yaml:12:", "a look at 11 seeds: confirm.seeds has 10"},
      {"  seeds: 8", "  seeds: 20\n  looks: [8, 9, 10, 15, 20]", "f.yaml:12:", "at most 4 looks, found 5"},
      {"  seeds: 8", "  seeds: 20\n  looks: [10, 8]", "f.yaml:12:", "ascending"},
      {"  seeds: 8", "  seeds: 9\n  looks: [8, 9]\n  stein: {first: 8, half_width: 1}",
       "f.yaml:13:", "exclude each other"},
      {"  seeds: 8", "  seeds: 9\n  stein: {first: 10, half_width: 1}",
       "f.yaml:12:18: ", "expected 8 to 9 seeds in the first stage"},
      {"  seeds: 8", "  seeds: 9\n  stein: {first: 8, half_width: 0}",
       "f.yaml:12:33: ", "a number above 0 for half_width"},
      {"  seeds: 8", "  seeds: 9\n  stein: {first: 8}", "f.yaml:12:10: ", "stein needs first"},
      {"  seeds: 8", "  seeds: 8\n  split: selection",
       "f.yaml:12:10: ", "documents that chose the arm cannot confirm it"},
      {"  seeds: 8", "  seeds: 8\n  split: selektion", "f.yaml:12:10: ", "did you mean \"selection\"?"},
      {"select:\n", "select: {split: confirmation}\n", "f.yaml:9:17: ", "both use the split confirmation"},
      {"select:\n", "select: {lengths: [2x, 8x]}\n",
       "f.yaml:14:", "claim selected-lower: 8x (1024 tokens) is among select.lengths"},
      {"select:\n", "select: {lengths: [2x, 1024]}\n", "f.yaml:14:", "is among select.lengths"},
      {"select:\n", "select: {lengths: []}\n", "f.yaml:9:", "a list of lengths"},
      {"select:\n", "select: {metric: los_targets}\n", "f.yaml:9:", "did you mean \"loss_targets\"?"},
      {"select:\n", "select: {metrik: loss}\n", "f.yaml:9:10: ", "did you mean \"metric\"?"},
      {"select:\n", "select: {among: {attention.variant: ssmax}}\n",
       "f.yaml:9:17: ", "no arm but the baseline has variant=ssmax"},
      {"select:\n", "", "f.yaml:13:", "arm: selected needs a rule that selects"},
      {"arm: selected,", "arm: chosen,", "f.yaml:14:", "expected one of selected for arm"},
      {"arm: selected,", "arm: {attention.p: 3},", "f.yaml:9:1: ", "no claim is about the selected arm"},
      {"arm: selected, length", "length", "f.yaml:14:5: ", "the claim has no arm"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 4}, length: 16x",
       "f.yaml:15:", "no arm is the arm of claim p15-lower p=4"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.variant: lssar}, length: 16x, ntk: 3",
       "f.yaml:15:", "true or false for ntk"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.scale: log_d_log_n}, length: 16x",
       "f.yaml:15:", "fits 4 arms"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.variant: softmax}, length: 16x",
       "f.yaml:15:", "compares variant=softmax with itself, the baseline"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 15}, against: {attention.variant: relu}, length: 16x",
       "f.yaml:15:", "no arm is the arm of claim p15-lower variant=relu"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 15}, against: {}, length: 16x",
       "f.yaml:15:", "leave it out for the baseline"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 15}, length: 17x", "f.yaml:15:", "17x is too long"},
      {"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 15}, length: 4000",
       "f.yaml:15:", "cannot evaluate at a length of 4000"},
      {"name: p15-lower", "name: selected-lower", "f.yaml:15:12: ", "two claims are named selected-lower"},
      {"name: p15-lower", "name: p15 lower", "f.yaml:15:12: ", "for the claim"},
      {"name: p15-lower, kind: differs", "name: p15-lower, kind: equivalent",
       "f.yaml:15:", "direction is of differs alone"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, kind: equivalent", "f.yaml:16:5: ", "equivalent needs a margin"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, margin: 0.1, kind: differs",
       "f.yaml:16:29: ", "margin 0.1 needs its reason"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, why: because, kind: differs", "f.yaml:16:26: ", "there is none"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, margin: -1, kind: differs",
       "f.yaml:16:29: ", "a number above 0 for margin"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, short_length: 2x, kind: differs",
       "f.yaml:16:", "short_length is of rises_less alone"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, metric: lost, kind: differs",
       "f.yaml:16:", "did you mean \"loss\"?"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, divergence: bad, kind: differs",
       "f.yaml:16:", "expected one of undecided, worst"},
      {"name: p15-ntk, kind: differs", "name: p15-ntk, knd: differs", "f.yaml:16:", "did you mean \"kind\"?"},
      {"    margin: 0.02\n    why: a fifth of softmax's own rise in a pilot\n", "",
       "f.yaml:17:5: ", "rises_less needs a margin"},
      {"    margin: 0.02", "    margin: 0.02\n    short_length: 8x",
       "f.yaml:22:19: ", "short_length (1024 tokens) is not below length (1024)"},
      {"    margin: 0.02", "    margin: 0.02\n    short_length: 2x",
       "f.yaml:22:19: ", "2x (256 tokens) is among select.lengths"},
      {"\nseeds: 5", "\nseeds: 5\nevaluate: {splits: [selection, confirmation]}",
       "f.yaml:9:20: ", "the split of the confirming documents"},
      {"\nseeds: 5", "\nseeds: 5\nevaluate: {lengths: [1x, 1024]}",
       "f.yaml:9:26: ", "evaluate.lengths has its length 1024, which stays unseen"},
      {"\nseeds: 5", "\nseeds: 5\nalpha: 0.7", "f.yaml:9:8: ", "at most 0.5"},
      {"\nseeds: 5", "\nseeds: 5\ntune: {}", "f.yaml:9:7: ", "tune has no learning_rates"},
      {"\nseeds: 5", "\nseeds: 5\ntune: {learning_rates: [1e-3]}",
       "f.yaml:9:24: ", "expected 2 to 20 learning rates, found 1"},
      {"\nseeds: 5", "\nseeds: 5\ntune: {learning_rates: [0, 1e-3]}", "f.yaml:9:24: ", "above 0"},
      {"\nseeds: 5", "\nseeds: 5\ntune: {learning_rates: [11, 1e-3]}", "f.yaml:9:25: ", "from 0 to 10"},
      {"\nseeds: 5", "\nseeds: 5\ntune: {learning_rates: [2e-3, 1e-3], seeds: [4, 9]}",
       "f.yaml:9:45: ", "seed 4 is among seeds: what tuned"},
      {"\nseeds: 5", "\nseeds: 5\ntune: {learning_rates: [2e-3, 1e-3], seeds: [101]}",
       "f.yaml:9:45: ", "seed 101 is among confirm.seeds"},
      {"steps: 100}", "steps: 100, train.learning_rate: 1e-3}\ntune: {learning_rates: [1e-3, 2e-3]}",
       "f.yaml:3:70: ", "tune chooses train.learning_rate"},
      {"p: [1, 3, 7, 15]}", "p: [1, 3, 7, 15], train.learning_rate: 1e-3}\ntune: {learning_rates: [1e-3, 2e-3]}",
       "f.yaml:6:5: ", "tune chooses train.learning_rate"},
      {"p: [1, 3, 7, 15]}",
       "p: [1, 3, 7, 15]}\naxes: {train.learning_rate: [1, 2]}\ntune: {learning_rates: [1e-3, 2e-3]}",
       "f.yaml:7:29: ", "tune chooses train.learning_rate"},
      {"{attention.variant: softmax}\n", "{attention.variant: softmax, train.length: 64}\n",
       "f.yaml:", "have another train.length"},
  };
  for (const auto& c : cases) {
    const std::string message = Refusal(Replaced(sealed, c.from, c.to));
    EXPECT_THAT(message, AllOf(StartsWith(c.where), HasSubstr(c.part))) << c.from << " -> " << c.to;
  }
  EXPECT_THAT(Refusal("select: {}"), HasSubstr("f.yaml:2:9: select picks the arm that claims are about"));
  EXPECT_THAT(Refusal("confirm: {}"), HasSubstr("f.yaml:2:10: there are no claims to confirm"));
  EXPECT_THAT(Refusal("alpha: 0.05"), HasSubstr("none are stated"));
  EXPECT_THAT(Refusal(Replaced(Replaced(kFixed, "confirm: {}", "confirm: {seeds: 4}"), ", main: yes", "")),
              HasSubstr("a claim needs at least 5 seeds, found 4"));
  EXPECT_THAT(Refusal(std::string(kFixed) + "seeds: 3\nevaluate: {splits: [confirmation]}"),
              HasSubstr("the split of the confirming documents"));
}

TEST(Claims, AtTheirOwnLengthsAreTaken) {
  // 1x cannot stay unseen: training curves show it; so claims may be about it beside `evaluate`.
  const std::string sealed = kSealed;
  PlanOf(Spec(Replaced(sealed, "length: 8x, direction: lower", "length: 1x, direction: lower")));
  EXPECT_THAT(Refusal(Replaced(Replaced(sealed, "length: 8x, direction: lower", "length: 1x, direction: lower"),
                               "select:\n", "select: {lengths: [1x]}\n")),
              HasSubstr("is among select.lengths"));
  PlanOf(Spec(Replaced(sealed, "select:\n", "select: {lengths: [1x, 2x]}\n")));  // the short length of rises_less
  // Lengths that only selecting and `evaluate` have are free.
  PlanOf(Spec(Replaced(sealed, "\nseeds: 5", "\nseeds: 5\nevaluate: {lengths: [1x, 3x]}")));
}

TEST(Overlaps, AreStatesOfConfirmingArmsAtConfirmingLengthsOrDocuments) {
  const v1::SweepSpec spec = Spec(kSealed);
  const Plan plan = PlanOf(spec);
  EXPECT_THAT(SealedStates(spec, plan), SizeIs(25 + 40));
  const auto overlaps = [&](const std::string& yaml) {
    const v1::SweepSpec other = Spec(
        "settings: {train.length: 128, train.steps: 100}\narms: [{attention.variant: lssar, attention.p: 3}]\n" + yaml);
    return Overlaps(spec, plan, other, PlanOf(other));
  };
  EXPECT_THAT(overlaps("seeds: [100]\nevaluate: {lengths: [1x, 2x, 4x]}"), IsEmpty());
  EXPECT_THAT(overlaps("seeds: [5, 200]\nevaluate: {lengths: [8x], splits: [selection, confirmation]}"), IsEmpty());
  auto found = overlaps("seeds: [100]\nevaluate: {lengths: [2x, 8x]}");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].text, "variant=lssar p=3, seed 100: 1024 tokens on selection is a length of the claims");
  EXPECT_TRUE(found[0].confirming_seed);
  EXPECT_EQ(found[0].arm, 2);
  EXPECT_EQ(found[0].evaluation, 1);
  found = overlaps("seeds: [2]\nevaluate: {lengths: [1x, 16x], splits: [confirmation]}");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].text, "variant=lssar p=3, seed 2: 128 tokens on confirmation is on the confirming documents");
  EXPECT_FALSE(found[0].confirming_seed);
  // Another evaluation of the same state is one all the same.
  EXPECT_THAT(overlaps("seeds: [100]\naxes: {eval.attention.window: [0, 128]}\nevaluate: {lengths: [8x]}"), SizeIs(2));
  // Another training is another state.
  EXPECT_THAT(overlaps("axes: {train.batch: [4]}\nseeds: [100]\nevaluate: {lengths: [8x]}"), IsEmpty());
  // A sweep does not overlap with what itself lets be seen.
  for (const Overlap& overlap : Overlaps(spec, plan, spec, plan)) {
    EXPECT_EQ(plan.evaluations[overlap.evaluation].split, "confirmation");
  }
  EXPECT_THAT(Overlaps(Spec("seeds: 1"), PlanOf(Spec("seeds: 1")), spec, plan), IsEmpty());
}

TEST(Overlaps, WhileTuningAnyLearningRateCounts) {
  const v1::SweepSpec spec = Spec(std::string(kSealed) + "tune: {learning_rates: [1e-3, 2e-3]}\n");
  const Plan plan = PlanOf(spec);
  ASSERT_FALSE(plan.complete);
  EXPECT_THAT(SealedStates(spec, plan), IsEmpty());
  const auto other = [](const std::string& more) {
    return Spec(
        "settings: {train.length: 128, train.steps: 100, train.learning_rate: 3e-3}\nseeds: [100]\n"
        "arms: [{attention.variant: lssar, attention.p: 3}]\nevaluate: {lengths: [8x]}\n" +
        more);
  };
  EXPECT_THAT(Overlaps(spec, plan, other(""), PlanOf(other(""))), SizeIs(1));
  const v1::SweepSpec device = other("requires: {device: cpu}\n");
  EXPECT_THAT(Overlaps(spec, plan, device, PlanOf(device)), IsEmpty());
  const Plan tuned = PlanOf(spec, AllAt(plan, 1e-3));
  EXPECT_THAT(Overlaps(spec, tuned, other(""), PlanOf(other(""))), IsEmpty());
}

absl::Status Extends(const std::string& before, const std::string& after) {
  const v1::SweepSpec old_spec = Spec(before), new_spec = Spec(after);
  return CheckExtends(old_spec, PlanOf(old_spec), new_spec, PlanOf(new_spec));
}

TEST(Extends, PlainSweepsTakeSeedsArmsLengthsAndSplits) {
  const std::string plain =
      "name: s\narms:\n  - {attention.variant: softmax}\n  - {attention.variant: lssa}\nseeds: 2\n"
      "evaluate: {lengths: [1x, 2x]}\n";
  const auto with = [&](const char* from, const char* to) { return Extends(plain, Replaced(plain, from, to)); };
  EXPECT_TRUE(Extends(plain, plain).ok());
  EXPECT_TRUE(with("seeds: 2", "seeds: 5").ok());
  EXPECT_TRUE(with("variant: lssa}", "variant: [ssmax, lssa]}").ok());
  EXPECT_TRUE(with("1x, 2x", "1x, 2x, 4x").ok());
  EXPECT_TRUE(with("1x, 2x]", "1x, 2x], splits: [selection, confirmation]").ok());
  EXPECT_TRUE(with("name: s", "name: s\ndescription: better said").ok());
  EXPECT_TRUE(with("name: s", "name: s\nsettings: {train.steps: 600}").ok()) << "the default, said aloud";
  const std::pair<std::pair<const char*, const char*>, const char*> refused[] = {
      {{"seeds: 2", "seeds: [1, 2]"}, "seed 0 is missing"},
      {{"variant: lssa}", "variant: ssmax}"}, "arm variant=lssa is missing"},
      {{"1x, 2x", "1x, 4x"}, "arm variant=softmax: its evaluation at 512 tokens on selection is missing or changed"},
      {{"name: s", "name: s\nsettings: {train.steps: 601}"}, "arm variant=lssa is trained in another way"},
      {{"name: s", "name: t"}, "name: s -> t"},
      {{"name: s", "name: s\nrequires: {device: cpu}"}, "requires: added: device: \"cpu\""},
      {{"name: s", "name: s\npriority: 4"}, "priority: 0 -> 4"},
      {{"name: s", "name: s\nbaseline: {attention.variant: lssa}"}, "baseline: variant=softmax -> variant=lssa"},
  };
  for (const auto& [change, part] : refused) {
    const absl::Status status = with(change.first, change.second);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << change.second;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(Extends, WhatWasDeclaredStays) {
  const std::string sealed = kSealed;
  const auto with = [&](const char* from, const char* to) { return Extends(sealed, Replaced(sealed, from, to)); };
  EXPECT_TRUE(Extends(sealed, sealed).ok());
  // An arm that the rule does not choose from, a length that no claim is about.
  const std::string among = Replaced(sealed, "select:\n", "select: {among: {attention.variant: lssar}}\n");
  EXPECT_TRUE(Extends(among, Replaced(among, "variant: softmax}\n", "variant: [softmax, lssa]}\n")).ok());
  EXPECT_TRUE(with("\nseeds: 5", "\nseeds: 5\nevaluate: {lengths: [1x, 2x, 3x, 4x]}").ok());
  const std::pair<std::pair<const char*, const char*>, const char*> refused[] = {
      {{"margin: 0.02", "margin: 0.03"}, "claim p15-rises-less: modified: margin: 0.02 -> 0.03"},
      {{"a fifth", "half"}, "margin_reason"},
      {{"  seeds: 8", "  seeds: 9"}, "confirm: added: seeds[8]: 108"},
      {{"\nseeds: 5", "\nseeds: 6"}, "selecting seed 5 is new"},
      {{"variant: softmax}\n", "variant: [softmax, lssa]}\n"}, "candidate variant=lssa is new"},
      {{"name: p15-ntk", "name: other"}, "claim p15-ntk is missing"},
      {{"arm: {attention.p: 15}, length: 16x", "arm: {attention.p: 7}, length: 16x"},
       "claim p15-lower: arm: variant=lssar p=15 -> variant=lssar p=7"},
      {{"select:\n", "select: {lengths: [2x]}\n"}, "select: deleted: lengths[1]"},
      {{"\nseeds: 5", "\nseeds: 5\nalpha: 0.01"}, "alpha: 0.05 -> 0.01"},
      {{"\nseeds: 5", "\nseeds: 5\ntune: {learning_rates: [1e-3, 2e-3]}"}, "tune is new"},
      {{"fixed: [", "fixed: [{attention.p: 7}, "}, "fixed arm variant=lssar p=7 is new"},
  };
  for (const auto& [change, part] : refused) {
    const absl::Status status = with(change.first, change.second);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << change.second << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  EXPECT_EQ(Extends("name: sealed\nseeds: 5", kSealed).code(), absl::StatusCode::kFailedPrecondition);
  const std::string tuned = kTuned;
  EXPECT_THAT(std::string(Extends(tuned, Replaced(tuned, "p: [3, 15]", "p: [3, 7, 15]")).message()),
              HasSubstr("arm variant=lssar p=7 is new, and was never tuned"));
}

TEST(Factorial, FullDesignsOfAxesAndNames) {
  const v1::SweepSpec axes = Spec(
      "settings: {attention.variant: cosine_softmax}\naxes: {attention.activation: [exp, softplus], attention.p: "
      "[none, 15]}\n"
      "seeds: 1\nfactorial: {factors: [attention.p, attention.activation]}");
  const Plan plan = PlanOf(axes);
  const auto design = FactorialDesignOf(axes, plan.arms);
  ASSERT_TRUE(design.ok()) << design.status();
  EXPECT_EQ(design->factors[0].name, "attention.p");
  EXPECT_THAT(design->factors[0].levels, ElementsAre("none", "15"));
  ASSERT_THAT(design->cells, SizeIs(4));
  EXPECT_THAT(design->cells[1].levels, ElementsAre(1, 0));
  // Not part of the plan: a plain sweep keeps its name.
  v1::SweepSpec without = axes;
  without.clear_factorial();
  EXPECT_EQ(PlanOf(without).sha256, plan.sha256);

  const std::string names = R"(
arms:
  - {attention.variant: softmax, factors: {norm: none, growth: without}}
  - {attention.variant: ssmax_fixed, factors: {norm: none, growth: with}}
  - {attention.variant: cosine_softmax, attention.scale: log_d, factors: {norm: l2, growth: without}}
  - {attention.variant: cosine_softmax, factors: {norm: l2, growth: with}}
  - {attention.variant: lssar}
seeds: 1
factorial: {factors: [norm, growth]}
)";
  const v1::SweepSpec named = Spec(names);
  EXPECT_THAT(FactorialDesignOf(named, PlanOf(named).arms)->cells, SizeIs(4));
  const std::vector<std::string> one = {"growth"};
  EXPECT_THAT(std::string(FactorialDesignOf(named, PlanOf(named).arms, one).status().message()),
              HasSubstr("are the same combination: growth=without"));
  EXPECT_THAT(
      Refusal(Replaced(names, "  - {attention.variant: ssmax_fixed, factors: {norm: none, growth: with}}\n", "")),
      AllOf(StartsWith("f.yaml:9:12: "), HasSubstr("no arm is norm=none, growth=with (3 of 4 combinations")));
  EXPECT_THAT(Refusal(Replaced(names, "[norm, growth]", "[norm, growt]")), HasSubstr("did you mean \"growth\"?"));
  EXPECT_THAT(Refusal(Replaced(names, "[norm, growth]", "[norm, norm]")), HasSubstr("norm is there twice"));
  EXPECT_THAT(Refusal(Replaced(names, "[norm, growth]", "[norm, growth, train.batch]")),
              HasSubstr("factor train.batch has one level only, 8"));
  EXPECT_THAT(Refusal(Replaced(names, "factors: {norm: none, growth: without}", "factors: {attention.p: 3}")),
              HasSubstr("attention.p is an axis"));
  EXPECT_THAT(Refusal("factorial: {factors: [a, b, c, d, e, f, g]}"), HasSubstr("at most 6"));
  EXPECT_THAT(Refusal("factorial: {}"), HasSubstr("a list of factors under factorial"));
}

}  // namespace
}  // namespace ablate
