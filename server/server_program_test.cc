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
  EXPECT_THAT(refused({"--listen", "0.0.0.0:0"}), HasSubstr("--insecure"));
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

}  // namespace
}  // namespace ablate
