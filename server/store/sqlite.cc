// See sqlite.h.
#include "server/store/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/strings.h"
#include "server/store/digest.h"

namespace ablate {
namespace {

constexpr int kBusyTimeoutMs = 10'000;
constexpr uint64_t kNoRoomBytes = 1 << 20;

absl::StatusCode CodeOf(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return absl::StatusCode::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_AUTH:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_INTERRUPT:
      return absl::StatusCode::kDeadlineExceeded;
    case SQLITE_ERROR:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : connection_(other.connection_), statement_(std::exchange(other.statement_, nullptr)), in_use_(other.in_use_) {}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  if (in_use_ == nullptr) {
    sqlite3_finalize(statement_);
    return;
  }
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  *in_use_ = false;
}

void Statement::Bind(int index, int64_t value) { sqlite3_bind_int64(statement_, index, value); }
void Statement::Bind(int index, double value) { sqlite3_bind_double(statement_, index, value); }
void Statement::Bind(int index, std::string_view text) {
  sqlite3_bind_text64(statement_, index, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
}
void Statement::Bind(int index, Blob blob) {
  sqlite3_bind_blob64(statement_, index, blob.bytes.empty() ? "" : blob.bytes.data(), blob.bytes.size(),
                      SQLITE_TRANSIENT);
}
void Statement::BindNull(int index) { sqlite3_bind_null(statement_, index); }
void Statement::BindColumn(int index, const Statement& row, int column) {
  sqlite3_bind_value(statement_, index, sqlite3_column_value(row.statement_, column));
}

absl::StatusOr<bool> Statement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return connection_->ErrorOf(code, sqlite3_sql(statement_));
}

absl::Status Statement::Run() {
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) break;
  }
  Reset();
  return absl::OkStatus();
}

void Statement::Reset() { sqlite3_reset(statement_); }

int Statement::Columns() const { return sqlite3_column_count(statement_); }
std::string Statement::ColumnName(int column) const { return sqlite3_column_name(statement_, column); }
bool Statement::IsNull(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }
double Statement::Real(int column) const { return sqlite3_column_double(statement_, column); }
std::string Statement::Text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return "";
  return {reinterpret_cast<const char*>(text), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}
std::string Statement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  if (bytes == nullptr) return "";
  return {static_cast<const char*>(bytes), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}
Statement::Type Statement::ColumnType(int column) const {
  switch (sqlite3_column_type(statement_, column)) {
    case SQLITE_INTEGER:
      return Type::kInteger;
    case SQLITE_FLOAT:
      return Type::kReal;
    case SQLITE_TEXT:
      return Type::kText;
    case SQLITE_BLOB:
      return Type::kBlob;
    default:
      return Type::kNull;
  }
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& path, Mode mode) {
  std::unique_ptr<Connection> connection(new Connection);
  const int flags = SQLITE_OPEN_NOMUTEX |
                    (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  const int code = sqlite3_open_v2(path.c_str(), &connection->handle_, flags, nullptr);
  if (code != SQLITE_OK) return WithContext(connection->ErrorOf(code, "open"), path);
  sqlite3_extended_result_codes(connection->handle_, 1);
  sqlite3_busy_timeout(connection->handle_, kBusyTimeoutMs);
  RegisterDigest(connection->handle_);
  absl::Status status = connection->Script("PRAGMA foreign_keys = ON;");
  if (status.ok() && mode == Mode::kReadWrite) {
    // FULL: what was acknowledged is still there after a power cut. No temp_store = MEMORY: then a transaction's sub-journal is
    // a list in memory, which SQLite walks at the end of every statement with a trigger: 10,000 jobs took 20 times as long to
    // submit into a database that held as many (SQLite 3.40, memjrnlTruncate). On the disk beyond 64 KiB it has no such list.
    status = connection->Script(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; "
        "PRAGMA cache_size = -65536;");
  }
  if (!status.ok()) return WithContext(status, path);
  return connection;
}

Connection::~Connection() {
  for (auto& [sql, cached] : cache_) sqlite3_finalize(cached.statement);
  sqlite3_close_v2(handle_);
}

absl::StatusOr<Statement> Connection::Prepare(std::string_view sql) {
  std::string text(sql);
  const auto found = cache_.find(text);
  if (found != cache_.end() && !found->second.in_use) {
    found->second.in_use = true;
    return Statement(this, found->second.statement, &found->second.in_use);
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, text.data(), static_cast<int>(text.size()), SQLITE_PREPARE_PERSISTENT,
                                      &statement, nullptr);
  if (code != SQLITE_OK) return ErrorOf(code, sql);
  if (statement == nullptr) return absl::InvalidArgumentError("an empty statement");
  if (found != cache_.end()) return Statement(this, statement, nullptr);
  Cached& cached = cache_[std::move(text)];
  cached = {statement, true};
  return Statement(this, statement, &cached.in_use);
}

absl::Status Connection::Script(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ErrorOf(code, sql.substr(0, 120));
}

int64_t Connection::LastInsertRow() const { return sqlite3_last_insert_rowid(handle_); }
int64_t Connection::Changes() const { return sqlite3_changes64(handle_); }
bool Connection::InTransaction() const { return sqlite3_get_autocommit(handle_) == 0; }

absl::Status Connection::ErrorOf(int code, std::string_view what) const {
  const int primary = code & 0xff;
  if (primary == SQLITE_FULL || primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) {
    // On a full disk SQLite fails in many ways, most of which do not name the cause; the statement is of no interest.
    const char* path = sqlite3_db_filename(handle_, "main");
    const auto free = FreeBytes(Dirname(path == nullptr ? "." : path));
    if (primary == SQLITE_FULL || (free.ok() && *free < kNoRoomBytes)) {
      return absl::ResourceExhaustedError(absl::StrCat("the disk is full (",
                                                       free.ok() ? absl::StrCat(HumanBytes(*free), " free, ") : "",
                                                       "SQLite: ", sqlite3_errmsg(handle_), ")"));
    }
  }
  return absl::Status(CodeOf(code),
                      absl::StrCat("SQLite: ", sqlite3_errmsg(handle_), " (code ", code, "), in: ", ToAbsl(what)));
}

}  // namespace ablate
