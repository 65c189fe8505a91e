// The learning rate of a step. Pure; must not know models or configurations.
#pragma once

#include <cstdint>

namespace ablate {

enum class ScheduleKind { kCosine, kConstant };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 1e-3;
  double min_ratio = 0.1;  // the cosine ends at peak * min_ratio
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;  // the horizon of the cosine: train.steps, whatever a stage covers

  // Of step `step`, counted from 0. Warm-up: peak (step + 1) / warmup_steps for step < warmup_steps. Then cosine:
  // min + (peak - min) (1 + cos(pi (step - warmup_steps) / (total_steps - warmup_steps))) / 2, and min from total_steps
  // on; or constant: peak.
  double At(int64_t step) const;
};

}  // namespace ablate
