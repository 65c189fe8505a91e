// How far running work is. Plain data, shared by executors, slots and the link.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/resources.pb.h"

namespace ablate {

struct TaskProgress {
  int64_t step = 0;  // last finished training step
  double tokens_per_second = 0;
  std::optional<int64_t> resumed_from_step;  // of a stage, once known: where this attempt began to train
  std::vector<v1::CurvePoint> points;
};

}  // namespace ablate
