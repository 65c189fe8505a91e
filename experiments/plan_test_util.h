// What the tests of planning share: reading, planning, invariants, and sweeps with phases.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/axes.h"
#include "experiments/plan_claims.h"
#include "experiments/sweep_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace ablate {

inline constexpr char kData[] =
    "data: {path: a.txt, sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n";

inline v1::SweepSpec Spec(const std::string& yaml) {
  auto spec = ParseSweepFile(kData + yaml, "f.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status() << "\n" << yaml;
  return spec.ok() ? *spec : v1::SweepSpec();
}

inline Plan PlanOf(const v1::SweepSpec& spec, const TuningResults& tuned = {}) {
  auto plan = MakePlan(spec, {}, tuned);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan();
}

// Of reading or of planning: whichever refuses.
inline std::string Refusal(const std::string& yaml) {
  SweepPlaces places;
  const auto spec = ParseSweepFile(kData + yaml, "f.yaml", &places);
  const absl::Status status = spec.ok() ? MakePlan(*spec, places).status() : spec.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
  return std::string(status.message());
}

inline std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

inline std::set<std::string> Keys(const Plan& plan) {
  std::set<std::string> keys;
  for (const PlannedStage& stage : plan.stages) EXPECT_TRUE(keys.insert(stage.key).second) << "a stage twice";
  for (const PlannedEvaluation& evaluation : plan.evaluations) EXPECT_TRUE(keys.insert(evaluation.key).second);
  return keys;
}

inline std::vector<std::string> Labels(const Plan& plan, const std::vector<int>& arms) {
  std::vector<std::string> labels;
  for (const int arm : arms) labels.push_back(plan.arms[arm].label);
  return labels;
}

inline int64_t Count(const std::vector<bool>& bits) { return std::count(bits.begin(), bits.end(), true); }

inline std::map<v1::Phase, int> PointsByPhase(const Plan& plan) {
  std::map<v1::Phase, int> counts;
  for (const Point& point : plan.points) ++counts[point.phase];
  return counts;
}

// What must hold of any plan, with phases or without.
inline void CheckInvariants(const Plan& plan) {
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

inline constexpr char kSwitches[] = R"(
settings: {train.steps: 100}
arms:
  - {attention.variant: softmax}
  - {attention.variant: softmax, switch: [{at_step: 60, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at_step: 40, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at_step: 40, attention.variant: ssmax}, {at_step: 80, train.learning_rate: 1e-5}]}
  - {attention.variant: softmax, switch: [{at_step: 40, attention.variant: softmax}, {at_step: 60, attention.variant: lssa}]}
seeds: 1
)";

inline constexpr char kSealed[] = R"(name: sealed
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

// The decisive test: nothing is selected, so nothing waits for a lock, and no other seeds are needed.
inline constexpr char kFixed[] = R"(
settings: {train.length: 128}
arms: [{attention.variant: softmax}, {attention.variant: lssar, attention.p: 15}]
confirm: {}
claims:
  - {name: lower, kind: differs, arm: {attention.p: 15}, length: 8x, direction: lower, main: yes}
)";

}  // namespace ablate
