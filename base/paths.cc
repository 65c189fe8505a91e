#include "base/paths.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ablate {
namespace {

constexpr size_t kMaxName = 128;
constexpr size_t kMaxPath = 4096;
constexpr size_t kMaxShown = 64;

std::string Shown(std::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(text.substr(0, kMaxShown))), text.size() > kMaxShown ? "..." : "", "\"");
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) return FileError("cannot find", path, errno);
  return std::string(real.get());
}

}  // namespace

absl::Status CheckFileName(std::string_view what, std::string_view name) {
  const auto bad = [&](std::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(what), " is named ", Shown(name), ", which is no name of a file here: ", ToAbsl(why)));
  };
  if (name.empty()) return bad("it is empty");
  if (name.size() > kMaxName) return bad("over 128 bytes");
  if (name.front() == '.') return bad("it begins with a dot");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return bad("it has a control character");
    if (c == '/' || c == '\\') return bad("it has a slash");
  }
  if (!IsUtf8(std::string(name))) return bad("it is not UTF-8");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ResolveBeneath(const std::string& root, std::string_view path) {
  if (path.empty() || path.size() > kMaxPath || path.find('\0') != std::string_view::npos)
    return absl::InvalidArgumentError(absl::StrCat("the path ", Shown(path), " is none"));
  const auto outside = [&](std::string_view how) {
    return absl::PermissionDeniedError(absl::StrCat("the path ", Shown(path), ToAbsl(how), " out of ", root));
  };
  namespace fs = std::filesystem;
  const auto is_in = [](const fs::path& folder, const fs::path& file) {
    const fs::path inside = file.lexically_relative(folder);
    return !inside.empty() && *inside.begin() != ".." && inside != ".";
  };
  // As written first: not even whether a file outside is there is to be learned.
  const fs::path written_root = fs::path(root).lexically_normal(), written = (written_root / path).lexically_normal();
  if (!is_in(written_root, written)) return outside(" leads");
  ABLATE_ASSIGN_OR_RETURN(const std::string real_root, RealPath(root));
  ABLATE_ASSIGN_OR_RETURN(const std::string real, RealPath(written.string()));
  if (!is_in(real_root, real)) return outside(" leads by a link");
  return real;
}

}  // namespace ablate
