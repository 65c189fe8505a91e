// See user_query.h.
#include "server/store/user_query.h"

#include <sqlite3.h>

#include <chrono>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

constexpr int kOpsBetweenChecks = 1000;
constexpr int kRowsAMessage = 500;
constexpr int kBytesAMessage = 1 << 20;
constexpr int64_t kMaxRows = 10'000'000;
constexpr int64_t kMaxMilliseconds = 600'000;
constexpr int64_t kMaxAnswerBytes = int64_t{256} << 20;
constexpr int64_t kMaxMemoryBytes = int64_t{512} << 20;  // of SQLite in this process, beyond what it had before
constexpr int kMaxValueBytes = 16 << 20;

struct Limit {
  int id, value;
};
constexpr Limit kLimits[] = {
    {SQLITE_LIMIT_LENGTH, kMaxValueBytes}, {SQLITE_LIMIT_SQL_LENGTH, 1 << 20},        {SQLITE_LIMIT_EXPR_DEPTH, 200},
    {SQLITE_LIMIT_COMPOUND_SELECT, 100},   {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000},  {SQLITE_LIMIT_ATTACHED, 0},
    {SQLITE_LIMIT_TRIGGER_DEPTH, 0},       {SQLITE_LIMIT_WORKER_THREADS, 0},          {SQLITE_LIMIT_COLUMN, 1000},
    {SQLITE_LIMIT_VDBE_OP, 1'000'000},     {SQLITE_LIMIT_FUNCTION_ARG, 100},
};

// What readers have no business with: hashes of tokens, and the raw pages that hold them, too.
bool IsHidden(const char* table) {
  return table != nullptr && (sqlite3_stricmp(table, "tokens") == 0 || sqlite3_stricmp(table, "token_workers") == 0 ||
                              sqlite3_stricmp(table, "sqlite_dbpage") == 0);
}

// Only reads; of functions those that cannot load code or touch files.
bool MayDo(int action, const char* name, const char* argument) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE:
      return true;
    case SQLITE_READ:
      return !IsHidden(name);
    case SQLITE_FUNCTION:
      return argument == nullptr || std::strcmp(argument, "load_extension") != 0;
    case SQLITE_PRAGMA:  // a table's columns may be listed
      return name != nullptr && (std::strcmp(name, "table_info") == 0 || std::strcmp(name, "table_list") == 0);
    default:
      return false;
  }
}

int Authorize(void* denied, int action, const char* name, const char* argument, const char*, const char*) {
  if (MayDo(action, name, argument)) return SQLITE_OK;
  *static_cast<bool*>(denied) = true;
  return SQLITE_DENY;
}

// Ends the statement when its time or its memory is used up.
struct Budget {
  std::chrono::steady_clock::time_point until;
  int64_t memory = sqlite3_memory_used() + kMaxMemoryBytes;
  bool out_of_memory = false;

  static int Spent(void* self_pointer) {
    Budget* self = static_cast<Budget*>(self_pointer);
    self->out_of_memory |= sqlite3_memory_used() > self->memory;
    return self->out_of_memory || std::chrono::steady_clock::now() >= self->until;
  }
};

void FillRow(sqlite3_stmt* statement, v1::QueryResponse::Row* row) {
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    v1::QueryResponse::Cell* cell = row->add_cells();
    const int bytes = sqlite3_column_bytes(statement, i);
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_INTEGER:
        cell->set_integer(sqlite3_column_int64(statement, i));
        break;
      case SQLITE_FLOAT:
        cell->set_real(sqlite3_column_double(statement, i));
        break;
      case SQLITE_TEXT: {
        const std::string text(reinterpret_cast<const char*>(sqlite3_column_text(statement, i)),
                               static_cast<size_t>(bytes));
        // Text of the database may be any bytes; a protobuf string may not.
        IsUtf8(text) ? cell->set_text(text) : cell->set_blob(text);
        break;
      }
      case SQLITE_BLOB:
        cell->set_blob(sqlite3_column_blob(statement, i), static_cast<size_t>(bytes));
        break;
      default:
        break;
    }
  }
}

}  // namespace

absl::Status RunUserQuery(const std::string& database_path, const v1::QueryRequest& request,
                          const std::function<bool(const v1::QueryResponse&)>& send) {
  if (request.max_rows() < 0 || request.max_rows() > kMaxRows) {
    return absl::InvalidArgumentError(absl::StrCat("max_rows is ", request.max_rows(), ", not in 0 to ", kMaxRows));
  }
  if (request.time_limit_ms() < 0 || request.time_limit_ms() > kMaxMilliseconds) {
    return absl::InvalidArgumentError(
        absl::StrCat("time_limit_ms is ", request.time_limit_ms(), ", not in 0 to ", kMaxMilliseconds));
  }
  const int64_t max_rows = request.max_rows() == 0 ? 10'000 : request.max_rows();
  const int64_t limit_ms = request.time_limit_ms() == 0 ? 10'000 : request.time_limit_ms();

  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                          Connection::Open(database_path, Connection::Mode::kReadOnly));
  // What it sorts and gathers counts as memory, and never fills a disk.
  ABLATE_RETURN_IF_ERROR(db->Script("PRAGMA temp_store = MEMORY"));
  Budget budget{std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms)};
  sqlite3_progress_handler(db->handle(), kOpsBetweenChecks, &Budget::Spent, &budget);
  bool denied = false;  // codes of refusals vary by statement
  sqlite3_set_authorizer(db->handle(), &Authorize, &denied);
  for (const Limit& limit : kLimits) sqlite3_limit(db->handle(), limit.id, limit.value);

  const auto error = [&](int code) -> absl::Status {
    const absl::Status status = db->ErrorOf(code, "the query");
    if (denied || status.code() == absl::StatusCode::kPermissionDenied) {
      return absl::PermissionDeniedError(
          absl::StrCat("only reading is allowed here (SELECT, WITH): ", sqlite3_errmsg(db->handle())));
    }
    if (budget.out_of_memory || (code & 0xff) == SQLITE_NOMEM) {
      return absl::ResourceExhaustedError(absl::StrCat("the query needs more than ", HumanBytes(kMaxMemoryBytes),
                                                       " of memory: sort or gather less"));
    }
    if ((code & 0xff) == SQLITE_TOOBIG) {
      return absl::ResourceExhaustedError(absl::StrCat("a value is larger than ", HumanBytes(kMaxValueBytes),
                                                       ", or the statement than 1 MiB"));
    }
    if (status.code() == absl::StatusCode::kDeadlineExceeded) {
      return absl::DeadlineExceededError(
          absl::StrCat("the query took longer than ", HumanSeconds(static_cast<double>(limit_ms) * 1e-3),
                       "; narrow it, or give it longer with --timeout (time_limit_ms; at most ", kMaxMilliseconds / 1000, " s)"));
    }
    // Codes other than the plain one also come of what was asked: a name that is nowhere before the schema was read
    // (SQLITE_SCHEMA), LIMIT 'x' (SQLITE_MISMATCH).
    const bool of_sqlite = (code & 0xff) == SQLITE_INTERNAL || (code & 0xff) == SQLITE_MISUSE;
    const bool of_statement = status.code() == absl::StatusCode::kInternal && !of_sqlite;
    return absl::Status(of_statement ? absl::StatusCode::kInvalidArgument : status.code(), sqlite3_errmsg(db->handle()));
  };

  sqlite3_stmt* raw = nullptr;
  const char* tail = nullptr;
  int code =
      sqlite3_prepare_v2(db->handle(), request.sql().c_str(), static_cast<int>(request.sql().size()) + 1, &raw, &tail);
  if (code != SQLITE_OK) return error(code);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, &sqlite3_finalize);
  if (raw == nullptr) return absl::InvalidArgumentError("no statement");
  sqlite3_stmt* rest = nullptr;
  code = sqlite3_prepare_v2(db->handle(), tail, -1, &rest, nullptr);
  const bool more = rest != nullptr || code != SQLITE_OK;
  sqlite3_finalize(rest);
  if (more) return absl::InvalidArgumentError("one statement at a time, please");

  v1::QueryResponse response;
  for (int i = 0; i < sqlite3_column_count(raw); ++i) response.add_columns(sqlite3_column_name(raw, i));
  if (!send(response)) return absl::CancelledError("the client is gone");
  response.Clear();
  int64_t rows = 0;
  size_t bytes = 0, all_bytes = 0;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (rows == max_rows) {
      response.set_truncated(true);
      break;
    }
    ++rows;
    FillRow(raw, response.add_rows());
    const size_t row_bytes = response.rows(response.rows_size() - 1).ByteSizeLong();
    bytes += row_bytes;
    all_bytes += row_bytes;
    if (all_bytes > kMaxAnswerBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("the answer is larger than ", HumanBytes(kMaxAnswerBytes),
                                                       ": select fewer rows or columns"));
    }
    if (response.rows_size() < kRowsAMessage && bytes < kBytesAMessage) continue;
    if (!send(response)) return absl::CancelledError("the client is gone");
    response.Clear();
    bytes = 0;
  }
  if (code != SQLITE_DONE && code != SQLITE_ROW) return error(code);
  if (response.rows_size() > 0 || response.truncated()) {
    if (!send(response)) return absl::CancelledError("the client is gone");
  }
  return absl::OkStatus();
}

}  // namespace ablate
