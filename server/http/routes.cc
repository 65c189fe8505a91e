#include "server/http/routes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "server/coordinator.h"

namespace ablate {
namespace {

using google::protobuf::Message;

// One of Coordinator's methods behind the types that all share.
template <auto kMethod>
struct Bound;
template <typename Request, typename Response, absl::StatusOr<Response> (Coordinator::*kMethod)(const Request&)>
struct Bound<kMethod> {
  static std::unique_ptr<Message> NewRequest() { return std::make_unique<Request>(); }
  static absl::StatusOr<std::unique_ptr<Message>> Call(Coordinator* coordinator, const Message& request) {
    absl::StatusOr<Response> answer = (coordinator->*kMethod)(static_cast<const Request&>(request));
    if (!answer.ok()) return answer.status();
    return std::make_unique<Response>(*std::move(answer));
  }
};

template <auto kMethod>
constexpr Route Get(std::string_view pattern, std::string_view rule) {
  return {"GET", pattern, rule, Route::Kind::kCall, &Bound<kMethod>::NewRequest, &Bound<kMethod>::Call};
}
template <auto kMethod>
constexpr Route Post(std::string_view pattern, std::string_view rule) {
  return {"POST", pattern, rule, Route::Kind::kCall, &Bound<kMethod>::NewRequest, &Bound<kMethod>::Call};
}

constexpr std::string_view kHealthRule = "grpc.health.v1.Health/Check";

constexpr Route kRoutes[] = {
    {"GET", "/api/v1/health", kHealthRule, Route::Kind::kHealth},
    {"GET", "/api/v1/me", kHealthRule, Route::Kind::kMe},  // also of somebody without a token: the page has to ask for one
    {"GET", "/api/v1/changes", "ablate.v1.Sweeps/WatchChanges", Route::Kind::kChanges},

    Get<&Coordinator::ListSweeps>("/api/v1/sweeps", "ablate.v1.Sweeps/ListSweeps"),
    Get<&Coordinator::GetSweep>("/api/v1/sweeps/{sweep}", "ablate.v1.Sweeps/GetSweep"),
    Get<&Coordinator::GetGrid>("/api/v1/sweeps/{sweep}/grid", "ablate.v1.Sweeps/GetGrid"),
    Get<&Coordinator::GetTable>("/api/v1/sweeps/{sweep}/table", "ablate.v1.Results/GetTable"),
    Get<&Coordinator::CompareArms>("/api/v1/sweeps/{sweep}/comparison", "ablate.v1.Results/CompareArms"),
    Get<&Coordinator::GetClaims>("/api/v1/sweeps/{sweep}/claims", "ablate.v1.Results/GetClaims"),
    Get<&Coordinator::GetEffects>("/api/v1/sweeps/{sweep}/effects", "ablate.v1.Results/GetEffects"),
    Get<&Coordinator::GetSpread>("/api/v1/sweeps/{sweep}/spread", "ablate.v1.Results/GetSpread"),
    Get<&Coordinator::GetCurves>("/api/v1/sweeps/{sweep}/curves", "ablate.v1.Results/GetCurves"),
    Get<&Coordinator::ListJobs>("/api/v1/sweeps/{sweep}/jobs", "ablate.v1.Jobs/ListJobs"),
    Get<&Coordinator::ListVerifications>("/api/v1/sweeps/{sweep}/verifications", "ablate.v1.Jobs/ListVerifications"),
    Post<&Coordinator::CancelSweep>("/api/v1/sweeps/{sweep}/cancel", "ablate.v1.Sweeps/CancelSweep"),
    Post<&Coordinator::RetrySweep>("/api/v1/sweeps/{sweep}/retry", "ablate.v1.Sweeps/RetrySweep"),
    Post<&Coordinator::ResumeSweep>("/api/v1/sweeps/{sweep}/resume", "ablate.v1.Sweeps/ResumeSweep"),
    Post<&Coordinator::LockSweep>("/api/v1/sweeps/{sweep}/lock", "ablate.v1.Sweeps/LockSweep"),
    Post<&Coordinator::VerifyJobs>("/api/v1/sweeps/{sweep}/verify", "ablate.v1.Jobs/VerifyJobs"),

    Get<&Coordinator::GetJob>("/api/v1/jobs/{job_id}", "ablate.v1.Jobs/GetJob"),
    Get<&Coordinator::GetJobLogs>("/api/v1/jobs/{job_id}/logs", "ablate.v1.Jobs/GetJobLogs"),
    Get<&Coordinator::ExplainJob>("/api/v1/jobs/{job_id}/explanation", "ablate.v1.Jobs/ExplainJob"),
    Post<&Coordinator::CancelJob>("/api/v1/jobs/{job_id}/cancel", "ablate.v1.Jobs/CancelJob"),
    Post<&Coordinator::VerifyJobs>("/api/v1/jobs/{job_id}/verify", "ablate.v1.Jobs/VerifyJobs"),

    Get<&Coordinator::ListWorkers>("/api/v1/workers", "ablate.v1.Workers/ListWorkers"),
    Post<&Coordinator::DrainWorker>("/api/v1/workers/{worker_id}/drain", "ablate.v1.Workers/DrainWorker"),
};

bool Matches(std::string_view pattern, const std::vector<std::string>& segments,
             std::vector<std::pair<std::string, std::string>>* fields) {
  fields->clear();
  const std::vector<absl::string_view> parts = absl::StrSplit(ToAbsl(pattern.substr(1)), '/');
  if (parts.size() != segments.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].front() == '{') {
      fields->emplace_back(std::string(parts[i].substr(1, parts[i].size() - 2)), segments[i]);
    } else if (parts[i] != segments[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

absl::StatusOr<FoundRoute> FindRoute(std::string_view method, const std::vector<std::string>& segments, std::string* allowed) {
  FoundRoute found;
  std::set<std::string> methods;
  for (const Route& route : kRoutes) {
    if (!Matches(route.pattern, segments, &found.fields)) continue;
    if (route.method == method) {
      found.route = &route;
      return found;
    }
    methods.emplace(route.method);
  }
  const std::string path = absl::StrCat("/", absl::StrJoin(segments, "/"));
  if (methods.empty()) return absl::NotFoundError(absl::StrCat("there is nothing at ", path, "; docs/http-api.md lists all addresses"));
  *allowed = absl::StrJoin(methods, ", ");
  return absl::UnimplementedError(absl::StrCat(path, " takes ", *allowed));
}

}  // namespace ablate
