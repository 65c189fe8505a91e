// For this folder's tests: a small generated text, configurations and tasks on it.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "gtest/gtest.h"
#include "proto/trainer.pb.h"

namespace ablate {

// Words in a fixed pseudo-random order: a model learns it, and it is not periodic.
inline std::string GeneratedText(size_t bytes) {
  static constexpr const char* kWords[] = {"the ", "king ", "went ", "into ",  "house ",   "of ",    "stone ",
                                           "and ", "said ", "unto ", "them: ", "behold, ", "water. "};
  std::string text;
  uint32_t state = 12345;
  while (text.size() < bytes) {
    state = state * 1664525u + 1013904223u;
    text += kWords[(state >> 24) % 13];
  }
  text.resize(bytes);
  return text;
}

struct TextData {
  explicit TextData(const std::string& dir, size_t bytes = 20000) : path(JoinPath(dir, "text")) {
    const std::string text = GeneratedText(bytes);
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    ref.set_name("generated");
    ref.set_format(v1::DataRef::TEXT);
    ref.set_sha256(Sha256Hex(text));
    v1::DataFile* file = ref.add_files();
    file->set_path("text");
    file->set_sha256(ref.sha256());
    file->set_bytes(static_cast<int64_t>(text.size()));
  }
  std::string path;
  v1::DataRef ref;
};

// Associative recall, which has no files.
inline v1::DataRef MqarData() {
  v1::DataRef ref;
  ref.set_name("mqar");
  ref.set_format(v1::DataRef::MQAR);
  ref.set_sha256(Sha256Hex("mqar 1"));
  return ref;
}

inline void Set(v1::Configuration* config, const std::string& axis, double number) {
  v1::Setting* setting = config->add_settings();
  setting->set_axis(axis);
  setting->mutable_value()->set_number(number);
}
inline void Set(v1::Configuration* config, const std::string& axis, const char* text) {
  v1::Setting* setting = config->add_settings();
  setting->set_axis(axis);
  setting->mutable_value()->set_text(text);
}

inline void SetFlag(v1::Configuration* config, const std::string& axis, bool flag) {
  v1::Setting* setting = config->add_settings();
  setting->set_axis(axis);
  setting->mutable_value()->set_flag(flag);
}

// One layer, width 16, T = 16, 4 sequences a step.
inline v1::Configuration SmallConfig(const char* variant = "softmax") {
  v1::Configuration config;
  Set(&config, "attention.variant", variant);
  Set(&config, "model.heads", 2);
  Set(&config, "model.layers", 1);
  Set(&config, "model.width", 16);
  Set(&config, "train.accumulation", 1);
  Set(&config, "train.batch", 4);
  Set(&config, "train.learning_rate", 0.01);
  Set(&config, "train.length", 16);
  Set(&config, "train.steps", 40);
  Set(&config, "train.warmup_steps", 4);
  return config;
}

inline v1::RunStage StageRequest(const TextData& data, const v1::Configuration& config, int64_t from, int64_t to,
                                 const std::string& dir, const std::string& key = "stage") {
  v1::RunStage request;
  v1::StageTask* task = request.mutable_task();
  task->set_stage_key(key);
  *task->mutable_config() = config;
  task->set_seed(3);
  task->set_from_step(from);
  task->set_to_step(to);
  *task->mutable_data() = data.ref;
  task->set_keep_optimizer(true);
  request.add_data_paths(data.path);
  request.set_checkpoint_dir(dir);
  return request;
}

inline v1::RunEvaluation EvaluationRequest(const TextData& data, const v1::Configuration& config, int64_t length,
                                           const std::string& weights_path, int64_t step) {
  v1::RunEvaluation request;
  v1::EvaluationTask* task = request.mutable_task();
  task->set_evaluation_key("evaluation");
  *task->mutable_config() = config;
  Set(task->mutable_eval_config(), "eval.loss_tokens", 256);
  Set(task->mutable_eval_config(), "eval.target_spans", 4);
  Set(task->mutable_eval_config(), "eval.batch_tokens", 100);
  task->set_seed(3);
  task->set_length_tokens(length);
  task->set_split("selection");
  *task->mutable_data() = data.ref;
  task->mutable_state()->set_step(step);
  request.add_data_paths(data.path);
  request.set_weights_path(weights_path);
  return request;
}

inline double Metric(const v1::TaskResult& result, const std::string& name) {
  for (const v1::MetricValue& metric : result.metrics()) {
    if (metric.metric() == name) return metric.value();
  }
  ADD_FAILURE() << "no metric " << name;
  return 0;
}

}  // namespace ablate
