// The whole HTTP side over real sockets, in front of a fake coordinator: answers, tags, streams, who is let in, and clients that
// are slow, many or wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "nlohmann/json.hpp"
#include "server/access/roles.h"
#include "server/http/gzip.h"
#include "server/http/head.h"
#include "server/http/http_server.h"
#include "server/http/routes.h"
#include "server/http/testing.h"
#include "server/services/fake_coordinator.h"
#include "server/store/store.h"

namespace ablate {
namespace {

using testing::HasSubstr;
using testing::Not;

// Answers with many rows where it is asked for a table.
class AskedCoordinator final : public FakeCoordinator {
 public:
  int rows = 1;
  std::string last_request_id;
  absl::StatusOr<v1::GetTableResponse> GetTable(const v1::GetTableRequest& request) override {
    v1::GetTableResponse response;
    for (int i = 0; i < rows; ++i) response.add_rows()->set_metric(request.metrics_size() > 0 ? request.metrics(0) : "loss");
    if (!error.ok()) return error;
    return response;
  }
  absl::StatusOr<v1::Sweep> CancelSweep(const v1::CancelSweepRequest& request) override {
    last_request_id = request.request_id();
    return FakeCoordinator::CancelSweep(request);
  }
};

const std::string& PackedPage() {
  static const std::string& page = *new std::string(Gzip("<html>the page</html>", 9));
  return page;
}
const std::vector<EmbeddedFile>& PageFiles() {
  static const auto& files = *new std::vector<EmbeddedFile>{
      {"/index.html", PackedPage(), true, "11111111111111111111111111111111ffffffffffffffffffffffffffffffff"},
      {"/assets/a-12.js", "code", false, "22222222222222222222222222222222ffffffffffffffffffffffffffffffff"}};
  return files;
}

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.address = "127.0.0.1:0";
    options_.files = PageFiles();
  }
  void TearDown() override {
    coordinator_.Shutdown();
    server_.reset();
  }
  void Start() {
    auto server = HttpServer::Start(options_, &coordinator_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartWithTokens(bool tls, const std::string& client_ca = "") {
    store_ = *Store::Open({.data_dir = dir_.path()});
    tokens_ = *TokenRegistry::Open(store_.get());
    for (const std::string& role : RoleNames()) secrets_[role] = tokens_->Create(*ParseRole(role), role, 0)->secret;
    const auto security = SecureListener(
        {.listen = options_.address, .tls = tls, .require_tokens = true, .tls_client_ca = client_ca}, dir_.path());
    ASSERT_TRUE(security.ok()) << security.status();
    options_.access = {.tokens = tokens_.get(), .security = *security};
    tls_ = tls;
    Start();
  }
  std::string Bearer(const std::string& role) { return absl::StrCat("Authorization: Bearer ", secrets_[role], "\r\n"); }
  // On a connection of its own.
  TestResponse Get(const std::string& target, const std::string& headers = "") {
    return TestClient(server_->address(), tls_).Get(target, headers);
  }
  TestResponse Post(const std::string& target, const std::string& body, const std::string& headers = "") {
    return TestClient(server_->address(), tls_).Post(target, body, headers);
  }
  static std::string ErrorCode(const TestResponse& response) {
    const auto json = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
    return json.is_object() && json.contains("error") ? json["error"]["code"].get<std::string>() : "";
  }
  // Until it is true, within 20 s.
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  TempDir dir_;
  AskedCoordinator coordinator_;
  HttpServerOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TokenRegistry> tokens_;
  std::map<std::string, std::string> secrets_;
  bool tls_ = false;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersInJsonWithATagThatSparesTheBody) {
  Start();
  TestClient client(server_->address());
  const TestResponse first = client.Get("/api/v1/sweeps/quick/table?metrics=acc");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("content-type"), "application/json");
  EXPECT_EQ(first.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(nlohmann::json::parse(first.body)["rows"][0]["metric"], "acc");
  const std::string tag = first.headers.at("etag");
  for (const std::string& given : {tag, absl::StrCat("W/", tag), absl::StrCat("\"other\", ", tag), std::string("*")}) {
    const TestResponse again = client.Get("/api/v1/sweeps/quick/table?metrics=acc", absl::StrCat("If-None-Match: ", given, "\r\n"));
    EXPECT_EQ(again.status, 304) << given;
    EXPECT_EQ(again.headers.at("etag"), tag);
    EXPECT_EQ(again.headers.count("content-length"), 0u);
    EXPECT_EQ(again.headers.at("keep-alive"), "timeout=15, max=1000");
    EXPECT_EQ(again.body, "");
  }
  const TestResponse other = client.Get("/api/v1/sweeps/quick/table?metrics=loss", absl::StrCat("If-None-Match: ", tag, "\r\n"));
  EXPECT_EQ(other.status, 200) << "on the same connection, with another answer";
  EXPECT_NE(other.headers.at("etag"), tag);
  for (const char* header : {"content-security-policy", "x-content-type-options", "referrer-policy", "x-frame-options", "cross-origin-opener-policy"}) {
    EXPECT_EQ(other.headers.count(header), 1u) << header;
  }
  EXPECT_EQ(other.headers.count("access-control-allow-origin"), 0u);
}

TEST_F(HttpServerTest, CompressesWhatIsLargeOnceAndOnlyForWhomItMay) {
  coordinator_.rows = 2000;
  Start();
  TestClient client(server_->address());
  const TestResponse plain = client.Get("/api/v1/sweeps/quick/table");
  const TestResponse packed = client.Get("/api/v1/sweeps/quick/table", "Accept-Encoding: br, gzip\r\n");
  EXPECT_EQ(plain.headers.count("content-encoding"), 0u);
  EXPECT_EQ(packed.headers.at("content-encoding"), "gzip");
  EXPECT_LT(packed.body.size(), plain.body.size() / 4);
  EXPECT_EQ(Gunzip(packed.body).value_or(""), plain.body);
  EXPECT_NE(packed.headers.at("etag"), plain.headers.at("etag")) << "strong tags are of bytes";
  EXPECT_EQ(client.Get("/api/v1/sweeps/quick/table", absl::StrCat("Accept-Encoding: gzip\r\nIf-None-Match: ", packed.headers.at("etag"), "\r\n")).status, 304);
  client.Send("HEAD /api/v1/sweeps/quick/table HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const TestResponse head = client.Read(/*head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(plain.body.size()));
  EXPECT_EQ(client.Get("/api/v1/health").body, R"({"status":"SERVING"})") << "the head had no body";
}

TEST_F(HttpServerTest, ServesThePageToEveryPathThatIsNoFile) {
  Start();
  TestClient client(server_->address());
  for (const char* path : {"/", "/sweeps/p.15?tab=curves", "/index.html", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/jobs/%", "/jobs/%00",
                           "/jobs/%zz?%"}) {
    const TestResponse page = client.Get(path);
    EXPECT_EQ(page.status, 200) << path;
    EXPECT_EQ(page.body, "<html>the page</html>") << path;
    EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
    EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  }
  const TestResponse packed = client.Get("/", "Accept-Encoding: gzip, br\r\n");
  EXPECT_EQ(packed.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(packed.body, PackedPage());
  EXPECT_EQ(client.Get("/", absl::StrCat("If-None-Match: ", packed.headers.at("etag"), "\r\n")).status, 304);
  const TestResponse asset = client.Get("/assets/a-12.js");
  EXPECT_EQ(asset.body, "code");
  EXPECT_THAT(asset.headers.at("cache-control"), HasSubstr("immutable"));
  for (const char* path : {"/assets/b-12.js", "/favicon.ico", "/robots.txt?a=b"}) {
    EXPECT_EQ(ErrorCode(client.Get(path)), "NOT_FOUND") << path;
  }
  EXPECT_EQ(client.Get("/api/v1/jobs/%").status, 400);
  EXPECT_EQ(ErrorCode(client.Get("/api/nothing")), "NOT_FOUND");
  EXPECT_EQ(client.Post("/", "{}").status, 405);
}

TEST_F(HttpServerTest, WithoutAPageSaysHowToGetIt) {
  options_.files = {};
  Start();
  const TestResponse page = Get("/sweeps/quick");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, HasSubstr("nodejs npm"));
  EXPECT_EQ(Get("/favicon.ico").status, 404);
}

TEST_F(HttpServerTest, ErrorsHaveTheirCodeInHttpAndInJson) {
  Start();
  const std::vector<std::pair<absl::Status, int>> cases = {
      {absl::InvalidArgumentError("x"), 400},   {absl::NotFoundError("x"), 404},          {absl::FailedPreconditionError("x"), 409},
      {absl::AlreadyExistsError("x"), 409},     {absl::ResourceExhaustedError("x"), 429}, {absl::UnavailableError("x"), 503},
      {absl::DeadlineExceededError("x"), 504},  {absl::DataLossError("x"), 500},          {absl::InternalError("x"), 500}};
  for (const auto& [status, code] : cases) {
    coordinator_.error = status;
    const TestResponse response = Get("/api/v1/sweeps/quick/table");
    EXPECT_EQ(response.status, code);
    EXPECT_EQ(ErrorCode(response), absl::StatusCodeToString(status.code()));
    EXPECT_EQ(response.headers.at("cache-control"), "no-store");
    EXPECT_EQ(response.headers.count("content-security-policy"), 1u);
  }
  coordinator_.error = absl::OkStatus();
  const int calls = coordinator_.calls;
  EXPECT_EQ(ErrorCode(Get("/api/v1/sweeps/quick/jobs?page_size=5000")), "INVALID_ARGUMENT") << "limits are asked before the coordinator";
  EXPECT_EQ(ErrorCode(Get(absl::StrCat("/api/v1/sweeps/", std::string(300, 'x')))), "INVALID_ARGUMENT");
  EXPECT_EQ(ErrorCode(Get("/api/v1/sweeps?page_sise=5")), "INVALID_ARGUMENT");
  EXPECT_EQ(Post(absl::StrCat("/api/v1/sweeps/", std::string(7900, 'x'), "/cancel"), "{}").status, 400);
  EXPECT_EQ(coordinator_.calls, calls);
}

TEST_F(HttpServerTest, InTheClearServesThisMachineAlone) {
  options_.address = "0.0.0.0:0";  // as "localhost" would be in a wrong /etc/hosts
  Start();
  EXPECT_EQ(Get("/api/v1/health").status, 200);
  std::string elsewhere;
  ifaddrs* list = nullptr;
  ASSERT_EQ(::getifaddrs(&list), 0);
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != AF_INET || (item->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[64];
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(item->ifa_addr)->sin_addr, text, sizeof(text));
    elsewhere = text;
  }
  ::freeifaddrs(list);
  if (elsewhere.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  const std::string port = server_->address().substr(server_->address().rfind(':'));
  EXPECT_EQ(TestClient(absl::StrCat(elsewhere, port)).Get("/api/v1/health").status, 0);
}

TEST_F(HttpServerTest, ChangesNeedJsonAndGetARequestId) {
  Start();
  EXPECT_EQ(Post("/api/v1/sweeps/quick/cancel", "").status, 200);
  EXPECT_THAT(coordinator_.last_request_id, testing::StartsWith("http_"));
  EXPECT_EQ(Post("/api/v1/sweeps/quick/cancel", R"({"request_id": "mine"})").status, 200);
  EXPECT_EQ(coordinator_.last_request_id, "mine");
  const int calls = coordinator_.calls;
  EXPECT_EQ(Post("/api/v1/sweeps/quick/cancel", R"({"sweep": "other"})").status, 400);
  EXPECT_EQ(Post("/api/v1/sweeps/quick/cancel?request_id=x", "{}").status, 400);
  EXPECT_EQ(Post("/api/v1/sweeps/quick/cancel", "{}", "Content-Encoding: gzip\r\n").status, 415);
  EXPECT_EQ(Get("/api/v1/sweeps/quick/cancel").status, 405);
  TestClient client(server_->address());
  // What a form of any site can send.
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"}) {
    client.Send(absl::StrCat("POST /api/v1/sweeps/quick/cancel HTTP/1.1\r\nHost: localhost\r\n", *type ? "Content-Type: " : "X: ", type,
                             "\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_EQ(client.Read().status, 415) << type;
  }
  for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"}) {
    TestClient other(server_->address());
    other.Send(absl::StrCat(method, " /api/v1/sweeps/quick/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_EQ(other.Read().status, 405) << method;
  }
  EXPECT_EQ(coordinator_.calls, calls);
}

TEST_F(HttpServerTest, PagesOfOtherSitesAreRefused) {
  Start();
  const int calls = coordinator_.calls;
  for (const char* target : {"/", "/api/v1/sweeps", "/api/v1/me", "/api/v1/changes"}) {
    TestClient client(server_->address());
    client.Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
    EXPECT_EQ(client.Read().status, 403) << target;
    EXPECT_EQ(Get(target, "Origin: http://evil.example\r\n").status, 403) << target;
    EXPECT_EQ(Get(target, "Host: evil.example\r\n").status, 403) << "two of them";
  }
  const TestResponse refused = Post("/api/v1/sweeps/quick/cancel", "{}", "Origin: null\r\n");
  EXPECT_EQ(refused.status, 403);
  ASSERT_TRUE(refused.headers.contains("connection")) << "its body is unread, so the connection ends: a client must know";
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_EQ(coordinator_.calls, calls);
  EXPECT_EQ(Post("/api/v1/sweeps/quick/cancel", "{}", "Origin: http://localhost\r\n").status, 200);
}

TEST_F(HttpServerTest, EveryRouteAsksForTheRoleOfItsMethod) {
  StartWithTokens(/*tls=*/true);
  int refused = 0;
  for (const Route& route : Routes()) {
    std::string target(route.pattern);
    for (size_t open; (open = target.find('{')) != std::string::npos;) target.replace(open, target.find('}') - open + 1, "x");
    SCOPED_TRACE(target);
    const MethodRule* const rule = FindMethodRule(absl::StrCat("/", std::string(route.rule)));
    const auto ask = [&](const std::string& headers) {
      TestClient client(server_->address(), true);
      const std::string body = route.kind == Route::Kind::kChanges ? "" : R"({"why": "x", "arm_json": "{}"})";
      client.Send(absl::StrCat(std::string(route.method), " ", target, " HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/json\r\n", headers,
                               route.method == "POST" ? absl::StrCat("Content-Length: ", body.size(), "\r\n\r\n", body) : "\r\n"));
      return client.Read(/*head=*/true).status;
    };
    if (rule->is_public) {
      EXPECT_EQ(ask(""), 200);
      continue;
    }
    EXPECT_EQ(ask(""), 401);
    EXPECT_EQ(ask("Authorization: Bearer ablate_0000000000000000000000000000000000000000000\r\n"), 401);
    EXPECT_EQ(ask(absl::StrCat(Bearer("admin"), Bearer("admin"))), 401) << "two headers: nobody can tell which counts";
    for (const std::string& role : RoleNames()) {
      const bool may = rule->Allows(*ParseRole(role));
      EXPECT_EQ(ask(Bearer(role)) != 403, may) << role;
      refused += may ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_EQ(Get("/").status, 200) << "the page itself asks for the token";
  EXPECT_EQ(Get("/api/v1/sweeps").headers.at("www-authenticate"), "Bearer");
}

TEST_F(HttpServerTest, SaysWhoTheCallerIs) {
  StartWithTokens(/*tls=*/false);
  nlohmann::json me = nlohmann::json::parse(Get("/api/v1/me").body);
  EXPECT_EQ(me["needs_token"], true);
  EXPECT_EQ(me["role"], "");
  EXPECT_EQ(me["version"], "");
  EXPECT_EQ(me["may"].size(), 0u);
  me = nlohmann::json::parse(Get("/api/v1/me", Bearer("read")).body);
  EXPECT_EQ(me["role"], "read");
  EXPECT_EQ(me["token_name"], "read");
  EXPECT_THAT(me["may"].get<std::vector<std::string>>(), testing::Contains("Sweeps/GetSweep"));
  EXPECT_THAT(me["may"].get<std::vector<std::string>>(), Not(testing::Contains("Sweeps/CancelSweep")));
  me = nlohmann::json::parse(Get("/api/v1/me", Bearer("admin")).body);
  EXPECT_THAT(me["may"].get<std::vector<std::string>>(), testing::Contains("Workers/DrainWorker"));
  EXPECT_EQ(Get("/api/v1/me", "Authorization: Bearer x\r\n").status, 401);
}

TEST_F(HttpServerTest, OffersNoChangeOfWhatIsOnlyRead) {
  options_.read_only = true;
  Start();
  const nlohmann::json me = nlohmann::json::parse(Get("/api/v1/me").body);
  EXPECT_EQ(me["read_only"], true);
  EXPECT_EQ(me["needs_token"], false);
  EXPECT_EQ(me["role"], "admin");
  EXPECT_THAT(me["may"].get<std::vector<std::string>>(), testing::Contains("Results/GetTable"));
  EXPECT_THAT(me["may"].get<std::vector<std::string>>(), Not(testing::Contains("Sweeps/CancelSweep")));
}

TEST_F(HttpServerTest, MutualTlsLetsInOnlyWhoShowsACertificate) {
  const auto ours = MakeSelfSignedCertificate({"client"}), strange = MakeSelfSignedCertificate({"strange"});
  ASSERT_TRUE(ours.ok() && strange.ok());
  const auto file = [&](const char* name, const std::string& content) {
    const std::string path = JoinPath(dir_.path(), name);
    EXPECT_TRUE(WriteFileAtomic(path, content, 0600).ok());
    return path;
  };
  StartWithTokens(/*tls=*/true, file("ca.pem", ours->certificate_pem));
  TestClient with(server_->address(), true, file("ours.pem", ours->certificate_pem), file("ours.key", ours->key_pem));
  EXPECT_EQ(with.Get("/api/v1/sweeps", Bearer("read")).status, 200);
  EXPECT_EQ(with.Get("/api/v1/sweeps").status, 401) << "a certificate opens the connection, no more";
  EXPECT_EQ(TestClient(server_->address(), true).Get("/").status, 0);
  TestClient stranger(server_->address(), true, file("strange.pem", strange->certificate_pem), file("strange.key", strange->key_pem));
  EXPECT_EQ(stranger.Get("/").status, 0);
  EXPECT_EQ(TestClient(server_->address()).Get("/").status, 0) << "no answer in the clear";
}

TEST_F(HttpServerTest, TellsEveryChange) {
  Start();
  TestClient client(server_->address());
  client.Send("GET /api/v1/changes HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(client.ReceiveUntil("event: change\ndata: {\"revision\":\"7\"}\n\n")) << client.received();
}

TEST_F(HttpServerTest, AStreamSendsEventsAndEndsWithItsToken) {
  StartWithTokens(/*tls=*/true);
  TestClient client(server_->address(), true);
  client.Send(absl::StrCat("GET /api/v1/changes?sweep=quick HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n", Bearer("read"), "\r\n"));
  ASSERT_TRUE(client.ReceiveUntil("\n\n\r\n")) << client.received();
  ASSERT_TRUE(client.ReceiveUntil("event: sweep\ndata: {")) << client.received();
  EXPECT_THAT(client.received(), HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(client.received(), HasSubstr("\"name\":\"quick\""));
  EXPECT_THAT(client.received(), Not(HasSubstr("Content-Encoding")));
  ASSERT_TRUE(tokens_->Revoke("read").ok());
  ASSERT_TRUE(client.ReceiveUntil("\r\n0\r\n\r\n")) << client.received();
  EXPECT_THAT(client.received(), HasSubstr("event: error\ndata: {\"error\":{\"code\":\"UNAUTHENTICATED\""));
  EXPECT_EQ(Get("/api/v1/changes?sweep=quick", Bearer("read")).status, 401);
}

TEST_F(HttpServerTest, StreamsAreCappedAndGiveTheirPlaceBack) {
  options_.max_streams = 2;
  Start();
  std::vector<std::unique_ptr<TestClient>> clients;
  const auto open = [&] {
    clients.push_back(std::make_unique<TestClient>(server_->address()));
    clients.back()->Send("GET /api/v1/changes?sweep=quick HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return clients.back()->ReceiveUntil("event: sweep");
  };
  ASSERT_TRUE(open() && open());
  const TestResponse full = Get("/api/v1/changes?sweep=quick");
  EXPECT_EQ(full.status, 503);
  EXPECT_THAT(full.body, HasSubstr("2 streams"));
  EXPECT_EQ(Get("/api/v1/sweeps").status, 200) << "other answers go on";
  // One goes away without a word.
  clients.pop_back();
  EXPECT_TRUE(Eventually([this] { return coordinator_.waiting == 1; })) << "its thread is free again";
  EXPECT_TRUE(Eventually(open));
}

TEST_F(HttpServerTest, EndsStreamsWithTheServer) {
  Start();
  TestClient client(server_->address());
  client.Send("GET /api/v1/changes?sweep=quick HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(client.ReceiveUntil("event: sweep"));
  TestClient idle(server_->address());
  EXPECT_EQ(idle.Get("/api/v1/health").status, 200);
  coordinator_.Shutdown();
  server_->Shutdown();  // returns: nobody holds a thread
  while (client.Receive()) {
  }
  EXPECT_FALSE(idle.Receive());
  EXPECT_FALSE(TestClient(server_->address()).ok());
}

TEST_F(HttpServerTest, AStreamOfWhatIsNotThereIsAnOrdinaryError) {
  Start();
  coordinator_.error = absl::NotFoundError("there is no sweep");
  EXPECT_EQ(Get("/api/v1/changes?sweep=nope").status, 404);
  EXPECT_EQ(Get("/api/v1/changes?swep=nope").status, 400);
  EXPECT_EQ(Get("/api/v1/changes?sweep=").status, 400);
}

TEST_F(HttpServerTest, WrongRequestsGetAnErrorAndNobodyElseNotices) {
  options_.listener.head_seconds = 0.3;
  options_.listener.body_seconds = 0.3;
  Start();
  const std::map<std::string, int> cases = {
      {"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 400},
      {"get / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      // At once, and not when its time is over.
      {"GET / HTTP/1.1\nHost: localhost\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: localhost\n", 400},
      {"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 403},
      {"\r\n\r\n", 400},
      {absl::StrCat("GET /", std::string(9000, 'x'), " HTTP/1.1\r\nHost: localhost\r\n\r\n"), 414},
      {absl::StrCat("GET / HTTP/1.1\r\nHost: localhost\r\nX: ", std::string(kMaxHttpHeadBytes + 10, 'x')), 431},
      {"POST /api/v1/sweeps/a/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n", 413},
      {"POST /api/v1/sweeps/a/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}", 400},
      // Ended too early, in silence.
      {"GET / HTTP/1.1\r\nHost: loc", 0},
  };
  for (const auto& [request, status] : cases) {
    TestClient client(server_->address());
    client.Send(request);
    const TestResponse response = client.Read();
    EXPECT_EQ(response.status, status) << request.substr(0, 80);
    if (status >= 400) {
      EXPECT_NE(ErrorCode(response), "") << response.body;
      EXPECT_EQ(response.headers.count("content-security-policy"), 1u) << request.substr(0, 80);
    }
  }
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    TestClient client(server_->address());
    std::string bytes = round % 2 == 0 ? "" : "GET /api/v1/sweeps HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < 300; ++i) bytes += static_cast<char>(random() % 256);
    client.Send(bytes + "\r\n\r\n");
    EXPECT_NE(client.Read().status, 200);
  }
  EXPECT_EQ(Get("/api/v1/health").status, 200);
}

TEST_F(HttpServerTest, SeveralRequestsOfOneConnectionAreAnsweredInOrder) {
  Start();
  TestClient client(server_->address());
  client.Send("GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /api/v1/sweeps/a/cancel HTTP/1.1\r\nHost: localhost\r\n"
              "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}GET /api/v1/sweeps HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().body, R"({"status":"SERVING"})");
  EXPECT_THAT(client.Read().body, HasSubstr("\"name\":\"a\""));
  EXPECT_THAT(client.Read().body, HasSubstr("\"sweeps\""));
  // A body that nobody reads is no further request.
  client.Send("POST /api/v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60\r\n\r\nGET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().status, 404);
  EXPECT_EQ(client.Read().status, 0);
}

TEST_F(HttpServerTest, ManyConnectionsAreBounded) {
  options_.listener.max_connections = 8;
  options_.listener.idle_seconds = 30;
  Start();
  // Idle ones make way.
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->address()));
    const bool served = Eventually([&] {
      if (clients.back()->Get("/api/v1/health").status == 200) return true;
      clients.back() = std::make_unique<TestClient>(server_->address());
      return false;
    });
    ASSERT_TRUE(served) << i;
  }
}

TEST_F(HttpServerTest, WhatIsNoHttpEndsItsConnectionAtOnce) {
  options_.listener.head_seconds = 600;
  Start();
  for (const char* request : {"PRI * HTTP/2.0\r\n\r\n", "get / HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                              "GET /\r\n\r\n", "GET / HTTP/1.1\nHost: localhost\n\n", "GET / HTTP/1.1\r\nHost: localhost\rX"}) {
    TestClient client(server_->address());
    client.Send(request);
    const TestResponse response = client.Read();
    EXPECT_EQ(response.status, 400) << request;
    EXPECT_EQ(response.headers.at("connection"), "close") << request;
    EXPECT_FALSE(client.Receive()) << request;
  }
}

TEST_F(HttpServerTest, HalfOpenHeadsMakeWayWhereItIsCrowded) {
  options_.listener.max_connections = 8;
  options_.listener.head_seconds = 600;
  options_.listener.crowded_head_seconds = 0.2;
  Start();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->address()));
    clients.back()->Send("GET / HTT");
  }
  EXPECT_TRUE(Eventually([&] { return TestClient(server_->address()).Get("/api/v1/health").status == 200; }));
}

TEST_F(HttpServerTest, HalfOpenHandshakesMakeWayWhereItIsCrowded) {
  options_.listener.max_connections = 8;
  options_.listener.head_seconds = 600;
  options_.listener.crowded_head_seconds = 0.2;
  StartWithTokens(/*tls=*/true);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<TestClient>(server_->address()));
    if (i % 2 == 0) clients.back()->Send(std::string("\x16\x03\x01", 3));
  }
  EXPECT_TRUE(Eventually([&] { return Get("/api/v1/health").status == 200; }));
}

TEST_F(HttpServerTest, SaysThatItIsFullAsItSaysEverything) {
  options_.listener.max_connections = 0;
  Start();
  TestClient client(server_->address());
  const TestResponse response = client.Read();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(ErrorCode(response), "UNAVAILABLE");
  EXPECT_EQ(response.headers.at("retry-after"), "2");
  EXPECT_EQ(response.headers.count("content-security-policy"), 1u);
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  Start();
  options_.address = server_->address();
  const auto taken = HttpServer::Start(options_, &coordinator_);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("another program listens there"));
  for (const char* address : {"127.0.0.1", "unix:/tmp/x", "127.0.0.1:99999", ":80", "::1:80", ""}) {
    options_.address = address;
    EXPECT_EQ(HttpServer::Start(options_, &coordinator_).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  options_.address = "192.0.2.1:0";
  EXPECT_EQ(HttpServer::Start(options_, &coordinator_).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->url(), absl::StrCat("http://", server_->address(), "/"));
}

}  // namespace
}  // namespace ablate
