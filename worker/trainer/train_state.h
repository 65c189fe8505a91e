// A model's state between memory and checkpoint files: what is saved, what a file must be to be loaded, what a changed
// attention variant adds and drops. Must not know schedules, data contents or the pipe.
// Thread rule: as Model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/checkpoint_file.h"
#include "worker/trainer/checkpoint_store.h"
#include "worker/trainer/model.h"

namespace ablate {

// Whose state it is; step, samples and totals grow with training.
struct TrainState {
  std::string config;  // canonical JSON
  std::string data_sha256;
  int64_t seed = 0;
  int64_t step = 0;
  int64_t samples = 0;
  TrainTotals totals;
};

struct SavedState {
  CheckpointPaths paths;  // optimizer is empty when it was not saved
  FileDigest weights, optimizer;
};

// The optimiser file first, then the weights: weights without their optimiser are never taken for a whole checkpoint.
// Unavailable: the system refuses. Internal, ResourceExhausted: the device.
absl::StatusOr<SavedState> SaveState(Model* model, const TrainState& state, const CheckpointPaths& paths,
                                     bool with_optimizer);

struct OpenedState {
  std::unique_ptr<CheckpointFile> weights, optimizer;  // optimizer may be null
};

// What a file must be. Empty or negative: not asked.
struct StateExpectation {
  std::string model;  // ModelText
  std::string data_sha256;
  int64_t seed = 0;
  int64_t step = -1;
  std::string config;  // canonical JSON
  std::string weights_sha256, optimizer_sha256;
};

// Opens, verifies and checks. NotFound, DataLoss, Unavailable: as CheckpointFile::Open, and DataLoss when a file has
// not the SHA-256 expected. InvalidArgument: a file of another model, data, seed, step, configuration or numerics
// version, or two files that do not belong together; says both sides. optimizer_path "" : weights only.
absl::StatusOr<OpenedState> OpenState(const std::string& weights_path, const std::string& optimizer_path,
                                      const StateExpectation& expected);

// Weights into the model, and with an optimiser file the moments and the optimiser's step. Parameters of the attention
// variant (ssmax.*) and learned positions (wpe) that the file lacks get initial values, and fresh moments; those that
// the model lacks are dropped; each is named in the log and in `changes` (may be null). InvalidArgument: any other
// difference in names or shapes.
absl::Status LoadState(const OpenedState& opened, uint64_t seed, Model* model, std::vector<std::string>* changes);

}  // namespace ablate
