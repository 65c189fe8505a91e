#include "experiments/plan_claims.h"

#include "experiments/plan_test_util.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;
using ::testing::SizeIs;

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

TEST(PhaseSummary, CountsJobsByPhaseAndLeavesOutWhatIsNeverRun) {
  const v1::SweepSpec spec = Spec(kSealed);
  const v1::PlanSummary summary = Summarize(spec, PlanOf(spec));
  EXPECT_EQ(summary.points(), 65);
  EXPECT_EQ(summary.stages(), 65);
  EXPECT_EQ(summary.seeds(), 13);
  EXPECT_EQ(summary.arms_size(), 5);
  EXPECT_EQ(summary.arms(1).stages(), 13);
  EXPECT_EQ(summary.arms(1).evaluations(), 5 * 3 + 8 * 4);
  ASSERT_EQ(summary.phases_size(), 2);
  const v1::PlanSummary::PhaseWork &selecting = summary.phases(0), &confirming = summary.phases(1);
  EXPECT_EQ(selecting.phase(), v1::SELECTING);
  EXPECT_EQ(selecting.arms(), 5);
  EXPECT_EQ(selecting.stages(), 25);
  EXPECT_EQ(selecting.evaluations(), 75);
  EXPECT_EQ(selecting.steps(), 2500);
  EXPECT_FALSE(selecting.sealed());
  EXPECT_EQ(selecting.unused_stages(), 0);
  EXPECT_EQ(confirming.phase(), v1::CONFIRMING);
  EXPECT_THAT(confirming.seeds(), ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
  EXPECT_TRUE(confirming.sealed());
  EXPECT_EQ(confirming.stages(), 40);
  EXPECT_EQ(confirming.unused_stages(), 16) << "two of three candidates";
  EXPECT_EQ(confirming.evaluations(), 160);
  EXPECT_EQ(confirming.unused_evaluations(), 64);
  EXPECT_EQ(confirming.steps(), 2400);
  EXPECT_EQ(summary.steps(), 4900);
  ASSERT_EQ(summary.notes_size(), 2);
  EXPECT_EQ(summary.notes(0),
            "selected by rule: of 3 candidates the lowest mean loss_targets over 2x, 4x on selection, NTK off, seeds "
            "0 to 4");
  EXPECT_EQ(summary.notes(1),
            "sealed until the lock: variant=softmax; variant=lssar p=15; the selected arm on seeds 100 to 107 and "
            "confirmation; the other candidates are never run there");
  EXPECT_EQ(Summarize(Spec("seeds: 2"), PlanOf(Spec("seeds: 2"))).phases_size(), 0);
}

TEST(PhaseSummary, ShowsWhatComesAfterTuning) {
  const v1::SweepSpec spec = Spec(kTuned);
  const Plan before = PlanOf(spec);
  const v1::PlanSummary summary = Summarize(spec, before);
  ASSERT_EQ(summary.phases_size(), 2);
  EXPECT_EQ(summary.phases(0).phase(), v1::TUNING);
  EXPECT_EQ(summary.phases(0).stages(), 40);
  EXPECT_EQ(summary.phases(0).arms(), 20);
  EXPECT_EQ(summary.phases(1).phase(), v1::PLAIN);
  EXPECT_EQ(summary.phases(1).points(), 10);
  EXPECT_EQ(summary.phases(1).stages(), 2 * 5);
  EXPECT_EQ(summary.arms_size(), 5);
  const v1::PlanSummary after = Summarize(spec, PlanOf(spec, AllAt(before, 1e-3)));
  EXPECT_EQ(after.SerializeAsString(), summary.SerializeAsString());
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
  EXPECT_THAT(overlaps("seeds: [100]\nevaluate: {lengths: [0.5x, 1x]}"), IsEmpty());
  // Selecting seeds: what selects may be seen, the lengths of the claims not.
  EXPECT_THAT(overlaps("seeds: [0]\nevaluate: {lengths: [1x, 2x, 4x]}"), IsEmpty());
  EXPECT_THAT(overlaps("seeds: [0]\nevaluate: {lengths: [1x, 8x, 16x]}"), SizeIs(2));
  EXPECT_THAT(overlaps("seeds: [5, 200]\nevaluate: {lengths: [8x], splits: [selection, confirmation]}"), IsEmpty());
  auto found = overlaps("seeds: [100]\nevaluate: {lengths: [1x, 129]}");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].text, "variant=lssar p=3, seed 100: 129 tokens on selection is longer than 1x");
  EXPECT_TRUE(found[0].confirming_seed);
  EXPECT_EQ(found[0].arm, 2);
  EXPECT_EQ(found[0].evaluation, 1);
  // No length is near enough to a claim's to be told from it: none above 1x.
  EXPECT_THAT(overlaps("seeds: [100]\nevaluate: {lengths: [255, 2x, 1020, 16x]}"), SizeIs(4));
  found = overlaps("seeds: [2]\nevaluate: {lengths: [1x, 16x], splits: [confirmation]}");
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].text, "variant=lssar p=3, seed 2: 128 tokens on confirmation is on the confirming documents");
  EXPECT_FALSE(found[0].confirming_seed);
  // Another evaluation of the same state is one all the same.
  EXPECT_THAT(overlaps("seeds: [100]\naxes: {eval.attention.window: [0, 128]}\nevaluate: {lengths: [8x]}"), SizeIs(2));
  // Twins: the same arm and seed, trained a little otherwise or elsewhere.
  const auto arm = [&](const std::string& settings, const std::string& lengths) {
    const v1::SweepSpec other = Spec(absl::StrCat("settings: {train.steps: 100}\narms: [{", settings,
                                                  "}]\nseeds: [100]\nevaluate: {lengths: [", lengths, "]}\n"));
    return Overlaps(spec, plan, other, PlanOf(other));
  };
  const std::string p3 = "attention.variant: lssar, attention.p: 3, train.length: 128";
  EXPECT_THAT(overlaps("requires: {device: cpu}\nseeds: [100]\nevaluate: {lengths: [8x]}"), SizeIs(1));
  for (const char* twin : {"train.clip: 1.0000001", "train.accumulation: 2", "train.epsilon: 1.0000001e-8",
                           "train.batch: 4", "train.learning_rate: 9e-4", "attention.offset: 1.0001"}) {
    EXPECT_THAT(arm(absl::StrCat(p3, ", ", twin), "8x"), SizeIs(1)) << twin;
  }
  EXPECT_THAT(arm("attention.variant: lssar, attention.p: 3.0000001, train.length: 128", "8x"), SizeIs(1));
  // Trained at another length: above its own 1x, or the sealed one.
  EXPECT_THAT(arm("attention.variant: lssar, attention.p: 3, train.length: 127", "127, 128"), SizeIs(1));
  EXPECT_THAT(arm("attention.variant: lssar, attention.p: 3, train.length: 256", "128, 256"), SizeIs(1));
  for (const char* another : {"model.layers: 3", "attention.offset: 0.5", "attention.scale: inv_sqrt_d"}) {
    EXPECT_THAT(arm(absl::StrCat(p3, ", ", another), "8x"), IsEmpty()) << another;
  }
  EXPECT_THAT(arm("attention.variant: lssar, attention.p: 9, train.length: 128", "8x"), IsEmpty());
  EXPECT_THAT(overlaps("executor: noop\nseeds: [100]\nevaluate: {lengths: [8x]}"), IsEmpty());
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
  EXPECT_THAT(Overlaps(spec, plan, device, PlanOf(device)), SizeIs(1));
  const Plan tuned = PlanOf(spec, AllAt(plan, 1e-3));
  EXPECT_THAT(Overlaps(spec, tuned, other(""), PlanOf(other(""))), SizeIs(1));
  // What another sweep will measure once it has tuned counts too.
  const v1::SweepSpec later = Spec(
      "settings: {train.length: 128, train.steps: 100}\nseeds: [100]\n"
      "arms: [{attention.variant: lssar, attention.p: 3}]\nevaluate: {lengths: [8x]}\n"
      "tune: {learning_rates: [1e-4, 2e-4]}\n");
  ASSERT_FALSE(PlanOf(later).complete);
  EXPECT_THAT(Overlaps(spec, tuned, later, PlanOf(later)), SizeIs(1));
  EXPECT_THAT(Overlaps(spec, plan, later, PlanOf(later)), SizeIs(1));
}

TEST(ArmIdentity, IsWhatActsHoweverItIsWritten) {
  const auto identity = [](const std::string& arm) {
    const Plan plan = PlanOf(Spec("settings: {train.length: 128, train.steps: 100}\narms: [" + arm + "]\nseeds: [1]"));
    std::vector<const v1::Configuration*> history;
    for (const PlannedStage& stage : plan.stages) history.push_back(&stage.config);
    return ArmIdentity(history);
  };
  const std::string softmax = identity("{}");
  EXPECT_EQ(identity("{attention.variant: softmax, attention.offset: 0.5}"), softmax) << "nothing is sharpened";
  EXPECT_EQ(identity("{model.preset: tiny}"), softmax);
  const std::string lssar = identity("{attention.variant: lssar, attention.p: 7}");
  EXPECT_NE(lssar, softmax);
  EXPECT_EQ(identity("{attention.variant: softmax, attention.scale: one}"), identity("{attention.scale: one}"));
  // Switches in their order, at whatever step.
  const auto switched = [&](int step) {
    return identity(
        absl::StrCat("{attention.variant: lssar, attention.p: 3, switch: [{at_step: ", step, ", attention.p: 7}]}"));
  };
  EXPECT_EQ(switched(50), switched(51));
  EXPECT_NE(switched(50), lssar);
}

absl::Status Extends(const std::string& before, const std::string& after) {
  const v1::SweepSpec old_spec = Spec(before), new_spec = Spec(after);
  return CheckExtends(old_spec, PlanOf(old_spec), new_spec, PlanOf(new_spec));
}

TEST(Extends, PlainSweepsTakeSeedsArmsLengthsSplitsAndTasks) {
  const std::string plain =
      "name: s\narms:\n  - {attention.variant: softmax}\n  - {attention.variant: lssa}\nseeds: 2\n"
      "evaluate: {lengths: [1x, 2x]}\n";
  const auto with = [&](const char* from, const char* to) { return Extends(plain, Replaced(plain, from, to)); };
  EXPECT_TRUE(Extends(plain, plain).ok());
  EXPECT_TRUE(with("seeds: 2", "seeds: 5").ok());
  EXPECT_TRUE(with("variant: lssa}", "variant: [ssmax, lssa]}").ok());
  EXPECT_TRUE(with("1x, 2x", "1x, 2x, 4x").ok());
  EXPECT_TRUE(with("1x, 2x]", "1x, 2x], splits: [selection, confirmation]").ok());
  const std::string tasks = Replaced(plain, "1x, 2x]", "1x, 2x], tasks: [{task: passkey, lengths: [2x]}]");
  EXPECT_TRUE(Extends(plain, tasks).ok());
  EXPECT_THAT(std::string(Extends(tasks, plain).message()),
              HasSubstr("adding seeds, arms, lengths, splits or tasks; this file changes it:\narm variant=softmax: its "
                        "evaluation at 512 tokens on passkey is missing or changed"));
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
  EXPECT_TRUE(Extends(tuned, Replaced(tuned, "seeds: 2\ntune", "seeds: 4\ntune")).ok());
  const v1::SweepSpec few = Spec(tuned), more = Spec(Replaced(tuned, "seeds: 2\ntune", "seeds: 4\ntune"));
  const TuningResults rates = AllAt(PlanOf(few), 1e-3);
  EXPECT_TRUE(CheckExtends(few, PlanOf(few, rates), more, PlanOf(more, rates)).ok());
  EXPECT_EQ(CheckExtends(more, PlanOf(more, rates), few, PlanOf(few, rates)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Extends(tuned, Replaced(tuned, "p: [3, 15]", "p: [3, 7, 15]")).message()),
              HasSubstr("arm variant=lssar p=7 is new, and was never tuned"));
}

}  // namespace
}  // namespace ablate
