// See tuning.h.
#include "experiments/claims/tuning.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

bool SameRate(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

// The rate becomes a setting: 12 digits, so that 0.003 * 3 is 0.009.
double Rounded(double rate) { return std::strtod(absl::StrFormat("%.12g", rate).c_str(), nullptr); }

// Index of the arm in the plan that tries this rate for `arm`; -1: not planned yet.
int TryArm(const Plan& plan, int arm, double rate) {
  for (size_t i = 0; i < plan.arms.size(); ++i) {
    if (plan.arms[i].tunes == arm && SameRate(plan.arms[i].learning_rate, rate)) return static_cast<int>(i);
  }
  return -1;
}

absl::Status Fill(const v1::SweepSpec& spec, const Plan& plan, int arm, const Measured& measured,
                  v1::TunedArm::Try* attempt, std::vector<int64_t>* missing) {
  attempt->clear_mean();
  attempt->clear_job_ids();
  attempt->set_diverged(0);
  const int index = TryArm(plan, arm, attempt->learning_rate());
  std::vector<double> values;
  for (const int64_t seed : spec.tune().seeds()) {
    Found found;
    if (index >= 0) {
      const std::string metric = spec.tune().metric().empty() ? "loss_targets" : spec.tune().metric();
      found = measured.Find(index, seed, v1::TUNING,
                            CellOf(spec, plan.arms[index], metric, Multiple(1), "selection", false));
    }
    if (!found.job_id.empty()) attempt->add_job_ids(found.job_id);
    if (found.status == MeasurementStatus::kOk) {
      values.push_back(found.value);
    } else if (found.status == MeasurementStatus::kDiverged) {
      attempt->set_diverged(attempt->diverged() + 1);
    } else {
      missing->push_back(seed);
    }
  }
  if (attempt->diverged() > 0 || !missing->empty() || values.empty()) return absl::OkStatus();
  ABLATE_ASSIGN_OR_RETURN(const Summary summary, Summarize(values));
  attempt->set_mean(summary.mean);
  return absl::OkStatus();
}

// Ascending by rate.
std::vector<const v1::TunedArm::Try*> Sorted(const v1::TunedArm& tuned) {
  std::vector<const v1::TunedArm::Try*> sorted;
  for (const v1::TunedArm::Try& attempt : tuned.tries()) sorted.push_back(&attempt);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->learning_rate() < b->learning_rate(); });
  return sorted;
}

// Every try is measured: chooses a rate or adds one.
void ChooseOrExtend(const v1::TuningSpec& spec, v1::TunedArm* tuned) {
  const std::vector<const v1::TunedArm::Try*> sorted = Sorted(*tuned);
  const auto extensions = std::count_if(sorted.begin(), sorted.end(), [](const auto* t) { return t->extension(); });
  const v1::TunedArm::Try* best = nullptr;
  for (const auto* attempt : sorted) {
    if (attempt->has_mean() && (best == nullptr || attempt->mean() < best->mean())) best = attempt;
  }
  const size_t last = sorted.size() - 1;
  const bool all_diverged = best == nullptr;
  const bool low = all_diverged || best == sorted.front();
  const bool high = !all_diverged && best == sorted.back();
  const auto done = [&](double rate, std::string note) {
    tuned->set_learning_rate(rate);
    tuned->set_note(std::move(note));
  };
  std::string at_edge = "best at the grid's edge";
  if ((low || high) && sorted.size() > 1 && extensions < spec.max_extensions()) {
    const double edge = sorted[high ? last : 0]->learning_rate();
    const double inner = sorted[high ? last - 1 : 1]->learning_rate();
    const double next = std::min(Rounded(edge * (edge / inner)), FindAxis("train.learning_rate")->maximum);
    if (SameRate(next, edge) || next <= 0) {
      absl::StrAppend(&at_edge, ", which is that of the axis");
    } else {
      tuned->set_note(absl::StrCat(all_diverged ? "every rate diverged" : "best at the grid's edge", ": ",
                                   ShortestDouble(next), " added"));
      v1::TunedArm::Try* added = tuned->add_tries();
      added->set_learning_rate(next);
      added->set_extension(true);
      return;
    }
  }
  const std::string after =
      extensions == 0 ? "" : absl::StrCat(" after ", extensions, extensions == 1 ? " extension" : " extensions");
  if (all_diverged) {
    return done(sorted.front()->learning_rate(),
                absl::StrCat("every rate diverged", after, ": the smallest is used, as the least likely to"));
  }
  std::string note;
  if (low || high) note = absl::StrCat(at_edge, after);
  if (note.empty() && extensions > 0) note = absl::StrCat("best inside the grid", after);
  const auto diverged = std::count_if(sorted.begin(), sorted.end(), [](const auto* t) { return t->diverged() > 0; });
  if (diverged > 0) {
    absl::StrAppend(&note, note.empty() ? "" : "; ", diverged, " of ", sorted.size(),
                    " rates not eligible: a seed diverged");
  }
  done(best->learning_rate(), std::move(note));
}

}  // namespace

absl::StatusOr<TuningState> Tune(const v1::SweepSpec& spec, const Plan& plan, std::span<const v1::TunedArm> before,
                                 const Measured& measured) {
  std::map<std::string, const v1::TunedArm*> known;
  for (const v1::TunedArm& tuned : before) known[tuned.arm_json()] = &tuned;
  TuningState state;
  std::vector<std::string> waiting;
  int64_t missing_runs = 0, added = 0;
  for (const int arm : RealArms(plan)) {
    v1::TunedArm tuned;
    const auto found = known.find(plan.arms[arm].json);
    if (found != known.end()) tuned = *found->second;
    tuned.set_arm_json(plan.arms[arm].json);
    if (tuned.tries().empty()) {
      for (const double rate : spec.tune().learning_rates()) tuned.add_tries()->set_learning_rate(rate);
    }
    if (tuned.learning_rate() <= 0) {
      int64_t missing_here = 0;
      for (v1::TunedArm::Try& attempt : *tuned.mutable_tries()) {
        std::vector<int64_t> missing;
        ABLATE_RETURN_IF_ERROR(Fill(spec, plan, arm, measured, &attempt, &missing));
        if (missing.empty()) continue;
        missing_here += static_cast<int64_t>(missing.size());
        waiting.push_back(absl::StrCat(plan.arms[arm].label, " at ", ShortestDouble(attempt.learning_rate()), ", ",
                                       SeedsText(missing)));
      }
      missing_runs += missing_here;
      if (missing_here == 0 && !tuned.tries().empty()) {
        ChooseOrExtend(spec.tune(), &tuned);
        if (tuned.learning_rate() <= 0) ++added;
      }
    }
    state.arms.push_back(std::move(tuned));
  }
  state.done = std::all_of(state.arms.begin(), state.arms.end(), [](const auto& t) { return t.learning_rate() > 0; });
  if (missing_runs > 0) {
    constexpr size_t kShown = 4;
    std::string text = absl::StrCat(missing_runs, missing_runs == 1 ? " tuning run: " : " tuning runs: ");
    for (size_t i = 0; i < std::min(kShown, waiting.size()); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : "; ", waiting[i]);
    }
    state.waiting_for = waiting.size() > kShown ? text + "; ..." : text;
  } else if (added > 0) {
    state.waiting_for = absl::StrCat("tuning: ", added, added == 1 ? " arm was" : " arms were",
                                     " best at the grid's edge, and another learning rate is tried");
  }
  return state;
}

}  // namespace ablate
