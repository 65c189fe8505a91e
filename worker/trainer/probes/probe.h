// The frame of the probes: what is measured of a trained state beside its loss, one function a task, in one table.
// evaluation.h loads the state and dispatches by `eval.task`; a probe must not know the pipe, the server or how weights
// were read. Definitions, sources and costs: docs/evaluations.md. Thread rule: one thread, the backend's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/trainer/data_set.h"
#include "worker/trainer/memory_plan.h"
#include "worker/trainer/model.h"
#include "worker/trainer/task.h"
#include "worker/trainer/tokenizer.h"
#include "worker/trainer/train_config.h"

namespace ablate {

namespace v1 {
class EvaluationTask;
class TaskResult;
}  // namespace v1

struct ProbeContext {
  Model* model;  // the state, loaded; nothing is reserved yet
  const v1::EvaluationTask& task;
  const TrainConfig& train;
  // Position options (the RoPE base is that of `length`), attention overrides, and the task's own options.
  const EvalConfig& eval;
  DataSet* data;
  // Of the run: trials are drawn by (seed, length, index), so that arms are compared by seed on the same trials.
  uint64_t seed;
  // Tokens of a sequence, at most; of a task whose inputs have lengths of their own it is train.length.
  int length;
  // What stands in the place of the split: the task's name, or the text's split of a task on the data's own text.
  std::string name;
  // Local copies of task.files and task.tokenizer, in their order.
  std::vector<std::string> file_paths, tokenizer_paths;
  std::string output_dir;  // of WriteArtifact
  TaskControl* control;
  // To be called once before the model's first pass: whether passes of at most `sequences` sequences of `length` tokens
  // fit into the device's memory, as many at once as eval.SequencesAtOnce says. ResourceExhausted:
  // they do not; says what to do.
  std::function<absl::Status(EvaluationPass pass, int64_t sequences, int length)> reserve;
};

// Fills outcome and metrics of the result; true when done, false when stopped on request (the result is not used then).
// A loss that is not finite: outcome DIVERGED, with the metrics as they came out (SetOutcome).
// InvalidArgument: the task's inputs do not fit the state, the data or the length: says what, where and what to do.
// NotFound, DataLoss, Unavailable: a file. ResourceExhausted: memory. Internal: device fault.
using Probe = absl::StatusOr<bool> (*)(const ProbeContext& context, v1::TaskResult* result);

struct ProbeTask {
  std::string_view name;  // a value of eval.task
  Probe run;
};
// Every task but `loss`, which is evaluation.h's.
const std::vector<ProbeTask>& ProbeTasks();
// nullptr: none of that name.
Probe FindProbe(std::string_view task);

absl::StatusOr<bool> RunMqar(const ProbeContext& context, v1::TaskResult* result);
absl::StatusOr<bool> RunPasskey(const ProbeContext& context, v1::TaskResult* result);
absl::StatusOr<bool> RunAttention(const ProbeContext& context, v1::TaskResult* result);
absl::StatusOr<bool> RunAttentionMap(const ProbeContext& context, v1::TaskResult* result);
absl::StatusOr<bool> RunMultipleChoice(const ProbeContext& context, v1::TaskResult* result);
absl::StatusOr<bool> RunSummaries(const ProbeContext& context, v1::TaskResult* result);

// --- what probes share ---

void AddMetric(v1::TaskResult* result, std::string_view metric, double value);
void SetOutcome(const ProbeContext& context, bool finite, v1::TaskResult* result);
// Of the data that the model was trained on. InvalidArgument as OpenTokenizer, with the task's name.
absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const ProbeContext& context);
// The task's only file, read whole. InvalidArgument: none or several came.
absl::StatusOr<std::string> OnlyFile(const ProbeContext& context);
// Writes output_dir/name and names it in result->artifacts with its SHA-256 and bytes. `name` is unique in the result.
// InvalidArgument: no output directory came. Unavailable and others: the file.
absl::Status WriteArtifact(const ProbeContext& context, const std::string& name, const std::string& media_type,
                           std::string_view content, v1::TaskResult* result);

}  // namespace ablate
