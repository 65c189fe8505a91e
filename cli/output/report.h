// What a command has to say, apart from how it is printed. Must not know gRPC or what any column means.
// Records are for programs (json, csv); sheets are for people (table, markdown, latex). A report without sheets shows
// its records as one sheet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ablate {

struct Cell {
  enum class Kind { kNull, kFlag, kInteger, kNumber, kText, kJson };

  static Cell Null() { return {}; }
  static Cell Flag(bool value) { return {.kind = Kind::kFlag, .integer = value}; }
  static Cell Integer(int64_t value) { return {.kind = Kind::kInteger, .integer = value}; }
  static Cell Number(double value) { return {.kind = Kind::kNumber, .number = value}; }
  static Cell Text(std::string value) { return {.kind = Kind::kText, .text = std::move(value)}; }
  // A JSON text that is well-formed: printed as it is in JSON, as text elsewhere.
  static Cell Json(std::string value) { return {.kind = Kind::kJson, .text = std::move(value)}; }

  Kind kind = Kind::kNull;
  int64_t integer = 0;
  double number = 0;
  std::string text;
};

struct Records {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // each as long as columns
};

struct Sheet {
  struct Column {
    std::string title;
    bool right = false;  // aligned
    std::string group;   // a heading over neighbouring columns of the same group
  };
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> footer;
};

struct Report {
  Records records;
  std::vector<Sheet> sheets;
};

enum class OutputFormat { kTable, kJson, kCsv, kMarkdown, kLatex };
std::optional<OutputFormat> ParseOutputFormat(std::string_view name);
const std::vector<std::string>& OutputFormatNames();

// The whole text, with its last line break. JSON is one array of one object a row; NaN and infinities are null there,
// and a field NAME_status says "nan", "inf" or "-inf". `width` is the number of columns of the terminal: a table with
// groups of columns that does not fit is printed group below group.
std::string Print(const Report& report, OutputFormat format, int width = 120);

// "[1,2,3]" of numbers; a JSON string with its quotes.
std::string JsonList(const std::vector<int64_t>& values);
std::string JsonList(const std::vector<std::string>& values);
std::string JsonString(std::string_view text);

// How many columns a terminal uses for UTF-8 text of letters with marks and signs such as ± (not for wide scripts).
size_t DisplayWidth(std::string_view text);

// `text` as one word of a POSIX shell: quoted where it must be.
std::string ShellQuoted(std::string_view text);

// "1 arm", "2 arms".
std::string Counted(int64_t count, std::string_view noun);

// The first `width` columns of `text` in one line, with "..." where something is left out.
std::string Shortened(std::string_view text, size_t width);

}  // namespace ablate
