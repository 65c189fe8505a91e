#include "experiments/eval_tasks.h"

namespace ablate {

const std::vector<EvalTask>& EvalTasks() {
  static const auto& tasks = *new std::vector<EvalTask>{
      {.name = "passkey", .lengths = true, .text = true},
      {.name = "mqar", .lengths = true},
      {.name = "attention", .lengths = true, .splits = true},
      {.name = "attention_map", .file = true, .text = true, .input = "a text of at most 512 tokens"},
      {.name = "multiple_choice", .file = true, .labels = true, .text = true, .input = "questions as JSON lines"},
      {.name = "summaries", .file = true, .text = true, .input = "texts and their summaries as JSON lines"},
  };
  return tasks;
}

const EvalTask* FindEvalTask(std::string_view name) {
  for (const EvalTask& task : EvalTasks()) {
    if (task.name == name) return &task;
  }
  return nullptr;
}

std::vector<std::string> EvalTaskNames() {
  std::vector<std::string> names;
  for (const EvalTask& task : EvalTasks()) names.emplace_back(task.name);
  return names;
}

std::string_view TaskOfOption(std::string_view axis) {
  static constexpr struct {
    std::string_view start, task;
  } kOptions[] = {
      {"eval.passkey.", "passkey"},
      {"eval.mqar.", "mqar"},
      {"eval.attention.tokens", "attention"},
      {"eval.summaries.", "summaries"},
      {"eval.target_spans", "loss"},
      {"eval.loss_tokens", "loss"},
      {"eval.gain", "loss"},
  };
  for (const auto& option : kOptions) {
    if (axis.substr(0, option.start.size()) == option.start) return option.task;
  }
  return "";
}

int64_t LeastPasskeyLength(bool full_prompt, int64_t depths) { return (full_prompt ? 245 : 62) + depths - 1 + 10; }

}  // namespace ablate
