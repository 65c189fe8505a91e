// What a sweep with claims is refused for, and what its hash covers.
#include "experiments/plan_test_util.h"

namespace ablate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_THAT(Refusal(Replaced(Replaced(sealed, "select:\n", "select: {among: {attention.variant: lssar}}\n"),
                               "arm: selected,", "arm: selected, against: {attention.p: 15},")),
              HasSubstr("variant=lssar p=15 is a candidate, so it may be the selected arm itself"));
  EXPECT_THAT(Refusal(Replaced(sealed, "select:\n", "select: {among: {eval.ntk: on}}\n")),
              HasSubstr("say ntk: on beside"));
  EXPECT_THAT(Refusal(Replaced(sealed, "select:\n", "select: {metric: gain}\n")), HasSubstr("write eval.gain: true"));
  EXPECT_THAT(Refusal(Replaced(Replaced(sealed, "select:\n", "select: {metric: loss_by_position.T}\n"), "steps: 100",
                               "steps: 100, eval.loss_tokens: 0")),
              HasSubstr("metric loss_by_position.T is not measured of variant=lssar p=1 at 256 tokens: "
                        "eval.loss_tokens is 0"));
  EXPECT_THAT(Refusal(Replaced(kFixed, "confirm: {}", "seeds: 8\nconfirm: {reuse_seeds: on}")),
              HasSubstr("reuse_seeds is of sweeps that select"));
  EXPECT_THAT(Refusal("select: {}"), HasSubstr("f.yaml:2:9: select picks the arm that claims are about"));
  EXPECT_THAT(Refusal("confirm: {}"), HasSubstr("f.yaml:2:10: there are no claims to confirm"));
  EXPECT_THAT(Refusal("alpha: 0.05"), HasSubstr("none are stated"));
  EXPECT_THAT(Refusal(Replaced(Replaced(kFixed, "confirm: {}", "confirm: {seeds: 4}"), ", main: yes", "")),
              HasSubstr("a claim needs at least 5 seeds, found 4"));
  EXPECT_THAT(Refusal(std::string(kFixed) + "seeds: 3\nevaluate: {splits: [confirmation]}"),
              HasSubstr("the split of the confirming documents"));
}

TEST(Claims, AreAboutLossesOrGainThatWillBeMeasured) {
  const std::string sealed = kSealed;
  const std::string gain = Replaced(sealed, "steps: 100", "steps: 100, eval.gain: true");
  const auto lower = [](const std::string& yaml, const std::string& metric) {
    return Replaced(yaml, "direction: lower, main: yes", "direction: lower, main: yes, metric: " + metric);
  };
  const auto rises = [](const std::string& yaml, const std::string& metric) {
    return Replaced(yaml, "kind: rises_less", "kind: rises_less\n    metric: " + metric);
  };
  for (const char* constant : {"loss_tokens", "target_tokens", "zero_rows"}) {
    EXPECT_THAT(Refusal(lower(sealed, constant)), HasSubstr("is neither a loss nor gain")) << constant;
  }
  EXPECT_THAT(Refusal(lower(sealed, "passkey_accuracy")), HasSubstr("is of task passkey: tuning, selection and claims go by"));
  EXPECT_THAT(Refusal(lower(sealed, "tokens")), HasSubstr("unknown metric"));
  EXPECT_THAT(Refusal(lower(sealed, "gain")), HasSubstr("write eval.gain: true"));
  EXPECT_THAT(PlanOf(Spec(lower(gain, "gain"))).claims, ::testing::SizeIs(4));
  EXPECT_THAT(Refusal(rises(gain, "gain")), HasSubstr("is no loss"));
  EXPECT_THAT(Refusal(rises(gain, "loss_targets_windowed")), HasSubstr("at 128 tokens: without keys beyond"));
  EXPECT_THAT(Refusal(lower(sealed, "loss_by_position.16T")),
              HasSubstr("loss_by_position.16T is not measured of variant=softmax at 1024 tokens: it has no such"));
  EXPECT_THAT(PlanOf(Spec(lower(sealed, "loss_by_position.8T"))).claims, ::testing::SizeIs(4));
  // In one arm alone.
  EXPECT_THAT(Refusal(Replaced(lower(sealed, "loss"), "{attention.variant: softmax}\n",
                               "{attention.variant: softmax, eval.loss_tokens: 0}\n")),
              HasSubstr("loss is not measured of variant=softmax loss_tokens=0 at 1024 tokens: eval.loss_tokens is 0"));
  const auto tuned = [&](const std::string& yaml, const char* metric) {
    return absl::StrCat(yaml, "tune: {learning_rates: [1e-3, 2e-3], metric: ", metric, "}\n");
  };
  EXPECT_THAT(Refusal(tuned(gain, "gain")), HasSubstr("metric gain is no loss"));
  EXPECT_THAT(Refusal(tuned(gain, "loss_targets_windowed")), HasSubstr("at 128 tokens: without keys beyond"));
  EXPECT_THAT(Refusal(tuned(gain, "loss_by_position.2T")), HasSubstr("it has no such positions"));
  EXPECT_FALSE(PlanOf(Spec(tuned(sealed, "loss_by_position.T"))).complete);
}

TEST(Claims, ShortLengthsStayUnseenToo) {
  const std::string shorter = Replaced(kSealed, "    length: 8x\n", "    length: 8x\n    short_length: 3x\n");
  EXPECT_THAT(Refusal(Replaced(shorter, "\nseeds: 5", "\nseeds: 5\nevaluate: {lengths: [1x, 3x]}")),
              HasSubstr("evaluate.lengths has its short_length 384"));
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

}  // namespace
}  // namespace ablate
