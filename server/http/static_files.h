// The files of the page, which lie in the program (cmake/ablate_embed.cmake): no path of a request ever reaches the file
// system. Must not know HTTP. Thread rule: constant.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/embedded_file.h"

namespace ablate {

// The page as it was built (dashboard/CMakeLists.txt); empty where it was not.
std::span<const EmbeddedFile> DashboardFiles();

class StaticFiles {
 public:
  explicit StaticFiles(std::span<const EmbeddedFile> files) : files_(files) {}

  bool empty() const { return files_.empty(); }
  // What a browser gets for this path of an address: the file of this name, else the page, which reads the address by
  // itself. Null: an IsFileName that is none.
  const EmbeddedFile* Find(std::string_view path) const;

 private:
  const std::span<const EmbeddedFile> files_;
};

// Whether a path can only be a file's: below /assets/, or a name with a dot at the root ("/favicon.ico"). Sweeps' names,
// deeper down, have dots, too.
bool IsFileName(std::string_view path);
// Assets' names hold a hash of what is in them.
bool IsImmutable(const EmbeddedFile& file);
// By the ending of its name: "text/html; charset=utf-8".
std::string MediaType(std::string_view path);
// Without its compression. DataLoss: the program's file is damaged.
absl::StatusOr<std::string> PlainBytes(const EmbeddedFile& file);

// Instead of a page that was not built: says how to get it.
std::string_view FallbackPage();

}  // namespace ablate
