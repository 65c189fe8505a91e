// Files: whole reads, writes that are all or nothing, folders. Errors name the path and what the system said.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

// NotFound: no such file. Unavailable: any other failure to open or read.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes beside `path`, fsyncs, renames over it, fsyncs the folder: after a crash either the old or the new
// content is there. ResourceExhausted: disk full. Unavailable: any other failure.
absl::Status WriteFileAtomic(const std::string& path, std::string_view content);

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
