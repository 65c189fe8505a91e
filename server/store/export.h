// One sweep's rows out of a database into a new one, to be kept and handed on. Must not know artifacts' files: who asks
// says which are there. Thread rule: one export to one file at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

// What an export does with a table: the rows for which `which` holds, an SQL condition; or none, and why. Rows with
// numbers of their own (`row`) get new ones without gaps, in their old order, and foreign keys follow.
struct ExportedTable {
  const char* table;
  const char* which;     // nullptr: left out
  const char* why = "";  // it is left out
  const char* column = nullptr;  // has this value instead of its own
  const char* value = nullptr;
};
// Every table of the schema; those that others' conditions need come first.
const std::vector<ExportedTable>& ExportedTables();

struct ExportOptions {
  std::string sweep;  // its name or id
  bool curves = false;
  // Whether a result's file is there to go with it; a row that names one which is not is left out. An error ends it.
  std::function<absl::StatusOr<bool>(const std::string& sha256)> has_result_file;
};

struct ExportedSweep {
  std::string name;
  int64_t jobs = 0;
  int64_t lost_files = 0;    // of results, not there
  int64_t curve_points = 0;  // left out
};

// Writes `to`, which must not be there, from the database `from` as of one moment, while a coordinator writes or not. It
// is of the current schema, checked, and the same bytes for the same rows. Nothing is left of it after an error. NotFound:
// no such database or sweep. FailedPrecondition: the sweep or a job of it is not over, another schema version, or rows
// that another program wrote. DataLoss: `from` is damaged.
absl::StatusOr<ExportedSweep> ExportSweep(const std::string& from, const std::string& to, const ExportOptions& options);

}  // namespace ablate
