// Databases that earlier versions wrote (tests/data/schemaN) are opened, brought up to date, and give the same numbers:
// value by value through tables and views, and all their jobs, sweeps and states through the snapshot.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "server/store/claims.h"
#include "server/store/export.h"
#include "server/store/migrations.h"
#include "server/store/records.h"
#include "server/store/store.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

constexpr char kResults[] =
    "SELECT sweep, arm, seed, metric, length, split, ntk, value, status, job, device, non_finite, arm_label, "
    "arm_position, sweep_id, key, recorded_at_us FROM results "
    "ORDER BY sweep, arm_position, seed, metric, length, split, ntk";
constexpr char kIntervals[] =
    "SELECT sweep, arm, metric, length, split, ntk, n, mean, sd, low, high, level, method, seeds, diverged, "
    "diverged_seeds, missing, reason, jobs, arm_label, arm_position, sweep_id FROM confidence_intervals_by_level "
    "ORDER BY sweep, arm_position, metric, length, split, ntk, level";

// Doubles with all their digits.
absl::StatusOr<std::vector<std::string>> Rows(Connection& db, const std::string& sql) {
  std::vector<std::string> all;
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query(sql));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return all;
    std::string& text = all.emplace_back();
    for (int i = 0; i < rows.Columns(); ++i) {
      absl::StrAppend(&text, i > 0 ? "|" : "",
                      rows.IsNull(i)                                 ? "NULL"
                      : rows.ColumnType(i) == Statement::Type::kReal ? absl::StrFormat("%.17g", rows.Real(i))
                                                                     : rows.Text(i));
    }
  }
}

std::vector<std::string> Tables(Connection& db) {
  return *Rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
}

// The columns of a table as they are called now, for a SELECT that later versions give the same answer to.
std::string Columns(Connection& db, const std::string& table) {
  std::string names;
  const auto columns = Rows(db, absl::StrCat("SELECT name FROM pragma_table_info('", table, "')"));
  for (const std::string& name : *columns) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", "quote(\"", name, "\")");
  }
  return names;
}

class MigrationTest : public ::testing::Test {
 protected:
  std::string Use(int version) {
    const std::string path = JoinPath(dir_.path(), "ablate.db");
    const auto bytes = ReadFile(absl::StrCat(ABLATE_DATA_DIR "/schema", version, "/ablate.db"));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_TRUE(WriteFileAtomic(path, *bytes).ok());
    return path;
  }
  TempDir dir_;
};

TEST_F(MigrationTest, TheFirstReleasesDatabaseGivesTheSameNumbers) {
  const std::string path = Use(1);
  std::vector<std::string> results, intervals;
  {
    auto db = Connection::Open(path, Connection::Mode::kReadWrite);
    ASSERT_TRUE(db.ok()) << db.status();
    EXPECT_EQ(*(*db)->QueryInt(0, "PRAGMA user_version"), 1);
    results = *Rows(**db, kResults);
    intervals = *Rows(**db, kIntervals);
  }
  ASSERT_EQ(results.size(), 612u);
  ASSERT_EQ(intervals.size(), 612u);
  auto store = Store::Open({.data_dir = dir_.path()});
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::Status status = (*store)->Read([&](Connection& db) -> absl::Status {
    EXPECT_EQ(*db.QueryInt(0, "PRAGMA user_version"), static_cast<int64_t>(Migrations().size()));
    EXPECT_EQ(*Rows(db, kResults), results);
    EXPECT_EQ(*Rows(db, kIntervals), intervals);
    EXPECT_EQ(*Rows(db, "SELECT DISTINCT phase, standing FROM results"), std::vector<std::string>{"plain|exploratory"});
    EXPECT_EQ(*Rows(db, "SELECT DISTINCT phase, standing FROM confidence_intervals"),
              std::vector<std::string>{"plain|exploratory"});
    EXPECT_TRUE(Rows(db, "PRAGMA foreign_key_check")->empty());
    EXPECT_EQ(*Rows(db, "PRAGMA integrity_check"), std::vector<std::string>{"ok"});
    // Every sweep has its first plan, every trained stage the hash of its end weights.
    EXPECT_EQ(*Rows(db,
                    "SELECT COUNT(*), MIN(v.plan_sha256 = s.plan_sha256) FROM plan_versions v JOIN sweeps s ON "
                    "s.row = v.sweep"),
              std::vector<std::string>{"3|1"});
    EXPECT_EQ(*Rows(db,
                    "SELECT COUNT(*) FROM jobs WHERE kind = 'stage' AND executor = 'trainer' AND "
                    "end_weights_sha256 IS NULL AND job_id NOT IN (SELECT job_id FROM jobs j JOIN checkpoints c ON "
                    "c.job = j.row)"),
              std::vector<std::string>{"0"});
    ABLATE_ASSIGN_OR_RETURN(const SchedulerSnapshot snapshot, LoadSnapshot(db));
    EXPECT_EQ(snapshot.sweeps.size(), 3u);
    for (const JobRecord& job : snapshot.jobs) EXPECT_TRUE(!job.sealed && job.verify_of == 0);
    for (const SweepRecord& sweep : snapshot.sweeps) {
      EXPECT_EQ(sweep.phase, v1::PLAIN);
      EXPECT_TRUE(!sweep.pending && !sweep.sealed && sweep.sealed_jobs.empty());
      ABLATE_ASSIGN_OR_RETURN(const StoredClaims claims, ReadClaims(db, sweep.row));
      EXPECT_EQ(claims.sealed_plan_sha256, sweep.plan_sha256);
      EXPECT_FALSE(claims.lock.has_value());
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Every value of every table and view of schema version 2, claims, seals, locks and verifications among them.
TEST_F(MigrationTest, TheDatabaseWithClaimsGivesTheSameNumbers) {
  const std::string path = Use(2);
  std::vector<std::pair<std::string, std::vector<std::string>>> before;  // query and answer
  {
    auto db = Connection::Open(path, Connection::Mode::kReadWrite);
    ASSERT_TRUE(db.ok()) << db.status();
    EXPECT_EQ(*(*db)->QueryInt(0, "PRAGMA user_version"), 2);
    std::vector<std::string> names = Tables(**db);
    EXPECT_GE(names.size(), 27u);
    names.insert(names.end(), {"results", "confidence_intervals", "confidence_intervals_by_level"});
    for (const std::string& name : names) {
      const std::string query = absl::StrCat("SELECT ", Columns(**db, name), " FROM ", name, " ORDER BY ", Columns(**db, name));
      before.emplace_back(query, *Rows(**db, query));
      EXPECT_TRUE(name == "requests" || !before.back().second.empty()) << name;
    }
    EXPECT_EQ(Rows(**db, kResults)->size(), 3514u);
    EXPECT_EQ(Rows(**db, kIntervals)->size(), 3507u);
  }
  auto store = Store::Open({.data_dir = dir_.path()});
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::Status status = (*store)->Read([&](Connection& db) -> absl::Status {
    EXPECT_EQ(*db.QueryInt(0, "PRAGMA user_version"), static_cast<int64_t>(Migrations().size()));
    for (const auto& [query, answer] : before) EXPECT_EQ(*Rows(db, query), answer) << query;
    EXPECT_TRUE(Rows(db, "PRAGMA foreign_key_check")->empty());
    EXPECT_EQ(*Rows(db, "PRAGMA integrity_check"), std::vector<std::string>{"ok"});
    ABLATE_ASSIGN_OR_RETURN(const SchedulerSnapshot snapshot, LoadSnapshot(db));
    EXPECT_EQ(snapshot.sweeps.size(), 8u);
    EXPECT_EQ(snapshot.jobs.size(), 398u);
    int sealed = 0;
    for (const SweepRecord& sweep : snapshot.sweeps) {
      sealed += sweep.sealed;
      EXPECT_EQ(sweep.sealed, sweep.name == "kept-waiting");
      EXPECT_EQ(!sweep.sealed_jobs.empty(), sweep.sealed);
      ABLATE_ASSIGN_OR_RETURN(const StoredClaims claims, ReadClaims(db, sweep.row));
      EXPECT_EQ(claims.lock.has_value(), sweep.phase == v1::CONFIRMING) << sweep.name;
    }
    EXPECT_EQ(sealed, 1);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// A schema is the same however it was reached: made anew, or by migrations from any released version.
TEST_F(MigrationTest, OneSchemaHoweverItIsReached) {
  constexpr char kSchema[] = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
  TempDir fresh;
  auto made = Connection::Open(JoinPath(fresh.path(), "ablate.db"), Connection::Mode::kReadWrite);
  ASSERT_TRUE(made.ok() && Migrate(**made, "fresh").ok());
  const std::vector<std::string> expected = *Rows(**made, kSchema);
  for (int version = 1; version < static_cast<int>(Migrations().size()); ++version) {
    ASSERT_TRUE(RemoveFile(JoinPath(dir_.path(), "ablate.db")).ok());
    const std::string path = Use(version);
    auto db = Connection::Open(path, Connection::Mode::kReadWrite);
    ASSERT_TRUE(db.ok() && Migrate(**db, path).ok());
    EXPECT_EQ(*Rows(**db, kSchema), expected) << "from version " << version;
  }
}

// What stands in the way of each migration: something that it makes is there already.
TEST_F(MigrationTest, AMigrationThatFailsLeavesTheDatabaseAsItWas) {
  struct Case {
    int version;
    const char* obstacle;
    const char* named;
    size_t results;
  };
  for (const Case& test : {Case{1, "CREATE TABLE locks (theirs)", "0002_claims.sql", 612},
                           Case{2, "ALTER TABLE points ADD COLUMN digest INTEGER", "0003_probes_access_reliability.sql", 3514}}) {
    const std::string path = Use(test.version);
    auto db = Connection::Open(path, Connection::Mode::kReadWrite);
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE((*db)->Script(test.obstacle).ok());
    const absl::Status status = Migrate(**db, path);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.named));
    EXPECT_EQ(*(*db)->QueryInt(0, "PRAGMA user_version"), test.version);
    EXPECT_EQ(Rows(**db, kResults)->size(), test.results);
    db->reset();
    for (const char* suffix : {"", "-wal", "-shm"}) ASSERT_TRUE(RemoveFile(path + suffix).ok());
  }
}

// A migration that adds a table says in export.cc whether its rows go with a sweep that is exported.
TEST(ExportedTablesTest, EveryTableIsMentionedOnce) {
  auto db = Connection::Open(":memory:", Connection::Mode::kPlain);
  ASSERT_TRUE(db.ok() && Migrate(**db, ":memory:").ok());
  std::vector<std::string> mentioned;
  for (const ExportedTable& table : ExportedTables()) {
    mentioned.push_back(table.table);
    EXPECT_EQ(table.which == nullptr, *table.why != '\0') << table.table << ": what is left out has a reason";
  }
  EXPECT_THAT(mentioned, testing::UnorderedElementsAreArray(Tables(**db)));
}

}  // namespace
}  // namespace ablate
