// From measured values to the rows of the confidence table and of the comparison table. Pure functions.
// Must not know of SQL, gRPC, JSON or how rows are printed: the store makes Measurements, the CLI renders rows.
// Thread rule: pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/resources.pb.h"

namespace ablate {

// Canonical axis name -> value as JSON text (`"softmax"`, `15`). Holds the axes that tell the arms apart, but not
// those with a field of their own in Measurement (seed, length, split, NTK).
using ArmValues = std::map<std::string, std::string>;

enum class MeasurementStatus {
  kOk,
  kDiverged,  // a result: the run's loss or gradient norm, or this metric, stopped being finite
  kMissing,   // no result yet, or an infrastructure failure
};

// One metric value of one evaluation; at most one for each (sweep, arm, seed, metric, length, split, ntk, phase).
// A diverged or missing run need not be spelled out: an empty `metric` stands for every metric of that
// evaluation, and length_tokens = 0 with an empty `metric` for every evaluation of that (arm, seed), in `split`
// only when one is given. It is filled in for the cells (metric, length, split, ntk) that the arm has in that phase,
// or, where the arm has none, that its sweep has in it; a value that is there wins over it. kOk without a value, or
// with one that is not finite, counts as kDiverged (SQLite stores NaN as NULL).
struct Measurement {
  std::string sweep;
  ArmValues arm;
  int64_t seed = 0;
  std::string metric;
  int64_t length_tokens = 0;
  std::string split;
  bool ntk = false;
  std::optional<double> value;
  MeasurementStatus status = MeasurementStatus::kOk;
  std::string job_id;
  v1::Phase phase = v1::PLAIN;  // of the point that asked for it; rows of different phases are never mixed
};

struct TableOptions {
  double level = 0.95;
  std::vector<std::string> metrics;  // those shown, in this order; empty: all, by name
  std::vector<std::string> splits;   // those shown; empty: all
  // Those shown. A tuning run is one learning rate of an arm, an arm of its own: asked for where tuning is the subject.
  std::vector<v1::Phase> phases = {v1::PLAIN, v1::SELECTING, v1::CONFIRMING};
  // Arms in the order to show; arms not named follow in the order of their first measurement.
  std::vector<ArmValues> arm_order;
  // The one baseline arm: exactly its values, {} being the arm that sets nothing. Every other arm is compared with it.
  // Which arm that is, FindBaseline (experiments/plan.h) decides. Needed by ComparisonTable only.
  std::optional<ArmValues> baseline;
};

// Mean over seeds of one (sweep, arm, metric, length, split, ntk, phase).
struct ConfidenceRow {
  std::string sweep;
  ArmValues arm;
  std::string metric;
  int64_t length_tokens = 0;
  std::string split;
  bool ntk = false;
  v1::Phase phase = v1::PLAIN;

  int64_t n = 0;               // seeds in the mean
  std::optional<double> mean;  // empty at n = 0
  std::optional<double> sd;    // empty below n = 2
  std::optional<double> low;   // both or neither
  std::optional<double> high;
  double level = 0.95;
  std::string method = "student_t";
  std::string reason;  // why there is no interval; empty when there is one
  std::string note;    // "survivors only: 1 of 3 seeds diverged (seed 2)"; empty when every seed is in the mean

  std::vector<int64_t> seeds;        // in the mean, ascending
  std::vector<std::string> job_ids;  // job_ids[i] measured seeds[i]
  int64_t diverged = 0;              // = diverged_seeds.size()
  std::vector<int64_t> diverged_seeds;
  std::vector<std::string> diverged_job_ids;  // of diverged_seeds[i]
  // Seeds marked missing, and seeds that this arm has elsewhere in this split and phase but not here.
  std::vector<int64_t> missing_seeds;
};

// Arm minus baseline over the seeds that both have.
struct ComparisonRow {
  std::string sweep;
  ArmValues arm;
  ArmValues baseline;
  std::string metric;
  int64_t length_tokens = 0;
  std::string split;
  bool ntk = false;
  v1::Phase phase = v1::PLAIN;

  int64_t n = 0;                     // complete pairs
  std::optional<double> difference;  // empty at n = 0
  std::optional<double> sd;          // of the differences
  std::optional<double> low;
  std::optional<double> high;
  std::optional<double> p;           // raw, two-sided, paired t; empty where a run of either arm diverged
  std::optional<double> p_adjusted;  // Holm over family_size; empty where p is
  // Comparisons of this metric and phase in this sweep's table. Those without a p count (as p = 1): that they gave
  // none is known only afterwards.
  int64_t family_size = 0;
  double level = 0.95;
  std::string method = "paired_t";
  std::string reason;  // why there is no interval or no p; empty when both are there
  std::string note;    // "survivors only: 1 of 3 pairs diverged (seed 2)", "incomplete: ..."; else empty

  std::vector<int64_t> seeds;        // of the complete pairs, ascending
  std::vector<std::string> job_ids;  // job_ids[2 i] measured the arm at seeds[i], job_ids[2 i + 1] the baseline
  std::vector<std::string> diverged_job_ids;  // that diverged, of either arm, by seed
  std::vector<int64_t> diverged_seeds;        // diverged in either arm
  std::vector<int64_t> missing_seeds;         // one side missing, and neither diverged
};

// Both tables: sweeps in the order of their first measurement; within one, arms in their order, then metric,
// length, split, NTK off before on, phase. Apart from that order, the order of `measurements` changes no bit. What a
// row says of its own arm (and, in a comparison, of its baseline) depends on no other arm; p_adjusted and family_size
// alone do.
// A comparison has a row for every arm but the baseline, and every cell that the arm has, measured in the baseline or
// not. InvalidArgument: two measurements with the same key (both jobs are named), a level outside (0, 1), values whose
// statistics a double cannot hold; and for ComparisonTable no baseline given.
absl::StatusOr<std::vector<ConfidenceRow>> ConfidenceTable(std::span<const Measurement> measurements,
                                                           const TableOptions& options);
absl::StatusOr<std::vector<ComparisonRow>> ComparisonTable(std::span<const Measurement> measurements,
                                                           const TableOptions& options);

// ---- numbers in text, so that all tables agree ----

// Decimals that show `half_width` with `significant` digits, between 0 and 12: 0.0279 -> 4, 12.3 -> 1. A half-width
// of zero or below, or not finite, gives 4.
int DecimalsFor(double half_width, int significant = 3);
// "3.2213 ± 0.0279"; without an interval the mean alone; "-" without a mean. From 1e6 on "3.38e+13".
std::string FormatMeanInterval(std::optional<double> mean, std::optional<double> low, std::optional<double> high,
                               int decimals);
// "0.0312", "<0.0001", "-" where there is none.
std::string FormatP(std::optional<double> p);

}  // namespace ablate
