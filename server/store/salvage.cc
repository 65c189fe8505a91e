// See salvage.h.
#include "server/store/salvage.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/strings.h"
#include "server/store/check.h"
#include "server/store/digest.h"
#include "server/store/migrations.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error;
  if (!std::filesystem::copy_file(from, to, error)) {
    return error ? FileError("cannot copy", from, error.value())
                 : absl::FailedPreconditionError(absl::StrCat("cannot copy ", from, " to ", to));
  }
  return absl::OkStatus();
}

std::string Quoted(const std::string& name) { return absl::StrCat("\"", name, "\""); }

struct Column {
  std::string name;
  int key = 0;  // its place in the primary key, from 1
};

absl::StatusOr<std::vector<Column>> Columns(Connection& db, const std::string& table) {
  std::vector<Column> columns;
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT name, pk FROM pragma_table_info(?)", table));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return columns;
    columns.push_back({rows.Text(0), static_cast<int>(rows.Int(1))});
  }
}

constexpr size_t kHeaderBytes = 100;

// In the copy: pages that a cut took come back empty, so that the others can be reached, and a header that is no longer
// one becomes that of a new database.
absl::Status MendFrame(const std::string& copy, const std::string& scratch) {
  ABLATE_ASSIGN_OR_RETURN(std::string bytes, ReadFile(copy));
  if (bytes.size() <= kHeaderBytes) return absl::OkStatus();
  const auto number = [&](size_t at) {
    uint64_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  constexpr uint64_t kPage = 4096;  // SQLite's default, which we never change
  bool changed = false;
  if (bytes.compare(0, 16, std::string("SQLite format 3\0", 16)) != 0) {
    const std::string fresh = JoinPath(scratch, "fresh.db");
    {
      ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db, Connection::Open(fresh, Connection::Mode::kPlain));
      ABLATE_RETURN_IF_ERROR(Migrate(*db, fresh));
    }
    ABLATE_ASSIGN_OR_RETURN(const std::string header, ReadFile(fresh));
    ABLATE_RETURN_IF_ERROR(RemoveFile(fresh));
    bytes.replace(0, kHeaderBytes, header, 0, kHeaderBytes);
    const uint64_t pages = bytes.size() / kPage;
    for (size_t i = 0; i < 4; ++i) bytes[28 + i] = static_cast<char>(pages >> (8 * (3 - i)));
    for (size_t i = 32; i < 40; ++i) bytes[i] = '\0';  // free pages: none that we know
    changed = true;
  }
  const uint64_t whole = number(28) * kPage;
  if (number(16) >> 16 == kPage && whole > bytes.size() && whole < bytes.size() + (uint64_t{1} << 30)) {
    bytes.resize(whole, '\0');
    changed = true;
  }
  return changed ? WriteFileAtomic(copy, bytes) : absl::OkStatus();
}

// One table from the damaged file to the new one: along its primary key from the front, and where that ends with an
// error, from the back, so that what lies on both sides of a damaged page is read.
class TableCopy {
 public:
  TableCopy(Connection& from, Connection& to, std::string table, std::vector<Column> columns)
      : from_(from), to_(to), table_(std::move(table)), columns_(std::move(columns)) {}

  absl::Status Run(Salvaged::Table* result) {
    std::vector<std::string> names, marks, keys, backward;
    std::map<int, std::string> by_place;
    for (const Column& column : columns_) {
      names.push_back(Quoted(column.name));
      marks.push_back("?");
      if (column.key > 0) by_place[column.key] = Quoted(column.name);
    }
    for (const auto& [place, name] : by_place) {
      keys.push_back(name);
      backward.push_back(name + " DESC");
    }
    const auto digested = std::find_if(DigestedTables().begin(), DigestedTables().end(),
                                       [&](const DigestedTable& digest) { return table_ == digest.table; });
    const std::string right = digested == DigestedTables().end()
                                  ? "1"
                                  : "digest IS NULL OR digest = " + DigestExpression(*digested);
    result->defines = digested != DigestedTables().end() && digested->defines;
    const std::string list = absl::StrJoin(names, ", ");
    const std::string select = absl::StrCat("SELECT ", list, ", ", right, " FROM ", Quoted(table_), " NOT INDEXED");
    ABLATE_ASSIGN_OR_RETURN(Statement insert, to_.Prepare(absl::StrCat("INSERT OR IGNORE INTO ", Quoted(table_), " (", list,
                                                                       ") VALUES (", absl::StrJoin(marks, ", "), ")")));
    ABLATE_ASSIGN_OR_RETURN(const bool whole,
                            Scan(absl::StrCat(select, " ORDER BY ", absl::StrJoin(keys, ", ")), insert, result));
    if (!whole) {
      result->cut = true;
      ABLATE_RETURN_IF_ERROR(
          Scan(absl::StrCat(select, " ORDER BY ", absl::StrJoin(backward, ", ")), insert, result).status());
    }
    return absl::OkStatus();
  }

 private:
  // False: it ended with an error of the damaged file. An error: of the new one.
  absl::StatusOr<bool> Scan(const std::string& sql, Statement& insert, Salvaged::Table* result) {
    absl::StatusOr<Statement> rows = from_.Query(sql);
    if (!rows.ok()) return false;
    while (true) {
      const absl::StatusOr<bool> more = rows->Step();
      if (!more.ok()) return false;
      if (!*more) return true;
      const int count = static_cast<int>(columns_.size());
      if (rows->Int(count) == 0) {
        ++result->wrong;
        continue;
      }
      for (int i = 0; i < count; ++i) insert.BindColumn(i + 1, *rows, i);
      // A row that breaks a constraint is none of ours.
      const absl::Status status = insert.Run();
      if (status.ok()) {
        result->rows += to_.Changes();
      } else if (status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kInvalidArgument) {
        ++result->wrong;
        insert.Reset();
      } else {
        return status;
      }
    }
  }

  Connection& from_;
  Connection& to_;
  const std::string table_;
  const std::vector<Column> columns_;
};

absl::StatusOr<std::vector<std::string>> Tables(Connection& db) {
  std::vector<std::string> tables;
  ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT "
                                                   "LIKE 'sqlite_%' ORDER BY rowid"));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return tables;
    tables.push_back(rows.Text(0));
  }
}

absl::Status CopyTables(Connection& from, Connection& to, Salvaged* salvaged) {
  ABLATE_RETURN_IF_ERROR(to.Script("BEGIN"));
  // Quantiles and what else a migration puts in; the file's own come instead, if they can be read.
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> tables, Tables(to));
  for (const std::string& table : tables) {
    Salvaged::Table result{.name = table};
    ABLATE_ASSIGN_OR_RETURN(std::vector<Column> columns, Columns(to, table));
    if (table == "t_critical") {
      result.rows = to.QueryInt(0, "SELECT COUNT(*) FROM t_critical").value_or(0);
    } else {
      ABLATE_RETURN_IF_ERROR(TableCopy(from, to, table, std::move(columns)).Run(&result));
    }
    salvaged->tables.push_back(std::move(result));
  }
  return to.Script("COMMIT");
}

}  // namespace

bool Salvaged::complete_definitions() const {
  return std::none_of(tables.begin(), tables.end(),
                      [](const Table& table) { return table.defines && (table.cut || table.wrong > 0); });
}

std::vector<std::string> Salvaged::Losses() const {
  std::vector<std::string> losses;
  for (const Table& table : tables) {
    if (!table.cut && table.wrong == 0) continue;
    std::string line = absl::StrCat(table.name, ": ", table.rows, " rows");
    if (table.wrong > 0) absl::StrAppend(&line, ", ", table.wrong, " left out as they are not what was written");
    if (table.cut) absl::StrAppend(&line, ", a part cannot be read");
    losses.push_back(std::move(line));
  }
  return losses;
}

absl::StatusOr<Salvaged> Salvage(const std::string& from, const std::string& scratch) {
  const std::string copy = JoinPath(scratch, "damaged.db");
  const std::string result = JoinPath(scratch, "ablate.db");
  ABLATE_ASSIGN_OR_RETURN(const uint64_t size, FileSize(from));
  ABLATE_ASSIGN_OR_RETURN(const uint64_t free, FreeBytes(scratch));
  if (free < 2 * size + (uint64_t{1} << 20)) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for a copy of ", from, " (", HumanBytes(size), ") in ",
                                                     scratch, ": set TMPDIR to a folder with more"));
  }
  ABLATE_RETURN_IF_ERROR(CopyFile(from, copy));
  if (FileExists(from + "-wal")) ABLATE_RETURN_IF_ERROR(CopyFile(from + "-wal", copy + "-wal"));

  Salvaged salvaged;
  absl::Status damage = CheckBeforeUse(copy);
  if (damage.ok()) {
    ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                            Connection::Open(copy, Connection::Mode::kReadWrite));
    ABLATE_RETURN_IF_ERROR(Migrate(*db, from));
    ABLATE_RETURN_IF_ERROR(db->Run("VACUUM INTO ?", result));
    return salvaged;
  }
  if (damage.code() != absl::StatusCode::kDataLoss) return damage;
  salvaged.damaged = true;
  salvaged.faults.emplace_back(damage.message());
  const auto nothing = [&](const absl::Status& status) {
    return absl::DataLossError(absl::StrCat("nothing of ", from, " can be read (", status.message(),
                                            "). Try: sqlite3 COPY_OF_IT .recover | sqlite3 rescued.db, or restore a backup: "
                                            "ablate-server --restore BACKUP --data-dir NEW"));
  };
  ABLATE_RETURN_IF_ERROR(MendFrame(copy, scratch));
  absl::StatusOr<std::unique_ptr<Connection>> source = Connection::Open(copy, Connection::Mode::kPlain);
  if (!source.ok()) return nothing(source.status());
  // Where the schema itself is damaged, the tables before the damage still open.
  if (absl::Status status = (*source)->Script("PRAGMA writable_schema = ON"); !status.ok()) return nothing(status);
  const absl::StatusOr<int64_t> version = (*source)->QueryInt(0, "PRAGMA user_version");
  if (!version.ok()) return nothing(version.status());
  const int64_t known = static_cast<int64_t>(Migrations().size());
  if (*version < 1 || *version > known) {
    return nothing(absl::DataLossError(absl::StrCat("it says that it is of schema version ", *version)));
  }
  // The new one is made as the old was, filled, and then brought up to date.
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> target,
                          Connection::Open(result, Connection::Mode::kReadWrite));
  ABLATE_RETURN_IF_ERROR(MigrateTo(*target, result, static_cast<int>(*version)));
  ABLATE_RETURN_IF_ERROR(target->Script("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF"));
  ABLATE_RETURN_IF_ERROR(CopyTables(**source, *target, &salvaged));
  ABLATE_RETURN_IF_ERROR(Migrate(*target, result));
  if (std::all_of(salvaged.tables.begin(), salvaged.tables.end(), [](const Salvaged::Table& table) {
        return table.rows == 0 || table.name == "t_critical";
      })) {
    return nothing(absl::DataLossError("no table has a row that can be read"));
  }
  return salvaged;
}

}  // namespace ablate
