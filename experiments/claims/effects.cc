// See effects.h.
#include "experiments/claims/effects.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/claims/claimed.h"
#include "experiments/claims/measured.h"
#include "experiments/factorial_design.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

// A contrast of the design's cells: the effect of one seed is the sum of weight times value.
struct EffectOfDesign {
  std::vector<int> factors, levels;  // one or two; the level that is compared with the first
  std::vector<double> weights;       // [i] of design.cells[i]
};

std::vector<EffectOfDesign> EffectsOf(const FactorialDesign& design) {
  const int factors = static_cast<int>(design.factors.size());
  // Whether cell c belongs to effect `e`, and with which sign.
  const auto weigh = [&](EffectOfDesign e) {
    double combinations = static_cast<double>(design.cells.size());
    for (const int f : e.factors) combinations /= static_cast<double>(design.factors[f].levels.size());
    for (const FactorialDesign::Cell& cell : design.cells) {
      double weight = 1 / combinations;
      for (size_t k = 0; k < e.factors.size(); ++k) {
        const int level = cell.levels[e.factors[k]];
        weight *= level == e.levels[k] ? 1 : level == 0 ? -1 : 0;
      }
      e.weights.push_back(weight);
    }
    return e;
  };
  std::vector<EffectOfDesign> effects;
  for (int f = 0; f < factors; ++f) {
    for (int a = 1; a < static_cast<int>(design.factors[f].levels.size()); ++a)
      effects.push_back(weigh({{f}, {a}, {}}));
  }
  for (int f = 0; f < factors; ++f) {
    for (int g = f + 1; g < factors; ++g) {
      for (int a = 1; a < static_cast<int>(design.factors[f].levels.size()); ++a) {
        for (int b = 1; b < static_cast<int>(design.factors[g].levels.size()); ++b) {
          effects.push_back(weigh({{f, g}, {a, b}, {}}));
        }
      }
    }
  }
  return effects;
}

// Every arm of the design at one seed.
struct SeedRun {
  std::vector<double> values;  // [i] of design.cells[i]
  bool diverged = false, missing = false;
};

}  // namespace

absl::StatusOr<std::vector<v1::EffectRow>> FactorialEffects(const v1::SweepSpec& spec, const Plan& plan,
                                                            std::span<const std::string> factors,
                                                            std::span<const std::string> metrics, double level,
                                                            std::span<const Measurement> measurements) {
  ABLATE_ASSIGN_OR_RETURN(const FactorialDesign design, FactorialDesignOf(spec, plan.arms, factors));
  const std::vector<EffectOfDesign> effects = EffectsOf(design);
  if (level == 0) level = 0.95;
  std::map<ArmValues, size_t> cell_of_arm;
  std::set<ArmValues> known;
  for (const Arm& arm : plan.arms) known.insert(ArmValuesOf(arm.values));
  for (size_t i = 0; i < design.cells.size(); ++i) {
    cell_of_arm[ArmValuesOf(plan.arms[design.cells[i].arm].values)] = i;
  }
  std::vector<Measurement> of_design;
  for (const Measurement& measurement : measurements) {
    if (measurement.phase == v1::TUNING) continue;
    if (!known.contains(measurement.arm)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a measurement of an arm that the plan does not have, job ", measurement.job_id));
    }
    if (cell_of_arm.contains(measurement.arm)) of_design.push_back(measurement);
  }
  // The table resolves records without a metric, and refuses what is there twice.
  TableOptions options{.level = level};
  options.metrics.assign(metrics.begin(), metrics.end());
  if (options.metrics.empty()) options.metrics = {"loss_targets"};
  ABLATE_ASSIGN_OR_RETURN(const std::vector<ConfidenceRow> rows, ConfidenceTable(of_design, options));
  ABLATE_ASSIGN_OR_RETURN(const Measured measured, Measured::Make(plan, of_design));

  // In the order of the tables: the first arm's cells, then what only later arms have.
  struct Place {
    MeasuredCell cell;
    v1::Phase phase;
    std::set<int64_t> seeds;
  };
  std::vector<Place> places;
  for (const ConfidenceRow& row : rows) {
    if (row.metric.empty()) continue;
    auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) {
      return p.cell.metric == row.metric && p.cell.length_tokens == row.length_tokens && p.cell.split == row.split &&
             p.cell.ntk == row.ntk && p.phase == row.phase;
    });
    if (place == places.end()) {
      places.push_back({{row.metric, row.length_tokens, row.split, row.ntk}, row.phase, {}});
      place = std::prev(places.end());
    }
    for (const auto* seeds : {&row.seeds, &row.diverged_seeds, &row.missing_seeds}) {
      place->seeds.insert(seeds->begin(), seeds->end());
    }
  }

  std::vector<v1::EffectRow> out;
  for (const Place& place : places) {
    std::map<int64_t, SeedRun> runs;
    std::vector<int64_t> complete, diverged, missing;
    std::vector<std::string> jobs;
    for (const int64_t seed : place.seeds) {
      SeedRun& run = runs[seed];
      std::vector<std::string> of_seed;
      for (const FactorialDesign::Cell& cell : design.cells) {
        const Found found = measured.Find(cell.arm, seed, place.phase, place.cell);
        run.values.push_back(found.value);
        run.diverged = run.diverged || found.status == MeasurementStatus::kDiverged;
        run.missing = run.missing || found.status == MeasurementStatus::kMissing;
        of_seed.push_back(found.job_id);
      }
      (run.diverged ? diverged : run.missing ? missing : complete).push_back(seed);
      if (!run.diverged && !run.missing) jobs.insert(jobs.end(), of_seed.begin(), of_seed.end());
    }
    // Of the arms of a design only some are confirmed: then that phase has no effects.
    if (complete.empty() && diverged.empty() && place.phase == v1::CONFIRMING) continue;
    std::vector<std::string> notes;
    if (!diverged.empty()) {
      notes.push_back(absl::StrCat("survivors only: ", diverged.size(), " of ", place.seeds.size(), " seeds diverged (",
                                   SeedsText(diverged), "); no p: a claim about means is undecided"));
    }
    if (!missing.empty()) {
      notes.push_back(absl::StrCat("incomplete: ", missing.size(), " of ", place.seeds.size(), " seeds missing (",
                                   SeedsText(missing), ")"));
    }
    const size_t first = out.size();
    std::vector<double> p_values;
    for (const EffectOfDesign& effect : effects) {
      v1::EffectRow row;
      for (size_t k = 0; k < effect.factors.size(); ++k) {
        const FactorialDesign::Factor& factor = design.factors[effect.factors[k]];
        row.add_factors(factor.name);
        row.add_levels(absl::StrCat(factor.levels[0], " -> ", factor.levels[effect.levels[k]]));
      }
      row.set_metric(place.cell.metric);
      row.set_length(place.cell.length_tokens);
      row.set_split(place.cell.split);
      row.set_ntk(place.cell.ntk);
      row.set_phase(place.phase);
      row.set_standing(place.phase == v1::CONFIRMING ? kNotClaimed : "exploratory");
      row.set_level(level);
      row.set_family_size(static_cast<int32_t>(effects.size()));
      row.set_n(static_cast<int32_t>(complete.size()));
      for (const int64_t seed : complete) row.add_seeds(seed);
      for (const std::string& job : jobs) row.add_job_ids(job);
      // The positive and the negative part, so that "no variance" is judged by the size of the values themselves.
      std::vector<double> plus, minus;
      for (const int64_t seed : complete) {
        const SeedRun& run = runs[seed];
        double up = 0, down = 0;
        for (size_t i = 0; i < run.values.size(); ++i) {
          (effect.weights[i] > 0 ? up : down) += std::abs(effect.weights[i]) * run.values[i];
        }
        plus.push_back(up);
        minus.push_back(down);
      }
      std::vector<std::string> row_notes = notes;
      if (complete.empty()) {
        row_notes.insert(row_notes.begin(), "no seed is complete");
      } else {
        ABLATE_ASSIGN_OR_RETURN(const PairedDifference paired, Paired(plus, minus, level));
        row.set_effect(paired.mean_difference);
        if (paired.sd_difference.has_value()) row.set_sd(*paired.sd_difference);
        if (paired.low.has_value()) row.set_low(*paired.low);
        if (paired.high.has_value()) row.set_high(*paired.high);
        if (paired.p_two_sided.has_value() && diverged.empty()) row.set_p(*paired.p_two_sided);
        if (!paired.reason.empty()) row_notes.insert(row_notes.begin(), paired.reason);
      }
      row.set_note(absl::StrJoin(row_notes, "; "));
      p_values.push_back(row.has_p() ? row.p() : 1.0);
      out.push_back(std::move(row));
    }
    ABLATE_ASSIGN_OR_RETURN(const std::vector<double> adjusted, Holm(p_values));
    for (size_t i = first; i < out.size(); ++i) {
      if (out[i].has_p()) out[i].set_p_adjusted(adjusted[i - first]);
    }
  }
  return out;
}

}  // namespace ablate
