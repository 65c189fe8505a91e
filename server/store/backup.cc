// See backup.h.
#include "server/store/backup.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "server/store/check.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

absl::Status Sync(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  return result == 0 ? absl::OkStatus() : FileError("cannot fsync", path, error);
}

absl::Status Copy(const std::string& from, const std::string& to) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> source,
                          Connection::Open(from, Connection::Mode::kReadOnly));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> copy, Connection::Open(to, Connection::Mode::kPlain));
  sqlite3_backup* backup = sqlite3_backup_init(copy->handle(), "main", source->handle(), "main");
  if (backup == nullptr) return copy->ErrorOf(sqlite3_extended_errcode(copy->handle()), "backup");
  // In one step: one read transaction, so that a busy writer cannot make it start again for ever.
  sqlite3_backup_step(backup, -1);
  const int code = sqlite3_backup_finish(backup);
  if (code != SQLITE_OK) return copy->ErrorOf(code, "backup");
  // The copy says that it is in WAL mode, as its source does: with its first reader it would get files beside it.
  return copy->Script("PRAGMA journal_mode = DELETE");
}

}  // namespace

absl::Status BackupDatabase(const std::string& from, const std::string& to) {
  if (!FileExists(from)) return absl::NotFoundError(absl::StrCat(from, " is not there"));
  if (FileExists(to)) return absl::AlreadyExistsError(absl::StrCat(to, " is there already: name another file"));
  const std::string partial = to + ".partial";
  const auto forget = [&] {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) RemoveFile(partial + suffix).IgnoreError();
  };
  forget();
  absl::Status status = Copy(from, partial);
  if (status.ok()) status = CheckBeforeUse(partial);
  if (status.ok()) status = Sync(partial, O_RDONLY);
  if (status.ok()) status = RenameFile(partial, to);
  if (!status.ok()) {
    forget();
    return status;
  }
  return Sync(Dirname(to), O_RDONLY | O_DIRECTORY);
}

}  // namespace ablate
