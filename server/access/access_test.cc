// Roles, tokens, listeners; certificates and what clients read of them are in base/access_files_test.cc.
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/client_access.h"
#include "base/files.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/listener.h"
#include "server/access/roles.h"
#include "server/access/tokens.h"
#include "server/store/store.h"

namespace ablate {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Roles, EachRoleMayWhatItIsFor) {
  const auto allows = [](const char* path, Role role) {
    const MethodRule* const rule = FindMethodRule(path);
    EXPECT_NE(rule, nullptr) << path;
    return rule != nullptr && rule->Allows(role);
  };
  EXPECT_TRUE(allows("/ablate.v1.Sweeps/GetSweep", Role::kRead));
  EXPECT_FALSE(allows("/ablate.v1.Sweeps/CancelSweep", Role::kRead));
  EXPECT_TRUE(allows("/ablate.v1.Sweeps/CancelSweep", Role::kSubmit));
  EXPECT_FALSE(allows("/ablate.v1.WorkerLink/Sync", Role::kSubmit));
  EXPECT_TRUE(allows("/ablate.v1.WorkerLink/Sync", Role::kWorker));
  EXPECT_FALSE(allows("/ablate.v1.Sweeps/SubmitSweep", Role::kWorker));
  EXPECT_FALSE(allows("/ablate.v1.Artifacts/UploadArtifact", Role::kRead));
  for (const MethodRule& rule : MethodRules()) {
    EXPECT_TRUE(rule.Allows(Role::kAdmin)) << rule.method;
    if (absl::StrContains(std::string(rule.method), ".Access/")) {
      for (const Role role : {Role::kRead, Role::kSubmit, Role::kWorker}) EXPECT_FALSE(rule.Allows(role)) << rule.method;
    }
  }
  EXPECT_EQ(FindMethodRule("/ablate.v1.Sweeps/DropAllSweeps"), nullptr);
  EXPECT_EQ(FindMethodRule("ablate.v1.Sweeps/GetSweep"), nullptr);
  EXPECT_EQ(FindMethodRule("/ablate.v1.Sweeps/GetSweep/"), nullptr);
  EXPECT_EQ(FindMethodRule(""), nullptr);
  EXPECT_EQ(FindMethodRule("/ablate.v1.Sweeps/CancelSweep")->RolesText(), "submit or admin");
}

// docs/security.md: a line "| `Sweeps/GetSweep` | x | x |  | x |" for each method.
TEST(Roles, TheTableOfTheDocumentationIsTheCodes) {
  const absl::StatusOr<std::string> page = ReadFile(JoinPath(ABLATE_DOCS_DIR, "security.md"));
  ASSERT_TRUE(page.ok()) << page.status();
  std::map<std::string, unsigned> documented;
  for (const absl::string_view line : absl::StrSplit(*page, '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() != 7 || cells[1].find('/') == std::string::npos || cells[1].find('`') == std::string::npos) continue;
    unsigned roles = 0;
    for (size_t i = 0; i < 4; ++i) roles |= cells[i + 2].find('x') != std::string::npos ? 1u << i : 0;
    documented[std::string(absl::StripAsciiWhitespace(cells[1]))] = roles;
  }
  std::map<std::string, unsigned> coded;
  for (const MethodRule& rule : MethodRules()) {
    std::string name(rule.method);
    if (absl::StartsWith(name, "ablate.v1.")) name.erase(0, 10);
    coded[absl::StrCat("`", name, "`")] = rule.roles;
  }
  EXPECT_EQ(documented, coded);
}

class Tokens : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    tokens_.reset();
    store_.reset();
    auto store = Store::Open({.data_dir = dir_.path()});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto tokens = TokenRegistry::Open(store_.get(), &clock_, &ids_);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    tokens_ = *std::move(tokens);
  }
  std::string Make(Role role, const std::string& name, int64_t lifetime = 0) {
    const auto created = tokens_->Create(role, name, lifetime);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.ok() ? created->secret : "";
  }

  TempDir dir_;
  FakeClock clock_;
  CountingIdGenerator ids_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TokenRegistry> tokens_;
};

TEST_F(Tokens, AreKnownByTheirHashAlone) {
  const std::string ada = Make(Role::kSubmit, "ada"), node = Make(Role::kWorker, "node");
  EXPECT_TRUE(IsToken(ada)) << ada;
  EXPECT_NE(ada, node);
  const auto holder = tokens_->Check(ada);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(holder->name, "ada");
  EXPECT_EQ(holder->role, Role::kSubmit);
  std::string other = ada;
  other.back() = other.back() == 'A' ? 'B' : 'A';
  for (const std::string& wrong : {other, ada.substr(1), ada + " ", std::string(), Sha256Hex(ada)}) {
    const absl::Status status = tokens_->Check(wrong).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << wrong;
    if (!wrong.empty()) {
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(wrong)));
    }
  }
  // Neither the database nor its log holds what lets in.
  Reopen();
  for (const char* file : {"ablate.db", "ablate.db-wal"}) {
    const std::string bytes = ReadFile(JoinPath(dir_.path(), file)).value_or("");
    EXPECT_EQ(bytes.find(ada.substr(7)), std::string::npos) << file;
  }
  EXPECT_TRUE(tokens_->Check(ada).ok());
  EXPECT_EQ(tokens_->List()[0].sha256, Sha256Hex(ada));
}

TEST_F(Tokens, EndWhenRevokedAndWhenExpired) {
  const std::string ada = Make(Role::kRead, "ada", 3600), bob = Make(Role::kRead, "bob");
  const int64_t row = tokens_->Check(ada)->row;
  EXPECT_TRUE(absl::IsAlreadyExists(tokens_->Create(Role::kAdmin, "ada", 0).status()));
  clock_.Advance(3599'000'000);
  EXPECT_TRUE(tokens_->CheckLive(row).ok());
  clock_.Advance(1'000'000);
  EXPECT_THAT(std::string(tokens_->Check(ada).status().message()), HasSubstr("ada has expired"));
  EXPECT_TRUE(absl::IsUnauthenticated(tokens_->CheckLive(row)));
  // The name is free again; the old token does not come back with it.
  const std::string second = Make(Role::kRead, "ada");
  EXPECT_TRUE(tokens_->Check(second).ok());
  EXPECT_FALSE(tokens_->Check(ada).ok());
  EXPECT_EQ(tokens_->Revoke("ada")->token_id, tokens_->List()[2].token_id);
  EXPECT_THAT(std::string(tokens_->Check(second).status().message()), HasSubstr("ada was revoked"));
  EXPECT_TRUE(tokens_->Revoke("ada").ok()) << "again";
  EXPECT_TRUE(absl::IsNotFound(tokens_->Revoke("eve").status()));
  // The token itself, given for its name, is not repeated.
  EXPECT_THAT(std::string(tokens_->Revoke(bob).status().message()), Not(HasSubstr(bob)));
  Reopen();
  EXPECT_FALSE(tokens_->Check(second).ok());
  EXPECT_TRUE(tokens_->Check(bob).ok());
  EXPECT_TRUE(tokens_->Revoke(tokens_->List()[1].token_id).ok());
  EXPECT_FALSE(tokens_->Check(bob).ok());
  EXPECT_FALSE(tokens_->HasLive());
}

TEST_F(Tokens, NamesAndNumbersHaveBounds) {
  for (const std::string& name : {std::string(), std::string("a b"), std::string(65, 'x'), std::string("../x"),
                                  std::string("x\0y", 3), Make(Role::kRead, "good-1.x_y")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(tokens_->Create(Role::kRead, name, 0).status())) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(tokens_->Create(Role::kRead, "x", -1).status()));
}

TEST_F(Tokens, TheLastUseIsStoredOnceAMinute) {
  const std::string ada = Make(Role::kRead, "ada");
  ASSERT_TRUE(tokens_->Check(ada).ok());
  const int64_t first = clock_.WallMicros();
  clock_.Advance(30'000'000);
  ASSERT_TRUE(tokens_->Check(ada).ok());
  EXPECT_EQ(tokens_->List()[0].last_used_us, first + 30'000'000);
  store_->Drain();
  Reopen();
  EXPECT_EQ(tokens_->List()[0].last_used_us, first);
  clock_.Advance(31'000'000);
  ASSERT_TRUE(tokens_->Check(ada).ok());
  store_->Drain();
  Reopen();
  EXPECT_EQ(tokens_->List()[0].last_used_us, first + 61'000'000);
}

TEST_F(Tokens, AWorkerBelongsToTheTokenThatNamedItFirst) {
  const TokenHolder a = *tokens_->Check(Make(Role::kWorker, "a")), b = *tokens_->Check(Make(Role::kWorker, "b"));
  EXPECT_TRUE(tokens_->BindWorker(a, "worker_1").ok());
  EXPECT_TRUE(tokens_->BindWorker(a, "worker_2").ok());
  EXPECT_TRUE(tokens_->BindWorker(a, "worker_1").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(tokens_->BindWorker(b, "worker_1")));
  Reopen();
  EXPECT_TRUE(absl::IsPermissionDenied(tokens_->BindWorker(b, "worker_1")));
  EXPECT_THAT(tokens_->List()[0].workers, testing::ElementsAre("worker_1", "worker_2"));
  // A token that is over holds nothing.
  ASSERT_TRUE(tokens_->Revoke("a").ok());
  EXPECT_TRUE(tokens_->BindWorker(b, "worker_1").ok());
  EXPECT_THAT(tokens_->List()[0].workers, testing::ElementsAre("worker_2"));
  EXPECT_THAT(tokens_->List()[1].workers, testing::ElementsAre("worker_1"));
}

TEST(Listeners, ThoseThatOthersReachAreSecuredWhateverTheFlags) {
  TempDir dir;
  for (const char* local : {"127.0.0.1:7433", "localhost:0", "unix:/x"}) {
    const auto security = SecureListener({.listen = local}, dir.path());
    ASSERT_TRUE(security.ok()) << security.status();
    EXPECT_FALSE(security->tls || security->tokens) << local;
    EXPECT_TRUE(SecureListener({.listen = local, .require_tokens = true}, dir.path())->tokens);
  }
  EXPECT_FALSE(FileExists(JoinPath(dir.path(), "tls")));
  const auto first = SecureListener({.listen = "0.0.0.0:7433"}, dir.path());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->tls && first->tokens);
  EXPECT_EQ(first->fingerprint, *CertificateFingerprint(first->identity.certificate_pem));
  const std::string key = JoinPath(dir.path(), "tls/key.pem");
  struct stat info = {};
  ASSERT_EQ(::stat(key.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // The next start shows the same one, and TLS where it is asked for demands tokens.
  const auto again = SecureListener({.listen = "127.0.0.1:0", .tls = true}, dir.path());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->tokens);
  EXPECT_EQ(again->fingerprint, first->fingerprint);

  ASSERT_EQ(::chmod(key.c_str(), 0644), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(SecureListener({.listen = "[::]:1"}, dir.path()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SecureListener({.listen = "[::]:1", .tls_cert = "x"}, dir.path()).status()));
  // A key of another certificate.
  const std::string other_key = JoinPath(dir.path(), "other.pem");
  ASSERT_TRUE(WriteFileAtomic(other_key, MakeSelfSignedCertificate({"localhost"})->key_pem, 0600).ok());
  EXPECT_THAT(std::string(SecureListener({.listen = "[::]:1",
                                          .tls_cert = JoinPath(dir.path(), "tls/certificate.pem"),
                                          .tls_key = other_key},
                                         dir.path())
                              .status()
                              .message()),
              HasSubstr("not that of the certificate"));
}

}  // namespace
}  // namespace ablate
