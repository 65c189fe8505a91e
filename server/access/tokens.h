// The tokens of a coordinator: made, looked up, revoked. A token is 256 random bits that are shown once; stored and held
// in memory is only their SHA-256. Rows are in the tables tokens and token_workers of the coordinator's database.
// Must not know gRPC or which method is called.
// Thread rule: safe to call from any thread. Check and IsLive never wait for the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "server/access/roles.h"

namespace ablate {

class Store;

struct TokenRecord {
  int64_t row = 0;
  std::string token_id;
  std::string name;
  Role role = Role::kRead;
  std::string sha256;
  int64_t created_us = 0;    // wall time
  int64_t expires_us = 0;    // 0: never
  int64_t revoked_us = 0;    // 0: it is not
  int64_t last_used_us = 0;  // 0: never
  std::vector<std::string> workers;
};

// Who calls, as a token says.
struct TokenHolder {
  int64_t row = 0;
  std::string name;
  Role role = Role::kRead;
};

class TokenRegistry {
 public:
  static constexpr size_t kMaxLiveTokens = 1000;

  // Reads all tokens. `store` must outlive the registry.
  static absl::StatusOr<std::unique_ptr<TokenRegistry>> Open(Store* store, const Clock* clock = &Clock::Real(),
                                                             IdGenerator* ids = &IdGenerator::Random());

  struct Created {
    TokenRecord record;
    std::string secret;  // the only time that it exists here
  };
  // InvalidArgument: the name's form. AlreadyExists: a token of this name is neither revoked nor expired.
  // ResourceExhausted: kMaxLiveTokens are in use. `lifetime_seconds` 0: it does not expire.
  absl::StatusOr<Created> Create(Role role, const std::string& name, int64_t lifetime_seconds);
  // By name (of one that is in use, else the newest of that name) or id; with effect on the next Check. Repeatable.
  // NotFound.
  absl::StatusOr<TokenRecord> Revoke(const std::string& name_or_id);
  std::vector<TokenRecord> List() const;  // oldest first
  bool HasLive() const;

  // The holder of the token. Unauthenticated: unknown, revoked or expired; the message never holds the token. Every
  // stored hash is compared in constant time, so that an answer's time tells nothing of them.
  absl::StatusOr<TokenHolder> Check(std::string_view secret);
  // OK while the token is neither revoked nor expired, else Unauthenticated with which of the two.
  absl::Status CheckLive(int64_t row) const;

  // A worker id belongs to the first token of role worker that names it, for as long as that token is live; so no
  // token's holder can act as another's worker. PermissionDenied: it is another's.
  absl::Status BindWorker(const TokenHolder& holder, const std::string& worker_id);

 private:
  TokenRegistry(Store* store, const Clock* clock, IdGenerator* ids) : store_(store), clock_(clock), ids_(ids) {}
  absl::Status Load();
  static absl::Status LiveAt(const TokenRecord& record, int64_t now_us);
  TokenRecord* Find(int64_t row) ABLATE_REQUIRES(mutex_);
  const TokenRecord* Find(int64_t row) const ABLATE_REQUIRES(mutex_);
  void NoteUse(TokenRecord* record, int64_t now_us) ABLATE_REQUIRES(mutex_);

  Store* const store_;
  const Clock* const clock_;
  IdGenerator* const ids_;

  // Orders changes: each is stored before it is seen. Taken before mutex_.
  Mutex change_mutex_;
  mutable Mutex mutex_;
  std::vector<TokenRecord> tokens_ ABLATE_GUARDED_BY(mutex_);  // by row
  std::unordered_map<std::string, int64_t> worker_tokens_ ABLATE_GUARDED_BY(mutex_);
  std::unordered_map<int64_t, int64_t> stored_use_us_ ABLATE_GUARDED_BY(mutex_);
};

}  // namespace ablate
