// Whether a database is sound: SQLite's structure, foreign keys, digests of rows, and what must hold of jobs, attempts,
// results and sweeps. Reads only. Must not know artifacts' files (server/maintenance does).
// Thread rule: as Connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/store/sqlite.h"

namespace ablate {

struct CheckReport {
  // What was looked at, and what was found: "structure", "ok, 868 KiB". In order.
  struct Line {
    std::string what;
    std::string found;
    bool ok = true;
  };
  std::vector<Line> lines;
  std::vector<std::string> faults;  // one sentence each, the first few of each kind

  // The first query that failed for another reason than damage: I/O errors, a full disk. The report says less then.
  absl::Status trouble;

  bool ok() const { return faults.empty(); }
  void Add(const std::string& what, const std::string& found, std::vector<std::string> faults);
};

// The file itself: header, SQLite's integrity check (`quick`: without comparing indexes to tables), foreign keys,
// digests. What cannot be read is a fault of the report.
void CheckStructure(Connection& db, bool quick, CheckReport* report);

// What a coordinator always keeps: jobs and attempts numbered without gaps, states that follow from events, terminal
// ones final, one accepted result a key, every planned evaluation with its job, sweeps that add up.
void CheckInvariants(Connection& db, CheckReport* report);

// Before a database is opened for writing: OK, or DataLoss with what is wrong, found twice. Checks the structure; of a
// file over 2 GiB quickly. Opens it for reading, and never changes it. Unavailable: it could not be read for now.
absl::Status CheckBeforeUse(const std::string& path);

}  // namespace ablate
