// For tests of evaluations and probes: a tiny model trained on a generated text, measured as a request says.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "worker/trainer/evaluation.h"
#include "worker/trainer/probes/probe.h"
#include "worker/trainer/stage.h"
#include "worker/trainer/testing.h"

namespace ablate {

class NoControl : public TaskControl {
 public:
  Stop ShouldStop() override { return stop && asked_++ > 0 ? Stop::kYes : Stop::kNo; }
  void Progress(int64_t, double) override {}
  void Point(std::string_view, int64_t, double) override {}
  void Checkpoint(const SavedState& saved, int64_t, bool) override { last = saved; }
  SavedState last;
  bool stop = false;

 private:
  int asked_ = 0;
};

// What a probe is given where a test stands in for the model.
class ProbeWithoutModel {
 protected:
  ProbeContext Context(int length, uint64_t seed = 0) {
    return {.model = nullptr,
            .task = task_,
            .train = train_,
            .eval = eval_,
            .data = nullptr,
            .seed = seed,
            .length = length,
            .control = &control_};
  }
  const ByteTokenizer bytes_;
  NoControl control_;
  v1::EvaluationTask task_;
  TrainConfig train_;
  EvalConfig eval_;
};

class EvaluationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = NewCpuBackend(1);
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto data = DataSet::Open(data_.ref, {data_.path});
    ASSERT_TRUE(data.ok()) << data.status();
    set_ = *std::move(data);
    evaluator_ = std::make_unique<Evaluator>(backend_.get());
    weights_ = Train(SmallConfig(), "softmax");
  }
  v1::RunEvaluation At(int64_t length) { return EvaluationRequest(data_, SmallConfig(), length, weights_, 30); }
  // Trains 30 steps; gives the path of the weights.
  std::string Train(const v1::Configuration& config, const std::string& name, int64_t steps = 30) {
    NoControl control;
    FakeClock clock;
    v1::TaskResult result;
    const auto outcome = RunStage(StageRequest(data_, config, 0, steps, JoinPath(dir_.path(), name), name), set_.get(),
                                  backend_.get(), Recompute::kAuto, clock, &control, &result);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return control.last.paths.weights;
  }
  absl::Status Run(const v1::RunEvaluation& request, v1::TaskResult* result) {
    NoControl control;
    return evaluator_->Run(request, set_.get(), &control, result).status();
  }
  v1::TaskResult Measure(const v1::RunEvaluation& request) {
    v1::TaskResult result;
    const absl::Status status = Run(request, &result);
    EXPECT_TRUE(status.ok()) << status;
    return result;
  }
  std::string Message(const v1::RunEvaluation& request, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    v1::TaskResult result;
    const absl::Status status = Run(request, &result);
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  static v1::RunEvaluation With(v1::RunEvaluation request, const std::string& axis, const char* text) {
    Set(request.mutable_task()->mutable_eval_config(), axis, text);
    return request;
  }
  static v1::RunEvaluation With(v1::RunEvaluation request, const std::string& axis, double number) {
    Set(request.mutable_task()->mutable_eval_config(), axis, number);
    return request;
  }

  TempDir dir_;
  TextData data_{dir_.path()};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DataSet> set_;
  std::unique_ptr<Evaluator> evaluator_;
  std::string weights_;
};

}  // namespace ablate
