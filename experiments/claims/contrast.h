// One claim's numbers: what its pairs of seeds give, a mean with a standard error and degrees of freedom, and the
// tests on it. Must not know of specs, plans or families. Source: docs/statistics.md 2 and 3.
// Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/resources.pb.h"

namespace ablate {

// The mean of paired differences. With Stein's two stages the spread is that of the first n0 pairs, df = n0 - 1: by
// Stein (1945) mean / (s0 / sqrt(N)) is t_{n0-1} although N depends on s0. The same holds for every other normal
// difference of the same runs, its s0 taken from the same n0: given all first-stage deviations, on which alone N
// depends, the mean of all N is independent of them.
struct Contrast {
  int64_t n = 0;  // pairs
  double mean = 0;
  std::optional<double> sd;   // of the differences (Stein: of the first n0); empty at n = 1
  std::optional<double> sem;  // empty where there is no test: n = 1, no variance
  int64_t df = 0;
  std::string reason;  // why there is no test; empty when there is one
};

// Of arm - baseline; element s of both is the same seed. n0 = 0: no stages. InvalidArgument as Paired.
absl::StatusOr<Contrast> ContrastOf(std::span<const double> arm, std::span<const double> baseline, int64_t n0 = 0);
// Of (arm_long - arm_short) - (baseline_long - baseline_short).
absl::StatusOr<Contrast> ContrastOfRises(std::span<const double> arm_short, std::span<const double> arm_long,
                                         std::span<const double> baseline_short, std::span<const double> baseline_long,
                                         int64_t n0 = 0);

struct Bounds {
  double low = 0, high = 0;
};
// All four need a contrast with a test (`sem`).
absl::StatusOr<double> TwoSidedP(const Contrast& contrast);
absl::StatusOr<double> PBelow(const Contrast& contrast, double bound);  // one-sided, alternative: mean < bound
absl::StatusOr<double> PAbove(const Contrast& contrast, double bound);
absl::StatusOr<Bounds> IntervalOf(const Contrast& contrast, double alpha);  // at level 1 - alpha

// The values of one claim by seed. A diverged side holds no number.
struct ClaimSeed {
  int64_t seed = 0;
  // Of RISES_LESS also at the short length; else those are not looked at.
  double arm_long = 0, baseline_long = 0, arm_short = 0, baseline_short = 0;
  bool arm_diverged = false, baseline_diverged = false;
};

// A claim tested apart from its family.
struct ClaimTest {
  Contrast main;  // over the complete pairs: of the difference, or of the difference of rises
  std::optional<Contrast> at_short, at_long;  // of RISES_LESS
  bool same_at_short = false;  // by construction (arms that differ in eval.* only): not worse, without a test
  std::optional<double> p;     // as docs/statistics.md 3; empty: no test, or diverged runs without a rule for them
  std::string method;          // "paired_t", "tost", "intersection_union", "sign_test", "stein"
  std::vector<int64_t> arm_diverged, baseline_diverged;  // seeds, ascending
  int64_t wins = 0, losses = 0;  // of the sign test: seeds that speak for a lower, a higher arm (worst counted)
  // Set by Decide. Of RISES_LESS, which parts are shown to be the other way (each at a third of the share); of DIFFERS
  // within its margin, the p of TOST that showed it.
  bool rises_more = false, worse_at_short = false, higher_at_long = false;
  std::optional<double> p_equivalent;
  std::vector<std::string> notes;
};

// `higher_is_better`: a diverged run counts as worst by being the lowest then, not the highest. n0 as ContrastOf, of
// the seeds in the order given.
absl::StatusOr<ClaimTest> TestClaim(const v1::ClaimSpec& claim, std::span<const ClaimSeed> seeds, int64_t n0 = 0,
                                    bool higher_is_better = false);

enum class Decision {
  kSupported,
  kUndecided,
  kRefutedOtherWay,    // significant, in the other direction
  kRefutedEquivalent,  // of DIFFERS: within the margin
  kRefutedOutside,     // of EQUIVALENT: the Bonferroni interval lies outside the margin
  kRefutedPart,        // of RISES_LESS: one of its parts is significantly the other way
};

// `alpha` is one look's share; `p_adjusted` is Holm's over the family. Refutations that are not Holm's p in the other
// direction are tested at alpha / family (Bonferroni), of RISES_LESS each part at a third of that.
absl::StatusOr<Decision> Decide(const v1::ClaimSpec& claim, ClaimTest& test, std::optional<double> p_adjusted,
                                double alpha, int64_t family);

}  // namespace ablate
