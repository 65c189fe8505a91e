// Associative recall (MQAR, Arora et al., Zoology, 2023): pairs of a key and a value, then queries: after a repeated
// key its value must follow. Sequences are made from random numbers with addresses, never stored; docs/data.md
// explains the rules to users. Must not know models, files or configurations. Thread rule: const after Make; any
// thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/philox.h"

namespace ablate {

// The rules that kMqarRules (experiments/mqar_rules.h) names.
// A sequence of `length` tokens of a vocabulary V: token 0 is the blank, tokens 1 to V/2 - 1 are keys, V/2 to V - 1
// values (V/2 rounded down).
//   tokens [0, 2P): the P pairs, key then value; keys are distinct, and so are values.
//   The rest is S = (length - 2P) / 2 places of two tokens (and one more blank when it is odd). Each key is asked for
//   once, at a place of its own: the key, then a blank, never the value; all other places are blank.
// Targets: at the position of a query the value that belongs to the key; -1 everywhere else. So each has P scored
// targets. Drawn uniformly without replacement, from (seed, stream, sample) alone: P keys, P values, P places (key j's
// is the j-th drawn). Each is the start of a Fisher-Yates shuffle of all candidates in ascending order: draw j
// exchanges candidate j with candidate j + Below(candidates - j), index = sample P + j of the stream NAME/keys,
// NAME/values or NAME/places.
class MqarMaker {
 public:
  // Samples of training: seed of the run, name "mqar". Trials of evaluations: seed = length, name "mqar_trial", so that
  // every model that is measured at a length is asked the same.
  // InvalidArgument, naming what would have to change: fewer than P keys or values in the vocabulary, or fewer than P
  // places (length below 4P).
  static absl::StatusOr<MqarMaker> Make(int64_t vocabulary, int64_t pairs, int64_t length, uint64_t seed,
                                        std::string_view name);

  int pairs() const { return pairs_; }
  // tokens[length], targets[length] of a sample.
  void Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const;

 private:
  MqarMaker(int vocabulary, int pairs, int length, uint64_t seed, std::string_view name);

  int vocabulary_, pairs_, length_;
  PhiloxStream keys_, values_, places_;
};

inline constexpr std::string_view kMqarTraining = "mqar", kMqarTrial = "mqar_trial";

}  // namespace ablate
