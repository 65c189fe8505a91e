// Numbered schema migrations: server/store/migrations/NNNN_*.sql, embedded at build time, applied in order, each in one
// transaction. The version of a database is its PRAGMA user_version. Files that were released are never changed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/store/sqlite.h"

namespace ablate {

struct Migration {
  const char* name;
  const char* sql;
};

// Version v is reached by the first v of them. Defined by the generated file.
const std::vector<Migration>& Migrations();

// Makes the schema, or brings it up to date. FailedPrecondition: the database is newer than this build, or not ours.
absl::Status Migrate(Connection& connection, const std::string& path);

// For tests: up to `version` only.
absl::Status MigrateTo(Connection& connection, const std::string& path, int version);

}  // namespace ablate
