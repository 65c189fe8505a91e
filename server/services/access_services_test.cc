// Who is let in: the services over TLS in front of a fake coordinator and real tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/client_access.h"
#include "base/files.h"
#include "base/grpc_channel.h"
#include "proto/access.grpc.pb.h"
#include "proto/artifacts.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/link.grpc.pb.h"
#include "server/access/roles.h"
#include "server/services/fake_coordinator.h"
#include "server/services/grpc_server.h"
#include "server/store/store.h"

namespace ablate {
namespace {

using testing::HasSubstr;
using testing::Not;

class AccessServicesTest : public testing::Test {
 protected:
  void SetUp() override {
    store_ = *Store::Open({.data_dir = dir_.path()});
    tokens_ = *TokenRegistry::Open(store_.get());
    artifacts_ = *ArtifactStore::Open(JoinPath(dir_.path(), "artifacts"));
    Start({.listen = "127.0.0.1:0", .tls = true});
    for (const std::string& role : RoleNames()) secrets_[role] = tokens_->Create(*ParseRole(role), role, 0)->secret;
  }
  void TearDown() override {
    coordinator_.Shutdown();
    server_.reset();
  }
  void Start(ListenerFlags flags) {
    server_.reset();
    const auto security = SecureListener(flags, dir_.path());
    ASSERT_TRUE(security.ok()) << security.status();
    security_ = *security;
    auto server = GrpcServer::Start(flags.listen, &coordinator_, artifacts_.get(), 1024,
                                    {.tokens = tokens_.get(), .security = security_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ClientAccess Access(const std::string& token) const {
    return {.address = server_->address(), .token = token, .pin = security_.fingerprint};
  }
  std::shared_ptr<grpc::Channel> Channel(const std::string& token) { return MakeChannel(Access(token), {}, identity_); }

  // One empty message to any method, as bytes.
  static grpc::Status CallEmpty(const std::shared_ptr<grpc::Channel>& channel, std::string_view method) {
    grpc::Slice none;
    grpc::ByteBuffer request(&none, 1), answer;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, absl::StrCat("/", std::string(method)), request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status;
  }

  TempDir dir_;
  FakeCoordinator coordinator_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TokenRegistry> tokens_;
  std::unique_ptr<ArtifactStore> artifacts_;
  ListenerSecurity security_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<ServerIdentity> identity_ = std::make_shared<ServerIdentity>();
  std::map<std::string, std::string> secrets_;
};

// Every method of every service in our protos.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* file :
       {"proto/access.proto", "proto/artifacts.proto", "proto/coordinator.proto", "proto/link.proto"}) {
    const auto* descriptor = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(file);
    EXPECT_NE(descriptor, nullptr) << file;
    for (int i = 0; descriptor != nullptr && i < descriptor->service_count(); ++i) {
      const auto* service = descriptor->service(i);
      for (int j = 0; j < service->method_count(); ++j)
        methods.push_back(absl::StrCat(service->full_name(), "/", service->method(j)->name()));
    }
  }
  return methods;
}

TEST(AccessTable, NamesEveryMethodOfTheProtosAndNoOther) {
  std::vector<std::string> tabled;
  for (const MethodRule& rule : MethodRules()) {
    if (absl::StartsWith(std::string(rule.method), "ablate.")) tabled.emplace_back(rule.method);
  }
  EXPECT_THAT(tabled, testing::UnorderedElementsAreArray(AllMethods()));
  // The protos that have services are all looked at.
  EXPECT_EQ(AllMethods().size(), 35u) << "a method was added or taken away: adapt this number and docs/security.md";
}

TEST_F(AccessServicesTest, NobodyIsLetInWithoutAToken) {
  const auto nobody = Channel("");
  for (const MethodRule& rule : MethodRules()) {
    if (rule.is_public) continue;
    EXPECT_EQ(CallEmpty(nobody, rule.method).error_code(), grpc::StatusCode::UNAUTHENTICATED) << rule.method;
  }
  EXPECT_TRUE(CallEmpty(nobody, "grpc.health.v1.Health/Check").ok());
  EXPECT_EQ(CallEmpty(Channel(secrets_["admin"]), "ablate.v1.Sweeps/DropAll").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(coordinator_.calls, 0);
}

TEST_F(AccessServicesTest, EachRoleIsLetIntoItsMethodsAndRefusedAtAllOthers) {
  for (const std::string& name : RoleNames()) {
    const auto channel = Channel(secrets_[name]);
    for (const MethodRule& rule : MethodRules()) {
      const bool allowed = rule.Allows(*ParseRole(name));
      const bool endless = rule.method == "grpc.health.v1.Health/Watch" || rule.method == "ablate.v1.Sweeps/WatchChanges";
      if (allowed && endless) continue;
      const grpc::Status status = CallEmpty(channel, rule.method);
      const std::string what = absl::StrCat(name, " at ", std::string(rule.method), ": ", status.error_message());
      if (allowed) {
        EXPECT_NE(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << what;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << what;
      } else {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << what;
        EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("has the role ", name))) << what;
      }
      EXPECT_THAT(status.error_message(), Not(HasSubstr(secrets_[name].substr(7))));
    }
  }
}

TEST_F(AccessServicesTest, EveryCallOfAConnectionStandsForItself) {
  // gRPC keeps what a check says of the caller with the connection: one that serves two tokens must not mix them.
  const auto stub = v1::Sweeps::NewStub(Channel(""));
  const auto cancel = [&](const std::vector<std::string>& headers) {
    grpc::ClientContext context;
    for (const std::string& header : headers) context.AddMetadata("authorization", header);
    v1::CancelSweepRequest request;
    request.set_request_id("r");
    request.set_sweep("s");
    v1::Sweep sweep;
    return stub->CancelSweep(&context, request, &sweep).error_code();
  };
  const std::string submit = absl::StrCat("Bearer ", secrets_["submit"]),
                    read = absl::StrCat("Bearer ", secrets_["read"]);
  EXPECT_EQ(cancel({submit}), grpc::StatusCode::OK);
  EXPECT_EQ(cancel({read}), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(cancel({submit}), grpc::StatusCode::OK);
  EXPECT_EQ(cancel({}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(cancel({read, submit}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(cancel({secrets_["submit"]}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(cancel({absl::StrCat("bearer", secrets_["submit"])}), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AccessServicesTest, AWatchEndsWhenItsTokenIsRevoked) {
  const auto stub = v1::Sweeps::NewStub(Channel(secrets_["read"]));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::WatchSweepRequest request;
  request.set_sweep("alpha");
  const auto reader = stub->WatchSweep(&context, request);
  v1::Sweep sweep;
  ASSERT_TRUE(reader->Read(&sweep));
  ASSERT_TRUE(tokens_->Revoke("read").ok());
  while (reader->Read(&sweep)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("the token read was revoked"));
}

TEST_F(AccessServicesTest, AWorkerIsWhoItsTokenSays) {
  const std::string other = tokens_->Create(Role::kWorker, "other", 0)->secret;
  const auto sync = [&](const std::string& token, const std::string& worker) {
    grpc::ClientContext context;
    v1::SyncRequest request;
    request.mutable_worker()->set_worker_id(worker);
    request.mutable_worker()->set_incarnation("i");
    request.mutable_worker()->set_slots(1);
    request.set_sequence(1);
    v1::SyncResponse response;
    return v1::WorkerLink::NewStub(Channel(token))->Sync(&context, request, &response);
  };
  EXPECT_TRUE(sync(secrets_["worker"], "worker_1").ok());
  const grpc::Status status = sync(other, "worker_1");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("worker_1 belongs to another token"));
  EXPECT_TRUE(sync(other, "worker_2").ok());
  EXPECT_EQ(coordinator_.calls, 2);
}

TEST_F(AccessServicesTest, TokensAreMadeListedAndRevoked) {
  const auto stub = v1::Access::NewStub(Channel(secrets_["admin"]));
  v1::CreateTokenRequest create;
  create.set_role("submit");
  create.set_token_name("ada");
  create.set_lifetime_seconds(3600);
  v1::CreateTokenResponse created;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->CreateToken(&context, create, &created).ok());
  }
  EXPECT_TRUE(IsToken(created.secret()));
  EXPECT_EQ(created.token().role(), "submit");
  EXPECT_GT(created.token().expires_at_us(), created.token().created_at_us());
  const auto refused = [&](const v1::CreateTokenRequest& request) {
    grpc::ClientContext context;
    v1::CreateTokenResponse response;
    return stub->CreateToken(&context, request, &response);
  };
  EXPECT_EQ(refused(create).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  create.set_token_name("b");
  create.set_role("root");
  EXPECT_THAT(refused(create).error_message(), HasSubstr("CreateTokenRequest.role: \"root\""));
  v1::ListTokensRequest list;
  list.set_page_size(2);
  std::vector<std::string> names;
  do {
    grpc::ClientContext context;
    v1::ListTokensResponse page;
    ASSERT_TRUE(stub->ListTokens(&context, list, &page).ok());
    for (const v1::Token& token : page.tokens()) names.push_back(token.name());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  EXPECT_THAT(names, testing::ElementsAre("read", "submit", "worker", "admin", "ada"));
  EXPECT_TRUE(tokens_->Check(created.secret()).ok());
  grpc::ClientContext context;
  v1::RevokeTokenRequest revoke;
  revoke.set_token("ada");
  v1::Token revoked;
  ASSERT_TRUE(stub->RevokeToken(&context, revoke, &revoked).ok());
  EXPECT_GT(revoked.revoked_at_us(), 0);
  EXPECT_FALSE(tokens_->Check(created.secret()).ok());
}

TEST_F(AccessServicesTest, APinnedServerIsTheOnlyOneThatIsSpokenTo) {
  const auto call = [&](const ClientAccess& access, const std::shared_ptr<ServerIdentity>& identity) {
    return CallEmpty(MakeChannel(access, {}, identity), "ablate.v1.Sweeps/ListSweeps");
  };
  const ClientAccess right = Access(secrets_["read"]);
  EXPECT_TRUE(call(right, identity_).ok());
  ClientAccess wrong = right;
  wrong.pin = *ParseFingerprint(std::string(64, '0'));
  const int calls = coordinator_.calls;
  EXPECT_EQ(call(wrong, identity_).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(absl::IsFailedPrecondition(identity_->Verdict()));
  EXPECT_THAT(std::string(identity_->Verdict().message()), HasSubstr(security_.fingerprint));
  EXPECT_EQ(coordinator_.calls, calls);
  // By its signer, which here is itself, and by name.
  ClientAccess by_ca = right;
  by_ca.pin.clear();
  by_ca.ca_pem = security_.identity.certificate_pem;
  EXPECT_TRUE(call(by_ca, identity_).ok());
  by_ca.ca_pem = MakeSelfSignedCertificate({"127.0.0.1"})->certificate_pem;
  EXPECT_EQ(call(by_ca, identity_).error_code(), grpc::StatusCode::UNAVAILABLE);
  ClientAccess plain = right;
  plain.pin.clear();
  EXPECT_EQ(call(plain, identity_).error_code(), grpc::StatusCode::UNAVAILABLE);

  // The same address with a new certificate, for a client that had the old one and is connected.
  const auto kept = MakeChannel(right, {}, identity_);
  EXPECT_TRUE(CallEmpty(kept, "ablate.v1.Sweeps/ListSweeps").ok());
  EXPECT_TRUE(identity_->Verdict().ok());
  const std::string address = server_->address();
  ASSERT_TRUE(RemoveTree(JoinPath(dir_.path(), "tls")).ok());
  Start({.listen = address, .tls = true});
  ASSERT_EQ(server_->address(), address);
  while (identity_->Verdict().ok()) {
    EXPECT_FALSE(CallEmpty(kept, "ablate.v1.Sweeps/ListSweeps").ok());
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(identity_->Verdict()));
}

TEST_F(AccessServicesTest, ClientCertificatesAreDemandedBesideTokens) {
  const KeyAndCertificate client = *MakeSelfSignedCertificate({}), stranger = *MakeSelfSignedCertificate({});
  const std::string ca = JoinPath(dir_.path(), "clients.pem");
  ASSERT_TRUE(WriteFileAtomic(ca, client.certificate_pem).ok());
  Start({.listen = "127.0.0.1:0", .tls_client_ca = ca});
  for (const bool by_pin : {true, false}) {
    ClientAccess access = Access(secrets_["read"]);
    if (!by_pin) access.pin.clear(), access.ca_pem = security_.identity.certificate_pem;
    const auto call = [&] {
      return CallEmpty(MakeChannel(access, {}, identity_), "ablate.v1.Sweeps/ListSweeps").error_code();
    };
    EXPECT_EQ(call(), grpc::StatusCode::UNAVAILABLE);
    access.key_pem = stranger.key_pem, access.certificate_pem = stranger.certificate_pem;
    EXPECT_EQ(call(), grpc::StatusCode::UNAVAILABLE);
    access.key_pem = client.key_pem, access.certificate_pem = client.certificate_pem;
    EXPECT_EQ(call(), grpc::StatusCode::OK);
    access.token.clear();
    EXPECT_EQ(call(), grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_F(AccessServicesTest, ThisMachineNeedsATokenOnlyWhereItIsAskedFor) {
  Start({.listen = "127.0.0.1:0"});
  ClientAccess access = {.address = server_->address()};
  const auto call = [&] {
    return CallEmpty(MakeChannel(access, {}, identity_), "ablate.v1.Access/ListTokens").error_code();
  };
  EXPECT_EQ(call(), grpc::StatusCode::OK);
  Start({.listen = "127.0.0.1:0", .require_tokens = true});
  access.address = server_->address();
  EXPECT_EQ(call(), grpc::StatusCode::UNAUTHENTICATED);
  access.token = secrets_["submit"];
  EXPECT_EQ(call(), grpc::StatusCode::PERMISSION_DENIED);
  access.token = secrets_["admin"];
  EXPECT_EQ(call(), grpc::StatusCode::OK);
}

}  // namespace
}  // namespace ablate
