// What is pure: heads, addresses, JSON both ways, names and origins, the table of routes, the page that says how to get one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "proto/coordinator.pb.h"
#include "server/access/roles.h"
#include "server/http/gzip.h"
#include "server/http/head.h"
#include "server/http/json.h"
#include "server/http/json_writer.h"
#include "server/http/origin.h"
#include "server/http/routes.h"
#include "server/http/static_files.h"
#include "server/http/uri.h"

namespace ablate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

TEST(Head, IsWholeAtItsEmptyLine) {
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\r\nHost: a\r\n\r\nbody", 0), 27u);
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\r\nHost: a\r\n\r", 0), 0u);
  EXPECT_EQ(FindHeadEnd("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 24), 27u) << "an empty line that came in two parts";
}

TEST(Head, GoesOnWithoutWhatIsIgnored) {
  const HttpHead head = ScanHead("POST /a HTTP/1.1\r\nHost: a\r\nCookie: secret=1\r\nrange: bytes=0-\r\nContent-Length: 12\r\n\r\n");
  EXPECT_EQ(head.status, 0) << head.message;
  EXPECT_EQ(head.text, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n");
  EXPECT_EQ(head.body_bytes, 12);
}

TEST(Head, RefusesWhatTwoReadersCouldReadDifferently) {
  const std::string many = [] {
    std::string lines;
    for (int i = 0; i <= kMaxHttpHeaders; ++i) absl::StrAppend(&lines, "a", i, ": b\r\n");
    return lines;
  }();
  const std::map<std::string, int> cases = {
      {"", 400},
      {"Content-Length: 1\r\nContent-Length: 1\r\n", 400},
      {"Content-Length: +1\r\n", 400},
      {"Content-Length: -1\r\n", 400},
      {"Content-Length: 0x1\r\n", 400},
      {"Content-Length: 1, 1\r\n", 400},
      {"Content-Length:\r\n", 400},
      {"Content-Length: 99999999999999999999\r\n", 400},
      {absl::StrCat("Content-Length: ", kMaxHttpBodyBytes + 1, "\r\n"), 413},
      {"Transfer-Encoding: chunked\r\n", 411},
      {"transfer-encoding : chunked\r\n", 400},
      {"Host: a\r\n continued\r\n", 400},
      {"Host a\r\n", 400},
      {": a\r\n", 400},
      {"Ho st: a\r\n", 400},
      {"Host: a\nX: b\r\n", 400},
      {"Host: a\rX: b\r\n", 400},
      {std::string("Host: a\0b\r\n", 11), 400},
      {absl::StrCat("X: ", std::string(kMaxHttpLineBytes, 'x'), "\r\n"), 431},
      {many, 431},
  };
  for (const auto& [lines, status] : cases) {
    if (lines.empty()) {
      EXPECT_EQ(ScanHead("\r\n\r\n").status, 400);
    } else {
      EXPECT_EQ(ScanHead(absl::StrCat("GET / HTTP/1.1\r\n", lines, "\r\n")).status, status) << lines.substr(0, 60);
    }
  }
  EXPECT_EQ(ScanHead(absl::StrCat("GET /", std::string(kMaxHttpLineBytes, 'x'), " HTTP/1.1\r\n\r\n")).status, 414);
  EXPECT_EQ(ScanHead(absl::StrCat("GET / HTTP/1.1\r\nCookie: ", std::string(30'000, 'x'), "\r\n\r\n")).status, 0)
      << "cookies of other programs on this machine";
}

TEST(Head, IsOfHttp1) {
  for (const char* line : {"GET / HTTP/1.1", "HEAD /a?b HTTP/1.0", "PURGE * HTTP/1.1"})
    EXPECT_EQ(ScanHead(absl::StrCat(line, "\r\n\r\n")).status, 0) << line;
  for (const char* line : {"GET /", "GET  / HTTP/1.1", " / HTTP/1.1", "GET / HTTP/1.1 ", "GET / HTTP/1.2", "GET / HTTP/2.0", "get / HTTP/1.1",
                           "PRI * HTTP/2.0", "GET", "HTTP/1.1", "GET / a HTTP/1.1"})
    EXPECT_EQ(ScanHead(absl::StrCat(line, "\r\n\r\n")).status, 400) << line;
}

TEST(Head, WithABareLineEndIsSeenBeforeItIsWhole) {
  for (const char* part : {"GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: a\n", "\n", "GET / HTTP/1.1\rH"}) {
    EXPECT_TRUE(HasBareLineEnd(part, 0)) << part;
  }
  EXPECT_FALSE(HasBareLineEnd("GET / HTTP/1.1\r\nHost: a\r", 0)) << "its LF may come";
  EXPECT_TRUE(HasBareLineEnd("GET / HTTP/1.1\rX", 15)) << "in two parts";
  EXPECT_FALSE(HasBareLineEnd("GET / HTTP/1.1\r\n", 15));
}

TEST(Head, OfAnyBytesIsReadWithinThem) {
  std::mt19937 random(7);
  const std::string letters("GET / HTTP/1.1\r\n:\0\x7f\xff %0a", 25);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (size_t i = random() % 60; i > 0; --i) bytes += letters[random() % letters.size()];
    bytes += "\r\n\r\n";
    const size_t end = FindHeadEnd(bytes, 0);
    ASSERT_GE(end, 4u);
    const HttpHead head = ScanHead(std::string_view(bytes).substr(0, end));
    if (head.status == 0) {
      EXPECT_EQ(head.text.substr(head.text.size() - 4), "\r\n\r\n");
      EXPECT_EQ(head.text.find('\0'), std::string::npos);
    }
  }
}

TEST(Address, IsTakenApartAndDecoded) {
  const auto target = ParseTarget("/api/v1/sweeps/a%2Fb%20%C3%A9?metrics=x+y&metrics=%2B&empty&states=");
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(target->segments, ElementsAre("api", "v1", "sweeps", "a/b é"));
  EXPECT_THAT(target->query, ElementsAre(Pair("metrics", "x y"), Pair("metrics", "+"), Pair("empty", ""), Pair("states", "")));
  EXPECT_EQ(target->path, "/api/v1/sweeps/a%2Fb%20%C3%A9");
  EXPECT_TRUE(ParseTarget("/")->segments.empty());
  EXPECT_THAT(ParseTarget("/../../etc/passwd")->segments, ElementsAre("..", "..", "etc", "passwd"));
  for (const char* bad : {"", "*", "http://host/", "host:1", "/%", "/%2", "/%2g", "/a%00b", "/%0a", "/?x=%0d", "/%ff", "/?%c3"})
    EXPECT_EQ(ParseTarget(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

TEST(Query, SetsFieldsByNameAndKind) {
  v1::GetTableRequest table;
  ASSERT_TRUE(FillFromQuery({{"metrics", "loss"}, {"metrics", "acc*"}, {"level", "0.9"}}, {"sweep"}, &table).ok());
  EXPECT_THAT(table.metrics(), ElementsAre("loss", "acc*"));
  EXPECT_EQ(table.level(), 0.9);
  v1::ListJobsRequest jobs;
  ASSERT_TRUE(FillFromQuery({{"states", "FAILED"}, {"states", "RUNNING"}, {"page_size", "7"}}, {"sweep"}, &jobs).ok());
  EXPECT_THAT(jobs.states(), ElementsAre(v1::FAILED, v1::RUNNING));
  EXPECT_EQ(jobs.page_size(), 7);

  const auto refused = [](const std::vector<std::pair<std::string, std::string>>& query) {
    v1::ListJobsRequest request;
    const absl::Status status = FillFromQuery(query, {"sweep"}, &request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({{"state", "FAILED"}}), HasSubstr("did you mean \"states\"?"));
  EXPECT_THAT(refused({{"states", "FAILD"}}), HasSubstr("did you mean \"FAILED\"?"));
  EXPECT_THAT(refused({{"states", "5"}}), HasSubstr("is none of its values"));
  EXPECT_THAT(refused({{"page_size", "7.5"}}), HasSubstr("expected a whole number"));
  EXPECT_THAT(refused({{"page_size", "99999999999"}}), HasSubstr("expected a whole number"));
  EXPECT_THAT(refused({{"page_size", ""}}), HasSubstr("expected a whole number"));
  EXPECT_THAT(refused({{"page_size", "1"}, {"page_size", "1"}}), HasSubstr("more than once"));
  EXPECT_THAT(refused({{"sweep", "other"}}), HasSubstr("no such parameter"));
  v1::SubmitSweepRequest submit;
  EXPECT_THAT(std::string(FillFromQuery({{"data", "{}"}}, {}, &submit).message()), HasSubstr("body of a POST"));
  v1::WatchChangesRequest none;
  EXPECT_THAT(std::string(FillFromQuery({{"x", ""}}, {}, &none).message()), HasSubstr("none at all"));
}

TEST(Body, SetsFieldsFromJson) {
  v1::LockSweepRequest lock;
  ASSERT_TRUE(FillFromBody(R"({"arm_json": "{\"attention.p\":3}", "why": "é"})", {"sweep"}, &lock).ok());
  EXPECT_EQ(lock.arm_json(), "{\"attention.p\":3}");
  EXPECT_TRUE(FillFromBody("", {"sweep"}, &lock).ok());
  std::string deep = R"({"data": )";
  for (int i = 0; i < 5000; ++i) deep += R"({"files":[)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "no JSON"}, {"3", "no JSON"}, {"{", "no JSON"}, {R"({"wy": "x"})", "Cannot find field"}, {R"({"why": 3.5e400})", "no JSON"},
      {R"({"sweep": "other"})", "in the address already"}, {"{\"why\": \"\xff\"}", "not UTF-8"}, {deep, "no JSON"}, {std::string(100'000, '['), "no JSON"}};
  for (const auto& [body, words] : cases) {
    v1::LockSweepRequest request;
    const absl::Status status = FillFromBody(body, {"sweep"}, &request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << body.substr(0, 40);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  v1::SubmitSweepRequest submit;
  EXPECT_FALSE(FillFromBody(deep, {}, &submit).ok());
}

TEST(Json, KeepsNumbersNamesAndText) {
  v1::Curve curve;
  for (const double value : {0.1, 1e300, std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    curve.add_values(value);
  }
  curve.add_steps(int64_t{9'007'199'254'740'993});
  curve.set_metric("a\xff\"\n");
  curve.set_phase(v1::PLAIN);
  const nlohmann::json json = nlohmann::json::parse(WriteJson(curve));
  EXPECT_EQ(json["values"].dump(), R"([0.1,1e+300,"NaN","Infinity","-Infinity"])");
  EXPECT_EQ(json["steps"][0], "9007199254740993");
  EXPECT_EQ(json["metric"], "a\xEF\xBF\xBD\"\n");
  EXPECT_EQ(json["phase"], "PLAIN");
  EXPECT_EQ(json["arm"], 0) << "fields without presence are always there";
  EXPECT_EQ(json["job_ids"].dump(), "[]");

  v1::ConfidenceRow row;
  row.set_low(std::nan(""));
  const nlohmann::json with = nlohmann::json::parse(WriteJson(row));
  EXPECT_EQ(with["low"], "NaN");
  EXPECT_FALSE(with.contains("mean")) << "an optional field that is absent is left out";
  EXPECT_FALSE(with.contains("lowerCamel")) << "names as in the .proto files";
  EXPECT_TRUE(with.contains("arm_json"));
}

TEST(Json, OfDoublesReadsBackAsTheSameBits) {
  std::mt19937_64 random(3);
  v1::Curve curve;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t bits = random();
    double value;
    static_assert(sizeof(value) == sizeof(bits));
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isfinite(value)) curve.add_values(value);
  }
  const nlohmann::json json = nlohmann::json::parse(WriteJson(curve));
  for (int i = 0; i < curve.values_size(); ++i) ASSERT_EQ(json["values"][static_cast<size_t>(i)].get<double>(), curve.values(i));
}

// Everything that a message may hold, of the kinds that ours have.
void FillAnyhow(google::protobuf::Message* message, std::mt19937_64* random, int depth) {
  const auto* reflection = message->GetReflection();
  const auto* descriptor = message->GetDescriptor();
  const auto real = [random] {
    static constexpr double kOdd[] = {0, -0.0, 1, 0.1, 1e-310, 1.7976931348623157e308, 123456789012345680000.0};
    const uint64_t pick = (*random)() % 16;
    if (pick < std::size(kOdd)) return kOdd[pick];
    if (pick == 8) return std::nan("");
    if (pick == 9) return -std::numeric_limits<double>::infinity();
    return static_cast<double>(static_cast<int64_t>((*random)())) / 1e12;
  };
  const auto text = [random] {
    std::string letters;
    for (uint64_t i = (*random)() % 12; i > 0; --i) letters += "ab\"\\/<\n\t\x01\x7f "[(*random)() % 12];
    return letters + "é\U0001F600\u2028";
  };
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const bool list = field->is_repeated();
    for (uint64_t n = (*random)() % (list ? 4 : 2); n > 0; --n) {
      switch (field->cpp_type()) {
        case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
          list ? reflection->AddString(message, field, text()) : reflection->SetString(message, field, text());
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
          list ? reflection->AddDouble(message, field, real()) : reflection->SetDouble(message, field, real());
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_INT32: {
          const auto value = static_cast<int32_t>((*random)());
          list ? reflection->AddInt32(message, field, value) : reflection->SetInt32(message, field, value);
          break;
        }
        case google::protobuf::FieldDescriptor::CPPTYPE_INT64: {
          const auto value = static_cast<int64_t>((*random)());
          list ? reflection->AddInt64(message, field, value) : reflection->SetInt64(message, field, value);
          break;
        }
        case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
          list ? reflection->AddBool(message, field, true) : reflection->SetBool(message, field, true);
          break;
        case google::protobuf::FieldDescriptor::CPPTYPE_ENUM: {
          const auto* value = field->enum_type()->value(static_cast<int>((*random)() % static_cast<uint64_t>(field->enum_type()->value_count())));
          list ? reflection->AddEnum(message, field, value) : reflection->SetEnum(message, field, value);
          break;
        }
        case google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth < 6 && !field->is_map())
            FillAnyhow(list ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field), random, depth + 1);
          break;
        default:
          ADD_FAILURE() << field->full_name() << " is of a kind that this test does not know";
      }
    }
  }
}

TEST(Json, IsProtobufsOwn) {
  std::mt19937_64 random(5);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::set<std::string> kinds;
  for (const char* name : {"Sweeps", "Jobs", "Results", "Workers"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(absl::StrCat("ablate.v1.", name));
    for (int i = 0; i < service->method_count(); ++i) {
      for (const auto* type : {service->method(i)->input_type(), service->method(i)->output_type()}) {
        if (!kinds.insert(type->full_name()).second) continue;
        for (int round = 0; round < 8; ++round) {
          const std::unique_ptr<google::protobuf::Message> message(
              google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
          if (round > 0) FillAnyhow(message.get(), &random, 0);
          std::string theirs;
          ASSERT_TRUE(google::protobuf::util::MessageToJsonString(*message, &theirs, options).ok());
          const std::string ours = WriteJson(*message);
          ASSERT_EQ(nlohmann::json::parse(ours), nlohmann::json::parse(theirs)) << ours << "\n" << theirs;
        }
      }
    }
  }
  EXPECT_GT(kinds.size(), 40u);
}

TEST(Json, OfErrorsIsTextWhateverTheMessage) {
  const nlohmann::json json = nlohmann::json::parse(ErrorJson(absl::StatusCode::kNotFound, "no \xff \"x\""));
  EXPECT_EQ(json["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(json["error"]["message"], "no \xEF\xBF\xBD \"x\"");
}

TEST(Compression, IsLossless) {
  for (const std::string& text : {std::string(), std::string("x"), std::string(100'000, 'y')}) {
    const auto back = Gunzip(Gzip(text, 1));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, text);
  }
  EXPECT_FALSE(Gunzip("no gzip").ok());
  for (const char* yes : {"gzip", "br, gzip;q=0.5", "GZIP", "*", "deflate,gzip ; q=1.0"}) EXPECT_TRUE(AcceptsGzip(yes)) << yes;
  for (const char* no : {"", "br", "gzip;q=0", "identity", "x-gzip-not", "gzip;q=x"}) EXPECT_FALSE(AcceptsGzip(no)) << no;
}

TEST(Origin, OfPagesOfOtherSitesIsRefused) {
  const OriginChecker open("127.0.0.1:7480", {"lab.example"}, /*any_host=*/false, /*tls=*/false);
  const auto check = [&](const char* host, const char* origin) {
    return open.Check(host, origin != nullptr, origin == nullptr ? "" : origin).ok();
  };
  EXPECT_TRUE(check("localhost:7480", nullptr));
  EXPECT_TRUE(check("LOCALHOST", nullptr));
  EXPECT_TRUE(check("127.0.0.1:9999", nullptr)) << "through a tunnel";
  EXPECT_TRUE(check("[::1]:7480", nullptr));
  EXPECT_TRUE(check("lab.example", nullptr));
  EXPECT_TRUE(check("localhost:7480", "http://localhost:7480"));
  EXPECT_TRUE(check("lab.example", "https://lab.example")) << "behind a proxy that speaks TLS";
  EXPECT_TRUE(check("localhost", "http://localhost:80"));
  // Rebinding: the browser says whose name it was.
  for (const char* host : {"", "evil.example", "evil.example:7480", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2", "0.0.0.0",
                           "localhost evil", "localhost:7480@evil.example", "localhost:99999999", "user@localhost"})
    EXPECT_FALSE(check(host, nullptr)) << host;
  for (const char* origin : {"", "null", "http://evil.example", "http://localhost:7481", "http://localhost.evil.example:7480", "localhost:7480",
                             "file://localhost:7480", "http://127.0.0.1:7480"})
    EXPECT_FALSE(check("localhost:7480", origin)) << origin;

  const OriginChecker tokens("0.0.0.0:7480", {}, /*any_host=*/true, /*tls=*/true);
  EXPECT_TRUE(tokens.Check("cluster.example:7480", true, "https://cluster.example:7480").ok());
  EXPECT_FALSE(tokens.Check("cluster.example:7480", true, "https://evil.example").ok());
  EXPECT_FALSE(tokens.Check("", false, "").ok());
}

TEST(Routes, NameMethodsOfTheTableOfRoles) {
  std::set<std::string> patterns;
  for (const Route& route : Routes()) {
    SCOPED_TRACE(std::string(route.pattern));
    const MethodRule* const rule = FindMethodRule(absl::StrCat("/", std::string(route.rule)));
    ASSERT_NE(rule, nullptr) << route.rule;
    EXPECT_TRUE(patterns.insert(absl::StrCat(std::string(route.method), " ", std::string(route.pattern))).second) << "twice";
    EXPECT_EQ(route.kind == Route::Kind::kCall, route.call != nullptr && route.new_request != nullptr);
    if (route.kind != Route::Kind::kCall) continue;
    // Whoever may only look can change nothing: what a reader may call is a GET, all else a POST.
    EXPECT_EQ(route.method == "GET", rule->Allows(Role::kRead));
    // The names in braces are fields of the very request that the gRPC method takes.
    const auto message = route.new_request();
    const std::string rule_name(route.rule);
    const auto* method = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
        absl::StrCat(rule_name.substr(0, rule_name.find('/')), ".", rule_name.substr(rule_name.find('/') + 1)));
    ASSERT_NE(method, nullptr);
    EXPECT_EQ(method->input_type(), message->GetDescriptor());
    for (size_t open = route.pattern.find('{'); open != std::string_view::npos; open = route.pattern.find('{', open + 1)) {
      const std::string field(route.pattern.substr(open + 1, route.pattern.find('}', open) - open - 1));
      EXPECT_NE(message->GetDescriptor()->FindFieldByName(field), nullptr) << field;
    }
  }
}

TEST(Routes, ServeEveryMethodThatReads) {
  std::set<std::string> served;
  for (const Route& route : Routes()) served.emplace(route.rule);
  int methods = 0;
  for (const char* name : {"Sweeps", "Jobs", "Results", "Workers"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(absl::StrCat("ablate.v1.", name));
    ASSERT_NE(service, nullptr);
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method = absl::StrCat(service->full_name(), "/", service->method(i)->name());
      const bool reads = FindMethodRule(absl::StrCat("/", method))->Allows(Role::kRead);
      if (!reads || service->method(i)->server_streaming()) continue;
      EXPECT_EQ(served.count(method), 1u) << method << " has no route";
      ++methods;
    }
  }
  EXPECT_GE(methods, 15);
}

TEST(Routes, AreInTheirPage) {
  const std::string page = *ReadFile(absl::StrCat(ABLATE_DOCS_DIR, "/http-api.md"));
  for (const Route& route : Routes()) {
    const std::string row = absl::StrCat("| ", std::string(route.method), " | `", std::string(route.pattern), "` | ");
    EXPECT_THAT(page, HasSubstr(row));
  }
  for (const double number : {double(kMaxHttpHeadBytes), double(kMaxHttpBodyBytes), double(kMaxHttpHeaders), double(kMaxHttpLineBytes)})
    EXPECT_THAT(*ReadFile(absl::StrCat(ABLATE_DOCS_DIR, "/limits.md")), HasSubstr(absl::StrCat("| ", static_cast<int64_t>(number), " |")));
}

TEST(Routes, AreFoundBySegments) {
  std::string allowed;
  const auto found = FindRoute("POST", {"api", "v1", "sweeps", "a/b", "cancel"}, &allowed);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->route->rule, "ablate.v1.Sweeps/CancelSweep");
  EXPECT_THAT(found->fields, ElementsAre(Pair("sweep", "a/b")));
  EXPECT_EQ(FindRoute("GET", {"api", "v1", "sweeps", "a", "cancel"}, &allowed).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(allowed, "POST");
  for (const std::vector<std::string>& none : std::vector<std::vector<std::string>>{
           {"api"}, {"api", "v2", "sweeps"}, {"api", "v1"}, {"api", "v1", "sweeps", "a", "tables"}, {"api", "v1", "sweeps", "a", "table", ""}})
    EXPECT_EQ(FindRoute("GET", none, &allowed).status().code(), absl::StatusCode::kNotFound);
}

TEST(Page, IsTheFileOrThePageThatReadsTheAddress) {
  static constexpr EmbeddedFile kFiles[] = {{"/index.html", "page"}, {"/icon.svg", "icon"}, {"/assets/index-4f2c.js", "code"}};
  const StaticFiles files(kFiles);
  EXPECT_EQ(files.Find("/")->bytes, "page");
  EXPECT_EQ(files.Find("/sweeps/p.15")->bytes, "page");
  EXPECT_EQ(files.Find("/icon.svg")->bytes, "icon");
  EXPECT_EQ(files.Find("/assets/index-4f2c.js")->bytes, "code");
  EXPECT_EQ(files.Find("/assets/index-0000.js"), nullptr) << "never the page in place of a script";
  EXPECT_EQ(files.Find("/favicon.ico"), nullptr);
  EXPECT_EQ(files.Find("/jobs/%")->bytes, "page");
  EXPECT_TRUE(IsImmutable(*files.Find("/assets/index-4f2c.js")));
  EXPECT_FALSE(IsImmutable(*files.Find("/")));
  EXPECT_EQ(MediaType("/a.js"), "text/javascript; charset=utf-8");
  EXPECT_EQ(MediaType("/a"), "application/octet-stream");
  EXPECT_THAT(std::string(FallbackPage()), HasSubstr("nodejs npm"));
  EXPECT_THAT(std::string(FallbackPage()), Not(HasSubstr("://"))) << "it asks nobody else for anything";
}

}  // namespace
}  // namespace ablate
