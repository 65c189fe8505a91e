#include "server/http/http_server.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash.h"
#include "base/host_port.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "server/access/roles.h"
#include "server/http/gzip.h"
#include "server/http/json.h"
#include "server/http/json_writer.h"
#include "server/http/origin.h"
#include "server/http/routes.h"
#include "server/http/uri.h"
#include "server/services/caller.h"
#include "server/services/limits.h"

namespace ablate {
namespace {

using google::protobuf::Message;

constexpr size_t kGzipFromBytes = 16 << 10;
constexpr int kGzipLevel = 1;  // answers are made anew each time
constexpr auto kKeepAlive = std::chrono::seconds(15);
constexpr char kJson[] = "application/json";
constexpr std::string_view kPackage = "ablate.v1.";

// 'unsafe-inline' is for styles alone: the chart library writes them into its SVG.
constexpr char kContentPolicy[] =
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::vector<std::pair<std::string, std::string>> SecurityHeaders() {
  return {{"Content-Security-Policy", kContentPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"X-Frame-Options", "DENY"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

HttpResponse ErrorResponse(const absl::Status& status) {
  HttpResponse response;
  response.status = HttpStatusOf(status.code());
  response.media_type = kJson;
  response.body = ErrorJson(status.code(), ToStd(status.message()));
  response.headers = {{"Cache-Control", "no-store"}};
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (response.status == 503) response.headers.emplace_back("Retry-After", "2");
  return response;
}

HttpResponse ErrorResponse(int http_status, const absl::Status& status) {
  HttpResponse response = ErrorResponse(status);
  response.status = http_status;
  return response;
}

// Whether If-None-Match names the entity: `tag` is what is between its quotes, whatever the encoding.
bool TagMatches(std::string_view if_none_match, const std::string& tag) {
  for (absl::string_view item : absl::StrSplit(ToAbsl(if_none_match), ',')) {
    item = absl::StripAsciiWhitespace(item);
    if (item == "*") return true;
    absl::ConsumePrefix(&item, "W/");
    if (item == absl::StrCat("\"", tag, "\"") || item == absl::StrCat("\"", tag, "-gzip\"")) return true;
  }
  return false;
}

HttpResponse NotModified(const std::string& etag, std::string_view cache) {
  HttpResponse response;
  response.status = 304;
  response.headers = {{"ETag", etag}, {"Cache-Control", std::string(cache)}, {"Vary", "Accept-Encoding"}};
  return response;
}

HttpResponse JsonResponse(const HttpRequest& request, std::string json) {
  const std::string tag = Sha256Hex(json).substr(0, 32);
  const bool gzip = json.size() >= kGzipFromBytes && AcceptsGzip(request.Header("accept-encoding"));
  // Strong: of these very bytes, which differ by encoding.
  const std::string etag = absl::StrCat("\"", tag, gzip ? "-gzip\"" : "\"");
  const std::string if_none_match(request.Header("if-none-match"));
  const bool cacheable = request.method == "GET";
  if (cacheable && TagMatches(if_none_match, tag)) return NotModified(etag, "no-cache");
  if (gzip) json = Gzip(json, kGzipLevel);
  HttpResponse response;
  response.media_type = kJson;
  response.body = std::move(json);
  response.headers = {{"Cache-Control", cacheable ? "no-cache" : "no-store"}, {"Vary", "Accept-Encoding"}};
  if (cacheable) response.headers.emplace_back("ETag", etag);
  if (gzip) response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

// One server-sent event; `json` has no line ends.
std::string Event(std::string_view name, std::string_view json) {
  return absl::StrCat("event: ", ToAbsl(name), "\ndata: ", ToAbsl(json), "\n\n");
}

bool IsApi(std::string_view path) { return path == "/api" || path.substr(0, 5) == "/api/"; }

// The page reads its address by itself, whatever is in it.
absl::StatusOr<Target> TargetOf(const HttpRequest& request) {
  absl::StatusOr<Target> target = ParseTarget(request.target);
  std::string path = request.target.substr(0, request.target.find('?'));
  if (target.ok() || path.substr(0, 1) != "/" || IsApi(path)) return target;
  Target of_page;
  of_page.path = std::move(path);
  return of_page;
}

std::set<std::string> Names(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::set<std::string> names;
  for (const auto& field : fields) names.insert(field.first);
  return names;
}

class Handler final : public HttpHandler {
 public:
  Handler(const HttpServerOptions& options, Coordinator* coordinator)
      : options_(options),
        coordinator_(*coordinator),
        policy_(options.access.tokens, options.access.security.tokens),
        origins_(options.address, options.host_names, options.access.security.tokens, options.access.security.tls),
        files_(options.files) {}

  std::optional<HttpResponse> Refuse(const HttpRequest& request) override;
  HttpResponse Answer(const HttpRequest& request) override;
  std::string ErrorBody(int status, std::string_view message) override {
    return ErrorJson(status == 503 ? absl::StatusCode::kUnavailable : absl::StatusCode::kInvalidArgument, message);
  }

 private:
  absl::StatusOr<HttpResponse> Call(const Route& route, const FoundRoute& found, const Target& target, const HttpRequest& request);
  absl::StatusOr<HttpResponse> Me(const HttpRequest& request);
  absl::StatusOr<HttpResponse> Changes(const Target& target, const HttpRequest& request);
  HttpResponse File(const Target& target, const HttpRequest& request);

  // OK while the caller of a long answer may go on.
  absl::Status CheckLive(const TokenHolder& holder) const {
    return policy_.open() ? absl::OkStatus() : policy_.tokens()->CheckLive(holder.row);
  }

  const HttpServerOptions options_;
  Coordinator& coordinator_;
  const CallerPolicy policy_;
  const OriginChecker origins_;
  const StaticFiles files_;
  std::atomic<int> streams_ = 0;
};

std::optional<HttpResponse> Handler::Refuse(const HttpRequest& request) {
  if (request.method != "GET" && request.method != "POST") {
    HttpResponse response =
        ErrorResponse(405, absl::UnimplementedError(absl::StrCat(request.method, " is not taken; GET, HEAD and POST are")));
    response.headers.emplace_back("Allow", "GET, HEAD, POST");
    return response;
  }
  const bool has_origin = request.HasHeader("origin");
  if (const absl::Status status = origins_.Check(request.Header("host"), has_origin, request.Header("origin")); !status.ok())
    return ErrorResponse(status);
  const absl::StatusOr<Target> target = TargetOf(request);
  if (!target.ok()) return ErrorResponse(target.status());
  std::string allowed = "GET, HEAD";
  absl::Status not_served = absl::UnimplementedError("the page takes GET and HEAD");
  if (IsApi(target->path)) {
    const absl::StatusOr<FoundRoute> found = FindRoute(request.method, target->segments, &allowed);
    if (absl::IsNotFound(found.status())) return ErrorResponse(found.status());
    not_served = found.status();
    if (found.ok()) {
      const absl::Status status = policy_.Check(absl::StrCat("/", ToAbsl(found->route->rule)), request.Header("authorization"));
      if (!status.ok()) return ErrorResponse(status);
    }
  } else if (request.method == "GET") {
    not_served = absl::OkStatus();
  }
  if (!not_served.ok()) {
    HttpResponse response = ErrorResponse(405, not_served);
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  if (request.method == "POST") {
    // A form of another site cannot send this type without asking first, and nobody is told yes.
    const std::string_view type = request.Header("content-type");
    const absl::string_view media = absl::StripAsciiWhitespace(ToAbsl(type.substr(0, type.find(';'))));
    if (!absl::EqualsIgnoreCase(media, kJson))
      return ErrorResponse(415, absl::InvalidArgumentError("a POST needs Content-Type: application/json"));
    if (request.HasHeader("content-encoding"))
      return ErrorResponse(415, absl::InvalidArgumentError("a POST's body must not be compressed"));
  }
  return std::nullopt;
}

HttpResponse Handler::Answer(const HttpRequest& request) {
  const absl::StatusOr<Target> target = TargetOf(request);
  if (!target.ok()) return ErrorResponse(target.status());
  if (!IsApi(target->path)) return File(*target, request);
  std::string allowed;
  const absl::StatusOr<FoundRoute> found = FindRoute(request.method, target->segments, &allowed);
  if (!found.ok()) return ErrorResponse(found.status());
  const Route& route = *found->route;
  absl::StatusOr<HttpResponse> response;
  switch (route.kind) {
    case Route::Kind::kCall:
      response = Call(route, *found, *target, request);
      break;
    case Route::Kind::kMe:
      response = Me(request);
      break;
    case Route::Kind::kHealth:
      response = JsonResponse(request, R"({"status":"SERVING"})");
      break;
    case Route::Kind::kChanges:
      response = Changes(*target, request);
      break;
  }
  return response.ok() ? *std::move(response) : ErrorResponse(response.status());
}

absl::StatusOr<HttpResponse> Handler::Call(const Route& route, const FoundRoute& found, const Target& target,
                                           const HttpRequest& request) {
  const std::unique_ptr<Message> message = route.new_request();
  const std::set<std::string> taken = Names(found.fields);
  if (request.method == "GET") {
    ABLATE_RETURN_IF_ERROR(FillFromQuery(target.query, taken, message.get()));
  } else {
    if (!target.query.empty())
      return absl::InvalidArgumentError(absl::StrCat(target.query.front().first, ": a POST has its fields in the body"));
    ABLATE_RETURN_IF_ERROR(FillFromBody(request.body, taken, message.get()));
  }
  for (const auto& [name, value] : found.fields) ABLATE_RETURN_IF_ERROR(SetField(name, value, message.get()));
  const auto* const id = message->GetDescriptor()->FindFieldByName("request_id");
  if (id != nullptr && message->GetReflection()->GetString(*message, id).empty())
    message->GetReflection()->SetString(message.get(), id, IdGenerator::Random().NewId("http"));
  ABLATE_RETURN_IF_ERROR(CheckRequest(*message));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Message> answer, route.call(&coordinator_, *message));
  return JsonResponse(request, WriteJson(*answer));
}

// Of somebody without a token only that one is needed.
absl::StatusOr<HttpResponse> Handler::Me(const HttpRequest& request) {
  nlohmann::json me = {{"role", ""},
                       {"token_name", ""},
                       {"needs_token", !policy_.open()},
                       {"version", ""},
                       {"may", nlohmann::json::array()},
                       {"read_only", options_.read_only}};
  if (policy_.open() || request.HasHeader("authorization")) {
    ABLATE_ASSIGN_OR_RETURN(const TokenHolder holder, policy_.HolderOf(request.Header("authorization")));
    me["role"] = RoleName(holder.role);
    me["token_name"] = holder.name;
    me["version"] = BuildVersion();
    std::set<std::string> may;
    for (const Route& route : Routes()) {
      const MethodRule* const rule = FindMethodRule(absl::StrCat("/", ToAbsl(route.rule)));
      const bool possible = route.method == "GET" || !options_.read_only;
      if (rule != nullptr && rule->Allows(holder.role) && possible && route.rule.substr(0, kPackage.size()) == kPackage)
        may.emplace(route.rule.substr(kPackage.size()));
    }
    me["may"] = may;
  }
  return JsonResponse(request, me.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

absl::StatusOr<HttpResponse> Handler::Changes(const Target& target, const HttpRequest& request) {
  v1::WatchSweepRequest watch;
  ABLATE_RETURN_IF_ERROR(FillFromQuery(target.query, {}, &watch));
  const bool of_sweep = !target.query.empty();
  // A stream says 200 before it begins: what is wrong is found before.
  if (of_sweep) {
    v1::GetSweepRequest get;
    get.set_sweep(watch.sweep());
    ABLATE_RETURN_IF_ERROR(CheckRequest(get));
    ABLATE_RETURN_IF_ERROR(coordinator_.GetSweep(get).status());
  }
  ABLATE_ASSIGN_OR_RETURN(const TokenHolder holder, policy_.HolderOf(request.Header("authorization")));
  // Given back with the response, whether or not it was ever streamed.
  const std::shared_ptr<void> place(nullptr, [this](void*) { --streams_; });
  if (++streams_ > options_.max_streams) {
    return absl::UnavailableError(absl::StrCat(options_.max_streams, " streams of changes are open, as many as may be: close "
                                               "some pages, or load this one again by hand"));
  }
  HttpResponse response;
  response.media_type = "text/event-stream";
  response.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  response.stream = [this, watch, of_sweep, holder, place](HttpStream* stream) {
    auto last = std::chrono::steady_clock::now();
    const auto write = [&](const std::string& text) {
      last = std::chrono::steady_clock::now();
      return stream->Write(text);
    };
    const auto send = [&](std::string_view name, const Message& message) {
      return CheckLive(holder).ok() && write(Event(name, WriteJson(message)));
    };
    const auto cancelled = [&] {
      if (std::chrono::steady_clock::now() - last >= kKeepAlive && !write(": still here\n\n")) return true;
      return stream->Ended() || !CheckLive(holder).ok();
    };
    if (!write(": here\n\n")) return;
    absl::Status status;
    if (of_sweep) {
      status = coordinator_.WatchSweep(watch, [&](const v1::Sweep& sweep) { return send("sweep", sweep); }, cancelled);
    } else {
      status = coordinator_.WatchChanges({}, [&](const v1::Changes& changes) { return send("change", changes); }, cancelled);
    }
    if (const absl::Status live = CheckLive(holder); !live.ok()) status = live;
    (void)write(status.ok() ? Event("end", "{}") : Event("error", ErrorJson(status.code(), ToStd(status.message()))));
  };
  return response;
}

HttpResponse Handler::File(const Target& target, const HttpRequest& request) {
  if (files_.empty() && !IsFileName(target.path)) {
    HttpResponse response;
    response.media_type = MediaType(".html");
    response.constant_body = FallbackPage();
    response.headers = {{"Cache-Control", "no-store"}};
    return response;
  }
  const EmbeddedFile* const file = files_.Find(target.path);
  if (file == nullptr) return ErrorResponse(absl::NotFoundError(absl::StrCat("there is no file ", target.path)));
  const std::string cache = IsImmutable(*file) ? "public, max-age=31536000, immutable" : "no-cache";
  const bool gzip = file->gzipped && AcceptsGzip(request.Header("accept-encoding"));
  const std::string tag(file->sha256.substr(0, 32)), etag = absl::StrCat("\"", tag, gzip ? "-gzip\"" : "\"");
  if (TagMatches(request.Header("if-none-match"), tag)) return NotModified(etag, cache);
  HttpResponse response;
  if (gzip || !file->gzipped) {
    response.constant_body = file->bytes;
  } else {
    absl::StatusOr<std::string> plain = PlainBytes(*file);
    if (!plain.ok()) return ErrorResponse(plain.status());
    response.body = *std::move(plain);
  }
  response.media_type = MediaType(file->path);
  response.headers = {{"ETag", etag}, {"Cache-Control", cache}, {"Vary", "Accept-Encoding"}};
  if (gzip) response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

}  // namespace

struct HttpServer::State {
  State(const HttpServerOptions& options, Coordinator* coordinator)
      : handler(options, coordinator), tls(options.access.security.tls) {}
  Handler handler;
  const bool tls;
  std::unique_ptr<HttpListener> listener;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options, Coordinator* coordinator) {
  const ServerAccess& access = options.access;
  if (access.security.tokens && access.tokens == nullptr) return absl::InternalError("tokens are demanded and none are kept");
  auto state = std::make_unique<State>(options, coordinator);
  HttpListenerOptions listener = options.listener;
  listener.address = options.address;
  listener.security = access.security;
  listener.headers = SecurityHeaders();
  ABLATE_ASSIGN_OR_RETURN(state->listener, HttpListener::Start(listener, &state->handler));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { Shutdown(); }

const std::string& HttpServer::address() const { return state_->listener->address(); }

std::string HttpServer::url() const {
  HostPort at = *ParseHostPort(address());
  // No browser goes to "all of this machine's addresses".
  if (at.host == "0.0.0.0" || at.host == "::") {
    char name[256] = "";
    if (::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0') at.host = name;
  }
  return absl::StrCat(state_->tls ? "https://" : "http://", ToText(at), "/");
}

void HttpServer::Shutdown() { state_->listener->Shutdown(); }

}  // namespace ablate
