// See contrast.h.
#include "experiments/claims/contrast.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

Contrast FromPairs(const PairedDifference& all) {
  Contrast contrast{.n = all.n, .mean = all.mean_difference, .sd = all.sd_difference, .df = all.df};
  contrast.reason = all.reason;
  if (all.t.has_value()) contrast.sem = *all.sd_difference / std::sqrt(static_cast<double>(all.n));
  return contrast;
}

Contrast WithFirstStage(const PairedDifference& all, const PairedDifference& first) {
  Contrast contrast = FromPairs(first);
  contrast.n = all.n;
  contrast.mean = all.mean_difference;
  if (contrast.sem.has_value()) contrast.sem = *contrast.sd / std::sqrt(static_cast<double>(all.n));
  return contrast;
}

absl::Status CheckTest(const Contrast& contrast) {
  if (contrast.sem.has_value() && *contrast.sem > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("a contrast without a test has no p and no interval");
}

// A diverged side as the worst value there is. False: both, a tie.
struct Signed {
  bool tie = false;
  double value = 0;  // its sign counts
};

Signed WorstSign(const ClaimSeed& seed, double value, bool higher_is_better) {
  if (seed.arm_diverged && seed.baseline_diverged) return {.tie = true};
  const double worse = higher_is_better ? -1 : 1;
  if (seed.arm_diverged) return {.value = worse};
  if (seed.baseline_diverged) return {.value = -worse};
  return {.value = value};
}

struct SignCount {
  int64_t below = 0, above = 0;
};

// Exact test of "more often below 0 than above"; 1 where it is not so. Two-sided, as the other tests of direction.
absl::StatusOr<double> DirectedSignTest(const SignCount& count, int direction) {
  ABLATE_ASSIGN_OR_RETURN(const double p, SignTest(count.below, count.above));
  if (direction < 0 && count.below <= count.above) return 1.0;
  if (direction > 0 && count.above <= count.below) return 1.0;
  return p;
}

// Two-sided p of a mean in the claimed direction; 1 where it points the other way.
absl::StatusOr<double> DirectedP(const Contrast& contrast, int direction) {
  if (direction * contrast.mean <= 0) return 1.0;
  return TwoSidedP(contrast);
}

double RiseOf(const ClaimSeed& s) { return (s.arm_long - s.arm_short) - (s.baseline_long - s.baseline_short); }

absl::Status SignTests(const v1::ClaimSpec& claim, std::span<const ClaimSeed> seeds, bool higher_is_better,
                       ClaimTest* test) {
  SignCount main, at_short, at_long;
  const auto count = [&](const ClaimSeed& seed, double value, SignCount* into) {
    const Signed sign = WorstSign(seed, value, higher_is_better);
    if (sign.tie || sign.value == 0) return;
    ++(sign.value < 0 ? into->below : into->above);
  };
  for (const ClaimSeed& seed : seeds) {
    if (claim.kind() != v1::RISES_LESS) {
      count(seed, seed.arm_long - seed.baseline_long, &main);
      continue;
    }
    count(seed, RiseOf(seed), &main);
    count(seed, seed.arm_short - seed.baseline_short - claim.margin(), &at_short);
    count(seed, seed.arm_long - seed.baseline_long, &at_long);
  }
  test->method = "sign_test";
  test->wins = main.below;
  test->losses = main.above;
  if (claim.kind() != v1::RISES_LESS) {
    ABLATE_ASSIGN_OR_RETURN(test->p, SignTest(main.below, main.above));
  } else {
    double largest = 0;
    for (const SignCount* part : {&main, &at_short, &at_long}) {
      ABLATE_ASSIGN_OR_RETURN(const double p, DirectedSignTest(*part, -1));
      largest = std::max(largest, p);
    }
    test->p = largest;
  }
  ABLATE_ASSIGN_OR_RETURN(const double smallest, SignTest(static_cast<int64_t>(seeds.size()), 0));
  test->notes.push_back(absl::StrCat("diverged runs count as worst: exact sign test over all ", seeds.size(),
                                     " seeds, whose smallest reachable two-sided p is ", smallest));
  return absl::OkStatus();
}

absl::Status TestMeans(const v1::ClaimSpec& claim, ClaimTest* test) {
  if (!test->main.sem.has_value()) return absl::OkStatus();
  if (claim.kind() == v1::DIFFERS) {
    ABLATE_ASSIGN_OR_RETURN(test->p, TwoSidedP(test->main));
  } else if (claim.kind() == v1::EQUIVALENT) {
    ABLATE_ASSIGN_OR_RETURN(const double above, PAbove(test->main, -claim.margin()));
    ABLATE_ASSIGN_OR_RETURN(const double below, PBelow(test->main, claim.margin()));
    test->p = std::max(above, below);
  } else if ((test->at_short->sem.has_value() || test->same_at_short) && test->at_long->sem.has_value()) {
    ABLATE_ASSIGN_OR_RETURN(const double less, DirectedP(test->main, -1));
    double no_worse = 0;  // with equal values nothing is left to test
    if (!test->same_at_short) {
      ABLATE_ASSIGN_OR_RETURN(no_worse, PBelow(*test->at_short, claim.margin()));
    }
    ABLATE_ASSIGN_OR_RETURN(const double lower, DirectedP(*test->at_long, -1));
    test->p = std::max({less, no_worse, lower});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Contrast> ContrastOf(std::span<const double> arm, std::span<const double> baseline, int64_t n0) {
  ABLATE_ASSIGN_OR_RETURN(const PairedDifference all, Paired(arm, baseline));
  if (n0 <= 0 || all.n <= n0) return FromPairs(all);
  ABLATE_ASSIGN_OR_RETURN(const PairedDifference first, Paired(arm.first(n0), baseline.first(n0)));
  return WithFirstStage(all, first);
}

absl::StatusOr<Contrast> ContrastOfRises(std::span<const double> arm_short, std::span<const double> arm_long,
                                         std::span<const double> baseline_short, std::span<const double> baseline_long,
                                         int64_t n0) {
  ABLATE_ASSIGN_OR_RETURN(const PairedDifference all,
                          DifferenceInDifferences(arm_short, arm_long, baseline_short, baseline_long));
  if (n0 <= 0 || all.n <= n0) return FromPairs(all);
  ABLATE_ASSIGN_OR_RETURN(const PairedDifference first,
                          DifferenceInDifferences(arm_short.first(n0), arm_long.first(n0), baseline_short.first(n0),
                                                  baseline_long.first(n0)));
  return WithFirstStage(all, first);
}

absl::StatusOr<double> TwoSidedP(const Contrast& contrast) {
  ABLATE_RETURN_IF_ERROR(CheckTest(contrast));
  ABLATE_ASSIGN_OR_RETURN(const double tail, StudentUpperTail(contrast.df, std::abs(contrast.mean) / *contrast.sem));
  return std::min(1.0, 2 * tail);
}

absl::StatusOr<double> PBelow(const Contrast& contrast, double bound) {
  ABLATE_RETURN_IF_ERROR(CheckTest(contrast));
  return StudentUpperTail(contrast.df, (bound - contrast.mean) / *contrast.sem);
}

absl::StatusOr<double> PAbove(const Contrast& contrast, double bound) {
  ABLATE_RETURN_IF_ERROR(CheckTest(contrast));
  return StudentUpperTail(contrast.df, (contrast.mean - bound) / *contrast.sem);
}

absl::StatusOr<Bounds> IntervalOf(const Contrast& contrast, double alpha) {
  ABLATE_RETURN_IF_ERROR(CheckTest(contrast));
  ABLATE_ASSIGN_OR_RETURN(const double critical, TCritical(contrast.df, 1 - alpha));
  return Bounds{contrast.mean - critical * *contrast.sem, contrast.mean + critical * *contrast.sem};
}

absl::StatusOr<ClaimTest> TestClaim(const v1::ClaimSpec& claim, std::span<const ClaimSeed> seeds, int64_t n0,
                                    bool higher_is_better) {
  ClaimTest test;
  std::vector<double> arm_long, baseline_long, arm_short, baseline_short;
  for (const ClaimSeed& seed : seeds) {
    if (seed.arm_diverged) test.arm_diverged.push_back(seed.seed);
    if (seed.baseline_diverged) test.baseline_diverged.push_back(seed.seed);
    if (seed.arm_diverged || seed.baseline_diverged) continue;
    arm_long.push_back(seed.arm_long);
    baseline_long.push_back(seed.baseline_long);
    arm_short.push_back(seed.arm_short);
    baseline_short.push_back(seed.baseline_short);
  }
  const bool diverged = arm_long.size() < seeds.size();
  // The first stage is seeds, not survivors: with a diverged run among them there is no Stein interval.
  const int64_t stage = diverged ? 0 : n0;
  const bool rises = claim.kind() == v1::RISES_LESS;
  if (!arm_long.empty() && rises) {
    ABLATE_ASSIGN_OR_RETURN(test.main, ContrastOfRises(arm_short, arm_long, baseline_short, baseline_long, stage));
    ABLATE_ASSIGN_OR_RETURN(test.at_short, ContrastOf(arm_short, baseline_short, stage));
    test.same_at_short = arm_short == baseline_short;
    if (test.same_at_short) test.notes.push_back("both arms have the same values at the short length");
    ABLATE_ASSIGN_OR_RETURN(test.at_long, ContrastOf(arm_long, baseline_long, stage));
  } else if (!arm_long.empty()) {
    ABLATE_ASSIGN_OR_RETURN(test.main, ContrastOf(arm_long, baseline_long, stage));
  } else {
    test.main.reason = seeds.empty() ? "no pairs" : "no complete pair: every one diverged";
  }
  test.method = claim.kind() == v1::DIFFERS ? "paired_t" : rises ? "intersection_union" : "tost";
  if (n0 > 0 && !diverged) test.method = "stein";
  if (diverged && claim.divergence_is_worst() && claim.kind() != v1::EQUIVALENT) {
    ABLATE_RETURN_IF_ERROR(SignTests(claim, seeds, higher_is_better, &test));
    return test;
  }
  if (diverged) {
    test.notes.push_back(claim.divergence_is_worst()
                             ? "diverged runs count as worst: a worst value is within no margin, so a sign test cannot "
                               "show an equivalence"
                             : "a run diverged: a claim about means is undecided");
    return test;
  }
  ABLATE_RETURN_IF_ERROR(TestMeans(claim, &test));
  return test;
}

absl::StatusOr<Decision> Decide(const v1::ClaimSpec& claim, ClaimTest& test, std::optional<double> p_adjusted,
                                double alpha, int64_t family) {
  if (!test.p.has_value()) return Decision::kUndecided;
  const bool sign_test = test.method == "sign_test";
  const double share = alpha / static_cast<double>(family);
  const bool significant = p_adjusted.has_value() && *p_adjusted < alpha;
  switch (claim.kind()) {
    case v1::DIFFERS: {
      const int points = sign_test ? (test.wins > test.losses ? -1 : 1) : (test.main.mean < 0 ? -1 : 1);
      if (significant) {
        return claim.direction() == 0 || claim.direction() == points ? Decision::kSupported
                                                                     : Decision::kRefutedOtherWay;
      }
      if (claim.margin() <= 0 || sign_test) return Decision::kUndecided;
      ABLATE_ASSIGN_OR_RETURN(const double above, PAbove(test.main, -claim.margin()));
      ABLATE_ASSIGN_OR_RETURN(const double below, PBelow(test.main, claim.margin()));
      if (!(std::max(above, below) < share)) return Decision::kUndecided;
      test.p_equivalent = std::max(above, below);
      return Decision::kRefutedEquivalent;
    }
    case v1::EQUIVALENT: {
      if (significant) return Decision::kSupported;
      ABLATE_ASSIGN_OR_RETURN(const Bounds bounds, IntervalOf(test.main, share));
      return bounds.low > claim.margin() || bounds.high < -claim.margin() ? Decision::kRefutedOutside
                                                                          : Decision::kUndecided;
    }
    case v1::RISES_LESS: {
      if (significant) return Decision::kSupported;
      if (sign_test) return Decision::kUndecided;
      // That one of three parts is false may be shown by any of them: a third of the error for each.
      ABLATE_ASSIGN_OR_RETURN(const double rises_more, DirectedP(test.main, 1));
      double worse = 1;
      if (!test.same_at_short) {
        ABLATE_ASSIGN_OR_RETURN(worse, PAbove(*test.at_short, claim.margin()));
      }
      ABLATE_ASSIGN_OR_RETURN(const double higher, DirectedP(*test.at_long, 1));
      test.rises_more = rises_more < share / 3;
      test.worse_at_short = worse < share / 3;
      test.higher_at_long = higher < share / 3;
      return test.rises_more || test.worse_at_short || test.higher_at_long ? Decision::kRefutedPart
                                                                           : Decision::kUndecided;
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat("claim ", claim.name(), " has no kind"));
  }
}

}  // namespace ablate
