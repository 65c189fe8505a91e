// Summaries by greedy generation, scored by ROUGE: the parts that a test can answer in the model's place for.
// Definition: docs/evaluations.md. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/probes/probe.h"

namespace ablate {

struct SummaryItem {
  std::string document, summary;
};
// JSON lines with a text and its summary: document, article or text; summary or highlights. InvalidArgument: as
// ReadJsonLines.
absl::StatusOr<std::vector<SummaryItem>> ReadSummaryItems(const std::string& path, std::string_view content);

// What is scored of a generated text: its first line that is not blank.
std::string_view FirstLine(std::string_view text);

// Continues one prompt by at most `new_tokens`.
using ContinueOne = std::function<absl::StatusOr<Generation>(const std::vector<int32_t>& prompt, int new_tokens)>;
absl::StatusOr<bool> MeasureSummaries(const ProbeContext& context, const Tokenizer& tokenizer,
                                      const std::vector<SummaryItem>& items, const ContinueOne& answer,
                                      v1::TaskResult* result);

}  // namespace ablate
