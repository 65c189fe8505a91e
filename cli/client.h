// The CLI's side of the coordinator's services. Must not know commands or output.
// Thread rule: a Client may be used from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/client_access.h"
#include "base/grpc_channel.h"
#include "proto/access.grpc.pb.h"
#include "proto/artifacts.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"

namespace ablate {

class Client {
 public:
  // Connects lazily: the first call finds out. `timeout_seconds` bounds each call (not a watch).
  explicit Client(const ClientAccess& access, double timeout_seconds = 300);
  // To a coordinator on this machine that demands no token.
  explicit Client(std::string address, double timeout_seconds = 300)
      : Client(ClientAccess{.address = std::move(address)}, timeout_seconds) {}

  const std::string& address() const { return address_; }

  // One call. UnreachableError: nobody answers (the message says what to start), after a few tries where a coordinator
  // had answered before. FailedPrecondition: the one that answers is not the pinned one. A request with a request_id may thus be sent twice; the coordinator answers both alike.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    Response response;
    absl::Status status =
        Try([&](grpc::ClientContext* context) { return (stub<Stub>().*method)(context, request, &response); });
    if (!status.ok()) return status;
    return response;
  }

  // The sweep now and at each change, until it is over (OK), `update` returns false (Cancelled), or the connection ends
  // (Unavailable). Another thread ends it by setting what `update` looks at; the coordinator speaks only at changes, so
  // it may use `context` to cancel at once.
  absl::Status Watch(const std::string& sweep, grpc::ClientContext* context,
                     const std::function<bool(const v1::Sweep&)>& update);

  absl::Status Query(const v1::QueryRequest& request, const std::function<void(const v1::QueryResponse&)>& part);

  // Sends the file unless the coordinator has it; goes on where an earlier upload stopped; `progress` gets bytes done.
  // DataLoss: the file changed since it was hashed.
  absl::Status Upload(const std::string& path, const std::string& sha256, int64_t bytes,
                      const std::function<void(int64_t)>& progress);

  // The whole of a stored file that is at most `max_bytes` long. DataLoss: what comes has another hash. NotFound: it is
  // not there. ResourceExhausted: longer.
  absl::StatusOr<std::string> Download(const std::string& sha256, int64_t max_bytes);

  // Whether a coordinator answers within `seconds`.
  bool Answers(double seconds);

 private:
  template <typename Stub>
  Stub& stub() {
    if constexpr (std::is_same_v<Stub, v1::Sweeps::Stub>)
      return *sweeps_;
    else if constexpr (std::is_same_v<Stub, v1::Jobs::Stub>)
      return *jobs_;
    else if constexpr (std::is_same_v<Stub, v1::Results::Stub>)
      return *results_;
    else if constexpr (std::is_same_v<Stub, v1::Workers::Stub>)
      return *workers_;
    else if constexpr (std::is_same_v<Stub, v1::Access::Stub>)
      return *access_;
    else
      return *artifacts_;
  }
  absl::Status Try(const std::function<grpc::Status(grpc::ClientContext*)>& call);
  absl::Status ToAbslStatus(const grpc::Status& status);
  absl::StatusOr<bool> UploadOnce(const std::string& path, const std::string& sha256, int64_t bytes,
                                  const std::function<void(int64_t)>& progress);

  const std::string address_;
  const double timeout_seconds_;
  const bool has_tls_;
  const std::shared_ptr<ServerIdentity> identity_ = std::make_shared<ServerIdentity>();
  std::atomic<bool> has_answered_ = false;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Sweeps::Stub> sweeps_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Results::Stub> results_;
  std::unique_ptr<v1::Workers::Stub> workers_;
  std::unique_ptr<v1::Artifacts::Stub> artifacts_;
  std::unique_ptr<v1::Access::Stub> access_;
};

}  // namespace ablate
