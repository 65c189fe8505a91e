// What can be read of a damaged database, as a new one that is sound: every row that is readable and is what was
// written. For reading only: a coordinator must not go on from it. Must not know what the rows mean.
// Thread rule: functions may run at once on different files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

struct Salvaged {
  struct Table {
    std::string name;
    int64_t rows = 0;           // copied
    int64_t wrong = 0;          // left out: not what was written
    bool cut = false;           // some part could not be read
    bool defines = false;       // see DigestedTable
  };
  std::vector<Table> tables;
  std::vector<std::string> faults;  // of the structure, as the check says them
  bool damaged = false;
  // Whether tables of results may be made of it: all that defines them is whole. Results may be missing.
  bool complete_definitions() const;
  // "evaluation_results: 231 rows, 2 left out as they are not what was written", a line a table that lost something.
  std::vector<std::string> Losses() const;
};

// Copies `from` (with its -wal file) into the folder `scratch`, which must be empty, and reads the copy: `from` is
// never written, not even the files beside it. A sound one is copied whole. The result is `scratch`/ablate.db.
// DataLoss: nothing can be read (the message says what to do). FailedPrecondition: not a database of this program, or of
// a newer release. ResourceExhausted: no room for the copy.
absl::StatusOr<Salvaged> Salvage(const std::string& from, const std::string& scratch);

}  // namespace ablate
