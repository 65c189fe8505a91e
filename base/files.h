// Files: whole reads, writes that are all or nothing, folders. Errors name the path and what the system said.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

// What a failed system call means, with its errno kept (ErrnoOf). NotFound: ENOENT. ResourceExhausted: the disk or the
// quota is full. PermissionDenied: not allowed, or mounted read-only. InvalidArgument: no possible name. Unavailable:
// may go by itself (EIO, EAGAIN, too many open files, ...). FailedPrecondition: all else (a folder where a file should
// be, ...). Every function below fails with these.
absl::Status FileError(std::string_view action, const std::string& path, int error);
int ErrnoOf(const absl::Status& status);  // 0: it is not of a system call
// A full disk, missing permissions, a broken device: whatever was asked for, it is this machine that cannot do it now.
bool IsNodeTrouble(const absl::Status& status);

absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes beside `path`, fsyncs, renames over it, fsyncs the folder: after a crash either the old or the new
// content is there. `mode` is that of the new file, less the umask.
absl::Status WriteFileAtomic(const std::string& path, std::string_view content, unsigned mode = 0644);

// Makes `path` and its parents. OK when it is there already.
absl::Status MakeDirs(const std::string& path);

bool FileExists(const std::string& path);
absl::StatusOr<uint64_t> FileSize(const std::string& path);
// Names in a folder, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDir(const std::string& path);
// Removes one file; OK when it is not there.
absl::Status RemoveFile(const std::string& path);
// Removes a folder and what is in it; OK when it is not there.
absl::Status RemoveTree(const std::string& path);
absl::Status RenameFile(const std::string& from, const std::string& to);
// Bytes free to us on the file system that holds `path`.
absl::StatusOr<uint64_t> FreeBytes(const std::string& path);

std::string JoinPath(std::string_view a, std::string_view b);
std::string Dirname(const std::string& path);
std::string Basename(const std::string& path);
// The folder of the running program, through /proc/self/exe.
std::string ProgramDir();

// A fresh folder under $TMPDIR or /tmp, removed with the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ablate
