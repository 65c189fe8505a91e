// The grid of a sweep and its training curves as reports: flat records for programs; for people a word a cell, and a line
// a curve. Must not compute statistics.
#pragma once

#include <string>

#include "cli/output/report.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// What a cell shows: "done", "diverged", "45 %" (of its training; "running" while it is measured), "failed", "queued",
// "blocked", "sealed", "cancelled".
std::string CellWord(const v1::GetGridResponse::Cell& cell);

// Records: a cell a row. Sheets: one a phase, arms as rows, seeds as columns.
Report GridReport(const std::string& sweep, const v1::GetGridResponse& response);

// Records: a point a row. Sheets: one a phase and metric, a curve a line.
Report CurvesReport(const std::string& sweep, const v1::GetCurvesResponse& response);
// The same of the means over seeds.
Report MeanCurvesReport(const std::string& sweep, const v1::GetCurvesResponse& response);

}  // namespace ablate
