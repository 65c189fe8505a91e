// A user's own SQL, on a connection of its own that can do nothing but read.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// Sends the columns, then rows in batches; the last message says whether rows were left out. Max rows and time limit as
// the request says (0: 10000 rows, 10 s; at most 10^7 and 600 s). Ends early, with Cancelled, when `send` returns false. InvalidArgument: not
// exactly one statement, or malformed. PermissionDenied: it would write, attach or set something. DeadlineExceeded:
// over the time limit. ResourceExhausted: a value over 16 MiB, more than 512 MiB of memory, or an answer over 256 MiB.
absl::Status RunUserQuery(const std::string& database_path, const v1::QueryRequest& request,
                          const std::function<bool(const v1::QueryResponse&)>& send);

}  // namespace ablate
