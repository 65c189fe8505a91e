// A database that the first release wrote (tests/data/schema1, schema version 1) is opened, brought up to date, and
// gives the same numbers: value by value through the views, and all its jobs, sweeps and states through the snapshot.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "server/store/claims.h"
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

class MigrationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto bytes = ReadFile(ABLATE_DATA_DIR "/schema1/ablate.db");
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir_.path(), "ablate.db"), *bytes).ok());
  }
  TempDir dir_;
};

TEST_F(MigrationTest, TheFirstReleasesDatabaseGivesTheSameNumbers) {
  std::vector<std::string> results, intervals;
  {
    auto db = Connection::Open(JoinPath(dir_.path(), "ablate.db"), Connection::Mode::kReadWrite);
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

TEST_F(MigrationTest, AMigrationThatFailsLeavesTheDatabaseAsItWas) {
  const std::string path = JoinPath(dir_.path(), "ablate.db");
  auto db = Connection::Open(path, Connection::Mode::kReadWrite);
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE((*db)->Script("CREATE TABLE locks (theirs)").ok());
  const absl::Status status = Migrate(**db, path);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("0002_claims.sql"));
  EXPECT_EQ(*(*db)->QueryInt(0, "PRAGMA user_version"), 1);
  EXPECT_EQ(Rows(**db, kResults)->size(), 612u);
}

}  // namespace
}  // namespace ablate
