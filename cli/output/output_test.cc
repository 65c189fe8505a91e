#include <cmath>
#include <limits>

#include "cli/output/printers.h"
#include "cli/output/report.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ablate {
namespace {

Report Sample() {
  Report report;
  report.records.columns = {"name", "value", "n", "ok", "arm"};
  report.records.rows = {
      {Cell::Text("plain"), Cell::Number(0.1), Cell::Integer(3), Cell::Flag(true), Cell::Json("{\"attention.p\":3}")},
      {Cell::Text("a \"quoted\", | & % _ text\nin two lines\x01"), Cell::Number(std::nan("")), Cell::Null(),
       Cell::Flag(false), Cell::Json("{}")},
      {Cell::Text("ünï"), Cell::Number(-std::numeric_limits<double>::infinity()), Cell::Integer(-1), Cell::Flag(true),
       Cell::Null()},
  };
  return report;
}

TEST(Json, IsOneArrayThatReadsBack) {
  const auto rows = nlohmann::json::parse(Print(Sample(), OutputFormat::kJson));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["value"], 0.1);
  EXPECT_EQ(rows[0]["arm"]["attention.p"], 3);
  EXPECT_EQ(rows[0]["ok"], true);
  EXPECT_FALSE(rows[0].contains("value_status"));
  EXPECT_EQ(rows[1]["name"], "a \"quoted\", | & % _ text\nin two lines\x01");
  EXPECT_TRUE(rows[1]["value"].is_null());
  EXPECT_EQ(rows[1]["value_status"], "nan");
  EXPECT_TRUE(rows[1]["n"].is_null());
  EXPECT_EQ(rows[2]["value_status"], "-inf");
  EXPECT_EQ(rows[2]["name"], "ünï");
  EXPECT_EQ(Print(Report(), OutputFormat::kJson), "[]\n");
}

TEST(Json, NumbersKeepEveryBitAndNamesStayApart) {
  Report report;
  report.records.columns = {"x", "x", "x_2"};
  report.records.rows = {{Cell::Number(1.0 / 3), Cell::Number(1e300), Cell::Integer(7)}};
  const auto row = nlohmann::json::parse(Print(report, OutputFormat::kJson))[0];
  EXPECT_EQ(row["x"].get<double>(), 1.0 / 3);
  EXPECT_EQ(row["x_2"].get<double>(), 1e300);
  EXPECT_EQ(row.size(), 3u);
}

TEST(Csv, QuotesWhatNeedsIt) {
  EXPECT_EQ(Print(Sample(), OutputFormat::kCsv),
            "name,value,n,ok,arm\n"
            "plain,0.1,3,true,\"{\"\"attention.p\"\":3}\"\n"
            "\"a \"\"quoted\"\", | & % _ text\nin two lines\x01\",nan,,false,{}\n"
            "ünï,-inf,-1,true,\n");
}

TEST(Text, AlignsByCharactersAndKeepsOneLineARow) {
  EXPECT_EQ(Print(Sample(), OutputFormat::kTable),
            "name                                     value   n  ok     arm\n"
            "---------------------------------------  -----  --  -----  -----------------\n"
            "plain                                      0.1   3  true   {\"attention.p\":3}\n"
            "a \"quoted\", | & % _ text\\nin two lines?    nan   -  false  {}\n"
            "ünï                                       -inf  -1  true   -\n");
  EXPECT_EQ(Print(Report(), OutputFormat::kTable), "(nothing)\n");
}

Sheet Grouped() {
  Sheet sheet;
  sheet.title = "t";
  sheet.columns = {{.title = "arm"},
                   {.title = "1", .right = true, .group = "off"},
                   {.title = "2", .right = true, .group = "off"},
                   {.title = "2", .right = true, .group = "a long heading"}};
  sheet.rows = {{"x_1", "1 ± 2", "3", "4"}};
  sheet.footer = {"foot"};
  return sheet;
}

TEST(Text, GroupsStandOverTheirColumnsOrBelowEachOther) {
  EXPECT_EQ(PrintText(Grouped(), 80),
            "t\n\n"
            "       off     a long heading\n"
            "arm      1  2               2\n"
            "---  -----  -  --------------\n"
            "x_1  1 ± 2  3               4\n"
            "foot\n");
  EXPECT_EQ(PrintText(Grouped(), 20),
            "t\n\n"
            "       off\n"
            "arm      1  2\n"
            "---  -----  -\n"
            "x_1  1 ± 2  3\n"
            "\n"
            "     a long heading\n"
            "arm               2\n"
            "---  --------------\n"
            "x_1               4\n"
            "foot\n");
}

TEST(Markdown, NamesTheGroupInTheHeading) {
  EXPECT_EQ(PrintMarkdown(Grouped()),
            "**t**\n\n"
            "| arm | off, 1 | off, 2 | a long heading, 2 |\n"
            "| --- | ---: | ---: | ---: |\n"
            "| x_1 | 1 ± 2 | 3 | 4 |\n"
            "\nfoot  \n");
  Report report;
  report.records.columns = {"a|b"};
  report.records.rows = {{Cell::Text("c|d\ne")}};
  EXPECT_EQ(Print(report, OutputFormat::kMarkdown), "| a\\|b |\n| --- |\n| c\\|d\\ne |\n");
  report.records.rows = {{Cell::Text("vector<int> a < b <0.001")}};
  EXPECT_EQ(Print(report, OutputFormat::kMarkdown), "| a\\|b |\n| --- |\n| vector&lt;int> a < b <0.001 |\n");
}

TEST(Latex, EscapesAndSpans) {
  EXPECT_EQ(PrintLatex(Grouped()),
            "% needs \\usepackage{booktabs}\n% t\n"
            "\\begin{tabular}{lrrr}\n\\toprule\n"
            "\\multicolumn{1}{c}{} & \\multicolumn{2}{c}{off} & \\multicolumn{1}{c}{a long heading} \\\\\n"
            "\\cmidrule(lr){2-3}\\cmidrule(lr){4-4}\n"
            "arm & 1 & 2 & 2 \\\\\n\\midrule\n"
            "x\\_1 & 1 $\\pm$ 2 & 3 & 4 \\\\\n"
            "\\bottomrule\n\\end{tabular}\n% foot\n");
  Report report;
  report.records.columns = {"a"};
  report.records.rows = {{Cell::Text("\\&%$#{}~^<>")}};
  EXPECT_NE(
      Print(report, OutputFormat::kLatex)
          .find("\\textbackslash{}\\&\\%\\$\\#\\{\\}\\textasciitilde{}\\textasciicircum{}\\textless{}\\textgreater{}"),
      std::string::npos);
}

TEST(Words, AreQuotedCountedAndShortened) {
  EXPECT_EQ(ShellQuoted("ablate-runs/a_b.c"), "ablate-runs/a_b.c");
  EXPECT_EQ(ShellQuoted("my runs"), "'my runs'");
  EXPECT_EQ(ShellQuoted("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(Counted(0, "arm"), "0 arms");
  EXPECT_EQ(Counted(1, "arm"), "1 arm");
  EXPECT_EQ(Counted(2, "arm"), "2 arms");
  EXPECT_EQ(Shortened("two\nlines\n", 20), "two lines");
  EXPECT_EQ(Shortened("0123456789", 10), "0123456789");
  EXPECT_EQ(Shortened("0123456789a", 10), "0123456...");
  EXPECT_EQ(Shortened("üüüüüüüü", 7), "üüüü...");
}

TEST(Formats, HaveNames) {
  for (const std::string& name : OutputFormatNames()) EXPECT_TRUE(ParseOutputFormat(name).has_value()) << name;
  EXPECT_EQ(ParseOutputFormat("latex"), OutputFormat::kLatex);
  EXPECT_FALSE(ParseOutputFormat("yaml").has_value());
}

}  // namespace
}  // namespace ablate
