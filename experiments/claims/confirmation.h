// The confirming runs as the claims see them: which pairs of seeds there are, when they are judged, how many are let
// go. Private to claims/. Source: docs/statistics.md 2 to 4. Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/claims/contrast.h"
#include "experiments/claims/measured.h"
#include "experiments/plan.h"
#include "proto/resources.pb.h"

namespace ablate {

struct ClaimPairs {
  int arm = 0, baseline = 0;     // of Plan::arms
  std::vector<ClaimSeed> seeds;  // that are not missing, in the order of use; diverged ones too
  std::vector<int64_t> missing;
  std::vector<std::string> job_ids;  // all behind the numbers, each once
};

// Of SweepSpec.claims(claim), over the first `seeds` of S2. `locked`: the arm that `selected` stands for; -1: nothing
// is selected.
absl::StatusOr<ClaimPairs> PairsOf(const v1::SweepSpec& spec, const Plan& plan, int locked, int claim, int seeds,
                                   const Measured& measured);

// The arms whose confirming runs are let go: the locked one, the baseline, the fixed ones (claims name no other).
// Ascending.
std::vector<int> ArmsLetGo(const Plan& plan, int locked);

// When so many of S2 are there, the claims are judged at alpha / looks.size().
struct Schedule {
  std::vector<int> looks;  // seeds, ascending; one look where the file declares none
  int stein_first = 0;     // n0; 0: no stages
  std::string note;        // of Stein's rule: how its number came about
};

// With Stein's stages, and the first of them complete, the one look is at Stein's N; before that at n0, with `first
// stage` true: nothing is judged then.
struct Progress {
  Schedule schedule;
  bool first_stage = false;
};
absl::StatusOr<Progress> ScheduleOf(const v1::SweepSpec& spec, const Plan& plan, int locked, const Measured& measured);

// A higher value is the better one: of `gain` only; the other metrics are losses.
bool HigherIsBetter(const std::string& metric);

}  // namespace ablate
