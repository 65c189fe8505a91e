#include "cli/output/printers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/strings.h"

namespace ablate {
namespace {

constexpr char kGap[] = "  ";

std::string Pad(const std::string& text, size_t width, bool right) {
  const std::string fill(width - std::min(width, DisplayWidth(text)), ' ');
  return right ? fill + text : text + fill;
}

// Runs of neighbouring columns with one group.
struct Span {
  size_t begin, end;
  std::string group;
};
std::vector<Span> Spans(const std::vector<Sheet::Column>& columns) {
  std::vector<Span> spans;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (spans.empty() || spans.back().group != columns[i].group) spans.push_back({i, i, columns[i].group});
    spans.back().end = i + 1;
  }
  return spans;
}

bool HasGroups(const Sheet& sheet) {
  return std::any_of(sheet.columns.begin(), sheet.columns.end(),
                     [](const auto& column) { return !column.group.empty(); });
}

// Control characters would break lines, or colour the user's terminal.
std::string OneLine(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += ' ';
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += '?';
    else
      out += c;
  }
  return out;
}

std::string TrimRight(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string TextBody(const Sheet& sheet) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < sheet.columns.size(); ++i) {
    size_t width = DisplayWidth(sheet.columns[i].title);
    for (const auto& row : sheet.rows) width = std::max(width, DisplayWidth(OneLine(row[i])));
    widths.push_back(width);
  }
  const std::vector<Span> spans = Spans(sheet.columns);
  const auto span_width = [&](const Span& span) {
    size_t width = (span.end - span.begin - 1) * 2;
    for (size_t i = span.begin; i < span.end; ++i) width += widths[i];
    return width;
  };
  // A long heading widens the last of its columns.
  for (const Span& span : spans) {
    const size_t need = DisplayWidth(span.group);
    if (need > span_width(span)) widths[span.end - 1] += need - span_width(span);
  }
  std::string out;
  if (HasGroups(sheet)) {
    std::vector<std::string> heads, rules;
    for (const Span& span : spans) {
      const size_t width = span_width(span);
      const size_t left = (width - DisplayWidth(span.group)) / 2;
      heads.push_back(Pad(std::string(left, ' ') + span.group, width, false));
    }
    absl::StrAppend(&out, TrimRight(absl::StrJoin(heads, kGap)), "\n");
  }
  std::vector<std::string> titles, rules;
  for (size_t i = 0; i < sheet.columns.size(); ++i) {
    titles.push_back(Pad(sheet.columns[i].title, widths[i], sheet.columns[i].right));
    rules.push_back(std::string(widths[i], '-'));
  }
  absl::StrAppend(&out, TrimRight(absl::StrJoin(titles, kGap)), "\n", absl::StrJoin(rules, kGap), "\n");
  for (const auto& row : sheet.rows) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < row.size(); ++i) cells.push_back(Pad(OneLine(row[i]), widths[i], sheet.columns[i].right));
    absl::StrAppend(&out, TrimRight(absl::StrJoin(cells, kGap)), "\n");
  }
  return out;
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0, begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    longest = std::max(longest, DisplayWidth(std::string_view(text).substr(begin, end - begin)));
  }
  return longest;
}

// The columns without a group, and those of one group.
Sheet OnlyGroup(const Sheet& sheet, const std::string& group) {
  Sheet part;
  part.rows.resize(sheet.rows.size());
  for (size_t i = 0; i < sheet.columns.size(); ++i) {
    if (!sheet.columns[i].group.empty() && sheet.columns[i].group != group) continue;
    part.columns.push_back(sheet.columns[i]);
    for (size_t k = 0; k < sheet.rows.size(); ++k) part.rows[k].push_back(sheet.rows[k][i]);
  }
  return part;
}

std::string MarkdownEscape(const std::string& text) {
  // A `<` before a letter would begin a tag, and its text be gone.
  std::string escaped;
  const std::string line = OneLine(text);
  for (size_t i = 0; i < line.size(); ++i) {
    const char next = i + 1 < line.size() ? line[i + 1] : ' ';
    if (line[i] == '|')
      escaped += "\\|";
    else if (line[i] == '<' && (std::isalpha(static_cast<unsigned char>(next)) != 0 || next == '/' || next == '!'))
      escaped += "&lt;";
    else
      escaped += line[i];
  }
  return escaped;
}

}  // namespace

std::string LatexEscape(std::string_view text) {
  return absl::StrReplaceAll(ToAbsl(text), {{"\\", "\\textbackslash{}"},
                                            {"&", "\\&"},
                                            {"%", "\\%"},
                                            {"$", "\\$"},
                                            {"#", "\\#"},
                                            {"_", "\\_"},
                                            {"{", "\\{"},
                                            {"}", "\\}"},
                                            {"~", "\\textasciitilde{}"},
                                            {"^", "\\textasciicircum{}"},
                                            {"<", "\\textless{}"},
                                            {">", "\\textgreater{}"},
                                            {"±", "$\\pm$"},
                                            {"−", "$-$"}});
}

std::string PrintJson(const Records& records) {
  if (records.rows.empty()) return "[]\n";
  // A name twice would make one of the two unreachable.
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const std::string& column : records.columns) {
    std::string name = column;
    for (int i = 2; !taken.insert(name).second; ++i) name = absl::StrCat(column, "_", i);
    names.push_back(name);
  }
  std::vector<std::string> objects;
  for (const std::vector<Cell>& row : records.rows) {
    std::vector<std::string> fields;
    for (size_t i = 0; i < row.size(); ++i) {
      const Cell& cell = row[i];
      std::string value;
      std::string status;
      switch (cell.kind) {
        case Cell::Kind::kNull:
          value = "null";
          break;
        case Cell::Kind::kText:
          value = JsonString(cell.text);
          break;
        case Cell::Kind::kNumber:
          value = ShortestDouble(cell.number);
          if (!std::isfinite(cell.number)) std::swap(status, value);
          if (!status.empty()) value = "null";
          break;
        default:
          value = CellText(cell, /*exact=*/true);
      }
      fields.push_back(absl::StrCat(JsonString(names[i]), ":", value));
      if (!status.empty()) fields.push_back(absl::StrCat(JsonString(names[i] + "_status"), ":", JsonString(status)));
    }
    objects.push_back(absl::StrCat("{", absl::StrJoin(fields, ","), "}"));
  }
  return absl::StrCat("[", absl::StrJoin(objects, ",\n "), "]\n");
}

std::string PrintCsv(const Records& records) {
  const auto quote = [](const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
  };
  std::string out;
  std::vector<std::string> fields;
  for (const std::string& column : records.columns) fields.push_back(quote(column));
  absl::StrAppend(&out, absl::StrJoin(fields, ","), "\n");
  for (const std::vector<Cell>& row : records.rows) {
    fields.clear();
    for (const Cell& cell : row) fields.push_back(quote(CellText(cell, /*exact=*/true)));
    absl::StrAppend(&out, absl::StrJoin(fields, ","), "\n");
  }
  return out;
}

std::string PrintText(const Sheet& sheet, int width) {
  std::string out;
  if (!sheet.title.empty()) absl::StrAppend(&out, sheet.title, "\n\n");
  if (sheet.rows.empty()) return absl::StrCat(out, "(nothing)\n");
  std::string body = TextBody(sheet);
  if (HasGroups(sheet) && LongestLine(body) > static_cast<size_t>(std::max(width, 1))) {
    std::vector<std::string> parts, seen;
    for (const Span& span : Spans(sheet.columns)) {
      if (span.group.empty() || std::find(seen.begin(), seen.end(), span.group) != seen.end()) continue;
      seen.push_back(span.group);
      parts.push_back(TextBody(OnlyGroup(sheet, span.group)));
    }
    body = absl::StrJoin(parts, "\n");
  }
  out += body;
  for (const std::string& line : sheet.footer) absl::StrAppend(&out, line, "\n");
  return out;
}

std::string PrintMarkdown(const Sheet& sheet) {
  std::string out;
  if (!sheet.title.empty()) absl::StrAppend(&out, "**", MarkdownEscape(sheet.title), "**\n\n");
  std::vector<std::string> titles, rules;
  for (const Sheet::Column& column : sheet.columns) {
    // Markdown has no spanning headings.
    titles.push_back(
        MarkdownEscape(column.group.empty() ? column.title : absl::StrCat(column.group, ", ", column.title)));
    rules.push_back(column.right ? "---:" : "---");
  }
  absl::StrAppend(&out, "| ", absl::StrJoin(titles, " | "), " |\n| ", absl::StrJoin(rules, " | "), " |\n");
  for (const auto& row : sheet.rows) {
    std::vector<std::string> cells;
    for (const std::string& cell : row) cells.push_back(MarkdownEscape(cell));
    absl::StrAppend(&out, "| ", absl::StrJoin(cells, " | "), " |\n");
  }
  if (!sheet.footer.empty()) out += "\n";
  for (const std::string& line : sheet.footer) absl::StrAppend(&out, MarkdownEscape(line), "  \n");
  return out;
}

std::string PrintLatex(const Sheet& sheet) {
  std::string alignment;
  for (const Sheet::Column& column : sheet.columns) alignment += column.right ? 'r' : 'l';
  std::string out = "% needs \\usepackage{booktabs}\n";
  if (!sheet.title.empty()) absl::StrAppend(&out, "% ", OneLine(sheet.title), "\n");
  absl::StrAppend(&out, "\\begin{tabular}{", alignment, "}\n\\toprule\n");
  if (HasGroups(sheet)) {
    std::vector<std::string> heads;
    std::string rules;
    for (const Span& span : Spans(sheet.columns)) {
      heads.push_back(absl::StrCat("\\multicolumn{", span.end - span.begin, "}{c}{", LatexEscape(span.group), "}"));
      if (!span.group.empty()) absl::StrAppend(&rules, "\\cmidrule(lr){", span.begin + 1, "-", span.end, "}");
    }
    absl::StrAppend(&out, absl::StrJoin(heads, " & "), " \\\\\n", rules, "\n");
  }
  std::vector<std::string> cells;
  for (const Sheet::Column& column : sheet.columns) cells.push_back(LatexEscape(column.title));
  absl::StrAppend(&out, absl::StrJoin(cells, " & "), " \\\\\n\\midrule\n");
  for (const auto& row : sheet.rows) {
    cells.clear();
    for (const std::string& cell : row) cells.push_back(LatexEscape(OneLine(cell)));
    absl::StrAppend(&out, absl::StrJoin(cells, " & "), " \\\\\n");
  }
  absl::StrAppend(&out, "\\bottomrule\n\\end{tabular}\n");
  for (const std::string& line : sheet.footer) absl::StrAppend(&out, "% ", OneLine(line), "\n");
  return out;
}

}  // namespace ablate
