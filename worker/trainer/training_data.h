// What a stage trains on, whichever kind of data it is: sample i of a seed, as tokens and targets. Must not know
// batches, steps or models: the answer depends on (data, configuration, seed, i) alone, so another batch, accumulation
// or a resume shifts nothing and no generator is stored. docs/data.md explains the kinds to users. Thread rule: const
// after Make; any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/data_set.h"
#include "worker/trainer/train_config.h"

namespace ablate {

class TrainingData {
 public:
  virtual ~TrainingData() = default;
  // Targets of a sample that are not -1: the same number in all of them, so that a step's mean over what it scores is
  // known before its first part is computed.
  virtual int64_t scored_targets() const = 0;
  // tokens[T], targets[T] of a sample; a target of -1 is not scored.
  virtual absl::Status Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const = 0;
};

// Text and shards: windows of the training split (data_sampler.h). MQAR: made sequences of train.length tokens
// (mqar.h). With data.mixture (text only) a sample i with Uniform(i) of stream "mixture" below the share is made of
// passkey documents (passkey_text.h) instead of a window; the others are the windows that they are without a mixture.
// It has T + 1 tokens, the last one a target only, filled by documents end to end: with r tokens left, document j of
// sample i has least + Below(r - least + 1) tokens, index = 2^16 i + j of stream "mixture/length", least =
// least_document_tokens(); all r where fewer than `least` would be left after it. Its key and place: that index of
// stream "mixture/passkey". Every target is scored. `data` must outlive the result. InvalidArgument, saying what does
// not fit: too little data, pairs that do not fit into the length or the vocabulary, a mixture for other data than text
// or a length that no document fits in.
absl::StatusOr<std::unique_ptr<TrainingData>> MakeTrainingData(DataSet* data, const TrainConfig& config, uint64_t seed);

}  // namespace ablate
