#include "cli/failures.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/output/report.h"

namespace ablate {
namespace {

constexpr size_t kMaxCauses = 5;
constexpr size_t kMessageWidth = 400;

struct Cause {
  std::string text, job_id;
  int64_t count = 0;
};

}  // namespace

std::string FailureLine(const v1::Failure& failure, size_t width) {
  if (failure.kind() == v1::FAILURE_KIND_UNSPECIFIED && failure.message().empty()) return "";
  const std::string kind = absl::AsciiStrToLower(v1::FailureKind_Name(failure.kind()));
  return Shortened(absl::StrCat(kind, failure.message().empty() ? "" : ": ", failure.message()), width);
}

std::vector<std::string> FailureLines(const std::vector<v1::Job>& failed) {
  std::vector<Cause> causes;
  std::map<std::string, size_t> index;
  int64_t upstream = 0;
  for (const v1::Job& job : failed) {
    if (job.last_failure().kind() == v1::UPSTREAM_FAILED) {
      ++upstream;
      continue;
    }
    const std::string text = FailureLine(job.last_failure(), kMessageWidth);
    const auto [found, added] = index.emplace(text, causes.size());
    if (added) causes.push_back({.text = text, .job_id = job.job_id()});
    ++causes[found->second].count;
  }
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) { return a.count > b.count; });
  std::vector<std::string> lines;
  for (size_t i = 0; i < causes.size() && i < kMaxCauses; ++i) {
    lines.push_back(absl::StrCat(causes[i].count, " x ", causes[i].text.empty() ? "(no message)" : causes[i].text, " (",
                                 causes[i].job_id, ")"));
  }
  if (causes.size() > kMaxCauses)
    lines.push_back(absl::StrCat("and ", Counted(causes.size() - kMaxCauses, "other cause")));
  if (upstream > 0) lines.push_back(absl::StrCat(upstream, " because the job that they build on failed"));
  return lines;
}

absl::StatusOr<std::vector<v1::Job>> ListAllJobs(Client* client, const std::string& sweep,
                                                 const std::vector<v1::JobState>& states) {
  v1::ListJobsRequest request;
  request.set_sweep(sweep);
  for (const v1::JobState state : states) request.add_states(state);
  request.set_page_size(1000);
  std::vector<v1::Job> jobs;
  do {
    ABLATE_ASSIGN_OR_RETURN(const v1::ListJobsResponse page, client->Call(&v1::Jobs::Stub::ListJobs, request));
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

void SayFailures(Client* client, const v1::Sweep& sweep, const std::string& where) {
  if (sweep.jobs().failed() == 0) return;
  Say(absl::StrCat("\n", Counted(sweep.jobs().failed(), "job"), " failed:"));
  const absl::StatusOr<std::vector<v1::Job>> failed = ListAllJobs(client, sweep.sweep_id(), {v1::FAILED});
  if (failed.ok()) {
    for (const std::string& line : FailureLines(*failed)) Say(absl::StrCat("  ", line));
  } else {
    Say(absl::StrCat("  (", failed.status().message(), ")"));
  }
  Say(absl::StrCat("all of them: ablate job list ", sweep.name(), " --state failed", where,
                   "\none with its trainer's last lines: ablate job logs JOB", where));
}

}  // namespace ablate
