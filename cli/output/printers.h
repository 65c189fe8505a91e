// The five printers behind Print() of report.h.
#pragma once

#include <string>
#include <string_view>

#include "cli/output/report.h"

namespace ablate {

// One cell as text: `exact` for programs (a NULL is empty, a number reads back as the same double), else for people.
std::string CellText(const Cell& cell, bool exact);
Sheet SheetOf(const Records& records);

std::string PrintJson(const Records& records);
std::string PrintCsv(const Records& records);  // RFC 4180, with a header line
std::string PrintText(const Sheet& sheet, int width);
std::string PrintMarkdown(const Sheet& sheet);
std::string LatexEscape(std::string_view text);  // text as LaTeX shows it
std::string PrintLatex(const Sheet& sheet);      // a booktabs tabular

}  // namespace ablate
