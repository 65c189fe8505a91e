// What the rules of claims/ look measured values up by: an arm of the plan, a seed, a phase, a cell. Also which arms,
// lengths and seeds a spec's words stand for. Private to claims/; must not know what a value is used for.
// Thread rule: immutable after construction; pure functions, any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/plan.h"
#include "experiments/table.h"
#include "proto/resources.pb.h"

namespace ablate {

// The arm's values in the form that Measurement has them: axis -> value as JSON.
ArmValues ArmValuesOf(const v1::Configuration& values);

// One place of a table, for one arm.
struct MeasuredCell {
  std::string metric;
  int64_t length_tokens = 0;
  std::string split;
  bool ntk = false;
};

// NTK acts only above the training length and with RoPE: elsewhere the cell with NTK on is the one without
// (docs/statistics.md 5).
MeasuredCell CellOf(const v1::SweepSpec& spec, const Arm& arm, const std::string& metric, const v1::LengthSpec& length,
                    const std::string& split, bool ntk);
v1::LengthSpec Multiple(double multiple);

struct Found {
  MeasurementStatus status = MeasurementStatus::kMissing;
  double value = 0;    // of kOk: finite
  std::string job_id;  // "" where no job is known
};

class Measured {
 public:
  // InvalidArgument: a measurement of an arm that the plan does not have. Tuning runs of arms that a later plan no
  // longer has are left out.
  static absl::StatusOr<Measured> Make(const Plan& plan, std::span<const Measurement> measurements);

  // A value that is there wins over a record without a metric, as in table.h; nothing at all is kMissing.
  Found Find(int arm, int64_t seed, v1::Phase phase, const MeasuredCell& cell) const;

 private:
  std::map<std::tuple<int, v1::Phase, int64_t>, std::vector<const Measurement*>> runs_;
};

// The arms that are no learning rate of another: indices of Plan::arms.
std::vector<int> RealArms(const Plan& plan);
absl::StatusOr<int> ArmOfJson(const Plan& plan, const std::string& json);

double AlphaOf(const v1::SweepSpec& spec);

// "seed 3", "seeds 1, 4".
std::string SeedsText(const std::vector<int64_t>& seeds);

}  // namespace ablate
