// The worker link over gRPC: a thin adapter (see adapter.h). An idle worker's call holds one of the server's threads.
#pragma once

#include "proto/link.grpc.pb.h"
#include "server/coordinator.h"
#include "server/services/caller.h"

namespace ablate {

class WorkerLinkService final : public v1::WorkerLink::Service {
 public:
  WorkerLinkService(Coordinator* coordinator, const CallerPolicy* callers) : coordinator_(coordinator), callers_(*callers) {}

  grpc::Status Sync(grpc::ServerContext* context, const v1::SyncRequest* request, v1::SyncResponse* response) override;

 private:
  Coordinator* const coordinator_;
  const CallerPolicy& callers_;
};

}  // namespace ablate
