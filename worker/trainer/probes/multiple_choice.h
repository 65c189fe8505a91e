// Zero-shot multiple choice: the parts that a test can answer in the model's place for. Definition:
// docs/evaluations.md. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/trainer/probes/choice_items.h"
#include "worker/trainer/probes/probe.h"

namespace ablate {

// Prompt, a space and one choice. The last `scored` tokens are the choice's.
struct ChoiceTokens {
  std::vector<int32_t> tokens;
  int scored = 0;
  bool cut = false;  // the prompt's beginning did not fit
};
// At most length + 1 tokens: `length` inputs, each with the next as its target.
ChoiceTokens TokensOf(const Tokenizer& tokenizer, std::string_view context, std::string_view choice, int length);

// Unicode characters of UTF-8: what acc_norm divides by.
int64_t Characters(std::string_view text);

// Losses in nats of `rows` sequences [rows,T], 0 where the target is -1; the vector has room for them.
using Losses = std::function<absl::Status(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets,
                                          int rows, int T, std::vector<float>* losses)>;
absl::StatusOr<bool> MeasureChoices(const ProbeContext& context, const Tokenizer& tokenizer,
                                    const std::vector<ChoiceItem>& items, const Losses& losses, v1::TaskResult* result);

}  // namespace ablate
