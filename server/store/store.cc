// See store.h.
#include "server/store/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "server/store/check.h"
#include "server/store/migrations.h"

namespace ablate {
namespace {

constexpr size_t kMaxGroup = 512;  // bounds how long the first of a group waits

constexpr int kAnsweredBytes = 20;   // one number in decimal, padded: written in place

absl::Status ForUser(const absl::Status& status, const std::string& path) {
  if (status.code() != absl::StatusCode::kDataLoss) return status;
  const std::string dir = Dirname(path);
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is damaged: ", status.message(), ".\nNothing was changed. Keep the files as they are, then\n",
                   "  read what is left:  ablate-server --data-dir ", dir, " --read-only\n",
                   "  or go on from a backup:  ablate-server --restore BACKUP --data-dir NEW_DIR\n",
                   "  all that is wrong:  ablate-server --data-dir ", dir, " --check"));
}

std::string AnsweredPath(const std::string& path) { return path + "-answered"; }

// The last event of which somebody was told is there. DataLoss: it is not. Only reads.
absl::Status CheckAnswered(const std::string& path, int64_t* answered) {
  const absl::StatusOr<std::string> text = ReadFile(AnsweredPath(path));
  *answered = text.ok() ? std::strtoll(text->c_str(), nullptr, 10) : 0;
  if (*answered == 0) return absl::OkStatus();
  int64_t last = 0;
  if (FileSize(path).value_or(0) > 0) {
    ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                            Connection::Open(path, Connection::Mode::kReadOnly));
    ABLATE_ASSIGN_OR_RETURN(const int64_t version, db->QueryInt(0, "PRAGMA user_version"));
    if (version < 1 || version > static_cast<int64_t>(Migrations().size())) return absl::OkStatus();
    ABLATE_ASSIGN_OR_RETURN(last, db->QueryInt(0, "SELECT MAX(row) FROM events"));
  }
  if (last >= *answered) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      last == 0 ? std::string("it has no events") : absl::StrCat("it ends with event ", last), ", but event ", *answered,
      " was stored and answered: its -wal file is missing or cut, or it was replaced (if that is meant, and nobody may "
      "expect what is lost, remove ",
      AnsweredPath(path), ")"));
}

}  // namespace

class Store::Pending {
 public:
  explicit Pending(Body body) : body(std::move(body)) {}
  Body body;
  // Written by the writer thread before `done`; both are guarded by the store's mutex from then on.
  absl::Status status;
  bool done = false;
};

absl::StatusOr<std::unique_ptr<Store>> Store::Open(StoreOptions options) {
  std::string path = JoinPath(options.data_dir, "ablate.db");
  if (options.read_only) return std::unique_ptr<Store>(new Store(std::move(options), std::move(path)));
  ABLATE_RETURN_IF_ERROR(MakeDirs(options.data_dir));
  ABLATE_ASSIGN_OR_RETURN(std::unique_ptr<DataDirLock> lock, DataDirLock::Acquire(options.data_dir));
  std::unique_ptr<Store> store(new Store(std::move(options), std::move(path)));
  store->lock_ = std::move(lock);
  absl::Status sound = CheckBeforeUse(store->path_);
  if (sound.ok()) sound = CheckAnswered(store->path_, &store->answered_);
  if (!sound.ok()) return ForUser(sound, store->path_);
  absl::StatusOr<std::unique_ptr<Connection>> writer = Connection::Open(store->path_, Connection::Mode::kReadWrite);
  if (!writer.ok()) return ForUser(writer.status(), store->path_);
  store->writer_ = *std::move(writer);
  if (absl::Status status = Migrate(*store->writer_, store->path_); !status.ok()) return ForUser(status, store->path_);
  store->answered_fd_ = ::open(AnsweredPath(store->path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (store->answered_fd_ < 0) return FileError("cannot open", AnsweredPath(store->path_), errno);
  store->writer_thread_ = std::thread([raw = store.get()] { raw->WriterLoop(); });
  return store;
}

Store::~Store() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  work_.NotifyAll();
  if (writer_thread_.joinable()) writer_thread_.join();
  if (answered_fd_ >= 0) ::close(answered_fd_);
}

// Not fsynced, as the number only has to outlive this process, and after a power cut an older one refuses less.
void Store::NoteAnswered() {
  const absl::StatusOr<int64_t> last = writer_->QueryInt(0, "SELECT MAX(row) FROM events");
  if (!last.ok() || *last == answered_) return;
  std::string text = std::to_string(*last);
  text.resize(kAnsweredBytes, '\n');
  if (::pwrite(answered_fd_, text.data(), text.size(), 0) == kAnsweredBytes) answered_ = *last;
}

Store::Ticket Store::Enqueue(Body body) {
  Ticket ticket = std::make_shared<Pending>(std::move(body));
  if (options_.read_only) {
    ticket->status = absl::FailedPreconditionError(
        "the database is open for reading only (--read-only): start ablate-server without it to change anything");
    ticket->done = true;
    return ticket;
  }
  {
    MutexLock lock(&mutex_);
    queue_.push_back(ticket);
  }
  work_.NotifyOne();
  return ticket;
}

absl::Status Store::Wait(const Ticket& ticket) {
  MutexLock lock(&mutex_);
  while (!ticket->done) done_.Wait(&mutex_);
  // A text of its own: copies share one by a count within absl's library, which ThreadSanitizer does not see.
  return absl::Status(ticket->status.code(), ticket->status.message());
}

void Store::Drain() {
  MutexLock lock(&mutex_);
  while (writing_ || !queue_.empty()) done_.Wait(&mutex_);
}

int64_t Store::commits() const {
  MutexLock lock(&mutex_);
  return commits_;
}

void Store::WriterLoop() {
  while (true) {
    std::vector<Ticket> group;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) work_.Wait(&mutex_);
      if (queue_.empty()) return;
      const size_t size = std::min(queue_.size(), kMaxGroup);
      group.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.begin() + size));
      queue_.erase(queue_.begin(), queue_.begin() + size);
      writing_ = true;
    }
    WriteGroup(group);
    {
      MutexLock lock(&mutex_);
      for (const Ticket& ticket : group) ticket->done = true;
      writing_ = false;
      ++commits_;
    }
    done_.NotifyAll();
  }
}

void Store::WriteGroup(std::vector<Ticket>& group) {
  absl::Status status = writer_->Script("BEGIN IMMEDIATE");
  for (const Ticket& ticket : group) {
    if (!status.ok()) break;
    status = writer_->Script("SAVEPOINT body");
    if (!status.ok()) break;
    ticket->status = ticket->body(*writer_);
    ticket->body = nullptr;
    // A full disk may have ended the whole transaction.
    if (!writer_->InTransaction()) {
      status = ticket->status.ok() ? absl::UnavailableError("SQLite ended the transaction") : ticket->status;
      break;
    }
    if (!ticket->status.ok()) {
      status = writer_->Script("ROLLBACK TO body");
      if (!status.ok()) break;
    }
    status = writer_->Script("RELEASE body");
  }
  if (status.ok() && options_.before_commit) status = options_.before_commit();
  if (status.ok()) status = writer_->Script("COMMIT");
  if (!status.ok()) {
    if (writer_->InTransaction()) {
      if (absl::Status rollback = writer_->Script("ROLLBACK"); !rollback.ok()) LOG(ERROR) << rollback;
    }
    LOG(ERROR) << "a commit to " << path_ << " failed, " << group.size() << " writes are undone: " << status;
    for (const Ticket& ticket : group) {
      ticket->status = WithContext(status, "nothing was stored");
      ticket->body = nullptr;
    }
  }
  if (status.ok()) NoteAnswered();
  if (!status.ok() && options_.on_failure) options_.on_failure();
}

absl::Status Store::Read(const std::function<absl::Status(Connection&)>& body) {
  std::unique_ptr<Connection> connection;
  {
    MutexLock lock(&mutex_);
    while (idle_readers_.empty() && readers_ >= options_.max_readers) reader_free_.Wait(&mutex_);
    if (!idle_readers_.empty()) {
      connection = std::move(idle_readers_.back());
      idle_readers_.pop_back();
    } else {
      ++readers_;
    }
  }
  absl::Status status;
  if (connection == nullptr) {
    absl::StatusOr<std::unique_ptr<Connection>> opened = Connection::Open(path_, Connection::Mode::kReadOnly);
    if (opened.ok()) {
      connection = *std::move(opened);
    } else {
      status = opened.status();
    }
  }
  if (status.ok()) status = connection->Script("BEGIN");
  if (status.ok()) {
    status = body(*connection);
    if (connection->InTransaction()) {
      if (absl::Status end = connection->Script("COMMIT"); !end.ok()) {
        LOG(ERROR) << end;
        connection.reset();
      }
    }
  }
  {
    MutexLock lock(&mutex_);
    if (connection != nullptr) {
      idle_readers_.push_back(std::move(connection));
    } else {
      --readers_;
    }
  }
  reader_free_.NotifyOne();
  return status;
}

}  // namespace ablate
