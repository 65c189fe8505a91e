// One trained state measured at one evaluation configuration, split and length: its losses, and whatever else
// `eval.task` names (probes/probe.h). Must not know the pipe or the server. Memory is linear in the length. Thread
// rule: one thread, the backend's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/trainer/data_set.h"
#include "worker/trainer/memory_plan.h"
#include "worker/trainer/model.h"
#include "worker/trainer/task.h"

namespace ablate {

namespace v1 {
class RunEvaluation;
class TaskResult;
}  // namespace v1

struct EvalConfig;
struct TrainConfig;

class Evaluator {
 public:
  explicit Evaluator(Backend* backend) : backend_(backend) {}

  // Fills outcome and metrics of `result`; true when done, false when stopped on request. Of the task `loss`:
  //   loss: mean over all positions of consecutive windows (absent with eval.loss_tokens 0), and loss_by_position.*,
  //   the same within bins of positions (scoring.h; those that have targets); loss_targets: mean over the target spans;
  //   loss_tokens, target_tokens: how many targets each scored; loss_per_byte, bits_per_byte: the target spans' loss
  //   per byte of their text (nats, bits); with eval.gain and above T_train loss_targets_windowed: loss_targets with
  //   every position attending to the last T_train keys only, and gain: it less loss_targets; zero_rows,
  //   uncontrasted_rows: attention rows of all passes.
  // result.documents: loss_targets by document of the split. Metrics of other tasks: docs/evaluations.md.
  // A loss that is not finite: outcome DIVERGED, with the metrics as they came out.
  // The model stays loaded; the next call with the very same file, model and configuration does not read it again.
  // Errors: InvalidArgument: the configuration, split or length does not fit, or the file is of another state (says
  // how); NotFound, DataLoss, Unavailable: the file; ResourceExhausted: memory; Internal: device fault.
  absl::StatusOr<bool> Run(const v1::RunEvaluation& request, DataSet* data, TaskControl* control,
                           v1::TaskResult* result);

  // Gives back the model's memory.
  void Unload();
  // Times that weights were read from a file.
  int64_t loads() const { return loads_; }

 private:
  absl::StatusOr<bool> MeasureLosses(const v1::RunEvaluation& request, const TrainConfig& train, DataSet* data,
                                     TaskControl* control, v1::TaskResult* result);
  absl::StatusOr<bool> RunProbe(const v1::RunEvaluation& request, const TrainConfig& train, const EvalConfig& eval,
                                DataSet* data, TaskControl* control, v1::TaskResult* result);
  absl::Status Load(const v1::RunEvaluation& request, const DataSet& data);
  // Whether batches of the model that is loaded fit into the device's memory.
  absl::Status CheckMemory(const ModelConfig& model, const EvalConfig& eval, EvaluationPass pass, int length,
                           int64_t windows);

  Backend* const backend_;
  std::unique_ptr<Model> model_;
  EvaluationPass planned_pass_ = EvaluationPass::kLosses;
  int64_t memory_planned_ = 0;  // the most that passes of this kind of model_ were granted
  std::string loaded_;          // what the model holds: file identity and what was checked of it
  int64_t loads_ = 0;
};

}  // namespace ablate
