// Tables, comparisons and users' queries. See coordinator_impl.h.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"
#include "experiments/plan.h"
#include "experiments/table.h"
#include "server/coordinator_impl.h"
#include "server/store/json_text.h"
#include "server/store/user_query.h"

namespace ablate {
namespace {

ArmValues ValuesOf(const std::string& json) {
  ArmValues values;
  for (auto& [name, value] : JsonMembers(json)) values[name] = value;
  return values;
}

// What experiments/table.h needs, and the way back from an arm's values to the JSON as stored.
struct TableInput {
  std::vector<Measurement> measurements;
  TableOptions options;
  std::map<ArmValues, std::string> json_of;
};

TableInput MakeInput(const StoredTable& table, const google::protobuf::RepeatedPtrField<std::string>& metrics,
                     double level) {
  TableInput input;
  std::vector<ArmValues> arms;
  for (const std::string& json : table.arms) {
    arms.push_back(ValuesOf(json));
    input.json_of[arms.back()] = json;
  }
  for (const StoredMeasurement& stored : table.measurements) {
    Measurement measurement{.sweep = table.sweep,
                            .arm = arms[stored.arm],
                            .seed = stored.seed,
                            .metric = stored.metric,
                            .length_tokens = stored.length,
                            .split = stored.split,
                            .ntk = stored.ntk,
                            .value = stored.value,
                            .job_id = stored.job_id};
    if (stored.missing) measurement.status = MeasurementStatus::kMissing;
    if (stored.diverged) measurement.status = MeasurementStatus::kDiverged;
    input.measurements.push_back(measurement);
    // A run without a value lacks every metric that others have, not only those recorded for it.
    if (stored.diverged && IsHeadline(stored.metric)) {
      measurement.metric.clear();
      input.measurements.push_back(std::move(measurement));
    }
  }
  input.options.level = level == 0 ? 0.95 : level;
  input.options.metrics.assign(metrics.begin(), metrics.end());
  input.options.arm_order = arms;
  return input;
}

// InvalidArgument: a metric that is neither known nor recorded.
absl::Status CheckMetrics(const StoredTable& table, const google::protobuf::RepeatedPtrField<std::string>& metrics) {
  if (metrics.empty()) return absl::OkStatus();
  std::vector<std::string> known = MetricNames();
  const std::set<std::string> listed(known.begin(), known.end());
  std::set<std::string> others;
  for (const StoredMeasurement& stored : table.measurements) {
    if (!stored.metric.empty() && !listed.contains(stored.metric)) others.insert(stored.metric);
  }
  known.insert(known.end(), others.begin(), others.end());
  for (const std::string& metric : metrics) {
    if (std::find(known.begin(), known.end(), metric) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no metric \"", metric, "\" in sweep ", table.sweep, DidYouMean(metric, known)));
  }
  return absl::OkStatus();
}

// The index of the arm to compare with: the sweep's own, or the one that `wanted` (JSON) names.
absl::StatusOr<int> BaselineArm(const StoredTable& table, const std::string& wanted) {
  if (wanted.empty()) return table.baseline_arm;
  const absl::StatusOr<v1::Configuration> selector = ConfigurationFromJson(wanted);
  if (!selector.ok()) return WithContext(selector.status(), "baseline_arm_json");
  std::vector<Arm> arms;
  for (const std::string& json : table.arms) {
    ABLATE_ASSIGN_OR_RETURN(v1::Configuration values, ConfigurationFromJson(json));
    std::string label = Label(values);
    arms.push_back({std::move(values), json, std::move(label)});
  }
  return FindBaseline(table.settings, arms, *selector);
}

}  // namespace

absl::StatusOr<StoredTable> CoordinatorImpl::LoadTable(const std::string& sweep) {
  SweepRow row = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(sweep));
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  StoredTable table;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(table, ReadTable(db, row));
    return absl::OkStatus();
  }));
  return table;
}

absl::StatusOr<v1::GetTableResponse> CoordinatorImpl::GetTable(const v1::GetTableRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const StoredTable table, LoadTable(request.sweep()));
  ABLATE_RETURN_IF_ERROR(CheckMetrics(table, request.metrics()));
  const TableInput input = MakeInput(table, request.metrics(), request.level());
  ABLATE_ASSIGN_OR_RETURN(const std::vector<ConfidenceRow> rows, ConfidenceTable(input.measurements, input.options));
  v1::GetTableResponse response;
  for (const ConfidenceRow& row : rows) {
    v1::ConfidenceRow* message = response.add_rows();
    message->set_sweep(row.sweep);
    message->set_arm_json(input.json_of.at(row.arm));
    message->set_metric(row.metric);
    message->set_length(row.length_tokens);
    message->set_split(row.split);
    message->set_ntk(row.ntk);
    message->set_n(static_cast<int32_t>(row.n));
    if (row.mean) message->set_mean(*row.mean);
    if (row.sd) message->set_sd(*row.sd);
    if (row.low) message->set_low(*row.low);
    if (row.high) message->set_high(*row.high);
    message->set_level(row.level);
    message->set_method(row.method);
    message->set_note(row.reason.empty() || row.note.empty() ? row.reason + row.note : row.reason + "; " + row.note);
    for (int64_t seed : row.seeds) message->add_seeds(seed);
    for (int64_t seed : row.diverged_seeds) message->add_diverged_seeds(seed);
    for (int64_t seed : row.missing_seeds) message->add_missing_seeds(seed);
    for (const std::string& job : row.job_ids) message->add_job_ids(job);
    for (const std::string& job : row.diverged_job_ids) message->add_diverged_job_ids(job);
  }
  return response;
}

absl::StatusOr<v1::CompareArmsResponse> CoordinatorImpl::CompareArms(const v1::CompareArmsRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const StoredTable table, LoadTable(request.sweep()));
  ABLATE_RETURN_IF_ERROR(CheckMetrics(table, request.metrics()));
  ABLATE_ASSIGN_OR_RETURN(const int baseline, BaselineArm(table, request.baseline_arm_json()));
  TableInput input = MakeInput(table, request.metrics(), request.level());
  input.options.baseline = ValuesOf(table.arms[baseline]);
  v1::CompareArmsResponse response;
  ABLATE_ASSIGN_OR_RETURN(const std::vector<ComparisonRow> rows, ComparisonTable(input.measurements, input.options));
  for (const ComparisonRow& row : rows) {
    v1::ComparisonRow* message = response.add_rows();
    message->set_sweep(row.sweep);
    message->set_arm_json(input.json_of.at(row.arm));
    message->set_baseline_json(input.json_of.at(row.baseline));
    message->set_metric(row.metric);
    message->set_length(row.length_tokens);
    message->set_split(row.split);
    message->set_ntk(row.ntk);
    message->set_n(static_cast<int32_t>(row.n));
    if (row.difference) message->set_difference(*row.difference);
    if (row.sd) message->set_sd(*row.sd);
    if (row.low) message->set_low(*row.low);
    if (row.high) message->set_high(*row.high);
    if (row.p) message->set_p(*row.p);
    if (row.p_adjusted) message->set_p_adjusted(*row.p_adjusted);
    message->set_family_size(static_cast<int32_t>(row.family_size));
    message->set_level(row.level);
    message->set_method(row.method);
    message->set_note(row.reason.empty() || row.note.empty() ? row.reason + row.note : row.reason + "; " + row.note);
    for (int64_t seed : row.seeds) message->add_seeds(seed);
    for (int64_t seed : row.diverged_seeds) message->add_diverged_seeds(seed);
    for (int64_t seed : row.missing_seeds) message->add_missing_seeds(seed);
  }
  return response;
}

absl::Status CoordinatorImpl::Query(const v1::QueryRequest& request,
                                    const std::function<bool(const v1::QueryResponse&)>& send) {
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
  }
  return RunUserQuery(store_->path(), request, send);
}

}  // namespace ablate
