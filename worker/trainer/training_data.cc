#include "worker/trainer/training_data.h"

#include <utility>

#include "base/status_macros.h"
#include "worker/trainer/data_sampler.h"
#include "worker/trainer/mqar.h"

namespace ablate {
namespace {

class TextWindows : public TrainingData {
 public:
  TextWindows(TrainSampler sampler, int train_length) : sampler_(std::move(sampler)), train_length_(train_length) {}

  int64_t scored_targets() const override { return train_length_; }
  absl::Status Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const override {
    return sampler_.Fill(sample, tokens, targets);
  }

 private:
  const TrainSampler sampler_;
  const int train_length_;
};

class Recall : public TrainingData {
 public:
  explicit Recall(MqarMaker maker) : maker_(std::move(maker)) {}

  int64_t scored_targets() const override { return maker_.pairs(); }
  absl::Status Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const override {
    maker_.Fill(sample, tokens, targets);
    return absl::OkStatus();
  }

 private:
  const MqarMaker maker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingData>> MakeTrainingData(DataSet* data, const TrainConfig& config, uint64_t seed) {
  const int T = config.model.train_length;
  if (data->made()) {
    ABLATE_ASSIGN_OR_RETURN(MqarMaker maker,
                            MqarMaker::Make(config.model.vocab, config.mqar_pairs, T, seed, kMqarTraining));
    return std::make_unique<Recall>(std::move(maker));
  }
  ABLATE_ASSIGN_OR_RETURN(const DataSplits splits, data->Splits(T));
  ABLATE_ASSIGN_OR_RETURN(TrainSampler sampler, TrainSampler::Make(&data->tokens(), splits.train, T, seed));
  return std::make_unique<TextWindows>(std::move(sampler), T);
}

}  // namespace ablate
