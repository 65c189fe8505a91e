#include "base/files.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace fs = std::filesystem;
namespace {

constexpr char kErrnoPayload[] = "ablate/errno";

absl::StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case ENOSPC:
    case EDQUOT:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::StatusCode::kInvalidArgument;
    case EIO:
    case EAGAIN:
    case EINTR:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ESTALE:
    case ETIMEDOUT:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

absl::Status FromErrorCode(std::string_view action, const std::string& path, const std::error_code& error) {
  return error ? FileError(action, path, error.value()) : absl::OkStatus();
}

absl::Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t count = ::write(fd, content.data(), content.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      return FileError("cannot write", path, errno);
    }
    content.remove_prefix(static_cast<size_t>(count));
  }
  if (::fsync(fd) != 0) return FileError("cannot fsync", path, errno);
  return absl::OkStatus();
}

}  // namespace

absl::Status FileError(std::string_view action, const std::string& path, int error) {
  absl::Status status(CodeOfErrno(error), absl::StrCat(ToAbsl(action), " ", path, ": ", std::strerror(error)));
  status.SetPayload(kErrnoPayload, absl::Cord(absl::StrCat(error)));
  return status;
}

int ErrnoOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrnoPayload);
  return payload ? std::atoi(std::string(*payload).c_str()) : 0;
}

bool IsNodeTrouble(const absl::Status& status) {
  if (status.ok() || ErrnoOf(status) == 0) return false;
  return absl::IsResourceExhausted(status) || absl::IsPermissionDenied(status) || absl::IsUnavailable(status);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(fd, buffer, sizeof(buffer));
    if (count == 0) break;
    if (count < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      ::close(fd);
      return FileError("cannot read", path, error);
    }
    content.append(buffer, static_cast<size_t>(count));
  }
  ::close(fd);
  return content;
}

absl::Status WriteFileAtomic(const std::string& path, std::string_view content, unsigned mode) {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary = absl::StrCat(path, ".tmp.", ::getpid(), ".", ++counter);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return FileError("cannot create", temporary, errno);
  absl::Status status = WriteAll(fd, content, temporary);
  ::close(fd);
  if (status.ok()) status = RenameFile(temporary, path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const int folder = ::open(Dirname(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return absl::OkStatus();
}

absl::Status MakeDirs(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return FromErrorCode("cannot create folder", path, error);
}

bool FileExists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

absl::StatusOr<uint64_t> FileSize(const std::string& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return FromErrorCode("cannot stat", path, error);
  return size;
}

absl::StatusOr<std::vector<std::string>> ListDir(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return FromErrorCode("cannot list", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("cannot remove", path, errno);
  return absl::OkStatus();
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return FromErrorCode("cannot remove", path, error);
}

absl::Status RenameFile(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return FileError(absl::StrCat("cannot rename to ", to, " from"), from, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FreeBytes(const std::string& path) {
  struct statvfs info;
  if (::statvfs(path.c_str(), &info) != 0) return FileError("cannot stat file system of", path, errno);
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

std::string JoinPath(std::string_view a, std::string_view b) { return (fs::path(a) / fs::path(b)).string(); }

std::string Dirname(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string Basename(const std::string& path) { return fs::path(path).filename().string(); }

std::string ProgramDir() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

TempDir::TempDir() {
  const char* root = std::getenv("TMPDIR");
  std::string pattern = JoinPath(root != nullptr && *root != 0 ? root : "/tmp", "ablate-XXXXXX");
  CHECK(::mkdtemp(pattern.data()) != nullptr) << "cannot create a folder like " << pattern;
  path_ = pattern;
}

TempDir::~TempDir() { (void)RemoveTree(path_); }

}  // namespace ablate
