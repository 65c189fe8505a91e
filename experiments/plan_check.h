// What planning asks of a sweep before it does any work; a spec may come from a client, without a file. Private to
// plan*.cc.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/resources.pb.h"

namespace ablate {

class ConfigView;  // experiments/axes.h

inline constexpr int64_t kMaxJobs = 3000000;    // stages and evaluations of one sweep
inline constexpr double kMaxLength = 16777216;  // tokens
inline constexpr int kMaxSwitches = 100;        // of one arm: its keys are made of all its segments, each time

// InvalidArgument as MakePlan; all that can be said of the spec without its arms.
absl::Status CheckSpec(const v1::SweepSpec& spec);
// InvalidArgument: an arm's settings or switches, each by itself and against the axes of `spec`.
absl::Status CheckArm(const v1::SweepSpec& spec, const v1::ArmSpec& arm);

// Whether `config`, which `view` shows, has all values of `wanted`: defaults included; names that are no axes
// ("attention.p@100") as given.
bool HasValues(const v1::Configuration& config, const ConfigView& view, const v1::Configuration& wanted);

}  // namespace ablate
