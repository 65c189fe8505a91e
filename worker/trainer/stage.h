// Training from step to step: the loop, resuming, periodic checkpoints, divergence. Must not know the pipe or the
// server.
//
// Steps are counted from 1 in everything that is reported: "step 10" is the tenth, and a state at step 10 has ten
// behind it. A resumed stage gives the same bits as an undisturbed one: all that training depends on is in the files.
// Thread rule: one thread, the backend's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kernels/backend.h"
#include "worker/trainer/data_set.h"
#include "worker/trainer/model.h"
#include "worker/trainer/task.h"

namespace ablate {

namespace v1 {
class RunStage;
class TaskResult;
}  // namespace v1

inline constexpr int64_t kCurveInterval = 10;

struct StageOutcome {
  // Set: stopped there on request, and nothing more was done.
  std::optional<int64_t> stopped_at;
};

// Runs request.task on `data`. Fills outcome, diverged_at_step, metrics, end_state and resumed_from_step of `result`.
//   metrics, all of the whole training from step 0 on, so that where a stage was cut changes none: final_train_loss
//   (mean
//     of the last 20 steps), max_gradient_norm (before clipping), zero_rows, uncontrasted_rows, tokens.
//   points, every 10 steps and at the stage's last: train_loss (mean over the steps since the last multiple of 10),
//     gradient_norm (before clipping) and learning_rate (both of that step).
// A loss or a gradient norm that is not finite at step k: outcome DIVERGED, diverged_at_step k, no end state.
//
// Where it starts: the newest usable of the files of the request and this stage's checkpoints in checkpoint_dir; a
// damaged one is passed over for the one before, and with from_step 0 the last resort is the beginning.
//
// Errors: InvalidArgument: the configuration, the data or the state do not fit (says how); DataLoss, NotFound: no
// usable state to start from; Unavailable: the disk; ResourceExhausted: memory, before the first step; Internal: device
// fault.
absl::StatusOr<StageOutcome> RunStage(const v1::RunStage& request, DataSet* data, Backend* backend, Recompute recompute,
                                      const Clock& clock, TaskControl* control, v1::TaskResult* result);

}  // namespace ablate
