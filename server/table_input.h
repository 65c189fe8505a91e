// From stored rows to what experiments/ computes with. Must not know SQL, gRPC or the scheduler. Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/table.h"
#include "server/store/records.h"

namespace ablate {

ArmValues ArmValuesFromJson(const std::string& json);

// Measurements with the arms' values, and the way back from these to the JSON as stored.
struct TableInput {
  std::vector<Measurement> measurements;
  std::vector<ArmValues> arms;  // by position
  std::map<ArmValues, std::string> json_of;
};
TableInput MakeTableInput(const StoredTable& table);

}  // namespace ablate
