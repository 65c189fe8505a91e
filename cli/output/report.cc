#include "cli/output/report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "cli/output/printers.h"

namespace ablate {

std::optional<OutputFormat> ParseOutputFormat(std::string_view name) {
  const std::vector<std::string>& names = OutputFormatNames();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<OutputFormat>(i);
  }
  return std::nullopt;
}

const std::vector<std::string>& OutputFormatNames() {
  static const auto& names = *new std::vector<std::string>{"table", "json", "csv", "markdown", "latex"};
  return names;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string JsonList(const std::vector<int64_t>& values) { return absl::StrCat("[", absl::StrJoin(values, ","), "]"); }

std::string JsonList(const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(JsonString(value));
  return absl::StrCat("[", absl::StrJoin(quoted, ","), "]");
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return width;
}

std::string ShellQuoted(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string Counted(int64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", ToAbsl(noun), count == 1 ? "" : "s");
}

std::string Shortened(std::string_view text, size_t width) {
  std::string line(text.substr(0, text.find_last_not_of("\n ") + 1));
  std::replace(line.begin(), line.end(), '\n', ' ');
  if (DisplayWidth(line) <= width) return line;
  size_t end = 0;
  for (size_t columns = 0; columns + 3 < width; ++columns) {
    do ++end;
    while (end < line.size() && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80);
  }
  return absl::StrCat(line.substr(0, end), "...");
}

std::string CellText(const Cell& cell, bool exact) {
  switch (cell.kind) {
    case Cell::Kind::kNull:
      return exact ? "" : "-";
    case Cell::Kind::kFlag:
      return cell.integer != 0 ? "true" : "false";
    case Cell::Kind::kInteger:
      return absl::StrCat(cell.integer);
    case Cell::Kind::kNumber:
      if (!std::isfinite(cell.number) || exact) return ShortestDouble(cell.number);
      return absl::StrFormat("%.6g", cell.number);
    case Cell::Kind::kText:
    case Cell::Kind::kJson:
      return cell.text;
  }
  return "";
}

Sheet SheetOf(const Records& records) {
  Sheet sheet;
  for (size_t i = 0; i < records.columns.size(); ++i) {
    // A column is right-aligned when it has numbers and nothing else but NULLs.
    bool numbers = false, others = false;
    for (const std::vector<Cell>& row : records.rows) {
      const Cell::Kind kind = row[i].kind;
      (kind == Cell::Kind::kInteger || kind == Cell::Kind::kNumber ? numbers : others) |= kind != Cell::Kind::kNull;
    }
    sheet.columns.push_back({.title = records.columns[i], .right = numbers && !others});
  }
  for (const std::vector<Cell>& row : records.rows) {
    std::vector<std::string> texts;
    for (const Cell& cell : row) texts.push_back(CellText(cell, /*exact=*/false));
    sheet.rows.push_back(std::move(texts));
  }
  return sheet;
}

std::string Print(const Report& report, OutputFormat format, int width) {
  if (format == OutputFormat::kJson) return PrintJson(report.records);
  if (format == OutputFormat::kCsv) return PrintCsv(report.records);
  const std::vector<Sheet> sheets = report.sheets.empty() ? std::vector<Sheet>{SheetOf(report.records)} : report.sheets;
  std::vector<std::string> texts;
  for (const Sheet& sheet : sheets) {
    texts.push_back(format == OutputFormat::kMarkdown ? PrintMarkdown(sheet)
                    : format == OutputFormat::kLatex  ? PrintLatex(sheet)
                                                      : PrintText(sheet, width));
  }
  return absl::StrJoin(texts, "\n");
}

}  // namespace ablate
