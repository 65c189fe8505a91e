// Damaged databases: a real one (tests/data) is damaged at many places, chosen by a seed, in each way that disks and
// people damage files. Never a crash, never a number that was not measured, never a write to the damaged file; refused
// with a way out, or harmless; and what is readable is read. Prints what it did. ABLATE_LONG_FAULTS=1: ten times more
// places; ABLATE_FAULT_SEED chooses others.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/backup.h"
#include "server/store/check.h"
#include "server/store/digest.h"
#include "server/store/migrations.h"
#include "server/store/salvage.h"
#include "server/store/store.h"

namespace ablate {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

bool LongRun() { return std::getenv("ABLATE_LONG_FAULTS") != nullptr; }
uint64_t Seed() {
  const char* seed = std::getenv("ABLATE_FAULT_SEED");
  return seed == nullptr ? 20261130 : std::strtoull(seed, nullptr, 10);
}

std::vector<std::string> Rows(Connection& db, const std::string& sql) {
  std::vector<std::string> all;
  auto rows = db.Query(sql);
  while (rows.ok()) {
    const auto more = rows->Step();
    if (!more.ok() || !*more) break;
    std::string& text = all.emplace_back();
    for (int i = 0; i < rows->Columns(); ++i) absl::StrAppend(&text, "|", rows->Text(i));
  }
  return all;
}

constexpr char kNumbers[] =
    "SELECT sweep, arm, seed, metric, length, split, ntk, quote(value), status, job, device, non_finite, phase, standing, "
    "key FROM results";
constexpr char kCurves[] = "SELECT s.key, c.metric, c.step, quote(c.value), c.non_finite FROM curves c JOIN stages s ON "
                           "s.row = c.stage";

class DamageTest : public ::testing::Test {
 protected:
  // The kept database of schema version 2, brought up to date and closed: one file.
  static void SetUpTestSuite() {
    TempDir dir;
    const auto kept = ReadFile(ABLATE_DATA_DIR "/schema2/ablate.db");
    ASSERT_TRUE(kept.ok() && WriteFileAtomic(JoinPath(dir.path(), "ablate.db"), *kept).ok());
    {
      auto store = Store::Open({.data_dir = dir.path()});
      ASSERT_TRUE(store.ok()) << store.status();
      EXPECT_TRUE((*store)
                      ->Read([](Connection& db) {
                        for (const char* sql : {kNumbers, kCurves}) {
                          for (const std::string& row : Rows(db, sql)) truth_.insert(row);
                        }
                        return absl::OkStatus();
                      })
                      .ok());
    }
    sound_ = *ReadFile(JoinPath(dir.path(), "ablate.db"));
    ASSERT_GT(truth_.size(), 3000u);
  }

  std::string path() const { return JoinPath(dir_.path(), "ablate.db"); }
  void Use(const std::string& bytes) {
    for (const char* suffix : {"", "-wal", "-shm", "-answered"}) ASSERT_TRUE(RemoveFile(path() + suffix).ok());
    ASSERT_TRUE(WriteFileAtomic(path(), bytes).ok());
  }
  // All numbers of a database are ones that were measured. How many there are.
  static size_t ExpectTrue(Connection& db, const std::string& what) {
    size_t count = 0;
    for (const char* sql : {kNumbers, kCurves}) {
      for (const std::string& row : Rows(db, sql)) {
        ++count;
        EXPECT_TRUE(truth_.contains(row)) << what << ": " << row;
      }
    }
    return count;
  }

  static std::set<std::string> truth_;
  static std::string sound_;
  TempDir dir_;
};
std::set<std::string> DamageTest::truth_;
std::string DamageTest::sound_;

// One way of damaging a file; says what it did.
using Damage = std::function<std::string(std::mt19937_64&, std::string*)>;
const std::vector<Damage>& Damages() {
  constexpr size_t kPage = 4096;
  static const auto& damages = *new std::vector<Damage>{
      [](auto& random, std::string* bytes) {
        const size_t at = random() % bytes->size(), bit = random() % 8;
        (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << bit));
        return absl::StrCat("bit ", bit, " of byte ", at, " flipped");
      },
      [](auto& random, std::string* bytes) {  // structure: the first bytes of a page and its cell pointers
        const size_t at = random() % (bytes->size() / kPage) * kPage + random() % 64, bit = random() % 8;
        (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << bit));
        return absl::StrCat("bit ", bit, " of byte ", at, " flipped, near the head of a page");
      },
      [](auto& random, std::string* bytes) {
        const size_t page = random() % (bytes->size() / kPage);
        const char fill = random() % 2 == 0 ? '\0' : static_cast<char>(random());
        bytes->replace(page * kPage, kPage, std::string(kPage, fill));
        return absl::StrCat("page ", page + 1, " overwritten with ", static_cast<int>(fill));
      },
      [](auto& random, std::string* bytes) {
        const size_t page = random() % (bytes->size() / kPage);
        for (size_t i = 0; i < kPage; ++i) (*bytes)[page * kPage + i] = static_cast<char>(random());
        return absl::StrCat("page ", page + 1, " overwritten with garbage");
      },
      [](auto& random, std::string* bytes) {
        const size_t a = random() % (bytes->size() / kPage), b = random() % (bytes->size() / kPage);
        std::swap_ranges(bytes->begin() + a * kPage, bytes->begin() + (a + 1) * kPage, bytes->begin() + b * kPage);
        return absl::StrCat("pages ", a + 1, " and ", b + 1, " swapped");
      },
      [](auto& random, std::string* bytes) {
        bytes->resize(random() % bytes->size());
        return absl::StrCat("cut to ", bytes->size(), " bytes");
      },
      [](auto& random, std::string* bytes) {
        for (size_t i = 0; i < 100; ++i) (*bytes)[i] = static_cast<char>(random());
        return std::string("garbage in place of the header");
      },
      [](auto& random, std::string* bytes) {  // a lost sector
        const size_t at = random() % (bytes->size() / 512) * 512;
        bytes->replace(at, 512, std::string(512, '\0'));
        return absl::StrCat("512 bytes at ", at, " lost");
      },
  };
  return damages;
}

TEST_F(DamageTest, RefusedWithAWayOutOrHarmlessAndEveryNumberThatIsReadIsTrue) {
  std::mt19937_64 random(Seed());
  const int cases = LongRun() ? 800 : 24;
  int refused = 0, harmless = 0, salvaged = 0, unreadable = 0, wrong_rows = 0;
  uint64_t numbers = 0, of = 0;
  for (int i = 0; i < cases; ++i) {
    std::string bytes = sound_;
    const std::string what = absl::StrCat("case ", i, " of seed ", Seed(), ": ",
                                          Damages()[static_cast<size_t>(i) % Damages().size()](random, &bytes));
    SCOPED_TRACE(what);
    Use(bytes);
    {
      auto store = Store::Open({.data_dir = dir_.path()});
      if (store.ok()) {
        ++harmless;
        EXPECT_TRUE((*store)
                        ->Read([&](Connection& db) {
                          EXPECT_EQ(ExpectTrue(db, what), bytes.empty() ? 0 : truth_.size());
                          return absl::OkStatus();
                        })
                        .ok());
        continue;
      }
      ++refused;
      EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition) << store.status();
      EXPECT_THAT(std::string(store.status().message()),
                  AnyOf(HasSubstr("--read-only"), HasSubstr("newer release"), HasSubstr("another program")));
    }
    EXPECT_EQ(*ReadFile(path()), bytes) << "the damaged file was written";
    TempDir scratch;
    const auto left = Salvage(path(), scratch.path());
    EXPECT_EQ(*ReadFile(path()), bytes) << "the damaged file was written";
    if (!left.ok()) {
      ++unreadable;
      std::printf("%s\n  %s\n", what.c_str(), std::string(left.status().message()).c_str());
      EXPECT_THAT(left.status().code(), AnyOf(absl::StatusCode::kDataLoss, absl::StatusCode::kFailedPrecondition))
          << left.status();
      continue;
    }
    ++salvaged;
    auto db = Connection::Open(JoinPath(scratch.path(), "ablate.db"), Connection::Mode::kReadOnly);
    ASSERT_TRUE(db.ok()) << db.status();
    numbers += ExpectTrue(**db, what);
    of += truth_.size();
    for (const Salvaged::Table& table : left->tables) wrong_rows += static_cast<int>(table.wrong);
    EXPECT_EQ(Rows(**db, "SELECT * FROM pragma_integrity_check"), std::vector<std::string>{"|ok"});
  }
  std::printf("%d damaged databases (seed %llu): %d refused, %d harmless; of the refused %d were read, %d not at all; "
              "%llu of %llu numbers read, all true; %d rows left out by their digest\n",
              cases, static_cast<unsigned long long>(Seed()), refused, harmless, salvaged, unreadable,
              static_cast<unsigned long long>(numbers), static_cast<unsigned long long>(of), wrong_rows);
  EXPECT_EQ(refused + harmless, cases);
  EXPECT_GT(refused, cases / 3);
  EXPECT_GT(salvaged, refused * 2 / 3);
}

// A flipped bit in a stored value is all that SQLite's own check cannot see.
TEST_F(DamageTest, AFlippedBitInAValueIsSeenByItsDigest) {
  std::string value;
  {
    Use(sound_);
    auto db = Connection::Open(path(), Connection::Mode::kReadOnly);
    ASSERT_TRUE(db.ok());
    auto row = (*db)->Query("SELECT value FROM evaluation_results WHERE metric = 'loss_targets' AND value IS NOT NULL AND "
                            "value <> round(value) LIMIT 1");
    ASSERT_TRUE(row.ok() && *row->Step());
    const double number = row->Real(0);
    value.assign(reinterpret_cast<const char*>(&number), 8);
    std::reverse(value.begin(), value.end());  // big-endian in the file
  }
  std::string bytes = sound_;
  int found = 0;
  for (size_t at = bytes.find(value); at != std::string::npos; at = bytes.find(value, at + 1)) {
    bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 4);
    ++found;
  }
  ASSERT_GT(found, 0);
  Use(bytes);
  {
    auto db = Connection::Open(path(), Connection::Mode::kReadOnly);
    EXPECT_EQ(Rows(**db, "SELECT * FROM pragma_integrity_check"), std::vector<std::string>{"|ok"});
  }
  const auto store = Store::Open({.data_dir = dir_.path()});
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("of evaluation_results"));
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("not what was written"));
  TempDir scratch;
  const auto left = Salvage(path(), scratch.path());
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_TRUE(left->damaged && left->complete_definitions());
  ASSERT_FALSE(left->Losses().empty());
  EXPECT_THAT(left->Losses()[0], HasSubstr("left out as they are not what was written"));
}

TEST_F(DamageTest, WhatWasAnsweredIsMissedWhenTheWalIsGone) {
  Use(sound_);
  std::string early;
  {
    auto store = Store::Open({.data_dir = dir_.path()});
    ASSERT_TRUE(store.ok());
    early = *ReadFile(path());
    ASSERT_TRUE((*store)
                    ->Write([](Connection& db) {
                      return db.Run("INSERT INTO events (at_us, job, from_state, to_state, cause, attempt, worker_id, "
                                    "text) SELECT 0, row, state, state, 'test', 0, '', '' FROM jobs LIMIT 5");
                    })
                    .ok());
    // As after kill -9: the commit is in the -wal file only.
    TempDir crashed;
    for (const char* suffix : {"", "-answered"}) {
      ASSERT_TRUE(WriteFileAtomic(JoinPath(crashed.path(), absl::StrCat("ablate.db", suffix)), *ReadFile(path() + suffix)).ok());
    }
    const std::string wal = *ReadFile(path() + "-wal");
    const auto refused = Store::Open({.data_dir = crashed.path()});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("-wal file is missing or cut"));
    // Cut, or damaged in the middle: SQLite takes what comes before for all there is.
    std::string cut = wal;
    cut[wal.size() / 2] = static_cast<char>(cut[wal.size() / 2] ^ 1);
    for (const std::string& bytes : {wal.substr(0, wal.size() / 2), cut}) {
      ASSERT_TRUE(WriteFileAtomic(JoinPath(crashed.path(), "ablate.db-wal"), bytes).ok());
      EXPECT_EQ(Store::Open({.data_dir = crashed.path()}).status().code(), absl::StatusCode::kFailedPrecondition);
      ASSERT_TRUE(RemoveFile(JoinPath(crashed.path(), "ablate.db-shm")).ok());
    }
    ASSERT_TRUE(WriteFileAtomic(JoinPath(crashed.path(), "ablate.db-wal"), wal).ok());
    EXPECT_TRUE(Store::Open({.data_dir = crashed.path()}).ok());
  }
  EXPECT_TRUE(Store::Open({.data_dir = dir_.path()}).ok());
  // An older copy in its place, and no file at all.
  for (const char* suffix : {"", "-wal", "-shm"}) ASSERT_TRUE(RemoveFile(path() + suffix).ok());
  EXPECT_EQ(Store::Open({.data_dir = dir_.path()}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(FileExists(path()));
  ASSERT_TRUE(WriteFileAtomic(path(), early).ok());
  EXPECT_EQ(Store::Open({.data_dir = dir_.path()}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DamageTest, BackupsAreOfOneMomentWhileOthersWriteAndRefuseWhatIsDamaged) {
  Use(sound_);
  TempDir out;
  {
    auto store = Store::Open({.data_dir = dir_.path()});
    ASSERT_TRUE(store.ok());
    std::atomic<bool> stop = false;
    // Two rows a commit: a copy of half a commit would have an odd number.
    std::thread writer([&] {
      for (int i = 0; !stop; ++i) {
        EXPECT_TRUE((*store)
                        ->Write([i](Connection& db) -> absl::Status {
                          for (const char* side : {"a", "b"}) {
                            ABLATE_RETURN_IF_ERROR(db.Run("INSERT INTO requests VALUES (?, 'm', ?, 0)",
                                                          absl::StrCat(side, i), Blob{"x"}));
                          }
                          return absl::OkStatus();
                        })
                        .ok());
      }
    });
    int64_t before = -1;
    for (int i = 0; i < 5; ++i) {
      const std::string copy = JoinPath(out.path(), absl::StrCat(i, ".db"));
      const absl::Status status = BackupDatabase(path(), copy);
      EXPECT_TRUE(status.ok()) << status;
      auto db = Connection::Open(copy, Connection::Mode::kReadOnly);
      const int64_t count = *(*db)->QueryInt(-1, "SELECT COUNT(*) FROM requests");
      EXPECT_EQ(count % 2, 0);
      EXPECT_GE(count, before);
      before = count;
      EXPECT_EQ(ExpectTrue(**db, copy), truth_.size());
    }
    stop = true;
    writer.join();
    EXPECT_EQ(BackupDatabase(path(), JoinPath(out.path(), "0.db")).code(), absl::StatusCode::kAlreadyExists);
  }
  std::string bytes = sound_;
  for (size_t i = 20 * 4096; i < 24 * 4096; ++i) bytes[i] = static_cast<char>(i * 7);
  Use(bytes);
  EXPECT_EQ(BackupDatabase(path(), JoinPath(out.path(), "bad.db")).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(*ListDir(out.path()), ::testing::ElementsAre("0.db", "1.db", "2.db", "3.db", "4.db"));
}

TEST_F(DamageTest, TheTableOfDigestsIsThatOfTheTriggers) {
  Use(sound_);
  auto db = Connection::Open(path(), Connection::Mode::kReadWrite);
  ASSERT_TRUE(db.ok());
  size_t triggers = 0;
  for (const std::string& row : Rows(**db, "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")) {
    triggers += absl::StrContains(row, "_digest_new|");
  }
  EXPECT_EQ(triggers, DigestedTables().size());
  for (const DigestedTable& table : DigestedTables()) {
    const auto counts = CountDigests(**db, table);
    ASSERT_TRUE(counts.ok()) << table.table << ": " << counts.status();
    EXPECT_EQ(counts->wrong, 0) << table.table;
    EXPECT_EQ(counts->without, 0) << table.table;
    // Each column that is listed, changed alone, changes the digest: the triggers follow it.
    EXPECT_GT(counts->rows, 0) << table.table;
  }
  ASSERT_TRUE((*db)->Script("UPDATE evaluation_results SET value = value * 2; UPDATE points SET seal = 'open'").ok());
  for (const DigestedTable& table : DigestedTables()) EXPECT_EQ(CountDigests(**db, table)->wrong, 0) << table.table;
}

// Each rule of the check is broken, alone, in a copy of a sound database: the report names that rule.
TEST_F(DamageTest, TheCheckFindsEachBrokenRule) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", ""},
      {"DELETE FROM attempts WHERE job = (SELECT MAX(job) FROM attempts) AND attempt = 1", "attempts are numbered"},
      {"UPDATE jobs SET attempt = attempt + 1 WHERE row = (SELECT MIN(row) FROM jobs WHERE state = 'SUCCEEDED' AND attempt "
       "> 0)",
       "attempts are numbered"},
      {"INSERT INTO events (at_us, job, from_state, to_state, cause, attempt, worker_id, text) SELECT 0, row, 'SUCCEEDED', "
       "'QUEUED', 'retryable_failure', 1, '', '' FROM jobs WHERE state = 'SUCCEEDED' LIMIT 1",
       "terminal states are final"},
      {"DELETE FROM events WHERE row = (SELECT MAX(row) FROM events WHERE cause = 'result')", "its last event"},
      {"DELETE FROM events WHERE row = (SELECT MAX(row) FROM events WHERE to_state = 'RUNNING')", "each state to the next"},
      {"UPDATE attempts SET state = 'RUNNING' WHERE job = (SELECT MAX(job) FROM attempts)", "what runs has a lease"},
      {"UPDATE jobs SET state = 'QUEUED' WHERE row = (SELECT MIN(row) FROM jobs WHERE state = 'BLOCKED' AND sealed = 0)",
       "parent"},
      {"UPDATE evaluation_results SET job = (SELECT MIN(row) FROM jobs WHERE state = 'FAILED') WHERE evaluation = (SELECT "
       "MIN(evaluation) FROM evaluation_results) AND metric = 'loss'",
       "one accepted result"},
      {"UPDATE evaluation_results SET job = (SELECT MIN(row) FROM jobs WHERE state = 'FAILED') WHERE evaluation = (SELECT "
       "MIN(evaluation) FROM evaluation_results)",
       "jobs that succeeded at their key"},
      {"DELETE FROM evaluation_results WHERE evaluation = (SELECT MIN(evaluation) FROM evaluation_results)",
       "without a result"},
      {"DELETE FROM sweep_jobs WHERE job = (SELECT MIN(job) FROM sweep_jobs sj JOIN jobs j ON j.row = sj.job WHERE j.kind = "
       "'EVALUATION')",
       "no job of evaluation"},
      {"DELETE FROM sweep_jobs WHERE job = (SELECT MIN(j.row) FROM jobs j JOIN stages t ON t.key = j.key JOIN points p ON "
       "p.stage = t.row)",
       "no job of stage"},
      {"UPDATE sweeps SET state = 'SUCCEEDED' WHERE name = 'kept-unfinished'", "nothing left to do"},
      {"UPDATE sweeps SET plan_sha256 = 'x' WHERE row = 1", "newest version"},
      {"UPDATE events SET cause = 'parent_failed' WHERE row = (SELECT MAX(row) FROM events WHERE cause = 'leased')",
       "state machine"},
      // What no digest covers.
      {"UPDATE evaluations SET files = (SELECT MIN(row) FROM data) WHERE row = 3", "of something else than its key says"},
      {"UPDATE evaluations SET tokenizer = (SELECT MIN(row) FROM data) WHERE row = 3", "of something else than its key says"},
      {"UPDATE data_files SET sha256 = replace(sha256, substr(sha256, 1, 1), 'f') WHERE substr(sha256, 1, 1) <> 'f'", "are not those that it names"},
      {"UPDATE data_files SET bytes = bytes + 1", "are not those that it names"},
      {"PRAGMA foreign_keys = OFF; DELETE FROM workers; DELETE FROM arms WHERE sweep = 1 AND arm = 0", "foreign keys"},
  };
  for (const auto& [change, named] : cases) {
    Use(sound_);
    auto db = Connection::Open(path(), Connection::Mode::kReadWrite);
    ASSERT_TRUE(db.ok());
    const absl::Status status = (*db)->Script(change);
    ASSERT_TRUE(status.ok()) << status;
    CheckReport report;
    CheckStructure(**db, /*quick=*/false, &report);
    CheckInvariants(**db, &report);
    const std::string faults = absl::StrJoin(report.faults, "; ");
    if (*named == '\0') {
      EXPECT_EQ(faults, "");
    } else {
      EXPECT_THAT(faults, HasSubstr(named)) << change;
    }
  }
}

}  // namespace
}  // namespace ablate
