// The checkpoint format: exact round trip, equal bytes for equal states, and no damage that goes unseen.
#include <cstring>
#include <fstream>

#include "base/files.h"
#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/checkpoint_file.h"
#include "worker/trainer/checkpoint_store.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

TensorToWrite Tensor(const std::string& name, const std::vector<int64_t>& shape, float first) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return {name, shape, [=](float* to) {
            for (int64_t i = 0; i < count; ++i) to[i] = first + 0.1f * static_cast<float>(i);
            return absl::OkStatus();
          }};
}

CheckpointHeader Header() {
  CheckpointHeader header;
  header.kind = "optimizer";
  header.model = "layers=1";
  header.config = R"({"attention.p":3})";
  header.data_sha256 = Sha256Hex("data");
  header.seed = -7;
  header.step = 123;
  header.samples = int64_t{1} << 53;
  header.optimizer_step = 99;
  header.numerics_version = 1;
  header.totals = {.tokens = 5,
                   .zero_rows = 6,
                   .uncontrasted_rows = 7,
                   .max_gradient_norm = 0.1 + 0.2,
                   .recent_losses = {1.0 / 3.0, 2e-300, 5.5}};
  return header;
}

class CheckpointTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) { return JoinPath(dir_.path(), name); }
  FileDigest Write(const std::string& path) {
    auto digest =
        WriteCheckpointFile(path, Header(), {Tensor("a", {3, 5}, 1), Tensor("b", {1}, -2), Tensor("c", {17}, 0)});
    EXPECT_TRUE(digest.ok()) << digest.status();
    return *digest;
  }
  // Without the fsync of WriteFileAtomic: thousands of damaged copies would wait for the disk.
  void Put(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }
  TempDir dir_;
};

TEST_F(CheckpointTest, RoundTripIsExact) {
  const FileDigest digest = Write(Path("x"));
  EXPECT_EQ(digest.sha256, *Sha256HexOfFile(Path("x")));
  EXPECT_EQ(static_cast<uint64_t>(digest.bytes), *FileSize(Path("x")));
  auto file = CheckpointFile::Open(Path("x"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->header(), Header());
  EXPECT_EQ((*file)->digest().sha256, digest.sha256);
  ASSERT_EQ((*file)->tensors().size(), 3u);
  const auto* a = (*file)->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(a->count, 15);
  EXPECT_EQ(a->data[14], 1 + 0.1f * 14);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*file)->Find("c")->data) % 64, 0u);
  EXPECT_EQ((*file)->Find("d"), nullptr);
}

TEST_F(CheckpointTest, EqualStatesHaveEqualBytesAndNothingElseIsLeft) {
  EXPECT_EQ(Write(Path("x")).sha256, Write(Path("y")).sha256);
  EXPECT_EQ(*ReadFile(Path("x")), *ReadFile(Path("y")));
  EXPECT_EQ(ListDir(dir_.path())->size(), 2u);
}

TEST_F(CheckpointTest, EveryFlippedByteIsSeen) {
  Write(Path("x"));
  const std::string good = *ReadFile(Path("x"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    Put(Path("bad"), bad);
    const auto status = CheckpointFile::Open(Path("bad")).status();
    // Without its magic it is another kind of file.
    EXPECT_EQ(status.code(), i < 8 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss) << "byte " << i;
  }
}

TEST_F(CheckpointTest, EveryTruncationIsSeen) {
  Write(Path("x"));
  const std::string good = *ReadFile(Path("x"));
  for (size_t size = 0; size < good.size(); ++size) {
    Put(Path("bad"), good.substr(0, size));
    EXPECT_EQ(CheckpointFile::Open(Path("bad")).status().code(), absl::StatusCode::kDataLoss) << size;
  }
  ASSERT_TRUE(WriteFileAtomic(Path("bad"), good + "x").ok());
  EXPECT_EQ(CheckpointFile::Open(Path("bad")).status().code(), absl::StatusCode::kDataLoss);
}

// Content with a digest of its own that fits: only the checks after the digest stand in the way.
TEST_F(CheckpointTest, WellHashedNonsenseIsRefused) {
  auto sealed = [&](uint32_t version, const std::string& json, size_t data_bytes) {
    std::string bytes = "ABLATECK";
    const uint32_t numbers[2] = {version, static_cast<uint32_t>(json.size())};
    bytes.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
    bytes += json;
    bytes.resize((bytes.size() + 63) / 64 * 64 + data_bytes);
    bytes += Sha256Hex(bytes);
    EXPECT_TRUE(WriteFileAtomic(Path("bad"), bytes).ok());
    return CheckpointFile::Open(Path("bad")).status();
  };
  const std::string fields =
      R"("kind":"weights","model":"m","config":"{}","data_sha256":"","seed":1,"step":2,"samples":3,)"
      R"("optimizer_step":4,"numerics_version":1,)";
  auto with = [&](const std::string& rest) { return "{" + fields + rest + "}"; };
  EXPECT_TRUE(sealed(1, with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[16],"offset":0}])"), 64).ok());
  EXPECT_THAT(std::string(sealed(2, with(R"("data_bytes":0,"tensors":[])"), 0).message()), HasSubstr("version 2"));
  for (const std::string& json :
       {std::string("{"), std::string("[]"), std::string("{}"), with(R"("data_bytes":65,"tensors":[])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[17],"offset":0}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[1],"offset":4}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[-1],"offset":0}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[1],"offset":-64}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[9e18,9e18],"offset":0}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[16.0],"offset":0}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[16],"offset":1e300}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":[16],"offset":18446744073709551552}])"),
        with(R"("data_bytes":64,"tensors":[{"name":"a","shape":"x","offset":0}])"),
        with(R"("data_bytes":64,"tensors":[],"step":2.5)"), with(R"("data_bytes":64,"tensors":[],"seed":-1e300)"),
        with(R"("data_bytes":64,"tensors":[],"numerics_version":4294967297)"),
        with(R"("data_bytes":64,"tensors":[],"samples":9223372036854775808)"),
        with(R"("data_bytes":64,"tensors":7)")}) {
    EXPECT_EQ(sealed(1, json, 64).code(), absl::StatusCode::kDataLoss) << json;
  }
}

TEST_F(CheckpointTest, ErrorsNameTheFile) {
  EXPECT_EQ(CheckpointFile::Open(Path("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckpointFile::Open(dir_.path()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(WriteCheckpointFile(Path("no/folder"), Header(), {}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomic(Path("text"), std::string(500, 'x')).ok());
  EXPECT_THAT(std::string(CheckpointFile::Open(Path("text")).status().message()), HasSubstr(Path("text")));
}

TEST_F(CheckpointTest, AFailedWriteLeavesTheOldFile) {
  Write(Path("x"));
  const std::string before = *ReadFile(Path("x"));
  TensorToWrite failing{"a", {2}, [](float*) { return absl::InternalError("device"); }};
  EXPECT_EQ(WriteCheckpointFile(Path("x"), Header(), {failing}).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(*ReadFile(Path("x")), before);
  EXPECT_EQ(ListDir(dir_.path())->size(), 1u);
}

TEST_F(CheckpointTest, TheStoreKeepsTheNewestTwoOfItsStage) {
  CheckpointStore store(Path("stages"), "key one"), other(Path("stages"), "key two");
  ASSERT_TRUE(store.Prepare().ok());
  auto put = [](const std::string& path) { ASSERT_TRUE(WriteFileAtomic(path, "x").ok()); };
  put(other.PathsOf(5).weights);
  put(other.PathsOf(5).optimizer);
  for (const int64_t step : {10, 20, 30}) {
    put(store.PathsOf(step).weights);
    put(store.PathsOf(step).optimizer);
  }
  put(store.PathsOf(25).weights);  // its optimiser never came
  put(store.PathsOf(40).weights);  // an end state without one
  put(store.PathsOf(40).weights + ".tmp.123");
  EXPECT_EQ(store.Complete()->size(), 3u);
  EXPECT_EQ(store.Complete()->front().step, 30);
  ASSERT_TRUE(store.Prepare().ok());
  ASSERT_TRUE(store.KeepNewestTwo(40).ok());
  EXPECT_TRUE(FileExists(store.PathsOf(40).weights));
  ASSERT_EQ(store.Complete()->size(), 1u);
  EXPECT_EQ(store.Complete()->front().step, 30);
  EXPECT_EQ(ListDir(Path("stages"))->size(), 5u);
  EXPECT_EQ(other.Complete()->size(), 1u);
}

}  // namespace
}  // namespace ablate
