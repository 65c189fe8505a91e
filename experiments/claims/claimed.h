// Which numbers of the confirming phase the claims of a sweep are about: the others are exploratory, sealed or not.
// Must not know what a number is. Thread rule: immutable after construction, any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "experiments/plan.h"
#include "proto/resources.pb.h"

namespace ablate {

class ClaimedCells {
 public:
  ClaimedCells() = default;  // of a sweep without claims
  // `locked`: JSON of the arm that `selected` stands for; "": none yet. InvalidArgument: the plan has no such arm.
  static absl::StatusOr<ClaimedCells> Make(const v1::SweepSpec& spec, const Plan& plan, const std::string& locked);

  // One arm's mean; the difference of an arm and a baseline, of which a rise is two.
  bool HasNumber(const std::string& arm_json, const std::string& metric, int64_t length, bool ntk) const {
    return numbers_.contains({arm_json, metric, length, ntk});
  }
  bool HasDifference(const std::string& arm_json, const std::string& baseline_json, const std::string& metric,
                     int64_t length, bool ntk) const {
    return differences_.contains({arm_json, baseline_json, metric, length, ntk});
  }

 private:
  std::set<std::tuple<std::string, std::string, int64_t, bool>> numbers_;
  std::set<std::tuple<std::string, std::string, std::string, int64_t, bool>> differences_;
};

inline constexpr char kNotClaimed[] = "exploratory: no claim is about it";

}  // namespace ablate
