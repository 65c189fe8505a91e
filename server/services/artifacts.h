// Artifacts over gRPC: a thin adapter from streams to the artifact store. Knows nothing of jobs.
#pragma once

#include "proto/artifacts.grpc.pb.h"
#include "server/artifacts/artifact_store.h"

namespace ablate {

class ArtifactsService final : public v1::Artifacts::Service {
 public:
  explicit ArtifactsService(ArtifactStore* store) : store_(store) {}

  grpc::Status StatArtifact(grpc::ServerContext* context, const v1::StatArtifactRequest* request,
                            v1::StatArtifactResponse* response) override;
  grpc::Status UploadArtifact(grpc::ServerContext* context, grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                              v1::UploadArtifactResponse* response) override;
  grpc::Status DownloadArtifact(grpc::ServerContext* context, const v1::DownloadArtifactRequest* request,
                                grpc::ServerWriter<v1::DownloadArtifactResponse>* writer) override;

 private:
  ArtifactStore* const store_;
};

}  // namespace ablate
