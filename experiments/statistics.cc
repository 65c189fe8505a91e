// See statistics.h. The only file that includes Boost.Math: its distributions take seconds to compile.
#include "experiments/statistics.h"

#include <algorithm>
#include <array>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/tools/toms748_solve.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

namespace policies = boost::math::policies;
// Errors as values (NaN or infinity), which Finite() turns into a status: Boost's default throws.
using Quiet = policies::policy<
    policies::domain_error<policies::ignore_error>, policies::pole_error<policies::ignore_error>,
    policies::overflow_error<policies::ignore_error>, policies::evaluation_error<policies::ignore_error>,
    policies::rounding_error<policies::ignore_error>, policies::indeterminate_result_error<policies::ignore_error>>;
using StudentT = boost::math::students_t_distribution<double, Quiet>;
using NoncentralT = boost::math::non_central_t_distribution<double, Quiet>;
using ChiSquared = boost::math::chi_squared_distribution<double, Quiet>;
using Normal = boost::math::normal_distribution<double, Quiet>;
using Binomial = boost::math::binomial_distribution<double, Quiet>;

constexpr char kOneValue[] = "one value only: no estimate of the spread";
constexpr char kOnePair[] = "one pair only: no estimate of the spread";
constexpr char kNoVariance[] = "no variance: all values are equal";
constexpr char kNoPairedVariance[] = "no variance: all pairs differ by the same amount";

absl::StatusOr<double> Finite(double value, const char* what) {
  if (!std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is too large or too extreme for a double"));
  }
  return value;
}

// Strictly between 0 and 1; false for NaN.
absl::Status CheckFraction(double value, const char* what) {
  if (value > 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " must lie between 0 and 1, both excluded; it is ", value));
}

absl::Status CheckFinite(std::span<const double> values, const char* what) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, "[", i, "] is ", values[i], "; statistics take finite values only"));
    }
  }
  return absl::OkStatus();
}

double LargestMagnitude(std::span<const double> values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

struct Moments {
  double mean = 0;
  std::optional<double> sd;
};

// Two passes, in long double: its range keeps sums and squares of any doubles finite.
absl::StatusOr<Moments> TwoPass(std::span<const double> values) {
  const auto n = static_cast<long double>(values.size());
  long double sum = 0;
  for (double value : values) sum += value;
  const long double mean = sum / n;
  Moments moments;
  moments.mean = static_cast<double>(mean);
  if (values.size() < 2) return moments;
  long double squares = 0;
  long double rest = 0;
  for (double value : values) {
    const long double deviation = value - mean;
    squares += deviation * deviation;
    rest += deviation;
  }
  // The second term corrects for the rounding of the mean (Chan, Golub and LeVeque 1983, eq. 1.7).
  const long double variance = std::max(0.0L, (squares - rest * rest / n) / (n - 1));
  ABLATE_ASSIGN_OR_RETURN(moments.sd, Finite(static_cast<double>(std::sqrt(variance)), "the standard deviation"));
  return moments;
}

// Spread that rounding alone explains, for values computed from doubles of this magnitude.
double RoundingSd(double magnitude) { return 4 * std::numeric_limits<double>::epsilon() * magnitude; }

double UpperTail(double df, double t) { return boost::math::cdf(boost::math::complement(StudentT(df), t)); }

// t with P(|T_df| > t) = alpha.
absl::StatusOr<double> TwoSidedCritical(int64_t df, double alpha) {
  if (df < 1) return absl::InvalidArgumentError(absl::StrCat("degrees of freedom must be at least 1; got ", df));
  // A curve asks for the same one at every step, and it takes as long as all else. The same bits, only sooner.
  struct Known {
    int64_t df = 0;
    double alpha = 0, t = 0;
  };
  thread_local std::array<Known, 64> table;
  Known& known = table[static_cast<size_t>(df) % table.size()];
  if (known.df == df && known.alpha == alpha) return known.t;
  ABLATE_ASSIGN_OR_RETURN(
      const double t,
      Finite(boost::math::quantile(boost::math::complement(StudentT(static_cast<double>(df)), alpha / 2)), "the t quantile"));
  known = {df, alpha, t};
  return t;
}

struct Bounds {
  double low = 0;
  double high = 0;
};

absl::StatusOr<Bounds> Around(double centre, double half_width) {
  ABLATE_ASSIGN_OR_RETURN(const double low, Finite(centre - half_width, "the lower bound"));
  ABLATE_ASSIGN_OR_RETURN(const double high, Finite(centre + half_width, "the upper bound"));
  return Bounds{low, high};
}

// `magnitude`: the largest absolute value of what the differences were computed from. `alpha` is passed apart from
// `level` because 1 - level would lose digits for a large family.
absl::StatusOr<PairedDifference> TestDifferences(std::span<const double> differences, double magnitude, double alpha,
                                                 double level) {
  if (differences.empty()) return absl::InvalidArgumentError("no pairs: a paired difference needs at least one");
  ABLATE_RETURN_IF_ERROR(CheckFinite(differences, "difference"));
  ABLATE_ASSIGN_OR_RETURN(const Moments moments, TwoPass(differences));
  PairedDifference result;
  result.n = static_cast<int64_t>(differences.size());
  result.df = result.n - 1;
  result.level = level;
  result.mean_difference = moments.mean;
  result.sd_difference = moments.sd;
  if (result.n < 2) {
    result.reason = kOnePair;
    return result;
  }
  const double sd = *moments.sd;
  if (sd <= RoundingSd(magnitude)) {
    result.sd_difference = 0;
    result.reason = kNoPairedVariance;
    return result;
  }
  const double sem = sd / std::sqrt(static_cast<double>(result.n));
  ABLATE_ASSIGN_OR_RETURN(const double critical, TwoSidedCritical(result.df, alpha));
  ABLATE_ASSIGN_OR_RETURN(const Bounds bounds, Around(moments.mean, critical * sem));
  ABLATE_ASSIGN_OR_RETURN(result.t, Finite(moments.mean / sem, "t"));
  ABLATE_ASSIGN_OR_RETURN(
      result.p_two_sided,
      Finite(std::min(1.0, 2 * UpperTail(static_cast<double>(result.df), std::abs(*result.t))), "p"));
  ABLATE_ASSIGN_OR_RETURN(result.cohen_dz, Finite(moments.mean / sd, "the effect size"));
  result.low = bounds.low;
  result.high = bounds.high;
  return result;
}

absl::StatusOr<PairedDifference> PairedAt(std::span<const double> arm, std::span<const double> baseline, double alpha,
                                          double level) {
  if (arm.size() != baseline.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pairs need as many arm values as baseline values; got ", arm.size(), " and ", baseline.size()));
  }
  ABLATE_RETURN_IF_ERROR(CheckFinite(arm, "arm"));
  ABLATE_RETURN_IF_ERROR(CheckFinite(baseline, "baseline"));
  std::vector<double> differences(arm.size());
  for (size_t i = 0; i < arm.size(); ++i) differences[i] = arm[i] - baseline[i];
  return TestDifferences(differences, std::max(LargestMagnitude(arm), LargestMagnitude(baseline)), alpha, level);
}

absl::Status CheckPower(double power, double alpha) {
  if (power > alpha) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("power (", power, ") must be above alpha (", alpha, "): no difference at all reaches alpha"));
}

// Of the two-sided t test with this critical value.
double PowerAt(double df, double noncentrality, double critical) {
  const NoncentralT t(df, noncentrality);
  return boost::math::cdf(boost::math::complement(t, critical)) + boost::math::cdf(t, -critical);
}

// The smallest n in [2, maximum] with power_at(n) >= power; empty: none. Power grows with n.
template <typename PowerOf>
absl::StatusOr<std::optional<int64_t>> SmallestN(int64_t maximum, double power, const PowerOf& power_at) {
  if (maximum < 2) return absl::InvalidArgumentError(absl::StrCat("a sample has at least 2 seeds; got ", maximum));
  int64_t low = 1;
  int64_t high = 2;
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const double reached, power_at(high));
    if (reached >= power) break;
    if (high >= maximum) return std::nullopt;
    low = high;
    high = std::min(2 * high, maximum);
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    ABLATE_ASSIGN_OR_RETURN(const double reached, power_at(middle));
    (reached >= power ? high : low) = middle;
  }
  return high;
}

}  // namespace

absl::StatusOr<Summary> Summarize(std::span<const double> values, double level) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(level, "level"));
  if (values.empty()) return absl::InvalidArgumentError("no values: a mean needs at least one");
  ABLATE_RETURN_IF_ERROR(CheckFinite(values, "value"));
  ABLATE_ASSIGN_OR_RETURN(const Moments moments, TwoPass(values));
  Summary summary;
  summary.n = static_cast<int64_t>(values.size());
  summary.level = level;
  summary.mean = moments.mean;
  summary.sd = moments.sd;
  if (summary.n < 2) {
    summary.reason = kOneValue;
    return summary;
  }
  if (*moments.sd <= RoundingSd(LargestMagnitude(values))) {
    summary.sd = 0;
    summary.sem = 0;
    summary.reason = kNoVariance;
    return summary;
  }
  summary.sem = *summary.sd / std::sqrt(static_cast<double>(summary.n));
  ABLATE_ASSIGN_OR_RETURN(const double critical, TCritical(summary.n - 1, level));
  ABLATE_ASSIGN_OR_RETURN(const Bounds bounds, Around(summary.mean, critical * *summary.sem));
  summary.low = bounds.low;
  summary.high = bounds.high;
  return summary;
}

absl::StatusOr<double> TCritical(int64_t df, double level) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(level, "level"));
  return TwoSidedCritical(df, 1 - level);
}

absl::StatusOr<double> StudentUpperTail(int64_t df, double t) {
  if (df < 1) return absl::InvalidArgumentError(absl::StrCat("degrees of freedom must be at least 1; got ", df));
  if (std::isnan(t)) return absl::InvalidArgumentError("t is not a number");
  if (std::isinf(t)) return t > 0 ? 0.0 : 1.0;
  return Finite(UpperTail(static_cast<double>(df), t), "p");
}

absl::StatusOr<double> NormalQuantile(double probability) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(probability, "probability"));
  return Finite(boost::math::quantile(Normal(), probability), "the normal quantile");
}

absl::StatusOr<double> SdUpperLimit(double sd, int64_t n, double confidence) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(confidence, "confidence"));
  if (n < 2) return absl::InvalidArgumentError(absl::StrCat("the limit of an sd needs n of at least 2; got ", n));
  if (!std::isfinite(sd) || sd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("sd must be finite and not negative; it is ", sd));
  }
  const double df = static_cast<double>(n - 1);
  const double chi2 = boost::math::quantile(boost::math::complement(ChiSquared(df), confidence));
  return Finite(sd * std::sqrt(df / chi2), "the upper limit of the sd");
}

absl::StatusOr<PairedDifference> Paired(std::span<const double> arm, std::span<const double> baseline, double level) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(level, "level"));
  return PairedAt(arm, baseline, 1 - level, level);
}

absl::StatusOr<PairedDifference> BonferroniPaired(std::span<const double> arm, std::span<const double> baseline,
                                                  int64_t family, double level) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(level, "level"));
  if (family < 1) return absl::InvalidArgumentError(absl::StrCat("a family has at least 1 member; got ", family));
  const double alpha = (1 - level) / static_cast<double>(family);
  return PairedAt(arm, baseline, alpha, 1 - alpha);
}

absl::StatusOr<PairedDifference> DifferenceInDifferences(std::span<const double> arm_short,
                                                         std::span<const double> arm_long,
                                                         std::span<const double> baseline_short,
                                                         std::span<const double> baseline_long, double level) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(level, "level"));
  const size_t n = arm_short.size();
  if (arm_long.size() != n || baseline_short.size() != n || baseline_long.size() != n) {
    return absl::InvalidArgumentError(absl::StrCat("a difference of rises needs four lists of the same length; got ", n,
                                                   ", ", arm_long.size(), ", ", baseline_short.size(), " and ",
                                                   baseline_long.size()));
  }
  ABLATE_RETURN_IF_ERROR(CheckFinite(arm_short, "arm_short"));
  ABLATE_RETURN_IF_ERROR(CheckFinite(arm_long, "arm_long"));
  ABLATE_RETURN_IF_ERROR(CheckFinite(baseline_short, "baseline_short"));
  ABLATE_RETURN_IF_ERROR(CheckFinite(baseline_long, "baseline_long"));
  std::vector<double> differences(n);
  for (size_t i = 0; i < n; ++i) {
    differences[i] = (arm_long[i] - arm_short[i]) - (baseline_long[i] - baseline_short[i]);
  }
  const double magnitude = std::max({LargestMagnitude(arm_short), LargestMagnitude(arm_long),
                                     LargestMagnitude(baseline_short), LargestMagnitude(baseline_long)});
  return TestDifferences(differences, magnitude, 1 - level, level);
}

absl::StatusOr<Equivalence> Tost(const PairedDifference& difference, double margin, double alpha) {
  if (!std::isfinite(margin) || margin <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("an equivalence margin must be above 0; it is ", margin));
  }
  if (!(alpha > 0 && alpha < 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat("alpha must lie between 0 and 0.5; it is ", alpha));
  }
  Equivalence result;
  result.margin = margin;
  result.level = 1 - 2 * alpha;
  if (!difference.t.has_value()) {
    result.reason = difference.reason.empty() ? kOnePair : difference.reason;
    return result;
  }
  ABLATE_ASSIGN_OR_RETURN(const double mean, Finite(difference.mean_difference, "the mean difference"));
  ABLATE_ASSIGN_OR_RETURN(const double sd, Finite(difference.sd_difference.value_or(0), "the sd of the differences"));
  if (sd <= 0 || difference.n < 2) {
    return absl::InvalidArgumentError("TOST takes the result of a paired test: n of at least 2 and an sd above 0");
  }
  const double df = static_cast<double>(difference.n - 1);
  const double sem = sd / std::sqrt(static_cast<double>(difference.n));
  ABLATE_ASSIGN_OR_RETURN(const double above_lower, Finite((mean + margin) / sem, "t at the lower margin"));
  ABLATE_ASSIGN_OR_RETURN(const double below_upper, Finite((margin - mean) / sem, "t at the upper margin"));
  ABLATE_ASSIGN_OR_RETURN(result.p, Finite(std::max(UpperTail(df, above_lower), UpperTail(df, below_upper)), "p"));
  ABLATE_ASSIGN_OR_RETURN(const double critical, TwoSidedCritical(difference.n - 1, 2 * alpha));
  ABLATE_ASSIGN_OR_RETURN(const Bounds bounds, Around(mean, critical * sem));
  result.low = bounds.low;
  result.high = bounds.high;
  return result;
}

absl::StatusOr<std::vector<double>> Holm(std::span<const double> p_values) {
  for (size_t i = 0; i < p_values.size(); ++i) {
    if (!(p_values[i] >= 0 && p_values[i] <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat("p[", i, "] is ", p_values[i], "; a p value lies in [0, 1]"));
    }
  }
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double running = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    running = std::max(running, static_cast<double>(order.size() - rank) * p_values[order[rank]]);
    adjusted[order[rank]] = std::min(1.0, running);
  }
  return adjusted;
}

absl::StatusOr<RateInterval> Wilson(int64_t successes, int64_t trials, double level) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(level, "level"));
  if (trials < 1 || successes < 0 || successes > trials) {
    return absl::InvalidArgumentError(
        absl::StrCat("a rate needs 0 <= successes <= trials and at least one trial; got ", successes, " of ", trials));
  }
  const double z = boost::math::quantile(boost::math::complement(Normal(), (1 - level) / 2));
  ABLATE_RETURN_IF_ERROR(Finite(z, "the normal quantile").status());
  const double n = static_cast<double>(trials);
  const double rate = static_cast<double>(successes) / n;
  const double shrink = 1 + z * z / n;
  const double centre = (rate + z * z / (2 * n)) / shrink;
  const double half_width = z * std::sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / shrink;
  RateInterval interval{std::max(0.0, centre - half_width), std::min(1.0, centre + half_width)};
  // Exact by algebra, but not by rounding.
  if (successes == 0) interval.low = 0;
  if (successes == trials) interval.high = 1;
  return interval;
}

absl::StatusOr<double> SignTest(int64_t wins, int64_t losses) {
  if (wins < 0 || losses < 0 || wins > (int64_t{1} << 52) || losses > (int64_t{1} << 52)) {
    return absl::InvalidArgumentError(
        absl::StrCat("counts of a sign test must not be negative; got ", wins, " and ", losses));
  }
  if (wins == losses) return 1.0;
  const double trials = static_cast<double>(wins + losses);
  const double fewer = static_cast<double>(std::min(wins, losses));
  return Finite(std::min(1.0, 2 * boost::math::cdf(Binomial(trials, 0.5), fewer)), "p");
}

absl::StatusOr<double> McNemarExact(int64_t only_arm, int64_t only_baseline) {
  return SignTest(only_arm, only_baseline);
}

absl::StatusOr<double> SmallestDetectable(int64_t n, double alpha, double power, int64_t of_test) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(alpha, "alpha"));
  ABLATE_RETURN_IF_ERROR(CheckFraction(power, "power"));
  if (n < 2) return absl::InvalidArgumentError(absl::StrCat("a paired test needs n of at least 2; got ", n));
  ABLATE_RETURN_IF_ERROR(CheckPower(power, alpha));
  if (of_test < 0) return absl::InvalidArgumentError(absl::StrCat("degrees of freedom below 0: ", of_test));
  if (of_test == 0) of_test = n - 1;
  const double df = static_cast<double>(of_test);
  ABLATE_ASSIGN_OR_RETURN(const double critical, TwoSidedCritical(of_test, alpha));
  double low = 0;
  double high = 1;
  while (PowerAt(df, high, critical) < power) {
    low = high;
    high *= 2;
    if (high > 1e12) return absl::InvalidArgumentError("the smallest detectable difference is too large for a double");
  }
  // Power grows with the noncentrality, so there is one root. The bracket ends at 2^-50 of it.
  std::uintmax_t steps = 100;
  const auto root = boost::math::tools::toms748_solve(
      [&](double noncentrality) { return PowerAt(df, noncentrality, critical) - power; }, low, high,
      boost::math::tools::eps_tolerance<double>(50), steps, Quiet());
  ABLATE_ASSIGN_OR_RETURN(high, Finite(root.second, "the smallest detectable difference"));
  return high / std::sqrt(static_cast<double>(n));
}

absl::StatusOr<double> PairedPower(int64_t n, double effect, double alpha) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(alpha, "alpha"));
  if (n < 2) return absl::InvalidArgumentError(absl::StrCat("a paired test needs n of at least 2; got ", n));
  if (!std::isfinite(effect)) return absl::InvalidArgumentError("an effect must be finite");
  const double noncentrality = std::abs(effect) * std::sqrt(static_cast<double>(n));
  ABLATE_ASSIGN_OR_RETURN(const double critical, TwoSidedCritical(n - 1, alpha));
  // Far above the critical value the noncentral series needs more terms than it is worth: the power is 1 to the bit.
  if (noncentrality > 40 + 40 * critical) return 1.0;
  ABLATE_ASSIGN_OR_RETURN(const double power,
                          Finite(PowerAt(static_cast<double>(n - 1), noncentrality, critical), "the power"));
  return std::clamp(power, 0.0, 1.0);
}

absl::StatusOr<std::optional<int64_t>> SeedsToDetect(double effect, double alpha, double power, int64_t maximum) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(alpha, "alpha"));
  ABLATE_RETURN_IF_ERROR(CheckFraction(power, "power"));
  ABLATE_RETURN_IF_ERROR(CheckPower(power, alpha));
  if (!std::isfinite(effect) || effect == 0) {
    return absl::InvalidArgumentError("seeds to decide need a declared effect that is not 0");
  }
  return SmallestN(maximum, power, [&](int64_t n) { return PairedPower(n, effect, alpha); });
}

absl::StatusOr<double> EquivalencePower(int64_t n, double margin, double alpha) {
  if (n < 2) return absl::InvalidArgumentError(absl::StrCat("a paired test needs n of at least 2; got ", n));
  if (!std::isfinite(margin) || margin <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("an equivalence margin must be above 0; it is ", margin));
  }
  if (!(alpha > 0 && alpha < 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat("alpha must lie between 0 and 0.5; it is ", alpha));
  }
  const double df = static_cast<double>(n - 1);
  ABLATE_ASSIGN_OR_RETURN(const double critical, TwoSidedCritical(n - 1, 2 * alpha));
  const double scaled = margin * std::sqrt(static_cast<double>(n));
  // u = sqrt(chi2_df / df): its density is 2 df u f(df u^2), f that of chi2_df. Beyond mean + 12 sd nothing is left.
  const double end = std::min(scaled / critical, 1 + 12 / std::sqrt(2 * df));
  const double log_norm = std::log(2 * df) - df / 2 * std::log(2.0) - std::lgamma(df / 2);
  const auto integrand = [&](double u) {
    if (u <= 0) return df == 1 ? std::exp(log_norm) / std::sqrt(df) * std::erf(scaled / std::sqrt(2.0)) : 0.0;
    const double x = df * u * u;
    const double density = std::exp(log_norm + std::log(u) + (df / 2 - 1) * std::log(x) - x / 2);
    return density * std::erf((scaled - critical * u) / std::sqrt(2.0));  // 2 Phi(z) - 1
  };
  constexpr int kIntervals = 2000;  // Simpson: the integrand is smooth, its width at least 1 / (12 * 2) of the range
  const double step = end / kIntervals;
  double sum = integrand(0) + integrand(end);
  for (int i = 1; i < kIntervals; ++i) sum += integrand(i * step) * (i % 2 == 1 ? 4 : 2);
  ABLATE_ASSIGN_OR_RETURN(const double power, Finite(sum * step / 3, "the power"));
  return std::clamp(power, 0.0, 1.0);
}

absl::StatusOr<std::optional<int64_t>> SeedsToShowEquivalence(double margin, double alpha, double power,
                                                              int64_t maximum) {
  ABLATE_RETURN_IF_ERROR(CheckFraction(power, "power"));
  return SmallestN(maximum, power, [&](int64_t n) { return EquivalencePower(n, margin, alpha); });
}

absl::StatusOr<SteinPlan> SteinSampleSize(int64_t n0, double s0, double half_width, int64_t maximum, double level) {
  if (n0 < 2 || maximum < n0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Stein's rule needs 2 <= n0 <= maximum; got n0 ", n0, " and maximum ", maximum));
  }
  if (!std::isfinite(s0) || s0 < 0 || !std::isfinite(half_width) || half_width <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Stein's rule needs a finite s0 >= 0 and half-width > 0; got ", s0, " and ", half_width));
  }
  ABLATE_ASSIGN_OR_RETURN(const double critical, TCritical(n0 - 1, level));
  const double ratio = critical * s0 / half_width;
  const double wanted = std::ceil(ratio * ratio);
  SteinPlan plan;
  // Compared as doubles: `wanted` may be infinite or beyond int64.
  plan.capped = wanted > static_cast<double>(maximum);
  plan.n = plan.capped ? maximum : std::max(n0, static_cast<int64_t>(wanted));
  return plan;
}

}  // namespace ablate
