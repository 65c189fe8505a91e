// The files of a report: Markdown, LaTeX, figures, tidy data and TensorBoard events, from the coordinator's answers.
// Must not know gRPC calls or folders. The same input gives the same bytes: no time of writing, no machine's name.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output/report.h"
#include "cli/report/figures.h"
#include "experiments/attention_map.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// One training's points and evaluations: of one (arm, phase, seed).
struct RunCurves {
  std::string arm_json;
  v1::Phase phase = v1::PLAIN;
  int64_t seed = 0;
  struct Point {
    std::string metric;
    int64_t step = 0;
    double value = 0;
  };
  std::vector<Point> points;
  int64_t at_us = 0;  // when its last training job ended
};

// One plan of a sweep: of its submission, of its tuning, of an extension.
struct PlanVersion {
  std::string why;
  std::string yaml;  // verbatim; "": that of the version before
  std::string plan_sha256;
  int64_t at_us = 0;
};

struct ReportInput {
  v1::Sweep sweep;
  std::string yaml, file_name;
  std::string baseline_json;
  v1::GetTableResponse table;
  v1::GetTableResponse depths;  // of passkey_accuracy.depth_*
  struct Map {
    std::string name, title;  // of the file, and for people
    AttentionMap map;
  };
  std::vector<Map> maps;  // of the first seed of each arm
  v1::CompareArmsResponse comparisons;
  v1::GetClaimsResponse claims;
  v1::GetEffectsResponse effects;
  v1::GetSpreadResponse spread;
  v1::ListVerificationsResponse verifications;
  std::vector<SeedValue> seeds;
  std::vector<RunCurves> curves;
  Records results;   // the view `results`, this sweep's rows
  Records failures;  // jobs that failed or were cancelled: job, kind, state, failure, message
  Records devices;   // device kind, build, jobs, hours
  struct DataFile {
    std::string path, sha256;
  };
  std::string data_name;
  std::vector<DataFile> data_files;
  bool noop = false;                  // jobs of the test executor
  std::vector<PlanVersion> versions;  // oldest first
};

// Of the store's word ("confirming"). InvalidArgument: none that is known.
absl::StatusOr<v1::Phase> PhaseFromWord(const std::string& word);
// Single seeds, from rows of the view `results`. InvalidArgument: an unknown phase, or a column that is not there.
absl::StatusOr<std::vector<SeedValue>> SeedsOf(const Records& results);

// Phases of rows are those of a server that knows them: none UNSPECIFIED.
// File name, relative to the report's folder -> content.
std::map<std::string, std::string> ReportFiles(const ReportInput& input);

}  // namespace ablate
