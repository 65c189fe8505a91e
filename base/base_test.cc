#include <signal.h>
#include <unistd.h>

#include <cmath>

#include "base/clock.h"
#include "base/files.h"
#include "base/flag_words.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

TEST(FlagWordsTest, NamesAreRewrittenAndValuesAreNot) {
  const std::vector<std::string> known = {"--data-dir", "--insecure", "--max-threads"};
  std::vector<std::string> words = {"a-program", "--data-dir", "--odd-name", "--max-threads=1-2", "--insecure", "--data-dir=a-b", "x-y"};
  ASSERT_EQ(*UnderscoreFlags(known, {"--insecure"}, &words), FlagWords::kRun);
  EXPECT_THAT(words, ::testing::ElementsAre("a-program", "--data_dir", "--odd-name", "--max_threads=1-2", "--insecure", "--data_dir=a-b", "x-y"));
  words = {"p", "--data-dri=1"};
  EXPECT_THAT(std::string(UnderscoreFlags(known, {}, &words).status().message()), ::testing::HasSubstr("did you mean \"--data-dir\""));
  words = {"p", "--data-dir", "--version", "-h"};
  EXPECT_EQ(*UnderscoreFlags(known, {}, &words), FlagWords::kHelp) << "a value is no flag";
  words = {"p", "--version"};
  EXPECT_EQ(*UnderscoreFlags(known, {}, &words), FlagWords::kVersion);
}

}  // namespace
}  // namespace ablate
