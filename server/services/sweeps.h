// Sweeps over gRPC: a thin adapter (see adapter.h). Knows no more than the coordinator's interface.
#pragma once

#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator.h"
#include "server/services/caller.h"

namespace ablate {

class SweepsService final : public v1::Sweeps::Service {
 public:
  SweepsService(Coordinator* coordinator, const CallerPolicy* callers) : coordinator_(coordinator), callers_(*callers) {}

  grpc::Status PlanSweep(grpc::ServerContext* context, const v1::PlanSweepRequest* request,
                         v1::PlanSweepResponse* response) override;
  grpc::Status SubmitSweep(grpc::ServerContext* context, const v1::SubmitSweepRequest* request,
                           v1::SubmitSweepResponse* response) override;
  grpc::Status GetSweep(grpc::ServerContext* context, const v1::GetSweepRequest* request, v1::Sweep* response) override;
  grpc::Status ListSweeps(grpc::ServerContext* context, const v1::ListSweepsRequest* request,
                          v1::ListSweepsResponse* response) override;
  grpc::Status WatchSweep(grpc::ServerContext* context, const v1::WatchSweepRequest* request,
                          grpc::ServerWriter<v1::Sweep>* writer) override;
  grpc::Status GetGrid(grpc::ServerContext* context, const v1::GetGridRequest* request,
                       v1::GetGridResponse* response) override;
  grpc::Status WatchChanges(grpc::ServerContext* context, const v1::WatchChangesRequest* request,
                            grpc::ServerWriter<v1::Changes>* writer) override;
  grpc::Status CancelSweep(grpc::ServerContext* context, const v1::CancelSweepRequest* request,
                           v1::Sweep* response) override;
  grpc::Status RetrySweep(grpc::ServerContext* context, const v1::RetrySweepRequest* request,
                          v1::RetrySweepResponse* response) override;
  grpc::Status ResumeSweep(grpc::ServerContext* context, const v1::ResumeSweepRequest* request, v1::Sweep* response) override;
  grpc::Status LockSweep(grpc::ServerContext* context, const v1::LockSweepRequest* request, v1::Sweep* response) override;
  grpc::Status ExtendSweep(grpc::ServerContext* context, const v1::ExtendSweepRequest* request, v1::SubmitSweepResponse* response) override;

 private:
  Coordinator* const coordinator_;
  const CallerPolicy& callers_;
};

}  // namespace ablate
