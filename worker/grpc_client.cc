#include "worker/grpc_client.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "base/grpc_channel.h"
#include "base/mutex.h"
#include "proto/artifacts.grpc.pb.h"
#include "proto/link.grpc.pb.h"

namespace ablate {
namespace {

// A transfer that is cut here goes on where it stopped, so the limit only has to notice a connection that died
// silently.
constexpr int64_t kTransferMs = 60'000;
constexpr int64_t kStatMs = 10'000;
// A call gives a lost connection so long to come back, in slices between which it looks whether it is still wanted.
constexpr int64_t kConnectMs = 2'000;
constexpr int64_t kConnectSliceMs = 50;
// After so many time-outs in a row the connection itself is suspect (a gateway that forgot it): TCP alone would need 15
// minutes.
constexpr int kTimeoutsBeforeNewChannel = 2;

std::chrono::system_clock::time_point In(int64_t millis) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(millis);
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // gRPC's own default waits up to two minutes before it tries again.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // In spite of its name: how long one try to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // A new channel must be a new connection; and the coordinator is never behind a web proxy.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

// Cancels the call when `stop` reaches `at`.
class CancelOnStop {
 public:
  CancelOnStop(const StopSignal& stop, StopSignal::Mode at, grpc::ClientContext* context)
      : stop_(stop), id_(stop.Watch(at, [context] { context->TryCancel(); })) {}
  ~CancelOnStop() { stop_.Unwatch(id_); }

 private:
  const StopSignal& stop_;
  const int64_t id_;
};

}  // namespace

struct GrpcClient::Impl {
  ClientAccess access;
  const std::shared_ptr<ServerIdentity> identity = std::make_shared<ServerIdentity>();
  Mutex mutex;
  std::shared_ptr<grpc::Channel> channel ABLATE_GUARDED_BY(mutex);
  grpc::ClientContext* syncing ABLATE_GUARDED_BY(mutex) = nullptr;
  int64_t syncing_sequence ABLATE_GUARDED_BY(mutex) = 0;
  int64_t cancelled ABLATE_GUARDED_BY(mutex) = 0;  // this sequence and those before it
  int timeouts ABLATE_GUARDED_BY(mutex) = 0;

  // The channel, connected if that can be had: gRPC 1.51 makes progress with a connection only while someone waits for
  // it, and a call that fails fast does not. The call that follows says what is wrong, if something is.
  std::shared_ptr<grpc::Channel> Channel(int64_t timeout_ms, const std::function<bool()>& unwanted) {
    std::shared_ptr<grpc::Channel> current;
    {
      MutexLock lock(&mutex);
      if (channel == nullptr) channel = MakeChannel(access, Arguments(), identity);
      current = channel;
    }
    for (int64_t left_ms = std::min(timeout_ms, kConnectMs); left_ms > 0 && !unwanted(); left_ms -= kConnectSliceMs) {
      if (current->WaitForConnected(In(kConnectSliceMs))) break;
    }
    return current;
  }
  absl::Status ToAbslStatus(const grpc::Status& status) const {
    // A call that could not be made because of who is there is not worth trying again.
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      if (absl::Status verdict = identity->Verdict(); !verdict.ok()) return verdict;
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  bool IsCancelled(int64_t sequence) {
    MutexLock lock(&mutex);
    return sequence <= cancelled;
  }
  void Note(const grpc::Status& status) {
    MutexLock lock(&mutex);
    timeouts = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ? timeouts + 1 : 0;
    if (timeouts < kTimeoutsBeforeNewChannel) return;
    timeouts = 0;
    channel.reset();
  }
};

GrpcClient::GrpcClient(ClientAccess access) : impl_(std::make_unique<Impl>()) {
  // Kept until the process ends: giving back the last one joins gRPC's threads, and one that polls takes up to 10 s to
  // notice.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
  impl_->access = std::move(access);
}
GrpcClient::~GrpcClient() = default;

absl::StatusOr<v1::SyncResponse> GrpcClient::Sync(const v1::SyncRequest& request, int64_t timeout_ms) {
  const auto stub =
      v1::WorkerLink::NewStub(impl_->Channel(timeout_ms, [&] { return impl_->IsCancelled(request.sequence()); }));
  grpc::ClientContext context;
  context.set_deadline(In(timeout_ms));
  {
    MutexLock lock(&impl_->mutex);
    if (request.sequence() <= impl_->cancelled) return absl::CancelledError("the call was cancelled before it began");
    impl_->syncing = &context;
    impl_->syncing_sequence = request.sequence();
  }
  v1::SyncResponse response;
  const grpc::Status status = stub->Sync(&context, request, &response);
  {
    MutexLock lock(&impl_->mutex);
    impl_->syncing = nullptr;
  }
  impl_->Note(status);
  if (!status.ok()) return impl_->ToAbslStatus(status);
  return response;
}

void GrpcClient::CancelSync(int64_t sequence) {
  MutexLock lock(&impl_->mutex);
  impl_->cancelled = std::max(impl_->cancelled, sequence);
  if (impl_->syncing != nullptr && impl_->syncing_sequence <= sequence) impl_->syncing->TryCancel();
}

absl::StatusOr<ArtifactTransport::Stat> GrpcClient::StatArtifact(const std::string& sha256, const StopSignal& stop,
                                                                 StopSignal::Mode cancel_at) {
  const auto channel = impl_->Channel(kConnectMs, [&] { return stop.mode() >= cancel_at; });
  grpc::ClientContext context;
  context.set_deadline(In(kStatMs));
  const CancelOnStop cancel(stop, cancel_at, &context);
  v1::StatArtifactRequest request;
  request.set_sha256(sha256);
  v1::StatArtifactResponse response;
  const grpc::Status status = v1::Artifacts::NewStub(channel)->StatArtifact(&context, request, &response);
  if (!status.ok()) return impl_->ToAbslStatus(status);
  return Stat{response.complete(), response.bytes()};
}

absl::Status GrpcClient::Download(const std::string& sha256, int64_t offset,
                                  const std::function<absl::Status(std::string_view)>& sink, const StopSignal& stop,
                                  StopSignal::Mode cancel_at) {
  const auto channel = impl_->Channel(kConnectMs, [&] { return stop.mode() >= cancel_at; });
  grpc::ClientContext context;
  context.set_deadline(In(kTransferMs));
  const CancelOnStop cancel(stop, cancel_at, &context);
  v1::DownloadArtifactRequest request;
  request.set_sha256(sha256);
  request.set_offset(offset);
  const auto reader = v1::Artifacts::NewStub(channel)->DownloadArtifact(&context, request);
  v1::DownloadArtifactResponse response;
  absl::Status sunk;
  while (sunk.ok() && reader->Read(&response)) sunk = sink(response.chunk());
  if (!sunk.ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  return sunk.ok() ? impl_->ToAbslStatus(status) : sunk;
}

absl::Status GrpcClient::Upload(const std::string& sha256, int64_t bytes, int64_t offset,
                                const std::function<absl::StatusOr<std::string>()>& source, const StopSignal& stop,
                                StopSignal::Mode cancel_at) {
  const auto channel = impl_->Channel(kConnectMs, [&] { return stop.mode() >= cancel_at; });
  grpc::ClientContext context;
  context.set_deadline(In(kTransferMs));
  const CancelOnStop cancel(stop, cancel_at, &context);
  v1::UploadArtifactResponse response;
  const auto writer = v1::Artifacts::NewStub(channel)->UploadArtifact(&context, &response);
  v1::UploadArtifactRequest request;
  request.mutable_header()->set_sha256(sha256);
  request.mutable_header()->set_bytes(bytes);
  request.mutable_header()->set_offset(offset);
  bool writable = writer->Write(request);
  absl::Status sourced;
  while (writable) {
    absl::StatusOr<std::string> chunk = source();
    if (!chunk.ok()) {
      sourced = chunk.status();
      context.TryCancel();
      break;
    }
    if (chunk->empty()) break;
    request.set_chunk(*std::move(chunk));
    writable = writer->Write(request);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  return sourced.ok() ? impl_->ToAbslStatus(status) : sourced;
}

}  // namespace ablate
