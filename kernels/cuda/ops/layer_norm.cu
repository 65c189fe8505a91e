// Layer norm. Forward: a warp a row. Backward: a block takes a run of rows; its warps find the two means of a row each,
// then its threads take a column each, write dx and add up dw and db, whose sums over blocks are taken in order by a
// second kernel. How rows are cut depends on N alone, so equal inputs give equal bits.
#include "kernels/cuda/ops/layer_norm.h"

#include "kernels/cuda/ops/columns.h"
#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr float kEps = 1e-5f;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Blocks of the backward kernel, at most: what their partial sums write is a few percent of what they read.
constexpr int kMostBlocks = 1024;
// Sums of dw and db of a block lie in shared memory up to this, in global memory above.
constexpr int64_t kSharedSumBytes = 48 << 10;

int RowsPerBlock(int N) { return static_cast<int>(CeilDiv(CeilDiv(N, kMostBlocks), kWarps)) * kWarps; }

// --- kernels ---

// x, out [N,C]; w, b [C]; mean, rstd [N]. The mean first, then the squares around it: a mean far from zero costs the
// variance no digits. The second and third reading of a row come from the L1 cache.
template <int W, typename T>
__global__ void LayerNormForwardKernel(const T* x, const float* w, const float* b, T* out, float* mean, float* rstd,
                                       int N, int C) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= N) return;
  const T* x_row = x + row * C;
  T* out_row = out + row * C;
  float v[W];
  float sum = 0;
  for (int i = lane * W; i < C; i += kWarp * W) {
    Load<W>(x_row + i, v);
#pragma unroll
    for (int j = 0; j < W; ++j) sum += v[j];
  }
  const float mu = WarpSum(sum) / static_cast<float>(C);
  float squares = 0;
  for (int i = lane * W; i < C; i += kWarp * W) {
    Load<W>(x_row + i, v);
#pragma unroll
    for (int j = 0; j < W; ++j) squares += (v[j] - mu) * (v[j] - mu);
  }
  const float r = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(C) + kEps);
  if (lane == 0) {
    mean[row] = mu;
    rstd[row] = r;
  }
  for (int i = lane * W; i < C; i += kWarp * W) {
    float scale[W], shift[W];
    Load<W>(x_row + i, v);
    Load<W>(w + i, scale);
    Load<W>(b + i, shift);
#pragma unroll
    for (int j = 0; j < W; ++j) v[j] = (v[j] - mu) * r * scale[j] + shift[j];
    Store<W>(out_row + i, v);
  }
}

// With xhat = (x - mean) rstd and g = dout w:  dx += rstd (g - mean(g) - xhat mean(g xhat)), dw += dout xhat,
// db += dout. dout, x, dx [N,C]; partials [blocks][2][C]: the sums of dw and db over a block's rows.
template <int W, bool kShared, typename T>
__global__ void LayerNormBackwardKernel(const T* dout, const T* x, const float* w, const float* mean, const float* rstd,
                                        T* dx, float* partials, int N, int C, int rows_per_block) {
  CUDA_SHARED(float, row_mean, [kWarps]);
  CUDA_SHARED(float, row_rstd, [kWarps]);
  CUDA_SHARED(float, row_mean_g, [kWarps]);
  CUDA_SHARED(float, row_slope, [kWarps]);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  float* const block_partials = partials + int64_t{blockIdx.x} * 2 * C;
  // Every element of the sums belongs to one thread, which alone reads and writes it.
  float* sum_w = block_partials;
  if constexpr (kShared) {
    CUDA_DYNAMIC_SHARED(float, shared_sums);
    sum_w = shared_sums;
  }
  float* const sum_b = sum_w + C;
  for (int i = threadIdx.x * W; i < C; i += kThreads * W) {
#pragma unroll
    for (int j = 0; j < W; ++j) sum_w[i + j] = sum_b[i + j] = 0;
  }
  const int64_t first = int64_t{blockIdx.x} * rows_per_block;
  const int64_t last = first + rows_per_block < N ? first + rows_per_block : N;
  for (int64_t group = first; group < last; group += kWarps) {
    const int64_t row = group + warp;
    if (row < last) {
      const float mu = mean[row], r = rstd[row];
      float sum = 0, dot = 0;
      for (int i = lane * W; i < C; i += kWarp * W) {
        float d[W], v[W], scale[W];
        Load<W>(dout + row * C + i, d);
        Load<W>(x + row * C + i, v);
        Load<W>(w + i, scale);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          const float g = d[j] * scale[j];
          sum += g;
          dot += g * (v[j] - mu);
        }
      }
      sum = WarpSum(sum);
      dot = WarpSum(dot);
      if (lane == 0) {
        row_mean[warp] = mu;
        row_rstd[warp] = r;
        row_mean_g[warp] = sum / static_cast<float>(C);
        row_slope[warp] = dot * r * r / static_cast<float>(C);
      }
    }
    __syncthreads();
    const int rows = last - group < kWarps ? static_cast<int>(last - group) : kWarps;
    for (int i = threadIdx.x * W; i < C; i += kThreads * W) {
      float scale[W], add_w[W] = {}, add_b[W] = {};
      Load<W>(w + i, scale);
#pragma unroll 4
      for (int r = 0; r < rows; ++r) {
        const int64_t at = (group + r) * C + i;
        float d[W], v[W], grad[W];
        Load<W>(dout + at, d);
        Load<W>(x + at, v);
        Load<W>(dx + at, grad);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          const float centred = v[j] - row_mean[r];
          grad[j] += row_rstd[r] * (d[j] * scale[j] - row_mean_g[r] - centred * row_slope[r]);
          add_w[j] += d[j] * centred * row_rstd[r];
          add_b[j] += d[j];
        }
        Store<W>(dx + at, grad);
      }
#pragma unroll
      for (int j = 0; j < W; ++j) {
        sum_w[i + j] += add_w[j];
        sum_b[i + j] += add_b[j];
      }
    }
    __syncthreads();  // the next rows' means go where these lie
  }
  if constexpr (kShared) {
    for (int i = threadIdx.x * W; i < C; i += kThreads * W) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        block_partials[i + j] = sum_w[i + j];
        block_partials[C + i + j] = sum_b[i + j];
      }
    }
  }
}

// --- launchers ---

template <int W, bool kShared, typename T>
void LaunchBackward(cudaStream_t stream, const T* dout, const T* x, const float* w, const float* mean,
                    const float* rstd, T* dx, float* partials, int N, int C) {
  const int rows = RowsPerBlock(N);
  Launch(LayerNormBackwardKernel<W, kShared, T>, Blocks(N, rows), kThreads, kShared ? sizeof(float) * 2 * C : 0, stream,
         dout, x, w, mean, rstd, dx, partials, N, C, rows);
}

}  // namespace

template <typename T>
void LayerNormForward(cudaStream_t stream, const T* x, const float* w, const float* b, T* out, float* mean, float* rstd,
                      int N, int C) {
  constexpr int W = kVector<T>;
  if (C % W == 0 && Aligned<W>(x, w, b, out)) {
    Launch(LayerNormForwardKernel<W, T>, Blocks(N, kWarps), kThreads, 0, stream, x, w, b, out, mean, rstd, N, C);
  } else {
    Launch(LayerNormForwardKernel<1, T>, Blocks(N, kWarps), kThreads, 0, stream, x, w, b, out, mean, rstd, N, C);
  }
}

int64_t LayerNormPartialFloats(int N, int C) { return CeilDiv(N, RowsPerBlock(N)) * 2 * C; }

template <typename T>
void LayerNormBackward(cudaStream_t stream, const T* dout, const T* x, const float* w, const float* mean,
                       const float* rstd, T* dx, float* dw, float* db, float* partials, int N, int C) {
  // Four columns a thread, for bf16 too: with eight, a width of 768 would leave five threads of eight idle.
  constexpr int W = 4;
  const bool shared = int64_t{2} * C * static_cast<int64_t>(sizeof(float)) <= kSharedSumBytes;
  if (C % W == 0 && Aligned<W>(dout, x, w, dx)) {
    if (shared) {
      LaunchBackward<W, true>(stream, dout, x, w, mean, rstd, dx, partials, N, C);
    } else {
      LaunchBackward<W, false>(stream, dout, x, w, mean, rstd, dx, partials, N, C);
    }
  } else if (shared) {
    LaunchBackward<1, true>(stream, dout, x, w, mean, rstd, dx, partials, N, C);
  } else {
    LaunchBackward<1, false>(stream, dout, x, w, mean, rstd, dx, partials, N, C);
  }
  const int blocks = static_cast<int>(CeilDiv(N, RowsPerBlock(N)));
  AddColumns(stream, partials, blocks, int64_t{2} * C, C, dw);
  AddColumns(stream, partials + C, blocks, int64_t{2} * C, C, db);
}

template void LayerNormForward<float>(cudaStream_t, const float*, const float*, const float*, float*, float*, float*,
                                      int, int);
template void LayerNormForward<bf16>(cudaStream_t, const bf16*, const float*, const float*, bf16*, float*, float*, int,
                                     int);
template void LayerNormBackward<float>(cudaStream_t, const float*, const float*, const float*, const float*,
                                       const float*, float*, float*, float*, float*, int, int);
template void LayerNormBackward<bf16>(cudaStream_t, const bf16*, const bf16*, const float*, const float*, const float*,
                                      bf16*, float*, float*, float*, int, int);

}  // namespace ablate::cuda
