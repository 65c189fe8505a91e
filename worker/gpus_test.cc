// GPUs as the trainer lists them, and the slots that share them.
#include "worker/gpus.h"

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Gpu Make(int index, double compute = 9.0, const std::string& name = "GPU X", int64_t gib = 80) {
  return {index, gib << 30, (gib - 1) << 30, compute, "13.0", name};
}
std::string Refusal(const std::vector<Gpu>& all, const std::vector<std::string>& wanted, int per_gpu = 1) {
  const auto slots = AssignGpus(all, wanted, per_gpu);
  EXPECT_FALSE(slots.ok());
  return std::string(slots.status().message());
}

TEST(GpusTest, LinesAreReadAndNonsenseIsRefused) {
  const auto gpus = ParseGpus("0\t85899345920\t84825604096\t9.0\t13.0\tNVIDIA H200\n3\t1\t0\t7.5\t12.2\tOld\tone\n");
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ((*gpus)[0].Describe(),
            "GPU 0: NVIDIA H200, 80.0 GiB of memory (79.0 GiB free), compute capability 9.0, driver for CUDA 13.0");
  EXPECT_EQ((*gpus)[1].index, 3);
  EXPECT_EQ((*gpus)[1].name, "Old\tone");
  EXPECT_TRUE(ParseGpus("")->empty());
  for (const char* line : {"nonsense", "0\t1\t2\t9.0\t13.0", "x\t1\t2\t9.0\t13.0\tname", "0\t1\t2\tnine\t13.0\tname"}) {
    EXPECT_EQ(ParseGpus(line).status().code(), absl::StatusCode::kInternal) << line;
  }
}

TEST(GpusTest, SlotsGoRoundTheGpusAndShareTheirMemory) {
  const auto slots = AssignGpus({Make(0), Make(1), Make(2)}, {"2", "0"}, 2);
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_EQ(slots->slots(), 4);
  EXPECT_EQ(slots->share_bytes, (int64_t{40} << 30) - (int64_t{512} << 20));
  const std::string share = absl::StrCat(slots->share_bytes);
  EXPECT_THAT(slots->TrainerFlags(0), ElementsAre("--device", "cuda:2", "--memory-limit", share));
  EXPECT_THAT(slots->TrainerFlags(1), ElementsAre("--device", "cuda:0", "--memory-limit", share));
  EXPECT_THAT(slots->TrainerFlags(2), ElementsAre("--device", "cuda:2", "--memory-limit", share));
  EXPECT_THAT(slots->TrainerFlags(3), ElementsAre("--device", "cuda:0", "--memory-limit", share));
}

TEST(GpusTest, AllThatAreNewEnoughAreUsedWhole) {
  const auto slots = AssignGpus({Make(0, 7.5, "Old"), Make(1), Make(2, 9.0, "GPU X", 40)}, {}, 1);
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_EQ(slots->slots(), 2);
  EXPECT_EQ(slots->share_bytes, (int64_t{40} << 30) - (int64_t{512} << 20));
  EXPECT_THAT(slots->TrainerFlags(0), ElementsAre("--device", "cuda:1"));
  EXPECT_THAT(slots->TrainerFlags(1), ElementsAre("--device", "cuda:2"));
}

TEST(GpusTest, WhatCannotBeIsRefusedWithAReason) {
  EXPECT_THAT(Refusal({}, {}), HasSubstr("shows no GPU"));
  EXPECT_THAT(Refusal({Make(0, 7.5)}, {}), HasSubstr("no GPU here is new enough"));
  EXPECT_THAT(Refusal({Make(0, 7.5)}, {"0"}), HasSubstr("is too old"));
  EXPECT_THAT(Refusal({Make(0)}, {"1"}), HasSubstr("there is no GPU 1 here"));
  EXPECT_THAT(Refusal({Make(0)}, {"x"}), HasSubstr("expected numbers of GPUs"));
  EXPECT_THAT(Refusal({Make(0)}, {"0", "0"}), HasSubstr("names GPU 0 twice"));
  EXPECT_THAT(Refusal({Make(0), Make(1, 8.0, "GPU Y")}, {}), HasSubstr("GPUs of two kinds (GPU X, GPU Y)"));
  EXPECT_THAT(Refusal({Make(0)}, {}, 100), HasSubstr("--slots-per-gpu 100"));
}

TEST(GpusTest, TheTrainerIsAskedAndItsRefusalIsPassedOn) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "trainer");
  ASSERT_TRUE(WriteFileAtomic(path, "#!/bin/sh\necho \"ablate-trainer: no driver\" >&2\nexit 2\n").ok());
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  auto gpus = ListGpus(path);
  EXPECT_EQ(gpus.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(gpus.status().message()), "no driver");
  ASSERT_TRUE(WriteFileAtomic(path, "#!/bin/sh\nprintf '0\\t2\\t1\\t9.0\\t13.0\\tX\\n'\n").ok());
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  gpus = ListGpus(path);
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_EQ(gpus->size(), 1u);
  EXPECT_EQ(ListGpus("/nonexistent/trainer").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ablate
