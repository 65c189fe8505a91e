// Spread over seeds and over documents of loss_targets, with a two-way bootstrap interval.
// From losses by document to rows; must not know SQL or how rows are shown. Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/bootstrap.h"
#include "proto/coordinator.pb.h"
#include "proto/resources.pb.h"

namespace ablate {

// What one evaluation says of each document (TaskResult.documents). Diverged ones have none and are not given.
struct DocumentMeasurement {
  std::string arm_json;
  int64_t seed = 0;
  int64_t length_tokens = 0;
  std::string split;
  bool ntk = false;
  v1::Phase phase = v1::PLAIN;
  std::string job_id;
  std::vector<v1::DocumentLoss> documents;
};

// A row for each (arm, length, split, ntk, phase), in the order of their first measurement. Seeds whose documents are
// not those of most are left out and said (another version of the data's splits). `level` 0: 0.95.
absl::StatusOr<std::vector<v1::SpreadRow>> SpreadRows(std::span<const DocumentMeasurement> measurements, double level,
                                                      const Resampling& resampling = {});

}  // namespace ablate
