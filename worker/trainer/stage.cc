#include "worker/trainer/stage.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "proto/trainer.pb.h"
#include "worker/trainer/batch_reader.h"
#include "worker/trainer/checkpoint_store.h"
#include "worker/trainer/memory_plan.h"
#include "worker/trainer/train_config.h"
#include "worker/trainer/training_data.h"

namespace ablate {
namespace {

using Stop = TaskControl::Stop;

// Tokens per second over the last seconds.
class Throughput {
 public:
  explicit Throughput(const Clock& clock) : clock_(clock), mark_(clock.MonotonicMicros()) {}
  void Add(int64_t tokens) {
    tokens_ += tokens;
    const int64_t now = clock_.MonotonicMicros();
    if (rate_ > 0 && now - mark_ < 2'000'000) return;
    rate_ = static_cast<double>(tokens_) * 1e6 / static_cast<double>(std::max<int64_t>(1, now - mark_));
    tokens_ = 0;
    mark_ = now;
  }
  double rate() const { return rate_; }

 private:
  const Clock& clock_;
  int64_t mark_, tokens_ = 0;
  double rate_ = 0;
};

double Mean(const std::vector<double>& values, size_t last) {
  const size_t count = std::min(last, values.size());
  double sum = 0;
  for (size_t i = values.size() - count; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

class Stage {
 public:
  Stage(const v1::RunStage& request, DataSet* data, Backend* backend, Recompute recompute, const Clock& clock,
        TaskControl* control, v1::TaskResult* result)
      : request_(request),
        task_(request.task()),
        data_(data),
        backend_(backend),
        recompute_(recompute),
        clock_(clock),
        control_(control),
        result_(result),
        store_(request.checkpoint_dir(), task_.stage_key()),
        throughput_(clock) {}

  absl::StatusOr<StageOutcome> Run();

 private:
  enum class StepEnd { kDone, kDiverged, kStopped };

  absl::Status CheckRequest() const;
  absl::Status Start();
  absl::Status StartFrom(const OpenedState& opened);
  absl::StatusOr<StepEnd> Step(BatchReader* batches);
  absl::Status Save(bool end_state);
  void AddPoints(double loss, double norm, double learning_rate);
  void FillMetrics();

  const v1::RunStage& request_;
  const v1::StageTask& task_;
  DataSet* const data_;
  Backend* const backend_;
  const Recompute recompute_;
  const Clock& clock_;
  TaskControl* const control_;
  v1::TaskResult* const result_;
  CheckpointStore store_;
  Throughput throughput_;
  TrainConfig config_;
  int64_t scored_targets_ = 0;  // of a sample
  TrainState state_;
  std::unique_ptr<Model> model_;
  Stop stop_ = Stop::kNo;
  int64_t saved_step_ = -1;  // of the newest checkpoint of this attempt
};

absl::Status Stage::CheckRequest() const {
  if (task_.from_step() < 0 || task_.to_step() < task_.from_step()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stage from step ", task_.from_step(), " to step ", task_.to_step(), " is none"));
  }
  const bool has_start = !request_.start_weights_path().empty();
  if (has_start && (request_.start_step() < task_.from_step() || request_.start_step() > task_.to_step())) {
    return absl::InvalidArgumentError(absl::StrCat("a state at step ", request_.start_step(),
                                                   " cannot start a stage from step ", task_.from_step(), " to ",
                                                   task_.to_step()));
  }
  if (has_start && request_.start_optimizer_path().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state at step ", request_.start_step(),
                     " came without its optimiser state; training cannot go on from weights alone"));
  }
  if (!has_start && task_.from_step() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stage from step ", task_.from_step(), " needs its parent's state, and none came"));
  }
  if (request_.checkpoint_dir().empty()) return absl::InvalidArgumentError("no folder for checkpoints was named");
  return absl::OkStatus();
}

absl::Status Stage::StartFrom(const OpenedState& opened) {
  ABLATE_RETURN_IF_ERROR(LoadState(opened, static_cast<uint64_t>(task_.seed()), model_.get(), nullptr));
  const CheckpointHeader& header = opened.optimizer->header();
  state_.step = header.step;
  state_.samples = header.samples;
  state_.totals = header.totals;
  LOG(INFO) << "continues from step " << header.step << " of " << opened.weights->path();
  return absl::OkStatus();
}

absl::Status Stage::Start() {
  struct Candidate {
    CheckpointPaths paths;
    bool given;
  };
  std::vector<Candidate> candidates;
  if (!request_.start_weights_path().empty()) {
    candidates.push_back(
        {{request_.start_step(), request_.start_weights_path(), request_.start_optimizer_path()}, true});
  }
  ABLATE_ASSIGN_OR_RETURN(const std::vector<CheckpointPaths> stored, store_.Complete());
  for (const CheckpointPaths& paths : stored) {
    if (paths.step > task_.from_step() && paths.step <= task_.to_step()) candidates.push_back({paths, false});
  }
  // The newest first; at one step what the request names, since its hashes are known.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.paths.step > b.paths.step; });

  absl::Status last_error;
  for (const Candidate& candidate : candidates) {
    const int64_t step = candidate.paths.step;
    StateExpectation expected{
        .model = ModelText(config_.model), .data_sha256 = data_->sha256(), .seed = task_.seed(), .step = step};
    // Inside the stage the state was trained with this configuration; at its start, with the parent's.
    if (step > task_.from_step()) expected.config = config_.json;
    if (candidate.given && task_.start().step() == step) {
      expected.weights_sha256 = task_.start().weights().sha256();
      expected.optimizer_sha256 = task_.start().optimizer().sha256();
    }
    auto opened = OpenState(candidate.paths.weights, candidate.paths.optimizer, expected);
    if (opened.ok()) return StartFrom(*opened);
    // A sound file of something else was named on purpose: going on from another state would hide the mistake.
    if (candidate.given && opened.status().code() == absl::StatusCode::kInvalidArgument) return opened.status();
    LOG(WARNING) << "cannot start from step " << step << ": " << opened.status().message();
    last_error = opened.status();
  }
  if (task_.from_step() > 0) return WithContext(last_error, "no usable state to start from");
  if (!last_error.ok()) LOG(WARNING) << "no saved state is usable: starts again from step 0";
  return model_->InitWeights(static_cast<uint64_t>(task_.seed()));
}

absl::StatusOr<Stage::StepEnd> Stage::Step(BatchReader* batches) {
  const int T = config_.model.train_length, rows = config_.microbatch();
  const int64_t step_targets = config_.batch * scored_targets_, step_tokens = int64_t{config_.batch} * T;
  double loss_sum = 0;
  int64_t targets = 0;
  AttentionCounts counts;
  for (int part = 0; part < config_.accumulation; ++part) {
    stop_ = control_->ShouldStop();
    if (stop_ != Stop::kNo) {
      // A step half done is not part of any state.
      ABLATE_RETURN_IF_ERROR(model_->ZeroGradients());
      return StepEnd::kStopped;
    }
    ABLATE_ASSIGN_OR_RETURN(const Batch* batch, batches->Next());
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss,
                            model_->ForwardBackward(batch->tokens.data(), batch->targets.data(), rows, T,
                                                    1.0 / static_cast<double>(step_targets)));
    LOG_EVERY_T(INFO, 60) << "step " << state_.step + 1 << ": part " << part + 1 << " of " << config_.accumulation
                          << " done";
    loss_sum += loss.loss_sum;
    targets += loss.targets;
    counts.zero_rows += loss.counts.zero_rows;
    counts.uncontrasted_rows += loss.counts.uncontrasted_rows;
  }
  if (targets != step_targets) {
    return absl::InternalError(absl::StrCat("a step scored ", targets, " targets, not ", step_targets));
  }
  const double loss = loss_sum / static_cast<double>(step_targets);
  OptimizerParams optimizer = config_.optimizer;
  optimizer.learning_rate = config_.schedule.At(state_.step);
  // A loss that is not finite must not reach the weights, whatever the norm says.
  ABLATE_ASSIGN_OR_RETURN(const double norm, std::isfinite(loss) ? model_->AdamWStep(optimizer) : model_->GradNorm());

  ++state_.step;
  state_.samples += config_.batch;
  TrainTotals& totals = state_.totals;
  totals.tokens += step_tokens;
  totals.zero_rows += counts.zero_rows;
  totals.uncontrasted_rows += counts.uncontrasted_rows;
  // Written so that a NaN stays: it is what there is to say of a diverged run.
  if (!(norm <= totals.max_gradient_norm)) totals.max_gradient_norm = norm;
  totals.recent_losses.push_back(loss);
  if (totals.recent_losses.size() > TrainTotals::kRecentLosses)
    totals.recent_losses.erase(totals.recent_losses.begin());
  throughput_.Add(step_tokens);
  const bool diverged = !std::isfinite(loss) || !std::isfinite(norm);
  if (state_.step % kCurveInterval == 0 || state_.step == task_.to_step() || diverged) {
    AddPoints(loss, norm, optimizer.learning_rate);
  }
  return diverged ? StepEnd::kDiverged : StepEnd::kDone;
}

void Stage::AddPoints(double loss, double norm, double learning_rate) {
  const int64_t step = state_.step;
  const int64_t since = (step - 1) % kCurveInterval + 1;
  const bool finite = std::isfinite(loss);
  control_->Point("train_loss", step, finite ? Mean(state_.totals.recent_losses, static_cast<size_t>(since)) : loss);
  control_->Point("gradient_norm", step, norm);
  control_->Point("learning_rate", step, learning_rate);
}

absl::Status Stage::Save(bool end_state) {
  // The end state's optimiser is wanted only where a planned stage goes on from it.
  const bool with_optimizer = !end_state || task_.keep_optimizer();
  ABLATE_ASSIGN_OR_RETURN(const SavedState saved,
                          SaveState(model_.get(), state_, store_.PathsOf(state_.step), with_optimizer));
  saved_step_ = state_.step;
  control_->Checkpoint(saved, state_.step, end_state);
  if (end_state) {
    v1::CheckpointRef* ref = result_->mutable_end_state();
    ref->set_stage_key(task_.stage_key());
    ref->set_step(state_.step);
    ref->mutable_weights()->set_sha256(saved.weights.sha256);
    ref->mutable_weights()->set_bytes(saved.weights.bytes);
    if (with_optimizer) {
      ref->mutable_optimizer()->set_sha256(saved.optimizer.sha256);
      ref->mutable_optimizer()->set_bytes(saved.optimizer.bytes);
    }
  }
  return store_.KeepNewestTwo(state_.step);
}

void Stage::FillMetrics() {
  auto add = [&](const char* metric, double value) {
    v1::MetricValue* entry = result_->add_metrics();
    entry->set_metric(metric);
    entry->set_value(value);
  };
  const TrainTotals& totals = state_.totals;
  if (!totals.recent_losses.empty()) add("final_train_loss", Mean(totals.recent_losses, TrainTotals::kRecentLosses));
  add("max_gradient_norm", totals.max_gradient_norm);
  add("zero_rows", static_cast<double>(totals.zero_rows));
  add("uncontrasted_rows", static_cast<double>(totals.uncontrasted_rows));
  add("tokens", static_cast<double>(totals.tokens));
}

absl::StatusOr<StageOutcome> Stage::Run() {
  ABLATE_RETURN_IF_ERROR(CheckRequest());
  ABLATE_ASSIGN_OR_RETURN(config_, TrainConfigFrom(task_.config(), data_->vocabulary()));
  ABLATE_RETURN_IF_ERROR(CheckPrecision(config_, *backend_));
  const int T = config_.model.train_length;
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<TrainingData> samples,
                          MakeTrainingData(data_, config_, static_cast<uint64_t>(task_.seed())));
  scored_targets_ = samples->scored_targets();
  ABLATE_RETURN_IF_ERROR(store_.Prepare());
  ABLATE_ASSIGN_OR_RETURN(const Recompute recompute,
                          PlanTraining(backend_, config_.model, config_.batch, config_.accumulation, T, recompute_));
  ABLATE_ASSIGN_OR_RETURN(model_, Model::Create(backend_, config_.model, recompute));
  state_ = {.config = config_.json, .data_sha256 = data_->sha256(), .seed = task_.seed()};
  ABLATE_RETURN_IF_ERROR(Start());
  result_->set_resumed_from_step(state_.step);
  if (state_.step < task_.to_step()) ABLATE_RETURN_IF_ERROR(model_->ReserveTraining(config_.microbatch(), T));
  BatchReader batches(
      [&samples](uint64_t sample, int32_t* tokens, int32_t* targets) { return samples->Fill(sample, tokens, targets); },
      config_.microbatch(), T, state_.samples, state_.samples + (task_.to_step() - state_.step) * config_.batch);

  int64_t saved_at = clock_.MonotonicMicros();
  const int64_t start_step = state_.step;
  const auto interval = static_cast<int64_t>(request_.checkpoint_seconds() * 1e6);
  control_->Progress(state_.step, 0);
  while (state_.step < task_.to_step()) {
    ABLATE_ASSIGN_OR_RETURN(const StepEnd end, Step(&batches));
    if (end == StepEnd::kStopped) {
      if (stop_ == Stop::kWithCheckpoint && state_.step > start_step && state_.step != saved_step_) {
        ABLATE_RETURN_IF_ERROR(Save(false));
      }
      return StageOutcome{.stopped_at = state_.step};
    }
    control_->Progress(state_.step, throughput_.rate());
    if (end == StepEnd::kDiverged) {
      result_->set_outcome(v1::DIVERGED);
      result_->set_diverged_at_step(state_.step);
      FillMetrics();
      return StageOutcome{};
    }
    const int64_t now = clock_.MonotonicMicros();
    if (interval > 0 && now - saved_at >= interval && state_.step < task_.to_step()) {
      ABLATE_RETURN_IF_ERROR(Save(false));
      saved_at = clock_.MonotonicMicros();
    }
  }
  ABLATE_RETURN_IF_ERROR(Save(true));
  result_->set_outcome(v1::COMPLETED);
  FillMetrics();
  return StageOutcome{};
}

}  // namespace

absl::StatusOr<StageOutcome> RunStage(const v1::RunStage& request, DataSet* data, Backend* backend, Recompute recompute,
                                      const Clock& clock, TaskControl* control, v1::TaskResult* result) {
  return Stage(request, data, backend, recompute, clock, control, result).Run();
}

}  // namespace ablate
