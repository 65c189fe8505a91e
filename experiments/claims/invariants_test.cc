// Whatever is measured, missing or diverged: what must hold of every step and every row. Random sweeps, fixed seed.
#include <cmath>
#include <random>

#include "experiments/claims/progress.h"
#include "experiments/claims/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using namespace claims_testing;  // NOLINT

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int Below(int n) { return static_cast<int>(engine_() % static_cast<uint64_t>(n)); }
  bool OneIn(int n) { return Below(n) == 0; }
  double Real() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

struct RandomSweep {
  v1::SweepSpec spec;
  Plan plan = MakePlanOf({2, 3, 15});
  std::vector<Measurement> selecting, confirming;
};

RandomSweep MakeRandom(uint64_t seed) {
  Dice dice(seed);
  RandomSweep s;
  const int n = 5 + dice.Below(6);
  s.spec = MakeSpec(1 + dice.Below(4), n);
  for (int i = 0; i < 1 + dice.Below(4); ++i) {
    const auto kind = static_cast<v1::ClaimKind>(1 + dice.Below(3));
    v1::ClaimSpec* claim =
        AddClaim(&s.spec, "c" + std::to_string(i), kind, kind == v1::DIFFERS && dice.OneIn(2) ? 0 : 0.05 + dice.Real());
    if (kind == v1::DIFFERS) claim->set_direction(dice.Below(3) - 1);
    claim->set_divergence_is_worst(dice.OneIn(2));
    if (dice.OneIn(2)) claim->set_smallest_effect(0.01 + dice.Real());
    if (dice.OneIn(3)) {
      claim->set_selected_arm(false);
      *claim->mutable_arm() = Lssar(15);
    }
  }
  if (dice.OneIn(3)) {
    s.spec.mutable_confirm()->add_looks(5);
    if (n > 5) s.spec.mutable_confirm()->add_looks(n);
  } else if (dice.OneIn(2)) {
    s.spec.mutable_confirm()->mutable_stein()->set_first(5);
    s.spec.mutable_confirm()->mutable_stein()->set_half_width(0.05 + dice.Real());
  }
  Complete(s.spec, &s.plan);
  const int trouble = dice.OneIn(2) ? 1000000 : 10 + dice.Below(200);  // one run in so many
  const double scale = dice.OneIn(5) ? 0 : dice.Real();
  const auto add = [&](std::vector<Measurement>* into, const Arm& arm, int64_t of, v1::Phase phase, int64_t length) {
    Measurement m = Measure(arm, of, phase, length, 2 + scale * (dice.Real() - 0.5) + 0.3 * dice.Below(2) * scale);
    if (dice.OneIn(trouble)) m.status = MeasurementStatus::kDiverged;
    if (dice.OneIn(trouble)) m.value = std::nan("");
    if (!dice.OneIn(trouble)) into->push_back(m);
  };
  for (const Arm& arm : s.plan.arms) {
    for (const int64_t of : s.spec.seeds()) {
      for (const int64_t length : {128, 256, 512}) add(&s.selecting, arm, of, v1::SELECTING, length);
    }
    for (const int64_t of : s.spec.confirm().seeds()) {
      for (const int64_t length : {128, 1024}) add(&s.confirming, arm, of, v1::CONFIRMING, length);
    }
  }
  return s;
}

void CheckRow(const v1::ClaimRow& row, int family) {
  SCOPED_TRACE(row.ShortDebugString());
  EXPECT_NE(row.sentence(), "");
  EXPECT_NE(row.standing(), "");
  EXPECT_EQ(row.sentence().find("nan"), std::string::npos);
  EXPECT_EQ(row.sentence().find("inf"), std::string::npos);
  if (row.verdict() == v1::NOT_YET) {
    EXPECT_FALSE(row.has_estimate() || row.has_low() || row.has_p() || row.has_smallest_detectable());
    EXPECT_EQ(row.job_ids_size(), 0);
    return;
  }
  for (const auto& [has, value] :
       std::vector<std::pair<bool, double>>{{row.has_estimate(), row.estimate()},
                                            {row.has_low(), row.low()},
                                            {row.has_high(), row.high()},
                                            {row.has_family_low(), row.family_low()},
                                            {row.has_family_high(), row.family_high()},
                                            {row.has_smallest_detectable(), row.smallest_detectable()}}) {
    EXPECT_TRUE(!has || std::isfinite(value));
  }
  EXPECT_EQ(row.has_low(), row.has_high());
  EXPECT_EQ(row.has_p(), row.has_p_adjusted());
  if (row.has_low()) {
    EXPECT_LE(row.low(), row.estimate());
    EXPECT_LE(row.estimate(), row.high());
    EXPECT_LE(row.family_low(), row.low());
    EXPECT_GE(row.family_high(), row.high());
    EXPECT_GE(row.n(), 2);
  }
  if (row.has_p()) {
    EXPECT_GE(row.p(), 0);
    EXPECT_GE(row.p_adjusted(), row.p());
    EXPECT_LE(row.p_adjusted(), 1);
    if (family == 1) {
      EXPECT_EQ(row.p_adjusted(), row.p());
    }
  }
  if (row.verdict() == v1::SUPPORTED) {
    ASSERT_TRUE(row.has_p_adjusted());
    EXPECT_LT(row.p_adjusted(), row.alpha());
  }
  if (row.verdict() == v1::REFUTED) {
    EXPECT_TRUE(row.has_p());
  }
  if (row.seeds_to_decide() != 0) {
    EXPECT_GE(row.seeds_to_decide(), 2);
  }
}

TEST(Invariants, HoldInRandomSweeps) {
  int locked = 0, judged = 0, over = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomSweep s = MakeRandom(seed);
    ClaimsHistory history;
    for (int round = 0; round < 8; ++round) {
      std::vector<Measurement> all = s.selecting;
      for (const Measurement& m : s.confirming) {
        if (history.lock.has_value() && m.seed < 100 + history.confirming_seeds) all.push_back(m);
      }
      const auto rows = JudgeClaims(s.spec, s.plan, history, all, {});
      ASSERT_TRUE(rows.ok()) << rows.status();
      ASSERT_EQ(static_cast<int>(rows->size()), s.spec.claims_size());
      for (const v1::ClaimRow& row : *rows) {
        CheckRow(row, s.spec.claims_size());
        if (!history.lock.has_value()) {
          EXPECT_EQ(row.verdict(), v1::NOT_YET);
        }
        judged += row.verdict() != v1::NOT_YET;
      }
      // Sealed numbers change nothing before the lock, even if they leak into what is passed.
      if (!history.lock.has_value()) {
        std::vector<Measurement> leaked = all;
        leaked.insert(leaked.end(), s.confirming.begin(), s.confirming.end());
        const auto with = NextStep(s.spec, s.plan, history, leaked), without = NextStep(s.spec, s.plan, history, all);
        ASSERT_TRUE(with.ok() && without.ok());
        EXPECT_EQ(with->lock.has_value(), without->lock.has_value());
        if (with->lock.has_value()) {
          EXPECT_EQ(with->lock->SerializeAsString(), without->lock->SerializeAsString());
        }
      }
      const auto step = NextStep(s.spec, s.plan, history, all);
      ASSERT_TRUE(step.ok()) << step.status();
      EXPECT_GE(step->release_seeds, history.confirming_seeds);
      EXPECT_LE(step->release_seeds, s.spec.confirm().seeds_size());
      EXPECT_TRUE(step->over || !step->waiting_for.empty());
      if (step->lock.has_value()) {
        EXPECT_FALSE(history.lock.has_value());
        history.lock = step->lock;
        ++locked;
      }
      history.confirming_seeds = step->release_seeds;
      history.over = step->over;
      if (step->over) {
        ++over;
        const auto last = JudgeClaims(s.spec, s.plan, history, all, {});
        ASSERT_TRUE(last.ok());
        for (const v1::ClaimRow& row : *last) {
          CheckRow(row, s.spec.claims_size());
          EXPECT_NE(row.verdict(), v1::NOT_YET);  // nothing more will come: what is there is said
        }
        break;
      }
    }
  }
  // The sweeps do reach every state.
  EXPECT_GT(locked, 150);
  EXPECT_GT(judged, 200);
  EXPECT_GT(over, 150);
}

}  // namespace
}  // namespace ablate
