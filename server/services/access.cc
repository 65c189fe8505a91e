#include "server/services/access.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "server/services/adapter.h"

namespace ablate {
namespace {

v1::Token TokenMessage(const TokenRecord& record) {
  v1::Token token;
  token.set_token_id(record.token_id);
  token.set_name(record.name);
  token.set_role(std::string(RoleName(record.role)));
  token.set_created_at_us(record.created_us);
  token.set_expires_at_us(record.expires_us);
  token.set_revoked_at_us(record.revoked_us);
  token.set_last_used_at_us(record.last_used_us);
  for (const std::string& worker : record.workers) token.add_workers(worker);
  return token;
}

grpc::Status NoTokens() { return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "there are no tokens here"); }

}  // namespace

grpc::Status AccessService::CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) {
  if (tokens_ == nullptr) return NoTokens();
  if (const absl::Status status = CheckRequest(*request); !status.ok()) return ToGrpc(status);
  const std::optional<Role> role = ParseRole(request->role());
  if (!role.has_value()) {
    return ToGrpc(absl::InvalidArgumentError(
        absl::StrCat("CreateTokenRequest.role: \"", request->role(), "\"", DidYouMean(request->role(), RoleNames()))));
  }
  const absl::StatusOr<TokenRegistry::Created> created =
      tokens_->Create(*role, request->token_name(), request->lifetime_seconds());
  if (!created.ok()) return ToGrpc(created.status());
  *response->mutable_token() = TokenMessage(created->record);
  response->set_secret(created->secret);
  return grpc::Status::OK;
}

grpc::Status AccessService::ListTokens(grpc::ServerContext*, const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) {
  if (tokens_ == nullptr) return NoTokens();
  if (const absl::Status status = CheckRequest(*request); !status.ok()) return ToGrpc(status);
  int64_t after = 0;
  if (!request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &after))
    return ToGrpc(absl::InvalidArgumentError("ListTokensRequest.page_token: not one of an earlier answer"));
  const int size = request->page_size() == 0 ? 100 : request->page_size();
  for (const TokenRecord& record : tokens_->List()) {
    if (record.row <= after) continue;
    if (response->tokens_size() == size) {
      response->set_next_page_token(absl::StrCat(after));
      break;
    }
    *response->add_tokens() = TokenMessage(record);
    after = record.row;
  }
  return grpc::Status::OK;
}

grpc::Status AccessService::RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest* request,
                                        v1::Token* response) {
  if (tokens_ == nullptr) return NoTokens();
  if (const absl::Status status = CheckRequest(*request); !status.ok()) return ToGrpc(status);
  const absl::StatusOr<TokenRecord> revoked = tokens_->Revoke(request->token());
  if (!revoked.ok()) return ToGrpc(revoked.status());
  *response = TokenMessage(*revoked);
  return grpc::Status::OK;
}

}  // namespace ablate
