// Digests of rows: what SQLite's own checks cannot see, a flipped bit within a value, is seen by these. Triggers of the
// schema keep them (migrations/0003): `digest` of a row is ablate_digest(the table's name, its
// columns in the order listed here): a page that landed in another table's place is seen too.
//
// ablate_digest(...) is FNV-1a of 64 bits over, for each argument: one byte for its type (0 NULL, 1 number without
// fraction below 2^53, 2 other number, 3 text, 4 blob), then 8 bytes little-endian of the integer, of the double, or of
// the length, then the text or blob. Numbers are hashed by value, because SQLite stores 2.0 as the integer 2.
// Thread rule: as Connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/sqlite.h"

struct sqlite3;

namespace ablate {

struct DigestedTable {
  const char* table;
  const char* columns;  // as they are hashed
  // Where a lost row makes a table of results say something untrue, not just less: what is planned and what stands for
  // what. The others hold what was measured: a lost row of them shows as missing.
  bool defines;
};
// "ablate_digest('points', sweep, arm, seed, phase, stage, seal)".
std::string DigestExpression(const DigestedTable& table);

// In an order in which rows can be inserted.
const std::vector<DigestedTable>& DigestedTables();

// Makes ablate_digest known to a connection. Called for every connection that is opened.
void RegisterDigest(sqlite3* handle);

struct DigestCounts {
  int64_t rows = 0;
  int64_t wrong = 0;    // the row is not what was written
  int64_t without = 0;  // written by another program, which has no digests
};
// Of one table, by reading all of it. DataLoss: cannot be read.
absl::StatusOr<DigestCounts> CountDigests(Connection& db, const DigestedTable& table);

}  // namespace ablate
