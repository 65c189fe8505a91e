// What ablate-server does besides serving: check a data folder, back it up while it is in use, restore a backup, export a
// sweep. Joins the database's and the artifacts' side of each. Must not know gRPC or jobs.
//
// A data folder is ablate.db and artifacts/ab/cdef... (SHA-256). A backup is a folder with the same two, and the file
// backup.sha256, written last: without it the backup is not whole. Thread rule: one at a time on one folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

struct CheckOutcome {
  std::string text;  // the report, for people
  bool ok = false;
};
// The database's structure and rules, and that every artifact that it names is there with its size; with `deep` also
// every artifact's content. Only reads; may run while a coordinator writes. NotFound: no database there. Unavailable:
// cannot be read for now.
absl::StatusOr<CheckOutcome> CheckDataDir(const std::string& data_dir, bool deep);

// Copies a data folder to the new folder `to`, while a coordinator writes or not: the database as of one moment, and
// the artifacts that it names, as hard links where `to` is on the same disk (they are never changed in place). Checked
// when written. The text says what was written. AlreadyExists: `to` is there and not empty. DataLoss: the source is
// damaged; nothing is left of the backup.
absl::StatusOr<std::string> BackupDataDir(const std::string& data_dir, const std::string& to);

// Makes `data_dir` from a backup, after checking all of it (artifacts by content). FailedPrecondition: `data_dir` is
// there and not empty. DataLoss: the backup is not whole, or damaged; nothing is left of data_dir.
absl::StatusOr<std::string> RestoreDataDir(const std::string& backup, const std::string& data_dir);

// Makes the new data folder `to` of one sweep (its name or id): its rows without those of other sweeps, tokens and, unless
// asked for, training curves; files that evaluations made, as copies; no states and no data. While a coordinator writes or
// not. The text says what was written. AlreadyExists: `to` is there and not empty; all else as ExportSweep (store/export.h).
// Nothing is left of `to` after an error.
absl::StatusOr<std::string> ExportFromDataDir(const std::string& data_dir, const std::string& sweep, bool curves,
                                              const std::string& to);

}  // namespace ablate
