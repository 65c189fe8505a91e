// SQLite behind a small wrapper: connections, prepared statements with bound parameters, errors as absl::Status.
// Must not know any table. No value ever becomes part of a statement's text.
//
// Status codes by cause: ResourceExhausted (disk full), Unavailable (busy, I/O error), DataLoss (damaged file, or no
// database), PermissionDenied (refused by the authorizer, or written through a read-only connection), DeadlineExceeded
// (interrupted), InvalidArgument (malformed statement), Internal (a broken constraint and all else: our own fault).
// Thread rule: a connection and its statements belong to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ablate {

class Connection;

// Bytes, where std::string means text.
struct Blob {
  std::string_view bytes;
};

// A prepared statement at work; given back to its connection's cache when it goes out of scope.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Parameters count from 1, columns from 0. NaN is bound as NULL by SQLite: store a flag beside it.
  void Bind(int index, int64_t value);
  void Bind(int index, double value);
  void Bind(int index, std::string_view text);
  void Bind(int index, Blob blob);
  void BindNull(int index);
  void BindColumn(int index, const Statement& row, int column);  // whatever it is, as it is
  template <typename T>
  void BindAny(int index, const T& value) {
    if constexpr (std::is_same_v<T, std::nullopt_t>) {
      BindNull(index);
    } else if constexpr (std::is_same_v<T, Blob>) {
      Bind(index, value);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      Bind(index, static_cast<int64_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      Bind(index, static_cast<double>(value));
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      Bind(index, std::string_view(value));
    } else {
      value.has_value() ? BindAny(index, *value) : BindNull(index);
    }
  }
  template <typename... T>
  void BindAll(const T&... values) {
    int index = 0;
    (BindAny(++index, values), ...);
  }

  // True: a row is there. False: done.
  absl::StatusOr<bool> Step();
  // Steps to the end and may then be bound and run again.
  absl::Status Run();
  void Reset();

  int Columns() const;
  std::string ColumnName(int column) const;
  bool IsNull(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;
  std::string Bytes(int column) const;
  enum class Type { kNull, kInteger, kReal, kText, kBlob };
  Type ColumnType(int column) const;

 private:
  friend class Connection;
  Statement(Connection* connection, sqlite3_stmt* statement, bool* in_use)
      : connection_(connection), statement_(statement), in_use_(in_use) {}

  Connection* connection_;
  sqlite3_stmt* statement_;
  bool* in_use_;  // the cache's mark; null: finalized with this object
};

class Connection {
 public:
  enum class Mode { kReadWrite, kReadOnly, kPlain };
  // kReadWrite creates the file and sets WAL, synchronous=FULL; kPlain creates it and sets no more than the others do:
  // foreign_keys and a busy time-out.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& path, Mode mode);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Statements are cached by their text; a text that is at work already gets a fresh statement.
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // One statement, bound and run to its end.
  template <typename... T>
  absl::Status Run(std::string_view sql, const T&... values) {
    ABLATE_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    statement.BindAll(values...);
    return statement.Run();
  }
  // Prepared and bound, ready to step.
  template <typename... T>
  absl::StatusOr<Statement> Query(std::string_view sql, const T&... values) {
    ABLATE_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    statement.BindAll(values...);
    return statement;
  }
  // The first column of the first row, or `otherwise` without a row or with NULL.
  template <typename... T>
  absl::StatusOr<int64_t> QueryInt(int64_t otherwise, std::string_view sql, const T&... values) {
    ABLATE_ASSIGN_OR_RETURN(Statement statement, Query(sql, values...));
    ABLATE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    return row && !statement.IsNull(0) ? statement.Int(0) : otherwise;
  }
  // Several statements without parameters: migrations, pragmas, BEGIN and COMMIT.
  absl::Status Script(const std::string& sql);

  int64_t LastInsertRow() const;
  int64_t Changes() const;  // rows changed by the last statement
  bool InTransaction() const;
  sqlite3* handle() const { return handle_; }
  // A result code of this connection as a status; `what` names the work.
  absl::Status ErrorOf(int code, std::string_view what) const;

 private:
  friend class Statement;
  Connection() = default;

  struct Cached {
    sqlite3_stmt* statement = nullptr;
    bool in_use = false;
  };
  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string, Cached> cache_;
};

}  // namespace ablate
