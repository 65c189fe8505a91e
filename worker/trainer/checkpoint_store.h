// The checkpoints of one stage in a folder: names, which are there, keeping the newest two. Must not know what is
// inside. Thread rule: one owner a (folder, stage) at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

struct CheckpointPaths {
  int64_t step = 0;
  std::string weights, optimizer;  // paths, whether the files exist or not
};

class CheckpointStore {
 public:
  // Several stages may share a folder: names start with 16 hex digits of the SHA-256 of the stage's key.
  CheckpointStore(std::string dir, const std::string& stage_key);

  // Makes the folder, removes what an interrupted writer of this stage left.
  absl::Status Prepare();
  CheckpointPaths PathsOf(int64_t step) const;
  // Steps with both files, newest first.
  absl::StatusOr<std::vector<CheckpointPaths>> Complete() const;
  // Removes all checkpoints of this stage but `current` (complete or not) and the newest complete one before it. A
  // folder that cannot be read or a file that cannot be removed: Unavailable or PermissionDenied.
  absl::Status KeepNewestTwo(int64_t current) const;

 private:
  // Names of this stage's checkpoint files, by step.
  struct Entry {
    int64_t step;
    bool weights, optimizer;
  };
  absl::StatusOr<std::vector<Entry>> Entries() const;  // newest first

  const std::string dir_, prefix_;
};

}  // namespace ablate
