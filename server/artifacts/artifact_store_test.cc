#include "server/artifacts/artifact_store.h"

#include <sys/stat.h>
#include <utime.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

class ArtifactStoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = ArtifactStore::Open(root_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::unique_ptr<ArtifactStore::Upload> Start(const std::string& hash, int64_t total, int64_t offset) {
    auto upload = store_->StartUpload(hash, total, offset);
    EXPECT_TRUE(upload.ok()) << upload.status();
    return upload.ok() ? *std::move(upload) : nullptr;
  }
  std::string ReadAll(const std::string& hash, int64_t offset = 0, size_t chunk = 7) {
    auto reader = store_->OpenReader(hash, offset);
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::string all, part;
    while ((*reader)->Read(chunk, &part).ok() && !part.empty()) all += part;
    return all;
  }

  TempDir dir_;
  const std::string root_ = JoinPath(dir_.path(), "artifacts");
  const std::string content_ = std::string(100'000, 'x') + "the end\0of it";
  const std::string hash_ = Sha256Hex(content_);
  std::unique_ptr<ArtifactStore> store_;
};

TEST_F(ArtifactStoreTest, StoresAndReadsBackFromAnyOffset) {
  auto upload = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(upload->Append(content_).ok());
  EXPECT_FALSE(store_->Has(hash_));
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_TRUE(store_->Has(hash_));
  EXPECT_TRUE(store_->Stat(hash_)->complete);
  EXPECT_EQ(store_->Stat(hash_)->bytes, static_cast<int64_t>(content_.size()));
  EXPECT_EQ(ReadAll(hash_), content_);
  EXPECT_EQ(ReadAll(hash_, 99'999), content_.substr(99'999));
  EXPECT_EQ(ReadAll(hash_, content_.size()), "");
  EXPECT_EQ(store_->OpenReader(hash_, content_.size() + 1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(FileExists(JoinPath(root_, hash_.substr(0, 2) + "/" + hash_.substr(2))));
  EXPECT_TRUE(ListDir(JoinPath(root_, "partial"))->empty());
}

TEST_F(ArtifactStoreTest, AnEmptyFileIsAnArtifact) {
  const std::string hash = Sha256Hex("");
  ASSERT_TRUE(Start(hash, 0, 0)->Finish().ok());
  EXPECT_TRUE(store_->Has(hash));
  EXPECT_EQ(ReadAll(hash), "");
}

TEST_F(ArtifactStoreTest, ResumesFromWhatIsThereEvenAfterARestart) {
  {
    auto upload = Start(hash_, content_.size(), 0);
    ASSERT_TRUE(upload->Append(content_.substr(0, 60'000)).ok());
    EXPECT_EQ(upload->Finish().code(), absl::StatusCode::kInvalidArgument);
  }
  Reopen();
  EXPECT_FALSE(store_->Stat(hash_)->complete);
  EXPECT_EQ(store_->Stat(hash_)->bytes, 60'000);
  EXPECT_EQ(store_->StartUpload(hash_, content_.size(), 60'001).status().code(), absl::StatusCode::kOutOfRange);
  // From a lower offset than what is there: the bytes are written again.
  auto upload = Start(hash_, content_.size(), 50'000);
  ASSERT_TRUE(upload->Append(content_.substr(50'000)).ok());
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_EQ(ReadAll(hash_, 0, 1 << 16), content_);
}

TEST_F(ArtifactStoreTest, FalseContentIsThrownAway) {
  std::string other = content_;
  other[5] ^= 1;
  auto upload = Start(hash_, other.size(), 0);
  ASSERT_TRUE(upload->Append(other).ok());
  EXPECT_EQ(upload->Finish().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(store_->Has(hash_));
  EXPECT_EQ(store_->Stat(hash_)->bytes, 0);
  // The hash is not spoilt: the right content can follow, while the false upload is still held.
  auto again = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(again->Append(content_).ok());
  ASSERT_TRUE(again->Finish().ok());
  EXPECT_EQ(ReadAll(hash_, 0, 1 << 16), content_);
  EXPECT_EQ(upload->Append("").code(), absl::StatusCode::kAborted);
}

TEST_F(ArtifactStoreTest, MoreBytesThanAnnouncedAreRefused) {
  auto upload = Start(hash_, 10, 0);
  EXPECT_EQ(upload->Append(content_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->StartUpload(hash_, -1, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->StartUpload(hash_, 10, 11).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(store_->StartUpload(hash_, int64_t{1} << 60, 0).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ArtifactStoreTest, APartialLongerThanTheWholeIsDropped) {
  ASSERT_TRUE(WriteFileAtomic(JoinPath(root_, "partial/" + hash_), content_ + "and more").ok());
  auto upload = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(upload->Append(content_).ok());
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_EQ(ReadAll(hash_, 0, 1 << 16), content_);
}

TEST_F(ArtifactStoreTest, OnlyDigestsAreNames) {
  const std::string upper = "E" + hash_.substr(1);
  for (const std::string& name :
       {std::string("../../etc/passwd"), std::string(), std::string("ab"), hash_ + "/", hash_ + "0", upper,
        "../" + hash_.substr(3), hash_.substr(0, 63) + std::string(1, '\0')}) {
    EXPECT_EQ(store_->StartUpload(name, 1, 0).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(store_->OpenReader(name, 0).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(store_->Stat(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(store_->Remove(name).code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_FALSE(store_->Has(name)) << name;
  }
  EXPECT_EQ(*ListDir(dir_.path()), std::vector<std::string>{"artifacts"});
  EXPECT_EQ(*ListDir(root_), std::vector<std::string>{"partial"});
}

TEST_F(ArtifactStoreTest, UploadingWhatIsThereStoresNothing) {
  auto first = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(first->Append(content_).ok());
  ASSERT_TRUE(first->Finish().ok());
  // Other content under the same hash cannot touch the artifact any more.
  auto second = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(second->Append(std::string(content_.size(), 'y')).ok());
  EXPECT_TRUE(second->Finish().ok());
  EXPECT_EQ(ReadAll(hash_, 0, 1 << 16), content_);
}

TEST_F(ArtifactStoreTest, AnUploadThatLosesTheRaceCannotTouchTheWinner) {
  auto slow = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(slow->Append(content_.substr(0, 10)).ok());
  auto fast = Start(hash_, content_.size(), 10);
  ASSERT_TRUE(fast->Append(content_.substr(10)).ok());
  ASSERT_TRUE(fast->Finish().ok());
  ASSERT_TRUE(slow->Append(std::string(content_.size() - 10, 'z')).ok());
  EXPECT_TRUE(slow->Finish().ok());
  EXPECT_EQ(*Sha256HexOfFile(JoinPath(root_, hash_.substr(0, 2) + "/" + hash_.substr(2))), hash_);
}

TEST_F(ArtifactStoreTest, ManyUploadsOfOneHashAtOnce) {
  std::atomic<int> finished = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      auto upload = store_->StartUpload(hash_, content_.size(), 0);
      ASSERT_TRUE(upload.ok()) << upload.status();
      const size_t step = 1000 + 321 * thread;
      for (size_t at = 0; at < content_.size(); at += step) {
        ASSERT_TRUE((*upload)->Append(std::string_view(content_).substr(at, step)).ok());
      }
      const absl::Status status = (*upload)->Finish();
      ASSERT_TRUE(status.ok()) << status;
      ++finished;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(finished, 8);
  EXPECT_EQ(ReadAll(hash_, 0, 1 << 16), content_);
  EXPECT_TRUE(ListDir(JoinPath(root_, "partial"))->empty());
}

TEST_F(ArtifactStoreTest, FoldersThatVanishUnderARunningServerAreMadeAgain) {
  auto cut_off = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(cut_off->Append(content_).ok());
  ASSERT_TRUE(RemoveTree(root_).ok());
  EXPECT_EQ(cut_off->Finish().code(), absl::StatusCode::kAborted) << "what was written is gone";
  EXPECT_EQ(store_->Stat(hash_)->bytes, 0);
  auto upload = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(upload->Append(content_).ok());
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_EQ(ReadAll(hash_, 0, 1 << 16), content_);
}

TEST_F(ArtifactStoreTest, WhatNothingNamesGoesOnceItIsOld) {
  const struct utimbuf long_ago = {1, 1};
  std::vector<std::string> hashes;
  for (const std::string content : {"named and old", "unnamed and old", "unnamed and new"}) {
    hashes.push_back(Sha256Hex(content));
    auto upload = Start(hashes.back(), content.size(), 0);
    ASSERT_TRUE(upload->Append(content).ok());
    ASSERT_TRUE(upload->Finish().ok());
    const std::string path = JoinPath(root_, hashes.back().substr(0, 2) + "/" + hashes.back().substr(2));
    if (hashes.size() < 3) {
      ASSERT_EQ(::utime(path.c_str(), &long_ago), 0);
    }
  }
  store_->RemoveUnnamed([&](const std::string& sha256) { return sha256 == hashes[0]; }, 24 * 3600);
  EXPECT_TRUE(store_->Has(hashes[0]));
  EXPECT_FALSE(store_->Has(hashes[1]));
  EXPECT_TRUE(store_->Has(hashes[2]));
}

TEST_F(ArtifactStoreTest, RemovesAndForgets) {
  auto upload = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(upload->Append(content_).ok());
  ASSERT_TRUE(upload->Finish().ok());
  auto reader = store_->OpenReader(hash_, 0);
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(store_->Remove(hash_).ok());
  ASSERT_TRUE(store_->Remove(hash_).ok());
  EXPECT_FALSE(store_->Has(hash_));
  EXPECT_EQ(store_->OpenReader(hash_, 0).status().code(), absl::StatusCode::kNotFound);
  std::string part;
  ASSERT_TRUE((*reader)->Read(10, &part).ok());
  EXPECT_EQ(part, content_.substr(0, 10));

  // An upload under way hears of it, and a new one starts from nothing.
  auto cut_off = Start(hash_, content_.size(), 0);
  ASSERT_TRUE(cut_off->Append(content_.substr(0, 100)).ok());
  ASSERT_TRUE(store_->Remove(hash_).ok());
  EXPECT_EQ(cut_off->Append("x").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(cut_off->Finish().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(store_->Stat(hash_)->bytes, 0);

  // Partial uploads are forgotten after a week, not before.
  const std::string old_path = JoinPath(root_, "partial/" + Sha256Hex("old"));
  const std::string new_path = JoinPath(root_, "partial/" + Sha256Hex("new"));
  ASSERT_TRUE(WriteFileAtomic(old_path, "o").ok());
  ASSERT_TRUE(WriteFileAtomic(new_path, "n").ok());
  const struct utimbuf long_ago = {1, 1};
  ASSERT_EQ(::utime(old_path.c_str(), &long_ago), 0);
  Reopen();
  EXPECT_FALSE(FileExists(old_path));
  EXPECT_TRUE(FileExists(new_path));
}

// A bit that flipped on the disk: nobody gets the last bytes, the file is set aside, and it can be stored again.
TEST_F(ArtifactStoreTest, DamageIsSeenWhenItIsReadFromAnyOffset) {
  const std::string path = JoinPath(root_, hash_.substr(0, 2) + "/" + hash_.substr(2));
  for (const int64_t offset : {int64_t{0}, int64_t{50'000}, static_cast<int64_t>(content_.size())}) {
    for (const size_t at : {size_t{0}, size_t{70'000}, content_.size() - 1, content_.size()}) {
      auto upload = Start(hash_, content_.size(), 0);
      ASSERT_TRUE(upload->Append(content_).ok());
      ASSERT_TRUE(upload->Finish().ok());
      std::string damaged = content_;
      if (at < damaged.size()) damaged[at] ^= 16;
      else damaged.resize(60'000);
      ASSERT_TRUE(WriteFileAtomic(path, damaged).ok());
      absl::Status status;
      std::string all, part;
      if (auto reader = store_->OpenReader(hash_, offset); reader.ok()) {
        do {
          status = (*reader)->Read(1 << 14, &part);
          all += part;
        } while (status.ok() && !part.empty());
      } else {
        status = reader.status();
      }
      if (offset > 60'000 && at == content_.size()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
        ASSERT_TRUE(store_->Remove(hash_).ok());
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << offset << " " << at << status;
      EXPECT_TRUE(all.empty() || offset + all.size() < damaged.size());
      EXPECT_FALSE(store_->Has(hash_));
      EXPECT_EQ(*ReadFile(path + ".corrupt"), damaged);
      ASSERT_TRUE(RemoveFile(path + ".corrupt").ok());
    }
  }
}

TEST_F(ArtifactStoreTest, UploadsThatWouldFillTheDiskAreRefused) {
  store_.reset();
  const int64_t free = static_cast<int64_t>(*FreeBytes(dir_.path()));
  auto store = ArtifactStore::Open(root_, free * 2);
  ASSERT_TRUE(store.ok());
  const absl::Status status = (*store)->StartUpload(hash_, 10, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("stay free"), std::string::npos) << status;
}

}  // namespace
}  // namespace ablate
