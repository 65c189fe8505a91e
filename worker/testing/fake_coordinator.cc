#include "worker/testing/fake_coordinator.h"

#include <grpcpp/grpcpp.h>

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/artifacts.grpc.pb.h"
#include "proto/link.grpc.pb.h"

namespace ablate {
namespace {

constexpr int64_t kAwaitMicros = 60'000'000;
constexpr int64_t kIdleMicros = 5'000'000;

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace

class FakeCoordinator::LinkService : public v1::WorkerLink::Service {
 public:
  explicit LinkService(FakeCoordinator* owner) : owner_(owner) {}
  grpc::Status Sync(grpc::ServerContext* context, const v1::SyncRequest* request, v1::SyncResponse* response) override {
    absl::StatusOr<v1::SyncResponse> answer = owner_->Sync(*request, [context] { return context->IsCancelled(); });
    if (!answer.ok()) return ToGrpc(answer.status());
    *response = *std::move(answer);
    return grpc::Status::OK;
  }

 private:
  FakeCoordinator* const owner_;
};

class FakeCoordinator::ArtifactService : public v1::Artifacts::Service {
 public:
  explicit ArtifactService(MemoryArtifacts* store) : store_(store) {}
  grpc::Status StatArtifact(grpc::ServerContext*, const v1::StatArtifactRequest* request,
                            v1::StatArtifactResponse* response) override {
    const StopSignal never;
    const auto stat = store_->StatArtifact(request->sha256(), never, StopSignal::Mode::kAbandon);
    if (!stat.ok()) return ToGrpc(stat.status());
    response->set_complete(stat->complete);
    response->set_bytes(stat->bytes);
    return grpc::Status::OK;
  }
  grpc::Status UploadArtifact(grpc::ServerContext*, grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                              v1::UploadArtifactResponse* response) override {
    v1::UploadArtifactRequest request;
    if (!reader->Read(&request) || !request.has_header()) return {grpc::StatusCode::INVALID_ARGUMENT, "no header"};
    const v1::UploadArtifactRequest::Header header = request.header();
    const StopSignal never;
    const absl::Status status = store_->Upload(
        header.sha256(), header.bytes(), header.offset(),
        [&]() -> absl::StatusOr<std::string> { return reader->Read(&request) ? request.chunk() : std::string(); },
        never, StopSignal::Mode::kAbandon);
    response->set_bytes(header.bytes());
    return ToGrpc(status);
  }
  grpc::Status DownloadArtifact(grpc::ServerContext*, const v1::DownloadArtifactRequest* request,
                                grpc::ServerWriter<v1::DownloadArtifactResponse>* writer) override {
    const StopSignal never;
    return ToGrpc(store_->Download(
        request->sha256(), request->offset(),
        [&](std::string_view chunk) {
          v1::DownloadArtifactResponse response;
          response.set_chunk(std::string(chunk));
          return writer->Write(response) ? absl::OkStatus() : absl::CancelledError("gone");
        },
        never, StopSignal::Mode::kAbandon));
  }

 private:
  MemoryArtifacts* const store_;
};

struct FakeCoordinator::Server {
  explicit Server(FakeCoordinator* owner) : link(owner), artifacts(&owner->artifacts_) {}
  LinkService link;
  ArtifactService artifacts;
  std::unique_ptr<grpc::Server> server;
};

FakeCoordinator::FakeCoordinator(const std::string& address) : address_(address) { StartServing(); }

FakeCoordinator::~FakeCoordinator() { StopServing(); }

std::string FakeCoordinator::address() const { return address_; }

void FakeCoordinator::StartServing() {
  {
    MutexLock lock(&mutex_);
    serving_ = true;
  }
  server_ = std::make_unique<Server>(this);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&server_->link);
  builder.RegisterService(&server_->artifacts);
  server_->server = builder.BuildAndStart();
  CHECK(server_->server != nullptr) << "cannot listen on " << address_;
  if (absl::EndsWith(address_, ":0")) address_ = absl::StrCat("127.0.0.1:", port);
}

void FakeCoordinator::StopServing() {
  {
    MutexLock lock(&mutex_);
    serving_ = false;
    changed_.NotifyAll();
  }
  if (server_ != nullptr) server_->server->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

void FakeCoordinator::AddJob(const std::string& job_id, const v1::Task& task) {
  MutexLock lock(&mutex_);
  jobs_[job_id].task = task;
  changed_.NotifyAll();
}

void FakeCoordinator::CancelJob(const std::string& job_id) {
  MutexLock lock(&mutex_);
  jobs_[job_id].wanted = false;
  changed_.NotifyAll();
}

void FakeCoordinator::AskForDrain() {
  MutexLock lock(&mutex_);
  drain_ = true;
  changed_.NotifyAll();
}

void FakeCoordinator::Refuse(const absl::Status& status) {
  MutexLock lock(&mutex_);
  refusal_ = status;
}

bool FakeCoordinator::Await(const std::function<bool(const std::map<std::string, Job>&)>& condition) {
  const int64_t until_us = Clock::Real().MonotonicMicros() + kAwaitMicros;
  MutexLock lock(&mutex_);
  while (!condition(jobs_)) {
    const int64_t left_us = until_us - Clock::Real().MonotonicMicros();
    if (left_us <= 0) return false;
    changed_.WaitFor(&mutex_, left_us);
  }
  return true;
}

bool FakeCoordinator::AwaitAllFinished() {
  return Await([](const std::map<std::string, Job>& jobs) {
    for (const auto& [id, job] : jobs) {
      if (!job.finished()) return false;
    }
    return true;
  });
}

std::map<std::string, FakeCoordinator::Job> FakeCoordinator::jobs() {
  MutexLock lock(&mutex_);
  return jobs_;
}

v1::SyncRequest FakeCoordinator::last_request() {
  MutexLock lock(&mutex_);
  return last_request_;
}

int FakeCoordinator::syncs() {
  MutexLock lock(&mutex_);
  return syncs_;
}

absl::StatusOr<v1::SyncResponse> FakeCoordinator::Sync(const v1::SyncRequest& request,
                                                       const std::function<bool()>& cancelled) {
  MutexLock lock(&mutex_);
  ++syncs_;
  changed_.NotifyAll();
  if (!refusal_.ok()) return refusal_;
  if (request.worker().incarnation() == last_request_.worker().incarnation() &&
      request.sequence() <= last_request_.sequence()) {
    return absl::FailedPreconditionError("an old sequence");
  }
  if (!last_request_.worker().incarnation().empty() &&
      request.worker().incarnation() != last_request_.worker().incarnation()) {
    // The former incarnation's attempts are lost with it.
    for (auto& [id, job] : jobs_) job.slot = -1;
  }
  last_request_ = request;
  v1::SyncResponse response;
  Record(request, &response);
  Assign(request, &response);
  const int64_t until_us = Clock::Real().MonotonicMicros() + kIdleMicros;
  while (request.attempts().empty() && !request.draining() && response.desired().empty() && !drain_ && serving_ &&
         !cancelled() && Clock::Real().MonotonicMicros() < until_us) {
    changed_.WaitFor(&mutex_, 20'000);
    Assign(request, &response);
  }
  changed_.NotifyAll();
  if (!serving_) return absl::UnavailableError("stopping");
  response.set_next_contact_ms(20);
  response.set_lease_ms(30'000);
  response.set_drain(drain_);
  return response;
}

void FakeCoordinator::Record(const v1::SyncRequest& request, v1::SyncResponse* response) {
  for (const v1::AttemptReport& report : request.attempts()) {
    Job& job = jobs_[report.job_id()];
    const bool current = report.attempt() == job.attempt && !job.finished();
    if (current) {
      for (const v1::CurvePoint& point : report.points()) job.point_steps.push_back(point.step());
      if (report.has_checkpoint()) job.checkpoints.push_back(report.checkpoint());
    }
    if (report.phase() == v1::AttemptReport::RUNNING) {
      if (report.points_sequence() > 0) {
        v1::PointsAck* ack = response->add_points_acks();
        ack->set_job_id(report.job_id());
        ack->set_attempt(report.attempt());
        ack->set_points_sequence(report.points_sequence());
      }
      continue;
    }
    if (current) {
      job.ended.push_back(report);
      job.slot = -1;
    }
    v1::AttemptAck* ack = response->add_acks();
    ack->set_job_id(report.job_id());
    ack->set_attempt(report.attempt());
    ack->set_accepted(current);
  }
}

void FakeCoordinator::Assign(const v1::SyncRequest& request, v1::SyncResponse* response) {
  response->clear_desired();
  std::set<int> busy;
  for (const auto& [id, job] : jobs_) {
    if (job.slot >= 0) busy.insert(job.slot);
  }
  for (auto& [id, job] : jobs_) {
    for (int slot = 0; slot < request.worker().slots(); ++slot) {
      if (job.slot >= 0 || job.finished() || !job.wanted || request.draining() || drain_ || busy.count(slot) > 0)
        continue;
      busy.insert(slot);
      job.slot = slot;
      ++job.attempt;
    }
    if (job.slot < 0 || !job.wanted) continue;
    v1::Assignment* assignment = response->add_desired();
    assignment->set_job_id(id);
    assignment->set_attempt(job.attempt);
    assignment->set_slot(job.slot);
    *assignment->mutable_task() = job.task;
    if (job.task.has_stage() && !job.checkpoints.empty()) {
      *assignment->mutable_task()->mutable_stage()->mutable_start() = job.checkpoints.back();
    }
  }
}

}  // namespace ablate
