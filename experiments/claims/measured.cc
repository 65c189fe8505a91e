// See measured.h.
#include "experiments/claims/measured.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/plan_check.h"

namespace ablate {
namespace {

v1::Configuration FullConfiguration(const v1::SweepSpec& spec, const Arm& arm) {
  v1::Configuration full = spec.settings();
  full.mutable_settings()->MergeFrom(arm.values.settings());
  return full;
}

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

int64_t TokensOf(const v1::SweepSpec& spec, const Arm& arm, const v1::LengthSpec& length) {
  if (!length.has_multiple()) return length.tokens();
  const ConfigView view(FullConfiguration(spec, arm));
  return std::llround(length.multiple() * static_cast<double>(view.Integer("train.length")));
}

MeasuredCell CellOf(const v1::SweepSpec& spec, const Arm& arm, const std::string& metric, const v1::LengthSpec& length,
                    const std::string& split, bool ntk) {
  const ConfigView view(FullConfiguration(spec, arm));
  const int64_t trained = view.Integer("train.length");
  MeasuredCell cell{.metric = metric, .split = split};
  cell.length_tokens =
      length.has_multiple() ? std::llround(length.multiple() * static_cast<double>(trained)) : length.tokens();
  cell.ntk = ntk && cell.length_tokens > trained && view.Text("model.position") == "rope";
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

absl::StatusOr<int> ArmNamed(const v1::SweepSpec& spec, const Plan& plan, const v1::Configuration& selector) {
  const std::vector<int> real = RealArms(plan);
  std::vector<Arm> arms;
  for (int i : real) arms.push_back(plan.arms[i]);
  ABLATE_ASSIGN_OR_RETURN(const int found, FindBaseline(spec.settings(), arms, selector));
  return real[found];
}

absl::StatusOr<int> ArmOfJson(const Plan& plan, const std::string& json) {
  for (int i : RealArms(plan)) {
    if (plan.arms[i].json == json) return i;
  }
  return absl::InvalidArgumentError(absl::StrCat("the plan has no arm ", json));
}

absl::StatusOr<std::vector<int>> Candidates(const v1::SweepSpec& spec, const Plan& plan) {
  const v1::Configuration& among = spec.select().among();
  std::vector<int> left_out = {plan.baseline_arm};
  if (among.settings().empty()) {
    for (const v1::Configuration& fixed : spec.confirm().fixed_arms()) {
      ABLATE_ASSIGN_OR_RETURN(const int arm, ArmNamed(spec, plan, fixed));
      left_out.push_back(arm);
    }
  }
  std::vector<int> candidates;
  for (int i : RealArms(plan)) {
    if (std::find(left_out.begin(), left_out.end(), i) != left_out.end()) continue;
    const v1::Configuration full = FullConfiguration(spec, plan.arms[i]);
    if (HasValues(full, ConfigView(full), among)) candidates.push_back(i);
  }
  if (candidates.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("select: no arm but the baseline ",
                                                   among.settings().empty() ? "and the fixed ones" : "fits `among`"));
  }
  return candidates;
}

std::vector<int64_t> ConfirmingSeeds(const v1::SweepSpec& spec) {
  const auto& seeds =
      spec.confirm().seeds().empty() && spec.confirm().reuse_seeds() ? spec.seeds() : spec.confirm().seeds();
  return {seeds.begin(), seeds.end()};
}

double AlphaOf(const v1::SweepSpec& spec) { return spec.alpha() > 0 ? spec.alpha() : 0.05; }

std::string SeedsText(const std::vector<int64_t>& seeds) {
  return absl::StrCat(seeds.size() == 1 ? "seed " : "seeds ", absl::StrJoin(seeds, ", "));
}

}  // namespace ablate
