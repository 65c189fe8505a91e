// The services over a real Unix socket, in front of a fake coordinator.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/artifacts.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/link.grpc.pb.h"
#include "server/services/adapter.h"
#include "server/services/fake_coordinator.h"
#include "server/services/grpc_server.h"

namespace ablate {
namespace {

using testing::HasSubstr;

class ServicesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto store = ArtifactStore::Open(JoinPath(dir_.path(), "artifacts"));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto server = GrpcServer::Start("unix:" + socket_, &coordinator_, store_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials());
    sweeps_ = v1::Sweeps::NewStub(channel_);
    jobs_ = v1::Jobs::NewStub(channel_);
    results_ = v1::Results::NewStub(channel_);
    link_ = v1::WorkerLink::NewStub(channel_);
    artifacts_ = v1::Artifacts::NewStub(channel_);
  }
  void TearDown() override {
    coordinator_.Shutdown();
    server_.reset();
  }

  grpc::Status Upload(const std::string& hash, int64_t total, int64_t offset, const std::vector<std::string>& chunks) {
    grpc::ClientContext context;
    v1::UploadArtifactResponse response;
    const auto writer = artifacts_->UploadArtifact(&context, &response);
    v1::UploadArtifactRequest part;
    part.mutable_header()->set_sha256(hash);
    part.mutable_header()->set_bytes(total);
    part.mutable_header()->set_offset(offset);
    bool open = writer->Write(part);
    for (const std::string& chunk : chunks) {
      part.set_chunk(chunk);
      open = open && writer->Write(part);
    }
    writer->WritesDone();
    return writer->Finish();
  }
  std::string Download(const std::string& hash, int64_t offset, int64_t* total, grpc::Status* status) {
    grpc::ClientContext context;
    v1::DownloadArtifactRequest request;
    request.set_sha256(hash);
    request.set_offset(offset);
    const auto reader = artifacts_->DownloadArtifact(&context, request);
    std::string all;
    v1::DownloadArtifactResponse response;
    for (bool first = true; reader->Read(&response); first = false) {
      if (first) *total = response.total_bytes();
      all += response.chunk();
    }
    *status = reader->Finish();
    return all;
  }

  TempDir dir_;
  const std::string socket_ = JoinPath(dir_.path(), "s.sock");
  FakeCoordinator coordinator_;
  std::unique_ptr<ArtifactStore> store_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Sweeps::Stub> sweeps_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Results::Stub> results_;
  std::unique_ptr<v1::WorkerLink::Stub> link_;
  std::unique_ptr<v1::Artifacts::Stub> artifacts_;
};

TEST_F(ServicesTest, CarriesRequestsAnswersAndErrors) {
  v1::GetSweepRequest request;
  request.set_sweep("alpha");
  {
    grpc::ClientContext context;
    v1::Sweep sweep;
    ASSERT_TRUE(sweeps_->GetSweep(&context, request, &sweep).ok());
    EXPECT_EQ(sweep.name(), "alpha");
  }
  const absl::Status errors[] = {
      absl::NotFoundError("no sweep \"alpha\""),        absl::AlreadyExistsError("two\nlines \xc3\xbc"),
      absl::FailedPreconditionError("upload it first"), absl::UnavailableError("stopping"),
      absl::PermissionDeniedError("would write"),       absl::ResourceExhaustedError("disk full")};
  for (const absl::Status& error : errors) {
    coordinator_.error = error;
    grpc::ClientContext context;
    v1::Sweep sweep;
    const grpc::Status status = sweeps_->GetSweep(&context, request, &sweep);
    EXPECT_EQ(static_cast<int>(status.error_code()), static_cast<int>(error.code()));
    EXPECT_EQ(status.error_message(), std::string(error.message()));
  }
}

TEST_F(ServicesTest, AVeryLongMessageArrivesShortened) {
  coordinator_.error = absl::AlreadyExistsError(std::string(100'000, '\n'));
  grpc::ClientContext context;
  v1::GetSweepRequest request;
  request.set_sweep("alpha");
  v1::Sweep sweep;
  const grpc::Status status = sweeps_->GetSweep(&context, request, &sweep);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(status.error_message(), HasSubstr("more bytes)"));
  // Cut between characters.
  std::string umlauts;
  for (int i = 0; i < 5000; ++i) umlauts += "\xc3\xbc";
  const std::string cut = ToGrpc(absl::InternalError(umlauts)).error_message();
  EXPECT_EQ(cut.find("...") % 2, 0u);
}

TEST_F(ServicesTest, RequestsAboutClaimsAreChecked) {
  const auto lock = [&](const std::string& arm, const std::string& why) {
    v1::LockSweepRequest request;
    request.set_request_id("r");
    request.set_sweep("alpha");
    request.set_arm_json(arm);
    request.set_why(why);
    grpc::ClientContext context;
    v1::Sweep response;
    return sweeps_->LockSweep(&context, request, &response);
  };
  EXPECT_TRUE(lock("{}", "because").ok());
  EXPECT_THAT(lock("", "because").error_message(), HasSubstr("LockSweepRequest.arm_json: must not be empty"));
  EXPECT_THAT(lock("{}", "").error_message(), HasSubstr("LockSweepRequest.why: must not be empty"));
  EXPECT_THAT(lock("{}", std::string(5000, 'x')).error_message(), HasSubstr("is 5000 bytes long"));
  v1::VerifyJobsRequest verify;
  const auto verified = [&] {
    grpc::ClientContext context;
    v1::VerifyJobsResponse response;
    return jobs_->VerifyJobs(&context, verify, &response);
  };
  EXPECT_THAT(verified().error_message(), HasSubstr("request_id: must not be empty"));
  verify.set_request_id("r");
  EXPECT_TRUE(verified().ok());  // which of job and sweep is meant is the coordinator's question
  verify.set_sample(-1);
  EXPECT_THAT(verified().error_message(), HasSubstr("VerifyJobsRequest.sample"));
  grpc::ClientContext context;
  v1::ListVerificationsResponse all;
  EXPECT_TRUE(jobs_->ListVerifications(&context, v1::ListVerificationsRequest(), &all).ok());
  v1::GetClaimsRequest claims;
  claims.set_sweep("alpha");
  claims.add_also("");
  grpc::ClientContext other;
  v1::GetClaimsResponse response;
  EXPECT_THAT(results_->GetClaims(&other, claims, &response).error_message(), HasSubstr("GetClaimsRequest.also"));
}

TEST_F(ServicesTest, BadRequestsNeverReachTheCoordinator) {
  v1::SubmitSweepRequest submit;
  const auto refused = [&](const std::string& field) {
    grpc::ClientContext context;
    v1::SubmitSweepResponse response;
    const grpc::Status status = sweeps_->SubmitSweep(&context, submit, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  };
  refused("SubmitSweepRequest.request_id: must not be empty");
  submit.set_request_id(std::string(129, 'x'));
  refused("SubmitSweepRequest.request_id: is 129 bytes long");
  submit.set_request_id("request_1");
  refused("SubmitSweepRequest.yaml: must not be empty");
  submit.set_yaml(std::string((4 << 20) + 1, ' '));
  refused("SubmitSweepRequest.yaml");
  submit.set_yaml("name: x");
  submit.mutable_data()->add_files()->set_sha256("../../etc/passwd");
  refused("DataFile.sha256");
  EXPECT_EQ(coordinator_.calls, 0);
  submit.mutable_data()->mutable_files(0)->set_sha256(Sha256Hex("x"));
  grpc::ClientContext context;
  v1::SubmitSweepResponse response;
  EXPECT_TRUE(sweeps_->SubmitSweep(&context, submit, &response).ok());

  EXPECT_THAT(std::string(CheckRequest([] {
                            v1::ListJobsRequest r;
                            r.set_page_size(1001);
                            return r;
                          }())
                              .message()),
              HasSubstr("ListJobsRequest.page_size: must be from 0 to 1000; got 1001"));
  EXPECT_THAT(std::string(CheckRequest([] {
                            v1::ListJobsRequest r;
                            r.set_page_size(-1);
                            return r;
                          }())
                              .message()),
              HasSubstr("page_size"));
  EXPECT_TRUE(CheckRequest(v1::ListJobsRequest()).ok());
  EXPECT_FALSE(CheckRequest(v1::GetJobRequest()).ok());
  for (double level : {-0.1, 1.0, std::nan(""), 95.0}) {
    v1::GetTableRequest table;
    table.set_sweep("s");
    table.set_level(level);
    EXPECT_FALSE(CheckRequest(table).ok()) << level;
  }
}

TEST_F(ServicesTest, MalformedSyncsAreRefused) {
  const auto sync = [&](const v1::SyncRequest& request) {
    grpc::ClientContext context;
    v1::SyncResponse response;
    return link_->Sync(&context, request, &response);
  };
  v1::SyncRequest request;
  EXPECT_EQ(sync(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.mutable_worker()->set_worker_id("w");
  request.mutable_worker()->set_incarnation("i");
  request.mutable_worker()->set_slots(1);
  EXPECT_THAT(sync(request).error_message(), HasSubstr("SyncRequest.sequence"));
  request.set_sequence(1);
  EXPECT_TRUE(sync(request).ok());
  request.mutable_worker()->set_slots(0);
  EXPECT_THAT(sync(request).error_message(), HasSubstr("WorkerInfo.slots"));
}

TEST_F(ServicesTest, AWatcherWhoLeavesFreesTheServer) {
  grpc::ClientContext context;
  v1::WatchSweepRequest request;
  request.set_sweep("alpha");
  const auto reader = sweeps_->WatchSweep(&context, request);
  v1::Sweep sweep;
  ASSERT_TRUE(reader->Read(&sweep));
  EXPECT_EQ(sweep.name(), "alpha");
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (coordinator_.waiting > 0) std::this_thread::yield();  // the test's time limit is the deadline
}

TEST_F(ServicesTest, QueriesStreamAndEndWithTheirStatus) {
  coordinator_.query_answers.resize(3);
  coordinator_.query_answers[0].add_columns("loss");
  coordinator_.query_answers[1].add_rows()->add_cells()->set_real(std::nan(""));
  coordinator_.error = absl::DeadlineExceededError("over 10 ms");
  grpc::ClientContext context;
  v1::QueryRequest request;
  request.set_sql("SELECT 1");
  const auto reader = results_->Query(&context, request);
  std::vector<v1::QueryResponse> got;
  v1::QueryResponse response;
  while (reader->Read(&response)) got.push_back(response);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_TRUE(std::isnan(got[1].rows(0).cells(0).real()));
}

TEST_F(ServicesTest, ArtifactsGoUpAndDownAndResume) {
  const std::string content = std::string(2'500'000, 'a') + "z";
  const std::string hash = Sha256Hex(content);
  const std::string first = content.substr(0, 1 << 20);
  EXPECT_EQ(Upload(hash, content.size(), 0, {first}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  v1::StatArtifactRequest stat;
  stat.set_sha256(hash);
  v1::StatArtifactResponse there;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(artifacts_->StatArtifact(&context, stat, &there).ok());
  }
  EXPECT_FALSE(there.complete());
  EXPECT_EQ(there.bytes(), 1 << 20);
  EXPECT_EQ(Upload(hash, content.size(), (1 << 20) + 1, {}).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  const grpc::Status done =
      Upload(hash, content.size(), 1 << 20, {content.substr(1 << 20, 1 << 20), content.substr(2 << 20)});
  EXPECT_TRUE(done.ok()) << done.error_message();

  int64_t total = 0;
  grpc::Status status;
  EXPECT_EQ(Download(hash, 0, &total, &status), content);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(total, static_cast<int64_t>(content.size()));
  EXPECT_EQ(Download(hash, content.size() - 1, &total, &status), "z");
  EXPECT_EQ(Download(hash, content.size(), &total, &status), "");
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(total, static_cast<int64_t>(content.size()));
  Download(Sha256Hex("absent"), 0, &total, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  Download("../x", 0, &total, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  EXPECT_EQ(Upload(Sha256Hex("right"), 5, 0, {"wrong"}).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Upload(Sha256Hex("big"), 3 << 20, 0, {std::string(2 << 20, 'x')}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("nonsense", 5, 0, {"wrong"}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServicesTest, ShutsDownWhileCallsWait) {
  v1::SyncRequest request;
  request.mutable_worker()->set_worker_id("waits");
  request.mutable_worker()->set_incarnation("i");
  request.mutable_worker()->set_slots(1);
  request.set_sequence(7);
  std::thread worker([&] {
    grpc::ClientContext context;
    v1::SyncResponse response;
    link_->Sync(&context, request, &response);  // answered or cut off: either will do
  });
  while (coordinator_.waiting == 0) std::this_thread::yield();
  coordinator_.Shutdown();
  server_->Shutdown();
  worker.join();
  EXPECT_FALSE(FileExists(socket_));
}

TEST_F(ServicesTest, HealthAndReflectionAnswer) {
  // Through the generic byte interface, since no stub of theirs is generated here: an empty HealthCheckRequest is
  // answered by field 1 = SERVING (1); a ServerReflectionRequest with list_services (field 7) = "" names our services.
  grpc::Slice none;
  grpc::ByteBuffer request(&none, 1), answer;
  grpc::GenericStub stub(channel_);
  const auto call = [&](const char* method) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto reader = stub.PrepareUnaryCall(&context, method, request, &queue);
    reader->StartCall();
    grpc::Status status;
    reader->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status;
  };
  const auto bytes = [&] {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(answer.Dump(&slices).ok());
    std::string all;
    for (const grpc::Slice& slice : slices) all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return all;
  };
  ASSERT_TRUE(call("/grpc.health.v1.Health/Check").ok());
  EXPECT_EQ(bytes(), std::string("\x08\x01"));
  grpc::Slice list("\x3a\x00", 2);
  request = grpc::ByteBuffer(&list, 1);
  ASSERT_TRUE(call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo").ok());
  for (const char* service : {"ablate.v1.Sweeps", "ablate.v1.Jobs", "ablate.v1.Results", "ablate.v1.Workers",
                              "ablate.v1.WorkerLink", "ablate.v1.Artifacts"}) {
    EXPECT_THAT(bytes(), HasSubstr(service));
  }
}

TEST_F(ServicesTest, ListenersAreExclusiveAndPrivate) {
  // A second server on the socket of a live one, or on its port.
  EXPECT_EQ(GrpcServer::Start("unix:" + socket_, &coordinator_, store_.get()).status().code(),
            absl::StatusCode::kUnavailable);
  auto tcp = GrpcServer::Start("127.0.0.1:0", &coordinator_, store_.get());
  ASSERT_TRUE(tcp.ok()) << tcp.status();
  EXPECT_EQ(GrpcServer::Start((*tcp)->address(), &coordinator_, store_.get()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_NE((*tcp)->address(), "127.0.0.1:0");

  struct stat info;
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 077, 0u);

  EXPECT_EQ(GrpcServer::Start("unix:/tmp/" + std::string(120, 'x'), &coordinator_, store_.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GrpcServer::Start("nonsense", &coordinator_, store_.get()).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto why = [&](const std::string& address) {
    const absl::Status status = GrpcServer::Start(address, &coordinator_, store_.get()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << address;
    return std::string(status.message());
  };
  EXPECT_THAT(why("192.0.2.1:1"), HasSubstr("192.0.2.1 is no address of this machine"));
  EXPECT_THAT(why((*tcp)->address()), HasSubstr("another program listens there"));
  EXPECT_THAT(why("no-such-host.invalid:1"), HasSubstr("host no-such-host.invalid is not known"));
  EXPECT_THAT(why("unix:" + dir_.path() + "/none/socket"), HasSubstr("its folder is not there"));
}

TEST_F(ServicesTest, AStaleSocketFileIsNoObstacle) {
  const std::string path = JoinPath(dir_.path(), "stale.sock");
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  std::remove(path.c_str());
  // A bound but closed socket leaves its file, as a killed server does.
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
  ASSERT_TRUE(FileExists(path));
  EXPECT_TRUE(GrpcServer::Start("unix:" + path, &coordinator_, store_.get()).ok());
}

TEST(Addresses, OnlyAddressesAreAddresses) {
  for (const char* address :
       {"127.0.0.1:7433", "localhost:0", "[::1]:7", "0.0.0.0:65535", "unix:/x", "example.org:1"}) {
    EXPECT_TRUE(CheckAddress(address).ok()) << address;
  }
  for (const char* address :
       {"", "nonsense", ":1", "host:", "host:x", "host:70000", "host:-1", "::1:7", "unix-abstract:x", "unix-abstract:1"}) {
    EXPECT_EQ(CheckAddress(address).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace ablate
