// Sweep files: YAML to SweepSpec. The format: docs/sweep-files.md. Must not know data files' content, planning, SQL or
// gRPC.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "experiments/sweep_places.h"
#include "proto/resources.pb.h"

namespace ablate {

inline constexpr int64_t kMaxPoints = 1000000;  // arms x seeds

// InvalidArgument, in the form "quickstart.yaml:12:7: expected a number for train.learning_rate, found \"fast\"":
// malformed YAML, unknown key (with the nearest known one), wrong type, value out of range, duplicate key, too many
// points (over 1,000,000), nesting too deep. Never throws, whatever the bytes. `file_name` is for messages, and its
// last part without ending is the sweep's name where the file states none. Ranges and lists inside arms are expanded in
// the answer, defaults of seeds (3), evaluate, keep and executor filled in. Its data has name, format and paths as the
// file names them; hashes are the caller's business unless stated there.
// `places`, if given, is filled with where its parts stand, for MakePlan.
absl::StatusOr<v1::SweepSpec> ParseSweepFile(const std::string& yaml, const std::string& file_name,
                                             SweepPlaces* places = nullptr);

}  // namespace ablate
