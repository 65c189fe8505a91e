// ablate-server from outside: its flags, and how it starts and ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/subprocess.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class ServerProgramTest : public ::testing::Test {
 protected:
  Subprocess Start(const std::vector<std::string>& flags) {
    SubprocessOptions options;
    options.argv = {ABLATE_SERVER, "--data-dir", JoinPath(dir_.path(), "data")};
    options.argv.insert(options.argv.end(), flags.begin(), flags.end());
    RemoveFile(log_).IgnoreError();
    options.stderr_path = log_;
    auto server = Subprocess::Start(options);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  std::string Log() { return ReadFile(log_).value_or(""); }

  TempDir dir_;
  const std::string log_ = JoinPath(dir_.path(), "log");
};

TEST_F(ServerProgramTest, WrongFlagsAreExplained) {
  const auto refused = [&](const std::vector<std::string>& flags) {
    EXPECT_EQ(Start(flags).Wait().code, 2) << flags[0];
    return Log();
  };
  EXPECT_THAT(refused({"--lease-seconds", "x"}), HasSubstr("--lease-seconds \"x\": expected a number"));
  EXPECT_THAT(refused({"--max-failures=1.5"}), HasSubstr("--max-failures \"1.5\": expected a whole number"));
  EXPECT_THAT(refused({"--lease-seconds", "nan"}), HasSubstr("--lease-seconds must be"));
  EXPECT_THAT(refused({"--idle-wait-seconds", "-1"}), HasSubstr("--idle-wait-seconds must be"));
  EXPECT_THAT(refused({"--lease-secnds", "1"}), HasSubstr("did you mean \"--lease-seconds\""));
  EXPECT_THAT(refused({"--listen", "nonsense"}), HasSubstr("is not HOST:PORT or unix:PATH"));
  for (const std::string http : {"foo", "127.0.0.1:99999", ":1", "::1:80", "unix:/x"})
    EXPECT_THAT(refused({"--tls", "--http", http}), HasSubstr("--http: \"" + http + "\" is not HOST:PORT"));
  EXPECT_THAT(refused({"--listen", "0.0.0.0:0", "--insecure"}), HasSubstr("docs/security.md"));
  EXPECT_THAT(refused({"--listen", "0.0.0.0:0", "--tls-cert", "x"}), HasSubstr("--tls-key"));
  EXPECT_THAT(refused({"--create-token", "rot"}), HasSubstr("--create-token \"rot\""));
  EXPECT_FALSE(FileExists(JoinPath(dir_.path(), "data"))) << "something was made before the flags were looked at";
}

TEST_F(ServerProgramTest, StopsAtOnceWheneverItIsAsked) {
  const std::string ready = JoinPath(dir_.path(), "ready");
  for (int round = 0; round < 30; ++round) {
    RemoveFile(ready).IgnoreError();
    Subprocess server = Start({"--listen", absl::StrCat("unix:", dir_.path(), "/socket"), "--ready-file", ready});
    while (!FileExists(ready) && !server.HasExited()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // At another moment each time: its threads are still busy with starting.
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * round));
    const int64_t asked_us = Clock::Real().MonotonicMicros();
    server.Kill(SIGTERM);
    ASSERT_EQ(server.Wait().code, 0) << Log();
    // The fault was a wait of nearly 10 s; this bound leaves room for a loaded machine.
    ASSERT_LT(Clock::Real().MonotonicMicros() - asked_us, 6'000'000) << "round " << round;
  }
}

TEST_F(ServerProgramTest, ChecksBacksUpRestoresAndReadsWhatIsDamaged) {
  const std::string ready = JoinPath(dir_.path(), "ready");
  const std::string data = JoinPath(dir_.path(), "data"), backup = JoinPath(dir_.path(), "backup");
  const std::string listen = absl::StrCat("unix:", dir_.path(), "/socket");
  const auto ends = [&](const std::string& folder, const std::vector<std::string>& flags) {
    SubprocessOptions options;
    options.argv = {ABLATE_SERVER, "--data-dir", folder};
    options.argv.insert(options.argv.end(), flags.begin(), flags.end());
    RemoveFile(log_).IgnoreError();
    options.stderr_path = log_;
    auto run = Subprocess::Start(options);
    EXPECT_TRUE(run.ok()) << run.status();
    return run->Wait().code;
  };
  const auto serve = [&](const std::string& folder, const std::vector<std::string>& flags, const auto& meanwhile) {
    RemoveFile(ready).IgnoreError();
    SubprocessOptions options;
    options.argv = {ABLATE_SERVER, "--data-dir", folder, "--listen", listen, "--ready-file", ready};
    options.argv.insert(options.argv.end(), flags.begin(), flags.end());
    options.stderr_path = JoinPath(dir_.path(), "serve.log");
    auto server = Subprocess::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    while (!FileExists(ready) && !server->HasExited()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_FALSE(server->HasExited()) << *ReadFile(options.stderr_path);
    meanwhile();
    server->Kill(SIGTERM);
    EXPECT_EQ(server->Wait().code, 0);
  };
  EXPECT_EQ(ends(data, {"--check"}), 1);
  EXPECT_THAT(Log(), HasSubstr("there is no database"));
  // A real one, of an earlier version, without the states that it names.
  ASSERT_TRUE(MakeDirs(data).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(data, "ablate.db"), *ReadFile(ABLATE_DATA_DIR "/schema2/ablate.db")).ok());
  serve(data, {}, [&] {
    EXPECT_EQ(ends(data, {"--check", "--deep"}), 1) << Log();  // states are missing
    EXPECT_EQ(ends(data, {"--backup", backup}), 0) << Log();
    EXPECT_EQ(ends(data, {"--backup", backup}), 5);
    EXPECT_EQ(ends(data, {"--read-only"}), 5);
    EXPECT_THAT(Log(), HasSubstr("in use by another coordinator"));
  });
  EXPECT_EQ(ends(data, {"--check", "--backup", backup}), 2);
  EXPECT_EQ(ends(data, {"--export", "sweep"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--export needs two values"));
  EXPECT_EQ(ends(data, {"--export", "sweep", "--curves"}), 2);
  EXPECT_EQ(ends(data, {"--curves", "--check"}), 2);
  EXPECT_EQ(ends(data, {"--export", "sweep", backup, "--check"}), 2);
  EXPECT_EQ(ends(data, {"--export", "sweep", JoinPath(dir_.path(), "never")}), 1);
  EXPECT_THAT(Log(), HasSubstr("there is no sweep \"sweep\""));
  EXPECT_EQ(ends(data, {"--export", "sweep", backup, "--curves"}), 5);  // it is there
  EXPECT_EQ(ends(data, {"--deep"}), 2);
  EXPECT_EQ(ends(data, {"--restore", backup}), 5);
  EXPECT_THAT(Log(), HasSubstr("is not empty"));
  const std::string restored = JoinPath(dir_.path(), "restored");
  EXPECT_EQ(ends(restored, {"--restore", backup}), 0) << Log();
  serve(restored, {}, [] {});
  const std::string empty = JoinPath(dir_.path(), "empty");
  serve(empty, {}, [&] { EXPECT_EQ(ends(empty, {"--check", "--deep"}), 0) << Log(); });

  const std::string database = JoinPath(restored, "ablate.db");
  std::string bytes = *ReadFile(database);
  for (size_t i = bytes.size() - 5 * 4096; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
  ASSERT_TRUE(WriteFileAtomic(database, bytes).ok());
  EXPECT_EQ(ends(restored, {"--listen", listen}), 5);
  EXPECT_THAT(Log(), HasSubstr("is damaged"));
  EXPECT_THAT(Log(), HasSubstr("--read-only"));
  EXPECT_EQ(ends(restored, {"--check"}), 1);
  EXPECT_EQ(ends(restored, {"--backup", JoinPath(dir_.path(), "never")}), 1);
  EXPECT_FALSE(FileExists(JoinPath(dir_.path(), "never")));
  serve(restored, {"--read-only"}, [] {});
  EXPECT_EQ(*ReadFile(database), bytes);
  // What the backup lists must be there.
  const std::string fresh = JoinPath(dir_.path(), "fresh");
  const std::string manifest = *ReadFile(JoinPath(backup, "backup.sha256"));
  const std::string gone(64, 'a');
  ASSERT_TRUE(WriteFileAtomic(JoinPath(backup, "backup.sha256"),
                              absl::StrCat(manifest, gone, "  artifacts/aa/", gone.substr(2), "\n")).ok());
  EXPECT_EQ(ends(fresh, {"--restore", backup}), 1);
  EXPECT_THAT(Log(), HasSubstr("has lost 1 artifacts since it was made"));
  ASSERT_TRUE(WriteFileAtomic(JoinPath(backup, "backup.sha256"), manifest).ok());
  // A backup that lost a byte is not restored.
  std::string copy = *ReadFile(JoinPath(backup, "ablate.db"));
  copy[copy.size() / 2] = static_cast<char>(copy[copy.size() / 2] ^ 1);
  ASSERT_TRUE(WriteFileAtomic(JoinPath(backup, "ablate.db"), copy).ok());
  EXPECT_EQ(ends(fresh, {"--restore", backup}), 1);
  EXPECT_THAT(Log(), HasSubstr("is not what was backed up"));
  EXPECT_FALSE(FileExists(fresh));
}

}  // namespace
}  // namespace ablate
