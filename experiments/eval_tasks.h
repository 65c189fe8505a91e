// What is measured beside the loss: one row a value of eval.task, with what an entry of `evaluate: tasks:` needs for
// it. How it is measured: worker/trainer/probes; definitions: docs/evaluations.md. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ablate {

struct EvalTask {
  std::string_view name;
  bool lengths =
      false;            // measured at the lengths that are asked for; else at train.length, its inputs having their own
  bool splits = false;  // takes windows of the data's own text; else `name` stands where results have the split
  bool file = false;    // needs a file of its own
  bool labels = false;  // may have the right answers in a second file
  bool text = false;    // turns text into tokens: bytes, or with data of another tokenizer that one
  std::string_view input;  // what the file is, for messages
};

// All but `loss`.
const std::vector<EvalTask>& EvalTasks();
const EvalTask* FindEvalTask(std::string_view name);  // nullptr: none of that name
std::vector<std::string> EvalTaskNames();

// The task that an option of evaluations acts in ("eval.passkey.trials": passkey); "": every one.
std::string_view TaskOfOption(std::string_view axis);

// Tokens of the shortest passkey evaluation of a model of bytes: the prompt without filler, a place for each bin of
// depth, and the answer. worker/trainer/probes/passkey_test.cc holds it against the prompts.
int64_t LeastPasskeyLength(bool full_prompt, int64_t depths);

}  // namespace ablate
