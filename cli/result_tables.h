// Confidence and comparison rows as reports: flat records for programs, one block a metric for people, with arms as
// rows and lengths as columns under "NTK off" and "NTK on". Must not compute statistics.
#pragma once

#include "cli/output/report.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// Leaves the rows that say of an arm that nothing at all was measured out; whether any row is left.
bool KeepMeasured(v1::GetTableResponse* response);
bool KeepMeasured(v1::CompareArmsResponse* response);

Report TableReport(const v1::GetTableResponse& response);
Report ComparisonReport(const v1::CompareArmsResponse& response);

}  // namespace ablate
