#include "worker/trainer/evaluation.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "experiments/axes.h"
#include "proto/trainer.pb.h"
#include "worker/trainer/train_config.h"

namespace ablate {
namespace {

struct Score {
  double loss_sum = 0;
  int64_t targets = 0;
  AttentionCounts counts;
  bool stopped = false;
};

// Windows of one length through the model, as many at once as batch_tokens allows, losses summed in window order.
absl::StatusOr<Score> ScoreWindows(const std::vector<Window>& windows, int length, const TokenData& data,
                                   const EvalConfig& config, Model* model, TaskControl* control) {
  const size_t rows_at_once =
      static_cast<size_t>(std::clamp<int64_t>(config.batch_tokens / length, 1, static_cast<int64_t>(windows.size())));
  const auto L = static_cast<size_t>(length);
  std::vector<int32_t> tokens(rows_at_once * L), targets(rows_at_once * L);
  std::vector<float> losses(rows_at_once * L);
  Score score;
  for (size_t first = 0; first < windows.size(); first += rows_at_once) {
    if (control->ShouldStop() != TaskControl::Stop::kNo) {
      score.stopped = true;
      return score;
    }
    const size_t rows = std::min(rows_at_once, windows.size() - first);
    for (size_t row = 0; row < rows; ++row) {
      const Window& window = windows[first + row];
      int32_t* const row_targets = &targets[row * L];
      ABLATE_RETURN_IF_ERROR(data.Read(window.begin, length, &tokens[row * L]));
      ABLATE_RETURN_IF_ERROR(data.Read(window.begin + 1, length, row_targets));
      std::fill(row_targets, row_targets + window.first_scored, -1);
      std::fill(row_targets + window.end_scored, row_targets + length, -1);
    }
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss, model->Evaluate(tokens.data(), targets.data(), static_cast<int>(rows),
                                                                  length, config.options, losses.data()));
    LOG_EVERY_T(INFO, 60) << first + rows << " of " << windows.size() << " windows of " << length << " tokens done";
    for (size_t i = 0; i < rows * L; ++i) {
      if (targets[i] < 0) continue;
      score.loss_sum += losses[i];
      ++score.targets;
    }
    score.counts.zero_rows += loss.counts.zero_rows;
    score.counts.uncontrasted_rows += loss.counts.uncontrasted_rows;
    // A sign of life: the worker tells a long evaluation from a hanging one by it.
    control->Progress(static_cast<int64_t>(first + rows), 0);
  }
  return score;
}

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
  loaded_.clear();
}

absl::Status Evaluator::Load(const v1::RunEvaluation& request, const DataSet& data) {
  const v1::EvaluationTask& task = request.task();
  ABLATE_ASSIGN_OR_RETURN(const TrainConfig config, TrainConfigFrom(task.config(), data.tokens().vocabulary()));
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

absl::StatusOr<bool> Evaluator::Run(const v1::RunEvaluation& request, DataSet* data, TaskControl* control,
                                    v1::TaskResult* result) {
  const v1::EvaluationTask& task = request.task();
  const auto split = ParseSplit(task.split());
  if (!split) {
    return absl::InvalidArgumentError(
        absl::StrCat("split \"", task.split(), "\" is unknown; expected selection or confirmation"));
  }
  if (request.weights_path().empty()) return absl::InvalidArgumentError("an evaluation needs weights, and none came");
  ABLATE_ASSIGN_OR_RETURN(const TrainConfig train, TrainConfigFrom(task.config(), data->tokens().vocabulary()));
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

  ABLATE_ASSIGN_OR_RETURN(const Score targets,
                          ScoreWindows(target_windows, length, data->tokens(), eval, model_.get(), control));
  if (targets.stopped) return false;
  Score losses;
  if (!loss_windows.empty()) {
    ABLATE_ASSIGN_OR_RETURN(losses, ScoreWindows(loss_windows, length, data->tokens(), eval, model_.get(), control));
    if (losses.stopped) return false;
  }
  auto add = [&](const char* metric, double value) {
    v1::MetricValue* entry = result->add_metrics();
    entry->set_metric(metric);
    entry->set_value(value);
  };
  const double loss_targets = targets.loss_sum / static_cast<double>(targets.targets);
  bool finite = std::isfinite(loss_targets);
  if (losses.targets > 0) {
    const double loss = losses.loss_sum / static_cast<double>(losses.targets);
    finite = finite && std::isfinite(loss);
    add("loss", loss);
    add("loss_tokens", static_cast<double>(losses.targets));
  }
  add("loss_targets", loss_targets);
  add("target_tokens", static_cast<double>(targets.targets));
  add("zero_rows", static_cast<double>(targets.counts.zero_rows + losses.counts.zero_rows));
  add("uncontrasted_rows", static_cast<double>(targets.counts.uncontrasted_rows + losses.counts.uncontrasted_rows));
  result->set_outcome(finite ? v1::COMPLETED : v1::DIVERGED);
  if (!finite) result->set_diverged_at_step(task.state().step());
  return true;
}

}  // namespace ablate
