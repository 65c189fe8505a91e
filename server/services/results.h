// Results over gRPC: a thin adapter (see adapter.h). Knows no more than the coordinator's interface.
#pragma once

#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator.h"
#include "server/services/caller.h"

namespace ablate {

class ResultsService final : public v1::Results::Service {
 public:
  ResultsService(Coordinator* coordinator, const CallerPolicy* callers) : coordinator_(coordinator), callers_(*callers) {}

  grpc::Status GetTable(grpc::ServerContext* context, const v1::GetTableRequest* request,
                        v1::GetTableResponse* response) override;
  grpc::Status CompareArms(grpc::ServerContext* context, const v1::CompareArmsRequest* request,
                           v1::CompareArmsResponse* response) override;
  grpc::Status Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                     grpc::ServerWriter<v1::QueryResponse>* writer) override;
  grpc::Status GetClaims(grpc::ServerContext* context, const v1::GetClaimsRequest* request, v1::GetClaimsResponse* response) override;
  grpc::Status GetEffects(grpc::ServerContext* context, const v1::GetEffectsRequest* request, v1::GetEffectsResponse* response) override;
  grpc::Status GetSpread(grpc::ServerContext* context, const v1::GetSpreadRequest* request, v1::GetSpreadResponse* response) override;
  grpc::Status GetCurves(grpc::ServerContext* context, const v1::GetCurvesRequest* request, v1::GetCurvesResponse* response) override;

 private:
  Coordinator* const coordinator_;
  const CallerPolicy& callers_;
};

}  // namespace ablate
