// ablate-rpc-proxy: stands between workers and coordinator and breaks RPCs by a seeded plan. Each RPC passes, is
// dropped (never forwarded), is delayed, is sent twice, is executed and then reported as lost, or, of a transfer, is cut
// in the middle. While the file --cut-file exists, nothing passes at all. For tests/faults only; must not know jobs.
//
// What happens to the n-th RPC of a worker is a function of (seed, name, n) alone; which RPC is the n-th depends on the
// run. Each fault is a line of --log: "<rpc> <fault>". Thread rule: gRPC's threads share Plan, which has a lock.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "proto/artifacts.grpc.pb.h"
#include "proto/link.grpc.pb.h"

ABSL_FLAG(std::string, listen, "", "HOST:PORT or unix:PATH for the workers");
ABSL_FLAG(std::string, upstream, "", "the coordinator");
ABSL_FLAG(std::string, log, "", "a line for each fault is appended here");
ABSL_FLAG(std::string, cut_file, "", "while this file exists, every RPC is lost");
ABSL_FLAG(uint64_t, seed, 1, "of the plan");
ABSL_FLAG(std::string, percent, "drop=5,lose=5,delay=8,duplicate=5,cut=10",
          "how often each fault happens; cut: of transfers only");
ABSL_FLAG(int, delay_ms, 400, "longest delay");

namespace ablate {
namespace {

constexpr int kMaxMessageBytes = 32 << 20;
constexpr int64_t kForwardMs = 60'000;

uint64_t Mix(uint64_t x) {  // SplitMix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

enum class Fault { kNone, kDrop, kLose, kDelay, kDuplicate, kCut };
const std::map<std::string, Fault>& FaultNames() {
  static const auto& names = *new std::map<std::string, Fault>{{"drop", Fault::kDrop},
                                                               {"lose", Fault::kLose},
                                                               {"delay", Fault::kDelay},
                                                               {"duplicate", Fault::kDuplicate},
                                                               {"cut", Fault::kCut}};
  return names;
}

struct Decision {
  Fault fault = Fault::kNone;
  int delay_ms = 0;
  int cut_after = 0;        // messages of a transfer
  bool as_timeout = false;  // what is told of a lost RPC: a time-out instead of a lost connection
};

class Plan {
 public:
  bool Read(const std::string& text) {
    for (const auto part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
      const std::vector<std::string> pair = absl::StrSplit(part, '=');
      int percent = 0;
      if (pair.size() != 2 || !absl::SimpleAtoi(pair[1], &percent) || FaultNames().count(pair[0]) == 0) return false;
      percent_[FaultNames().at(pair[0])] = percent;
    }
    const std::string log = absl::GetFlag(FLAGS_log);
    if (!log.empty()) log_ = std::fopen(log.c_str(), "a");
    return log.empty() || log_ != nullptr;
  }

  Decision Next(const std::string& rpc, bool transfer) {
    MutexLock lock(&mutex_);
    uint64_t bits = absl::GetFlag(FLAGS_seed);
    for (char c : rpc) bits = Mix(bits ^ static_cast<unsigned char>(c));
    bits = Mix(bits ^ static_cast<uint64_t>(count_[rpc]++));
    int at = static_cast<int>(bits % 100);
    Decision decision;
    for (const auto& [fault, percent] : percent_) {
      if (fault == Fault::kCut && !transfer) continue;
      if (fault == Fault::kDuplicate && transfer) continue;
      if (at < percent) {
        decision.fault = fault;
        break;
      }
      at -= percent;
    }
    bits = Mix(bits);
    decision.delay_ms = static_cast<int>(bits % static_cast<uint64_t>(std::max(1, absl::GetFlag(FLAGS_delay_ms))));
    decision.cut_after = static_cast<int>((bits >> 20) % 4);
    decision.as_timeout = (bits >> 40) % 2 == 0;
    return decision;
  }

  void Happened(const std::string& rpc, const char* fault) {
    MutexLock lock(&mutex_);
    if (log_ == nullptr) return;
    std::fprintf(log_, "%s %s\n", rpc.c_str(), fault);
    std::fflush(log_);
  }

 private:
  Mutex mutex_;
  std::map<Fault, int> percent_;  // constant after Read
  std::map<std::string, int64_t> count_ ABLATE_GUARDED_BY(mutex_);
  FILE* log_ ABLATE_GUARDED_BY(mutex_) = nullptr;
};

bool IsCut() {
  static const auto& path = *new std::string(absl::GetFlag(FLAGS_cut_file));
  return !path.empty() && ::access(path.c_str(), F_OK) == 0;
}

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

grpc::Status Lost(const Decision& decision) {
  return decision.as_timeout ? grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer in time (proxy)")
                             : grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection is lost (proxy)");
}

// The call upstream: ends with the call here, and carries what identifies the caller.
void Prepare(const grpc::ServerContext* from, grpc::ClientContext* to) {
  to->set_deadline(std::min(from->deadline(), std::chrono::system_clock::now() + std::chrono::milliseconds(kForwardMs)));
  const auto token = from->client_metadata().find("authorization");
  if (token != from->client_metadata().end()) {
    to->AddMetadata("authorization", std::string(token->second.data(), token->second.size()));
  }
}

// Around one unary RPC.
template <typename Request, typename Response, typename Call>
grpc::Status Forward(Plan* plan, const std::string& rpc, grpc::ServerContext* context, const Request& request,
                     Response* response, const Call& call) {
  const Decision decision = plan->Next(rpc, /*transfer=*/false);
  if (IsCut()) {
    plan->Happened(rpc, "partition");
    return Lost(decision);
  }
  const auto forward = [&](Response* answer) {
    grpc::ClientContext upstream;
    Prepare(context, &upstream);
    return call(&upstream, request, answer);
  };
  switch (decision.fault) {
    case Fault::kDrop:
      plan->Happened(rpc, "drop");
      return Lost(decision);
    case Fault::kDelay:
      plan->Happened(rpc, "delay");
      Sleep(decision.delay_ms);
      break;
    case Fault::kDuplicate: {
      plan->Happened(rpc, "duplicate");
      const grpc::Status status = forward(response);
      Response again;
      (void)forward(&again);
      return status;
    }
    case Fault::kLose:
      // Executed, and nobody is told.
      (void)forward(response);
      response->Clear();
      plan->Happened(rpc, "lose");
      return Lost(decision);
    default:
      break;
  }
  const grpc::Status status = forward(response);
  if (!IsCut()) return status;
  plan->Happened(rpc, "partition");
  response->Clear();
  return Lost(decision);
}

class Link final : public v1::WorkerLink::Service {
 public:
  Link(Plan* plan, const std::shared_ptr<grpc::Channel>& channel)
      : plan_(plan), stub_(v1::WorkerLink::NewStub(channel)) {}
  grpc::Status Sync(grpc::ServerContext* context, const v1::SyncRequest* request,
                    v1::SyncResponse* response) override {
    return Forward(plan_, "Sync", context, *request, response,
                   [&](auto* upstream, const auto& r, auto* answer) { return stub_->Sync(upstream, r, answer); });
  }

 private:
  Plan* const plan_;
  const std::unique_ptr<v1::WorkerLink::Stub> stub_;
};

class Files final : public v1::Artifacts::Service {
 public:
  Files(Plan* plan, const std::shared_ptr<grpc::Channel>& channel)
      : plan_(plan), stub_(v1::Artifacts::NewStub(channel)) {}

  grpc::Status StatArtifact(grpc::ServerContext* context, const v1::StatArtifactRequest* request,
                            v1::StatArtifactResponse* response) override {
    return Forward(plan_, "StatArtifact", context, *request, response, [&](auto* upstream, const auto& r, auto* answer) {
      return stub_->StatArtifact(upstream, r, answer);
    });
  }

  grpc::Status UploadArtifact(grpc::ServerContext* context, grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                              v1::UploadArtifactResponse* response) override {
    const Decision decision = plan_->Next("UploadArtifact", /*transfer=*/true);
    if (IsCut() || decision.fault == Fault::kDrop) {
      plan_->Happened("UploadArtifact", IsCut() ? "partition" : "drop");
      return Lost(decision);
    }
    if (decision.fault == Fault::kDelay) {
      plan_->Happened("UploadArtifact", "delay");
      Sleep(decision.delay_ms);
    }
    grpc::ClientContext upstream;
    Prepare(context, &upstream);
    const std::unique_ptr<grpc::ClientWriter<v1::UploadArtifactRequest>> writer =
        stub_->UploadArtifact(&upstream, response);
    v1::UploadArtifactRequest part;
    for (int n = 0; reader->Read(&part); ++n) {
      if (decision.fault == Fault::kCut && n > decision.cut_after) {
        plan_->Happened("UploadArtifact", "cut");
        upstream.TryCancel();
        (void)writer->Finish();
        return Lost(decision);
      }
      if (!writer->Write(part)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (decision.fault != Fault::kLose) return status;
    plan_->Happened("UploadArtifact", "lose");
    return Lost(decision);
  }

  grpc::Status DownloadArtifact(grpc::ServerContext* context, const v1::DownloadArtifactRequest* request,
                                grpc::ServerWriter<v1::DownloadArtifactResponse>* writer) override {
    const Decision decision = plan_->Next("DownloadArtifact", /*transfer=*/true);
    if (IsCut() || decision.fault == Fault::kDrop) {
      plan_->Happened("DownloadArtifact", IsCut() ? "partition" : "drop");
      return Lost(decision);
    }
    if (decision.fault == Fault::kDelay) {
      plan_->Happened("DownloadArtifact", "delay");
      Sleep(decision.delay_ms);
    }
    grpc::ClientContext upstream;
    Prepare(context, &upstream);
    const auto reader = stub_->DownloadArtifact(&upstream, *request);
    v1::DownloadArtifactResponse part;
    for (int n = 0; reader->Read(&part); ++n) {
      const bool cut = decision.fault == Fault::kCut && n >= decision.cut_after;
      if (cut || !writer->Write(part)) {
        if (cut) plan_->Happened("DownloadArtifact", "cut");
        upstream.TryCancel();
        (void)reader->Finish();
        return Lost(decision);
      }
    }
    const grpc::Status status = reader->Finish();
    // Everything has come, and the end says otherwise.
    if (decision.fault != Fault::kLose) return status;
    plan_->Happened("DownloadArtifact", "lose");
    return Lost(decision);
  }

 private:
  Plan* const plan_;
  const std::unique_ptr<v1::Artifacts::Stub> stub_;
};

int Main() {
  if (absl::GetFlag(FLAGS_listen).empty() || absl::GetFlag(FLAGS_upstream).empty()) {
    std::fprintf(stderr, "usage: ablate-rpc-proxy --listen ADDRESS --upstream ADDRESS [--percent drop=5,lose=5,...]\n");
    return 2;
  }
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Plan plan;
  if (!plan.Read(absl::GetFlag(FLAGS_percent))) {
    std::fprintf(stderr, "ablate-rpc-proxy: --percent or --log cannot be used\n");
    return 2;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(absl::GetFlag(FLAGS_upstream), grpc::InsecureChannelCredentials(), arguments);
  Link link(&plan, channel);
  Files files(&plan, channel);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::GetFlag(FLAGS_listen), grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(&link);
  builder.RegisterService(&files);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "ablate-rpc-proxy: cannot listen on %s\n", absl::GetFlag(FLAGS_listen).c_str());
    return 1;
  }
  // gRPC 1.51 makes progress with a connection only while someone waits for it: this thread does, so that a coordinator
  // that came back is seen.
  std::thread([channel] {
    for (;;) {
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
      Sleep(50);
    }
  }).detach();
  std::printf("listening\n");
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&signals, &signal);
  std::fflush(nullptr);
  std::_Exit(0);
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return ablate::Main();
}
