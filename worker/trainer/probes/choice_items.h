// Items of multiple choice, read from the JSON lines that ARC, HellaSwag, PIQA and SciQ are distributed in, as prompts.
// Must not know tokens or models. Any thread.
//
// Source of prompts and choices: lm-evaluation-harness (its tasks arc_easy, arc_challenge, hellaswag, piqa, sciq).
// Each file's kind is known by its fields, item by item:
//   ARC        question {stem, choices [{label, text}]} or question and choices {text [...], label [...]}; answerKey
//   HellaSwag  ctx_a, ctx_b (or ctx), endings, label; activity_label where there is one
//   PIQA       goal, sol1, sol2; label, or a second file with one number a line
//   SciQ       question, correct_answer, distractor1..3; support
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

struct ChoiceItem {
  std::string context;               // ends without white space; a space stands between it and a choice
  std::vector<std::string> choices;  // at least two
  int right = 0;                     // index of the correct one
};

// `content`: JSON lines (empty ones are skipped), or one JSON array; `labels`: of the second file, empty: none.
// InvalidArgument: path:line, what is wrong and what was expected; no item at all.
absl::StatusOr<std::vector<ChoiceItem>> ReadChoiceItems(const std::string& path, std::string_view content,
                                                        std::string_view labels = {});

}  // namespace ablate
