#include "server/services/workers.h"

#include "server/services/adapter.h"

namespace ablate {

grpc::Status WorkersService::ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest* request,
                                         v1::ListWorkersResponse* response) {
  return Answer(coordinator_, &Coordinator::ListWorkers, *request, response);
}

grpc::Status WorkersService::DrainWorker(grpc::ServerContext*, const v1::DrainWorkerRequest* request,
                                         v1::WorkerInfo* response) {
  return Answer(coordinator_, &Coordinator::DrainWorker, *request, response);
}

}  // namespace ablate
