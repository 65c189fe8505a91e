// What planning asks of a sweep before it does any work; a spec may come from a client, without a file. Private to
// plan*.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "experiments/sweep_places.h"
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

// InvalidArgument, with places: a task without its files, two entries that results could not tell apart, a task that does
// not fit the data, an option of another task or one that arms vary too, a loss or claims on data without text; eval.task
// as a setting.
absl::Status CheckTasks(const v1::SweepSpec& spec, const SweepPlaces& places);
// InvalidArgument: a task's made inputs do not fit the model's tokens or the length.
absl::Status CheckTaskFits(const v1::DataRef& data, const std::string& task, const ConfigView& measured, int64_t tokens);
// InvalidArgument: data.* settings of a training that do not fit the data's format. Not asked of the test executor.
absl::Status CheckDataAxes(const v1::DataRef& data, const v1::Configuration& canonical);

// Whether `config`, which `view` shows, has all values of `wanted`: defaults included; names that are no axes
// ("attention.p@100") as given.
bool HasValues(const v1::Configuration& config, const ConfigView& view, const v1::Configuration& wanted);

}  // namespace ablate
