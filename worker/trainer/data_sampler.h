// Which window of the training split is sample i of a seed. Must not know batches, steps or models: the answer depends
// on (data, T, seed, i) alone, so another batch, accumulation or a resume shifts nothing. Thread rule: const after
// Make; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/data_splits.h"
#include "worker/trainer/data_tokens.h"
#include "worker/trainer/philox.h"

namespace ablate {

// A window is T inputs and the T targets one token later. The starts that count are numbered in file order: text: every
// position of the training split whose T + 1 tokens lie within one file; shards: within the split (windows cross
// documents, as llm.c's and the papers' do; the end-of-text token marks the border). Sample i takes start number
// Philox(seed, "data_order", i) scaled to their count: uniform, with replacement.
class TrainSampler {
 public:
  // `data` must outlive the sampler. InvalidArgument: no file has T + 1 tokens in the split.
  static absl::StatusOr<TrainSampler> Make(const TokenData* data, const TokenRange& train, int train_length,
                                           uint64_t seed);

  int64_t starts() const { return total_; }
  // Where sample `index` begins.
  int64_t Begin(uint64_t index) const;
  // tokens[T], targets[T] of sample `index`. InvalidArgument: a token outside the vocabulary.
  absl::Status Fill(uint64_t index, int32_t* tokens, int32_t* targets) const;

 private:
  struct Segment {
    int64_t begin = 0;   // position of its first start
    int64_t before = 0;  // starts in earlier segments
  };

  TrainSampler(const TokenData* data, int train_length, uint64_t seed)
      : data_(data), train_length_(train_length), stream_(seed, "data_order") {}

  const TokenData* data_;
  int train_length_;
  PhiloxStream stream_;
  std::vector<Segment> segments_;
  int64_t total_ = 0;
};

}  // namespace ablate
