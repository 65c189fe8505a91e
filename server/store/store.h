// The database file: one writer thread that groups whatever waits into one commit, and a pool of read-only connections.
// Must not know what is stored (records.h does), jobs, sweeps or gRPC.
// Thread rule: safe to call from any thread; bodies of writes run on the writer thread, one after the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/store/data_dir_lock.h"
#include "server/store/sqlite.h"

namespace ablate {

struct StoreOptions {
  std::string data_dir;
  int max_readers = 32;
  // Only reads: no writer, no migration, no check; every write is refused (FailedPrecondition).
  bool read_only = false;
  // Runs on the writer thread just before each commit: an error fails the commit, as a full disk does. For tests.
  std::function<absl::Status()> before_commit;
  // Runs on the writer thread after a commit failed, before anything else is written.
  std::function<void()> on_failure;
};

class Store {
 public:
  // Makes or opens data_dir/ablate.db and brings its schema up to date. Looks at all of it first: a damaged one is not
  // written to, and so is one that lacks what was answered already (data_dir/ablate.db-answered has the number of the
  // last event whose commit was answered): its -wal file is missing or cut, or an older copy was put in its place.
  // FailedPrecondition: in use by another coordinator, of a newer release, or damaged; says what to do.
  static absl::StatusOr<std::unique_ptr<Store>> Open(StoreOptions options);
  // Writes what was enqueued, then closes.
  ~Store();

  // Statements only; BEGIN, COMMIT and savepoints are the store's. An error undoes this body alone.
  using Body = std::function<absl::Status(Connection&)>;
  // Blocks until the commit. A body's error is returned as it is. Unavailable, ResourceExhausted...: the commit failed,
  // and nothing of its whole group is stored.
  absl::Status Write(Body body) { return Wait(Enqueue(std::move(body))); }

  // The same in two steps, so that a caller can fix the order under its own lock and wait without it.
  class Pending;
  using Ticket = std::shared_ptr<Pending>;
  Ticket Enqueue(Body body);
  absl::Status Wait(const Ticket& ticket);
  // Until everything that was enqueued before the call is committed or has failed.
  void Drain();

  // Runs `body` on a read-only connection, in one read transaction: it sees one committed state throughout.
  absl::Status Read(const std::function<absl::Status(Connection&)>& body);

  const std::string& path() const { return path_; }
  int64_t commits() const;

 private:
  Store(StoreOptions options, std::string path) : options_(std::move(options)), path_(std::move(path)) {}
  void WriterLoop();
  void WriteGroup(std::vector<Ticket>& group);
  void NoteAnswered();

  // Constant after Open.
  const StoreOptions options_;
  const std::string path_;
  std::unique_ptr<DataDirLock> lock_;
  std::thread writer_thread_;
  // Of the writer thread alone (of Open before it starts).
  std::unique_ptr<Connection> writer_;
  int answered_fd_ = -1;
  int64_t answered_ = 0;

  mutable Mutex mutex_;
  CondVar work_;  // the queue is not empty, or stopping_
  CondVar done_;  // some pending write is done
  CondVar reader_free_;
  std::deque<Ticket> queue_ ABLATE_GUARDED_BY(mutex_);
  bool stopping_ ABLATE_GUARDED_BY(mutex_) = false;
  bool writing_ ABLATE_GUARDED_BY(mutex_) = false;
  int64_t commits_ ABLATE_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Connection>> idle_readers_ ABLATE_GUARDED_BY(mutex_);
  int readers_ ABLATE_GUARDED_BY(mutex_) = 0;
};

}  // namespace ablate
