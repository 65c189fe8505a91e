// ablate job artifacts, ablate job map: the files that evaluations made.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/paths.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/failures.h"
#include "cli/report/attention_figure.h"

namespace ablate {
namespace {

constexpr int64_t kLargestMade = int64_t{1} << 30;

absl::StatusOr<v1::Job> FetchJob(Client* client, const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  ABLATE_ASSIGN_OR_RETURN(const v1::GetJobResponse response, client->Call(&v1::Jobs::Stub::GetJob, request));
  return response.job();
}

std::string WhyNoMap(const v1::Job& job, const std::string& where) {
  if (TaskName(job) != "attention_map") return ": only evaluations of the task attention_map make one";
  switch (job.state()) {
    case v1::SUCCEEDED:
      return job.outcome() == v1::DIVERGED ? ", as its run diverged" : "";
    case v1::FAILED: {
      const std::string failure = FailureLine(job.last_failure(), 160);
      return absl::StrCat(", as it failed", failure.empty() ? "" : ": ", failure, "\nwhat it left: ablate job show ",
                          job.job_id(), where);
    }
    case v1::CANCELLED:
      return ", as it was cancelled";
    default:
      return absl::StrCat(", as it is not done yet; how it stands: ablate job explain ", job.job_id(), where);
  }
}

}  // namespace

std::string TaskName(const v1::Job& job) {
  if (!job.task().has_evaluation()) return "";
  for (const v1::Setting& setting : job.task().evaluation().eval_config().settings()) {
    if (setting.axis() == "eval.task") return setting.value().text();
  }
  return "loss";
}

absl::StatusOr<AttentionMap> FetchAttentionMap(Client* client, const v1::Job& job, const std::string& where) {
  for (const v1::ResultArtifact& made : job.artifacts()) {
    if (made.name() != kAttentionMapFile) continue;
    ABLATE_ASSIGN_OR_RETURN(const std::string bytes, client->Download(made.artifact().sha256(), kLargestMade));
    return DecodeAttentionMap(bytes);
  }
  return absl::NotFoundError(absl::StrCat("job ", job.job_id(), " has no attention map", WhyNoMap(job, where)));
}

absl::StatusOr<int> RunJobArtifacts(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::Job job, FetchJob(&connection->client(), invocation.arguments[0]));
  const std::string folder = invocation.Get("--fetch");
  if (!folder.empty()) ABLATE_RETURN_IF_ERROR(MakeDirs(folder));
  Report report;
  report.records.columns = {"job_id", "name", "media_type", "bytes", "sha256", "path"};
  Sheet sheet;
  sheet.columns = {{.title = "file"}, {.title = "kind"}, {.title = "size", .right = true}, {.title = "SHA-256"}};
  for (const v1::ResultArtifact& made : job.artifacts()) {
    std::string path;
    if (!folder.empty()) {
      // The server has checked it; this machine is ours, and the server may be somebody else's.
      ABLATE_RETURN_IF_ERROR(CheckFileName("a made file", made.name()));
      ABLATE_ASSIGN_OR_RETURN(const std::string bytes,
                              connection->client().Download(made.artifact().sha256(), kLargestMade));
      path = JoinPath(folder, made.name());
      ABLATE_RETURN_IF_ERROR(WriteFileAtomic(path, bytes));
      Say(absl::StrCat("wrote ", path));
    }
    report.records.rows.push_back({Cell::Text(job.job_id()), Cell::Text(made.name()), Cell::Text(made.media_type()),
                                   Cell::Integer(made.artifact().bytes()), Cell::Text(made.artifact().sha256()),
                                   path.empty() ? Cell::Null() : Cell::Text(path)});
    sheet.rows.push_back(
        {made.name(), made.media_type(), HumanBytes(made.artifact().bytes()), made.artifact().sha256()});
  }
  report.sheets = {std::move(sheet)};
  Emit(invocation, report);
  if (job.artifacts().empty()) Say(absl::StrCat("job ", job.job_id(), " made no files"));
  return kExitDone;
}

absl::StatusOr<int> RunJobMap(const Invocation& invocation) {
  const std::string path = invocation.Get("--output-file");
  if (path.empty()) return UsageError("-o is missing: name the picture, e.g. -o map.svg");
  const bool png = absl::EndsWith(path, ".png");
  if (!png && !absl::EndsWith(path, ".svg")) {
    return UsageError(absl::StrCat("-o: expected a file that ends in .svg or .png, found \"", path, "\""));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::Job job, FetchJob(&connection->client(), invocation.arguments[0]));
  ABLATE_ASSIGN_OR_RETURN(const AttentionMap map, FetchAttentionMap(&connection->client(), job, WhereFlags(invocation)));
  const v1::EvaluationTask& task = job.task().evaluation();
  const std::string title = absl::StrCat(job.arm_label(), ", seed ", task.seed(), ": ", task.split());
  ABLATE_ASSIGN_OR_RETURN(const std::string picture, png ? AttentionMapPng(map) : AttentionMapSvg(map, title));
  ABLATE_RETURN_IF_ERROR(WriteFileAtomic(path, picture));
  Say(absl::StrCat("wrote ", path, ": ", map.layers, " layers of ", map.heads, " heads over ", map.length(),
                   " tokens"));
  return kExitDone;
}

}  // namespace ablate
