// Planning: a sweep's arms, their stage tree and evaluations, with content keys. Pure; no I/O.
//
// A state at step t is keyed by the data's hash, the seed, the list of (training configuration, from, to) from step 0 with
// adjacent equal ones merged, kNumericsVersion, device class and precision; so where the planner cuts changes no key, and
// two arms or sweeps that need the same state share it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/resources.pb.h"

namespace ablate {

struct PlannedStage {
  std::string key;
  int parent = -1;            // index in Plan::stages; -1: from scratch
  v1::Configuration config;   // canonical, training settings only
  int64_t seed = 0;
  int64_t from_step = 0, to_step = 0;
  bool has_children = false;  // some planned stage continues from it: its optimiser state is needed
};

struct PlannedEvaluation {
  std::string key;
  int stage = 0;              // index in Plan::stages: the state that is measured
  v1::Configuration eval_config;  // canonical `eval.*` settings
  int64_t length_tokens = 0;
  bool ntk = false;           // dynamic NTK acts here: on, and the length is above the training length
  std::string split;
};

struct Arm {
  v1::Configuration values;   // the axis values that name this arm in tables, without eval.ntk (a column of its own)
  std::string json;           // ToJson(values)
  std::string label;
};

// One (arm, seed): where its training ends and what is measured of it.
struct Point {
  int arm = 0;
  int64_t seed = 0;
  int stage = 0;
  std::vector<int> evaluations;
};

struct Plan {
  std::vector<Arm> arms;
  std::vector<int64_t> seeds;
  std::vector<PlannedStage> stages;          // parents before children
  std::vector<PlannedEvaluation> evaluations;
  std::vector<Point> points;                 // every (arm, seed) exactly once
  int baseline_arm = 0;
  int64_t train_tokens_per_step = 0;         // of the first arm; for summaries
  std::string sha256;                        // of the whole plan in canonical form
};

// InvalidArgument: no arm is left, baseline not found, an arm's configuration does not fit together (says which arm), lengths
// not above 0, an axis twice. Arms that differ only in eval.ntk are one arm with both settings.
absl::StatusOr<Plan> MakePlan(const v1::SweepSpec& spec);

// Counts, sharing and costs, for `sweep plan`.
v1::PlanSummary Summarize(const v1::SweepSpec& spec, const Plan& plan);

// Tasks as they go to a worker (without checkpoints, which only the server knows).
v1::StageTask MakeStageTask(const v1::SweepSpec& spec, const PlannedStage& stage);
v1::EvaluationTask MakeEvaluationTask(const v1::SweepSpec& spec, const Plan& plan, const PlannedEvaluation& evaluation);

}  // namespace ablate
