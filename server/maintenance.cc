// See maintenance.h.
#include "server/maintenance.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "server/store/backup.h"
#include "server/store/check.h"
#include "server/store/export.h"
#include "server/store/migrations.h"
#include "server/store/records.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

constexpr char kManifest[] = "backup.sha256";

std::string DatabaseOf(const std::string& dir) { return JoinPath(dir, "ablate.db"); }
std::string ArtifactOf(const std::string& dir, const std::string& sha256) {
  return absl::StrCat(dir, "/artifacts/", sha256.substr(0, 2), "/", sha256.substr(2));
}

bool IsEmptyOrAbsent(const std::string& dir) {
  const auto names = ListDir(dir);
  return names.ok() ? names->empty() : !FileExists(dir);
}

// Those that have their final name.
std::vector<std::string> StoredArtifacts(const std::string& dir) {
  std::vector<std::string> found;
  const std::string root = JoinPath(dir, "artifacts");
  for (const std::string& folder : ListDir(root).value_or(std::vector<std::string>())) {
    if (folder.size() != 2) continue;
    for (const std::string& rest : ListDir(JoinPath(root, folder)).value_or(std::vector<std::string>())) {
      if (IsSha256Hex(folder + rest)) found.push_back(folder + rest);
    }
  }
  return found;
}

// Artifacts that the database names; -1 where their size is not known.
absl::StatusOr<std::map<std::string, int64_t>> NamedArtifacts(Connection& db) {
  std::map<std::string, int64_t> named;
  ABLATE_ASSIGN_OR_RETURN(const std::set<std::string> hashes, ReadNamedArtifacts(db));
  for (const std::string& sha256 : hashes) named[sha256] = -1;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows, db.Query("SELECT weights_sha256, weights_bytes FROM checkpoints WHERE weights_sha256 IS NOT NULL "
                               "UNION SELECT optimizer_sha256, optimizer_bytes FROM checkpoints WHERE optimizer_sha256 "
                               "IS NOT NULL UNION SELECT sha256, bytes FROM data_files UNION SELECT sha256, bytes FROM "
                               "result_artifacts"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return named;
    named[rows.Text(0)] = rows.Int(1);
  }
}

// Data under a worker's --data-root is named too, and never here; so is data of jobs that are all over and was
// collected. What is missing is a fault only where a state or a file of a result is named that jobs or users count on, or
// data that a worker has to get here for a job that is not over: by what.
absl::StatusOr<std::map<std::string, std::string>> NamedForGood(Connection& db) {
  std::map<std::string, std::string> named;
  ABLATE_ASSIGN_OR_RETURN(Statement rows,
                          db.Query("SELECT weights_sha256, 'a state' FROM checkpoints WHERE weights_sha256 IS NOT NULL UNION "
                                   "SELECT optimizer_sha256, 'a state' FROM checkpoints WHERE optimizer_sha256 IS NOT NULL "
                                   "UNION SELECT sha256, 'the result ' || name FROM result_artifacts"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) break;
    named[rows.Text(0)] = rows.Text(1);
  }
  ABLATE_ASSIGN_OR_RETURN(
      Statement data,
      db.Query("WITH open AS (SELECT kind, key FROM jobs WHERE executor = 'trainer' AND state IN "
               "('BLOCKED', 'QUEUED', 'RUNNING')), "
               "evaluated AS (SELECT evaluations.* FROM open JOIN evaluations USING (key) WHERE kind = 'EVALUATION') "
               "SELECT sha256, path FROM data_files WHERE bytes <= ? AND data IN ("
               "SELECT data FROM open JOIN stages USING (key) WHERE kind = 'STAGE' "
               "UNION SELECT stages.data FROM evaluated JOIN stages ON stages.row = evaluated.stage "
               "UNION SELECT files FROM evaluated UNION SELECT tokenizer FROM evaluated)",
               kMaxTravellingBytes));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, data.Step());
    if (!more) return named;
    named[data.Text(0)] = absl::StrCat("the data ", data.Text(1), " of jobs that are not over");
  }
}

void CheckArtifacts(Connection& db, const std::string& dir, bool deep, CheckReport* report) {
  const auto named = NamedArtifacts(db);
  const auto for_good = NamedForGood(db);
  if (!named.ok() || !for_good.ok()) {
    report->Add("artifacts", "", {std::string((named.ok() ? for_good.status() : named.status()).message())});
    return;
  }
  const std::vector<std::string> stored = StoredArtifacts(dir);
  const std::set<std::string> there(stored.begin(), stored.end());
  std::vector<std::string> faults;
  int64_t bytes = 0, unnamed = 0, elsewhere = 0;
  for (const auto& [sha256, size] : *named) {
    if (!there.contains(sha256)) {
      if (const auto by = for_good->find(sha256); by != for_good->end())
        faults.push_back(absl::StrCat(sha256, " is named by ", by->second, ", and not there"));
      else
        ++elsewhere;
    }
  }
  for (const std::string& sha256 : stored) {
    const auto name = named->find(sha256);
    unnamed += name == named->end();
    const std::string path = ArtifactOf(dir, sha256);
    const int64_t size = static_cast<int64_t>(FileSize(path).value_or(0));
    bytes += size;
    if (name != named->end() && name->second >= 0 && name->second != size) {
      faults.push_back(absl::StrCat(sha256, " has ", size, " bytes, not ", name->second));
    } else if (deep) {
      const absl::StatusOr<std::string> hash = Sha256HexOfFile(path);
      if (hash.ok() ? *hash != sha256 : !absl::IsNotFound(hash.status())) {
        faults.push_back(hash.ok() ? absl::StrCat(path, " has another content (SHA-256 ", *hash, ")")
                                   : std::string(hash.status().message()));
      }
    }
  }
  int64_t aside = 0;
  for (const std::string& folder : ListDir(JoinPath(dir, "artifacts")).value_or(std::vector<std::string>())) {
    for (const std::string& name : ListDir(absl::StrCat(dir, "/artifacts/", folder)).value_or(std::vector<std::string>())) {
      aside += absl::EndsWith(name, ".corrupt");
    }
  }
  std::string found = absl::StrCat(stored.size(), " (", HumanBytes(static_cast<uint64_t>(bytes)), ")",
                                   deep ? ", all of their contents read" : ", by name and size");
  if (unnamed > 0) absl::StrAppend(&found, ", ", unnamed, " that nothing names yet or any more");
  if (elsewhere > 0) absl::StrAppend(&found, ", ", elsewhere, " data files kept elsewhere or gone");
  if (aside > 0) absl::StrAppend(&found, ", ", aside, " set aside as *.corrupt");
  report->Add("artifacts", found, std::move(faults));
}

std::string Text(const std::string& what, const CheckReport& report) {
  std::string text = absl::StrCat(what, "\n");
  size_t width = 0;
  for (const CheckReport::Line& line : report.lines) width = std::max(width, line.what.size());
  for (const CheckReport::Line& line : report.lines) {
    absl::StrAppend(&text, line.ok ? "  ok     " : "  FAULT  ", line.what, std::string(width - line.what.size() + 2, ' '),
                    line.found, "\n");
  }
  if (report.ok()) return absl::StrCat(text, "no fault found\n");
  for (const std::string& fault : report.faults) absl::StrAppend(&text, "fault: ", fault, "\n");
  return text;
}

// A file's content, or what a folder names.
absl::Status Sync(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? absl::OkStatus() : FileError("cannot fsync", path, error);
}

absl::Status Copy(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (error) return FileError("cannot copy", from, error.value());
  return Sync(to);
}

// A link is to bytes that are on the disk; names are synced by SyncFolders.
absl::Status LinkOrCopy(const std::string& from, const std::string& to, int64_t* copied) {
  if (!FileExists(from)) return absl::NotFoundError(from);
  ABLATE_RETURN_IF_ERROR(MakeDirs(Dirname(to)));
  if (::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST) return absl::OkStatus();
  if (errno == ENOENT) return FileError("cannot link", from, errno);
  ++*copied;
  return Copy(from, to);
}

absl::Status SyncFolders(const std::string& dir) {
  const std::string root = JoinPath(dir, "artifacts");
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> folders, ListDir(root));
  for (const std::string& folder : folders) ABLATE_RETURN_IF_ERROR(Sync(JoinPath(root, folder)));
  for (const std::string& path : {root, DatabaseOf(dir), dir}) ABLATE_RETURN_IF_ERROR(Sync(path));
  return Sync(Dirname(dir));
}

struct Transfer {
  int64_t artifacts = 0;
  int64_t copied = 0;
  int64_t missing = 0;
};

// The artifacts that the database in `to` names, from `from`. What is missing there stays missing.
absl::StatusOr<Transfer> TransferArtifacts(const std::string& from, const std::string& to) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                          Connection::Open(DatabaseOf(to), Connection::Mode::kReadOnly));
  ABLATE_ASSIGN_OR_RETURN(const std::set<std::string> named, ReadNamedArtifacts(*db));
  Transfer transfer;
  for (const std::string& sha256 : named) {
    const std::string path = ArtifactOf(to, sha256);
    if (!FileExists(path)) {
      const absl::Status status = LinkOrCopy(ArtifactOf(from, sha256), path, &transfer.copied);
      if (absl::IsNotFound(status)) {
        ++transfer.missing;
        continue;
      }
      ABLATE_RETURN_IF_ERROR(status);
    }
    ++transfer.artifacts;
  }
  return transfer;
}

std::string Summary(const Transfer& transfer) {
  return absl::StrCat(transfer.artifacts, " artifacts (", transfer.artifacts - transfer.copied, " as hard links, ",
                      transfer.copied, " copied)",
                      transfer.missing > 0 ? absl::StrCat(", ", transfer.missing, " named ones are kept elsewhere or gone") : "");
}

absl::Status MakeBackup(const std::string& data_dir, const std::string& to, Transfer* transfer) {
  ABLATE_RETURN_IF_ERROR(MakeDirs(JoinPath(to, "artifacts")));
  // Before the database, so that what it will name cannot be collected in between; then what came meanwhile.
  int64_t copied = 0;
  for (const std::string& sha256 : StoredArtifacts(data_dir)) {
    const absl::Status status = LinkOrCopy(ArtifactOf(data_dir, sha256), ArtifactOf(to, sha256), &copied);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  ABLATE_RETURN_IF_ERROR(BackupDatabase(DatabaseOf(data_dir), DatabaseOf(to)));
  ABLATE_ASSIGN_OR_RETURN(*transfer, TransferArtifacts(data_dir, to));
  transfer->copied += copied;
  {
    ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                            Connection::Open(DatabaseOf(to), Connection::Mode::kReadOnly));
    ABLATE_ASSIGN_OR_RETURN(const std::set<std::string> named, ReadNamedArtifacts(*db));
    for (const std::string& sha256 : StoredArtifacts(to)) {
      if (!named.contains(sha256)) ABLATE_RETURN_IF_ERROR(RemoveFile(ArtifactOf(to, sha256)));
    }
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string hash, Sha256HexOfFile(DatabaseOf(to)));
  // As sha256sum -c reads it. What the database names and this does not was not there when the backup was made.
  std::string manifest = absl::StrCat(hash, "  ablate.db\n");
  for (const std::string& sha256 : StoredArtifacts(to)) {
    absl::StrAppend(&manifest, sha256, "  artifacts/", sha256.substr(0, 2), "/", sha256.substr(2), "\n");
  }
  ABLATE_RETURN_IF_ERROR(SyncFolders(to));  // all of it is on the disk before the manifest says so
  return WriteFileAtomic(JoinPath(to, kManifest), manifest);
}

absl::Status CheckBackup(const std::string& backup) {
  const absl::StatusOr<std::string> manifest = ReadFile(JoinPath(backup, kManifest));
  if (!manifest.ok()) {
    return absl::DataLossError(absl::StrCat(backup, " is no whole backup: ", manifest.status().message()));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string hash, Sha256HexOfFile(DatabaseOf(backup)));
  if (manifest->substr(0, 64) != hash) {
    return absl::DataLossError(absl::StrCat(DatabaseOf(backup), " is not what was backed up (SHA-256 ", hash, ")"));
  }
  const std::vector<std::string> stored = StoredArtifacts(backup);
  const std::set<std::string> there(stored.begin(), stored.end());
  int64_t lost = 0;
  std::string first;
  for (absl::string_view line : absl::StrSplit(*manifest, '\n', absl::SkipEmpty())) {
    if (!absl::StrContains(line, "  artifacts/") || there.contains(std::string(line.substr(0, 64)))) continue;
    if (++lost == 1) first = std::string(line.substr(0, 64));
  }
  if (lost > 0) {
    return absl::DataLossError(absl::StrCat(backup, " has lost ", lost, " artifacts since it was made (", first,
                                            lost > 1 ? ", ...)" : ")", ": take their lines out of ", kManifest,
                                            " to restore without them (jobs that need them make them again)"));
  }
  for (const std::string& sha256 : stored) {
    ABLATE_ASSIGN_OR_RETURN(const std::string found, Sha256HexOfFile(ArtifactOf(backup, sha256)));
    if (found != sha256) {
      return absl::DataLossError(absl::StrCat(ArtifactOf(backup, sha256), " has another content: remove it and its line in backup.sha256 from the "
                                              "backup to restore without it (jobs that need it make it again)"));
    }
  }
  return CheckBeforeUse(DatabaseOf(backup));
}

absl::Status MakeRestored(const std::string& backup, const std::string& data_dir, Transfer* transfer) {
  ABLATE_RETURN_IF_ERROR(MakeDirs(JoinPath(data_dir, "artifacts")));
  ABLATE_RETURN_IF_ERROR(BackupDatabase(DatabaseOf(backup), DatabaseOf(data_dir)));
  ABLATE_ASSIGN_OR_RETURN(*transfer, TransferArtifacts(backup, data_dir));
  return SyncFolders(data_dir);
}

absl::StatusOr<std::string> MakeExport(const std::string& data_dir, const std::string& sweep, bool curves,
                                       const std::string& to) {
  ABLATE_RETURN_IF_ERROR(MakeDirs(to));
  int64_t files = 0;
  const auto bring = [&](const std::string& sha256) -> absl::StatusOr<bool> {
    const std::string from = ArtifactOf(data_dir, sha256), copy = ArtifactOf(to, sha256);
    if (!FileExists(from)) return false;
    ABLATE_RETURN_IF_ERROR(MakeDirs(Dirname(copy)));
    ABLATE_RETURN_IF_ERROR(Copy(from, copy));
    ABLATE_ASSIGN_OR_RETURN(const std::string found, Sha256HexOfFile(copy));
    if (found != sha256) return absl::DataLossError(absl::StrCat(from, " has another content (SHA-256 ", found, ")"));
    ++files;
    return true;
  };
  ABLATE_ASSIGN_OR_RETURN(const ExportedSweep exported,
                          ExportSweep(DatabaseOf(data_dir), DatabaseOf(to),
                                      {.sweep = sweep, .curves = curves, .has_result_file = bring}));
  if (files > 0) ABLATE_RETURN_IF_ERROR(SyncFolders(to));
  ABLATE_RETURN_IF_ERROR(Sync(Dirname(to)));
  std::string text = absl::StrCat("exported sweep \"", exported.name, "\" to ", to, ": ablate.db (",
                                  HumanBytes(FileSize(DatabaseOf(to)).value_or(0)), "), ", exported.jobs, " jobs");
  if (files > 0) absl::StrAppend(&text, ", ", files, " files of results");
  if (exported.lost_files > 0) {
    absl::StrAppend(&text, ", without ", exported.lost_files, " files of results that are gone");
  }
  if (exported.curve_points > 0) {
    absl::StrAppend(&text, "; ", exported.curve_points, " points of training curves left out (--curves)");
  }
  return absl::StrCat(text, "; checked. Its report: ablate report ", exported.name, " --data-dir ", to, " -o DIR\n");
}

}  // namespace

absl::StatusOr<CheckOutcome> CheckDataDir(const std::string& data_dir, bool deep) {
  const std::string path = DatabaseOf(data_dir);
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat("there is no database ", path));
  CheckReport report;
  int64_t version = 0;
  const auto damaged = [&](const absl::Status& status) -> absl::StatusOr<CheckOutcome> {
    if (status.code() != absl::StatusCode::kDataLoss) return status;
    report.Add("file", "", {std::string(status.message())});
    return CheckOutcome{Text(path, report), false};
  };
  absl::StatusOr<std::unique_ptr<Connection>> db = Connection::Open(path, Connection::Mode::kReadOnly);
  if (!db.ok()) return damaged(db.status());
  if (const absl::Status status = (*db)->Script("BEGIN"); !status.ok()) return status;
  const absl::StatusOr<int64_t> stored = (*db)->QueryInt(0, "PRAGMA user_version");
  if (!stored.ok()) return damaged(stored.status());
  version = *stored;
  if (version > static_cast<int64_t>(Migrations().size())) {
    return absl::FailedPreconditionError(absl::StrCat(path, " was written by a newer release (schema version ", version,
                                                      "): check it with that one"));
  }
  CheckStructure(**db, /*quick=*/false, &report);
  if (version == static_cast<int64_t>(Migrations().size())) {
    CheckInvariants(**db, &report);
    CheckArtifacts(**db, data_dir, deep, &report);
  } else {
    report.Add("rules", absl::StrCat("not checked: schema version ", version, " is brought up to date at the next start"),
               {});
  }
  return CheckOutcome{Text(absl::StrCat(path, ", schema version ", version), report), report.ok()};
}

absl::StatusOr<std::string> BackupDataDir(const std::string& data_dir, const std::string& to) {
  if (!FileExists(DatabaseOf(data_dir))) {
    return absl::NotFoundError(absl::StrCat("there is no database ", DatabaseOf(data_dir)));
  }
  if (!IsEmptyOrAbsent(to)) {
    return absl::AlreadyExistsError(absl::StrCat(to, " is there already: name a new folder for the backup"));
  }
  Transfer transfer;
  if (const absl::Status status = MakeBackup(data_dir, to, &transfer); !status.ok()) {
    RemoveTree(to).IgnoreError();
    return WithContext(status, absl::StrCat("no backup was made of ", data_dir));
  }
  return absl::StrCat("backed up ", data_dir, " to ", to, ": ablate.db (",
                      HumanBytes(FileSize(DatabaseOf(to)).value_or(0)), "), ", Summary(transfer), "; checked\n");
}

absl::StatusOr<std::string> RestoreDataDir(const std::string& backup, const std::string& data_dir) {
  if (!IsEmptyOrAbsent(data_dir)) {
    return absl::FailedPreconditionError(
        absl::StrCat(data_dir, " is not empty: a backup is restored to a new folder, so that nothing is overwritten"));
  }
  if (!FileExists(backup)) return absl::NotFoundError(absl::StrCat("there is no backup ", backup));
  ABLATE_RETURN_IF_ERROR(WithContext(CheckBackup(backup), "nothing was restored"));
  Transfer transfer;
  if (const absl::Status status = MakeRestored(backup, data_dir, &transfer); !status.ok()) {
    RemoveTree(data_dir).IgnoreError();
    return WithContext(status, "nothing was restored");
  }
  return absl::StrCat("restored ", backup, " to ", data_dir, ": ablate.db, ", Summary(transfer),
                      "; start it with: ablate-server --data-dir ", data_dir, "\n");
}

absl::StatusOr<std::string> ExportFromDataDir(const std::string& data_dir, const std::string& sweep, bool curves,
                                              const std::string& to) {
  if (!IsEmptyOrAbsent(to)) {
    return absl::AlreadyExistsError(absl::StrCat(to, " is there already: name a new folder for the export"));
  }
  if (!FileExists(DatabaseOf(data_dir))) {
    return absl::NotFoundError(absl::StrCat("there is no database ", DatabaseOf(data_dir)));
  }
  absl::StatusOr<std::string> text = MakeExport(data_dir, sweep, curves, to);
  if (text.ok()) return text;
  RemoveTree(to).IgnoreError();
  return WithContext(text.status(), "nothing was exported");
}

}  // namespace ablate
