// ablate table, compare, query
#include <cstdio>
#include <iostream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/result_tables.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

std::vector<std::string> Metrics(const Invocation& invocation) {
  return absl::StrSplit(invocation.Get("--metric"), ',', absl::SkipEmpty());
}

// What to print of an answer: for people, unless they named metrics, the headline ones, with a word about the others.
template <typename Response>
void Print(const Invocation& invocation, Response* response, Report (*report)(const Response&)) {
  const bool measured = KeepMeasured(response);
  std::set<std::string> others;
  if (!invocation.for_programs() && !invocation.Has("--metric")) others = KeepHeadlines(response);
  if (measured || invocation.for_programs()) Emit(invocation, report(*response));
  if (!others.empty()) Say(absl::StrCat("\nmeasured as well: --metric ", absl::StrJoin(others, ",")));
}

Cell QueryCell(const v1::QueryResponse::Cell& cell) {
  switch (cell.kind_case()) {
    case v1::QueryResponse::Cell::kInteger:
      return Cell::Integer(cell.integer());
    case v1::QueryResponse::Cell::kReal:
      return Cell::Number(cell.real());
    case v1::QueryResponse::Cell::kText:
      return Cell::Text(cell.text());
    case v1::QueryResponse::Cell::kBlob: {
      std::string hex;
      for (const char byte : cell.blob()) {
        constexpr char kDigits[] = "0123456789abcdef";
        hex += kDigits[static_cast<unsigned char>(byte) >> 4];
        hex += kDigits[static_cast<unsigned char>(byte) & 15];
      }
      return Cell::Text(hex);
    }
    case v1::QueryResponse::Cell::KIND_NOT_SET:
      break;
  }
  return Cell::Null();
}

}  // namespace

absl::StatusOr<double> LevelFlag(const Invocation& invocation) {
  if (!invocation.Has("--level")) return 0;
  double level = 0;
  if (!absl::SimpleAtod(invocation.Get("--level"), &level) || !(level > 0 && level < 1)) {
    return UsageError(absl::StrCat("--level: expected a number above 0 and below 1, such as 0.95, found \"",
                                   invocation.Get("--level"), "\""));
  }
  return level;
}

absl::StatusOr<std::string> ArmJson(const std::string& flag, const std::string& text) {
  if (text.empty()) return text;
  if (text[0] == '{') {
    const absl::StatusOr<v1::Configuration> config = ConfigurationFromJson(text);
    if (!config.ok()) return UsageError(absl::StrCat(flag, ": ", config.status().message()));
    return ToJson(*config);
  }
  v1::Configuration config;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty()))) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const Axis* axis = FindAxis(name);
    if (equals == std::string::npos || axis == nullptr) {
      return UsageError(absl::StrCat(flag, ": expected AXIS=VALUE, found \"", part, "\"",
                                     axis == nullptr ? DidYouMean(name, AxisNames()) : ""));
    }
    v1::Setting* setting = config.add_settings();
    setting->set_axis(name);
    const std::string value = part.substr(equals + 1);
    double number = 0;
    if ((axis->kind == AxisKind::kNumber || axis->kind == AxisKind::kInteger) && absl::SimpleAtod(value, &number)) {
      setting->mutable_value()->set_number(number);
    } else if (axis->kind == AxisKind::kFlag && (value == "true" || value == "false")) {
      setting->mutable_value()->set_flag(value == "true");
    } else {
      setting->mutable_value()->set_text(value);
    }
    const absl::Status status = CheckSetting(name, setting->value());
    if (!status.ok()) return UsageError(absl::StrCat(flag, ": ", status.message()));
  }
  return ToJson(config);
}

absl::StatusOr<int> RunTable(const Invocation& invocation) {
  v1::GetTableRequest request;
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const double level, LevelFlag(invocation));
  request.set_level(level);
  for (const std::string& metric : Metrics(invocation)) request.add_metrics(metric);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(v1::GetTableResponse response,
                          connection->client().Call(&v1::Results::Stub::GetTable, request));
  Print(invocation, &response, &TableReport);
  if (response.rows().empty())
    Say(absl::StrCat("nothing is measured: see `ablate job list ", ShellQuoted(request.sweep()), WhereFlags(invocation),
                     "`"));
  return kExitDone;
}

absl::StatusOr<int> RunCompare(const Invocation& invocation) {
  v1::CompareArmsRequest request;
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const double level, LevelFlag(invocation));
  request.set_level(level);
  for (const std::string& metric : Metrics(invocation)) request.add_metrics(metric);
  ABLATE_ASSIGN_OR_RETURN(*request.mutable_baseline_arm_json(), ArmJson("--baseline", invocation.Get("--baseline")));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(v1::CompareArmsResponse response,
                          connection->client().Call(&v1::Results::Stub::CompareArms, request));
  Print(invocation, &response, &ComparisonReport);
  if (response.rows().empty())
    Say(absl::StrCat("nothing to compare: see `ablate job list ", ShellQuoted(request.sweep()), WhereFlags(invocation),
                     "`"));
  return kExitDone;
}

absl::StatusOr<int> RunQuery(const Invocation& invocation) {
  v1::QueryRequest request;
  request.set_sql(invocation.arguments[0]);
  if (request.sql() == "-") {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    if (!IsUtf8(text)) return UsageError("the statement on stdin is not UTF-8 text");
    request.set_sql(text);
  }
  ABLATE_ASSIGN_OR_RETURN(const int64_t max_rows, invocation.GetInteger("--max-rows", 0, 1, 10'000'000));
  request.set_max_rows(max_rows);
  if (invocation.timeout())
    request.set_time_limit_ms(static_cast<int64_t>(std::min(*invocation.timeout(), 600.0) * 1000));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  Report report;
  bool truncated = false;
  ABLATE_RETURN_IF_ERROR(connection->client().Query(request, [&](const v1::QueryResponse& part) {
    if (!part.note().empty()) Say(part.note());
    if (report.records.columns.empty()) report.records.columns.assign(part.columns().begin(), part.columns().end());
    for (const v1::QueryResponse::Row& row : part.rows()) {
      std::vector<Cell> cells;
      for (const v1::QueryResponse::Cell& cell : row.cells()) cells.push_back(QueryCell(cell));
      cells.resize(report.records.columns.size());
      report.records.rows.push_back(std::move(cells));
    }
    truncated |= part.truncated();
  }));
  Emit(invocation, report);
  if (truncated) Say(absl::StrCat("only the first ", report.records.rows.size(), " rows: more with --max-rows N"));
  return kExitDone;
}

}  // namespace ablate
