// The content key of an evaluation: what it is of, so that equal ones are run once. Must not know where evaluations are kept.
// Thread rule: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ablate {

// The key is the SHA-256 of one line of JSON, its names in order:
//   {"eval":{...},"files":["...",...],"length":N,"split":"...","state":"KEY","tokenizer":["...",...],"what":"evaluation"}
// `files` and `tokenizer` (SHA-256 of a task's input files) are left out where there are none; KEY is that of the stage
// whose end is evaluated.
struct EvaluationKeyText {
  std::string before, after;  // of KEY and its quotation mark
  std::string KeyOf(const std::string& stage_key) const;
};
// `eval_json`: ToJson of the settings that act on the evaluation.
EvaluationKeyText MakeEvaluationKeyText(const std::string& eval_json, const std::vector<std::string>& files,
                                        int64_t length_tokens, const std::string& split,
                                        const std::vector<std::string>& tokenizer);

}  // namespace ablate
