// Who calls, and whether they may: the check of every method of every service, before its handler runs, and what
// handlers of long calls ask about their caller meanwhile.
// Identity is derived from the call's own metadata each time: gRPC's AuthContext belongs to the connection, which calls
// of several tokens may share.
// Thread rule: safe to call from any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "server/access/tokens.h"

namespace ablate {

// Of one listener.
class CallerPolicy {
 public:
  // `tokens` null or not demanded: whoever reaches the listener is an admin.
  CallerPolicy(TokenRegistry* tokens, bool demand_tokens) : tokens_(demand_tokens ? tokens : nullptr) {}

  bool open() const { return tokens_ == nullptr; }
  TokenRegistry* tokens() const { return tokens_; }

  // `path`: "/ablate.v1.Sweeps/GetSweep"; `authorization`: the header's value, "" without one. Unimplemented: the method
  // is not in the table of roles. Unauthenticated: no token, or not a good one. PermissionDenied: it has another role.
  absl::Status Check(std::string_view path, std::string_view authorization) const;
  // Unauthenticated. On an open listener: nobody, whom everything is allowed.
  absl::StatusOr<TokenHolder> HolderOf(std::string_view authorization) const;

 private:
  TokenRegistry* const tokens_;
};

// gRPC asks it before every call, of whatever service.
class Guard final : public grpc::AuthMetadataProcessor {
 public:
  explicit Guard(const CallerPolicy* policy) : policy_(policy) {}
  bool IsBlocking() const override { return false; }  // it waits for nothing
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

 private:
  const CallerPolicy* const policy_;
};

// The caller of a call that is being handled.
class Caller {
 public:
  Caller(const CallerPolicy& policy, const grpc::ServerContext& context);

  // OK while the caller may go on. Unauthenticated: the token was revoked or has expired since the call began.
  absl::Status CheckLive() const;
  // PermissionDenied: the worker belongs to another token. Only tokens of role worker are bound to workers.
  absl::Status MayActAs(const std::string& worker_id) const;

 private:
  const CallerPolicy& policy_;
  absl::StatusOr<TokenHolder> holder_;
};

}  // namespace ablate
