// Which arm a name means, and where in the file a fault of meaning is.
#include "experiments/axes.h"
#include "experiments/plan.h"
#include "experiments/sweep_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::SweepSpec Spec(const std::string& yaml) {
  auto spec = ParseSweepFile("data: {path: a.txt, sha256: " + std::string(64, 'a') + "}\n" + yaml, "test.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::SweepSpec();
}

Plan PlanOf(const v1::SweepSpec& spec) {
  auto plan = MakePlan(spec);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

TEST(Baseline, AnArmIsNamedByItsEffectiveValues) {
  const auto named = [](const std::string& yaml, const std::string& json) {
    const v1::SweepSpec spec = Spec(yaml);
    const auto selector = ConfigurationFromJson(json);
    EXPECT_TRUE(selector.ok()) << json;
    const auto found = FindBaseline(spec.settings(), PlanOf(spec).arms, *selector);
    return found.ok() ? std::to_string(*found) : std::string(found.status().message());
  };
  // One arm's values are part of another's; the default's are none at all.
  const std::string nested = "arms: [{attention.scale: one}, {}, {attention.scale: one, attention.variant: ssmax}]";
  EXPECT_EQ(named(nested, "{}"), "1");
  EXPECT_EQ(named(nested, R"({"attention.variant":"softmax"})"), "1");
  EXPECT_EQ(named(nested, R"({"attention.scale":"one"})"), "0");
  EXPECT_EQ(named(nested, R"({"attention.variant":"ssmax"})"), "2");
  EXPECT_EQ(PlanOf(Spec("arms: [{attention.variant: softmax, attention.scale: one}, {attention.variant: softmax}]\n"
                        "baseline: {attention.variant: softmax}"))
                .baseline_arm,
            1);
  EXPECT_THAT(named(nested, R"({"attention.variant":"lssa"})"), HasSubstr("no arm is the baseline"));
  EXPECT_THAT(named(nested, R"({"attention.variant":"lsa"})"), HasSubstr("did you mean \"lssa\""));
  EXPECT_THAT(named(nested, R"({"attention.sale":"one"})"), HasSubstr("did you mean \"attention.scale\""));
  EXPECT_THAT(named(nested, R"({"eval.ntk":"dynamic"})"), HasSubstr("column of the table"));
  const std::string product = "axes: {attention.variant: [softmax, lssa], train.batch: [2, 4]}";
  EXPECT_THAT(named(product, R"({"attention.variant":"lssa"})"), HasSubstr("fits 2 arms (variant=lssa batch=2; "));
  // As tables print it: a switch too.
  const std::string switched =
      "arms: [{attention.variant: lssa}, {attention.variant: lssa, switch: [{at_step: 9, attention.p: 3}]}]";
  EXPECT_EQ(named(switched, R"({"attention.variant":"lssa"})"), "0");
  EXPECT_EQ(named(switched, R"({"attention.p@9":3,"attention.variant":"lssa"})"), "1");
  EXPECT_EQ(named(switched, R"({"attention.p@9":3})"), "1");
}

TEST(Places, FaultsOfMeaningHaveTheirPlaceInTheFile) {
  const auto place = [](const std::string& yaml) {
    SweepPlaces places;
    const auto spec =
        ParseSweepFile("data: {path: a.txt, sha256: " + std::string(64, 'a') + "}\n" + yaml, "dir/f.yaml", &places);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (!spec.ok()) return std::string();
    const auto plan = MakePlan(*spec, places);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << yaml;
    return std::string(plan.status().message());
  };
  EXPECT_THAT(
      place("arms:\n  - {attention.variant: [lssar, softmax]}\n  - {attention.variant: lssar, attention.p: 15}"),
      StartsWith("dir/f.yaml:4:5: arms variant=lssar and variant=lssar p=15 are the same"));
  EXPECT_THAT(place("axes: {attention.variant: [lssar, softmax]}\nbaseline: {attention.variant: relu}"),
              StartsWith("dir/f.yaml:3:11: no arm is the baseline"));
  EXPECT_THAT(place("axes: {attention.variant: [lssar, softmax], train.batch: [2, 4]}\n"
                    "baseline:\n  attention.variant: lssar"),
              StartsWith("dir/f.yaml:4:3: baseline variant=lssar fits 2 arms"));
  EXPECT_THAT(place("axes: {train.batch: [2, 4]}\nbaseline: {eval.ntk: on}"), StartsWith("dir/f.yaml:3:11: baseline"));
  EXPECT_THAT(place("axes: {attention.p: [3, 4]}\nsettings: {attention.variant: lssar}\n"
                    "exclude:\n  - {attention.p: [3]}\n  - {attention.p: 15}"),
              StartsWith("dir/f.yaml:6:5: the exclude rule p=15 matches no arm"));
  EXPECT_THAT(
      place("axes: {attention.p: [3, 4]}\nsettings: {attention.variant: lssar}\nexclude: [{attention.p: [3, 4]}]"),
      StartsWith("dir/f.yaml:4:11: no arm is left"));
  EXPECT_THAT(place("arms: [{}, {model.heads: 3}]"), StartsWith("dir/f.yaml:2:12: arm heads=3: model.width 128"));
  EXPECT_THAT(place("axes:\n  model.heads: [4, 3]"), StartsWith("dir/f.yaml:3:3: arm heads=3: model.width 128"));
  EXPECT_THAT(place("settings: {model.heads: 3}"), StartsWith("dir/f.yaml:2:11: arm default: model.width 128"));
  EXPECT_THAT(place("arms: [{switch: [{at_step: 6, model.width: 64}]}]"), StartsWith("dir/f.yaml:2:8: model.width"));
  EXPECT_THAT(place("arms: [{}, {model.position: learned}]"), StartsWith("dir/f.yaml:2:12: arm position=learned: "));
  EXPECT_THAT(place("evaluate: {lengths: [1x, 65536]}"), StartsWith("dir/f.yaml:2:26: arm default: "));
  EXPECT_THAT(place("evaluate: {lengths: [1x, 0.001x]}"), StartsWith("dir/f.yaml:2:26: evaluate.lengths: 0.256"));
}

}  // namespace
}  // namespace ablate
