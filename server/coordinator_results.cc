// Tables, comparisons and users' queries. See coordinator_impl.h.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/claims/claimed.h"
#include "experiments/claims/effects.h"
#include "experiments/claims/spread.h"
#include "experiments/metrics.h"
#include "experiments/plan.h"
#include "experiments/plan_claims.h"
#include "experiments/statistics.h"
#include "experiments/table.h"
#include "server/coordinator_impl.h"
#include "server/store/user_query.h"
#include "server/table_input.h"

namespace ablate {
namespace {

TableOptions MakeOptions(const TableInput& input, std::vector<std::string> metrics, double level) {
  TableOptions options;
  options.level = level == 0 ? 0.95 : level;
  options.metrics = std::move(metrics);
  options.arm_order = input.arms;
  return options;
}

// What the values of a cell count as: confirmatory where every one does, else the reason of one that does not. In the
// confirming phase also only where a claim is about it.
class Standings {
 public:
  Standings(const StoredTable& table, ClaimedCells claimed) : claimed_(std::move(claimed)) {
    for (const StoredMeasurement& stored : table.measurements) {
      if (stored.split == "train") continue;
      const std::string own = stored.standing.empty() ? "exploratory" : stored.standing;
      const auto [place, added] =
          cells_.emplace(Cell(table.arms[stored.arm], stored.phase, stored.split, stored.length, stored.ntk), own);
      if (!added && place->second == "confirmatory") place->second = own;
    }
  }

  template <typename Row>
  std::string OfNumber(const Row& row, const std::string& metric) const {
    return Claimed(OfCell(row.arm_json(), row), row.phase(),
                   claimed_.HasNumber(row.arm_json(), metric, row.length(), row.ntk()));
  }
  // A difference is as good as the worse of its sides.
  std::string OfDifference(const v1::ComparisonRow& row) const {
    std::string standing = OfCell(row.arm_json(), row);
    if (standing == "confirmatory") standing = OfCell(row.baseline_json(), row);
    return Claimed(standing, row.phase(),
                   claimed_.HasDifference(row.arm_json(), row.baseline_json(), row.metric(), row.length(), row.ntk()));
  }

 private:
  using Cell = std::tuple<std::string, v1::Phase, std::string, int64_t, bool>;

  template <typename Row>
  std::string OfCell(const std::string& arm_json, const Row& row) const {
    const auto found = cells_.find(Cell(arm_json, row.phase(), row.split(), row.length(), row.ntk()));
    return found == cells_.end() ? "exploratory" : found->second;
  }
  static std::string Claimed(const std::string& standing, v1::Phase phase, bool claimed) {
    const bool better = standing.rfind("exploratory", 0) != 0;
    return phase == v1::CONFIRMING && better && !claimed ? kNotClaimed : standing;
  }

  const ClaimedCells claimed_;
  std::map<Cell, std::string> cells_;
};

absl::StatusOr<Standings> StandingsOf(const StoredTable& table, const SweepFile& file, const StoredClaims& stored) {
  if (file.spec.claims().empty()) return Standings(table, ClaimedCells());
  ABLATE_ASSIGN_OR_RETURN(const Plan plan, MakePlan(file.spec, {}, TuningResultsOf(stored.tuning)));
  // While learning rates are sought, nothing confirms anything.
  if (!plan.complete) return Standings(table, ClaimedCells());
  ABLATE_ASSIGN_OR_RETURN(ClaimedCells claimed,
                          ClaimedCells::Make(file.spec, plan, stored.lock.has_value() ? stored.lock->arm_json() : ""));
  return Standings(table, std::move(claimed));
}

// The metrics that are asked for: names, and patterns such as attention_entropy.*; where none is, all that are recorded
// but the members of families. InvalidArgument: neither known nor recorded, a pattern that nothing recorded fits.
absl::StatusOr<std::vector<std::string>> MetricsToShow(const StoredTable& table,
                                                       const google::protobuf::RepeatedPtrField<std::string>& asked) {
  std::set<std::string> recorded;
  for (const StoredMeasurement& stored : table.measurements) {
    if (!stored.metric.empty()) recorded.insert(stored.metric);
  }
  std::vector<std::string> shown;
  if (asked.empty()) {
    const bool families = std::any_of(recorded.begin(), recorded.end(), IsOfFamily);
    if (!families) return shown;
    std::copy_if(recorded.begin(), recorded.end(), std::back_inserter(shown),
                 [](const std::string& metric) { return !IsOfFamily(metric); });
    // An empty list would be all.
    if (shown.empty()) shown.push_back("loss");
    return shown;
  }
  for (const std::string& metric : asked) {
    const size_t before = shown.size();
    if (metric.find('*') != std::string::npos) {
      std::copy_if(recorded.begin(), recorded.end(), std::back_inserter(shown),
                   [&](const std::string& one) { return MatchesMetric(metric, one); });
    } else if (recorded.contains(metric) || FindMetric(metric) != nullptr) {
      shown.push_back(metric);
    }
    if (shown.size() > before) continue;
    std::vector<std::string> known = MetricNames();
    known.insert(known.end(), recorded.begin(), recorded.end());
    return absl::InvalidArgumentError(
        absl::StrCat("no metric \"", metric, "\" in sweep ", table.sweep, DidYouMean(metric, known)));
  }
  return shown;
}

// How many tries stand behind the rates of a row. By (metric, arm, seed, length, split, NTK, phase).
class Tries {
 public:
  explicit Tries(const StoredTable& table) {
    for (const StoredMeasurement& one : table.measurements) {
      if (!one.value.has_value()) continue;
      values_[{one.metric, table.arms[one.arm], one.seed, one.length, one.split, one.ntk,
               static_cast<int>(one.phase)}] = *one.value;
    }
  }

  // Fills rate_low, rate_high and tries where the row is a rate and every seed of its mean has both numbers.
  absl::Status Fill(const std::string& arm_json, const ConfidenceRow& row, v1::ConfidenceRow* message) const {
    const std::string tries_metric = TriesOf(row.metric);
    if (tries_metric.empty() || row.seeds.empty()) return absl::OkStatus();
    double right = 0, tries = 0;
    for (const int64_t seed : row.seeds) {
      const auto find = [&](const std::string& metric) {
        return values_.find(
            {metric, arm_json, seed, row.length_tokens, row.split, row.ntk, static_cast<int>(row.phase)});
      };
      const auto rate = find(row.metric), count = find(tries_metric);
      if (rate == values_.end() || count == values_.end()) return absl::OkStatus();
      right += std::round(rate->second * count->second);
      tries += count->second;
    }
    if (!(tries >= 1 && tries < 1e15 && right >= 0 && right <= tries)) return absl::OkStatus();
    ABLATE_ASSIGN_OR_RETURN(const RateInterval interval,
                            Wilson(static_cast<int64_t>(right), static_cast<int64_t>(tries), row.level));
    message->set_rate_low(interval.low);
    message->set_rate_high(interval.high);
    message->set_tries(static_cast<int64_t>(tries));
    return absl::OkStatus();
  }

 private:
  std::map<std::tuple<std::string, std::string, int64_t, int64_t, std::string, bool, int>, double> values_;
};

// The index of the arm to compare with: the sweep's own, or the one that `wanted` (JSON) names.
absl::StatusOr<int> BaselineArm(const StoredTable& table, const std::string& wanted) {
  if (wanted.empty()) return table.baseline_arm;
  const absl::StatusOr<v1::Configuration> selector = ConfigurationFromJson(wanted);
  if (!selector.ok()) return WithContext(selector.status(), "baseline_arm_json");
  std::vector<Arm> arms;
  for (size_t i = 0; i < table.arms.size(); ++i) {
    ABLATE_ASSIGN_OR_RETURN(v1::Configuration values, ConfigurationFromJson(table.arms[i]));
    std::string label = Label(values);
    arms.push_back({std::move(values), table.arms[i], std::move(label), table.arm_phases[i]});
  }
  return FindBaseline(table.settings, arms, *selector);
}

}  // namespace

absl::StatusOr<CoordinatorImpl::LoadedTable> CoordinatorImpl::LoadTable(const std::string& sweep) {
  SweepRow row = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(sweep));
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  LoadedTable loaded{.row = row};
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(loaded.table, ReadTable(db, row));
    ABLATE_ASSIGN_OR_RETURN(loaded.file, ReadSweepFile(db, row));
    ABLATE_ASSIGN_OR_RETURN(loaded.stored, ReadClaims(db, row));
    return absl::OkStatus();
  }));
  return loaded;
}

absl::StatusOr<v1::GetTableResponse> CoordinatorImpl::ComputeTable(const v1::GetTableRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const LoadedTable loaded, LoadTable(request.sweep()));
  const StoredTable& table = loaded.table;
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> metrics, MetricsToShow(table, request.metrics()));
  const TableInput input = MakeTableInput(table);
  ABLATE_ASSIGN_OR_RETURN(const Standings standings, StandingsOf(table, loaded.file, loaded.stored));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<ConfidenceRow> rows,
                          ConfidenceTable(input.measurements, MakeOptions(input, metrics, request.level())));
  const Tries tries(table);
  v1::GetTableResponse response;
  response.set_phases(HasPhases(loaded.file.spec));
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
    message->set_phase(row.phase);
    message->set_standing(standings.OfNumber(*message, row.metric));
    ABLATE_RETURN_IF_ERROR(tries.Fill(message->arm_json(), row, message));
  }
  return response;
}

absl::StatusOr<v1::CompareArmsResponse> CoordinatorImpl::ComputeComparison(const v1::CompareArmsRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const LoadedTable loaded, LoadTable(request.sweep()));
  const StoredTable& table = loaded.table;
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> metrics, MetricsToShow(table, request.metrics()));
  ABLATE_ASSIGN_OR_RETURN(const int baseline, BaselineArm(table, request.baseline_arm_json()));
  const TableInput input = MakeTableInput(table);
  ABLATE_ASSIGN_OR_RETURN(const Standings standings, StandingsOf(table, loaded.file, loaded.stored));
  TableOptions options = MakeOptions(input, metrics, request.level());
  options.baseline = input.arms[baseline];
  v1::CompareArmsResponse response;
  response.set_phases(HasPhases(loaded.file.spec));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<ComparisonRow> rows, ComparisonTable(input.measurements, options));
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
    message->set_phase(row.phase);
    for (const std::string& job : row.job_ids) message->add_job_ids(job);
    for (const std::string& job : row.diverged_job_ids) message->add_diverged_job_ids(job);
    message->set_standing(standings.OfDifference(*message));
  }
  return response;
}

absl::StatusOr<v1::GetEffectsResponse> CoordinatorImpl::ComputeEffects(const v1::GetEffectsRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> loaded, LoadSweep(request.sweep()));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> metrics, MetricsToShow(loaded->table, request.metrics()));
  // Most sweeps are no factorial, and a report asks of every sweep.
  if (request.factors().empty() && loaded->file.spec.factorial().factors().empty()) return v1::GetEffectsResponse();
  const std::vector<std::string> factors(request.factors().begin(), request.factors().end());
  const TableInput input = MakeTableInput(loaded->table);
  ABLATE_ASSIGN_OR_RETURN(
      std::vector<v1::EffectRow> rows,
      FactorialEffects(loaded->file.spec, loaded->plan, factors, metrics, request.level(), input.measurements));
  v1::GetEffectsResponse response;
  response.set_phases(HasPhases(loaded->file.spec));
  for (v1::EffectRow& row : rows) *response.add_rows() = std::move(row);
  return response;
}

absl::StatusOr<v1::GetSpreadResponse> CoordinatorImpl::ComputeSpread(const v1::GetSpreadRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const LoadedTable loaded, LoadTable(request.sweep()));
  const StoredTable& table = loaded.table;
  ABLATE_ASSIGN_OR_RETURN(const Standings standings, StandingsOf(table, loaded.file, loaded.stored));
  std::vector<StoredDocuments> stored;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(stored, ReadDocuments(db, loaded.row));
    return absl::OkStatus();
  }));
  // Every metric of an evaluation is of one job.
  std::map<std::tuple<int, int64_t, v1::Phase, int64_t, std::string, bool>, std::string> job_of;
  for (const StoredMeasurement& one : table.measurements) {
    job_of[{one.arm, one.seed, one.phase, one.length, one.split, one.ntk}] = one.job_id;
  }
  std::vector<DocumentMeasurement> measurements;
  for (StoredDocuments& one : stored) {
    if (one.phase == v1::TUNING) continue;
    const std::string& job = job_of[{one.arm, one.seed, one.phase, one.length, one.split, one.ntk}];
    measurements.push_back({.arm_json = table.arms[one.arm],
                            .seed = one.seed,
                            .length_tokens = one.length,
                            .split = std::move(one.split),
                            .ntk = one.ntk,
                            .phase = one.phase,
                            .job_id = job,
                            .documents = std::move(one.documents)});
  }
  ABLATE_ASSIGN_OR_RETURN(std::vector<v1::SpreadRow> rows, SpreadRows(measurements, request.level()));
  v1::GetSpreadResponse response;
  response.set_phases(HasPhases(loaded.file.spec));
  for (v1::SpreadRow& made : rows) {
    made.set_standing(standings.OfNumber(made, "loss_targets"));
    *response.add_rows() = std::move(made);
  }
  return response;
}

absl::StatusOr<v1::GetTableResponse> CoordinatorImpl::GetTable(const v1::GetTableRequest& request) {
  return Kept("GetTable", request, false, &CoordinatorImpl::ComputeTable);
}

absl::StatusOr<v1::CompareArmsResponse> CoordinatorImpl::CompareArms(const v1::CompareArmsRequest& request) {
  return Kept("CompareArms", request, false, &CoordinatorImpl::ComputeComparison);
}

absl::StatusOr<v1::GetEffectsResponse> CoordinatorImpl::GetEffects(const v1::GetEffectsRequest& request) {
  return Kept("GetEffects", request, false, &CoordinatorImpl::ComputeEffects);
}

absl::StatusOr<v1::GetSpreadResponse> CoordinatorImpl::GetSpread(const v1::GetSpreadRequest& request) {
  return Kept("GetSpread", request, false, &CoordinatorImpl::ComputeSpread);
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
