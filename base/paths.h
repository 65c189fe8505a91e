// Names and paths that come from somebody else: whether they stay in the folder that they are meant for.
// Thread rule: free functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

// OK: the name of one file in a folder, good on every system that a copy may go to. InvalidArgument, without repeating
// what a terminal would obey: empty, over 128 bytes, "." or anything that begins so (hidden, "..") , "/", "\", a control
// character or NUL, not UTF-8. `what` names it in the message ("a made file").
absl::Status CheckFileName(std::string_view what, std::string_view name);

// The real path of root/path (path may be absolute: then it must lie under root). PermissionDenied: it, or what its
// links lead to, is not in root. InvalidArgument: a NUL in it, or over 4096 bytes. NotFound: not there. As FileError.
absl::StatusOr<std::string> ResolveBeneath(const std::string& root, std::string_view path);

}  // namespace ablate
