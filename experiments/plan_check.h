// What planning asks of a sweep before it does any work; a spec may come from a client, without a file. Private to
// plan*.cc.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/resources.pb.h"

namespace ablate {

inline constexpr int64_t kMaxJobs = 3000000;    // stages and evaluations of one sweep
inline constexpr double kMaxLength = 16777216;  // tokens
inline constexpr int kMaxSwitches = 100;        // of one arm: its keys are made of all its segments, each time

// InvalidArgument as MakePlan; all that can be said of the spec without its arms.
absl::Status CheckSpec(const v1::SweepSpec& spec);

}  // namespace ablate
