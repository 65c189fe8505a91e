// Workers as users see them, over gRPC: a thin adapter (see adapter.h). The link that workers use is worker_link.h.
#pragma once

#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator.h"

namespace ablate {

class WorkersService final : public v1::Workers::Service {
 public:
  explicit WorkersService(Coordinator* coordinator) : coordinator_(coordinator) {}

  grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override;
  grpc::Status DrainWorker(grpc::ServerContext* context, const v1::DrainWorkerRequest* request,
                           v1::WorkerInfo* response) override;

 private:
  Coordinator* const coordinator_;
};

}  // namespace ablate
