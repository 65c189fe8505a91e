#include "worker/artifact_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "worker/grpc_client.h"
#include "worker/testing/fake_coordinator.h"
#include "worker/testing/memory_artifacts.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Content(size_t bytes, char seed = 'a') {
  std::string content(bytes, seed);
  for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(content[i] + i * 7 % 61);
  return content;
}

v1::ArtifactRef RefOf(const std::string& content) {
  v1::ArtifactRef ref;
  ref.set_sha256(Sha256Hex(content));
  ref.set_bytes(static_cast<int64_t>(content.size()));
  return ref;
}

v1::DataFile FileOf(const std::string& path, const std::string& content) {
  v1::DataFile file;
  file.set_path(path);
  file.set_sha256(Sha256Hex(content));
  file.set_bytes(static_cast<int64_t>(content.size()));
  return file;
}

// Everything runs twice: straight on the store, and through gRPC.
class ArtifactCacheTest : public ::testing::TestWithParam<bool> {
 protected:
  ArtifactCacheTest() {
    if (GetParam()) {
      coordinator_ = std::make_unique<FakeCoordinator>("unix:" + dir_.path() + "/socket");
      client_ = std::make_unique<GrpcClient>(ClientAccess{.address = coordinator_->address()});
    }
  }

  MemoryArtifacts& store() { return coordinator_ ? coordinator_->artifacts() : memory_; }
  std::unique_ptr<ArtifactCache> Open(int64_t max_bytes = 1 << 30, const std::string& data_root = "") {
    ArtifactCacheOptions options;
    options.dir = dir_.path() + "/artifacts";
    options.max_bytes = max_bytes;
    options.data_root = data_root;
    options.transport = coordinator_ ? static_cast<ArtifactTransport*>(client_.get()) : &memory_;
    options.first_backoff_ms = 1;
    options.max_backoff_ms = 5;
    auto cache = ArtifactCache::Open(options);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  std::string PathOf(const std::string& content) { return dir_.path() + "/artifacts/" + Sha256Hex(content); }
  void Overwrite(const std::string& path, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomic(path, content).ok());
  }

  TempDir dir_;
  MemoryArtifacts memory_;
  std::unique_ptr<FakeCoordinator> coordinator_;
  std::unique_ptr<GrpcClient> client_;
  StopSignal stop_;
};

INSTANTIATE_TEST_SUITE_P(Transports, ArtifactCacheTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Grpc" : "Direct"; });

TEST_P(ArtifactCacheTest, FetchesOnceAndKeeps) {
  const std::string content = Content(5000);
  store().Put(content);
  const auto cache = Open();
  for (int i = 0; i < 3; ++i) {
    const auto pin = cache->Fetch(RefOf(content), stop_);
    ASSERT_TRUE(pin.ok()) << pin.status();
    EXPECT_EQ(*ReadFile(pin->path()), content);
  }
  EXPECT_THAT(store().download_offsets(), ElementsAre(0));
  EXPECT_EQ(cache->bytes(), 5000);
  // A file of unknown length and an empty one are files too.
  v1::ArtifactRef unknown;
  unknown.set_sha256(store().Put("x"));
  EXPECT_TRUE(cache->Fetch(unknown, stop_).ok());
  store().Put("");
  EXPECT_TRUE(cache->Fetch(RefOf(""), stop_).ok());
}

TEST_P(ArtifactCacheTest, ABrokenTransferGoesOnWhereItStopped) {
  const std::string content = Content(10'000);
  store().Put(content);
  store().CutNext(3000, 2);
  const auto cache = Open();
  const auto pin = cache->Fetch(RefOf(content), stop_);
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ(*ReadFile(pin->path()), content);
  const std::vector<int64_t> offsets = store().download_offsets();
  ASSERT_EQ(offsets.size(), 3u);
  EXPECT_GT(offsets[1], 0);
  EXPECT_GT(offsets[2], offsets[1]);
}

TEST_P(ArtifactCacheTest, AnUnfinishedDownloadSurvivesTheProcess) {
  const std::string content = Content(10'000);
  store().Put(content);
  {
    const auto cache = Open();  // makes the folder
  }
  Overwrite(PathOf(content) + ".part", content.substr(0, 6000));
  const auto cache = Open();
  ASSERT_TRUE(cache->Fetch(RefOf(content), stop_).ok());
  EXPECT_THAT(store().download_offsets(), ElementsAre(6000));
  // One whose bytes are wrong does not poison the file: it starts over.
  const std::string other = Content(9000, 'b');
  store().Put(other);
  Overwrite(PathOf(other) + ".part", Content(4000, 'c'));
  const auto pin = cache->Fetch(RefOf(other), stop_);
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ(*ReadFile(pin->path()), other);
}

TEST_P(ArtifactCacheTest, WrongContentIsNeverGivenOut) {
  const std::string content = Content(5000);
  store().Put(content);
  const auto cache = Open();
  store().CorruptNext(1);
  EXPECT_TRUE(cache->Fetch(RefOf(content), stop_).ok()) << "a second try mends it";
  cache->Discard(RefOf(content).sha256());
  store().CorruptNext(100);
  EXPECT_EQ(cache->Fetch(RefOf(content), stop_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(FileExists(PathOf(content)));
  EXPECT_EQ(cache->bytes(), 0);
}

TEST_P(ArtifactCacheTest, AFileDamagedOnDiskIsFetchedAgainByTheNextProcess) {
  const std::string content = Content(5000);
  store().Put(content);
  {
    const auto cache = Open();
    ASSERT_TRUE(cache->Fetch(RefOf(content), stop_).ok());
  }
  std::string damaged = content;
  damaged[100] ^= 1;
  Overwrite(PathOf(content), damaged);
  const auto cache = Open();
  const auto pin = cache->Fetch(RefOf(content), stop_);
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ(*ReadFile(pin->path()), content);
  EXPECT_EQ(store().download_offsets().size(), 2u);
  EXPECT_EQ(cache->bytes(), 5000);
}

TEST_P(ArtifactCacheTest, WhatIsNotThereIsNotWaitedFor) {
  const auto cache = Open();
  EXPECT_EQ(cache->Fetch(RefOf("nowhere"), stop_).status().code(), absl::StatusCode::kNotFound);
  v1::ArtifactRef bad;
  bad.set_sha256("../../etc/passwd");
  EXPECT_EQ(cache->Fetch(bad, stop_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(ArtifactCacheTest, SlotsThatWantTheSameFileShareOneDownload) {
  const std::string content = Content(20'000);
  store().Put(content);
  store().Hold(true);
  const auto cache = Open();
  std::vector<std::thread> slots;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    slots.emplace_back([&] {
      const auto pin = cache->Fetch(RefOf(content), stop_);
      if (pin.ok() && *ReadFile(pin->path()) == content) ++good;
    });
  }
  store().AwaitHeld();
  store().Hold(false);
  for (std::thread& slot : slots) slot.join();
  EXPECT_EQ(good, 8);
  EXPECT_THAT(store().download_offsets(), ElementsAre(0));
}

TEST_P(ArtifactCacheTest, ASlotThatStopsLeavesTheDownloadToTheOthers) {
  const std::string content = Content(20'000);
  store().Put(content);
  store().Hold(true);
  const auto cache = Open();
  StopSignal first_stop;
  absl::Status first_status;
  std::thread first([&] { first_status = cache->Fetch(RefOf(content), first_stop).status(); });
  store().AwaitHeld();
  absl::Status second_status = absl::UnknownError("");
  std::thread second([&] { second_status = cache->Fetch(RefOf(content), stop_).status(); });
  first_stop.Raise(StopSignal::Mode::kCancel);
  first.join();
  EXPECT_EQ(first_status.code(), absl::StatusCode::kCancelled);
  store().Hold(false);
  second.join();
  EXPECT_TRUE(second_status.ok()) << second_status;
}

TEST_P(ArtifactCacheTest, TheLeastRecentlyUsedGoFirstAndPinnedOnesStay) {
  std::vector<std::string> contents;
  for (int i = 0; i < 4; ++i) contents.push_back(Content(1000, static_cast<char>('a' + i)));
  for (const std::string& content : contents) store().Put(content);
  const auto cache = Open(/*max_bytes=*/2500);
  auto pinned = cache->Fetch(RefOf(contents[0]), stop_);
  ASSERT_TRUE(cache->Fetch(RefOf(contents[1]), stop_).ok());
  ASSERT_TRUE(cache->Fetch(RefOf(contents[2]), stop_).ok());
  EXPECT_TRUE(FileExists(PathOf(contents[0])));
  EXPECT_FALSE(FileExists(PathOf(contents[1])));
  EXPECT_TRUE(FileExists(PathOf(contents[2])));
  pinned->Release();
  ASSERT_TRUE(cache->Fetch(RefOf(contents[3]), stop_).ok());
  EXPECT_FALSE(FileExists(PathOf(contents[0])));
  EXPECT_TRUE(FileExists(PathOf(contents[2])));
  EXPECT_EQ(cache->bytes(), 2000);
  // The order survives the process, and so does the limit.
  ASSERT_TRUE(cache->Fetch(RefOf(contents[2]), stop_).ok());
  const auto smaller = Open(/*max_bytes=*/1000);
  EXPECT_TRUE(FileExists(PathOf(contents[2])));
  EXPECT_FALSE(FileExists(PathOf(contents[3])));
}

TEST_P(ArtifactCacheTest, GivingAFileOutDoesNotChangeItsTimeOfWriting) {
  const std::string content = Content(100);
  store().Put(content);
  const auto cache = Open();
  ASSERT_TRUE(cache->Fetch(RefOf(content), stop_).ok());
  const struct timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, PathOf(content).c_str(), old, 0), 0);
  ASSERT_TRUE(cache->Fetch(RefOf(content), stop_).ok());
  struct stat info = {};
  ASSERT_EQ(::stat(PathOf(content).c_str(), &info), 0);
  EXPECT_EQ(info.st_mtim.tv_sec, 1000) << "a trainer would load the weights again";
  EXPECT_GT(info.st_atim.tv_sec, 1000);
}

TEST_P(ArtifactCacheTest, DataUnderTheRootIsUsedInPlaceWhenItIsTheSame) {
  const std::string content = Content(3000);
  const std::string root = dir_.path() + "/data";
  ASSERT_TRUE(MakeDirs(root + "/sub").ok());
  Overwrite(root + "/sub/corpus.txt", content);
  Overwrite(dir_.path() + "/outside.txt", content);
  store().Put(content);
  const auto cache = Open(1 << 30, root);
  auto pin = cache->FetchData(FileOf("sub/corpus.txt", content), stop_);
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(pin->path(), root + "/sub/corpus.txt");
  EXPECT_EQ(store().calls(), 0);
  // Out of the root is out of reach, whatever lies there.
  pin = cache->FetchData(FileOf("../outside.txt", content), stop_);
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(pin->path(), PathOf(content));
  // Another content at that path, of the same length: fetched.
  const std::string other = Content(3000, 'z');
  store().Put(other);
  pin = cache->FetchData(FileOf("sub/corpus.txt", other), stop_);
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(pin->path(), PathOf(other));
  // Written anew: asked anew.
  Overwrite(root + "/sub/corpus.txt", other);
  pin = cache->FetchData(FileOf("sub/corpus.txt", other), stop_);
  ASSERT_TRUE(pin.ok());
  EXPECT_EQ(pin->path(), root + "/sub/corpus.txt");
}

TEST_P(ArtifactCacheTest, DataTooLargeToTravelSaysWhatToDo) {
  const auto cache = Open();
  v1::DataFile file = FileOf("huge.bin", "x");
  file.set_bytes(kMaxTravellingDataBytes + 1);
  const absl::Status status = cache->FetchData(file, stop_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--data-root"));
  EXPECT_EQ(store().calls(), 0);
}

TEST_P(ArtifactCacheTest, UploadsWhatWasAdoptedAndResumes) {
  const std::string content = Content(2'500'000);
  const std::string made = dir_.path() + "/made";
  Overwrite(made, content);
  const auto cache = Open();
  const auto pin = cache->Adopt(made, RefOf(content));
  ASSERT_TRUE(pin.ok()) << pin.status();
  ASSERT_TRUE(RemoveFile(made).ok());
  store().CutNext(1'200'000);
  ASSERT_TRUE(cache->Upload(RefOf(content), stop_, StopSignal::Mode::kCancel).ok());
  EXPECT_EQ(store().Get(RefOf(content).sha256()), content);
  EXPECT_THAT(store().upload_offsets(), ElementsAre(0, 1'200'000));
  ASSERT_TRUE(cache->Upload(RefOf(content), stop_, StopSignal::Mode::kCancel).ok());
  EXPECT_EQ(store().upload_offsets().size(), 2u) << "what is there is not sent again";
  EXPECT_TRUE(cache->Fetch(RefOf(content), stop_).ok());
  EXPECT_TRUE(store().download_offsets().empty()) << "what was made here is not fetched";
}

TEST_P(ArtifactCacheTest, AnUploadWaitsForTheCoordinatorUntilItIsToldToGiveUp) {
  const std::string content = Content(5000);
  const std::string made = dir_.path() + "/made";
  Overwrite(made, content);
  const auto cache = Open();
  const auto pin = cache->Adopt(made, RefOf(content));
  store().SetAway(true);
  absl::Status status = absl::UnknownError("");
  std::thread upload([&] { status = cache->Upload(RefOf(content), stop_, StopSignal::Mode::kCancel); });
  const int before = store().calls();
  while (store().calls() < before + 3) std::this_thread::yield();
  stop_.Raise(StopSignal::Mode::kRelease);  // a drain: not yet a reason to give up
  store().SetAway(false);
  upload.join();
  EXPECT_TRUE(status.ok()) << status;

  store().SetAway(true);
  const std::string other = Content(5000, 'k');
  Overwrite(made, other);
  const auto other_pin = cache->Adopt(made, RefOf(other));
  std::thread doomed([&] { status = cache->Upload(RefOf(other), stop_, StopSignal::Mode::kCancel); });
  stop_.Raise(StopSignal::Mode::kCancel);
  doomed.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST_P(ArtifactCacheTest, ADamagedFileIsNotUploadedForEver) {
  const std::string content = Content(5000);
  const std::string made = dir_.path() + "/made";
  Overwrite(made, content + "!");
  const auto cache = Open();
  const auto pin = cache->Adopt(made, RefOf(content));
  EXPECT_EQ(cache->Upload(RefOf(content), stop_, StopSignal::Mode::kCancel).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(store().Has(RefOf(content).sha256()));
}

TEST_P(ArtifactCacheTest, HeldStagesAreThoseWhoseWeightsAreHere) {
  const std::string a = Content(1000, 'a'), b = Content(1000, 'b');
  store().Put(a);
  store().Put(b);
  const auto cache = Open();
  ASSERT_TRUE(cache->Fetch(RefOf(a), stop_).ok());
  ASSERT_TRUE(cache->Fetch(RefOf(b), stop_).ok());
  cache->Hold("stage_a", RefOf(a).sha256());
  cache->Hold("stage_b", RefOf(b).sha256());
  EXPECT_THAT(cache->HeldStageKeys(), ElementsAre("stage_b", "stage_a"));
  cache->Discard(RefOf(b).sha256());
  EXPECT_THAT(cache->HeldStageKeys(), ElementsAre("stage_a"));
}

}  // namespace
}  // namespace ablate
