// From a configuration (axis names) to what training and evaluation need. The only file of the trainer that knows axis
// names. Errors: InvalidArgument, naming the axis, for settings that do not fit together or that this trainer cannot
// do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/trainer/model.h"
#include "worker/trainer/passkey_text.h"
#include "worker/trainer/schedule.h"

namespace ablate {

namespace v1 {
class Configuration;
}  // namespace v1

struct TrainConfig {
  std::string json;  // canonical: what checkpoints carry
  ModelConfig model;
  Precision precision = Precision::kFloat32;  // of activations and matrix products
  Schedule schedule;
  OptimizerParams optimizer;  // its learning rate is the schedule's
  int batch = 1;              // sequences a step
  int accumulation = 1;       // equal parts that a step's batch is computed in
  int64_t mqar_pairs = 1;     // of made data
  double mixture = 0;         // share of samples that are synthetic passkey documents
  PasskeyPrompt mixture_prompt = PasskeyPrompt::kShort;

  int microbatch() const { return batch / accumulation; }
};

struct EvalConfig {
  EvalOptions options;  // RoPE base for the length asked for, attention overrides, window
  int64_t target_spans = 1;
  int64_t loss_tokens = 0;  // 0: `loss` is not measured
  bool gain = false;        // measure what keys before the last T_train are good for
  int64_t batch_tokens = 1;
  std::string task = "loss";  // what is measured; the others: probes/probe.h
  struct {
    int trials = 100, depths = 10;
    PasskeyPrompt prompt = PasskeyPrompt::kFull;
  } passkey;
  struct {
    int sequences = 256, pairs = 8, vocabulary = 128;  // pairs: of training where evaluation names none
  } mqar;
  int64_t attention_tokens = 16384;  // that the statistics are taken over
  int summary_tokens = 64;           // generated at most

  // How many sequences of `length` tokens go through the model at once, of `sequences`: as batch_tokens says, at least
  // one.
  int SequencesAtOnce(int64_t sequences, int length) const {
    return static_cast<int>(std::clamp<int64_t>(batch_tokens / length, 1, std::max<int64_t>(1, sequences)));
  }
};

// What train.precision says. Whether the device can do it is the device's to say.
absl::StatusOr<Precision> PrecisionOf(const v1::Configuration& training);

// The vocabulary is the configuration's own (data.mqar.vocabulary), not the data's.
inline constexpr int kVocabularyOfConfiguration = 0;

absl::StatusOr<TrainConfig> TrainConfigFrom(const v1::Configuration& training, int vocabulary);

// InvalidArgument: the backend computes in another precision.
absl::Status CheckPrecision(const TrainConfig& config, const Backend& backend);

// `training` as above; dynamic NTK changes the base for lengths above train.length only.
absl::StatusOr<EvalConfig> EvalConfigFrom(const v1::Configuration& training, const v1::Configuration& eval,
                                          int64_t length);

// "layers=4 width=128 heads=4 vocabulary=256": what two states must share to be of one model.
std::string ModelText(const ModelConfig& config);

}  // namespace ablate
