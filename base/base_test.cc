#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "absl/flags/flag.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/flag_words.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/subprocess.h"
#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(std::string, test_dir, "", "");
ABSL_FLAG(bool, test_insecure, false, "");
ABSL_FLAG(int, test_threads, 1, "");
ABSL_FLAG(double, test_seconds, 1, "");

namespace ablate {
namespace {

TEST(Strings, NearestNameFindsATypoAndRefusesAStranger) {
  const std::vector<std::string> names = {"attention.p", "attention.scale", "train.steps"};
  EXPECT_EQ(NearestName("atention.p", names), "attention.p");
  EXPECT_EQ(NearestName("zebra", names), "");
  EXPECT_EQ(DidYouMean("train.step", names), ", did you mean \"train.steps\"?");
}

TEST(Strings, ShortestDoubleReadsBackExactly) {
  for (double value : {0.1, 1e-4, 15.0, 100000.0, -2.5, 1e-9, 3.3e20, 1.0 / 3.0}) {
    EXPECT_EQ(std::stod(ShortestDouble(value)), value);
  }
  EXPECT_EQ(ShortestDouble(1e-4), "0.0001");
  EXPECT_EQ(ShortestDouble(100000), "100000");
  EXPECT_EQ(ShortestDouble(std::nan("")), "nan");
}

TEST(Hash, KnownDigests) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(IsSha256Hex(Sha256Hex("")));
  EXPECT_FALSE(IsSha256Hex("../etc/passwd"));
}

TEST(Files, WriteIsAtomicAndReadsBack) {
  TempDir dir;
  const std::string path = JoinPath(dir.path(), "a/b");
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(MakeDirs(Dirname(path)).ok());
  ASSERT_TRUE(WriteFileAtomic(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomic(path, "two").ok());
  EXPECT_EQ(*ReadFile(path), "two");
  EXPECT_EQ(ListDir(Dirname(path))->size(), 1u);
  EXPECT_EQ(*Sha256HexOfFile(path), Sha256Hex("two"));
}

TEST(Subprocess, TalksThroughPipesAndReportsItsEnd) {
  auto process = Subprocess::Start({.argv = {"/bin/cat"}});
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_EQ(::write(process->stdin_fd(), "hello", 5), 5);
  char buffer[5];
  ASSERT_EQ(::read(process->stdout_fd(), buffer, 5), 5);
  EXPECT_EQ(std::string(buffer, 5), "hello");
  EXPECT_FALSE(process->HasExited());
  process->CloseStdin();
  EXPECT_EQ(process->Wait().code, 0);
}

TEST(Subprocess, ReportsSignalsAndMissingPrograms) {
  auto process = Subprocess::Start({.argv = {"/bin/sleep", "60"}});
  ASSERT_TRUE(process.ok());
  process->Kill(SIGKILL);
  EXPECT_EQ(process->Wait().signal, SIGKILL);
  EXPECT_EQ(process->Wait().Describe(), "signal 9 (Killed)");
  EXPECT_EQ(Subprocess::Start({.argv = {"/no/such/program"}}).status().code(), absl::StatusCode::kNotFound);
}

TEST(FakeClock, WallStepsLeaveMonotonicTimeAlone) {
  FakeClock clock;
  const int64_t before = clock.MonotonicMicros();
  clock.StepWall(-3'600'000'000);
  EXPECT_EQ(clock.MonotonicMicros(), before);
  clock.Advance(5);
  EXPECT_EQ(clock.MonotonicMicros(), before + 5);
}

TEST(Ids, DoNotRepeat) { EXPECT_NE(IdGenerator::Random().NewId("x"), IdGenerator::Random().NewId("x")); }

TEST(FlagWordsTest, FlagsAreSetAndMistakesAreNamedAsTheyWereWritten) {
  const std::vector<std::string> known = {"--test-dir", "--test-insecure", "--test-threads", "--test-seconds"};
  const auto set = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "a-program");
    return SetFlags(known, {"--test-insecure"}, words);
  };
  const auto error = [&](std::vector<std::string> words) {
    return std::string(set(std::move(words)).status().message());
  };
  ASSERT_EQ(*set({"--test-dir", "--odd-name", "--test-threads=-2", "--test-insecure", "--test-seconds", "0.5"}),
            FlagWords::kRun);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_dir), "--odd-name");
  EXPECT_EQ(absl::GetFlag(FLAGS_test_threads), -2);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_insecure));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_seconds), 0.5);
  ASSERT_EQ(*set({"--test-insecure=false", "--test-dir=a-b=c"}), FlagWords::kRun);
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_insecure));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_dir), "a-b=c");

  EXPECT_THAT(error({"--test-dri=1"}), ::testing::HasSubstr("did you mean \"--test-dir\""));
  EXPECT_EQ(error({"--test-threads", "x"}), "--test-threads \"x\": expected a whole number");
  EXPECT_EQ(error({"--test-seconds=1s"}), "--test-seconds \"1s\": expected a number");
  EXPECT_EQ(error({"--test-insecure=maybe"}), "--test-insecure \"maybe\": expected true or false");
  EXPECT_EQ(error({"--test-dir"}), "--test-dir needs a value");
  EXPECT_EQ(error({"x-y"}), "unexpected argument \"x-y\"");
  EXPECT_EQ(*set({"--test-dir", "--version", "-h"}), FlagWords::kHelp) << "a value is no flag";
  EXPECT_EQ(*set({"--version"}), FlagWords::kVersion);
}

TEST(FilesTest, ErrorsSayWhoseFaultItIs) {
  TempDir dir;
  const std::string file = JoinPath(dir.path(), "file");
  ASSERT_TRUE(WriteFileAtomic(file, "x").ok());
  EXPECT_EQ(ReadFile(dir.path()).status().code(), absl::StatusCode::kFailedPrecondition);  // a folder
  EXPECT_EQ(ReadFile(JoinPath(file, "below")).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadFile(JoinPath(dir.path(), std::string(300, 'n'))).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(JoinPath(dir.path(), "none")).status().code(), absl::StatusCode::kNotFound);
  for (int error : {ENOSPC, EDQUOT, EROFS, EACCES, EIO, EMFILE}) {
    EXPECT_TRUE(IsNodeTrouble(FileError("cannot write", file, error))) << error;
    EXPECT_EQ(ErrnoOf(WithContext(FileError("cannot write", file, error), "somewhere")), error)
        << "context keeps the cause";
  }
  for (int error : {ENOENT, EISDIR, ENOTDIR, EINVAL})
    EXPECT_FALSE(IsNodeTrouble(FileError("cannot write", file, error))) << error;
  EXPECT_FALSE(IsNodeTrouble(absl::ResourceExhaustedError("no device memory left")));
}

TEST(Utf8, WellFormedOnly) {
  for (const char* text : {"", "plain", "\u00fc", "\u20ac", "\U0001f600", "\U0010ffff", "\xed\x9f\xbf"})
    EXPECT_TRUE(IsUtf8(text)) << text;
  // A lone byte, a cut sequence, overlong forms, a surrogate, beyond U+10FFFF.
  for (const char* text :
       {"\xff", "a\x80", "\xc3", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(Utf8, WhatIsNoneIsReplacedByteByByte) {
  EXPECT_EQ(ToUtf8("a\u20acb"), "a\u20acb");
  EXPECT_EQ(ToUtf8("\xac"
                   "b\xff\u00fc\xe2\x82"),
            "\ufffdb\ufffd\u00fc\ufffd\ufffd");
  EXPECT_EQ(ToUtf8(""), "");
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  EXPECT_TRUE(IsUtf8(ToUtf8(every + every)));
}

}  // namespace
}  // namespace ablate
