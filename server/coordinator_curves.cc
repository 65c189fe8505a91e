// Training curves of a sweep's arms. See coordinator_impl.h; the numbers are made in experiments/curves.h.
#include <algorithm>
#include <map>
#include <set>

#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/curves.h"
#include "server/coordinator_impl.h"

namespace ablate {
namespace {

constexpr int kUsualPoints = 400, kFewestPoints = 16, kMostPoints = 5000;
// Points of one answer: what a page draws, and what a message holds.
constexpr int64_t kUsualAnswer = 200'000, kLargestAnswer = 1'000'000;
constexpr int64_t kMostCurves = 20'000;

// The arms that are asked for, by their JSON or by axis values that name one; else all but tuning arms.
absl::StatusOr<std::set<int>> ChooseArms(const StoredPoints& stored, const v1::Configuration& settings,
                                         const google::protobuf::RepeatedPtrField<std::string>& asked) {
  std::set<int> chosen;
  std::vector<Arm> arms;
  for (size_t i = 0; i < stored.arms.size(); ++i) {
    if (asked.empty() && stored.arms[i].phase != v1::TUNING) chosen.insert(static_cast<int>(i));
  }
  for (const std::string& json : asked) {
    const absl::StatusOr<v1::Configuration> selector = ConfigurationFromJson(json);
    if (!selector.ok()) return WithContext(selector.status(), "arms_json");
    const auto exact = std::find_if(stored.arms.begin(), stored.arms.end(),
                                    [own = ToJson(*selector)](const auto& arm) { return arm.json == own; });
    if (exact != stored.arms.end()) {
      chosen.insert(static_cast<int>(exact - stored.arms.begin()));
      continue;
    }
    for (size_t i = arms.size(); i < stored.arms.size(); ++i) {
      const StoredPoints::Arm& arm = stored.arms[i];
      ABLATE_ASSIGN_OR_RETURN(v1::Configuration values, ConfigurationFromJson(arm.json));
      arms.push_back({std::move(values), arm.json, arm.label, arm.phase});
    }
    ABLATE_ASSIGN_OR_RETURN(const int arm, FindArm(settings, arms, *selector, "arms_json"));
    chosen.insert(arm);
  }
  return chosen;
}

absl::StatusOr<int> PointsOfACurve(int asked, int64_t curves) {
  if (asked != 0 && (asked < kFewestPoints || asked > kMostPoints)) {
    return absl::InvalidArgumentError(absl::StrCat("max_points: expected 0 or ", kFewestPoints, " to ", kMostPoints,
                                                   ", got ", asked));
  }
  if (curves > kMostCurves) {
    return absl::InvalidArgumentError(absl::StrCat("these are ", curves, " curves; one answer has at most ", kMostCurves,
                                                   ": ask for fewer arms or metrics at a time"));
  }
  const int64_t share = (asked == 0 ? kUsualAnswer : kLargestAnswer) / std::max<int64_t>(curves, 1);
  return static_cast<int>(std::clamp<int64_t>(share, kFewestPoints, asked == 0 ? kUsualPoints : asked));
}

}  // namespace

absl::StatusOr<v1::GetCurvesResponse> CoordinatorImpl::ComputeCurves(const v1::GetCurvesRequest& request) {
  SweepRow row = 0;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(request.sweep()));
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<const Points> points, LoadPoints(row));
  const StoredPoints& stored = points->stored;
  v1::Configuration settings;
  if (!request.arms_json().empty()) {
    ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
      ABLATE_ASSIGN_OR_RETURN(const SweepFile file, ReadSweepFile(db, row));
      settings = file.spec.settings();
      return absl::OkStatus();
    }));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::set<int> arms, ChooseArms(stored, settings, request.arms_json()));
  std::vector<std::string> metrics;
  for (const std::string& metric : request.metrics()) {
    if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end()) metrics.push_back(metric);
  }
  if (metrics.empty()) metrics.push_back(CurveMetrics().front());

  // By arm: what may be shown of it. Of sealed points nothing may.
  std::map<int, std::vector<const StoredPoint*>> shown;
  int64_t curves = 0;
  for (const StoredPoint& point : stored.points) {
    if (point.sealed || !arms.contains(point.arm)) continue;
    shown[point.arm].push_back(&point);
    curves += static_cast<int64_t>(metrics.size());
  }
  ABLATE_ASSIGN_OR_RETURN(const int max_points, PointsOfACurve(request.max_points(), curves));

  v1::GetCurvesResponse response;
  response.set_level(request.level() == 0 ? 0.95 : request.level());
  response.set_method("student_t");
  std::set<std::string> recorded;
  int64_t thinned = 0;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    for (int arm : arms) {
      const int index = response.arms_json_size();
      response.add_arms_json(stored.arms[arm].json);
      response.add_arm_labels(stored.arms[arm].label);
      // By phase and metric: the seeds of one mean.
      std::map<std::pair<v1::Phase, size_t>, std::pair<std::vector<int64_t>, std::vector<CurvePoints>>> groups;
      for (const StoredPoint* point : shown[arm]) {
        std::vector<StoredRun> runs;
        for (int stage : point->stages) {
          ABLATE_ASSIGN_OR_RETURN(runs.emplace_back(), ReadRun(db, row, stored.stages[stage].key));
        }
        for (size_t m = 0; m < metrics.size(); ++m) {
          auto& [seeds, members] = groups[{point->phase, m}];
          seeds.push_back(point->seed);
          CurvePoints& all = members.emplace_back();
          for (int stage : point->stages) {
            ABLATE_RETURN_IF_ERROR(AppendCurve(db, stored.stages[stage].row, metrics[m], &all));
          }
          v1::Curve* curve = response.add_curves();
          curve->set_arm(index);
          curve->set_seed(point->seed);
          curve->set_phase(point->phase);
          curve->set_metric(metrics[m]);
          curve->set_stored_points(static_cast<int64_t>(all.steps.size()));
          for (const StoredRun& run : runs) {
            if (!run.job_id.empty()) curve->add_job_ids(run.job_id);
            if (curve->diverged_at_step() == 0) curve->set_diverged_at_step(run.diverged_at_step);
          }
          if (!all.steps.empty()) recorded.insert(metrics[m]);
          const CurvePoints kept = Thinned(all, max_points);
          thinned += kept.steps.size() < all.steps.size();
          curve->mutable_steps()->Add(kept.steps.begin(), kept.steps.end());
          curve->mutable_values()->Add(kept.values.begin(), kept.values.end());
        }
      }
      for (const auto& [group, of_seeds] : groups) {
        const auto& [seeds, members] = of_seeds;
        ABLATE_ASSIGN_OR_RETURN(const MeanCurvePoints whole, MeanOverSeeds(members, response.level()));
        if (whole.steps.empty()) continue;
        const MeanCurvePoints kept = Thinned(whole, max_points);
        v1::MeanCurve* mean = response.add_means();
        mean->set_arm(index);
        mean->set_phase(group.first);
        mean->set_metric(metrics[group.second]);
        mean->mutable_steps()->Add(kept.steps.begin(), kept.steps.end());
        mean->mutable_means()->Add(kept.means.begin(), kept.means.end());
        mean->mutable_lows()->Add(kept.lows.begin(), kept.lows.end());
        mean->mutable_highs()->Add(kept.highs.begin(), kept.highs.end());
        mean->mutable_n()->Add(kept.n.begin(), kept.n.end());
        for (size_t used : kept.used) mean->add_seeds(seeds[used]);
      }
    }
    return absl::OkStatus();
  }));
  for (const std::string& metric : metrics) {
    const std::vector<std::string>& known = CurveMetrics();
    if (recorded.contains(metric) || std::find(known.begin(), known.end(), metric) != known.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("no curve \"", metric, "\" in sweep ", request.sweep(),
                                                   DidYouMean(metric, known)));
  }
  // Also of a sweep without any point: a level is right or wrong by itself.
  ABLATE_RETURN_IF_ERROR(MeanOverSeeds({}, response.level()).status());
  if (thinned > 0) {
    response.set_note(absl::StrCat(thinned, " of ", curves, " curves are thinned to ", max_points,
                                   " points: of equal ranges of steps the lowest and the highest, the first and the last of all, "
                                   "and every value that is not finite; means are of all points"));
  }
  return response;
}

absl::StatusOr<v1::GetCurvesResponse> CoordinatorImpl::GetCurves(const v1::GetCurvesRequest& request) {
  return Kept("GetCurves", request, true, &CoordinatorImpl::ComputeCurves);
}

}  // namespace ablate
