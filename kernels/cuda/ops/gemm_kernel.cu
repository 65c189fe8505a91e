#include "kernels/cuda/ops/gemm_kernel.h"

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kSide = 16;  // threads of a block, each way
constexpr int kEach = 4;   // elements of c of a thread, each way

// --- kernel ---

// c[M,N] = a[M,K] b[K,N]. A thread's elements lie kSide apart, so that neighbours read neighbours.
template <typename In, typename Out>
__global__ void PlainGemmKernel(const In* a, Steps a_steps, const In* b, Steps b_steps, const In* bias, Out* c,
                                int c_stride, bool accumulate, int M, int N, int K) {
  const int row0 = static_cast<int>(blockIdx.y) * kSide * kEach + static_cast<int>(threadIdx.y);
  const int column0 = static_cast<int>(blockIdx.x) * kSide * kEach + static_cast<int>(threadIdx.x);
  // Beyond the edge the last row or column is read once more, and nothing is written.
  const In* a_rows[kEach];
  const In* b_columns[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int row = row0 + i * kSide, column = column0 + i * kSide;
    a_rows[i] = a + (row < M ? row : M - 1) * a_steps.row;
    b_columns[i] = b + (column < N ? column : N - 1) * b_steps.column;
  }
  float sum[kEach][kEach] = {};
  for (int64_t k = 0; k < K; ++k) {
    float x[kEach], y[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = ToFloat(a_rows[i][k * a_steps.column]);
      y[i] = ToFloat(b_columns[i][k * b_steps.row]);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) sum[i][j] += x[i] * y[j];
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int row = row0 + i * kSide;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int column = column0 + j * kSide;
      if (row >= M || column >= N) continue;
      Out* const to = c + int64_t{row} * c_stride + column;
      float value = sum[i][j];
      if (bias != nullptr) value += ToFloat(bias[column]);
      if (accumulate) value += ToFloat(*to);
      *to = FromFloat<Out>(value);
    }
  }
}

}  // namespace

// --- launcher ---

template <typename In, typename Out>
void PlainGemm(cudaStream_t stream, const In* a, Steps a_steps, const In* b, Steps b_steps, const In* bias, Out* c,
               int c_stride, bool accumulate, int M, int N, int K) {
  Launch(PlainGemmKernel<In, Out>, dim3(Blocks(N, kSide * kEach), Blocks(M, kSide * kEach)), dim3(kSide, kSide), 0,
         stream, a, a_steps, b, b_steps, bias, c, c_stride, accumulate, M, N, K);
}

template void PlainGemm(cudaStream_t, const float*, Steps, const float*, Steps, const float*, float*, int, bool, int,
                        int, int);
template void PlainGemm(cudaStream_t, const bf16*, Steps, const bf16*, Steps, const bf16*, bf16*, int, bool, int, int,
                        int);
template void PlainGemm(cudaStream_t, const bf16*, Steps, const bf16*, Steps, const bf16*, float*, int, bool, int, int,
                        int);

}  // namespace ablate::cuda
