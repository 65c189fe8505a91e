// Artifacts over gRPC: a thin adapter from streams to the artifact store. Knows nothing of jobs.
#pragma once

#include "proto/artifacts.grpc.pb.h"
#include "server/artifacts/artifact_store.h"
#include "server/services/caller.h"

namespace ablate {

class ArtifactsService final : public v1::Artifacts::Service {
 public:
  ArtifactsService(ArtifactStore* store, const CallerPolicy* callers) : store_(store), callers_(*callers) {}

  grpc::Status StatArtifact(grpc::ServerContext* context, const v1::StatArtifactRequest* request,
                            v1::StatArtifactResponse* response) override;
  grpc::Status UploadArtifact(grpc::ServerContext* context, grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                              v1::UploadArtifactResponse* response) override;
  grpc::Status DownloadArtifact(grpc::ServerContext* context, const v1::DownloadArtifactRequest* request,
                                grpc::ServerWriter<v1::DownloadArtifactResponse>* writer) override;

 private:
  ArtifactStore* const store_;
  const CallerPolicy& callers_;
};

}  // namespace ablate
