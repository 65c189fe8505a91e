// The checked-in sweep files, and the worked example of docs/claims.md: they read, plan, and come to what is said.
#include <cmath>
#include <map>
#include <set>

#include "base/files.h"
#include "base/hash.h"
#include "experiments/factorial_design.h"
#include "experiments/plan_test_util.h"

namespace ablate {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct Checked {
  v1::SweepSpec spec;
  Plan plan;
  v1::PlanSummary summary;
};

std::map<std::string, Checked> CheckedIn() {
  std::map<std::string, Checked> all;
  const auto names = ListDir(ABLATE_SWEEPS_DIR);
  EXPECT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    const auto yaml = ReadFile(JoinPath(ABLATE_SWEEPS_DIR, name));
    EXPECT_TRUE(yaml.ok());
    EXPECT_THAT(*yaml, AnyOf(StartsWith("# Claim: "), StartsWith("# The validity gate "))) << name;
    EXPECT_THAT(*yaml, HasSubstr("\n# Cost: ")) << name;
    auto spec = ParseSweepFile(*yaml, name);
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->name() + ".yaml", name);
    // A text of its own for each name.
    spec->mutable_data()->set_sha256(Sha256Hex(spec->data().name()));
    const Plan first = PlanOf(*spec);
    TuningResults rates;  // what the tries would give
    for (const Arm& arm : first.arms) {
      if (spec->has_tune() && arm.phase != v1::TUNING) rates.rates[arm.json] = 1e-3;
    }
    Checked checked{*spec, PlanOf(*spec, rates), Summarize(*spec, first)};
    CheckInvariants(checked.plan);
    EXPECT_TRUE(all.emplace(spec->name(), std::move(checked)).second);
  }
  return all;
}

TEST(CheckedInSweeps, ParseAndPlan) {
  auto claims = CheckedIn();
  ASSERT_THAT(claims, SizeIs(26));
  for (const auto& [name, checked] : claims) {
    const Plan& plan = checked.plan;
    EXPECT_GE(plan.seeds.size() + plan.confirming_seeds.size(), 3u) << name;
    v1::Configuration baseline = checked.spec.settings();
    baseline.mutable_settings()->MergeFrom(plan.arms[plan.baseline_arm].values.settings());
    const ConfigView view(baseline);
    EXPECT_EQ(view.Text("attention.variant"), "softmax") << name;
    EXPECT_EQ(view.Text("attention.scale"), "inv_sqrt_d") << name;
    EXPECT_FALSE(view.Has("attention.p")) << name;
  }
  EXPECT_EQ(claims["quickstart"].plan.arms.size(), 6u);
  for (const std::string size : {"", "-124m"}) {
    EXPECT_EQ(claims["scale" + size].plan.arms.size(), size.empty() ? 6u : 27u);
    EXPECT_EQ(claims["decomposition" + size].plan.arms.size(), size.empty() ? 5u * 2 + 2 * 2 : 7u * 3 + 2 * 2);
  }
  // Run in one database, the CPU sweeps train what they have in common once: each arm's rates are tried once.
  const auto stages = [&](const std::string& name) {
    std::set<std::string> keys;
    for (const PlannedStage& stage : claims[name].plan.stages) keys.insert(stage.key);
    return keys;
  };
  const auto gate = stages("gate"), decisive = stages("decisive"), ntk = stages("ntk"), sealed = stages("p-sealed");
  auto common = [](const std::set<std::string>& a, const std::set<std::string>& b) {
    return std::count_if(a.begin(), a.end(), [&](const std::string& key) { return b.count(key) > 0; });
  };
  EXPECT_EQ(common(gate, decisive), 8);     // softmax's tries
  EXPECT_EQ(common(decisive, ntk), 24);     // those of softmax, cosine_softmax and lssar p = 15
  EXPECT_EQ(common(decisive, sealed), 16);  // those of softmax and lssar p = 15
  EXPECT_EQ(common(stages("gate-typescript"), decisive), 0) << "another text";
}

// The four cells {variant} x {NTK off, on} come from one training a (variant, seed), and 1x is measured once.
TEST(CheckedInSweeps, NtkCostsNoTrainingAndOneTimesIsMeasuredOnce) {
  auto claims = CheckedIn();
  for (const auto& [name, seeds, tries] : {std::tuple<std::string, int, int>("ntk", 5, 4 * 2), {"ntk-124m", 3, 0}}) {
    const Plan& plan = claims[name].plan;
    EXPECT_EQ(plan.stages.size(), 5u * (seeds + tries)) << "variants x seeds";
    EXPECT_EQ(plan.evaluations.size(), 5u * (seeds * (1 + 2 * 4) + tries));
    EXPECT_EQ(claims[name].summary.steps_without_sharing() * (seeds + tries),
              claims[name].summary.steps() * (2 * seeds + tries));
    for (const Point& point : plan.points) {
      if (plan.arms[point.arm].phase == v1::TUNING) continue;
      int once = 0;
      std::map<int64_t, std::set<bool>> cells;
      for (const int e : point.evaluations) {
        once += plan.evaluations[e].length_tokens == plan.arms[point.arm].train_length;
        cells[plan.evaluations[e].length_tokens].insert(plan.evaluations[e].ntk);
      }
      EXPECT_EQ(once, 1);
      for (const auto& [length, ntk] : cells) {
        EXPECT_THAT(ntk, SizeIs(length > plan.arms[point.arm].train_length ? 2 : 1));
      }
    }
  }
}

// Retrieval shares the stages between NTK off and on, and measures no loss where there is no text.
TEST(CheckedInSweeps, RetrievalIsMeasuredByItsTasks) {
  auto claims = CheckedIn();
  const Plan& mqar = claims["mqar"].plan;
  EXPECT_EQ(mqar.stages.size(), 4u * 5);
  EXPECT_EQ(mqar.evaluations.size(), 4u * 5 * (1 + 2 * 4));
  for (const PlannedEvaluation& one : mqar.evaluations) EXPECT_EQ(one.task, "mqar");
  const Plan& passkey = claims["passkey"].plan;
  EXPECT_EQ(passkey.stages.size(), 3u * 3);
  EXPECT_EQ(passkey.evaluations.size(), 3u * 3 * (1 + 4));
}

// Growth is not size: the mean of the scale over the training length is the same with it and without.
TEST(CheckedInSweeps, MagnitudesOfTheFactorialAreMatched) {
  auto claims = CheckedIn();
  for (const std::string name : {"components", "components-124m"}) {
    std::map<std::string, std::set<std::string>> scales;  // by qk_norm
    for (const auto& arm : claims[name].plan.arms) {
      v1::Configuration config = claims[name].spec.settings();
      config.mutable_settings()->MergeFrom(arm.values.settings());
      const ConfigView view(config);
      const double d = view.Number("model.width") / view.Number("model.heads"), T = view.Number("train.length");
      double mean_log_n = 0;
      for (double n = 1; n <= T; ++n) mean_log_n += std::log(n) / T;
      const std::string scale = view.Text("attention.scale"), norm = view.Text("attention.qk_norm");
      const double c = view.Number("attention.scale_constant");
      const double mean = scale == "inv_sqrt_d"       ? 1 / std::sqrt(d)
                          : scale == "log_d_log_n"    ? std::log(d) * mean_log_n
                          : scale == "constant"       ? c
                          : scale == "constant_log_n" ? c * mean_log_n
                                                      : 0;
      const double want = norm == "l2" ? std::log(d) * mean_log_n : 1 / std::sqrt(d);
      EXPECT_NEAR(mean / want, 1, 3e-4) << name << " " << arm.label;
      scales[norm].insert(scale);
    }
    EXPECT_THAT(scales["none"], ElementsAre("constant_log_n", "inv_sqrt_d"));
    EXPECT_THAT(scales["l2"], ElementsAre("constant", "log_d_log_n"));
  }
}

TEST(CheckedInSweeps, SealedAndFixedOnesComeToTheirCosts) {
  auto claims = CheckedIn();
  for (const std::string size : {"", "-124m"}) {
    const Checked& sealed = claims["p-sealed" + size];
    EXPECT_TRUE(NeedsLock(sealed.spec));
    EXPECT_THAT(sealed.plan.candidates, SizeIs(size.empty() ? 4 : 10));
    EXPECT_EQ(sealed.summary.steps(), 79 * ConfigView(sealed.spec.settings()).Integer("train.steps"));
    const v1::PlanSummary::PhaseWork& confirming = sealed.summary.phases(sealed.summary.phases_size() - 1);
    EXPECT_EQ(sealed.summary.evaluations() - confirming.unused_evaluations(), size.empty() ? 157 : 237);
    EXPECT_EQ(claims["components" + size].plan.stages.size(), size.empty() ? 80u : 48u);
    const auto design = FactorialDesignOf(claims["components" + size].spec, claims["components" + size].plan.arms);
    ASSERT_TRUE(design.ok()) << design.status();
    EXPECT_THAT(design->cells, SizeIs(16));
    const Checked& fixed = claims["decisive" + size];
    EXPECT_FALSE(NeedsLock(fixed.spec));
    EXPECT_THAT(fixed.plan.seeds, IsEmpty());
    EXPECT_EQ(fixed.summary.stages(), 48);
    EXPECT_TRUE(fixed.spec.has_tune());
  }
  const Plan& sealed = claims["p-sealed-124m"].plan;
  EXPECT_THAT(Labels(sealed, sealed.fixed_arms), ElementsAre("variant=lssar p=15"));
  const JobSet released = ReleasedJobs(sealed, std::vector<int>{0, sealed.candidates[2], sealed.fixed_arms[0]}, 8);
  EXPECT_EQ(Count(released.stages), 24);
  EXPECT_EQ(Count(released.evaluations), 72);
  EXPECT_EQ(claims["decisive"].summary.evaluations(), 96);
  EXPECT_EQ(claims["decisive-124m"].summary.evaluations(), 72);
}

// What is claimed of two texts is the same claim: `ablate claims decisive decisive-typescript` takes them together.
TEST(CheckedInSweeps, TheDecisiveTestIsTheSameOnBothTexts) {
  auto claims = CheckedIn();
  const v1::SweepSpec &one = claims["decisive"].spec, &other = claims["decisive-typescript"].spec;
  EXPECT_NE(one.data().sha256(), other.data().sha256());
  ASSERT_EQ(one.claims_size(), other.claims_size());
  for (int i = 0; i < one.claims_size(); ++i) {
    v1::ClaimSpec claim = other.claims(i);
    claim.set_margin(one.claims(i).margin());
    claim.set_margin_reason(one.claims(i).margin_reason());
    claim.set_smallest_effect(one.claims(i).smallest_effect());
    EXPECT_EQ(claim.SerializeAsString(), one.claims(i).SerializeAsString()) << claim.name();
  }
}

// Each may be run beside the others, before or after: what a sealed one confirms no other sweep sees, as its seeds are
// its own.
TEST(CheckedInSweeps, NoneSeesWhatAnotherConfirms) {
  auto claims = CheckedIn();
  for (const auto& [name, sealed] : claims) {
    for (const auto& [other_name, other] : claims) {
      if (name == other_name) continue;
      for (const Overlap& overlap : Overlaps(sealed.spec, sealed.plan, other.spec, other.plan)) {
        EXPECT_FALSE(overlap.confirming_seed) << name << ", " << other_name << ": " << overlap.text;
      }
    }
  }
  // Nor does one keep another waiting for its lock: the seeds that select are its own too.
  EXPECT_THAT(Overlaps(claims["p-sealed"].spec, claims["p-sealed"].plan, claims["ntk"].spec, claims["ntk"].plan),
              IsEmpty());
  EXPECT_THAT(
      Overlaps(claims["p-sealed"].spec, claims["p-sealed"].plan, claims["p-sealed"].spec, claims["p-sealed"].plan),
      Not(IsEmpty()));
}

TEST(Docs, TheWorkedExampleOfClaimsComesToWhatIsSaid) {
  const auto docs = ReadFile(ABLATE_DOCS_DIR "/claims.md");
  ASSERT_TRUE(docs.ok());
  const size_t begin = docs->find("```yaml\n") + 8;
  auto spec = ParseSweepFile(docs->substr(begin, docs->find("```", begin) - begin), "example.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->mutable_data()->set_sha256(std::string(64, 'a'));
  const Plan tuning = PlanOf(*spec);
  ASSERT_FALSE(tuning.complete);
  TuningResults rates;
  for (const Arm& arm : tuning.arms) {
    if (arm.phase != v1::TUNING) rates.rates[arm.json] = 1e-3;
  }
  const Plan plan = PlanOf(*spec, rates);
  CheckInvariants(plan);
  const v1::PlanSummary summary = Summarize(*spec, tuning);
  ASSERT_EQ(summary.phases_size(), 3);
  const auto says = [&](const std::string& text) { EXPECT_NE(docs->find(text), std::string::npos) << text; };
  const auto jobs = [&](int i) {
    return absl::StrCat(summary.phases(i).stages(), " trainings and ", summary.phases(i).evaluations(), " evaluations");
  };
  says("tuning: " + jobs(0));
  says("selecting: " + jobs(1));
  says("confirming: " + jobs(2));
  says(absl::StrCat("of which ", summary.phases(2).unused_stages(), " and ", summary.phases(2).unused_evaluations(),
                    " are never run"));
  for (const char* key : {"learning_rates",  "max_extensions", "among",      "lengths",    "fixed",
                          "reuse_seeds",     "looks",          "stein",      "half_width", "kind",
                          "against",         "short_length",   "direction",  "margin",     "why",
                          "smallest_effect", "main",           "divergence", "factors",    "alpha"}) {
    says(key);
  }
}

}  // namespace
}  // namespace ablate
