#include "server/services/jobs.h"

#include "server/services/adapter.h"

namespace ablate {

grpc::Status JobsService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  return Answer(coordinator_, &Coordinator::ListJobs, *request, response);
}

grpc::Status JobsService::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request, v1::GetJobResponse* response) {
  return Answer(coordinator_, &Coordinator::GetJob, *request, response);
}

grpc::Status JobsService::GetJobLogs(grpc::ServerContext*, const v1::GetJobRequest* request,
                                     v1::GetJobLogsResponse* response) {
  return Answer(coordinator_, &Coordinator::GetJobLogs, *request, response);
}

grpc::Status JobsService::ExplainJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                     v1::ExplainJobResponse* response) {
  return Answer(coordinator_, &Coordinator::ExplainJob, *request, response);
}

grpc::Status JobsService::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request, v1::Job* response) {
  return Answer(coordinator_, &Coordinator::CancelJob, *request, response);
}

grpc::Status JobsService::VerifyJobs(grpc::ServerContext*, const v1::VerifyJobsRequest* request, v1::VerifyJobsResponse* response) {
  return Answer(coordinator_, &Coordinator::VerifyJobs, *request, response);
}

grpc::Status JobsService::ListVerifications(grpc::ServerContext*, const v1::ListVerificationsRequest* request, v1::ListVerificationsResponse* response) {
  return Answer(coordinator_, &Coordinator::ListVerifications, *request, response);
}

}  // namespace ablate
