#include "server/services/artifacts.h"

#include <functional>
#include <memory>

#include "base/status_macros.h"
#include "server/services/adapter.h"

namespace ablate {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

absl::Status Receive(ArtifactStore* store, const Caller& caller, grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                     v1::UploadArtifactResponse* response) {
  v1::UploadArtifactRequest part;
  if (!reader->Read(&part) || !part.has_header()) {
    return absl::InvalidArgumentError("UploadArtifactRequest.header: the first message must be the header");
  }
  const v1::UploadArtifactRequest::Header header = part.header();
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<ArtifactStore::Upload> upload,
                          store->StartUpload(header.sha256(), header.bytes(), header.offset()));
  while (reader->Read(&part)) {
    ABLATE_RETURN_IF_ERROR(caller.CheckLive());
    if (part.has_header())
      return absl::InvalidArgumentError("UploadArtifactRequest.header: only the first message has one");
    if (part.chunk().size() > kChunkBytes) {
      return absl::InvalidArgumentError("UploadArtifactRequest.chunk: at most 1 MiB is allowed in one message");
    }
    ABLATE_RETURN_IF_ERROR(upload->Append(part.chunk()));
  }
  ABLATE_RETURN_IF_ERROR(upload->Finish());
  response->set_bytes(header.bytes());
  return absl::OkStatus();
}

absl::Status Send(ArtifactStore* store, const Caller& caller, const v1::DownloadArtifactRequest& request,
                  const std::function<bool(const v1::DownloadArtifactResponse&)>& send) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<ArtifactStore::Reader> reader,
                          store->OpenReader(request.sha256(), request.offset()));
  // The first message is sent even of an empty rest: it says how long the artifact is.
  for (bool first = true;; first = false) {
    v1::DownloadArtifactResponse response;
    ABLATE_RETURN_IF_ERROR(reader->Read(kChunkBytes, response.mutable_chunk()));
    if (response.chunk().empty() && !first) return absl::OkStatus();
    if (first) response.set_total_bytes(reader->total_bytes());
    ABLATE_RETURN_IF_ERROR(caller.CheckLive());
    if (!send(response)) return absl::CancelledError("the client is gone");
  }
}

}  // namespace

grpc::Status ArtifactsService::StatArtifact(grpc::ServerContext*, const v1::StatArtifactRequest* request,
                                            v1::StatArtifactResponse* response) {
  if (const absl::Status status = CheckRequest(*request); !status.ok()) return ToGrpc(status);
  const absl::StatusOr<ArtifactStore::StatResult> stat = store_->Stat(request->sha256());
  if (!stat.ok()) return ToGrpc(stat.status());
  response->set_complete(stat->complete);
  response->set_bytes(stat->bytes);
  return grpc::Status::OK;
}

grpc::Status ArtifactsService::UploadArtifact(grpc::ServerContext* context,
                                              grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                                              v1::UploadArtifactResponse* response) {
  return ToGrpc(Receive(store_, Caller(callers_, *context), reader, response));
}

grpc::Status ArtifactsService::DownloadArtifact(grpc::ServerContext* context, const v1::DownloadArtifactRequest* request,
                                                grpc::ServerWriter<v1::DownloadArtifactResponse>* writer) {
  const Caller caller(callers_, *context);
  return AnswerStream<v1::DownloadArtifactRequest, v1::DownloadArtifactResponse>(
      *request, writer, [&](const auto& send) { return Send(store_, caller, *request, send); });
}

}  // namespace ablate
