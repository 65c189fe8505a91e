// What the parts that do a task ask of whoever gave it: when to stop, and where progress goes. Must not know the pipe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/trainer/train_state.h"

namespace ablate {

class TaskControl {
 public:
  virtual ~TaskControl() = default;

  enum class Stop { kNo, kYes, kWithCheckpoint };
  // Asked between parts of a step and between batches of an evaluation.
  virtual Stop ShouldStop() = 0;
  // `step` steps are done.
  virtual void Progress(int64_t step, double tokens_per_second) = 0;
  // One point of a training curve; step counts from 1.
  virtual void Point(std::string_view metric, int64_t step, double value) = 0;
  // A state has been saved. Points given before go out before it.
  virtual void Checkpoint(const SavedState& saved, int64_t step, bool end_state) = 0;
};

}  // namespace ablate
