// JudgeClaims: the family at each look that is complete. See progress.h.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/claims/confirmation.h"
#include "experiments/claims/contrast.h"
#include "experiments/claims/measured.h"
#include "experiments/claims/progress.h"
#include "experiments/claims/sentence.h"
#include "experiments/statistics.h"
#include "experiments/table.h"

namespace ablate {
namespace {

constexpr double kPower = 0.8;
constexpr double kSdConfidence = 0.8;

// What one look is judged by.
struct LookRules {
  int64_t seeds = 0;
  int number = 0;       // from 1; 0 without a schedule
  int of = 1;           // looks
  double alpha = 0.05;  // of this look
  int64_t family = 1;
  int stein_first = 0;
  bool last = true;  // no look can follow
};

Said SaidOf(const v1::SweepSpec& spec, const Plan& plan, const v1::ClaimSpec& claim, int arm, int baseline) {
  Said said{.level = 1 - AlphaOf(spec)};
  said.arm = plan.arms[arm].label;
  said.baseline = plan.arms[baseline].label;
  said.length = LengthTokens(claim.length(), plan.arms[arm].train_length);
  if (claim.kind() == v1::RISES_LESS)
    said.short_length = LengthTokens(claim.short_length(), plan.arms[arm].train_length);
  return said;
}

std::string CountOf(const std::vector<int64_t>& seeds, int64_t of, const std::string& arm) {
  return absl::StrCat(seeds.size(), " of ", of, " runs of ", arm,
                      seeds.empty() ? "" : absl::StrCat(" (", SeedsText(seeds), ")"));
}

absl::Status AddDivergenceNote(const ClaimPairs& pairs, const ClaimTest& test, const Said& said, v1::ClaimRow* row) {
  if (test.arm_diverged.empty() && test.baseline_diverged.empty()) return absl::OkStatus();
  std::vector<int64_t> only_arm, only_baseline;
  for (const ClaimSeed& seed : pairs.seeds) {
    if (seed.arm_diverged && !seed.baseline_diverged) only_arm.push_back(seed.seed);
    if (seed.baseline_diverged && !seed.arm_diverged) only_baseline.push_back(seed.seed);
  }
  ABLATE_ASSIGN_OR_RETURN(
      const double p, McNemarExact(static_cast<int64_t>(only_arm.size()), static_cast<int64_t>(only_baseline.size())));
  const auto of = static_cast<int64_t>(pairs.seeds.size());
  row->add_notes(absl::StrCat(
      "diverged: ", CountOf(test.arm_diverged, of, said.arm), ", ", CountOf(test.baseline_diverged, of, said.baseline),
      "; rates of divergence: exact McNemar p ", FormatP(p), " (unadjusted). Means are over survivors only"));
  return absl::OkStatus();
}

// Interval, detectable difference and seeds: all from the spread of the pairs.
absl::Status AddSpread(const v1::SweepSpec& spec, const ClaimTest& test, const LookRules& rules, v1::ClaimRow* row) {
  const Contrast& main = test.main;
  if (main.n == 0) return absl::OkStatus();
  row->set_estimate(main.mean);
  if (!main.sem.has_value()) return absl::OkStatus();
  const double share = rules.alpha / static_cast<double>(rules.family);
  ABLATE_ASSIGN_OR_RETURN(const Bounds plain, IntervalOf(main, AlphaOf(spec)));
  ABLATE_ASSIGN_OR_RETURN(const Bounds wide, IntervalOf(main, share));
  row->set_low(plain.low);
  row->set_high(plain.high);
  row->set_family_low(wide.low);
  row->set_family_high(wide.high);
  ABLATE_ASSIGN_OR_RETURN(const double sd, SdUpperLimit(*main.sd, main.df + 1, kSdConfidence));
  ABLATE_ASSIGN_OR_RETURN(const double detectable, SmallestDetectable(main.n, share, kPower, main.df));
  row->set_smallest_detectable(detectable * sd);
  const v1::ClaimSpec& claim = row->claim();
  std::optional<int64_t> seeds;
  if (claim.kind() == v1::EQUIVALENT) {
    ABLATE_ASSIGN_OR_RETURN(seeds, SeedsToShowEquivalence(claim.margin() / sd, share, kPower));
  } else if (claim.smallest_effect() > 0) {
    ABLATE_ASSIGN_OR_RETURN(seeds, SeedsToDetect(claim.smallest_effect() / sd, share, kPower));
  } else {
    return absl::OkStatus();
  }
  if (seeds.has_value()) {
    row->set_seeds_to_decide(static_cast<int32_t>(*seeds));
  } else {
    row->add_notes("more than 10000 seeds would be needed to decide it");
  }
  return absl::OkStatus();
}

void AddStanding(const v1::SweepSpec& spec, const ClaimsHistory& history, const std::string& seen, v1::ClaimRow* row) {
  std::vector<std::string> standing;
  if (!seen.empty()) {
    standing.push_back(absl::StrCat("exploratory: seen in job ", seen));
  } else if (spec.confirm().reuse_seeds()) {
    standing.push_back("conditional on the selected checkpoints");
  } else {
    standing.push_back("confirmatory");
  }
  if (history.lock.has_value() && history.lock->by_hand()) {
    const std::string deviation = absl::StrCat("locked by hand: ", history.lock->why());
    if (row->claim().selected_arm()) {
      standing.push_back(absl::StrCat("deviation: ", deviation));
    } else {
      row->add_notes(absl::StrCat("deviation of the sweep, not of this claim's arms: ", deviation));
    }
  }
  row->set_standing(absl::StrJoin(standing, "; "));
}

struct Judged {
  v1::ClaimRow row;
  bool decided = false;
};

// The whole family at one look. Claims with missing pairs have no p, and count as p = 1.
absl::StatusOr<std::vector<Judged>> JudgeLook(const v1::SweepSpec& spec, const Plan& plan, const ClaimsHistory& history,
                                              const std::vector<ClaimPairs>& family, const LookRules& rules,
                                              const std::vector<std::string>& seen) {
  std::vector<ClaimTest> tests;
  std::vector<double> p_values;
  for (int i = 0; i < spec.claims_size(); ++i) {
    const v1::ClaimSpec& claim = spec.claims(i);
    ABLATE_ASSIGN_OR_RETURN(ClaimTest test,
                            TestClaim(claim, family[i].seeds, family[i].missing.empty() ? rules.stein_first : 0,
                                      HigherIsBetter(claim.metric())));
    if (!family[i].missing.empty()) {
      test.p.reset();
      test.main.reason = "pairs are missing";
    }
    p_values.push_back(test.p.value_or(1.0));
    tests.push_back(std::move(test));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::vector<double> adjusted, Holm(p_values));
  std::vector<Judged> judged;
  for (int i = 0; i < spec.claims_size(); ++i) {
    const v1::ClaimSpec& claim = spec.claims(i);
    const ClaimPairs& pairs = family[i];
    ClaimTest& test = tests[i];
    const Said said = SaidOf(spec, plan, claim, pairs.arm, pairs.baseline);
    v1::ClaimRow row;
    *row.mutable_claim() = claim;
    row.set_arm_json(plan.arms[pairs.arm].json);
    row.set_baseline_json(plan.arms[pairs.baseline].json);
    row.set_n(static_cast<int32_t>(test.main.n));
    row.set_look(rules.number);
    row.set_alpha(rules.alpha);
    row.set_method(test.method);
    for (const ClaimSeed& seed : pairs.seeds) {
      const bool used = test.method == "sign_test" || !(seed.arm_diverged || seed.baseline_diverged);
      if (used) row.add_seeds(seed.seed);
    }
    for (const std::string& job : pairs.job_ids) row.add_job_ids(job);
    if (test.p.has_value()) {
      row.set_p(*test.p);
      row.set_p_adjusted(adjusted[i]);
    }
    ABLATE_RETURN_IF_ERROR(AddSpread(spec, test, rules, &row));
    ABLATE_ASSIGN_OR_RETURN(
        const Decision decision,
        Decide(claim, test, test.p.has_value() ? std::optional(adjusted[i]) : std::nullopt, rules.alpha, rules.family));
    row.set_verdict(decision == Decision::kSupported   ? v1::SUPPORTED
                    : decision == Decision::kUndecided ? v1::UNDECIDED
                                                       : v1::REFUTED);
    row.set_sentence(VerdictSentence(row, test, decision, said));
    if (!pairs.missing.empty()) {
      row.add_notes(absl::StrCat(
          "incomplete: ", pairs.missing.size(), " of ", pairs.missing.size() + pairs.seeds.size(), " pairs missing (",
          SeedsText(pairs.missing), "): no p; retry the runs that failed, they are never dropped"));
    }
    ABLATE_RETURN_IF_ERROR(AddDivergenceNote(pairs, test, said, &row));
    for (const std::string& note : test.notes) row.add_notes(note);
    if (decision == Decision::kSupported && claim.kind() == v1::DIFFERS && claim.margin() > 0 &&
        std::abs(row.estimate()) < claim.margin() && test.method != "sign_test") {
      row.add_notes(absl::StrCat("the difference is significant, and smaller than the margin of ",
                                 ShortestDouble(claim.margin())));
    }
    const int wanted = claim.main() ? 8 : 5;
    if (rules.seeds < wanted) {
      row.add_notes(
          absl::StrCat("fewer than the ", wanted, " seeds that a ", claim.main() ? "main " : "", "claim needs"));
    }
    if (rules.of > 1) {
      const bool open = row.verdict() == v1::UNDECIDED && !rules.last;
      row.add_notes(absl::StrCat("look ", rules.number, " of ", rules.of, ", at ", rules.seeds, " seeds, at alpha / ",
                                 rules.of, open ? "; the next look adds seeds" : ""));
    }
    AddStanding(spec, history, seen[i], &row);
    const bool decided = row.verdict() != v1::UNDECIDED;
    judged.push_back({std::move(row), decided});
  }
  return judged;
}

v1::ClaimRow NotYet(const v1::SweepSpec& spec, const ClaimsHistory& history, const v1::ClaimSpec& claim,
                    const std::string& seen, const std::string& why) {
  v1::ClaimRow row;
  *row.mutable_claim() = claim;
  row.set_verdict(v1::NOT_YET);
  row.set_sentence(absl::StrCat("Not judged yet: ", why, "."));
  AddStanding(spec, history, seen, &row);
  return row;
}

}  // namespace

absl::StatusOr<std::vector<v1::ClaimRow>> JudgeClaims(const v1::SweepSpec& spec, const Plan& plan,
                                                      const ClaimsHistory& history,
                                                      std::span<const Measurement> measurements,
                                                      const std::vector<std::pair<std::string, std::string>>& seen) {
  std::vector<std::string> seen_in(spec.claims_size());
  for (int i = 0; i < spec.claims_size(); ++i) {
    for (const auto& [claim, job] : seen) {
      if (claim == spec.claims(i).name()) seen_in[i] = job;
    }
  }
  std::vector<v1::ClaimRow> rows;
  const auto none = [&](const std::string& why) {
    rows.clear();
    for (int i = 0; i < spec.claims_size(); ++i) rows.push_back(NotYet(spec, history, spec.claims(i), seen_in[i], why));
  };
  if (spec.claims().empty()) return rows;
  if (!history.lock.has_value()) {
    none(history.over        ? "the sweep is over without a lock"
         : spec.has_select() ? "the confirming runs are sealed until the selection is locked"
                             : "the confirming runs are not done");
    return rows;
  }
  int locked = -1;
  if (!history.lock->arm_json().empty()) {
    ABLATE_ASSIGN_OR_RETURN(locked, ArmOfJson(plan, history.lock->arm_json()));
  }
  ABLATE_ASSIGN_OR_RETURN(const Measured measured, Measured::Make(plan, measurements));
  ABLATE_ASSIGN_OR_RETURN(const Progress progress, ScheduleOf(spec, plan, locked, measured));
  const std::vector<int>& looks = progress.schedule.looks;

  std::vector<Judged> judged;
  std::string waiting = "the confirming runs are not done";
  for (size_t k = 0; k < looks.size(); ++k) {
    // The last one that was let go is shown as it is when nothing more will come.
    const bool let_go = looks[k] <= history.confirming_seeds;
    const bool final_rest = history.over && judged.empty() && k == 0;
    if (!let_go && !final_rest) break;
    const int seeds = let_go ? looks[k] : std::max(0, std::min(history.confirming_seeds, looks[k]));
    LookRules rules{.seeds = seeds,
                    .number = looks.size() > 1 ? static_cast<int>(k) + 1 : 0,
                    .of = static_cast<int>(looks.size()),
                    .alpha = AlphaOf(spec) / static_cast<double>(looks.size()),
                    .family = spec.claims_size(),
                    .stein_first = progress.schedule.stein_first,
                    .last = history.over || k + 1 == looks.size()};
    std::vector<ClaimPairs> family;
    std::string missing;
    for (int i = 0; i < spec.claims_size(); ++i) {
      ABLATE_ASSIGN_OR_RETURN(ClaimPairs pairs, PairsOf(spec, plan, locked, i, seeds, measured));
      if (!pairs.missing.empty()) {
        absl::StrAppend(&missing, missing.empty() ? "" : "; ", "claim ", spec.claims(i).name(), ", ",
                        SeedsText(pairs.missing));
      }
      family.push_back(std::move(pairs));
    }
    const bool incomplete = !missing.empty() || progress.first_stage || !let_go;
    if (incomplete && !history.over) {
      if (!missing.empty()) waiting = absl::StrCat("runs are awaited: ", missing);
      break;
    }
    ABLATE_ASSIGN_OR_RETURN(std::vector<Judged> look, JudgeLook(spec, plan, history, family, rules, seen_in));
    if (judged.empty()) {
      judged = std::move(look);
    } else {
      for (size_t i = 0; i < judged.size(); ++i) {
        if (!judged[i].decided) judged[i] = std::move(look[i]);
      }
    }
  }
  if (judged.empty()) {
    none(waiting);
    return rows;
  }
  for (Judged& claim : judged) {
    if (!progress.schedule.note.empty()) claim.row.add_notes(progress.schedule.note);
    rows.push_back(std::move(claim.row));
  }
  return rows;
}

}  // namespace ablate
