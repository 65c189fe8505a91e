#include "server/access/tokens.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/client_access.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "server/store/store.h"

namespace ablate {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kMaxName = 64;
constexpr int64_t kMaxLifetimeSeconds = int64_t{100} * 366 * 86'400;
constexpr size_t kMaxWorkersOfAToken = 10'000;
constexpr int64_t kNoteUseMicros = 60'000'000;

absl::Status CheckName(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxName;
  for (const char c : name) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.');
  }
  // Somebody may give the token itself for its name: it is not repeated.
  if (!good) return absl::InvalidArgumentError("a token's name has 1 to 64 letters, digits, \"-\", \"_\" and \".\"");
  if (IsToken(name)) return absl::InvalidArgumentError("this name has the form of a token itself: choose another");
  return absl::OkStatus();
}

absl::StatusOr<std::string> NewSecret() {
  unsigned char bytes[kSecretBytes];
  if (::RAND_priv_bytes(bytes, sizeof(bytes)) != 1) return absl::UnavailableError("no random numbers for a token");
  std::string secret = absl::StrCat(
      "ablate_", absl::WebSafeBase64Escape(absl::string_view(reinterpret_cast<char*>(bytes), sizeof(bytes))));
  ::OPENSSL_cleanse(bytes, sizeof(bytes));
  return secret;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenRegistry>> TokenRegistry::Open(Store* store, const Clock* clock, IdGenerator* ids) {
  std::unique_ptr<TokenRegistry> registry(new TokenRegistry(store, clock, ids));
  ABLATE_RETURN_IF_ERROR(registry->Load());
  return registry;
}

absl::Status TokenRegistry::Load() {
  std::vector<TokenRecord> tokens;
  std::unordered_map<std::string, int64_t> worker_tokens;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(Statement rows,
                            db.Query("SELECT row, token_id, name, role, sha256, created_at_us, expires_at_us, "
                                     "revoked_at_us, last_used_at_us FROM tokens ORDER BY row"));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      TokenRecord record{.row = rows.Int(0),
                         .token_id = rows.Text(1),
                         .name = rows.Text(2),
                         .sha256 = rows.Text(4),
                         .created_us = rows.Int(5),
                         .expires_us = rows.Int(6),
                         .revoked_us = rows.Int(7),
                         .last_used_us = rows.Int(8)};
      const std::optional<Role> role = ParseRole(rows.Text(3));
      if (!role.has_value() || !IsSha256Hex(record.sha256))
        return absl::DataLossError(absl::StrCat("the table tokens is damaged at ", record.token_id));
      record.role = *role;
      tokens.push_back(std::move(record));
    }
    ABLATE_ASSIGN_OR_RETURN(Statement workers, db.Query("SELECT worker_id, token FROM token_workers ORDER BY worker_id"));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, workers.Step());
      if (!more) return absl::OkStatus();
      worker_tokens[workers.Text(0)] = workers.Int(1);
    }
  }));
  MutexLock lock(&mutex_);
  tokens_ = std::move(tokens);
  worker_tokens_ = std::move(worker_tokens);
  for (const TokenRecord& token : tokens_) stored_use_us_[token.row] = token.last_used_us;
  for (const auto& [worker, row] : worker_tokens_) {
    if (TokenRecord* const record = Find(row); record != nullptr) record->workers.push_back(worker);
  }
  for (TokenRecord& token : tokens_) std::sort(token.workers.begin(), token.workers.end());
  return absl::OkStatus();
}

TokenRecord* TokenRegistry::Find(int64_t row) {
  const auto found = std::find_if(tokens_.begin(), tokens_.end(), [&](const TokenRecord& t) { return t.row == row; });
  return found == tokens_.end() ? nullptr : &*found;
}

const TokenRecord* TokenRegistry::Find(int64_t row) const {
  const auto found = std::find_if(tokens_.begin(), tokens_.end(), [&](const TokenRecord& t) { return t.row == row; });
  return found == tokens_.end() ? nullptr : &*found;
}

absl::Status TokenRegistry::LiveAt(const TokenRecord& record, int64_t now_us) {
  const char* const remedy = "; ask an admin of this coordinator for another (`ablate token create`)";
  if (record.revoked_us != 0)
    return absl::UnauthenticatedError(absl::StrCat("the token ", record.name, " was revoked", remedy));
  if (record.expires_us != 0 && now_us >= record.expires_us)
    return absl::UnauthenticatedError(absl::StrCat("the token ", record.name, " has expired", remedy));
  return absl::OkStatus();
}

absl::StatusOr<TokenRegistry::Created> TokenRegistry::Create(Role role, const std::string& name,
                                                             int64_t lifetime_seconds) {
  ABLATE_RETURN_IF_ERROR(CheckName(name));
  if (lifetime_seconds < 0 || lifetime_seconds > kMaxLifetimeSeconds)
    return absl::InvalidArgumentError("a token's lifetime is from 1 second to 100 years; 0: it does not expire");
  const int64_t now_us = clock_->WallMicros();
  MutexLock change(&change_mutex_);
  {
    MutexLock lock(&mutex_);
    size_t live = 0;
    for (const TokenRecord& token : tokens_) {
      if (!LiveAt(token, now_us).ok()) continue;
      ++live;
      if (token.name == name) {
        return absl::AlreadyExistsError(
            absl::StrCat("a token ", name, " (", token.token_id, ", role ", std::string(RoleName(token.role)),
                         ") is in use: choose another name, or revoke it first"));
      }
    }
    if (live >= kMaxLiveTokens)
      return absl::ResourceExhaustedError(absl::StrCat(live, " tokens are in use: revoke those that nobody needs"));
  }
  Created created;
  ABLATE_ASSIGN_OR_RETURN(created.secret, NewSecret());
  TokenRecord& record = created.record;
  record.token_id = ids_->NewId("token");
  record.name = name;
  record.role = role;
  record.sha256 = Sha256Hex(created.secret);
  record.created_us = now_us;
  record.expires_us = lifetime_seconds == 0 ? 0 : now_us + lifetime_seconds * 1'000'000;
  ABLATE_RETURN_IF_ERROR(store_->Write([&record](Connection& db) -> absl::Status {
    ABLATE_RETURN_IF_ERROR(
        db.Run("INSERT INTO tokens (token_id, name, role, sha256, created_at_us, expires_at_us) VALUES (?, ?, ?, ?, ?, ?)",
               record.token_id, record.name, RoleName(record.role), record.sha256, record.created_us,
               record.expires_us == 0 ? std::nullopt : std::optional<int64_t>(record.expires_us)));
    record.row = db.LastInsertRow();
    return absl::OkStatus();
  }));
  MutexLock lock(&mutex_);
  tokens_.push_back(record);
  return created;
}

absl::StatusOr<TokenRecord> TokenRegistry::Revoke(const std::string& name_or_id) {
  const int64_t now_us = clock_->WallMicros();
  MutexLock change(&change_mutex_);
  TokenRecord revoked;
  {
    MutexLock lock(&mutex_);
    const TokenRecord* found = nullptr;
    for (const TokenRecord& token : tokens_) {
      if (token.token_id == name_or_id) {
        found = &token;
        break;
      }
      // At most one of a name is live, and it is the newest.
      if (token.name == name_or_id) found = &token;
    }
    if (found == nullptr) {
      return absl::NotFoundError(IsToken(name_or_id)
                                     ? "a token is revoked by its name or id, which `ablate token list` shows"
                                     : absl::StrCat("no token ", name_or_id, "; `ablate token list` shows all"));
    }
    revoked = *found;
  }
  if (revoked.revoked_us != 0) return revoked;
  revoked.revoked_us = now_us;
  ABLATE_RETURN_IF_ERROR(store_->Write([&revoked](Connection& db) {
    return db.Run("UPDATE tokens SET revoked_at_us = ? WHERE row = ?", revoked.revoked_us, revoked.row);
  }));
  MutexLock lock(&mutex_);
  Find(revoked.row)->revoked_us = now_us;
  return revoked;
}

std::vector<TokenRecord> TokenRegistry::List() const {
  MutexLock lock(&mutex_);
  return tokens_;
}

bool TokenRegistry::HasLive() const {
  const int64_t now_us = clock_->WallMicros();
  MutexLock lock(&mutex_);
  return std::any_of(tokens_.begin(), tokens_.end(), [&](const TokenRecord& t) { return LiveAt(t, now_us).ok(); });
}

absl::StatusOr<TokenHolder> TokenRegistry::Check(std::string_view secret) {
  const std::string hash = Sha256Hex(secret);
  const int64_t now_us = clock_->WallMicros();
  MutexLock lock(&mutex_);
  TokenRecord* found = nullptr;
  for (TokenRecord& token : tokens_) {
    if (::CRYPTO_memcmp(token.sha256.data(), hash.data(), hash.size()) == 0) found = &token;
  }
  if (found == nullptr) {
    return absl::UnauthenticatedError(
        "the coordinator does not know this token: check ABLATE_TOKEN or --token-file, or ask an admin for one (`ablate "
        "token create`)");
  }
  ABLATE_RETURN_IF_ERROR(LiveAt(*found, now_us));
  NoteUse(found, now_us);
  return TokenHolder{found->row, found->name, found->role};
}

void TokenRegistry::NoteUse(TokenRecord* record, int64_t now_us) {
  record->last_used_us = now_us;
  int64_t& stored_us = stored_use_us_[record->row];
  if (now_us - stored_us < kNoteUseMicros && now_us >= stored_us) return;
  stored_us = now_us;
  // Nobody waits for it: a lost one is no harm.
  (void)store_->Enqueue([row = record->row, now_us](Connection& db) {
    return db.Run("UPDATE tokens SET last_used_at_us = ? WHERE row = ?", now_us, row);
  });
}

absl::Status TokenRegistry::CheckLive(int64_t row) const {
  const int64_t now_us = clock_->WallMicros();
  MutexLock lock(&mutex_);
  const TokenRecord* const record = Find(row);
  if (record == nullptr) return absl::UnauthenticatedError("the token is not known any more");
  return LiveAt(*record, now_us);
}

absl::Status TokenRegistry::BindWorker(const TokenHolder& holder, const std::string& worker_id) {
  const int64_t now_us = clock_->WallMicros();
  // Of a bound worker, which calls all the time, nothing has to be stored.
  const auto bound = [&]() -> absl::StatusOr<bool> {
    MutexLock lock(&mutex_);
    const auto found = worker_tokens_.find(worker_id);
    if (found == worker_tokens_.end()) return false;
    if (found->second == holder.row) return true;
    const TokenRecord* const owner = Find(found->second);
    if (owner == nullptr || !LiveAt(*owner, now_us).ok()) return false;
    return absl::PermissionDeniedError(
        absl::StrCat("the worker ", worker_id, " belongs to another token than ", holder.name,
                     ": start it with that one, or with a --work-dir of its own; when that token is revoked, this one "
                     "may take the worker over"));
  };
  ABLATE_ASSIGN_OR_RETURN(bool is_bound, bound());
  if (is_bound) return absl::OkStatus();
  MutexLock change(&change_mutex_);
  ABLATE_ASSIGN_OR_RETURN(is_bound, bound());
  if (is_bound) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    const TokenRecord* const record = Find(holder.row);
    if (record != nullptr && record->workers.size() >= kMaxWorkersOfAToken)
      return absl::ResourceExhaustedError(absl::StrCat("the token ", holder.name, " has ", kMaxWorkersOfAToken, " workers already"));
  }
  ABLATE_RETURN_IF_ERROR(store_->Write([&](Connection& db) {
    return db.Run("INSERT INTO token_workers (worker_id, token) VALUES (?, ?) "
                  "ON CONFLICT (worker_id) DO UPDATE SET token = excluded.token",
                  worker_id, holder.row);
  }));
  MutexLock lock(&mutex_);
  if (const auto before = worker_tokens_.find(worker_id); before != worker_tokens_.end()) {
    if (TokenRecord* const owner = Find(before->second); owner != nullptr) std::erase(owner->workers, worker_id);
  }
  worker_tokens_[worker_id] = holder.row;
  if (TokenRecord* const record = Find(holder.row); record != nullptr) record->workers.push_back(worker_id);
  return absl::OkStatus();
}

}  // namespace ablate
