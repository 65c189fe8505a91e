// Confidence and comparison rows as reports: flat records for programs, one block a metric for people, with arms as
// rows and lengths as columns under "NTK off" and "NTK on". Must not compute statistics.
#pragma once

#include <algorithm>
#include <set>
#include <string>

#include "cli/output/report.h"
#include "experiments/metrics.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// Leaves the rows that say of an arm that nothing at all was measured out; whether any row is left.
bool KeepMeasured(v1::GetTableResponse* response);
bool KeepMeasured(v1::CompareArmsResponse* response);

// "lssar p=3": the variant speaks for itself, other axes need their names.
std::string ArmLabel(const std::string& arm_json);

// "selection split"; the name of a task, which stands in the place of a split, as it is.
std::string SplitText(const std::string& split);

Report TableReport(const v1::GetTableResponse& response);
Report ComparisonReport(const v1::CompareArmsResponse& response);

inline std::string PatternOf(const std::string& metric) {
  const size_t dot = metric.find('.');
  return dot == std::string::npos ? metric : metric.substr(0, dot) + ".*";
}

// For people: the headline metrics, if the sweep measures any, and gain, which is there only where a sweep asked for it.
// Returns the names of the others; many of one stem as a pattern, loss_by_position.*, that --metric takes.
template <typename Response>
std::set<std::string> KeepHeadlines(Response* response) {
  std::set<std::string> others;
  const auto is_headline = [](const auto& row) { return IsHeadline(row.metric()) || IsGain(row.metric()); };
  if (std::none_of(response->rows().begin(), response->rows().end(), is_headline)) return others;
  for (const auto& row : response->rows()) {
    if (!is_headline(row)) others.insert(PatternOf(row.metric()));
  }
  auto* rows = response->mutable_rows();
  rows->erase(std::remove_if(rows->begin(), rows->end(), [&](const auto& row) { return !is_headline(row); }), rows->end());
  return others;
}

}  // namespace ablate
