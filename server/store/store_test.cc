// The database file: commits, groups, failures, readers, versions.
#include "server/store/store.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/migrations.h"

namespace {

std::atomic<int64_t> timed_waits = 0;

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// All waits with an end (CondVar::WaitFor) and all sleeps of this program come by here.
extern "C" {
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  ++timed_waits;
  return Real<decltype(pthread_cond_clockwait)>("pthread_cond_clockwait")(condition, mutex, clock, until);
}
int nanosleep(const timespec* asked, timespec* left) {
  ++timed_waits;
  return Real<decltype(nanosleep)>("nanosleep")(asked, left);
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* asked, timespec* left) {
  ++timed_waits;
  return Real<decltype(clock_nanosleep)>("clock_nanosleep")(clock, flags, asked, left);
}
}

namespace ablate {
namespace {

using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    auto store =
        Store::Open({.data_dir = dir_.path(),
                     .before_commit =
                         [this] { return fail_commit_ ? absl::ResourceExhaustedError("disk full") : absl::OkStatus(); },
                     .on_failure = [this] { ++failures_; }});
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  static absl::Status Insert(Connection& db, const std::string& id) {
    return db.Run("INSERT INTO requests (request_id, method, response, at_us) VALUES (?, 'm', ?, 0)", id, Blob{"r"});
  }
  static int64_t Count(Store& store) {
    int64_t count = -1;
    EXPECT_TRUE(store
                    .Read([&](Connection& db) -> absl::Status {
                      ABLATE_ASSIGN_OR_RETURN(count, db.QueryInt(-1, "SELECT COUNT(*) FROM requests"));
                      return absl::OkStatus();
                    })
                    .ok());
    return count;
  }

  TempDir dir_;
  std::atomic<bool> fail_commit_ = false;
  std::atomic<int> failures_ = 0;
};

// See Connection::Open: with it large transactions take quadratic time.
TEST(ConnectionTest, AWriterKeepsNoSubJournalInMemory) {
  TempDir dir;
  const auto db = Connection::Open(JoinPath(dir.path(), "a.db"), Connection::Mode::kReadWrite);
  ASSERT_TRUE(db.ok()) << db.status();
  EXPECT_EQ(*(*db)->QueryInt(-1, "PRAGMA temp_store"), 0);
}

TEST_F(StoreTest, WhatIsWrittenIsThereAfterReopening) {
  {
    auto store = Open();
    EXPECT_TRUE(store->Write([](Connection& db) { return Insert(db, "a"); }).ok());
    EXPECT_EQ(Count(*store), 1);
  }
  EXPECT_EQ(Count(*Open()), 1);
}

TEST_F(StoreTest, WaitingWritesShareACommitAndAFailingBodyUndoesItselfAlone) {
  auto store = Open();
  std::atomic<bool> go = false;
  std::vector<Store::Ticket> tickets;
  // The first holds the writer until all others wait.
  tickets.push_back(store->Enqueue([&](Connection&) {
    while (!go) std::this_thread::yield();
    return absl::OkStatus();
  }));
  const int64_t before = store->commits();
  for (int i = 0; i < 100; ++i) {
    tickets.push_back(store->Enqueue([i](Connection& db) -> absl::Status {
      ABLATE_RETURN_IF_ERROR(Insert(db, std::to_string(i)));
      return i % 10 == 3 ? absl::AbortedError("changed my mind") : absl::OkStatus();
    }));
  }
  go = true;
  int failed = 0;
  for (const Store::Ticket& ticket : tickets) failed += !store->Wait(ticket).ok();
  EXPECT_EQ(failed, 10);
  EXPECT_EQ(Count(*store), 90);
  EXPECT_LE(store->commits() - before, 3);
  EXPECT_EQ(failures_, 0);
}

// A writer that waits for company makes a lone job wait, at one job a second most of all. Waits with an end show it, whatever
// the machine is busy with.
TEST_F(StoreTest, ALoneWriteWaitsForNothing) {
  {
    Mutex mutex;
    CondVar never;
    timed_waits = 0;
    MutexLock lock(&mutex);
    never.WaitFor(&mutex, 1);
    ASSERT_GE(timed_waits, 1) << "waits are not seen here, so the rest would show nothing";
  }
  timed_waits = 0;
  std::this_thread::sleep_for(std::chrono::nanoseconds(1));
  ASSERT_GE(timed_waits, 1) << "sleeps are not seen here";

  auto store = Open();
  const int64_t before = store->commits();
  timed_waits = 0;
  for (int i = 0; i < 20; ++i) {
    // Nobody else comes: each of these is alone, and the next one only comes when it is on the disk.
    ASSERT_TRUE(store->Write([&](Connection& db) { return Insert(db, std::to_string(i)); }).ok());
    EXPECT_EQ(store->commits() - before, i + 1);
  }
  EXPECT_EQ(timed_waits, 0);
}

TEST_F(StoreTest, AFailingCommitFailsItsGroupAndTheNextIsFine) {
  auto store = Open();
  fail_commit_ = true;
  const absl::Status status = store->Write([](Connection& db) { return Insert(db, "a"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing was stored"));
  EXPECT_EQ(failures_, 1);
  fail_commit_ = false;
  EXPECT_TRUE(store->Write([](Connection& db) { return Insert(db, "b"); }).ok());
  EXPECT_EQ(Count(*store), 1);
}

TEST_F(StoreTest, TwoCoordinatorsNeverShareAFolder) {
  auto store = Open();
  const auto second = Store::Open({.data_dir = dir_.path()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another coordinator (process "));
  store.reset();
  EXPECT_TRUE(Store::Open({.data_dir = dir_.path()}).ok());
}

TEST_F(StoreTest, ReadersSeeWholeCommitsAndAreNeverTurnedAway) {
  auto store = Open();
  // Each write keeps the two counts equal; a reader that saw half of one would find them apart.
  constexpr int kWrites = 300;
  std::atomic<bool> stop = false;
  std::atomic<int> errors = 0, reads = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 20; ++i) {
    readers.emplace_back([&] {
      do {
        const absl::Status status = store->Read([&](Connection& db) -> absl::Status {
          ABLATE_ASSIGN_OR_RETURN(const int64_t left,
                                  db.QueryInt(-1, "SELECT COUNT(*) FROM requests WHERE method = 'left'"));
          std::this_thread::yield();
          ABLATE_ASSIGN_OR_RETURN(const int64_t right,
                                  db.QueryInt(-1, "SELECT COUNT(*) FROM requests WHERE method = 'right'"));
          return left == right ? absl::OkStatus() : absl::InternalError("half a commit");
        });
        errors += !status.ok();
        ++reads;
      } while (!stop);
    });
  }
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < kWrites / 2; ++i) {
        errors += !store
                       ->Write([&](Connection& db) -> absl::Status {
                         for (const char* side : {"left", "right"}) {
                           ABLATE_RETURN_IF_ERROR(
                               db.Run("INSERT INTO requests (request_id, method, response, at_us) VALUES (?, ?, ?, 0)",
                                      absl::StrCat(side, w, " ", i), side, Blob{""}));
                         }
                         return absl::OkStatus();
                       })
                       .ok();
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(errors, 0);
  EXPECT_GE(reads, 20);
  EXPECT_EQ(Count(*store), 2 * kWrites);
}

TEST_F(StoreTest, ReadersCannotWrite) {
  auto store = Open();
  const absl::Status status = store->Read([](Connection& db) { return Insert(db, "x"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(Count(*store), 0);
}

TEST_F(StoreTest, NewerForeignAndDamagedFilesAreRefusedWithAWayOut) {
  const std::string path = JoinPath(dir_.path(), "ablate.db");
  Open().reset();
  {
    auto db = Connection::Open(path, Connection::Mode::kReadWrite);
    ASSERT_TRUE((*db)->Script("PRAGMA user_version = 99").ok());
  }
  auto store = Store::Open({.data_dir = dir_.path()});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("newer release (schema version 99"));

  for (const char* file : {"ablate.db", "ablate.db-wal", "ablate.db-shm"})
    ASSERT_TRUE(RemoveFile(JoinPath(dir_.path(), file)).ok());
  {
    auto db = Connection::Open(path, Connection::Mode::kReadWrite);
    ASSERT_TRUE((*db)->Script("CREATE TABLE theirs (x)").ok());
  }
  store = Store::Open({.data_dir = dir_.path()});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("another program"));

  for (const char* file : {"ablate.db", "ablate.db-wal", "ablate.db-shm"})
    ASSERT_TRUE(RemoveFile(JoinPath(dir_.path(), file)).ok());
  ASSERT_TRUE(WriteFileAtomic(path, std::string(5000, 'x')).ok());
  store = Store::Open({.data_dir = dir_.path()});
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("--read-only"));
}

TEST_F(StoreTest, TheSchemaIsMadeOnceWithItsQuantiles) {
  auto store = Open();
  ASSERT_TRUE(store
                  ->Read([](Connection& db) -> absl::Status {
                    EXPECT_EQ(*db.QueryInt(-1, "PRAGMA user_version"), static_cast<int64_t>(Migrations().size()));
                    EXPECT_EQ(*db.QueryInt(-1, "SELECT COUNT(*) FROM t_critical"), 3000);
                    ABLATE_ASSIGN_OR_RETURN(Statement row,
                                            db.Query("SELECT value FROM t_critical WHERE df = 9 AND level = 0.95"));
                    EXPECT_TRUE(*row.Step());
                    EXPECT_NEAR(row.Real(0), 2.2621571627982, 1e-12);
                    EXPECT_EQ(*db.QueryInt(-1, "PRAGMA foreign_keys"), 1);
                    return absl::OkStatus();
                  })
                  .ok());
  ASSERT_TRUE(store
                  ->Write([](Connection& db) -> absl::Status {
                    EXPECT_EQ(*db.QueryInt(-1, "PRAGMA synchronous"), 2);
                    EXPECT_FALSE(db.Run("INSERT INTO sweep_jobs (sweep, job) VALUES (1, 1)").ok());
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST(Migrations, AreNumberedWithoutGaps) {
  int number = 0;
  for (const Migration& migration : Migrations()) {
    const std::string name = migration.name;
    EXPECT_EQ(std::stoi(name.substr(0, 4)), ++number) << name;
    EXPECT_EQ(name[4], '_');
  }
  EXPECT_GT(number, 0);
}

TEST(Statement, NestedUseOfOneTextGetsTwoStatements) {
  TempDir dir;
  auto db = Connection::Open(JoinPath(dir.path(), "x.db"), Connection::Mode::kReadWrite);
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE((*db)
                  ->Script("CREATE TABLE t (a INTEGER, b TEXT, c REAL, d BLOB); INSERT INTO t VALUES (1, 'x', 2.5, "
                           "x'00ff'), (2, NULL, NULL, NULL)")
                  .ok());
  const char* sql = "SELECT a, b, c, d FROM t WHERE a >= ? ORDER BY a";
  auto outer = (*db)->Query(sql, 1);
  ASSERT_TRUE(*outer->Step());
  {
    auto inner = (*db)->Query(sql, 2);
    ASSERT_TRUE(*inner->Step());
    EXPECT_EQ(inner->Int(0), 2);
    EXPECT_TRUE(inner->IsNull(1));
  }
  EXPECT_EQ(outer->Int(0), 1);
  EXPECT_EQ(outer->Text(1), "x");
  EXPECT_EQ(outer->Real(2), 2.5);
  EXPECT_EQ(outer->Bytes(3), std::string("\0\xff", 2));
  ASSERT_TRUE(*outer->Step());
  EXPECT_EQ(outer->Int(0), 2);
  EXPECT_FALSE(*outer->Step());
  EXPECT_EQ((*db)->Prepare("SELEKT").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ablate
