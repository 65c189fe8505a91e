// Batches read ahead are those that were asked for, in order, whoever is faster; errors come with their batch.
#include "worker/trainer/batch_reader.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

constexpr int kT = 4;

absl::Status FillWith(uint64_t sample, int32_t* tokens, int32_t* targets) {
  for (int t = 0; t < kT; ++t) {
    tokens[t] = static_cast<int32_t>(sample) * 100 + t;
    targets[t] = tokens[t] + 1;
  }
  return absl::OkStatus();
}

TEST(BatchReaderTest, GivesEverySampleOnceInOrder) {
  for (const int rows : {1, 3}) {
    BatchReader reader(FillWith, rows, kT, 6, 6 + 30 * rows);
    for (int batch = 0; batch < 30; ++batch) {
      const auto got = reader.Next();
      ASSERT_TRUE(got.ok()) << got.status();
      for (int i = 0; i < rows * kT; ++i) {
        const int32_t want = (6 + batch * rows + i / kT) * 100 + i % kT;
        ASSERT_EQ((*got)->tokens[i], want);
        ASSERT_EQ((*got)->targets[i], want + 1);
      }
    }
    EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(BatchReaderTest, AnErrorComesWhenItsBatchIsAskedFor) {
  BatchReader reader(
      [](uint64_t sample, int32_t* tokens, int32_t* targets) {
        return sample == 5 ? absl::DataLossError("sample 5") : FillWith(sample, tokens, targets);
      },
      2, kT, 0, 100);
  EXPECT_TRUE(reader.Next().ok());
  EXPECT_TRUE(reader.Next().ok());
  EXPECT_EQ(reader.Next().status().message(), "sample 5");
  EXPECT_EQ(reader.Next().status().message(), "sample 5");
}

// Whether the next batch is read while this one is held: Next has returned, and the reader asks for more by itself.
TEST(BatchReaderTest, ReadsOneAheadAndNoMore) {
  Mutex mutex;
  CondVar changed;
  int64_t filled = 0;
  BatchReader reader(
      [&](uint64_t sample, int32_t* tokens, int32_t* targets) {
        MutexLock lock(&mutex);
        ++filled;
        changed.NotifyAll();
        return FillWith(sample, tokens, targets);
      },
      1, kT, 0, 100);
  const auto first = reader.Next();
  ASSERT_TRUE(first.ok());
  {
    MutexLock lock(&mutex);
    while (filled < 2) changed.Wait(&mutex);
  }
  EXPECT_EQ((*first)->tokens[0], 0) << "the batch at hand must not change";
  ASSERT_TRUE(reader.Next().ok());
  MutexLock lock(&mutex);
  while (filled < 3) changed.Wait(&mutex);
  EXPECT_EQ(filled, 3);
}

TEST(BatchReaderTest, CanEndAtAnyTime) {
  for (int taken = 0; taken < 4; ++taken) {
    BatchReader reader(FillWith, 2, kT, 0, 1000);
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(reader.Next().ok());
  }
}

}  // namespace
}  // namespace ablate
