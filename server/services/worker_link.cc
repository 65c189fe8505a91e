#include "server/services/worker_link.h"

#include <utility>

#include "server/services/adapter.h"

namespace ablate {

grpc::Status WorkerLinkService::Sync(grpc::ServerContext* context, const v1::SyncRequest* request,
                                     v1::SyncResponse* response) {
  if (!request->has_worker()) return ToGrpc(absl::InvalidArgumentError("SyncRequest.worker: must be set"));
  if (const absl::Status status = CheckRequest(*request); !status.ok()) return ToGrpc(status);
  absl::StatusOr<v1::SyncResponse> answer = coordinator_->Sync(*request, [context] { return context->IsCancelled(); });
  if (!answer.ok()) return ToGrpc(answer.status());
  *response = *std::move(answer);
  return grpc::Status::OK;
}

}  // namespace ablate
