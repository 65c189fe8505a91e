// Parsing, exit codes, progress, sweep input, and the client against a small server of the test's own.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <set>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/failures.h"
#include "cli/local_server.h"
#include "cli/progress.h"
#include "cli/stop_signals.h"
#include "cli/sweep_input.h"
#include "cli/watcher.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using testing::HasSubstr;

std::string Error(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Invocation> parsed = ParseCommandLine(arguments, Commands());
  EXPECT_FALSE(parsed.ok());
  EXPECT_EQ(ExitCodeFor(parsed.status()), kExitUsage);
  return std::string(parsed.status().message());
}

Invocation Parsed(const std::vector<std::string>& arguments) {
  absl::StatusOr<Invocation> parsed = ParseCommandLine(arguments, Commands());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *std::move(parsed) : Invocation();
}

TEST(CommandLine, TakesWordsAndFlagsInAnyOrder) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"sweep", "wait", "s", "--timeout", "2m", "-o", "json"},
                                             {"-o=json", "sweep", "--timeout=2m", "wait", "s"}}) {
    const Invocation invocation = Parsed(arguments);
    EXPECT_EQ(invocation.command->name, "sweep wait");
    EXPECT_EQ(invocation.arguments, std::vector<std::string>{"s"});
    EXPECT_EQ(invocation.output(), OutputFormat::kJson);
    EXPECT_EQ(invocation.timeout(), 120.0);
  }
  EXPECT_EQ(Parsed({"query", "--", "--a comment\nSELECT 1"}).arguments[0], "--a comment\nSELECT 1");
  EXPECT_EQ(Parsed({"query", "-"}).arguments[0], "-");
  EXPECT_EQ(Parsed({"--version"}).command->name, "version");
  EXPECT_TRUE(Parsed({"run", "f", "--retry"}).Has("--retry"));
  EXPECT_FALSE(Parsed({"run", "f"}).timeout().has_value());
}

TEST(CommandLine, SaysWhatIsWrongAndTheNearestName) {
  EXPECT_THAT(Error({"sweep", "sbmit"}), HasSubstr("did you mean \"submit\"?"));
  EXPECT_THAT(Error({"tabel", "x"}), HasSubstr("did you mean \"table\"?"));
  EXPECT_THAT(Error({"sweep"}), HasSubstr("submit, plan, list"));
  EXPECT_THAT(Error({"table", "x", "--levle", "0.9"}), HasSubstr("did you mean \"--level\"?"));
  EXPECT_THAT(Error({"table", "x", "--slots", "2"}), HasSubstr("has no flag --slots"));
  EXPECT_THAT(Error({"table"}), HasSubstr("usage: ablate table SWEEP"));
  EXPECT_THAT(Error({"table", "a", "b"}), HasSubstr("unexpected argument \"b\""));
  EXPECT_THAT(Error({"table", "a", "-o", "jsn"}), HasSubstr("did you mean \"json\"?"));
  EXPECT_THAT(Error({"table", "a", "-o"}), HasSubstr("--output needs a value"));
  EXPECT_THAT(Error({"table", "a", "-o", "json", "--output", "csv"}), HasSubstr("given twice"));
  EXPECT_THAT(Error({"table", "a", "--server", "x", "--data-dir", "y"}), HasSubstr("exclude each other"));
  EXPECT_THAT(Error({"run", "f", "--retry=yes"}), HasSubstr("takes no value"));
  for (const char* time : {"0", "-1", "soon", "nan", "inf", "1x", ""})
    EXPECT_THAT(Error({"sweep", "wait", "s", "--timeout", time}), HasSubstr("--timeout"));
}

TEST(CommandLine, TakesOnlyTextThatTheCoordinatorCanTake) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"run", "\xff.yaml"},
                                             {"query", "select '\xff'"},
                                             {"sweep", "show", "\xff"},
                                             {"table", "s", "--metric", "\xc3"},
                                             {"\xff"}}) {
    EXPECT_THAT(Error(arguments), HasSubstr("is not UTF-8"));
  }
  EXPECT_THAT(Error({"run", "\xff.yaml"}), HasSubstr("\\xff.yaml"));
  EXPECT_THAT(Error({"run", "f", "--data-dir", ""}), HasSubstr("--data-dir is empty"));
  EXPECT_THAT(Error({"run", ""}), HasSubstr("an argument is empty"));
  EXPECT_TRUE(Parsed({"worker", "drain", "w", "--data-dir", "d"}).Has("--data-dir"));
}

TEST(CommandLine, EveryCommandHelpsWithAnExample) {
  EXPECT_TRUE(Parsed({}).help);
  EXPECT_TRUE(Parsed({"--help"}).help);
  EXPECT_EQ(Parsed({"sweep", "submit", "-h"}).command->name, "sweep submit");
  EXPECT_EQ(Parsed({"help", "table"}).command->name, "table");
  const std::string general = GeneralHelp(Commands());
  std::set<std::string_view> names, flags;
  for (const FlagSpec& flag : Flags()) EXPECT_TRUE(flags.insert(flag.name).second) << flag.name;
  for (const Command& command : Commands()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    EXPECT_THAT(general, HasSubstr(std::string(command.name)));
    const std::string help = CommandHelp(command);
    EXPECT_THAT(help, HasSubstr("example: ablate " + std::string(command.name)));
    for (const std::string_view flag : command.flags) {
      EXPECT_EQ(flags.count(flag), 1u) << flag;
      EXPECT_THAT(help, HasSubstr(std::string(flag)));
    }
    EXPECT_NE(command.run, nullptr);
  }
  for (const char* name :
       {"run",          "sweep submit", "sweep plan", "sweep list", "sweep show", "sweep watch", "sweep wait",
        "sweep cancel", "sweep retry",  "job list",   "job show",   "job logs",   "job explain", "job cancel",
        "worker list",  "worker drain", "table",      "compare",    "query",      "variants",    "version"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST(CommandLine, IntegersAreChecked) {
  EXPECT_EQ(*Parsed({"run", "f", "--slots", "3"}).GetInteger("--slots", 1, 1, 8), 3);
  EXPECT_EQ(*Parsed({"run", "f"}).GetInteger("--slots", 5, 1, 8), 5);
  for (const char* value : {"0", "9", "x", "2.5"}) {
    EXPECT_EQ(ExitCodeFor(Parsed({"run", "f", "--slots", value}).GetInteger("--slots", 1, 1, 8).status()), kExitUsage)
        << value;
  }
}

TEST(ExitCodes, FollowTheCause) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeFor(UsageError("x")), 2);
  EXPECT_EQ(ExitCodeFor(absl::DeadlineExceededError("x")), 3);
  EXPECT_EQ(ExitCodeFor(UnreachableError("x")), 4);
  for (const absl::Status& status :
       {absl::NotFoundError("x"), absl::InvalidArgumentError("x"), absl::AlreadyExistsError("x"),
        absl::FailedPreconditionError("x"), absl::PermissionDeniedError("x"), absl::InternalError("x"),
        absl::UnavailableError("a folder")}) {
    EXPECT_EQ(ExitCodeFor(status), 5) << status;
  }
  v1::Sweep sweep;
  sweep.set_state(v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(ExitCodeOfSweep(sweep), 0);
  sweep.set_state(v1::SWEEP_FAILED);
  EXPECT_EQ(ExitCodeOfSweep(sweep), 1);
}

v1::Sweep SomeSweep(int64_t succeeded, int64_t steps) {
  v1::Sweep sweep;
  sweep.set_name("quick");
  sweep.set_state(v1::SWEEP_RUNNING);
  sweep.mutable_jobs()->set_succeeded(succeeded);
  sweep.mutable_jobs()->set_running(2);
  sweep.mutable_jobs()->set_blocked(100 - 2 - succeeded);
  sweep.set_steps_done(steps);
  sweep.set_steps_total(1000);
  sweep.set_tokens_per_second(15200);
  sweep.set_diverged(1);
  return sweep;
}

TEST(Progress, LineSaysWhatAPersonWantsToKnow) {
  EXPECT_EQ(
      ProgressLine(SomeSweep(50, 500), 130, 130),
      "quick [###############...............] 50/100 jobs, 1 diverged | step 500/1000 | 15.2k tokens/s | 2m10s left");
  EXPECT_EQ(ProgressLine(SomeSweep(50, 500), std::nullopt, 29), "quick 50/100 jobs, 1 diverged");
  // What failed or was cancelled is not done, but no work is left of it either.
  v1::Sweep failing = SomeSweep(50, 500);
  failing.set_diverged(0);
  failing.mutable_jobs()->set_blocked(28);
  failing.mutable_jobs()->set_failed(15);
  failing.mutable_jobs()->set_cancelled(5);
  EXPECT_EQ(ProgressLine(failing, std::nullopt, 110),
            "quick [##################............] 50/100 jobs, 15 failed, 5 cancelled | step 500/1000 | 15.2k tokens/s");
  v1::Sweep empty;
  EXPECT_EQ(ProgressLine(empty, std::nullopt, 20), " 0/0 jobs");
}

TEST(Progress, TimeLeftComesFromWhatThisWatchSaw) {
  TimeLeft left;
  EXPECT_FALSE(left.Update(SomeSweep(20, 200), 1000).has_value());
  EXPECT_FALSE(left.Update(SomeSweep(40, 400), 1001).has_value());  // too early to say
  EXPECT_NEAR(*left.Update(SomeSweep(40, 400), 1010), 30, 1e-9);    // a fifth in 10 s, three fifths to go
}

TEST(Progress, OffATerminalItIsQuiet) {
  TempDir dir;
  const std::string path = JoinPath(dir.path(), "out");
  std::FILE* file = std::fopen(path.c_str(), "w");
  {
    Progress progress(file, 1e9);
    EXPECT_FALSE(progress.terminal());
    for (int i = 0; i < 100; ++i) progress.Show("line " + std::to_string(i));
    progress.Clear();
  }
  std::fclose(file);
  EXPECT_EQ(*ReadFile(path), "line 0\n");
}

constexpr char kSweep[] = R"(name: tiny
data: {name: words, format: text, path: ../words.txt}
settings: {train.length: 32, train.steps: 10}
axes: {attention.variant: [softmax, lssar]}
seeds: 2
evaluate: {lengths: [1x]}
)";

TEST(SweepInputs, FindAndHashTheDataBesideTheFile) {
  TempDir dir;
  const std::string file = JoinPath(dir.path(), "sweeps/tiny.yaml"), data = JoinPath(dir.path(), "words.txt");
  ASSERT_TRUE(MakeDirs(Dirname(file)).ok());
  ASSERT_TRUE(WriteFileAtomic(file, kSweep).ok());

  absl::StatusOr<SweepInput> input = ReadSweepInput(file, "", nullptr);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_FALSE(input->data_found);
  EXPECT_EQ(input->missing, data);

  ASSERT_TRUE(WriteFileAtomic(data, "some words").ok());
  input = ReadSweepInput(file, "", nullptr);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_TRUE(input->data_found);
  EXPECT_EQ(input->yaml, kSweep);
  EXPECT_EQ(input->data.files(0).path(), "../words.txt");
  EXPECT_EQ(input->data.files(0).bytes(), 10);
  EXPECT_EQ(input->data.sha256(), Sha256Hex("some words"));
  EXPECT_EQ(input->data_paths, std::vector<std::string>{data});

  const std::string other = JoinPath(dir.path(), "other.txt");
  ASSERT_TRUE(WriteFileAtomic(other, "other words").ok());
  input = ReadSweepInput(file, other, nullptr);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->data.sha256(), Sha256Hex("other words"));

  EXPECT_EQ(ReadSweepInput(JoinPath(dir.path(), "no.yaml"), "", nullptr).status().code(), absl::StatusCode::kNotFound);
}

v1::Job Failed(const std::string& id, v1::FailureKind kind, const std::string& message) {
  v1::Job job;
  job.set_job_id(id);
  job.mutable_last_failure()->set_kind(kind);
  job.mutable_last_failure()->set_message(message);
  return job;
}

TEST(Failures, AreGroupedByCause) {
  std::vector<v1::Job> jobs = {Failed("a", v1::OUT_OF_MEMORY, "8 GiB"), Failed("b", v1::INVALID_CONFIG, "too\nshort"),
                               Failed("c", v1::UPSTREAM_FAILED, "a failed"),
                               Failed("d", v1::INVALID_CONFIG, "too\nshort")};
  EXPECT_THAT(FailureLines(jobs),
              testing::ElementsAre("2 x invalid_config: too short (b)", "1 x out_of_memory: 8 GiB (a)",
                                   "1 because the job that they build on failed"));
  for (int i = 0; i < 10; ++i) jobs.push_back(Failed("e", v1::CODE_ERROR, std::to_string(i)));
  EXPECT_THAT(FailureLines(jobs), testing::Contains("and 7 other causes"));
  EXPECT_EQ(FailureLine(v1::Failure(), 80), "");
}

TEST(StopSignals, AFurtherOneEndsTheWaitForAChildAtOnce) {
  SubprocessOptions options;
  options.argv = {"/bin/sleep", "3600"};
  options.pipe_stdin = false;
  absl::StatusOr<Subprocess> child = Subprocess::Start(options);
  ASSERT_TRUE(child.ok()) << child.status();
  child->Kill(SIGSTOP);  // it never sees the SIGTERM
  ::waitpid(child->pid(), nullptr, WUNTRACED);
  CatchStopSignals("");
  const DeferStop defer;
  std::atomic<bool> done = false;
  std::thread impatient([&] {
    while (!done) {
      ::kill(::getpid(), SIGINT);
      ::usleep(10'000);
    }
  });
  EXPECT_FALSE(StopProcess(&*child, 3600));
  done = true;
  impatient.join();
  EXPECT_GT(StopCount(), 0);
}

TEST(StopSignals, EndTheProcessElsewhere) {
  EXPECT_EXIT(
      {
        CatchStopSignals("stopped\n");
        ::raise(SIGINT);
      },
      testing::ExitedWithCode(kExitInterrupted), "stopped");
}

TEST(LocalServers, LongSocketPathsMoveToTmp) {
  std::string private_dir;
  EXPECT_EQ(*SocketAddress("/short", &private_dir), "unix:/short/run.sock");
  EXPECT_EQ(private_dir, "");
  const absl::StatusOr<std::string> address = SocketAddress("/" + std::string(200, 'x'), &private_dir);
  ASSERT_TRUE(address.ok());
  EXPECT_THAT(*address, testing::StartsWith("unix:/tmp/ablate-"));
  EXPECT_LE(address->size(), 5u + 107u);
  EXPECT_TRUE(RemoveTree(private_dir).ok());

  TempDir dir;
  EXPECT_FALSE(RunningServer(dir.path()).has_value());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir.path(), "server.address"), "unix:" + dir.path() + "/gone.sock\n").ok());
  EXPECT_FALSE(RunningServer(dir.path()).has_value());  // left by a killed server
}

TEST(Clients, NobodyThereIsExitCodeFourAndSaysWhatToStart) {
  TempDir dir;
  Client client("unix:" + dir.path() + "/none.sock");
  const absl::Status status = client.Call(&v1::Sweeps::Stub::ListSweeps, v1::ListSweepsRequest()).status();
  EXPECT_EQ(ExitCodeFor(status), kExitUnreachable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ablate-server"));
  EXPECT_EQ(ExitCodeFor(FollowSweep(&client, "s", std::nullopt, nullptr).status()), kExitUnreachable);
  EXPECT_FALSE(client.Answers(5));
}

// Answers what the client's harder paths need.
class FakeSweeps : public v1::Sweeps::Service {
 public:
  std::atomic<int> failures_left = 0, watches = 0;
  grpc::Status GetSweep(grpc::ServerContext*, const v1::GetSweepRequest*, v1::Sweep* sweep) override {
    if (failures_left-- > 0) return {grpc::StatusCode::UNAVAILABLE, "the disk is full"};
    sweep->set_name("s");
    return grpc::Status::OK;
  }
  grpc::Status ListSweeps(grpc::ServerContext*, const v1::ListSweepsRequest*, v1::ListSweepsResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status WatchSweep(grpc::ServerContext* context, const v1::WatchSweepRequest* request,
                          grpc::ServerWriter<v1::Sweep>* writer) override {
    v1::Sweep sweep;
    sweep.set_name(request->sweep());
    sweep.set_state(v1::SWEEP_RUNNING);
    writer->Write(sweep);
    if (request->sweep() == "breaks" && ++watches < 3) return {grpc::StatusCode::UNAVAILABLE, "stopping"};
    if (request->sweep() == "endless") {
      while (!context->IsCancelled()) ::usleep(1000);
      return grpc::Status::CANCELLED;
    }
    sweep.set_state(v1::SWEEP_FAILED);
    writer->Write(sweep);
    return grpc::Status::OK;
  }
};

class FakeArtifacts : public v1::Artifacts::Service {
 public:
  std::string content;
  bool complete = false;
  int breaks_left = 1;
  std::vector<int64_t> offsets;
  grpc::Status StatArtifact(grpc::ServerContext*, const v1::StatArtifactRequest*,
                            v1::StatArtifactResponse* response) override {
    response->set_complete(complete);
    response->set_bytes(content.size());
    return grpc::Status::OK;
  }
  grpc::Status UploadArtifact(grpc::ServerContext*, grpc::ServerReader<v1::UploadArtifactRequest>* reader,
                              v1::UploadArtifactResponse*) override {
    v1::UploadArtifactRequest part;
    reader->Read(&part);
    offsets.push_back(part.header().offset());
    const int64_t total = part.header().bytes();
    const std::string hash = part.header().sha256();
    while (reader->Read(&part)) {
      content += part.chunk();
      if (breaks_left > 0) {
        --breaks_left;
        return {grpc::StatusCode::UNAVAILABLE, "the line broke"};
      }
    }
    complete = Sha256Hex(content) == hash && static_cast<int64_t>(content.size()) == total;
    if (complete) return grpc::Status::OK;
    content.clear();
    return {grpc::StatusCode::DATA_LOSS, "another hash"};
  }
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&sweeps_);
    builder.RegisterService(&artifacts_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(WriteFileAtomic(path_, content_).ok());
  }
  TempDir dir_;
  const std::string address_ = "unix:" + JoinPath(dir_.path(), "s.sock");
  const std::string path_ = JoinPath(dir_.path(), "file");
  const std::string content_ = std::string(3'000'000, 'x') + "y";
  FakeSweeps sweeps_;
  FakeArtifacts artifacts_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ClientTest, TriesAgainWhereACoordinatorHadAnswered) {
  Client client(address_);
  ASSERT_TRUE(client.Answers(5));
  v1::GetSweepRequest request;
  sweeps_.failures_left = 2;
  EXPECT_TRUE(client.Call(&v1::Sweeps::Stub::GetSweep, request).ok());
  sweeps_.failures_left = 1000;
  const absl::Status status = client.Call(&v1::Sweeps::Stub::GetSweep, request).status();
  EXPECT_EQ(ExitCodeFor(status), kExitUnreachable);
  EXPECT_EQ(status.message(), "the disk is full");
}

TEST_F(ClientTest, WatchesAcrossBreaksToTheEnd) {
  Client client(address_);
  const absl::StatusOr<v1::Sweep> sweep = FollowSweep(&client, "breaks", std::nullopt, nullptr);
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_EQ(sweep->state(), v1::SWEEP_FAILED);
  EXPECT_EQ(sweeps_.watches, 3);
}

TEST_F(ClientTest, AWaitEndsByTimeOutOrByItsTick) {
  Client client(address_);
  EXPECT_EQ(ExitCodeFor(FollowSweep(&client, "endless", 0.01, nullptr).status()), kExitTimeout);
  int ticks = 0;
  const absl::StatusOr<v1::Sweep> stopped =
      FollowSweep(&client, "endless", std::nullopt, nullptr,
                  [&](const v1::Sweep&) { return ++ticks < 3 ? absl::OkStatus() : absl::CancelledError("enough"); });
  EXPECT_EQ(stopped.status().message(), "enough");
}

TEST_F(ClientTest, UploadsResumeWhereTheLineBroke) {
  Client client(address_);
  ASSERT_TRUE(client.Answers(5));
  int64_t last = 0;
  const absl::Status status =
      client.Upload(path_, Sha256Hex(content_), content_.size(), [&](int64_t done) { last = done; });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(last, static_cast<int64_t>(content_.size()));
  EXPECT_EQ(artifacts_.content, content_);
  EXPECT_EQ(artifacts_.offsets, (std::vector<int64_t>{0, 1 << 20}));
  // Once it is there, nothing is sent.
  ASSERT_TRUE(client.Upload(path_, Sha256Hex(content_), content_.size(), [](int64_t) { FAIL(); }).ok());
  EXPECT_EQ(artifacts_.offsets.size(), 2u);
}

TEST_F(ClientTest, ADamagedPartIsSentAnewOnce) {
  Client client(address_);
  artifacts_.breaks_left = 0;
  artifacts_.content = std::string(1'000'000, 'z');
  ASSERT_TRUE(client.Upload(path_, Sha256Hex(content_), content_.size(), [](int64_t) {}).ok());
  EXPECT_EQ(artifacts_.offsets, (std::vector<int64_t>{1'000'000, 0}));
  artifacts_.complete = false;
  artifacts_.content.clear();
  EXPECT_EQ(client.Upload(path_, Sha256Hex("another file"), content_.size(), [](int64_t) {}).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ablate
