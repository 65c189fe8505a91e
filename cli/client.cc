#include "cli/client.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "cli/command_line.h"
#include "grpcpp/grpcpp.h"

namespace ablate {
namespace {

constexpr int kTries = 4;
constexpr double kQueryGraceSeconds = 5;  // the query has the limit itself: its own end says more than this call's
constexpr size_t kChunkBytes = 1 << 20;
constexpr int kMaxMessageBytes = 64 << 20;

std::chrono::system_clock::time_point After(double seconds) {
  return std::chrono::system_clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // A watch may be silent for long: notice a lost network by pings.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // A proxy variable of the environment is not meant for a coordinator.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

Client::Client(const ClientAccess& access, double timeout_seconds)
    : address_(access.address),
      timeout_seconds_(timeout_seconds),
      has_tls_(access.tls()),
      channel_(MakeChannel(access, Arguments(), identity_)),
      sweeps_(v1::Sweeps::NewStub(channel_)),
      jobs_(v1::Jobs::NewStub(channel_)),
      results_(v1::Results::NewStub(channel_)),
      workers_(v1::Workers::NewStub(channel_)),
      artifacts_(v1::Artifacts::NewStub(channel_)),
      access_(v1::Access::NewStub(channel_)) {}

absl::Status Client::ToAbslStatus(const grpc::Status& status) {
  if (status.ok() || status.error_code() != grpc::StatusCode::UNAVAILABLE) has_answered_ = true;
  if (status.ok()) return absl::OkStatus();
  const std::string& message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && channel_->GetState(false) != GRPC_CHANNEL_READY) {
    // Of a server that is the wrong one nothing else is of interest.
    if (absl::Status verdict = identity_->Verdict(); !verdict.ok()) return verdict;
    if (!absl::StrContains(message, "Failed to connect to remote host") && !absl::StartsWith(address_, "unix")) {
      // Somebody is there, and the two do not agree how to speak.
      return UnreachableError(
          has_tls_ ? absl::StrCat("no TLS connection to ", address_, " comes about: it may speak no TLS (then leave out "
                                  "--tls-pin and --tls-ca), demand a client's certificate (--tls-cert, --tls-key), or have "
                                  "one that --tls-ca did not sign: ", message)
                   : absl::StrCat("what listens at ", address_, " does not answer as a coordinator without TLS; if it "
                                  "speaks TLS, give --tls-pin sha256:... (ABLATE_TLS_PIN), as it prints it at its start: ",
                                  message));
    }
    return UnreachableError(absl::StrCat("no coordinator answers at ", address_,
                                         ": start one with `ablate-server --data-dir DIR --listen ", address_,
                                         "`, or name another with --server ADDR or the variable ABLATE_SERVER (a "
                                         "finished run's folder: --data-dir DIR)"));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && message == "Deadline Exceeded") {
    return absl::DeadlineExceededError(absl::StrCat("the coordinator at ", address_, " did not answer within ",
                                                    timeout_seconds_, " s; give it longer with --timeout"));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return UnreachableError(message);
  return absl::Status(static_cast<absl::StatusCode>(static_cast<int>(status.error_code())), message);
}

absl::Status Client::Try(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const auto deadline = After(timeout_seconds_);
  for (int attempt = 1;; ++attempt) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    const grpc::Status status = call(&context);
    const bool answered_before = has_answered_;
    absl::Status result = ToAbslStatus(status);
    if (!absl::IsUnavailable(result) || !answered_before || attempt == kTries) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
  }
}

bool Client::Answers(double seconds) {
  grpc::ClientContext context;
  context.set_deadline(After(seconds));
  v1::ListSweepsRequest request;
  request.set_page_size(1);
  v1::ListSweepsResponse response;
  return ToAbslStatus(sweeps_->ListSweeps(&context, request, &response)).ok();
}

absl::Status Client::Watch(const std::string& sweep, grpc::ClientContext* context,
                           const std::function<bool(const v1::Sweep&)>& update) {
  v1::WatchSweepRequest request;
  request.set_sweep(sweep);
  const auto reader = sweeps_->WatchSweep(context, request);
  v1::Sweep state;
  while (reader->Read(&state)) {
    has_answered_ = true;
    if (!update(state)) {
      context->TryCancel();
      reader->Finish();
      return absl::CancelledError("not watched any more");
    }
  }
  return ToAbslStatus(reader->Finish());
}

absl::Status Client::Query(const v1::QueryRequest& request, const std::function<void(const v1::QueryResponse&)>& part) {
  grpc::ClientContext context;
  context.set_deadline(After(timeout_seconds_ + kQueryGraceSeconds));
  const auto reader = results_->Query(&context, request);
  v1::QueryResponse response;
  while (reader->Read(&response)) part(response);
  return ToAbslStatus(reader->Finish());
}

absl::StatusOr<std::string> Client::Download(const std::string& sha256, int64_t max_bytes) {
  std::string content;
  v1::DownloadArtifactRequest request;
  request.set_sha256(sha256);
  bool too_long = false;
  const absl::Status status = Try([&](grpc::ClientContext* context) {
    content.clear();
    const auto reader = artifacts_->DownloadArtifact(context, request);
    v1::DownloadArtifactResponse part;
    while (!too_long && reader->Read(&part)) {
      content += part.chunk();
      too_long = static_cast<int64_t>(content.size()) > max_bytes;
    }
    if (too_long) context->TryCancel();
    return reader->Finish();
  });
  if (too_long) return absl::ResourceExhaustedError(absl::StrCat("the file ", sha256, " is over ", max_bytes, " bytes"));
  if (!status.ok()) return status;
  if (Sha256Hex(content) != sha256) return absl::DataLossError(absl::StrCat("the file ", sha256, " came damaged"));
  return content;
}

absl::StatusOr<bool> Client::UploadOnce(const std::string& path, const std::string& sha256, int64_t bytes,
                                        const std::function<void(int64_t)>& progress) {
  v1::StatArtifactRequest stat;
  stat.set_sha256(sha256);
  ABLATE_ASSIGN_OR_RETURN(const v1::StatArtifactResponse there, Call(&v1::Artifacts::Stub::StatArtifact, stat));
  if (there.complete()) return false;
  int64_t position = std::min<int64_t>(there.bytes(), bytes);
  std::ifstream file(path, std::ios::binary);
  file.seekg(position);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));

  grpc::ClientContext context;  // no deadline: a large file over a slow line takes its time; keepalive sees a lost one
  v1::UploadArtifactResponse response;
  const auto writer = artifacts_->UploadArtifact(&context, &response);
  v1::UploadArtifactRequest part;
  part.mutable_header()->set_sha256(sha256);
  part.mutable_header()->set_bytes(bytes);
  part.mutable_header()->set_offset(position);
  bool open = writer->Write(part);
  while (open && position < bytes) {
    std::string* chunk = part.mutable_chunk();
    chunk->resize(static_cast<size_t>(std::min<int64_t>(kChunkBytes, bytes - position)));
    if (!file.read(chunk->data(), static_cast<std::streamsize>(chunk->size()))) {
      context.TryCancel();
      writer->Finish();
      return absl::DataLossError(absl::StrCat(path, " became shorter while it was read"));
    }
    open = writer->Write(part);
    position += static_cast<int64_t>(chunk->size());
    progress(position);
  }
  writer->WritesDone();
  ABLATE_RETURN_IF_ERROR(ToAbslStatus(writer->Finish()));
  return true;
}

absl::Status Client::Upload(const std::string& path, const std::string& sha256, int64_t bytes,
                            const std::function<void(int64_t)>& progress) {
  absl::Status status;
  for (int attempt = 1; attempt <= kTries; ++attempt) {
    status = UploadOnce(path, sha256, bytes, progress).status();
    // DataLoss: perhaps what lay there from an earlier upload was damaged; it is gone now, so try from the start, once.
    const bool again = absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsOutOfRange(status) ||
                       (absl::IsDataLoss(status) && attempt == 1);
    if (!again || !has_answered_) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
  }
  return status;
}

}  // namespace ablate
