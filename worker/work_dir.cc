#include "worker/work_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <chrono>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<WorkDir>> WorkDir::Open(const std::string& path, IdGenerator* ids, int64_t wait_ms) {
  const bool fresh = !FileExists(path);
  ABLATE_RETURN_IF_ERROR(MakeDirs(path));
  if (fresh) ::chmod(path.c_str(), 0700);
  const std::string lock_path = JoinPath(path, "lock");
  const int fd = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("cannot open", lock_path, errno);
  std::unique_ptr<WorkDir> dir(new WorkDir(path, fd));
  const int64_t until_us = Clock::Real().MonotonicMicros() + wait_ms * 1000;
  bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  LOG_IF(INFO, !locked && wait_ms > 0) << "another ablate-worker uses " << path << "; waiting for it to end";
  while (!locked && Clock::Real().MonotonicMicros() < until_us) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  }
  if (!locked) {
    const absl::StatusOr<std::string> owner = ReadFile(lock_path);
    return absl::FailedPreconditionError(absl::StrCat(
        "another ablate-worker", owner.ok() && !owner->empty() ? absl::StrCat(" (process ", *owner, ")") : "", " uses ",
        path, "; give this one a folder of its own with --work-dir"));
  }
  const std::string pid = absl::StrCat(::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return FileError("cannot write", lock_path, errno);
  }

  const std::string id_path = JoinPath(path, "worker-id");
  if (!FileExists(id_path)) ABLATE_RETURN_IF_ERROR(WriteFileAtomic(id_path, ids->NewId("worker") + "\n"));
  ABLATE_ASSIGN_OR_RETURN(std::string id, ReadFile(id_path));
  absl::StripAsciiWhitespace(&id);
  if (id.empty()) return absl::UnavailableError(absl::StrCat(id_path, " is empty; remove it and start again"));
  dir->worker_id_ = id;
  return dir;
}

WorkDir::~WorkDir() { ::close(lock_fd_); }

std::string DefaultWorkDir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return JoinPath(cache, "ablate-worker");
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return JoinPath(home, ".cache/ablate-worker");
  return "";
}

}  // namespace ablate
