// Passkey retrieval: a number hidden in filler, asked for at the end. Must not know how tokens are generated: a test
// answers in the model's place. Definition: docs/evaluations.md. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/passkey_text.h"
#include "worker/trainer/probes/probe.h"

namespace ablate {

inline constexpr int kPasskeyNewTokens = 10;  // generated at most

// Trial `index` of those at a length: its bin of depth is index mod depths, and within it the key's place is uniform;
// so every bin has as many trials, or one fewer, and all places are equally likely.
PasskeyDraw DrawPasskeyTrial(uint64_t seed, int length, int index, int depths);

// Continues `sequences` prompts of `tokens` tokens each, [sequences,tokens], by kPasskeyNewTokens.
using Continue =
    std::function<absl::StatusOr<Generation>(const std::vector<int32_t>& prompts, int sequences, int tokens)>;

// The probe, with an answerer. True: done.
absl::StatusOr<bool> MeasurePasskey(const ProbeContext& context, const Tokenizer& tokenizer, const Continue& answer,
                                    v1::TaskResult* result);

}  // namespace ablate
