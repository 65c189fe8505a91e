// See migrations.h.
#include "server/store/migrations.h"

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

constexpr int64_t kApplicationId = 0x41424c54;  // "ABLT": `file` and we tell our databases by it
constexpr int kTCriticalVersion = 1;            // the migration that makes t_critical
constexpr int kMaxDf = 1000;

// Student t quantiles need Boost.Math, which SQL has not.
absl::Status FillTCritical(Connection& connection) {
  for (double level : {0.90, 0.95, 0.99}) {
    for (int df = 1; df <= kMaxDf; ++df) {
      ABLATE_ASSIGN_OR_RETURN(const double value, TCritical(df, level));
      ABLATE_RETURN_IF_ERROR(
          connection.Run("INSERT INTO t_critical (df, level, value) VALUES (?, ?, ?)", df, level, value));
    }
  }
  return absl::OkStatus();
}

absl::Status Apply(Connection& connection, int version) {
  const Migration& migration = Migrations()[version - 1];
  absl::Status status = connection.Script("BEGIN IMMEDIATE");
  if (status.ok()) status = connection.Script(migration.sql);
  if (status.ok() && version == kTCriticalVersion) status = FillTCritical(connection);
  if (status.ok()) status = connection.Script(absl::StrCat("PRAGMA user_version = ", version));
  if (status.ok()) status = connection.Script(absl::StrCat("PRAGMA application_id = ", kApplicationId));
  if (status.ok()) status = connection.Script("COMMIT");
  if (!status.ok() && connection.InTransaction()) {
    if (absl::Status rollback = connection.Script("ROLLBACK"); !rollback.ok()) return rollback;
  }
  return WithContext(status, migration.name);
}

}  // namespace

absl::Status MigrateTo(Connection& connection, const std::string& path, int target) {
  ABLATE_ASSIGN_OR_RETURN(int64_t version, connection.QueryInt(0, "PRAGMA user_version"));
  const int64_t known = static_cast<int64_t>(Migrations().size());
  if (version > known) {
    return absl::FailedPreconditionError(absl::StrCat(path, " was written by a newer release (schema version ", version,
                                                      "; this one knows up to ", known,
                                                      "). Run that release, or give another --data-dir"));
  }
  ABLATE_ASSIGN_OR_RETURN(const int64_t tables, connection.QueryInt(0, "SELECT COUNT(*) FROM sqlite_schema"));
  ABLATE_ASSIGN_OR_RETURN(const int64_t application, connection.QueryInt(0, "PRAGMA application_id"));
  if (tables > 0 && application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a database of another program. Give another --data-dir, or move the file away"));
  }
  for (; version < target; ++version) ABLATE_RETURN_IF_ERROR(Apply(connection, static_cast<int>(version) + 1));
  return absl::OkStatus();
}

absl::Status Migrate(Connection& connection, const std::string& path) {
  return MigrateTo(connection, path, static_cast<int>(Migrations().size()));
}

}  // namespace ablate
