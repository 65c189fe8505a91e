// See bootstrap.h.
#include "experiments/bootstrap.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

constexpr int64_t kFewLevels = 10;

// SplitMix64's mix of a counter (Steele, Lea and Flood 2014): a draw is a function of where it is used.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, n); the bias of the multiplication is below n / 2^64.
size_t Draw(uint64_t seed, uint64_t stream, uint64_t replicate, uint64_t index, size_t n) {
  const uint64_t bits = Mix(Mix(Mix(seed ^ stream) + replicate) + index);
  return static_cast<size_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

absl::Status Check(double level, const Resampling& resampling) {
  if (!(level > 0 && level < 1)) return absl::InvalidArgumentError("level must lie between 0 and 1");
  if (resampling.replicates < 99 || resampling.replicates > 1000000) {
    return absl::InvalidArgumentError(
        absl::StrCat("a bootstrap takes 99 to 1000000 replicates; got ", resampling.replicates));
  }
  return absl::OkStatus();
}

// The k-th smallest, k = (B + 1) probability, within the sample.
double AtProbability(const std::vector<double>& sorted, double probability) {
  const double place = std::round(static_cast<double>(sorted.size() + 1) * probability);
  const double last = static_cast<double>(sorted.size());
  return sorted[static_cast<size_t>(std::clamp(place, 1.0, last)) - 1];
}

absl::Status CheckDocuments(std::span<const ScoredDocuments> seeds) {
  if (seeds.empty() || seeds.front().targets.empty()) {
    return absl::InvalidArgumentError("no documents: a spread needs at least one seed and one document");
  }
  for (const ScoredDocuments& seed : seeds) {
    if (seed.loss_sums.size() != seed.targets.size() || seed.targets != seeds.front().targets) {
      return absl::InvalidArgumentError("every seed must score the same targets of the same documents");
    }
    for (size_t d = 0; d < seed.targets.size(); ++d) {
      if (!std::isfinite(seed.loss_sums[d]) || !std::isfinite(seed.targets[d]) || seed.targets[d] <= 0) {
        return absl::InvalidArgumentError(absl::StrCat("document ", d, " has no finite loss or no targets"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TwoWaySpread> SpreadBySeedAndDocument(std::span<const ScoredDocuments> seeds, double level,
                                                     const Resampling& resampling) {
  ABLATE_RETURN_IF_ERROR(Check(level, resampling));
  ABLATE_RETURN_IF_ERROR(CheckDocuments(seeds));
  const size_t n = seeds.size(), documents = seeds.front().targets.size();
  const std::vector<double>& targets = seeds.front().targets;
  std::vector<double> of_seeds(n, 0.0), of_documents(documents, 0.0);
  double all_targets = 0;
  for (const double count : targets) all_targets += count;
  for (size_t s = 0; s < n; ++s) {
    for (size_t d = 0; d < documents; ++d) {
      of_seeds[s] += seeds[s].loss_sums[d];
      of_documents[d] += seeds[s].loss_sums[d] / targets[d];
    }
    of_seeds[s] /= all_targets;
  }
  for (double& mean : of_documents) mean /= static_cast<double>(n);
  ABLATE_ASSIGN_OR_RETURN(const Summary over_seeds, Summarize(of_seeds, level));
  ABLATE_ASSIGN_OR_RETURN(const Summary over_documents, Summarize(of_documents, level));
  TwoWaySpread spread{.seeds = static_cast<int64_t>(n), .documents = static_cast<int64_t>(documents), .level = level};
  spread.mean = over_seeds.mean;
  spread.sd_seeds = over_seeds.sd;
  spread.sd_documents = over_documents.sd;
  if (n < 2 || documents < 2) {
    spread.reason = n < 2 ? "one seed only: nothing to resample" : "one document only: nothing to resample";
    return spread;
  }
  std::vector<double> means(static_cast<size_t>(resampling.replicates));
  std::vector<double> weights(documents);
  for (size_t r = 0; r < means.size(); ++r) {
    std::fill(weights.begin(), weights.end(), 0.0);
    for (size_t i = 0; i < documents; ++i) ++weights[Draw(resampling.seed, 2, r, i, documents)];
    double scored = 0;
    for (size_t d = 0; d < documents; ++d) scored += weights[d] * targets[d];
    double loss = 0;
    for (size_t i = 0; i < n; ++i) {
      const std::vector<double>& sums = seeds[Draw(resampling.seed, 1, r, i, n)].loss_sums;
      for (size_t d = 0; d < documents; ++d) loss += weights[d] * sums[d];
    }
    means[r] = loss / (static_cast<double>(n) * scored);
  }
  std::sort(means.begin(), means.end());
  if (!(means.back() > means.front())) {
    spread.reason = "no variance: all replicates are equal";
    return spread;
  }
  spread.low = AtProbability(means, (1 - level) / 2);
  spread.high = AtProbability(means, (1 + level) / 2);
  if (spread.seeds < kFewLevels || spread.documents < kFewLevels) {
    spread.note = absl::StrCat("approximate: ", n, " seeds and ", documents,
                               " documents; percentiles of fewer than 10 levels are too short (docs/simulations.md)");
  }
  return spread;
}

absl::StatusOr<BcaInterval> BcaMean(std::span<const double> values, double level, const Resampling& resampling) {
  ABLATE_RETURN_IF_ERROR(Check(level, resampling));
  if (values.size() < 10) {
    return absl::FailedPreconditionError(
        absl::StrCat("a BCa interval of ", values.size(), " values covers far less than it says: it needs 10 or more"));
  }
  ABLATE_ASSIGN_OR_RETURN(const Summary summary, Summarize(values, level));
  if (!summary.low.has_value()) return absl::InvalidArgumentError(summary.reason);
  const size_t n = values.size();
  std::vector<double> means(static_cast<size_t>(resampling.replicates));
  double below = 0;
  for (size_t r = 0; r < means.size(); ++r) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += values[Draw(resampling.seed, 3, r, i, n)];
    means[r] = sum / static_cast<double>(n);
    below += means[r] < summary.mean ? 1 : means[r] == summary.mean ? 0.5 : 0;
  }
  std::sort(means.begin(), means.end());
  const double share = std::clamp(below / static_cast<double>(means.size()), 0.5 / static_cast<double>(means.size()),
                                  1 - 0.5 / static_cast<double>(means.size()));
  ABLATE_ASSIGN_OR_RETURN(const double bias, NormalQuantile(share));
  // The jackknife of a mean: leaving one out moves it by (mean - x) / (n - 1).
  double cubes = 0, squares = 0;
  for (const double value : values) {
    const double deviation = value - summary.mean;
    squares += deviation * deviation;
    cubes += deviation * deviation * deviation;
  }
  const double acceleration = cubes / (6 * std::pow(squares, 1.5));
  const auto bound = [&](double probability) -> absl::StatusOr<double> {
    ABLATE_ASSIGN_OR_RETURN(const double z, NormalQuantile(probability));
    const double shifted = bias + (bias + z) / (1 - acceleration * (bias + z));
    return AtProbability(means, 0.5 * std::erfc(-shifted / std::sqrt(2.0)));
  };
  BcaInterval interval{.approximate = n < 30};
  ABLATE_ASSIGN_OR_RETURN(interval.low, bound((1 - level) / 2));
  ABLATE_ASSIGN_OR_RETURN(interval.high, bound((1 + level) / 2));
  return interval;
}

}  // namespace ablate
