#include "server/table_input.h"

#include "experiments/metrics.h"
#include "server/store/json_text.h"

namespace ablate {

ArmValues ArmValuesFromJson(const std::string& json) {
  ArmValues values;
  for (auto& [name, value] : JsonMembers(json)) values[name] = value;
  return values;
}

TableInput MakeTableInput(const StoredTable& table) {
  TableInput input;
  for (const std::string& json : table.arms) {
    input.arms.push_back(ArmValuesFromJson(json));
    input.json_of[input.arms.back()] = json;
  }
  for (const StoredMeasurement& stored : table.measurements) {
    Measurement measurement{.sweep = table.sweep,
                            .arm = input.arms[stored.arm],
                            .seed = stored.seed,
                            .metric = stored.metric,
                            .length_tokens = stored.length,
                            .split = stored.split,
                            .ntk = stored.ntk,
                            .value = stored.value,
                            .job_id = stored.job_id,
                            .phase = stored.phase};
    if (stored.missing) measurement.status = MeasurementStatus::kMissing;
    if (stored.diverged) measurement.status = MeasurementStatus::kDiverged;
    input.measurements.push_back(measurement);
    // A run without a value lacks every metric that others have, not only those recorded for it.
    if (stored.diverged && IsHeadline(stored.metric)) {
      measurement.metric.clear();
      input.measurements.push_back(std::move(measurement));
    }
  }
  return input;
}

}  // namespace ablate
