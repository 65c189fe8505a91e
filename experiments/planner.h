// The planner's inner state, shared by plan*.cc alone: plan.cc has the arms and the stage tree, plan_measure.cc what is
// measured of them, plan_phases.cc tuning, selection and confirmation. Single thread; one object makes one plan.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/evaluation_key.h"
#include "experiments/plan.h"

namespace ablate {

void AppendSettings(const v1::Configuration& from, v1::Configuration* to);
void AppendSetting(const std::string& axis, const v1::Value& value, v1::Configuration* to);
void DropSetting(std::string_view axis, v1::Configuration* config);

class Planner {
 public:
  Planner(const v1::SweepSpec& spec, const SweepPlaces& places, const TuningResults& tuned)
      : spec_(spec), places_(places), tuned_(tuned) {}
  absl::StatusOr<Plan> Make();

 private:
  // One training configuration, with what planning asks of it.
  struct TrainConfig {
    v1::Configuration config;
    std::string json;
    int64_t steps = 0, length = 0;
    std::string position;
  };

  // A training history up to and with one configuration, and where it starts from. Arms with the same history share it.
  struct Node {
    int parent = -1;
    int64_t from = 0;  // the parent's step
    int config = 0;
  };

  // One evaluation of an arm, whatever the seed.
  struct Measurement {
    v1::Configuration eval_config;
    EvaluationKeyText key;
    int64_t length = 0;
    bool ntk = false;
    std::string split;
    int probe = -1;  // index in SweepSpec.evaluate.probes; -1: the loss
  };

  // A cell that a phase asks for.
  struct Asked {
    v1::LengthSpec length;
    std::string split;
    bool ntk = false;
    SweepPlaces::Place place;
    std::string what;  // for messages: "evaluate.lengths"
    int probe = -1;
  };

  struct ArmDraft {
    int node = 0;
    int64_t end = 0;
    int spec_arm = 0;        // index in SweepSpec.arms
    v1::Configuration full;  // settings, arm and axes, as given; kept for arms that are tuned
    v1::Configuration eval;  // canonical, without eval.ntk
    bool ntk_off = false, ntk_dynamic = false;
    std::vector<int> measurements;  // of the arm's own phase: TUNING, or S1
    std::vector<int> confirming;
  };

  // Seeds that have the same points.
  struct Entry {
    int arm = 0;
    v1::Phase phase = v1::PLAIN;
    const std::vector<int>* measurements = nullptr;
  };
  struct Group {
    std::vector<int64_t> seeds;
    std::vector<Entry> entries;
    std::vector<std::set<int64_t>> cuts;  // by node: steps at which a path ends or leaves it
    std::vector<int> first_stage;         // by node, within one seed's stages
    int64_t stages = 0, evaluations = 0;  // of one seed
  };

  // plan.cc
  absl::Status AddArm(int spec_arm, const v1::ArmSpec& arm, const v1::Configuration& axes);
  absl::Status AddArms();
  // Where `full` with the arm's switches ends: node and step. `rate`: 0, or the learning rate in place of the given
  // one.
  absl::StatusOr<std::pair<int, int64_t>> AddHistory(const v1::Configuration& full, const v1::ArmSpec& arm, double rate,
                                                     const v1::Configuration& eval_with_ntk, const std::string& label);
  absl::StatusOr<int> InternConfig(const v1::Configuration& canonical, const v1::Configuration& eval,
                                   const std::string& label);
  int InternNode(int parent, int64_t from, int config, bool trains);
  std::string KeyHead() const;
  std::string SegmentsJson(int node, int64_t end) const;
  void CountGroup(Group* group) const;
  void EmitStages(const Group& group, int64_t seed);
  void EmitGroup(const Group& group);
  void HashPlan();

  // plan_measure.cc
  std::vector<Asked> AskedByEvaluate(const ArmDraft& draft) const;
  absl::Status Measure(int arm, const v1::Configuration& eval, const std::vector<Asked>& asked,
                       std::vector<int>* measurements);
  int InternMeasurement(Measurement measurement);
  // The settings of one task's evaluations (-1: of the loss) out of what the arm sets.
  v1::Configuration SettingsOf(int probe, const v1::Configuration& trained, const v1::Configuration& eval) const;
  // InvalidArgument, at `place`: an evaluation of the arm with these `eval` settings will not have the metric.
  absl::Status CheckMeasured(int arm, const v1::Configuration& eval, const std::string& metric,
                             const v1::LengthSpec& length, const std::string& place, const std::string& who) const;

  // plan_phases.cc
  const v1::ArmSpec& SpecArm(const ArmDraft& draft) const;
  absl::StatusOr<int> FindClaimArm(const v1::Configuration& selector, const std::string& what,
                                   const std::string& place);
  absl::Status ResolveClaims();
  absl::Status CheckLengths(int arm);
  absl::Status MeasurePhases();
  absl::Status AddTuningArms();
  absl::Status AddTry(int arm, double rate);
  absl::Status UseTunedRates();
  std::vector<Group> Groups();
  void HashPhases();

  const v1::SweepSpec& spec_;
  const SweepPlaces& places_;
  const TuningResults& tuned_;
  Plan plan_;
  std::vector<TrainConfig> configs_;
  std::unordered_map<std::string, int> config_by_json_;
  std::set<std::pair<int, std::string>> checked_;
  std::vector<Node> nodes_;
  std::map<std::tuple<int, int64_t, int>, int> node_by_history_;
  std::vector<ArmDraft> drafts_;  // [i] of Plan::arms[i]
  std::unordered_map<std::string, int> arm_by_identity_;
  std::vector<Measurement> measurements_;
  std::unordered_map<std::string, int> measurement_by_key_;
  std::unordered_map<int64_t, int> evaluation_of_;  // stage << 32 | measurement
  std::vector<int64_t> rule_hits_;
};

}  // namespace ablate
