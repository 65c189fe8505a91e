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

// Only reads; of functions those that cannot load code or touch files.
bool MayDo(int action, const char* name, const char* argument) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return true;
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

struct Deadline {
  std::chrono::steady_clock::time_point at;
  static int Passed(void* self) { return std::chrono::steady_clock::now() >= static_cast<Deadline*>(self)->at; }
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
  if (request.time_limit_ms() < 0) return absl::InvalidArgumentError("time_limit_ms is below 0");
  const int64_t max_rows = request.max_rows() == 0 ? 10'000 : request.max_rows();
  const int64_t limit_ms = request.time_limit_ms() == 0 ? 10'000 : request.time_limit_ms();

  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                          Connection::Open(database_path, Connection::Mode::kReadOnly));
  Deadline deadline{std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms)};
  sqlite3_progress_handler(db->handle(), kOpsBetweenChecks, &Deadline::Passed, &deadline);
  bool denied = false;  // codes of refusals vary by statement
  sqlite3_set_authorizer(db->handle(), &Authorize, &denied);
  sqlite3_limit(db->handle(), SQLITE_LIMIT_LENGTH, 64 << 20);  // one value must not take all memory

  const auto error = [&](int code) -> absl::Status {
    const absl::Status status = db->ErrorOf(code, "the query");
    if (denied || status.code() == absl::StatusCode::kPermissionDenied) {
      return absl::PermissionDeniedError(
          absl::StrCat("only reading is allowed here (SELECT, WITH): ", sqlite3_errmsg(db->handle())));
    }
    if (status.code() == absl::StatusCode::kDeadlineExceeded) {
      return absl::DeadlineExceededError(
          absl::StrCat("the query took longer than ", limit_ms, " ms; narrow it, or raise the limit"));
    }
    return absl::Status(status.code(), sqlite3_errmsg(db->handle()));
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
  size_t bytes = 0;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (rows == max_rows) {
      response.set_truncated(true);
      break;
    }
    ++rows;
    FillRow(raw, response.add_rows());
    bytes += response.rows(response.rows_size() - 1).ByteSizeLong();
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
