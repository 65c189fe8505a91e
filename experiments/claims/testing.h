// Sweeps made by hand for the tests of claims/ and for the simulations: a softmax baseline and candidates that differ
// in attention.p, lengths in multiples of 128 tokens. Must not be linked by the product.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "experiments/axes.h"
#include "experiments/claims/measured.h"
#include "experiments/claims/progress.h"
#include "experiments/plan.h"
#include "experiments/statistics.h"
#include "experiments/table.h"
#include "gtest/gtest.h"

namespace ablate::claims_testing {

inline v1::Setting MakeSetting(const std::string& axis, v1::Value value) {
  v1::Setting setting;
  setting.set_axis(axis);
  *setting.mutable_value() = std::move(value);
  return setting;
}

inline v1::Configuration Softmax() {
  v1::Configuration config;
  *config.add_settings() = MakeSetting("attention.variant", TextValue("softmax"));
  return config;
}

inline v1::Configuration Lssar(double p) {
  v1::Configuration config;
  *config.add_settings() = MakeSetting("attention.p", NumberValue(p));
  *config.add_settings() = MakeSetting("attention.variant", TextValue("lssar"));
  return config;
}

inline Arm MakeArm(v1::Configuration values) {
  Arm arm;
  arm.values = std::move(values);
  arm.json = ToJson(arm.values);
  arm.label = Label(arm.values);
  arm.train_length = 128;
  return arm;
}

// Arm 0 is softmax; arm k is lssar with the k-th p.
inline Plan MakePlanOf(const std::vector<double>& p_values) {
  Plan plan;
  plan.arms.push_back(MakeArm(Softmax()));
  for (const double p : p_values) plan.arms.push_back(MakeArm(Lssar(p)));
  return plan;
}

// S1 = 0..n1-1, S2 = 100..100+n2-1; the rule of docs/statistics.md 4: 2x and 4x, confirmed at 8x.
inline v1::SweepSpec MakeSpec(int n1, int n2) {
  v1::SweepSpec spec;
  spec.set_name("s");
  *spec.add_axes()->mutable_axis() = "attention.p";
  *spec.mutable_settings()->add_settings() = MakeSetting("train.length", NumberValue(128));
  *spec.mutable_baseline() = Softmax();
  for (int i = 0; i < n1; ++i) spec.add_seeds(i);
  v1::SelectionSpec* select = spec.mutable_select();
  select->set_metric("loss_targets");
  select->set_split("selection");
  *select->add_lengths() = Multiple(2);
  *select->add_lengths() = Multiple(4);
  spec.mutable_confirm()->set_split("confirmation");
  for (int i = 0; i < n2; ++i) spec.mutable_confirm()->add_seeds(100 + i);
  return spec;
}

// What MakePlan finds in the spec: arms of claims, fixed arms, candidates, seeds.
inline void Complete(const v1::SweepSpec& spec, Plan* plan) {
  const auto named = [&](const v1::Configuration& selector) {
    const auto arm = FindBaseline(spec.settings(), plan->arms, selector);
    EXPECT_TRUE(arm.ok()) << arm.status();
    return arm.ok() ? *arm : 0;
  };
  std::set<int> fixed;
  for (const v1::Configuration& arm : spec.confirm().fixed_arms()) fixed.insert(named(arm));
  plan->claims.clear();
  for (const v1::ClaimSpec& claim : spec.claims()) {
    PlannedClaim planned;
    if (!claim.selected_arm()) fixed.insert(planned.arm = named(claim.arm()));
    if (!claim.against().settings().empty()) fixed.insert(planned.against = named(claim.against()));
    plan->claims.push_back(planned);
  }
  fixed.erase(plan->baseline_arm);
  plan->fixed_arms.assign(fixed.begin(), fixed.end());
  plan->candidates.clear();
  for (int arm = 1; arm < static_cast<int>(plan->arms.size()) && spec.has_select(); ++arm) {
    if (plan->arms[arm].phase != v1::TUNING && !fixed.contains(arm)) plan->candidates.push_back(arm);
  }
  plan->confirming_seeds.assign(spec.confirm().seeds().begin(), spec.confirm().seeds().end());
}

inline v1::ClaimSpec* AddClaim(v1::SweepSpec* spec, const std::string& name, v1::ClaimKind kind, double margin = 0) {
  v1::ClaimSpec* claim = spec->add_claims();
  claim->set_name(name);
  claim->set_kind(kind);
  claim->set_selected_arm(true);
  claim->set_metric("loss_targets");
  *claim->mutable_length() = Multiple(8);
  if (kind == v1::RISES_LESS) *claim->mutable_short_length() = Multiple(1);
  if (kind == v1::DIFFERS) claim->set_direction(-1);
  claim->set_margin(margin);
  return claim;
}

inline Measurement Measure(const Arm& arm, int64_t seed, v1::Phase phase, int64_t length, std::optional<double> value,
                           MeasurementStatus status = MeasurementStatus::kOk) {
  return {.sweep = "s",
          .arm = ArmValuesOf(arm.values),
          .seed = seed,
          .metric = "loss_targets",
          .length_tokens = length,
          .split = phase == v1::CONFIRMING ? "confirmation" : "selection",
          .value = value,
          .status = status,
          .job_id = absl::StrCat(arm.label, "/", seed, "/", length, "/", static_cast<int>(phase)),
          .phase = phase};
}

// A run of which nothing but its divergence is recorded.
inline Measurement DivergedRun(const Arm& arm, int64_t seed, v1::Phase phase) {
  Measurement lost = Measure(arm, seed, phase, 0, std::nullopt, MeasurementStatus::kDiverged);
  lost.metric.clear();
  lost.split.clear();
  return lost;
}

inline constexpr int64_t k1x = 128, k8x = 1024;
inline const std::vector<double> kNoise = {0.010, -0.004, 0.007, -0.012, 0.003, -0.006, 0.009, -0.008};

// A locked sweep with arms softmax (0), p = 3 (1, locked) and p = 15 (2).
struct Sweep {
  v1::SweepSpec spec;
  Plan plan = MakePlanOf({3, 15});
  std::vector<Measurement> m;
  ClaimsHistory history;
  int seeds;

  explicit Sweep(int n = 8) : spec(MakeSpec(3, n)), seeds(n) {
    history.lock.emplace();
    history.lock->set_arm_json(plan.arms[1].json);
    history.confirming_seeds = n;
  }
  // Baseline + difference + noise; noise * scale differs from seed to seed.
  void Add(int arm, double difference, double scale, int64_t length = k8x) {
    for (int i = 0; i < seeds; ++i) {
      const double base = 2 + 0.1 * i;
      m.push_back(Measure(plan.arms[arm], 100 + i, v1::CONFIRMING, length,
                          arm == 0 ? base : base + difference + scale * kNoise[(i + 3 * arm) % 8]));
    }
  }
  Measurement& Of(int arm, int seed, int64_t length = k8x) {
    for (Measurement& measurement : m) {
      if (measurement.arm == ArmValuesOf(plan.arms[arm].values) && measurement.seed == 100 + seed &&
          measurement.length_tokens == length) {
        return measurement;
      }
    }
    return m.front();
  }
  std::vector<v1::ClaimRow> Judge(const std::vector<std::pair<std::string, std::string>>& seen = {}) {
    Complete(spec, &plan);
    auto rows = JudgeClaims(spec, plan, history, m, seen);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : std::vector<v1::ClaimRow>(std::max(1, spec.claims_size()));
  }
  std::vector<double> Differences(int arm, int64_t length = k8x) {
    std::vector<double> out;
    for (int i = 0; i < seeds; ++i) out.push_back(*Of(arm, i, length).value - *Of(0, i, length).value);
    return out;
  }
};

inline PairedDifference OfDifferences(const std::vector<double>& differences) {
  return *Paired(differences, std::vector<double>(differences.size(), 0.0));
}

struct Rise : Sweep {
  // Differences to the baseline at 1x and 8x; the baseline rises by 1.
  Rise(double at_1x, double at_8x, double margin, double scale = 1) {
    AddClaim(&spec, "r", v1::RISES_LESS, margin);
    Add(0, 0, 1, k1x);
    Add(1, at_1x, scale, k1x);
    Add(0, 0, 1);
    Add(1, at_8x, 2 * scale);
    for (auto& measurement : m) {
      if (measurement.length_tokens == k8x) *measurement.value += 1;
    }
  }
};

}  // namespace ablate::claims_testing
