// The worker's folder: who owns it, and the name by which the coordinator knows this worker across restarts.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace ablate {

class WorkDir {
 public:
  // Makes the folder (for its owner only), takes its lock until the object goes, reads or makes the worker's id.
  // Where another worker has it, waits for so long: it may be draining.
  // FailedPrecondition: another worker uses it (with its process id). As FileError: cannot be made or read.
  static absl::StatusOr<std::unique_ptr<WorkDir>> Open(const std::string& path, IdGenerator* ids,
                                                       int64_t wait_ms = 5'000);
  ~WorkDir();
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;

  const std::string& worker_id() const { return worker_id_; }
  std::string artifacts() const { return path_ + "/artifacts"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string results() const { return path_ + "/results"; }

 private:
  WorkDir(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
  std::string worker_id_;
};

// $XDG_CACHE_HOME/ablate-worker, else ~/.cache/ablate-worker, else "" (no home).
std::string DefaultWorkDir();

}  // namespace ablate
