// ablate claims, effects, spread; sweep lock, sweep extend; job verify, job verifications
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "cli/commands.h"
#include "cli/connection.h"

namespace ablate {
namespace {

constexpr auto kAskAgain = std::chrono::milliseconds(300);

absl::StatusOr<int64_t> Count(const Invocation& invocation, const char* flag, int64_t otherwise, int64_t least) {
  if (!invocation.Has(flag)) return otherwise;
  int64_t number = 0;
  if (!absl::SimpleAtoi(invocation.Get(flag), &number) || number < least) {
    return UsageError(
        absl::StrCat(flag, ": expected a whole number of at least ", least, ", found \"", invocation.Get(flag), "\""));
  }
  return number;
}

std::vector<std::string> List(const Invocation& invocation, const char* flag) {
  return absl::StrSplit(invocation.Get(flag), ',', absl::SkipEmpty());
}

// Until each of these second runs was compared or has ended.
absl::StatusOr<v1::ListVerificationsResponse> Await(const Invocation& invocation, Client* client,
                                                    const std::set<std::string>& jobs) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const v1::ListVerificationsResponse all,
                            client->Call(&v1::Jobs::Stub::ListVerifications, v1::ListVerificationsRequest()));
    v1::ListVerificationsResponse mine;
    bool pending = false;
    for (const v1::Verification& one : all.verifications()) {
      if (!jobs.contains(one.verify_job_id())) continue;
      *mine.add_verifications() = one;
      pending |= one.result() == v1::Verification::PENDING;
    }
    if (!pending) return mine;
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (invocation.timeout().has_value() && waited.count() > *invocation.timeout()) {
      return absl::DeadlineExceededError(
          absl::StrCat("not all of the second runs are done after ", invocation.Get("--timeout"),
                       "; they go on: ablate job verifications", WhereFlags(invocation)));
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace

absl::StatusOr<int> RunClaims(const Invocation& invocation) {
  v1::GetClaimsRequest request;
  request.set_sweep(invocation.arguments[0]);
  for (size_t i = 1; i < invocation.arguments.size(); ++i) request.add_also(invocation.arguments[i]);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetClaimsResponse response,
                          connection->client().Call(&v1::Results::Stub::GetClaims, request));
  if (response.claims().empty() && !invocation.for_programs()) {
    Say(absl::StrCat("sweep ", request.sweep(), " states no claims"));
    if (!response.has_gate() && !response.has_lock() && response.tuning().empty() && response.deviations().empty())
      return kExitDone;
  }
  Emit(invocation, ClaimsReport(response));
  if (!response.waiting_for().empty()) Say(absl::StrCat("it waits for: ", response.waiting_for()));
  return kExitDone;
}

absl::StatusOr<int> RunEffects(const Invocation& invocation) {
  v1::GetEffectsRequest request;
  request.set_sweep(invocation.arguments[0]);
  for (const std::string& factor : List(invocation, "--factor")) request.add_factors(factor);
  for (const std::string& metric : List(invocation, "--metric")) request.add_metrics(metric);
  ABLATE_ASSIGN_OR_RETURN(const double level, LevelFlag(invocation));
  request.set_level(level);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetEffectsResponse response,
                          connection->client().Call(&v1::Results::Stub::GetEffects, request));
  Emit(invocation, EffectsReport(response));
  if (response.rows().empty())
    Say(absl::StrCat("no effects: ", request.factors().empty()
                                         ? "the sweep's file names no factors (factorial: {factors: "
                                           "[...]}; or give --factor), or nothing is measured yet"
                                         : "nothing is measured yet"));
  return kExitDone;
}

absl::StatusOr<int> RunSpread(const Invocation& invocation) {
  v1::GetSpreadRequest request;
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const double level, LevelFlag(invocation));
  request.set_level(level);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::GetSpreadResponse response,
                          connection->client().Call(&v1::Results::Stub::GetSpread, request));
  Emit(invocation, SpreadReport(response));
  if (response.rows().empty()) Say("no losses by document are stored for it");
  return kExitDone;
}

absl::StatusOr<int> RunSweepLock(const Invocation& invocation) {
  if (!invocation.Has("--arm")) return UsageError("--arm is missing: name a candidate, e.g. --arm attention.p=15");
  if (invocation.Get("--why").empty()) {
    return UsageError("--why is missing: a lock by hand is recorded as a deviation, with its reason");
  }
  v1::LockSweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(*request.mutable_arm_json(), ArmJson("--arm", invocation.Get("--arm")));
  request.set_why(invocation.Get("--why"));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::Sweep sweep, connection->client().Call(&v1::Sweeps::Stub::LockSweep, request));
  Emit(invocation, SweepReport({sweep}));
  Say(absl::StrCat("locked by hand, which is recorded as a deviation: ablate claims ", ShellQuoted(sweep.name()),
                   WhereFlags(invocation)));
  return kExitDone;
}

absl::StatusOr<int> RunSweepExtend(const Invocation& invocation) {
  Progress progress(stderr);
  ABLATE_ASSIGN_OR_RETURN(const SweepInput input, ReadInput(invocation, &progress, /*need_data=*/true));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_RETURN_IF_ERROR(UploadData(&connection->client(), input, &progress));
  v1::ExtendSweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(input.spec.name());
  request.set_yaml(input.yaml);
  request.set_file_name(input.file_name);
  *request.mutable_data() = input.data;
  request.mutable_task_files()->Assign(input.task_files.begin(), input.task_files.end());
  ABLATE_ASSIGN_OR_RETURN(const v1::SubmitSweepResponse response,
                          connection->client().Call(&v1::Sweeps::Stub::ExtendSweep, request));
  Emit(invocation, SweepReport({response.sweep()}));
  Say(response.created()
          ? absl::StrCat("extended ", response.sweep().name(), ": ", Counted(response.new_jobs(), "new job"), ", ",
                         response.reused_jobs(), " there already; recorded as an amendment")
          : absl::StrCat(response.sweep().name(), " has all of this already: nothing new"));
  return kExitDone;
}

absl::StatusOr<int> RunJobVerify(const Invocation& invocation) {
  v1::VerifyJobsRequest request;
  request.set_request_id(NewRequestId());
  ABLATE_ASSIGN_OR_RETURN(const int64_t sample, Count(invocation, "--sample", 1, 1));
  ABLATE_ASSIGN_OR_RETURN(const int64_t seed, Count(invocation, "--seed", 0, 0));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  if (connection->is_private()) {
    return absl::FailedPreconditionError(absl::StrCat("nothing runs on ", ShellQuoted(invocation.Get("--data-dir")),
                                                      ": start ablate-server and a worker on it, then give --server"));
  }
  // A job's id, else a sweep's name or id.
  v1::GetJobRequest job;
  job.set_job_id(invocation.arguments[0]);
  const absl::Status is_job = connection->client().Call(&v1::Jobs::Stub::GetJob, job).status();
  if (!is_job.ok() && !absl::IsNotFound(is_job)) return is_job;
  if (is_job.ok()) {
    request.set_job_id(invocation.arguments[0]);
  } else {
    request.set_sweep(invocation.arguments[0]);
    request.set_sample(static_cast<int32_t>(std::min<int64_t>(sample, 10'000)));
    request.set_seed(seed);
  }
  ABLATE_ASSIGN_OR_RETURN(const v1::VerifyJobsResponse made,
                          connection->client().Call(&v1::Jobs::Stub::VerifyJobs, request));
  std::set<std::string> jobs;
  for (const v1::Job& one : made.jobs()) jobs.insert(one.job_id());
  Say(absl::StrCat("running ", Counted(static_cast<int64_t>(jobs.size()), "job"), " a second time"));
  ABLATE_ASSIGN_OR_RETURN(const v1::ListVerificationsResponse outcome, Await(invocation, &connection->client(), jobs));
  Emit(invocation, VerificationsReport(outcome));
  for (const v1::Verification& one : outcome.verifications()) {
    if (one.result() == v1::Verification::DIFFERENT || one.result() == v1::Verification::FAILED) return kExitJobsFailed;
  }
  return kExitDone;
}

absl::StatusOr<int> RunJobVerifications(const Invocation& invocation) {
  v1::ListVerificationsRequest request;
  if (!invocation.arguments.empty()) request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::ListVerificationsResponse response,
                          connection->client().Call(&v1::Jobs::Stub::ListVerifications, request));
  Emit(invocation, VerificationsReport(response));
  return kExitDone;
}

}  // namespace ablate
