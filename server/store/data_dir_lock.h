// Exclusive ownership of a data folder, so that two coordinators never write one database.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ablate {

// Held while the object lives; the system lets go when the process dies, however it dies.
class DataDirLock {
 public:
  // FailedPrecondition: another process has it (says which). Unavailable: the lock file cannot be made.
  static absl::StatusOr<std::unique_ptr<DataDirLock>> Acquire(const std::string& data_dir);
  ~DataDirLock();
  DataDirLock(const DataDirLock&) = delete;
  DataDirLock& operator=(const DataDirLock&) = delete;

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace ablate
