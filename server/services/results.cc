#include "server/services/results.h"

#include "server/services/adapter.h"

namespace ablate {

grpc::Status ResultsService::GetTable(grpc::ServerContext*, const v1::GetTableRequest* request,
                                      v1::GetTableResponse* response) {
  return Answer(coordinator_, &Coordinator::GetTable, *request, response);
}

grpc::Status ResultsService::CompareArms(grpc::ServerContext*, const v1::CompareArmsRequest* request,
                                         v1::CompareArmsResponse* response) {
  return Answer(coordinator_, &Coordinator::CompareArms, *request, response);
}

grpc::Status ResultsService::Query(grpc::ServerContext* context, const v1::QueryRequest* request,
                                   grpc::ServerWriter<v1::QueryResponse>* writer) {
  const Caller caller(callers_, *context);
  return AnswerStream<v1::QueryRequest, v1::QueryResponse>(*request, writer, [&](const auto& send) {
    const absl::Status status = coordinator_->Query(
        *request, [&](const v1::QueryResponse& part) { return caller.CheckLive().ok() && send(part); });
    return caller.CheckLive().ok() ? status : caller.CheckLive();
  });
}

grpc::Status ResultsService::GetClaims(grpc::ServerContext*, const v1::GetClaimsRequest* request, v1::GetClaimsResponse* response) {
  return Answer(coordinator_, &Coordinator::GetClaims, *request, response);
}

grpc::Status ResultsService::GetEffects(grpc::ServerContext*, const v1::GetEffectsRequest* request, v1::GetEffectsResponse* response) {
  return Answer(coordinator_, &Coordinator::GetEffects, *request, response);
}

grpc::Status ResultsService::GetSpread(grpc::ServerContext*, const v1::GetSpreadRequest* request, v1::GetSpreadResponse* response) {
  return Answer(coordinator_, &Coordinator::GetSpread, *request, response);
}

grpc::Status ResultsService::GetCurves(grpc::ServerContext*, const v1::GetCurvesRequest* request, v1::GetCurvesResponse* response) {
  return Answer(coordinator_, &Coordinator::GetCurves, *request, response);
}

}  // namespace ablate
