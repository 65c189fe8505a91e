#include "server/services/sweeps.h"

#include "server/services/adapter.h"

namespace ablate {

grpc::Status SweepsService::PlanSweep(grpc::ServerContext*, const v1::PlanSweepRequest* request,
                                      v1::PlanSweepResponse* response) {
  return Answer(coordinator_, &Coordinator::PlanSweep, *request, response);
}

grpc::Status SweepsService::SubmitSweep(grpc::ServerContext*, const v1::SubmitSweepRequest* request,
                                        v1::SubmitSweepResponse* response) {
  return Answer(coordinator_, &Coordinator::SubmitSweep, *request, response);
}

grpc::Status SweepsService::GetSweep(grpc::ServerContext*, const v1::GetSweepRequest* request, v1::Sweep* response) {
  return Answer(coordinator_, &Coordinator::GetSweep, *request, response);
}

grpc::Status SweepsService::ListSweeps(grpc::ServerContext*, const v1::ListSweepsRequest* request,
                                       v1::ListSweepsResponse* response) {
  return Answer(coordinator_, &Coordinator::ListSweeps, *request, response);
}

grpc::Status SweepsService::WatchSweep(grpc::ServerContext* context, const v1::WatchSweepRequest* request,
                                       grpc::ServerWriter<v1::Sweep>* writer) {
  const Caller caller(callers_, *context);
  return AnswerStream<v1::WatchSweepRequest, v1::Sweep>(*request, writer, [&](const auto& send) {
    const absl::Status status = coordinator_->WatchSweep(
        *request, [&](const v1::Sweep& sweep) { return caller.CheckLive().ok() && send(sweep); },
        [&] { return context->IsCancelled() || !caller.CheckLive().ok(); });
    return caller.CheckLive().ok() ? status : caller.CheckLive();
  });
}

grpc::Status SweepsService::GetGrid(grpc::ServerContext*, const v1::GetGridRequest* request,
                                    v1::GetGridResponse* response) {
  return Answer(coordinator_, &Coordinator::GetGrid, *request, response);
}

grpc::Status SweepsService::WatchChanges(grpc::ServerContext* context, const v1::WatchChangesRequest* request,
                                         grpc::ServerWriter<v1::Changes>* writer) {
  const Caller caller(callers_, *context);
  return AnswerStream<v1::WatchChangesRequest, v1::Changes>(*request, writer, [&](const auto& send) {
    const absl::Status status = coordinator_->WatchChanges(
        *request, [&](const v1::Changes& changes) { return caller.CheckLive().ok() && send(changes); },
        [&] { return context->IsCancelled() || !caller.CheckLive().ok(); });
    return caller.CheckLive().ok() ? status : caller.CheckLive();
  });
}

grpc::Status SweepsService::CancelSweep(grpc::ServerContext*, const v1::CancelSweepRequest* request,
                                        v1::Sweep* response) {
  return Answer(coordinator_, &Coordinator::CancelSweep, *request, response);
}

grpc::Status SweepsService::RetrySweep(grpc::ServerContext*, const v1::RetrySweepRequest* request,
                                       v1::RetrySweepResponse* response) {
  return Answer(coordinator_, &Coordinator::RetrySweep, *request, response);
}

grpc::Status SweepsService::ResumeSweep(grpc::ServerContext*, const v1::ResumeSweepRequest* request,
                                        v1::Sweep* response) {
  return Answer(coordinator_, &Coordinator::ResumeSweep, *request, response);
}

grpc::Status SweepsService::LockSweep(grpc::ServerContext*, const v1::LockSweepRequest* request, v1::Sweep* response) {
  return Answer(coordinator_, &Coordinator::LockSweep, *request, response);
}

grpc::Status SweepsService::ExtendSweep(grpc::ServerContext*, const v1::ExtendSweepRequest* request, v1::SubmitSweepResponse* response) {
  return Answer(coordinator_, &Coordinator::ExtendSweep, *request, response);
}

}  // namespace ablate
