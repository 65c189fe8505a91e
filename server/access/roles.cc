#include "server/access/roles.h"

#include <map>

namespace ablate {
namespace {

constexpr unsigned Bit(Role role) { return 1u << static_cast<unsigned>(role); }

// An admin may do everything, so that one token is enough to begin with. A submitter sees what a reader sees. A worker
// sees only its own work: it runs on machines that many log into.
constexpr unsigned kAdmins = Bit(Role::kAdmin);
constexpr unsigned kSubmitters = Bit(Role::kSubmit) | kAdmins;
constexpr unsigned kReaders = Bit(Role::kRead) | kSubmitters;
constexpr unsigned kWorkers = Bit(Role::kWorker) | kAdmins;
constexpr unsigned kAll = kReaders | kWorkers;
constexpr unsigned kUploaders = kSubmitters | kWorkers;

}  // namespace

const std::vector<MethodRule>& MethodRules() {
  static const auto& rules = *new std::vector<MethodRule>{
      // It computes on the caller's text: not for those who may only look.
      {"ablate.v1.Sweeps/PlanSweep", kSubmitters},
      {"ablate.v1.Sweeps/SubmitSweep", kSubmitters},
      {"ablate.v1.Sweeps/GetSweep", kReaders},
      {"ablate.v1.Sweeps/ListSweeps", kReaders},
      {"ablate.v1.Sweeps/GetGrid", kReaders},
      {"ablate.v1.Sweeps/WatchSweep", kReaders},
      {"ablate.v1.Sweeps/WatchChanges", kReaders},
      {"ablate.v1.Sweeps/CancelSweep", kSubmitters},
      {"ablate.v1.Sweeps/RetrySweep", kSubmitters},
      {"ablate.v1.Sweeps/ResumeSweep", kSubmitters},
      {"ablate.v1.Sweeps/LockSweep", kSubmitters},
      {"ablate.v1.Sweeps/ExtendSweep", kSubmitters},
      {"ablate.v1.Jobs/ListJobs", kReaders},
      {"ablate.v1.Jobs/GetJob", kReaders},
      {"ablate.v1.Jobs/GetJobLogs", kReaders},
      {"ablate.v1.Jobs/ExplainJob", kReaders},
      {"ablate.v1.Jobs/CancelJob", kSubmitters},
      {"ablate.v1.Jobs/VerifyJobs", kSubmitters},
      {"ablate.v1.Jobs/ListVerifications", kReaders},
      {"ablate.v1.Results/GetTable", kReaders},
      {"ablate.v1.Results/CompareArms", kReaders},
      {"ablate.v1.Results/GetClaims", kReaders},
      {"ablate.v1.Results/GetEffects", kReaders},
      {"ablate.v1.Results/GetSpread", kReaders},
      {"ablate.v1.Results/GetCurves", kReaders},
      {"ablate.v1.Results/Query", kReaders},
      {"ablate.v1.Workers/ListWorkers", kReaders},
      // It ends a daemon that all use.
      {"ablate.v1.Workers/DrainWorker", kAdmins},
      {"ablate.v1.WorkerLink/Sync", kWorkers},
      {"ablate.v1.Artifacts/StatArtifact", kAll},
      {"ablate.v1.Artifacts/UploadArtifact", kUploaders},
      {"ablate.v1.Artifacts/DownloadArtifact", kAll},
      {"ablate.v1.Access/CreateToken", kAdmins},
      {"ablate.v1.Access/ListTokens", kAdmins},
      {"ablate.v1.Access/RevokeToken", kAdmins},
      // Says that the server serves, nothing else; load balancers have no token.
      {"grpc.health.v1.Health/Check", kAll, /*is_public=*/true},
      {"grpc.health.v1.Health/Watch", kReaders},
      {"grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kReaders},
  };
  return rules;
}

const MethodRule* FindMethodRule(std::string_view path) {
  static const auto& index = *[] {
    auto* rules = new std::map<std::string_view, const MethodRule*>;
    for (const MethodRule& rule : MethodRules()) rules->emplace(rule.method, &rule);
    return rules;
  }();
  if (path.empty() || path.front() != '/') return nullptr;
  const auto found = index.find(path.substr(1));
  return found == index.end() ? nullptr : found->second;
}

const std::vector<std::string>& RoleNames() {
  static const auto& names = *new std::vector<std::string>{"read", "submit", "worker", "admin"};
  return names;
}

std::string_view RoleName(Role role) { return RoleNames()[static_cast<size_t>(role)]; }

std::optional<Role> ParseRole(std::string_view name) {
  for (size_t i = 0; i < RoleNames().size(); ++i) {
    if (RoleNames()[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::string MethodRule::RolesText() const {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < RoleNames().size(); ++i) {
    if (Allows(static_cast<Role>(i))) names.push_back(RoleNames()[i]);
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace ablate
