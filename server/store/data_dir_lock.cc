// See data_dir_lock.h.
#include "server/store/data_dir_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<DataDirLock>> DataDirLock::Acquire(const std::string& data_dir) {
  const std::string path = JoinPath(data_dir, "coordinator.lock");
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const bool held = errno == EWOULDBLOCK;
    const std::string why = std::strerror(errno);
    char owner[32] = {};
    const ssize_t size = ::pread(fd, owner, sizeof(owner) - 1, 0);
    ::close(fd);
    if (!held) return absl::UnavailableError(absl::StrCat(path, ": ", why));
    const std::string who = size > 0 ? absl::StrCat(" (process ", owner, ")") : "";
    return absl::FailedPreconditionError(
        absl::StrCat(data_dir, " is in use by another coordinator", who, ": stop it, or choose another --data-dir"));
  }
  const std::string pid = std::to_string(::getpid());
  // The number is for the message above only: failing to write it harms nothing.
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) (void)::ftruncate(fd, 0);
  return std::unique_ptr<DataDirLock>(new DataDirLock(fd));
}

DataDirLock::~DataDirLock() { ::close(fd_); }

}  // namespace ablate
