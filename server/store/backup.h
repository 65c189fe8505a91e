// Copies of a database: online, while a coordinator writes, and verified. Must not know artifacts.
// Thread rule: functions may run at once on different files.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace ablate {

// Copies the state of one moment of the database at `from` to the new file `to`, through SQLite, so that commits that
// are still in the -wal file are in the copy; checks the copy's structure and digests, and makes it durable. The
// source is only read; its writer is not held up. DataLoss: `from` is damaged (no copy is left). AlreadyExists: `to` is
// there. ResourceExhausted: the disk is full. NotFound: `from` is not there.
absl::Status BackupDatabase(const std::string& from, const std::string& to);

}  // namespace ablate
