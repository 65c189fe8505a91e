// The table of probes, and what they share.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "proto/resources.pb.h"
#include "worker/trainer/probes/probe.h"

namespace ablate {

const std::vector<ProbeTask>& ProbeTasks() {
  static const auto& tasks = *new std::vector<ProbeTask>{
      {"mqar", RunMqar},
      {"passkey", RunPasskey},
      {"attention", RunAttention},
      {"attention_map", RunAttentionMap},
      {"multiple_choice", RunMultipleChoice},
      {"summaries", RunSummaries},
  };
  return tasks;
}

Probe FindProbe(std::string_view task) {
  for (const ProbeTask& known : ProbeTasks()) {
    if (known.name == task) return known.run;
  }
  return nullptr;
}

void AddMetric(v1::TaskResult* result, std::string_view metric, double value) {
  v1::MetricValue* entry = result->add_metrics();
  entry->set_metric(std::string(metric));
  entry->set_value(value);
}

void SetOutcome(const ProbeContext& context, bool finite, v1::TaskResult* result) {
  result->set_outcome(finite ? v1::COMPLETED : v1::DIVERGED);
  if (!finite) result->set_diverged_at_step(context.task.state().step());
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const ProbeContext& context) {
  auto tokenizer = OpenTokenizer(context.data->tokens().format(), context.tokenizer_paths);
  if (!tokenizer.ok()) return WithContext(tokenizer.status(), absl::StrCat("task ", context.eval.task));
  return tokenizer;
}

absl::StatusOr<std::string> OnlyFile(const ProbeContext& context) {
  if (context.file_paths.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("task ", context.eval.task, " needs one file, and ",
                                                   context.file_paths.size(),
                                                   " came: name it in the task, `path: FILE`"));
  }
  return ReadFile(context.file_paths.front());
}

absl::Status WriteArtifact(const ProbeContext& context, const std::string& name, const std::string& media_type,
                           std::string_view content, v1::TaskResult* result) {
  if (context.output_dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("task ", context.eval.task, " writes ", name, ", but no directory for it came with the task"));
  }
  ABLATE_RETURN_IF_ERROR(MakeDirs(context.output_dir));
  ABLATE_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(context.output_dir, name), content));
  v1::ResultArtifact* made = result->add_artifacts();
  made->set_name(name);
  made->set_media_type(media_type);
  made->mutable_artifact()->set_sha256(Sha256Hex(content));
  made->mutable_artifact()->set_bytes(static_cast<int64_t>(content.size()));
  return absl::OkStatus();
}

}  // namespace ablate
