#include "worker/trainer/evaluation.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "experiments/axes.h"
#include "proto/trainer.pb.h"
#include "worker/trainer/probes/probe.h"
#include "worker/trainer/scoring.h"
#include "worker/trainer/train_config.h"

namespace ablate {
namespace {

// What makes a file the very same one: where it lies, which inode, and when and how long it was written.
absl::StatusOr<std::string> Identity(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return absl::NotFoundError(absl::StrCat("no weights at ", path));
  return absl::StrCat(path, "|", info.st_dev, "|", info.st_ino, "|", info.st_size, "|", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec);
}

}  // namespace

void Evaluator::Unload() {
  model_.reset();
  memory_planned_ = 0;
  loaded_.clear();
}

absl::Status Evaluator::Load(const v1::RunEvaluation& request, const DataSet& data) {
  const v1::EvaluationTask& task = request.task();
  ABLATE_ASSIGN_OR_RETURN(const TrainConfig config, TrainConfigFrom(task.config(), data.vocabulary()));
  ABLATE_ASSIGN_OR_RETURN(std::string identity, Identity(request.weights_path()));
  absl::StrAppend(&identity, "|", config.json, "|", data.sha256(), "|", task.seed(), "|", task.state().step(), "|",
                  task.state().weights().sha256());
  if (model_ != nullptr && identity == loaded_) return absl::OkStatus();
  Unload();
  const StateExpectation expected{.model = ModelText(config.model),
                                  .data_sha256 = data.sha256(),
                                  .seed = task.seed(),
                                  .step = task.has_state() ? task.state().step() : -1,
                                  .config = config.json,
                                  .weights_sha256 = task.state().weights().sha256()};
  ABLATE_RETURN_IF_ERROR(CheckPrecision(config, *backend_));
  ABLATE_ASSIGN_OR_RETURN(const OpenedState opened, OpenState(request.weights_path(), "", expected));
  ABLATE_ASSIGN_OR_RETURN(auto model, Model::Create(backend_, config.model));
  std::vector<std::string> changes;
  ABLATE_RETURN_IF_ERROR(LoadState(opened, static_cast<uint64_t>(task.seed()), model.get(), &changes));
  ++loads_;
  // A measured state must be the trained one; initial values have no place in it.
  if (!changes.empty())
    return absl::InvalidArgumentError(absl::StrCat("checkpoint ", request.weights_path(), ": ", changes.front()));
  model_ = std::move(model);
  loaded_ = std::move(identity);
  return absl::OkStatus();
}

absl::Status Evaluator::CheckMemory(const ModelConfig& model, const EvalConfig& eval, EvaluationPass pass, int length,
                                    int64_t windows) {
  const int rows = eval.SequencesAtOnce(windows, length);
  if (pass != planned_pass_) {
    model_->ReleaseEvaluationArrays();
    memory_planned_ = 0;
    planned_pass_ = pass;
  }
  ABLATE_ASSIGN_OR_RETURN(const MemoryNeed need, EvaluationNeed(*backend_, model, pass, rows, length, eval.options));
  // What an evaluation took, the loaded model keeps for the next.
  if (need.total() <= memory_planned_) return absl::OkStatus();
  ABLATE_RETURN_IF_ERROR(PlanEvaluation(backend_, model, pass, rows, length, eval.options,
                                        std::max(memory_planned_, model_->allocated_bytes())));
  memory_planned_ = need.total();
  return absl::OkStatus();
}

absl::StatusOr<bool> Evaluator::Run(const v1::RunEvaluation& request, DataSet* data, TaskControl* control,
                                    v1::TaskResult* result) {
  const v1::EvaluationTask& task = request.task();
  if (request.weights_path().empty()) return absl::InvalidArgumentError("an evaluation needs weights, and none came");
  ABLATE_ASSIGN_OR_RETURN(const TrainConfig train, TrainConfigFrom(task.config(), data->vocabulary()));
  ABLATE_RETURN_IF_ERROR(CheckConfiguration(task.config(), task.eval_config()));
  if (ConfigView(task.config(), task.eval_config()).Text("eval.task") == "loss") {
    return MeasureLosses(request, train, data, control, result);
  }
  ABLATE_RETURN_IF_ERROR(CheckEvaluationLength(ConfigView(task.config()), task.length_tokens()));
  ABLATE_ASSIGN_OR_RETURN(const EvalConfig eval,
                          EvalConfigFrom(task.config(), task.eval_config(), task.length_tokens()));
  return RunProbe(request, train, eval, data, control, result);
}

absl::StatusOr<bool> Evaluator::RunProbe(const v1::RunEvaluation& request, const TrainConfig& train,
                                         const EvalConfig& eval, DataSet* data, TaskControl* control,
                                         v1::TaskResult* result) {
  const v1::EvaluationTask& task = request.task();
  const Probe probe = FindProbe(eval.task);
  if (probe == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("eval.task ", eval.task, " is none that this build measures"));
  }
  if (data->made() != (eval.task == "mqar")) {
    return absl::InvalidArgumentError(
        data->made()
            ? absl::StrCat("task ", eval.task, " needs a model of text; of data of format mqar, measure task mqar")
            : "task mqar needs a model that was trained on data of format mqar");
  }
  if (request.file_paths_size() != task.files_size() || request.tokenizer_paths_size() != task.tokenizer_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task ", eval.task, " has ", task.files_size(), " files and ", task.tokenizer_size(), " of a tokenizer, but ",
        request.file_paths_size(), " and ", request.tokenizer_paths_size(), " paths came"));
  }
  ABLATE_RETURN_IF_ERROR(Load(request, *data));
  const ProbeContext context{.model = model_.get(),
                             .task = task,
                             .train = train,
                             .eval = eval,
                             .data = data,
                             .seed = static_cast<uint64_t>(task.seed()),
                             .length = static_cast<int>(task.length_tokens()),
                             .name = task.split(),
                             .file_paths = {request.file_paths().begin(), request.file_paths().end()},
                             .tokenizer_paths = {request.tokenizer_paths().begin(), request.tokenizer_paths().end()},
                             .output_dir = request.output_dir(),
                             .control = control,
                             .reserve = [&](EvaluationPass pass, int64_t sequences, int length) {
                               return CheckMemory(train.model, eval, pass, length, sequences);
                             }};
  return probe(context, result);
}

absl::StatusOr<bool> Evaluator::MeasureLosses(const v1::RunEvaluation& request, const TrainConfig& train, DataSet* data,
                                              TaskControl* control, v1::TaskResult* result) {
  const v1::EvaluationTask& task = request.task();
  const auto split = ParseSplit(task.split());
  if (!split) {
    return absl::InvalidArgumentError(
        absl::StrCat("split \"", task.split(), "\" is unknown; expected selection or confirmation"));
  }
  const int T = train.model.train_length;
  ABLATE_ASSIGN_OR_RETURN(const DataSplits splits, data->Splits(T));
  ABLATE_ASSIGN_OR_RETURN(const TargetSpans* spans, data->Spans(T, *split));
  // Above it the windows refuse too, but in 64 bits the message can say which length it was.
  static_assert(kLongestEvaluation == kMaxLengthMultiple);
  ABLATE_RETURN_IF_ERROR(CheckEvaluationLength(ConfigView(task.config()), task.length_tokens()));
  const int length = static_cast<int>(task.length_tokens());
  ABLATE_ASSIGN_OR_RETURN(const EvalConfig eval, EvalConfigFrom(task.config(), task.eval_config(), length));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<Window> target_windows, TargetWindows(*spans, length, eval.target_spans));
  std::vector<Window> loss_windows;
  if (eval.loss_tokens > 0) {
    ABLATE_ASSIGN_OR_RETURN(loss_windows, LossWindows(splits.of(*split), T, length, eval.loss_tokens));
  }
  ABLATE_RETURN_IF_ERROR(Load(request, *data));
  ABLATE_RETURN_IF_ERROR(CheckMemory(train.model, eval, EvaluationPass::kLosses, length,
                                     static_cast<int64_t>(std::max(target_windows.size(), loss_windows.size()))));

  ABLATE_ASSIGN_OR_RETURN(const Score targets,
                          ScoreWindows(target_windows, length, data->tokens(), eval, model_.get(), control));
  if (targets.stopped) return false;
  Score windowed;
  const bool measure_gain = eval.gain && length > T && eval.options.window == 0;
  if (measure_gain) {
    EvalConfig config = eval;
    config.options.window = T;
    ABLATE_ASSIGN_OR_RETURN(windowed,
                            ScoreWindows(target_windows, length, data->tokens(), config, model_.get(), control));
    if (windowed.stopped) return false;
  }
  Score losses;
  if (!loss_windows.empty()) {
    ABLATE_ASSIGN_OR_RETURN(losses, ScoreWindows(loss_windows, length, data->tokens(), eval, model_.get(), control));
    if (losses.stopped) return false;
  }
  bool finite = true;
  auto add = [&](const std::string& metric, double value) {
    v1::MetricValue* entry = result->add_metrics();
    entry->set_metric(metric);
    entry->set_value(value);
  };
  auto add_loss = [&](const std::string& metric, double value) {
    finite = finite && std::isfinite(value);
    add(metric, value);
  };
  int64_t zero_rows = 0, uncontrasted_rows = 0;
  for (const Score* score : std::initializer_list<const Score*>{&targets, &windowed, &losses}) {
    zero_rows += score->counts.zero_rows;
    uncontrasted_rows += score->counts.uncontrasted_rows;
  }
  if (losses.all.targets > 0) {
    add_loss("loss", losses.all.mean());
    add("loss_tokens", static_cast<double>(losses.all.targets));
    for (size_t bin = 0; bin < kPositionBins.size(); ++bin) {
      if (losses.bins[bin].targets == 0) continue;
      add_loss(absl::StrCat("loss_by_position.", std::string(kPositionBins[bin].name)), losses.bins[bin].mean());
    }
  }
  add_loss("loss_targets", targets.all.mean());
  add("target_tokens", static_cast<double>(targets.all.targets));
  if (targets.bytes > 0) {
    const double per_byte = targets.all.loss_sum / static_cast<double>(targets.bytes);
    add_loss("loss_per_byte", per_byte);
    add_loss("bits_per_byte", per_byte / std::numbers::ln2);
  }
  if (measure_gain) {
    add_loss("loss_targets_windowed", windowed.all.mean());
    add_loss("gain", windowed.all.mean() - targets.all.mean());
  }
  add("zero_rows", static_cast<double>(zero_rows));
  add("uncontrasted_rows", static_cast<double>(uncontrasted_rows));
  for (const auto& [document, part] : targets.documents) {
    v1::DocumentLoss* entry = result->add_documents();
    entry->set_document(document);
    entry->set_targets(static_cast<int32_t>(part.targets));
    entry->set_loss_sum(part.loss_sum);
  }
  result->set_outcome(finite ? v1::COMPLETED : v1::DIVERGED);
  if (!finite) result->set_diverged_at_step(task.state().step());
  return true;
}

}  // namespace ablate
