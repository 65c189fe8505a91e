#include "server/services/worker_link.h"

#include <utility>

#include "server/services/adapter.h"

namespace ablate {

grpc::Status WorkerLinkService::Sync(grpc::ServerContext* context, const v1::SyncRequest* request,
                                     v1::SyncResponse* response) {
  if (!request->has_worker()) return ToGrpc(absl::InvalidArgumentError("SyncRequest.worker: must be set"));
  if (const absl::Status status = CheckRequest(*request); !status.ok()) return ToGrpc(status);
  const Caller caller(callers_, *context);
  if (const absl::Status status = caller.MayActAs(request->worker().worker_id()); !status.ok()) return ToGrpc(status);
  absl::StatusOr<v1::SyncResponse> answer =
      coordinator_->Sync(*request, [&] { return context->IsCancelled() || !caller.CheckLive().ok(); });
  // Work that was handed out meanwhile is sent again to whoever is allowed next.
  if (const absl::Status status = caller.CheckLive(); !status.ok()) return ToGrpc(status);
  if (!answer.ok()) return ToGrpc(answer.status());
  *response = *std::move(answer);
  return grpc::Status::OK;
}

}  // namespace ablate
