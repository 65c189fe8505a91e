// Resampling: the two-way bootstrap over seeds and documents, and BCa for one sample.
// Free functions of numbers; must not know of sweeps, arms or how a result is shown. Random numbers are counter based:
// the same input, replicates and seed give the same bits on every machine, in any order of calls.
// Thread rule: pure functions, safe from any thread. InvalidArgument as in statistics.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

struct Resampling {
  // (replicates + 1) alpha / 2 should be whole, so that a bound is one order statistic (Efron & Tibshirani 1993, 13.3).
  int64_t replicates = 1999;
  uint64_t seed = 1;
};

// One seed's documents: element d of every seed is the same document, with the same targets.
struct ScoredDocuments {
  std::vector<double> loss_sums;  // nats
  std::vector<double> targets;    // above 0
};

struct TwoWaySpread {
  int64_t seeds = 0, documents = 0;
  double mean = 0;                     // over seeds of sum(loss_sums) / sum(targets)
  std::optional<double> sd_seeds;      // of the seeds' means; empty at one seed
  std::optional<double> sd_documents;  // of the documents' means over seeds, unweighted; empty at one document
  std::optional<double> low, high;     // percentile interval of the mean; both or neither
  double level = 0.95;
  std::string reason;  // why there is no interval; empty when there is one
  std::string note;    // "approximate" and why
};

// The pigeonhole bootstrap (Owen 2007, Annals of Applied Statistics 1, 386-411): seeds and documents are resampled with
// replacement, each by itself, and a cell counts as often as both. It does not underestimate the variance of a mean in
// a crossed design (its expectation is somewhat above), but percentiles of few levels are too short: with fewer than 10
// seeds or documents the note says so, and gives the count. Every seed needs the same documents.
absl::StatusOr<TwoWaySpread> SpreadBySeedAndDocument(std::span<const ScoredDocuments> seeds, double level = 0.95,
                                                     const Resampling& resampling = {});

struct BcaInterval {
  double low = 0, high = 0;
  bool approximate = false;  // n below 30
};

// BCa interval of a mean (Efron 1987). FailedPrecondition below n = 10, where it covers about 71 to 88 % (
// docs/statistics.md 1); InvalidArgument: no variance.
absl::StatusOr<BcaInterval> BcaMean(std::span<const double> values, double level = 0.95,
                                    const Resampling& resampling = {});

}  // namespace ablate
