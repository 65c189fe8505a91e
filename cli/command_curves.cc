// ablate sweep grid, curves
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/curve_tables.h"

namespace ablate {
namespace {

constexpr int64_t kMostPoints = 5000;  // that the coordinator gives of one curve

}  // namespace

absl::StatusOr<int> RunSweepGrid(const Invocation& invocation) {
  v1::GetGridRequest request;
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetGridResponse response,
                          connection->client().Call(&v1::Sweeps::Stub::GetGrid, request));
  Emit(invocation, GridReport(request.sweep(), response));
  return kExitDone;
}

absl::StatusOr<int> RunTrainingCurves(const Invocation& invocation) {
  v1::GetCurvesRequest request;
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const double level, LevelFlag(invocation));
  request.set_level(level);
  for (const std::string& metric : std::vector<std::string>(absl::StrSplit(invocation.Get("--metric"), ',', absl::SkipEmpty()))) {
    request.add_metrics(metric);
  }
  for (const std::string& arm : std::vector<std::string>(absl::StrSplit(invocation.Get("--arm"), ';', absl::SkipEmpty()))) {
    ABLATE_ASSIGN_OR_RETURN(*request.add_arms_json(), ArmJson("--arm", arm));
  }
  ABLATE_ASSIGN_OR_RETURN(const int64_t points, invocation.GetInteger("--max-points", kMostPoints, 16, kMostPoints));
  request.set_max_points(static_cast<int32_t>(points));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetCurvesResponse response,
                          connection->client().Call(&v1::Results::Stub::GetCurves, request));
  const Report report = invocation.Has("--mean") ? MeanCurvesReport(request.sweep(), response)
                                                 : CurvesReport(request.sweep(), response);
  if (!report.records.rows.empty() || invocation.for_programs()) Emit(invocation, report);
  if (report.records.rows.empty()) {
    Say(absl::StrCat("nothing is recorded: see `ablate sweep grid ", ShellQuoted(request.sweep()), WhereFlags(invocation),
                     "`"));
  }
  if (!response.note().empty()) Say(response.note());
  return kExitDone;
}

}  // namespace ablate
