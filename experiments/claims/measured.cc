// See measured.h.
#include "experiments/claims/measured.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

bool Covers(const Measurement& run, const MeasuredCell& cell) {
  if (run.length_tokens == 0) return run.split.empty() || run.split == cell.split;
  return run.length_tokens == cell.length_tokens && run.split == cell.split && run.ntk == cell.ntk;
}

}  // namespace

ArmValues ArmValuesOf(const v1::Configuration& values) {
  ArmValues out;
  for (const v1::Setting& setting : values.settings()) {
    v1::Configuration one;
    *one.add_settings() = setting;
    one.mutable_settings(0)->set_axis("v");
    const std::string json = ToJson(one);  // {"v":...}
    out[setting.axis()] = json.substr(5, json.size() - 6);
  }
  return out;
}

v1::LengthSpec Multiple(double multiple) {
  v1::LengthSpec length;
  length.set_multiple(multiple);
  return length;
}

MeasuredCell CellOf(const v1::SweepSpec& spec, const Arm& arm, const std::string& metric, const v1::LengthSpec& length,
                    const std::string& split, bool ntk) {
  MeasuredCell cell{.metric = metric, .length_tokens = LengthTokens(length, arm.train_length), .split = split};
  if (!ntk || cell.length_tokens <= arm.train_length) return cell;
  v1::Configuration full = spec.settings();
  full.mutable_settings()->MergeFrom(arm.values.settings());
  cell.ntk = ConfigView(full).Text("model.position") == "rope";
  return cell;
}

absl::StatusOr<Measured> Measured::Make(const Plan& plan, std::span<const Measurement> measurements) {
  std::map<ArmValues, int> arms;
  for (size_t i = 0; i < plan.arms.size(); ++i) arms.emplace(ArmValuesOf(plan.arms[i].values), static_cast<int>(i));
  Measured measured;
  for (const Measurement& measurement : measurements) {
    const auto arm = arms.find(measurement.arm);
    if (arm == arms.end()) {
      if (measurement.phase == v1::TUNING) continue;
      return absl::InvalidArgumentError(absl::StrCat("a measurement of an arm that the plan does not have: {",
                                                     absl::StrJoin(measurement.arm, ", ", absl::PairFormatter(": ")),
                                                     "}, job ", measurement.job_id));
    }
    measured.runs_[{arm->second, measurement.phase, measurement.seed}].push_back(&measurement);
  }
  return measured;
}

Found Measured::Find(int arm, int64_t seed, v1::Phase phase, const MeasuredCell& cell) const {
  Found found;
  const auto run = runs_.find({arm, phase, seed});
  if (run == runs_.end()) return found;
  for (const Measurement* measurement : run->second) {
    if (measurement->metric.empty()) {
      if (measurement->status == MeasurementStatus::kDiverged && found.status == MeasurementStatus::kMissing &&
          Covers(*measurement, cell)) {
        found.status = MeasurementStatus::kDiverged;
        found.job_id = measurement->job_id;
      }
      continue;
    }
    if (measurement->metric != cell.metric || measurement->length_tokens != cell.length_tokens ||
        measurement->split != cell.split || measurement->ntk != cell.ntk) {
      continue;
    }
    if (measurement->status == MeasurementStatus::kMissing) continue;
    const bool value = measurement->status == MeasurementStatus::kOk && measurement->value.has_value() &&
                       std::isfinite(*measurement->value);
    found.status = value ? MeasurementStatus::kOk : MeasurementStatus::kDiverged;
    found.job_id = measurement->job_id;
    if (!value) continue;
    found.value = *measurement->value;
    return found;
  }
  return found;
}

std::vector<int> RealArms(const Plan& plan) {
  std::vector<int> real;
  for (size_t i = 0; i < plan.arms.size(); ++i) {
    if (plan.arms[i].tunes < 0 && plan.arms[i].phase != v1::TUNING) real.push_back(static_cast<int>(i));
  }
  return real;
}

absl::StatusOr<int> ArmOfJson(const Plan& plan, const std::string& json) {
  for (int i : RealArms(plan)) {
    if (plan.arms[i].json == json) return i;
  }
  return absl::InvalidArgumentError(absl::StrCat("the plan has no arm ", json));
}

double AlphaOf(const v1::SweepSpec& spec) { return spec.alpha() > 0 ? spec.alpha() : 0.05; }

std::string SeedsText(const std::vector<int64_t>& seeds) {
  return absl::StrCat(seeds.size() == 1 ? "seed " : "seeds ", absl::StrJoin(seeds, ", "));
}

}  // namespace ablate
