// What can be said of a sweep's tuning, selection, confirmation and claims without its arms. Private to plan*.cc.
// The rules: docs/claims.md; source: docs/statistics.md, parts 3, 4 and 6.
#pragma once

#include "absl/status/status.h"
#include "experiments/sweep_places.h"
#include "proto/resources.pb.h"

namespace ablate {

inline constexpr int kMinClaimSeeds = 5, kMinMainClaimSeeds = 8;
inline constexpr int kMaxLooks = 4;

// InvalidArgument, with file:line:column where `places` has them: as docs/claims.md, "What is refused".
absl::Status CheckClaims(const v1::SweepSpec& spec, const SweepPlaces& places);

}  // namespace ablate
