#include "worker/noop_executor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/hash.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"

namespace ablate {
namespace {

// In [0, 1), from the text alone.
double UnitFromText(const std::string& text) {
  const std::string digits = Sha256Hex(text).substr(0, 13);  // 52 bits: exact in a double
  return static_cast<double>(std::stoull(digits, nullptr, 16)) / 4503599627370496.0;
}

void AddMetric(const char* name, double value, v1::TaskResult* result) {
  v1::MetricValue* metric = result->add_metrics();
  metric->set_metric(name);
  metric->set_value(value);
}

}  // namespace

v1::AttemptReport NoopExecutor::Run(const v1::Assignment& assignment, const TaskEvents& events,
                                    const StopSignal& stop) {
  const v1::Task& task = assignment.task();
  const bool is_stage = task.has_stage();
  if (!is_stage && !task.has_evaluation()) return Failed(v1::INVALID_CONFIG, "the assignment names no task");
  const v1::Executor wanted = is_stage ? task.stage().executor() : task.evaluation().executor();
  if (wanted != v1::EXECUTOR_NOOP) {
    return Failed(v1::INVALID_CONFIG,
                  "this worker runs the test executor only (--executor noop); the job needs a trainer");
  }
  const ConfigView config(is_stage ? task.stage().config() : task.evaluation().config());
  const int64_t from = task.stage().from_step(), to = task.stage().to_step();

  const int64_t begin_us = Clock::Real().MonotonicMicros();
  const int64_t whole_us = static_cast<int64_t>(config.Number("noop.seconds") * 1e6);
  for (int64_t spent_us = 0; spent_us < whole_us; spent_us = Clock::Real().MonotonicMicros() - begin_us) {
    if (is_stage) {
      const double share = static_cast<double>(spent_us) / static_cast<double>(whole_us);
      TaskProgress progress;
      progress.step = from + static_cast<int64_t>(share * static_cast<double>(to - from));
      progress.resumed_from_step = from;
      events.progress(progress);
    }
    if (stop.WaitFor(std::min<int64_t>(whole_us - spent_us, 500'000))) return Stopped(stop);
  }
  if (stop.raised()) return Stopped(stop);

  const std::string outcome = config.Text("noop.outcome");
  // Poison: the worker's whole process goes, as by a fault of a driver.
  if (outcome == "kill_worker") ::kill(::getpid(), SIGKILL);
  if (outcome == "code_error") return Failed(v1::CODE_ERROR, "noop.outcome is code_error");
  if (outcome == "invalid_config") return Failed(v1::INVALID_CONFIG, "noop.outcome is invalid_config");
  v1::TaskResult result;
  result.set_device_kind("noop");
  result.set_seconds(static_cast<double>(Clock::Real().MonotonicMicros() - begin_us) * 1e-6);
  if (outcome == "diverge") {
    result.set_outcome(v1::DIVERGED);
    result.set_diverged_at_step(is_stage ? to : 0);
    return Succeeded(result);
  }
  result.set_outcome(v1::COMPLETED);
  if (is_stage) {
    TaskProgress progress;
    progress.step = to;
    progress.resumed_from_step = from;
    events.progress(progress);
    result.set_resumed_from_step(from);
  } else if (const std::string of = ConfigView({}, task.evaluation().eval_config()).Text("eval.task"); of != "loss") {
    for (const Metric& metric : Metrics()) {
      if (!metric.headline || !IsOfTask(metric, of)) continue;
      const std::string name(metric.name);
      AddMetric(name.c_str(), UnitFromText(absl::StrCat(name, " ", task.evaluation().evaluation_key())), &result);
    }
  } else {
    const double loss = 1.0 + UnitFromText(absl::StrCat("loss ", task.evaluation().evaluation_key()));
    AddMetric("loss", loss, &result);
    AddMetric("loss_targets", loss + 0.5 * UnitFromText(absl::StrCat("targets ", task.evaluation().evaluation_key())),
              &result);
    AddMetric("zero_rows", 0, &result);
  }
  return Succeeded(result);
}

}  // namespace ablate
