// Devices by name, the CUDA library found, refused and used. The library is testing/fake_cuda_library.cc.
#include "worker/trainer/device.h"

#include <cstdlib>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/cuda_library.h"

namespace ablate {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("ABLATE_CUDA_LIBRARY", ABLATE_FAKE_CUDA, 1);
    ::unsetenv("FAKE_CUDA");
  }
  static void Fake(const char* words) { ::setenv("FAKE_CUDA", words, 1); }
  static std::string Refusal(const std::string& name) {
    const auto device = NewDevice(name, {});
    EXPECT_FALSE(device.ok()) << name;
    return std::string(device.status().message());
  }
};

TEST_F(DeviceTest, TheCpuIsOneAndHasNoBf16) {
  const auto device = NewDevice("cpu", {.threads = 1});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->backend()->device_class(), "cpu");
  EXPECT_TRUE((*device)->Holds(Precision::kFloat32));
  const absl::Status refused = (*device)->Open(Precision::kBf16).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("needs a CUDA device"));
  // Back to what it was.
  EXPECT_TRUE((*device)->Holds(Precision::kFloat32));
}

TEST_F(DeviceTest, NamesAreChecked) {
  for (const char* name : {"tpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "CUDA", ""}) {
    EXPECT_EQ(NewDevice(name, {}).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(DeviceTest, ALibraryThatIsNotThereOrNoneSaysWhatToDo) {
  ::setenv("ABLATE_CUDA_LIBRARY", "/nowhere/libablate_cuda.so", 1);
  EXPECT_THAT(Refusal("cuda"),
              HasSubstr("no CUDA backend at /nowhere/libablate_cuda.so, which ABLATE_CUDA_LIBRARY names: cannot stat"));
  EXPECT_EQ(ListCudaDevices().status().code(), absl::StatusCode::kFailedPrecondition);
  const TempDir dir;
  ::setenv("ABLATE_CUDA_LIBRARY", dir.path().c_str(), 1);
  EXPECT_THAT(Refusal("cuda"), HasSubstr("no CUDA backend at " + dir.path() + ", which ABLATE_CUDA_LIBRARY names"));
  ::unsetenv("ABLATE_CUDA_LIBRARY");  // and none lies beside a test
  EXPECT_THAT(Refusal("cuda"), AnyOf(HasSubstr("put libablate_cuda.so beside this program"),
                                     HasSubstr("configured without CUDA (no nvcc, or ABLATE_CUDA=OFF;")));
  const std::string path = JoinPath(dir.path(), "text.so");
  ASSERT_TRUE(WriteFileAtomic(path, "no library").ok());
  ::setenv("ABLATE_CUDA_LIBRARY", path.c_str(), 1);
  EXPECT_THAT(Refusal("cuda"), HasSubstr("cannot load the CUDA backend"));
  ::setenv("ABLATE_CUDA_LIBRARY", ABLATE_ANOTHER_LIBRARY, 1);
  EXPECT_THAT(Refusal("cuda"), HasSubstr("is no CUDA backend of Ablate"));
}

TEST_F(DeviceTest, TheLibrarysRefusalsKeepTheirKind) {
  const std::pair<const char*, absl::StatusCode> cases[] = {
      {"result=1", absl::StatusCode::kFailedPrecondition}, {"result=2", absl::StatusCode::kFailedPrecondition},
      {"result=3", absl::StatusCode::kFailedPrecondition}, {"result=4", absl::StatusCode::kFailedPrecondition},
      {"result=5", absl::StatusCode::kResourceExhausted},  {"result=6", absl::StatusCode::kInternal}};
  for (const auto& [words, code] : cases) {
    Fake(words);
    const absl::Status status = NewDevice("cuda", {}).status();
    EXPECT_EQ(status.code(), code) << words;
    EXPECT_EQ(std::string(status.message()), "as told");
  }
  Fake("gpus=2");
  EXPECT_THAT(Refusal("cuda:2"), HasSubstr("there is no GPU 2"));
}

TEST_F(DeviceTest, AGpuIsOpenedWithItsShareOfMemory) {
  const auto device = NewDevice("cuda:1", {.memory_limit_bytes = 12345});
  ASSERT_TRUE(device.ok()) << device.status();
  Backend* const backend = (*device)->backend();
  EXPECT_EQ(backend->device_class(), "cuda");
  EXPECT_EQ(backend->device_kind(), "cuda/Fake GPU 1");
  EXPECT_EQ(backend->FreeBytes(), 12345);
  EXPECT_EQ(*(*device)->Open(Precision::kFloat32), backend);
  // The fake has none: the old one comes back, as another object.
  EXPECT_EQ((*device)->Open(Precision::kBf16).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ((*device)->backend()->device_kind(), "cuda/Fake GPU 1");
}

TEST_F(DeviceTest, GpusAreListedALineEach) {
  Fake("gpus=2");
  EXPECT_EQ(*ListCudaDevices(),
            "0\t85899345920\t84825604096\t9.0\t13.0\tFake GPU\n1\t85899345920\t84825604096\t9.0\t13.0\tFake GPU\n");
  Fake("gpus=0");
  EXPECT_EQ(*ListCudaDevices(), "");
}

}  // namespace
}  // namespace ablate
