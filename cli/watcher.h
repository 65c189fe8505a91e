// Follows a sweep until it is over, across restarts of the coordinator. Must not know what else the command does
// meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/progress.h"

namespace ablate {

// The sweep as it ended, or as it stands where nothing goes on until a person acts (needs_person). `progress` may be null. `tick` is called about five times a second on this thread with the
// sweep as last heard of (empty before that); a status of it that is not OK ends the wait and is returned. A
// coordinator that goes away while we watch gets 60 s to come back. DeadlineExceeded: `timeout_seconds` passed.
// Unavailable, NotFound: as the coordinator says.
absl::StatusOr<v1::Sweep> FollowSweep(Client* client, const std::string& sweep, std::optional<double> timeout_seconds,
                                      Progress* progress,
                                      const std::function<absl::Status(const v1::Sweep&)>& tick = nullptr);

// Too many failures of one kind have paused it (needs_person, and `waiting_for` says so), and in words why.
bool IsPaused(const v1::Sweep& sweep);
std::string PauseReason(const v1::Sweep& sweep);

// What a command that waited for a sweep ends with: kExitDone, or kExitJobsFailed when jobs failed or it was cancelled.
ExitCode ExitCodeOfSweep(const v1::Sweep& sweep);

}  // namespace ablate
