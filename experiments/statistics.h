// Statistics over seeds: intervals, paired differences, equivalence, adjustments, exact tests, sample sizes.
// Free functions of numbers; must not know of sweeps, arms, jobs or how a result is shown.
// Thread rule: pure functions, safe from any thread.
//
// Every function returns InvalidArgument for an input that is not finite, for a level, alpha or power outside
// (0, 1), for lengths that differ, and for results that a double cannot hold. No result is ever NaN or
// infinite: what does not exist (an interval from one value) is an empty optional, with the reason in words.
// Equal values are separate observations and are never merged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

// ---- one sample -----------------------------------------------------------------------------------------------

struct Summary {
  int64_t n = 0;
  double mean = 0;
  std::optional<double> sd;   // sample standard deviation, n - 1; empty at n = 1
  std::optional<double> sem;  // sd / sqrt(n); empty at n = 1
  std::optional<double> low;  // mean -+ t_{n-1, (1+level)/2} sem; both or neither
  std::optional<double> high;
  double level = 0.95;
  std::string reason;  // why there is no interval; empty when there is one
};

// Student's t interval (Student 1908; e.g. Casella & Berger, Statistical Inference, 2nd ed., 9.2.1). Variance in
// two passes. n = 1, or no variance beyond rounding (sd at most 4 epsilon max|x|): no interval, with the reason.
absl::StatusOr<Summary> Summarize(std::span<const double> values, double level = 0.95);

// t with P(|T_df| <= t) = level. df >= 1.
absl::StatusOr<double> TCritical(int64_t df, double level);

// P(T_df > t). df >= 1.
absl::StatusOr<double> StudentUpperTail(int64_t df, double t);

// z with P(Z <= z) = probability, in (0, 1).
absl::StatusOr<double> NormalQuantile(double probability);

// Upper confidence limit of a standard deviation from n normal values: sd sqrt((n-1) / chi2_{1-confidence, n-1})
// (Casella & Berger 9.2). n >= 2, sd >= 0.
absl::StatusOr<double> SdUpperLimit(double sd, int64_t n, double confidence = 0.8);

// ---- pairs ----------------------------------------------------------------------------------------------------

struct PairedDifference {
  int64_t n = 0;                        // pairs
  double mean_difference = 0;           // mean of arm - baseline
  std::optional<double> sd_difference;  // empty at n = 1
  std::optional<double> t;              // mean / (sd / sqrt(n)); with p, low and high: all or none
  int64_t df = 0;                       // n - 1
  std::optional<double> p_two_sided;
  std::optional<double> low;
  std::optional<double> high;
  std::optional<double> cohen_dz;  // mean / sd of the differences
  double level = 0.95;
  std::string reason;  // why there is no test; empty when there is one
};

// Paired t test on d_s = arm[s] - baseline[s]; element s of both is the same seed. No test at n = 1 or where the
// differences have no variance beyond the rounding of the values they come from.
absl::StatusOr<PairedDifference> Paired(std::span<const double> arm, std::span<const double> baseline,
                                        double level = 0.95);

// The same with the interval at level 1 - (1 - level) / family (Bonferroni: simultaneous over `family`
// comparisons). family >= 1.
absl::StatusOr<PairedDifference> BonferroniPaired(std::span<const double> arm, std::span<const double> baseline,
                                                  int64_t family, double level = 0.95);

// Paired t test on (arm_long - arm_short) - (baseline_long - baseline_short): how much more the arm rises.
absl::StatusOr<PairedDifference> DifferenceInDifferences(std::span<const double> arm_short,
                                                         std::span<const double> arm_long,
                                                         std::span<const double> baseline_short,
                                                         std::span<const double> baseline_long, double level = 0.95);

struct Equivalence {
  double margin = 0;
  double level = 0.9;       // of the interval: 1 - 2 alpha
  std::optional<double> p;  // the larger of the two one-sided p; empty where the pairs gave no test
  std::optional<double> low;
  std::optional<double> high;
  std::string reason;
};

// Two one-sided tests (Schuirmann 1987) that |difference| < margin: p <= alpha exactly when the 1 - 2 alpha
// interval lies inside the margin. margin > 0, alpha in (0, 0.5).
absl::StatusOr<Equivalence> Tost(const PairedDifference& difference, double margin, double alpha = 0.05);

// ---- families, rates, exact tests -----------------------------------------------------------------------------

// Holm's step-down adjusted p values (Holm 1979), in the order given: the running maximum of (m - rank) p, at
// most 1. Each p in [0, 1]; an empty family gives an empty result.
absl::StatusOr<std::vector<double>> Holm(std::span<const double> p_values);

struct RateInterval {
  double low = 0;
  double high = 0;
};

// Wilson's score interval of a binomial rate (Wilson 1927), within [0, 1]. trials >= 1, 0 <= successes <= trials.
absl::StatusOr<RateInterval> Wilson(int64_t successes, int64_t trials, double level = 0.95);

// Exact two-sided sign test: min(1, 2 P(Bin(wins + losses, 1/2) <= min(wins, losses))). Ties are left out by the
// caller; without any win or loss p = 1.
absl::StatusOr<double> SignTest(int64_t wins, int64_t losses);

// Exact McNemar test on the discordant pairs: events (divergences) in one arm only, against the other only. The
// sign test on these counts.
absl::StatusOr<double> McNemarExact(int64_t only_arm, int64_t only_baseline);

// ---- sample sizes ---------------------------------------------------------------------------------------------

// Smallest true difference, in standard deviations of the paired differences, that a two-sided paired t test at
// `alpha` finds with probability `power`: delta with P(|T'_{n-1}(delta sqrt n)| > t_{1-alpha/2, n-1}) = power,
// T' noncentral t. n >= 2, power > alpha. For a family pass alpha / family size.
// `df`: of the test, where it is not n - 1 (Stein: n0 - 1); 0: n - 1.
absl::StatusOr<double> SmallestDetectable(int64_t n, double alpha = 0.05, double power = 0.8, int64_t df = 0);

// Power of that test at a true difference of `effect` standard deviations; either sign.
absl::StatusOr<double> PairedPower(int64_t n, double effect, double alpha = 0.05);

// The smallest n at which that power is reached; empty: more than `maximum`. effect != 0, power > alpha. The effect is
// one that was declared, never one that was seen.
absl::StatusOr<std::optional<int64_t>> SeedsToDetect(double effect, double alpha = 0.05, double power = 0.8,
                                                     int64_t maximum = 10000);

// Power of TOST within +-margin (in standard deviations of the paired differences) where the true difference is 0:
// the integral of 2 Phi(margin sqrt n - t_{1-alpha, n-1} u) - 1, where it is positive, over the density of u = s /
// sigma (Phillips 1990; Owen's Q at a difference of 0). margin > 0, alpha in (0, 0.5).
absl::StatusOr<double> EquivalencePower(int64_t n, double margin, double alpha = 0.05);
// The smallest n at which that power is reached; empty: more than `maximum`.
absl::StatusOr<std::optional<int64_t>> SeedsToShowEquivalence(double margin, double alpha = 0.05, double power = 0.8,
                                                              int64_t maximum = 10000);

struct SteinPlan {
  int64_t n = 0;        // seeds in all
  bool capped = false;  // the maximum binds: the half-width will not be reached
};

// Stein's two stages (Stein 1945): seeds for a half-width, from the first n0 seeds' sd s0:
// min(maximum, max(n0, ceil((t_{n0-1} s0 / half_width)^2))). 2 <= n0 <= maximum, s0 >= 0, half_width > 0. The
// final interval is mean +- t_{n0-1} s0 / sqrt(n).
absl::StatusOr<SteinPlan> SteinSampleSize(int64_t n0, double s0, double half_width, int64_t maximum,
                                          double level = 0.95);

}  // namespace ablate
