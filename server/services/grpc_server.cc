#include "server/services/grpc_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "server/services/access.h"
#include "server/services/artifacts.h"
#include "server/services/caller.h"
#include "server/services/jobs.h"
#include "server/services/limits.h"
#include "server/services/results.h"
#include "server/services/sweeps.h"
#include "server/services/worker_link.h"
#include "server/services/workers.h"

namespace ablate {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

std::string UnixPath(const std::string& address) {
  if (absl::StartsWith(address, "unix://")) return address.substr(7);
  if (absl::StartsWith(address, "unix:")) return address.substr(5);
  return "";
}

// gRPC replaces an existing socket file, also one on which a live server listens: ask first.
bool SomebodyListens(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return connected;
}

// gRPC does not say why it cannot listen: ask the system the same question.
absl::Status WhyNot(const std::string& address) {
  const std::string listen = absl::StrCat("cannot listen on ", address, ": ");
  ABLATE_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int code = ::getaddrinfo(at.host.c_str(), absl::StrCat(at.port).c_str(), &hints, &list); code != 0) {
    return absl::UnavailableError(absl::StrCat(listen, "host ", at.host, " is not known (", ::gai_strerror(code), ")"));
  }
  int error = 0;
  for (const addrinfo* item = list; item != nullptr && error == 0; item = item->ai_next) {
    const int fd = ::socket(item->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (fd < 0 || ::bind(fd, item->ai_addr, item->ai_addrlen) != 0 || ::listen(fd, 1) != 0) error = errno;
    if (fd >= 0) ::close(fd);
  }
  ::freeaddrinfo(list);
  switch (error) {
    case EADDRINUSE:
      return absl::UnavailableError(
          absl::StrCat(listen, "another program listens there; choose another port, or 0 for a free one"));
    case EADDRNOTAVAIL:
      return absl::UnavailableError(absl::StrCat(listen, at.host, " is no address of this machine"));
    case 0:
      return absl::UnavailableError(absl::StrCat(listen, "it was taken a moment ago; try again"));
    default:
      return absl::UnavailableError(absl::StrCat(listen, std::strerror(error)));
  }
}

std::shared_ptr<grpc::ServerCredentials> Credentials(const ListenerSecurity& security, bool is_tcp,
                                                     const CallerPolicy* callers) {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (security.tls) {
    grpc::SslServerCredentialsOptions options(security.client_ca_pem.empty()
                                                  ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                  : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = security.client_ca_pem;
    options.pem_key_cert_pairs.push_back({security.identity.key_pem, security.identity.certificate_pem});
    credentials = grpc::SslServerCredentials(options);
  } else {
    // Nothing is added on the wire, so that plain clients can talk to it; but peers on other machines are refused, and
    // the guard is asked, which gRPC does not do for what it calls insecure.
    credentials = grpc::experimental::LocalServerCredentials(is_tcp ? LOCAL_TCP : UDS);
  }
  credentials->SetAuthMetadataProcessor(std::make_shared<Guard>(callers));
  return credentials;
}

}  // namespace

absl::Status CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return absl::OkStatus();
  // A name without a file has no owner and no mode: every user of the machine could call, and take the name first.
  if (absl::StartsWith(address, "unix-abstract:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\": abstract sockets are open to every user of this machine; use unix:PATH, a file of mode 0600"));
  }
  if (!ParseHostPort(address).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is not HOST:PORT or unix:PATH, e.g. 127.0.0.1:7433, [::1]:7433 or unix:/tmp/ablate.sock"));
  }
  return absl::OkStatus();
}

struct GrpcServer::State {
  State(Coordinator* coordinator, ArtifactStore* store, const ServerAccess& rules)
      : callers(rules.tokens, rules.security.tokens),
        sweeps(coordinator, &callers),
        jobs(coordinator),
        results(coordinator, &callers),
        workers(coordinator),
        worker_link(coordinator, &callers),
        artifacts(store, &callers),
        access(rules.tokens) {}
  const CallerPolicy callers;
  SweepsService sweeps;
  JobsService jobs;
  ResultsService results;
  WorkersService workers;
  WorkerLinkService worker_link;
  ArtifactsService artifacts;
  AccessService access;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& address, Coordinator* coordinator,
                                                              ArtifactStore* artifacts, int max_threads,
                                                              const ServerAccess& access) {
  const bool is_unix = absl::StartsWith(address, "unix:");
  const bool is_tcp = !is_unix;
  const std::string path = UnixPath(address);
  if (is_unix && (path.empty() || path.size() > kMaxSocketPath)) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path \"", path, "\" has ", path.size(),
                                                   " bytes; it needs 1 to ", kMaxSocketPath, ": choose another one"));
  }
  ABLATE_RETURN_IF_ERROR(CheckAddress(address));
  if (is_unix && SomebodyListens(path)) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": another program listens there"));
  }

  static const bool plugins = [] {
    // Kept until the process ends: giving back the last one joins gRPC's threads, and one that polls takes up to 10 s
    // to notice.
    grpc_init();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)plugins;

  auto state = std::make_unique<State>(coordinator, artifacts, access);
  if (access.security.tokens && access.tokens == nullptr) return absl::InternalError("tokens are demanded and none are kept");

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, Credentials(access.security, is_tcp, &state->callers), &port);
  // Off, or a second server would bind the same port and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Workers behind a lost network must not stay "connected": ping idle connections, and let clients ping too.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  grpc::ResourceQuota quota("ablate-server");
  quota.SetMaxThreads(max_threads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 4);
  for (grpc::Service* service : std::initializer_list<grpc::Service*>{
           &state->sweeps, &state->jobs, &state->results, &state->workers, &state->worker_link, &state->artifacts,
           &state->access}) {
    builder.RegisterService(service);
  }
  const mode_t mask = ::umask(0177);  // for the socket file
  state->server = builder.BuildAndStart();
  ::umask(mask);
  if (state->server == nullptr || (is_tcp && port == 0)) {
    if (is_tcp) return WhyNot(address);
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": its folder is not there, or not permitted"));
  }
  state->address = is_tcp ? ToText({.host = ParseHostPort(address)->host, .port = port}) : address;
  for (const char* service : {"ablate.v1.Sweeps", "ablate.v1.Jobs", "ablate.v1.Results", "ablate.v1.Workers",
                              "ablate.v1.WorkerLink", "ablate.v1.Artifacts", "ablate.v1.Access"}) {
    state->server->GetHealthCheckService()->SetServingStatus(service, true);
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(state)));
}

GrpcServer::GrpcServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

GrpcServer::~GrpcServer() { Shutdown(); }

const std::string& GrpcServer::address() const { return state_->address; }

void GrpcServer::Shutdown() {
  if (state_->server == nullptr) return;
  state_->server->GetHealthCheckService()->Shutdown();
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  state_->server->Wait();
  state_->server.reset();
}

}  // namespace ablate
