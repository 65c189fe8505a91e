// The emulator against plain loops, through kernels that use every word of the dialect.
#include <cmath>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/emulator/dialect_kernels.h"
#include "kernels/cuda/emulator/testing.h"

namespace ablate::cuda {
namespace {

using cuda_emu::DeviceArray;
using cuda_emu::ForEachSchedule;

std::vector<float> RandomFloats(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(generator()) / 4294967296.0f - 0.5f;
  return values;
}

std::vector<bf16> Rounded(const std::vector<float>& values) {
  std::vector<bf16> rounded;
  for (float value : values) rounded.push_back(ToBf16(value));
  return rounded;
}

TEST(Emulator, RowSums) {
  for (int columns : {1, 31, 96, 200}) {
    const std::vector<float> x = RandomFloats(5 * static_cast<size_t>(columns), 1);
    std::vector<std::vector<float>> results;
    ForEachSchedule([&] {
      DeviceArray<float> device(x), sums(5);
      LaunchRowSums(device, sums, 5, columns, nullptr);
      results.push_back(sums.ToHost());
    });
    for (const auto& result : results) EXPECT_EQ(result, results[0]);  // bits do not hang on the order
    for (int row = 0; row < 5; ++row) {
      double sum = 0;
      for (int c = 0; c < columns; ++c) sum += x[row * columns + c];
      EXPECT_NEAR(results[0][row], sum, 1e-5);
    }
  }
}

TEST(Emulator, TransposesInDynamicSharedMemory) {
  const int rows = 45, columns = 70;
  const std::vector<float> x = RandomFloats(rows * columns, 2);
  ForEachSchedule([&] {
    DeviceArray<float> device(x), out(x.size());
    LaunchTranspose(device, out, rows, columns, nullptr);
    const std::vector<float> result = out.ToHost();
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) ASSERT_EQ(result[c * rows + r], x[r * columns + c]);
    }
  });
}

TEST(Emulator, TensorCoreProduct) {
  for (const auto& [M, N, K] : {std::tuple(32, 32, 32), {33, 17, 8}, {50, 70, 136}}) {
    const std::vector<bf16> a = Rounded(RandomFloats(size_t(M) * K, 3)), b = Rounded(RandomFloats(size_t(N) * K, 4));
    ForEachSchedule([&, M = M, N = N, K = K] {
      DeviceArray<bf16> da(a), db(b);
      DeviceArray<float> dc(size_t(M) * N);
      LaunchBf16Gemm(da, db, dc, M, N, K, nullptr);
      const std::vector<float> c = dc.ToHost();
      for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
          double sum = 0;
          for (int k = 0; k < K; ++k) sum += double{ToFloat(a[m * K + k])} * ToFloat(b[n * K + k]);
          ASSERT_NEAR(c[m * N + n], sum, 1e-5) << M << " " << N << " " << K << " at " << m << "," << n;
        }
      }
    });
  }
}

TEST(Emulator, AtomicsAndVotes) {
  std::vector<int> x(640);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int>(i * i % 37 + (i < 32 ? i % 2 : 0));
  for (size_t i = 32; i < 64; ++i) x[i] = 2 * static_cast<int>(i);      // none odd
  for (size_t i = 64; i < 96; ++i) x[i] = 2 * static_cast<int>(i) + 1;  // all
  ForEachSchedule([&] {
    DeviceArray<int> device(x), counts(x.size() / 32);
    DeviceArray<unsigned> histogram(std::vector<unsigned>(7, 0));
    LaunchHistogram(device, static_cast<int>(x.size()), histogram, 7, nullptr);
    LaunchCountOdd(device, static_cast<int>(x.size()), counts, nullptr);
    std::vector<unsigned> expected(7, 0);
    std::vector<int> odd(x.size() / 32, 0);
    for (size_t i = 0; i < x.size(); ++i) ++expected[x[i] % 7], odd[i / 32] += x[i] & 1;
    EXPECT_EQ(histogram.ToHost(), expected);
    EXPECT_EQ(counts.ToHost(), odd);
  });
}

TEST(Emulator, Bf16RoundsToNearestEven) {
  const auto round = [](float x) { return ToFloat(ToBf16(x)); };
  EXPECT_EQ(round(1.0f), 1.0f);
  EXPECT_EQ(round(1.00390625f), 1.0f);        // halfway, down to even
  EXPECT_EQ(round(1.01171875f), 1.015625f);   // halfway, up to even
  EXPECT_EQ(round(1.00390637f), 1.0078125f);  // just above halfway
  EXPECT_EQ(round(3.4028235e38f), INFINITY);
  EXPECT_EQ(ToBf16(NAN).bits, 0x7fff);
  EXPECT_EQ(ToBf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(PackBf16(1.0f, 2.0f), 0x40003f80u);
}

TEST(Runtime, MemoryRunsOut) {
  cuda_emu::SetDeviceMemory(1000);
  void *first = nullptr, *second = nullptr;
  EXPECT_TRUE(GPU_OK(cudaMalloc(&first, 600)));
  EXPECT_FALSE(GPU_OK(cudaMalloc(&second, 600)));
  EXPECT_EQ(second, nullptr);
  const Failure failure = TakeFailure();
  EXPECT_EQ(failure.code, cudaErrorMemoryAllocation);
  EXPECT_THAT(failure.message,
              testing::MatchesRegex("emulator_test.cc:[0-9]+: cudaMalloc\\(&second, 600\\): .*MemoryAllocation"));
  size_t free_bytes = 0, total = 0;
  EXPECT_TRUE(GPU_OK(cudaMemGetInfo(&free_bytes, &total)));
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total, 1000u);
  cudaFree(first);
  EXPECT_EQ(cuda_emu::DeviceMemoryInUse(), 0u);
  cuda_emu::SetDeviceMemory(size_t{1} << 30);
}

TEST(Runtime, NothingRunsAfterAFailureUntilItIsTaken) {
  DeviceArray<float> x(RandomFloats(32 * 32, 1)), out(32 * 32), sums(std::vector<float>(32, 7.0f));
  LaunchRowSums(x, sums, 0, 32, nullptr);  // an empty grid
  LaunchRowSums(x, sums, 32, 32, nullptr);
  EXPECT_FALSE(GPU_OK(cudaStreamSynchronize(nullptr)));
  const Failure failure = TakeFailure();
  EXPECT_EQ(failure.code, cudaErrorInvalidConfiguration);
  EXPECT_THAT(failure.message, testing::StartsWith("dialect_kernels.cu:"));
  EXPECT_THAT(failure.message, testing::HasSubstr("kernel row_sums_kernel<96>: "));
  EXPECT_TRUE(TakeFailure().ok());
  EXPECT_EQ(sums.ToHost(), std::vector<float>(32, 7.0f));
  LaunchRowSums(x, sums, 32, 32, nullptr);
  EXPECT_NE(sums.ToHost(), std::vector<float>(32, 7.0f));
  EXPECT_TRUE(TakeFailure().ok());
}

TEST(Runtime, AGraphRepeatsWhatWasCapturedWithTheArgumentsOfThen) {
  const std::vector<float> ones(64, 1.0f), twos(64, 2.0f);
  DeviceArray<float> x(ones), sums(2), other(2);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_TRUE(GPU_OK(cudaStreamCreate(&stream)));
  ASSERT_TRUE(GPU_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  int rows = 1;
  GPU_OK(cudaMemsetAsync(sums, 0, 2 * sizeof(float), stream));
  LaunchRowSums(x, sums, rows, 32, stream);
  GPU_OK(cudaMemcpyAsync(other, sums, 2 * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  rows = 2;
  ASSERT_TRUE(GPU_OK(cudaStreamEndCapture(stream, &graph)));
  ASSERT_TRUE(GPU_OK(cudaGraphInstantiate(&exec, graph, 0)));
  GPU_OK(cudaGraphDestroy(graph));
  EXPECT_TRUE(std::isnan(sums.ToHost()[0]));  // nothing ran yet
  for (const std::vector<float>& values : {ones, twos}) {
    GPU_OK(cudaMemcpy(x, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    GPU_OK(cudaGraphLaunch(exec, stream));
    EXPECT_EQ(other.ToHost(), (std::vector<float>{32 * values[0], 0.0f}));
  }
  GPU_OK(cudaGraphExecDestroy(exec));
  GPU_OK(cudaStreamDestroy(stream));
  EXPECT_TRUE(TakeFailure().ok());
}

TEST(Runtime, WaitingWhileCapturingBreaksTheCapture) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_TRUE(GPU_OK(cudaStreamCreate(&stream)));
  ASSERT_TRUE(GPU_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  GPU_OK(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace ablate::cuda
