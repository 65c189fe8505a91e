// What is measured: one row a metric. Whoever asks for "the losses" or checks a metric's name asks here.
// Permanent names: they are stored in users' databases. Must not know how a metric is computed. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ablate {

struct Metric {
  // Of a family with its placeholders, each a number: "attention_entropy.l<layer>.h<head>".
  std::string_view name;
  // People come for it: shown first, and recorded as diverged for an evaluation that could not be measured.
  bool headline = false;
  bool of_evaluation = false, of_stage = false;  // which results carry it
  std::string_view summary;
  std::string_view task = "loss";  // of an evaluation: which value of eval.task measures it
};

// In the order to show, headline metrics first.
const std::vector<Metric>& Metrics();
std::vector<std::string> MetricNames();
// The row of a name, or of the family that it belongs to ("attention_entropy.l0.h3"); nullptr: no metric of that name.
const Metric* FindMetric(std::string_view name);
bool IsHeadline(std::string_view metric);
// Whether it is one number of many of an evaluation (of one head, one bin of depth): shown when it is asked for.
bool IsOfFamily(std::string_view metric);
// Of a rate the metric that counts its tries, of the same evaluation; "": it is no rate.
std::string TriesOf(std::string_view metric);
// Whether evaluations of this task have the metric. A map has the statistics of its text beside it.
bool IsOfTask(const Metric& metric, std::string_view task);
// Whether `metric` is what `pattern` asks for: the same text, where a * stands for any: "attention_entropy.*".
bool MatchesMetric(std::string_view pattern, std::string_view metric);
// Whether claims, selections and tuning may be about it: a loss (lower is better), or `gain` (higher is better). The
// others are constants and counts.
bool IsLoss(std::string_view metric);
bool IsGain(std::string_view metric);
// Of loss_by_position.*: the positions (from, to], in units of train.length. {0, 0}: another metric.
struct PositionRange {
  double from = 0, to = 0;
};
PositionRange PositionsOf(std::string_view metric);
// The place in Metrics(), of a family's member that of its row; their number for a name that is not there (a noop
// executor may report any).
int MetricRank(std::string_view metric);

}  // namespace ablate
