// Where the parts of a sweep stand in its file, so that a fault that only planning can find is told with its place.
// Filled by ParseSweepFile, used by MakePlan. Plain data; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/strings.h"

namespace ablate {

struct SweepPlaces {
  struct Place {
    int line = 1, column = 1;
  };
  std::string file_name;  // empty: the sweep has no file, and errors no place
  Place root;
  Place axes;  // else of `settings`, else of the file
  Place baseline;
  std::vector<Place> arms, exclude;  // [i]: where SweepSpec.arms(i), exclude(i) come from; several may share one
  std::vector<Place> lengths;        // [i]: of evaluate.lengths(i); none: they are the defaults

  // Of parts with names, by path: "tune.learning_rates", "claims[2].margin", "confirm.fixed[0]".
  std::map<std::string, Place> named;

  // Of the part, else of the part that it belongs to, else of the file.
  Place Named(std::string path) const {
    for (;; path.resize(path.find_last_of(".["))) {
      if (const auto it = named.find(path); it != named.end()) return it->second;
      if (path.find_last_of(".[") == std::string::npos) return root;
    }
  }
  Place Arm(size_t i) const { return i < arms.size() ? arms[i] : axes; }
  Place Exclude(size_t i) const { return i < exclude.size() ? exclude[i] : root; }
  Place Length(size_t i, size_t arm) const { return i < lengths.size() ? lengths[i] : Arm(arm); }

  // `status` with "sweep.yaml:12:7: " in front; OK stays OK.
  absl::Status At(const Place& place, const absl::Status& status) const {
    if (status.ok() || file_name.empty()) return status;
    return WithContext(status, file_name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column));
  }
};

}  // namespace ablate
