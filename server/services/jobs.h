// Jobs over gRPC: a thin adapter (see adapter.h). Knows no more than the coordinator's interface.
#pragma once

#include "proto/coordinator.grpc.pb.h"
#include "server/coordinator.h"

namespace ablate {

class JobsService final : public v1::Jobs::Service {
 public:
  explicit JobsService(Coordinator* coordinator) : coordinator_(coordinator) {}

  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override;
  grpc::Status GetJobLogs(grpc::ServerContext* context, const v1::GetJobRequest* request,
                          v1::GetJobLogsResponse* response) override;
  grpc::Status ExplainJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                          v1::ExplainJobResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request, v1::Job* response) override;
  grpc::Status VerifyJobs(grpc::ServerContext* context, const v1::VerifyJobsRequest* request, v1::VerifyJobsResponse* response) override;
  grpc::Status ListVerifications(grpc::ServerContext* context, const v1::ListVerificationsRequest* request, v1::ListVerificationsResponse* response) override;

 private:
  Coordinator* const coordinator_;
};

}  // namespace ablate
