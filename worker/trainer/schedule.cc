#include "worker/trainer/schedule.h"

#include <cmath>

namespace ablate {

double Schedule::At(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::kConstant) return peak;
  const double minimum = peak * min_ratio;
  if (step >= total_steps) return minimum;
  const double progress = static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  return minimum + (peak - minimum) * 0.5 * (1.0 + std::cos(M_PI * progress));
}

}  // namespace ablate
