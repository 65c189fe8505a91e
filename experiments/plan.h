// Planning: a sweep's arms, their stage tree and evaluations, with content keys. Pure; no I/O. Any thread.
//
// Arms: each of `arms` (or one without settings, where there are none) times the product of `axes`, less what `exclude`
// matches. Baseline and exclude rules match by value, defaults included: {attention.p: none} matches softmax.
//
// A state at step t is keyed by SHA-256 of this JSON, byte for byte (permanent: keys are stored in users' databases):
//   {"data":{"format":"text","sha256":"<64 hex>"},"device":"any","executor":"trainer","numerics":1,"seed":0,
//    "segments":[[{<canonical training configuration>},0,100],[{...},100,200]],"what":"state"}
// Segments start at step 0, adjacent equal ones merged; so where the planner cuts changes no key, and two arms or
// sweeps that need the same state share it. A state that is only made over after training, without a step, has a last
// segment from its step to the same step. `device` is requirements.device, "any" where the file states none;
// precision is a setting. An evaluation is keyed by {"eval":{<canonical eval
// settings>},"length":512,"split":"selection","state":"<key>","what":"evaluation"}. What cannot act is left out of its
// settings first: NTK at lengths up to T_train or without RoPE, a window as long as the text, an override that repeats
// what training used. So a cell that is the same by construction is computed once.
//
// Phases (docs/claims.md): a sweep that tunes, selects or claims has points of several phases. TUNING: every arm x
// learning rate x tuning seed, at 1x on the selection split; SELECTING (PLAIN, where nothing is selected): every arm x
// S1, what `evaluate` and `select` ask; CONFIRMING: baseline, fixed arms and every candidate x S2, what the claims ask,
// on their split. Until all learning rates are chosen only the TUNING points are there (`complete` is false). Planning
// again with more tuning results keeps every key and adds; match arms by json, not by index: tries come last.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/sweep_places.h"
#include "proto/resources.pb.h"

namespace ablate {

namespace v1 {
class PlanSummary;  // proto/coordinator.proto; planning itself needs no service messages
class TunedArm;
}  // namespace v1

struct PlannedStage {
  std::string key;
  int parent = -1;           // index in Plan::stages; -1: from scratch
  v1::Configuration config;  // canonical, training settings only
  int64_t seed = 0;
  int64_t from_step = 0, to_step = 0;  // equal: the parent's state made over, with the parameters of this configuration
  bool has_children = false;  // some planned stage continues from it: its optimiser state is needed
};

struct PlannedEvaluation {
  std::string key;
  int stage = 0;                  // index in Plan::stages: the state that is measured
  v1::Configuration eval_config;  // canonical `eval.*` settings
  int64_t length_tokens = 0;
  bool ntk = false;   // dynamic NTK acts here: on, and the length is above the training length
  std::string split;  // of a task with inputs of its own: the entry's name
  std::string task = "loss";
  int probe = -1;  // of a task: the index in SweepSpec.evaluate.probes
};

struct Arm {
  // The axis values that name this arm in tables: what its `arms` entry and the axes set, as given (a value may equal
  // the default), without eval.ntk (a column of its own). A switch is named with its step: "attention.variant@100",
  // "@end" after training, "@end+30" with so many further steps.
  v1::Configuration values;
  std::string json;  // ToJson(values)
  std::string label;
  v1::Phase phase = v1::PLAIN;  // TUNING: one learning rate of the arm `tunes`, in its tuning points only
  int tunes = -1;               // index of the arm whose rate this one tries
  double learning_rate = 0;     // TUNING: the one it tries; of a tuned arm the chosen one; else 0
  std::map<std::string, std::string> factors;  // ArmSpec.factors
  int64_t train_length = 0;                    // tokens: 1x
};

// What tuning has come to so far, by Arm::json. An arm without a rate is not tuned yet.
struct TuningResults {
  std::map<std::string, double> rates;               // chosen
  std::map<std::string, std::vector<double>> tries;  // asked for beyond TuningSpec.learning_rates
};
TuningResults TuningResultsOf(std::span<const v1::TunedArm> tuning);

// Plan::claims[i] says which arms SweepSpec.claims(i) is about: indices in Plan::arms.
struct PlannedClaim {
  int arm = -1;  // -1: the selected one
  int against = 0;
};

// One (arm, seed): where its training ends and what is measured of it.
struct Point {
  int arm = 0;
  int64_t seed = 0;
  int stage = 0;
  std::vector<int> evaluations;
  v1::Phase phase = v1::PLAIN;  // of all its evaluations; with reuse_seeds an (arm, seed) has a point for each phase
};

struct Plan {
  std::vector<Arm> arms;
  std::vector<int64_t> seeds;  // S1; none: a sweep that only confirms
  std::vector<int64_t> tuning_seeds, confirming_seeds;
  std::vector<PlannedStage> stages;  // parents before children
  std::vector<PlannedEvaluation> evaluations;
  std::vector<Point> points;  // every (arm, seed, phase) exactly once
  int baseline_arm = 0;
  std::vector<int> candidates;  // arms that `select` chooses from, in order; never the baseline
  std::vector<int> fixed_arms;  // confirmed beside the baseline and the selected arm: confirm.fixed and those that
                                // claims name, in order; never the baseline
  std::vector<PlannedClaim> claims;
  bool complete = true;               // false: learning rates are to be chosen first; only TUNING points are planned
  int64_t train_tokens_per_step = 0;  // of the first arm; for summaries
  // Of the whole plan in canonical form. With phases: of all that is declared, without what tuning finds, so that it
  // names the plan before the first lease and to the end; a change of any rule, claim, margin, reason or seed changes
  // it, the order of keys and arms does not.
  std::string sha256;
};

// The hash that names a sweep's data: the one file's, or, for several, SHA-256 over "sha256 bytes\n" of each in order.
// Empty when a file's hash is missing.
std::string CombinedDataSha256(const v1::DataRef& data);

// InvalidArgument: no arm is left, baseline not found or not one arm, an arm's configuration does not fit together
// (says which arm), two arms that are the same, an exclude rule that matches nothing, lengths not above 0 or longer
// than can be evaluated (CheckEvaluationLength), bf16 without requires.device cuda, an axis twice, a switch out of the
// training's steps or of what cannot be switched (model shape, train.steps, train.length), over 1,000,000 points or
// 3,000,000 jobs; data.sha256 missing (the caller fills it in first; the noop executor needs none). With `places` of
// the file, the message begins with file:line:column. Arms that differ only in eval.ntk are one arm with both settings.
// Stages and points are ordered by phase, by seed, then as in the file.
// Also what docs/claims.md refuses: tuning, selection, confirmation, claims, factors that do not fit each other or the
// arms.
absl::StatusOr<Plan> MakePlan(const v1::SweepSpec& spec, const SweepPlaces& places = {},
                              const TuningResults& tuned = {});

// Whether the sweep has phases at all.
bool HasPhases(const v1::SweepSpec& spec);

// Tokens of `length` for an arm whose 1x is `train_length`.
int64_t LengthTokens(const v1::LengthSpec& length, int64_t train_length);

// The index of the one arm that `selector` names, in a sweep whose SweepSpec.settings are `settings`. An arm fits that
// has the selector's values, defaults included ("attention.p@100": the switch as given). Of several the one is taken
// that is exactly `settings` with the selector's values; {} so names the arm that sets nothing. InvalidArgument: no arm
// fits, or several and none exactly (names them), an unknown axis, a value out of range, eval.ntk.
// TUNING arms are none of the arms.
absl::StatusOr<int> FindBaseline(const v1::Configuration& settings, std::span<const Arm> arms,
                                 const v1::Configuration& selector);
// The same for another arm; `what` stands in messages where FindBaseline has "baseline".
absl::StatusOr<int> FindArm(const v1::Configuration& settings, std::span<const Arm> arms,
                            const v1::Configuration& selector, const std::string& what);

// Counts, sharing and costs, for `sweep plan`. Steps saved: steps_without_sharing (one training an arm and seed) less
// steps. Stages and evaluations of an arm are counted over all seeds. evaluation_tokens: of loss and loss_targets,
// context included. peak_disk_bytes is an upper bound: weights (fp32) of every stage, optimiser state (twice that) of
// stages with children (keep all: of every stage). Of a task with a file, its bytes count as tokens.
v1::PlanSummary Summarize(const v1::SweepSpec& spec, const Plan& plan);

// Tasks as they go to a worker (without checkpoints, which only the server knows).
v1::StageTask MakeStageTask(const v1::SweepSpec& spec, const PlannedStage& stage);
v1::EvaluationTask MakeEvaluationTask(const v1::SweepSpec& spec, const Plan& plan, const PlannedEvaluation& evaluation);

}  // namespace ablate
