// ablate token ...
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/connection.h"

namespace ablate {
namespace {

std::string StateOf(const v1::Token& token, int64_t now_us) {
  if (token.revoked_at_us() != 0) return "revoked";
  return token.expires_at_us() != 0 && now_us >= token.expires_at_us() ? "expired" : "in use";
}

Report TokenReport(const std::vector<v1::Token>& tokens) {
  Report report;
  report.records.columns = {"name",       "role",       "state",        "token_id", "created_at",
                            "expires_at", "revoked_at", "last_used_at", "workers"};
  const int64_t now_us = Clock::Real().WallMicros();
  for (const v1::Token& token : tokens) {
    report.records.rows.push_back(
        {Cell::Text(token.name()), Cell::Text(token.role()), Cell::Text(StateOf(token, now_us)),
         Cell::Text(token.token_id()), TimeCell(token.created_at_us()), TimeCell(token.expires_at_us()),
         TimeCell(token.revoked_at_us()), TimeCell(token.last_used_at_us()), Cell::Text(absl::StrJoin(token.workers(), ","))});
  }
  return report;
}

}  // namespace

absl::StatusOr<int> RunTokenCreate(const Invocation& invocation) {
  if (!invocation.Has("--role") || !invocation.Has("--name"))
    return UsageError("ablate token create: --role ROLE (read, submit, worker or admin) and --name NAME are needed");
  v1::CreateTokenRequest request;
  request.set_role(invocation.Get("--role"));
  request.set_token_name(invocation.Get("--name"));
  if (invocation.Has("--expires")) {
    const absl::StatusOr<double> lifetime = ParseDuration(invocation.Get("--expires"));
    if (!lifetime.ok()) return UsageError(absl::StrCat("--expires: ", lifetime.status().message()));
    if (*lifetime < 1) return UsageError("--expires: a token lives for a second at least");
    request.set_lifetime_seconds(static_cast<int64_t>(*lifetime));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::CreateTokenResponse created,
                          connection->client().Call(&v1::Access::Stub::CreateToken, request));
  if (invocation.for_programs()) {
    Report report = TokenReport({created.token()});
    report.records.columns.push_back("token");
    report.records.rows[0].push_back(Cell::Text(created.secret()));
    Emit(invocation, report);
    return kExitDone;
  }
  // Alone on stdout, so that a script can keep it without it ever being an argument.
  std::printf("%s\n", created.secret().c_str());
  Say(absl::StrCat("token ", created.token().name(), " (", created.token().token_id(), ", role ", created.token().role(),
                   "): shown this once"));
  return kExitDone;
}

absl::StatusOr<int> RunTokenList(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  std::vector<v1::Token> tokens;
  v1::ListTokensRequest request;
  request.set_page_size(1000);
  do {
    ABLATE_ASSIGN_OR_RETURN(const v1::ListTokensResponse page,
                            connection->client().Call(&v1::Access::Stub::ListTokens, request));
    tokens.insert(tokens.end(), page.tokens().begin(), page.tokens().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  Emit(invocation, TokenReport(tokens));
  return kExitDone;
}

absl::StatusOr<int> RunTokenRevoke(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::RevokeTokenRequest request;
  request.set_token(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const v1::Token token, connection->client().Call(&v1::Access::Stub::RevokeToken, request));
  Emit(invocation, TokenReport({token}));
  return kExitDone;
}

}  // namespace ablate
