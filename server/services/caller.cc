#include "server/services/caller.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "server/access/roles.h"
#include "server/services/adapter.h"

namespace ablate {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr char kAuthorization[] = "authorization";

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

// "" unless there is exactly one: of two, nobody can tell whom a proxy before us has looked at.
template <typename Metadata>
std::string_view AuthorizationIn(const Metadata& metadata) {
  const auto [first, end] = metadata.equal_range(kAuthorization);
  return first != end && std::next(first) == end ? ViewOf(first->second) : "";
}

}  // namespace

absl::StatusOr<TokenHolder> CallerPolicy::HolderOf(std::string_view authorization) const {
  if (open()) return TokenHolder{.role = Role::kAdmin};
  if (authorization.substr(0, kBearer.size()) != kBearer) {
    return absl::UnauthenticatedError(
        "the coordinator demands a token: set ABLATE_TOKEN, or name a file that holds one with --token-file; an admin of "
        "the coordinator makes it with `ablate token create`");
  }
  return tokens_->Check(authorization.substr(kBearer.size()));
}

absl::Status CallerPolicy::Check(std::string_view path, std::string_view authorization) const {
  const MethodRule* const rule = FindMethodRule(path);
  if (rule == nullptr) return absl::UnimplementedError("the coordinator has no such method");
  if (rule->is_public || open()) return absl::OkStatus();
  const absl::StatusOr<TokenHolder> holder = HolderOf(authorization);
  if (!holder.ok()) return holder.status();
  if (rule->Allows(holder->role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the token ", holder->name, " has the role ", ToAbsl(RoleName(holder->role)), "; ",
      ToAbsl(rule->method.substr(rule->method.find('/') + 1)), " needs ", rule->RolesText(),
      ": ask an admin of the coordinator for a token that may"));
}

grpc::Status Guard::Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(":path");
  return ToGrpc(policy_->Check(path == metadata.end() ? "" : ViewOf(path->second), AuthorizationIn(metadata)));
}

Caller::Caller(const CallerPolicy& policy, const grpc::ServerContext& context)
    : policy_(policy), holder_(policy.HolderOf(AuthorizationIn(context.client_metadata()))) {}

absl::Status Caller::CheckLive() const {
  if (policy_.open()) return absl::OkStatus();
  return holder_.ok() ? policy_.tokens()->CheckLive(holder_->row) : holder_.status();
}

absl::Status Caller::MayActAs(const std::string& worker_id) const {
  if (policy_.open()) return absl::OkStatus();
  if (!holder_.ok()) return holder_.status();
  return holder_->role == Role::kWorker ? policy_.tokens()->BindWorker(*holder_, worker_id) : absl::OkStatus();
}

}  // namespace ablate
