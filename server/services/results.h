// Results over gRPC: a thin adapter (see adapter.h). Knows no more than the coordinator's interface.
#pragma once

#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator.h"

namespace ablate {

class ResultsService final : public v1::Results::Service {
 public:
  explicit ResultsService(Coordinator* coordinator) : coordinator_(coordinator) {}

  grpc::Status GetTable(grpc::ServerContext* context, const v1::GetTableRequest* request,
                        v1::GetTableResponse* response) override;
  grpc::Status CompareArms(grpc::ServerContext* context, const v1::CompareArmsRequest* request,
                           v1::CompareArmsResponse* response) override;
  grpc::Status Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                     grpc::ServerWriter<v1::QueryResponse>* writer) override;

 private:
  Coordinator* const coordinator_;
};

}  // namespace ablate
