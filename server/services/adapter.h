// What every service method shares, so that each is one line: request checks before, status conversion after.
// Must not know what any method means.
// Thread rule: free functions without state.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "server/coordinator.h"
#include "server/services/limits.h"

namespace ablate {

// Same code, same message; a message too long for a trailer (gRPC takes 8 KiB, percent-encoded) is cut, and says so.
grpc::Status ToGrpc(const absl::Status& status);

// A unary method that is one call of the coordinator.
template <typename Request, typename Response>
grpc::Status Answer(Coordinator* coordinator, absl::StatusOr<Response> (Coordinator::*method)(const Request&),
                    const Request& request, Response* response) {
  if (const absl::Status status = CheckRequest(request); !status.ok()) return ToGrpc(status);
  absl::StatusOr<Response> answer = (coordinator->*method)(request);
  if (!answer.ok()) return ToGrpc(answer.status());
  *response = *std::move(answer);
  return grpc::Status::OK;
}

// A streaming method; `body` gets a function that sends one message and is false once the client is gone.
template <typename Request, typename Response>
grpc::Status AnswerStream(const Request& request, grpc::ServerWriter<Response>* writer,
                          const std::function<absl::Status(const std::function<bool(const Response&)>&)>& body) {
  if (const absl::Status status = CheckRequest(request); !status.ok()) return ToGrpc(status);
  return ToGrpc(body([writer](const Response& response) { return writer->Write(response); }));
}

}  // namespace ablate
