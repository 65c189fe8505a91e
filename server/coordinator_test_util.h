// For tests of the coordinator: a worker that does its jobs at once, by hand, and sweep files of any size.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/version.h"
#include "server/coordinator.h"

namespace ablate {

// All rows that a statement gives, as "a|b|c".
inline absl::StatusOr<std::vector<std::string>> QueryRows(Coordinator& coordinator, const std::string& sql) {
  v1::QueryRequest request;
  request.set_sql(sql);
  std::vector<std::string> rows;
  const absl::Status status = coordinator.Query(request, [&](const v1::QueryResponse& response) {
    for (const v1::QueryResponse::Row& row : response.rows()) {
      std::string text;
      for (const v1::QueryResponse::Cell& cell : row.cells()) {
        absl::StrAppend(&text, &cell == &row.cells(0) ? "" : "|",
                        cell.has_integer() ? absl::StrCat(cell.integer())
                        : cell.has_real()  ? absl::StrCat(cell.real())
                        : cell.has_text()  ? cell.text()
                        : cell.has_blob()  ? "BLOB"
                                           : "NULL");
      }
      rows.push_back(text);
    }
    return true;
  });
  if (!status.ok()) return status;
  return rows;
}

// Speaks the worker link as worker/ does. What an assignment comes to is decided by `execute`.
class FakeWorker {
 public:
  FakeWorker(std::string id, int slots, v1::Executor executor = v1::EXECUTOR_NOOP) : executor_(executor) {
    info_.set_worker_id(std::move(id));
    info_.set_incarnation("first");
    info_.set_hostname("host");
    info_.set_device_class("cpu");
    info_.set_device_kind("cpu/fake");
    info_.set_slots(slots);
    info_.set_memory_bytes(int64_t{1} << 30);
    info_.set_executor(executor);
  }

  v1::WorkerInfo& info() { return info_; }
  // A new start of the daemon: it has forgotten everything.
  void Restart(const std::string& incarnation) {
    info_.set_incarnation(incarnation);
    sequence_ = 0;
    assigned_.clear();
    outbox_.clear();
  }

  absl::StatusOr<v1::SyncResponse> Sync(Coordinator& coordinator, bool draining = false) {
    return Sync([&](const v1::SyncRequest& request) { return coordinator.Sync(request, [] { return false; }); }, draining);
  }
  absl::StatusOr<v1::SyncResponse> Sync(const std::function<absl::StatusOr<v1::SyncResponse>(const v1::SyncRequest&)>& call,
                                        bool draining = false) {
    v1::SyncRequest request;
    request.set_protocol_version(kProtocolVersion);
    *request.mutable_worker() = info_;
    request.set_sequence(++sequence_);
    request.set_draining(draining);
    for (const auto& [key, report] : outbox_) *request.add_attempts() = report;
    for (const auto& [key, assignment] : assigned_) {
      if (outbox_.contains(key)) continue;
      v1::AttemptReport* report = request.add_attempts();
      report->set_job_id(key.first);
      report->set_attempt(key.second);
      report->set_slot(assignment.slot());
      report->set_phase(v1::AttemptReport::RUNNING);
    }
    last_request = request;
    absl::StatusOr<v1::SyncResponse> response = call(request);
    if (!response.ok()) return response;
    for (const v1::AttemptAck& ack : response->acks()) {
      outbox_.erase({ack.job_id(), ack.attempt()});
      assigned_.erase({ack.job_id(), ack.attempt()});
      (ack.accepted() ? accepted : refused).push_back(ack);
    }
    std::map<Key, v1::Assignment> desired;
    for (const v1::Assignment& assignment : response->desired()) {
      desired[{assignment.job_id(), assignment.attempt()}] = assignment;
    }
    std::erase_if(outbox_, [&](const auto& item) { return !desired.contains(item.first); });
    assigned_ = std::move(desired);
    return response;
  }

  using Key = std::pair<std::string, int64_t>;
  const std::map<Key, v1::Assignment>& assigned() const { return assigned_; }

  // The report of a success, to be sent with the next Sync.
  v1::AttemptReport& Succeed(const v1::Assignment& assignment) {
    v1::AttemptReport& report = outbox_[{assignment.job_id(), assignment.attempt()}];
    report.set_job_id(assignment.job_id());
    report.set_attempt(assignment.attempt());
    report.set_slot(assignment.slot());
    report.set_phase(v1::AttemptReport::SUCCEEDED);
    v1::TaskResult* result = report.mutable_result();
    result->set_outcome(v1::COMPLETED);
    result->set_device_kind("cpu/fake");
    if (assignment.task().has_evaluation()) {
      const v1::EvaluationTask& task = assignment.task().evaluation();
      AddMetric(result, "loss", static_cast<double>(task.seed()) + 1);
      AddMetric(result, "loss_targets",
                loss_targets ? loss_targets(task)
                             : std::log(static_cast<double>(task.length_tokens())) + static_cast<double>(task.seed()));
      for (int i = 0; documents > 0 && i < documents; ++i) {
        v1::DocumentLoss* document = result->add_documents();
        document->set_document(i);
        document->set_targets(10);
        document->set_loss_sum(10.0 * (i + 1) + 0.1 * static_cast<double>(task.seed()));
      }
    } else {
      const v1::StageTask& task = assignment.task().stage();
      AddMetric(result, "max_gradient_norm", 1.5);
      if (executor_ != v1::EXECUTOR_NOOP) {
        v1::CheckpointRef* state = result->mutable_end_state();
        state->set_stage_key(task.stage_key());
        state->set_step(task.to_step());
        *state->mutable_weights() = Artifact(task.stage_key(), "weights");
        if (task.keep_optimizer()) *state->mutable_optimizer() = Artifact(task.stage_key(), "optimizer");
      }
    }
    return report;
  }

  v1::AttemptReport& Report(const v1::Assignment& assignment, v1::AttemptReport::Phase phase) {
    v1::AttemptReport& report = outbox_[{assignment.job_id(), assignment.attempt()}];
    report.set_job_id(assignment.job_id());
    report.set_attempt(assignment.attempt());
    report.set_slot(assignment.slot());
    report.set_phase(phase);
    return report;
  }

  v1::AttemptReport& Fail(const v1::Assignment& assignment, v1::FailureKind kind) {
    v1::AttemptReport& report = Report(assignment, v1::AttemptReport::FAILED);
    report.mutable_failure()->set_kind(kind);
    report.mutable_failure()->set_message("it broke");
    return report;
  }
  void Clear() { outbox_.clear(); }

  // Runs whatever is assigned until nothing is. How many jobs it did.
  absl::StatusOr<int> RunAll(Coordinator& coordinator) {
    int done = 0;
    while (true) {
      absl::StatusOr<v1::SyncResponse> response = Sync(coordinator);
      if (!response.ok()) return response.status();
      if (response->desired().empty()) return done;
      for (const v1::Assignment& assignment : response->desired()) {
        Succeed(assignment);
        ++done;
      }
    }
  }

  static v1::ArtifactRef Artifact(const std::string& stage_key, const std::string& what) {
    v1::ArtifactRef artifact;
    artifact.set_sha256(Sha256Hex(absl::StrCat(stage_key, " ", what)));
    artifact.set_bytes(1000);
    return artifact;
  }
  static void AddMetric(v1::TaskResult* result, const std::string& name, double value) {
    v1::MetricValue* metric = result->add_metrics();
    metric->set_metric(name);
    metric->set_value(value);
  }

  std::function<double(const v1::EvaluationTask&)> loss_targets;  // unset: of length and seed
  int documents = 0;                                              // losses by so many documents in each result
  std::vector<v1::AttemptAck> accepted, refused;
  v1::SyncRequest last_request;

 private:
  v1::Executor executor_;
  v1::WorkerInfo info_;
  int64_t sequence_ = 0;
  std::map<Key, v1::Assignment> assigned_;
  std::map<Key, v1::AttemptReport> outbox_;
};

}  // namespace ablate
