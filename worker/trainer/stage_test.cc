// Training stages on the real CPU backend with a tiny model: same bits however a stage was interrupted or computed,
// checkpoints and their faults, divergence, changes of variant.
#include "worker/trainer/stage.h"

#include <cmath>
#include <map>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/testing.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

// Each step takes a second; notes what comes; stops where told.
class FakeControl : public TaskControl {
 public:
  Stop ShouldStop() override { return stop_at && step_ >= *stop_at ? stop_kind : Stop::kNo; }
  void Progress(int64_t step, double) override {
    step_ = step;
    clock.Advance(1'000'000);
  }
  void Point(std::string_view metric, int64_t step, double value) override {
    points[{std::string(metric), step}] = value;
  }
  void Checkpoint(const SavedState& saved, int64_t step, bool end_state) override {
    checkpoints.push_back(step);
    last = saved;
    ended = end_state;
  }

  FakeClock clock;
  std::optional<int64_t> stop_at;
  Stop stop_kind = Stop::kWithCheckpoint;
  std::map<std::pair<std::string, int64_t>, double> points;
  std::vector<int64_t> checkpoints;
  SavedState last;
  bool ended = false;

 private:
  int64_t step_ = -1;
};

struct Ran {
  absl::Status status;
  StageOutcome outcome;
  v1::TaskResult result;
  std::unique_ptr<FakeControl> control;
  std::string Hashes() const { return result.end_state().weights().sha256() + result.end_state().optimizer().sha256(); }
};

class StageTest : public ::testing::Test {
 protected:
  Ran Run(const v1::RunStage& request, std::optional<int64_t> stop_at = std::nullopt, int threads = 1,
          TaskControl::Stop kind = TaskControl::Stop::kWithCheckpoint) {
    Ran ran{.control = std::make_unique<FakeControl>()};
    ran.control->stop_at = stop_at;
    ran.control->stop_kind = kind;
    auto backend = NewCpuBackend(threads);
    EXPECT_TRUE(backend.ok());
    auto data = DataSet::Open(request.task().data(), {request.data_paths().begin(), request.data_paths().end()});
    if (!data.ok()) {
      ran.status = data.status();
      return ran;
    }
    auto outcome = RunStage(request, data->get(), backend->get(), Recompute::kAuto, ran.control->clock,
                            ran.control.get(), &ran.result);
    ran.status = outcome.status();
    if (outcome.ok()) ran.outcome = *outcome;
    return ran;
  }
  std::string Dir(const std::string& name) { return JoinPath(dir_.path(), name); }
  static void StartFrom(const SavedState& saved, v1::RunStage* request) {
    request->set_start_weights_path(saved.paths.weights);
    request->set_start_optimizer_path(saved.paths.optimizer);
    request->set_start_step(saved.paths.step);
    v1::CheckpointRef* start = request->mutable_task()->mutable_start();
    start->set_step(saved.paths.step);
    start->mutable_weights()->set_sha256(saved.weights.sha256);
    start->mutable_optimizer()->set_sha256(saved.optimizer.sha256);
  }
  static void Flip(const std::string& path) {
    std::string content = *ReadFile(path);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
    ASSERT_TRUE(WriteFileAtomic(path, content).ok());
  }

  TempDir dir_;
  TextData data_{dir_.path()};
};

TEST_F(StageTest, LearnsAndReportsCurvesAndMetrics) {
  const Ran ran = Run(StageRequest(data_, SmallConfig(), 0, 40, Dir("a")));
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_FALSE(ran.outcome.stopped_at);
  EXPECT_EQ(ran.result.outcome(), v1::COMPLETED);
  EXPECT_EQ(ran.result.resumed_from_step(), 0);
  EXPECT_TRUE(ran.control->ended);
  EXPECT_EQ(ran.control->checkpoints, std::vector<int64_t>{40});
  EXPECT_EQ(ran.result.end_state().step(), 40);
  EXPECT_EQ(ran.result.end_state().weights().sha256(), *Sha256HexOfFile(ran.control->last.paths.weights));

  const auto& points = ran.control->points;
  EXPECT_EQ(points.size(), 3u * 4);
  for (const char* metric : {"train_loss", "gradient_norm", "learning_rate"}) {
    for (const int64_t step : {10, 20, 30, 40}) EXPECT_TRUE(points.count({metric, step})) << metric << step;
  }
  EXPECT_LT(points.at({"train_loss", 10}), std::log(256));
  EXPECT_GT(points.at({"train_loss", 10}), 4.0);
  EXPECT_LT(points.at({"train_loss", 40}), 4.0);
  EXPECT_NEAR(Metric(ran.result, "final_train_loss"),
              (points.at({"train_loss", 30}) + points.at({"train_loss", 40})) / 2, 1e-9);
  EXPECT_GE(Metric(ran.result, "max_gradient_norm"), points.at({"gradient_norm", 10}));
  EXPECT_EQ(Metric(ran.result, "tokens"), 40 * 4 * 16);
  EXPECT_EQ(Metric(ran.result, "zero_rows"), 0);
}

TEST_F(StageTest, TheLastStepHasAPointAndMeansCoverTheStepsSinceTheLast) {
  const Ran ran = Run(StageRequest(data_, SmallConfig(), 0, 12, Dir("a")));
  ASSERT_TRUE(ran.status.ok());
  const auto file = CheckpointFile::Open(ran.control->last.paths.optimizer);
  ASSERT_TRUE(file.ok());
  const std::vector<double>& losses = (*file)->header().totals.recent_losses;
  ASSERT_EQ(losses.size(), 12u);
  const auto& points = ran.control->points;
  EXPECT_EQ(points.size(), 3u * 2);
  EXPECT_DOUBLE_EQ(points.at({"train_loss", 12}), (losses[10] + losses[11]) / 2);
  double sum = 0;
  for (int i = 0; i < 10; ++i) sum += losses[static_cast<size_t>(i)];
  EXPECT_DOUBLE_EQ(points.at({"train_loss", 10}), sum / 10);
}

TEST_F(StageTest, InterruptedAnywhereItEndsInTheSameBits) {
  for (const char* variant : {"softmax", "ssmax_bias", "lssar"}) {
    const v1::Configuration config = SmallConfig(variant);
    const std::string dir = Dir(std::string("straight ") + variant);
    const Ran straight = Run(StageRequest(data_, config, 0, 25, dir));
    ASSERT_TRUE(straight.status.ok()) << straight.status;
    for (const int64_t at : {1, 9, 10, 13, 24}) {
      const v1::RunStage request = StageRequest(data_, config, 0, 25, Dir(absl::StrCat(variant, at)));
      const Ran stopped = Run(request, at);
      ASSERT_TRUE(stopped.status.ok()) << stopped.status;
      EXPECT_EQ(stopped.outcome.stopped_at, at);
      EXPECT_EQ(stopped.control->checkpoints, std::vector<int64_t>{at});
      // Once from its own folder, once as another worker would, from files it was given.
      v1::RunStage given = StageRequest(data_, config, 0, 25, Dir(absl::StrCat(variant, at, "given")));
      StartFrom(stopped.control->last, &given);
      for (const v1::RunStage& again : {given, request}) {
        const Ran resumed = Run(again);
        ASSERT_TRUE(resumed.status.ok()) << resumed.status;
        EXPECT_EQ(resumed.result.resumed_from_step(), at);
        EXPECT_EQ(resumed.Hashes(), straight.Hashes()) << variant << " interrupted at " << at;
        // Points after the resume step are those of the undisturbed run, to the bit.
        for (const auto& [key, value] : resumed.control->points) EXPECT_EQ(value, straight.control->points.at(key));
        for (const auto& [key, value] : straight.control->points) {
          EXPECT_EQ(resumed.control->points.count(key), key.second > at ? 1u : 0u);
        }
        for (int i = 0; i < straight.result.metrics_size(); ++i) {
          EXPECT_EQ(resumed.result.metrics(i).SerializeAsString(), straight.result.metrics(i).SerializeAsString());
        }
      }
    }
  }
}

TEST_F(StageTest, CutIntoStagesItEndsInTheSameBits) {
  const Ran straight = Run(StageRequest(data_, SmallConfig(), 0, 20, Dir("a")));
  const Ran first = Run(StageRequest(data_, SmallConfig(), 0, 7, Dir("b"), "first"));
  ASSERT_TRUE(first.status.ok()) << first.status;
  v1::RunStage request = StageRequest(data_, SmallConfig(), 7, 20, Dir("c"), "second");
  StartFrom(first.control->last, &request);
  const Ran second = Run(request);
  ASSERT_TRUE(second.status.ok()) << second.status;
  EXPECT_EQ(second.Hashes(), straight.Hashes());
  EXPECT_EQ(Metric(second.result, "max_gradient_norm"), Metric(straight.result, "max_gradient_norm"));
  EXPECT_EQ(Metric(second.result, "tokens"), Metric(straight.result, "tokens"));
}

TEST_F(StageTest, ThreadsChangeNoBit) {
  for (const char* variant : {"softmax", "lssar"}) {
    std::string hashes;
    for (const int threads : {1, 2, 3}) {
      const Ran ran = Run(StageRequest(data_, SmallConfig(variant), 0, 12, Dir(absl::StrCat(variant, threads))),
                          std::nullopt, threads);
      ASSERT_TRUE(ran.status.ok()) << ran.status;
      if (hashes.empty()) hashes = ran.Hashes();
      EXPECT_EQ(ran.Hashes(), hashes) << variant << " with " << threads;
    }
  }
}

TEST_F(StageTest, SeedsDifferAndAccumulationKeepsTheSamples) {
  const Ran base = Run(StageRequest(data_, SmallConfig(), 0, 5, Dir("a")));
  v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 5, Dir("b"));
  request.mutable_task()->set_seed(4);
  EXPECT_NE(Run(request).Hashes(), base.Hashes());
  v1::Configuration config = SmallConfig();
  Set(&config, "train.accumulation", 2);
  const Ran accumulated = Run(StageRequest(data_, config, 0, 5, Dir("c")));
  ASSERT_TRUE(accumulated.status.ok()) << accumulated.status;
  // The same windows in two parts: the same loss up to rounding.
  EXPECT_NEAR(accumulated.control->points.at({"train_loss", 5}), base.control->points.at({"train_loss", 5}), 1e-4);
}

TEST_F(StageTest, KeepsTwoPeriodicCheckpointsAndFallsBackWhenTheNewestIsDamaged) {
  v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 25, Dir("a"));
  request.set_checkpoint_seconds(5);
  const Ran stopped = Run(request, 18, 1, TaskControl::Stop::kYes);
  ASSERT_TRUE(stopped.status.ok()) << stopped.status;
  EXPECT_EQ(stopped.outcome.stopped_at, 18);
  ASSERT_EQ(stopped.control->checkpoints.size(), 3u);
  EXPECT_EQ(ListDir(Dir("a"))->size(), 4u);
  const int64_t newest = stopped.control->checkpoints[2], before = stopped.control->checkpoints[1];
  const std::string straight = Run(StageRequest(data_, SmallConfig(), 0, 25, Dir("b"))).Hashes();

  Flip(stopped.control->last.paths.optimizer);
  v1::RunStage given = request;
  StartFrom(stopped.control->last, &given);
  const Ran resumed = Run(given);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_EQ(resumed.result.resumed_from_step(), before) << "newest was " << newest;
  EXPECT_EQ(resumed.Hashes(), straight);
}

TEST_F(StageTest, WithNoSoundCheckpointItStartsOverOrSaysWhyItCannot) {
  const std::string straight = Run(StageRequest(data_, SmallConfig(), 0, 12, Dir("a"))).Hashes();
  const v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 12, Dir("b"));
  const Ran stopped = Run(request, 5);
  Flip(stopped.control->last.paths.weights);
  const Ran again = Run(request);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.result.resumed_from_step(), 0);
  EXPECT_EQ(again.Hashes(), straight);

  const Ran parent = Run(StageRequest(data_, SmallConfig(), 0, 5, Dir("c"), "parent"));
  v1::RunStage child = StageRequest(data_, SmallConfig(), 5, 12, Dir("d"), "child");
  EXPECT_EQ(Run(child).status.code(), absl::StatusCode::kInvalidArgument);
  StartFrom(parent.control->last, &child);
  Flip(parent.control->last.paths.weights);
  const absl::Status damaged = Run(child).status;
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(parent.control->last.paths.weights));
  ASSERT_TRUE(RemoveFile(parent.control->last.paths.weights).ok());
  EXPECT_EQ(Run(child).status.code(), absl::StatusCode::kNotFound);
}

TEST_F(StageTest, AStateOfSomethingElseIsRefused) {
  const Ran parent = Run(StageRequest(data_, SmallConfig(), 0, 5, Dir("a"), "parent"));
  ASSERT_TRUE(parent.status.ok());
  v1::RunStage child = StageRequest(data_, SmallConfig(), 5, 12, Dir("b"), "child");
  StartFrom(parent.control->last, &child);
  auto refused = [&](const std::string& what, v1::RunStage request) {
    const absl::Status status = Run(request).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  v1::RunStage other = child;
  other.mutable_task()->set_seed(9);
  refused("another seed: 3, expected 9", other);
  other = child;
  other.set_start_step(6);
  refused("another step: 5, expected 6", other);
  other = child;
  Set(other.mutable_task()->mutable_config(), "model.layers", 2);
  refused("another model", other);
  other = child;
  other.mutable_task()->mutable_data()->set_sha256(Sha256Hex("other"));
  refused("another data set", other);
  other = child;
  other.mutable_task()->mutable_data()->mutable_files(0)->set_bytes(5);
  EXPECT_EQ(Run(other).status.code(), absl::StatusCode::kDataLoss);
  other = child;
  other.set_start_weights_path(child.start_optimizer_path());
  refused("another kind", other);
  other = child;
  other.clear_start_optimizer_path();
  refused("without its optimiser", other);
  other = child;
  other.set_start_step(13);
  refused("cannot start", other);
  other = child;
  other.mutable_task()->set_to_step(3);
  refused("from step 5 to step 3", other);
  // Within the stage a state must have been trained with its configuration.
  v1::RunStage inside = StageRequest(data_, SmallConfig(), 0, 12, Dir("c"));
  StartFrom(parent.control->last, &inside);
  Set(inside.mutable_task()->mutable_config(), "train.learning_rate", 0.02);
  refused("another configuration", inside);
  // A file that is whole, but not the one that was recorded.
  other = child;
  other.mutable_task()->mutable_start()->mutable_weights()->set_sha256(Sha256Hex("other"));
  EXPECT_EQ(Run(other).status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(StageTest, AFinishedStageIsNotTrainedAgain) {
  const v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 12, Dir("a"));
  const Ran first = Run(request);
  const Ran again = Run(request);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.result.resumed_from_step(), 12);
  EXPECT_EQ(again.Hashes(), first.Hashes());
  EXPECT_EQ(Metric(again.result, "final_train_loss"), Metric(first.result, "final_train_loss"));
}

TEST_F(StageTest, WithoutKeepOptimizerTheEndStateIsWeightsOnly) {
  v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 5, Dir("a"));
  request.mutable_task()->set_keep_optimizer(false);
  const Ran ran = Run(request);
  ASSERT_TRUE(ran.status.ok());
  EXPECT_FALSE(ran.result.end_state().has_optimizer());
  EXPECT_TRUE(ran.control->last.paths.optimizer.empty());
  EXPECT_EQ(ListDir(Dir("a"))->size(), 1u);
}

TEST_F(StageTest, AStopWithoutCheckpointLeavesNone) {
  const Ran ran = Run(StageRequest(data_, SmallConfig(), 0, 25, Dir("a")), 6, 1, TaskControl::Stop::kYes);
  EXPECT_EQ(ran.outcome.stopped_at, 6);
  EXPECT_TRUE(ListDir(Dir("a"))->empty());
}

TEST_F(StageTest, DivergenceIsAResultWithItsStep) {
  v1::Configuration config = SmallConfig();
  Set(&config, "train.learning_rate", 10);
  Set(&config, "train.clip", 0.0);
  Set(&config, "train.warmup_steps", 0.0);
  Set(&config, "train.weight_decay", 10);  // lr * decay = 100: weights grow 99-fold a step
  const Ran ran = Run(StageRequest(data_, config, 0, 40, Dir("a")));
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_EQ(ran.result.outcome(), v1::DIVERGED);
  const int64_t step = ran.result.diverged_at_step();
  EXPECT_GT(step, 1);
  EXPECT_LT(step, 40);
  EXPECT_FALSE(ran.result.has_end_state());
  const auto loss = ran.control->points.find({"train_loss", step});
  ASSERT_NE(loss, ran.control->points.end());
  EXPECT_FALSE(std::isfinite(loss->second) && std::isfinite(ran.control->points.at({"gradient_norm", step})));
}

TEST_F(StageTest, AChangedVariantGainsAndLosesItsParameters) {
  const Ran parent = Run(StageRequest(data_, SmallConfig("softmax"), 0, 5, Dir("a"), "parent"));
  v1::Configuration ssmax = SmallConfig("ssmax_bias");
  Set(&ssmax, "attention.ssmax_init", 0.25);
  v1::RunStage request = StageRequest(data_, ssmax, 5, 5, Dir("b"), "swap");
  StartFrom(parent.control->last, &request);
  const Ran swapped = Run(request);
  ASSERT_TRUE(swapped.status.ok()) << swapped.status;
  auto file = CheckpointFile::Open(swapped.control->last.paths.weights);
  ASSERT_TRUE(file.ok());
  ASSERT_NE((*file)->Find("h0.ssmax.s"), nullptr);
  EXPECT_EQ((*file)->Find("h0.ssmax.s")->data[1], 0.25f);
  EXPECT_EQ((*file)->Find("h0.ssmax.b")->data[1], 0.0f);
  auto moments = CheckpointFile::Open(swapped.control->last.paths.optimizer);
  EXPECT_EQ((*moments)->Find("m/h0.ssmax.s")->data[0], 0.0f);
  EXPECT_NE((*moments)->Find("m/h0.qkv.w")->data[0], 0.0f);
  EXPECT_EQ((*moments)->header().optimizer_step, 5);

  v1::RunStage on = StageRequest(data_, ssmax, 5, 10, Dir("c"), "on");
  StartFrom(swapped.control->last, &on);
  const Ran trained = Run(on);
  ASSERT_TRUE(trained.status.ok()) << trained.status;
  v1::RunStage back = StageRequest(data_, SmallConfig("softmax"), 10, 12, Dir("d"), "back");
  StartFrom(trained.control->last, &back);
  const Ran dropped = Run(back);
  ASSERT_TRUE(dropped.status.ok()) << dropped.status;
  EXPECT_EQ((*CheckpointFile::Open(dropped.control->last.paths.weights))->Find("h0.ssmax.s"), nullptr);
}

TEST_F(StageTest, WrongInputsSayWhatIsWrong) {
  auto message = [&](const v1::Configuration& config) {
    const absl::Status status = Run(StageRequest(data_, config, 0, 5, Dir("x"))).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  v1::Configuration config = SmallConfig();
  Set(&config, "train.length", 1024);
  EXPECT_THAT(message(config), HasSubstr("too little data"));
  config = SmallConfig();
  Set(&config, "train.precision", "bf16");
  EXPECT_THAT(message(config), HasSubstr("CUDA"));
  config = SmallConfig();
  Set(&config, "train.accumulation", 3);
  EXPECT_THAT(message(config), HasSubstr("accumulation"));
  config = SmallConfig("relu");
  Set(&config, "attention.p", 3);
  EXPECT_THAT(message(config), HasSubstr("l1"));
  config = SmallConfig();
  Set(&config, "no.such", 1);
  EXPECT_THAT(message(config), HasSubstr("no.such"));
  v1::RunStage request = StageRequest(data_, SmallConfig(), 0, 5, "");
  EXPECT_EQ(Run(request).status.code(), absl::StatusCode::kInvalidArgument);
  request = StageRequest(data_, SmallConfig(), 0, 5, Dir("x"));
  request.add_data_paths(data_.path);
  EXPECT_EQ(Run(request).status.code(), absl::StatusCode::kInvalidArgument);
  request.clear_data_paths();
  request.add_data_paths(Dir("missing"));
  EXPECT_EQ(Run(request).status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ablate
