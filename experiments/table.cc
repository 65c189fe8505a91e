// See table.h.
#include "experiments/table.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

// One place in a table, whatever the arm.
struct Cell {
  std::string metric;
  int64_t length_tokens = 0;
  std::string split;
  bool ntk = false;
  v1::Phase phase = v1::PLAIN;

  auto operator<=>(const Cell&) const = default;
};

struct Observation {
  std::optional<double> value;  // set exactly for kOk, and finite
  MeasurementStatus status = MeasurementStatus::kOk;
  std::string job_id;
};

using BySeed = std::map<int64_t, Observation>;

struct ArmData {
  ArmValues values;
  std::map<Cell, BySeed> cells;
  // Selection and confirmation have seeds of their own.
  std::map<std::pair<std::string, v1::Phase>, std::set<int64_t>> seeds;
  std::vector<const Measurement*> unspecified;  // diverged or missing, without a metric
};

struct SweepData {
  std::string name;
  std::vector<ArmData> arms;
};

std::string ArmText(const ArmValues& arm) {
  return absl::StrCat("{", absl::StrJoin(arm, ", ", absl::PairFormatter(": ")), "}");
}

std::string SeedsText(const std::vector<int64_t>& seeds) {
  return absl::StrCat(seeds.size() == 1 ? "seed " : "seeds ", absl::StrJoin(seeds, ", "));
}

// "2 of 3 pairs diverged (seeds 1, 4)".
std::string CountText(const std::vector<int64_t>& seeds, size_t of, const char* what, const char* fate) {
  return absl::StrCat(seeds.size(), " of ", of, " ", what, " ", fate, " (", SeedsText(seeds), ")");
}

template <typename T>
bool Shown(const std::vector<T>& filter, const T& name) {
  return filter.empty() || std::find(filter.begin(), filter.end(), name) != filter.end();
}

Observation Observe(const Measurement& measurement) {
  Observation observation{.status = measurement.status, .job_id = measurement.job_id};
  if (measurement.status != MeasurementStatus::kOk) return observation;
  if (measurement.value.has_value() && std::isfinite(*measurement.value)) {
    observation.value = measurement.value;
  } else {
    observation.status = MeasurementStatus::kDiverged;
  }
  return observation;
}

bool Covers(const Measurement& unspecified, const Cell& cell) {
  if (unspecified.phase != cell.phase) return false;
  if (unspecified.length_tokens == 0) return unspecified.split.empty() || unspecified.split == cell.split;
  return unspecified.length_tokens == cell.length_tokens && unspecified.split == cell.split &&
         unspecified.ntk == cell.ntk;
}

// Fills in runs recorded without a metric.
void Spread(SweepData& sweep) {
  std::set<Cell> of_sweep;
  for (const ArmData& arm : sweep.arms) {
    for (const auto& entry : arm.cells) of_sweep.insert(entry.first);
  }
  for (ArmData& arm : sweep.arms) {
    std::set<Cell> of_arm;
    for (const auto& entry : arm.cells) of_arm.insert(entry.first);
    for (const Measurement* run : arm.unspecified) {
      std::vector<Cell> targets;
      for (const std::set<Cell>* known : {&of_arm, &of_sweep}) {
        if (!targets.empty()) break;
        std::copy_if(known->begin(), known->end(), std::back_inserter(targets),
                     [&](const Cell& cell) { return Covers(*run, cell); });
      }
      // Nobody has a value here: a row without a metric still shows the seed.
      if (targets.empty()) targets.push_back({"", run->length_tokens, run->split, run->ntk, run->phase});
      for (const Cell& cell : targets) {
        const auto [place, added] = arm.cells[cell].emplace(run->seed, Observe(*run));
        // A missing evaluation of a run that diverged is no longer awaited.
        if (!added && place->second.status == MeasurementStatus::kMissing) place->second = Observe(*run);
      }
    }
    for (const auto& [cell, by_seed] : arm.cells) {
      std::set<int64_t>& seeds = arm.seeds[{cell.split, cell.phase}];
      for (const auto& entry : by_seed) seeds.insert(entry.first);
    }
  }
}

absl::StatusOr<std::vector<SweepData>> Group(std::span<const Measurement> measurements, const TableOptions& options) {
  std::vector<SweepData> sweeps;
  std::map<std::string, size_t> sweep_index;
  std::vector<std::map<ArmValues, size_t>> arm_index;
  for (const Measurement& measurement : measurements) {
    const auto [sweep_place, new_sweep] = sweep_index.emplace(measurement.sweep, sweeps.size());
    if (new_sweep) {
      sweeps.push_back({.name = measurement.sweep});
      arm_index.emplace_back();
    }
    SweepData& sweep = sweeps[sweep_place->second];
    const auto [arm_place, new_arm] = arm_index[sweep_place->second].emplace(measurement.arm, sweep.arms.size());
    if (new_arm) sweep.arms.push_back({.values = measurement.arm});
    ArmData& arm = sweep.arms[arm_place->second];
    if (measurement.metric.empty()) {
      if (measurement.status == MeasurementStatus::kOk) {
        return absl::InvalidArgumentError(absl::StrCat("a value without a metric: sweep ", measurement.sweep, ", arm ",
                                                       ArmText(measurement.arm), ", seed ", measurement.seed, ", job ",
                                                       measurement.job_id));
      }
      arm.unspecified.push_back(&measurement);
      continue;
    }
    const Cell cell{measurement.metric, measurement.length_tokens, measurement.split, measurement.ntk,
                    measurement.phase};
    const auto [place, added] = arm.cells[cell].emplace(measurement.seed, Observe(measurement));
    if (!added) {
      return absl::InvalidArgumentError(
          absl::StrCat("two measurements of one thing: sweep ", measurement.sweep, ", arm ", ArmText(measurement.arm),
                       ", seed ", measurement.seed, ", ", measurement.metric, " at ", measurement.length_tokens,
                       " tokens, split ", measurement.split, ", NTK ", measurement.ntk ? "on" : "off", ": jobs ",
                       place->second.job_id, " and ", measurement.job_id));
    }
  }
  std::map<ArmValues, size_t> place_in_order;
  for (const ArmValues& arm : options.arm_order) place_in_order.emplace(arm, place_in_order.size());
  const auto place_of = [&](const ArmData& arm) {
    const auto found = place_in_order.find(arm.values);
    return found == place_in_order.end() ? place_in_order.size() : found->second;
  };
  for (SweepData& sweep : sweeps) {
    // Diverged before missing, then by job: which record of a run is kept does not depend on the order of input.
    for (ArmData& arm : sweep.arms) {
      std::sort(arm.unspecified.begin(), arm.unspecified.end(), [](const Measurement* a, const Measurement* b) {
        return std::tie(a->seed, a->phase, a->status, a->job_id) < std::tie(b->seed, b->phase, b->status, b->job_id);
      });
    }
    Spread(sweep);
    std::stable_sort(sweep.arms.begin(), sweep.arms.end(),
                     [&](const ArmData& a, const ArmData& b) { return place_of(a) < place_of(b); });
  }
  return sweeps;
}

// The arm's cells to show, in the order to show them.
std::vector<const std::pair<const Cell, BySeed>*> ShownCells(const ArmData& arm, const TableOptions& options) {
  std::vector<const std::pair<const Cell, BySeed>*> cells;
  for (const auto& entry : arm.cells) {
    if (!Shown(options.phases, entry.first.phase)) continue;
    // A row without a metric reports lost runs, which no filter may hide.
    const bool metric = entry.first.metric.empty() || Shown(options.metrics, entry.first.metric);
    if (metric && (entry.first.metric.empty() || Shown(options.splits, entry.first.split))) cells.push_back(&entry);
  }
  const auto rank = [&](const Cell& cell) {
    return std::find(options.metrics.begin(), options.metrics.end(), cell.metric) - options.metrics.begin();
  };
  std::stable_sort(cells.begin(), cells.end(),
                   [&](const auto* a, const auto* b) { return rank(a->first) < rank(b->first); });
  return cells;
}

absl::StatusOr<ConfidenceRow> MakeRow(const SweepData& sweep, const ArmData& arm, const Cell& cell,
                                      const BySeed& by_seed, double level) {
  ConfidenceRow row{.sweep = sweep.name,
                    .arm = arm.values,
                    .metric = cell.metric,
                    .length_tokens = cell.length_tokens,
                    .split = cell.split,
                    .ntk = cell.ntk,
                    .phase = cell.phase,
                    .level = level};
  const std::set<int64_t>& all = arm.seeds.at({cell.split, cell.phase});
  std::vector<double> values;
  for (int64_t seed : all) {
    const auto found = by_seed.find(seed);
    if (found == by_seed.end() || found->second.status == MeasurementStatus::kMissing) {
      row.missing_seeds.push_back(seed);
    } else if (found->second.status == MeasurementStatus::kDiverged) {
      row.diverged_seeds.push_back(seed);
      row.diverged_job_ids.push_back(found->second.job_id);
    } else {
      row.seeds.push_back(seed);
      row.job_ids.push_back(found->second.job_id);
      values.push_back(*found->second.value);
    }
  }
  row.diverged = static_cast<int64_t>(row.diverged_seeds.size());
  std::vector<std::string> notes;
  if (!row.diverged_seeds.empty()) {
    notes.push_back(absl::StrCat("survivors only: ", CountText(row.diverged_seeds, all.size(), "seeds", "diverged")));
  }
  if (!row.missing_seeds.empty()) {
    notes.push_back(absl::StrCat("incomplete: ", CountText(row.missing_seeds, all.size(), "seeds", "missing")));
  }
  row.note = absl::StrJoin(notes, "; ");
  if (values.empty()) {
    row.reason = row.missing_seeds.empty() ? "no value: every seed diverged" : "no value yet";
    return row;
  }
  auto summary = Summarize(values, level);
  if (!summary.ok()) {
    return WithContext(summary.status(), absl::StrCat("sweep ", sweep.name, ", arm ", ArmText(arm.values), ", ",
                                                      cell.metric, " at ", cell.length_tokens, " tokens"));
  }
  row.n = summary->n;
  row.mean = summary->mean;
  row.sd = summary->sd;
  row.low = summary->low;
  row.high = summary->high;
  row.reason = summary->reason;
  return row;
}

absl::StatusOr<ComparisonRow> MakeComparison(const SweepData& sweep, const ArmData& arm, const ArmData& baseline,
                                             const Cell& cell, double level) {
  ComparisonRow row{.sweep = sweep.name,
                    .arm = arm.values,
                    .baseline = baseline.values,
                    .metric = cell.metric,
                    .length_tokens = cell.length_tokens,
                    .split = cell.split,
                    .ntk = cell.ntk,
                    .phase = cell.phase,
                    .level = level};
  const BySeed empty;
  const auto cell_of = [&](const ArmData& data) -> const BySeed& {
    const auto found = data.cells.find(cell);
    return found == data.cells.end() ? empty : found->second;
  };
  const BySeed& of_arm = cell_of(arm);
  const BySeed& of_baseline = cell_of(baseline);
  std::set<int64_t> all;
  for (const ArmData* side : {&arm, &baseline}) {
    const auto seeds = side->seeds.find({cell.split, cell.phase});
    if (seeds != side->seeds.end()) all.insert(seeds->second.begin(), seeds->second.end());
  }
  std::vector<double> arm_values, baseline_values;
  for (int64_t seed : all) {
    const auto a = of_arm.find(seed);
    const auto b = of_baseline.find(seed);
    const bool have_arm = a != of_arm.end(), have_baseline = b != of_baseline.end();
    const bool arm_diverged = have_arm && a->second.status == MeasurementStatus::kDiverged;
    const bool baseline_diverged = have_baseline && b->second.status == MeasurementStatus::kDiverged;
    if (arm_diverged || baseline_diverged) {
      row.diverged_seeds.push_back(seed);
      if (arm_diverged) row.diverged_job_ids.push_back(a->second.job_id);
      if (baseline_diverged) row.diverged_job_ids.push_back(b->second.job_id);
    } else if (!have_arm || !have_baseline || !a->second.value.has_value() || !b->second.value.has_value()) {
      row.missing_seeds.push_back(seed);
    } else {
      row.seeds.push_back(seed);
      row.job_ids.insert(row.job_ids.end(), {a->second.job_id, b->second.job_id});
      arm_values.push_back(*a->second.value);
      baseline_values.push_back(*b->second.value);
    }
  }
  std::vector<std::string> notes;
  if (!row.diverged_seeds.empty()) {
    notes.push_back(absl::StrCat("survivors only: ", CountText(row.diverged_seeds, all.size(), "pairs", "diverged")));
  }
  if (!row.missing_seeds.empty()) {
    notes.push_back(absl::StrCat("incomplete: ", CountText(row.missing_seeds, all.size(), "pairs", "missing")));
  }
  row.note = absl::StrJoin(notes, "; ");
  if (row.seeds.empty()) {
    row.reason = "no complete pair";
    return row;
  }
  auto paired = Paired(arm_values, baseline_values, level);
  if (!paired.ok()) {
    return WithContext(paired.status(), absl::StrCat("sweep ", sweep.name, ", arm ", ArmText(arm.values), " against ",
                                                     ArmText(baseline.values), ", ", cell.metric, " at ",
                                                     cell.length_tokens, " tokens"));
  }
  row.n = paired->n;
  row.difference = paired->mean_difference;
  row.sd = paired->sd_difference;
  row.low = paired->low;
  row.high = paired->high;
  row.reason = paired->reason;
  if (row.diverged_seeds.empty()) {
    row.p = paired->p_two_sided;
  } else if (row.reason.empty()) {
    row.reason = "no p: a run diverged, so a claim about means is undecided";
  }
  return row;
}

// Holm within each metric and phase of the rows from `first` on, which are one sweep's.
absl::Status AdjustFamilies(std::vector<ComparisonRow>& rows, size_t first) {
  std::map<std::pair<std::string, v1::Phase>, std::vector<size_t>> families;
  for (size_t i = first; i < rows.size(); ++i) families[{rows[i].metric, rows[i].phase}].push_back(i);
  for (const auto& [family, members] : families) {
    std::vector<double> p_values;
    for (size_t i : members) p_values.push_back(rows[i].p.value_or(1.0));
    ABLATE_ASSIGN_OR_RETURN(const std::vector<double> adjusted, Holm(p_values));
    for (size_t k = 0; k < members.size(); ++k) {
      ComparisonRow& row = rows[members[k]];
      row.family_size = static_cast<int64_t>(members.size());
      if (row.p.has_value()) row.p_adjusted = adjusted[k];
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ConfidenceRow>> ConfidenceTable(std::span<const Measurement> measurements,
                                                           const TableOptions& options) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<SweepData> sweeps, Group(measurements, options));
  std::vector<ConfidenceRow> rows;
  for (const SweepData& sweep : sweeps) {
    for (const ArmData& arm : sweep.arms) {
      for (const auto* entry : ShownCells(arm, options)) {
        ABLATE_ASSIGN_OR_RETURN(ConfidenceRow row, MakeRow(sweep, arm, entry->first, entry->second, options.level));
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

absl::StatusOr<std::vector<ComparisonRow>> ComparisonTable(std::span<const Measurement> measurements,
                                                           const TableOptions& options) {
  if (!options.baseline.has_value()) return absl::InvalidArgumentError("no baseline arm to compare with");
  ABLATE_ASSIGN_OR_RETURN(const std::vector<SweepData> sweeps, Group(measurements, options));
  std::vector<ComparisonRow> rows;
  for (const SweepData& sweep : sweeps) {
    const ArmData unmeasured{.values = *options.baseline};
    const ArmData* baseline = &unmeasured;
    for (const ArmData& arm : sweep.arms) {
      if (arm.values == *options.baseline) baseline = &arm;
    }
    const size_t first = rows.size();
    for (const ArmData& arm : sweep.arms) {
      if (&arm == baseline) continue;
      for (const auto* entry : ShownCells(arm, options)) {
        ABLATE_ASSIGN_OR_RETURN(ComparisonRow row, MakeComparison(sweep, arm, *baseline, entry->first, options.level));
        rows.push_back(std::move(row));
      }
    }
    ABLATE_RETURN_IF_ERROR(AdjustFamilies(rows, first));
  }
  return rows;
}

int DecimalsFor(double half_width, int significant) {
  if (!std::isfinite(half_width) || half_width <= 0) return 4;
  const int exponent = static_cast<int>(std::floor(std::log10(half_width)));
  return std::clamp(significant - 1 - exponent, 0, 12);
}

namespace {

// Seventeen digits before the point say nothing.
std::string Fixed(double value, int decimals) {
  return std::abs(value) >= 1e6 ? absl::StrFormat("%.3g", value) : absl::StrFormat("%.*f", decimals, value);
}

}  // namespace

std::string FormatMeanInterval(std::optional<double> mean, std::optional<double> low, std::optional<double> high,
                               int decimals) {
  if (!mean.has_value()) return "-";
  if (!low.has_value() || !high.has_value()) return Fixed(*mean, decimals);
  return absl::StrCat(Fixed(*mean, decimals), " ± ", Fixed((*high - *low) / 2, decimals));
}

std::string FormatP(std::optional<double> p) {
  if (!p.has_value()) return "-";
  if (*p < 0.0001) return "<0.0001";
  return absl::StrFormat("%.4f", *p);
}

}  // namespace ablate
