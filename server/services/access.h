// Tokens over gRPC: a thin adapter to the token registry. Who may call is decided before (caller.h).
#pragma once

#include "proto/access.grpc.pb.h"
#include "server/access/tokens.h"

namespace ablate {

class AccessService final : public v1::Access::Service {
 public:
  // `tokens` null: every method is Unimplemented.
  explicit AccessService(TokenRegistry* tokens) : tokens_(tokens) {}

  grpc::Status CreateToken(grpc::ServerContext* context, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override;
  grpc::Status ListTokens(grpc::ServerContext* context, const v1::ListTokensRequest* request,
                          v1::ListTokensResponse* response) override;
  grpc::Status RevokeToken(grpc::ServerContext* context, const v1::RevokeTokenRequest* request,
                           v1::Token* response) override;

 private:
  TokenRegistry* const tokens_;
};

}  // namespace ablate
