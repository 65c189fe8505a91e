#include "experiments/factorial_design.h"

#include "experiments/plan_test_util.h"

namespace ablate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

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
  EXPECT_THAT(Refusal("axes: {eval.ntk: [off, on]}\nfactorial: {factors: [eval.ntk]}"),
              HasSubstr("so it is no factor"));
  EXPECT_THAT(Refusal("factorial: {}"), HasSubstr("a list of factors under factorial"));
}

}  // namespace
}  // namespace ablate
