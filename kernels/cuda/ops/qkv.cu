// A group of lanes takes one head's part (q, k or v) of one row: each lane holds W elements of the lower half and the W
// that RoPE pairs with them in the upper one. Groups are powers of two of lanes, so that a warp's shuffles add up the
// norms of several heads at once.
#include "kernels/cuda/ops/qkv.h"

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kSmallestNorm = 1e-12f;

// Which head, part and row a group of lanes works on. `half` is rounded up: with an odd D (no rotation then) the upper
// half lacks its last element.
struct Place {
  __device__ Place(const HeadShape& shape, int64_t group) {
    const int H = shape.H, D = shape.D;
    const int64_t n = group / (3 * H);
    const int rest = static_cast<int>(group % (3 * H));
    part = rest / H;
    const int h = rest % H;
    const int64_t b = n / shape.T;
    t = static_cast<int>(n % shape.T);
    packed = (n * 3 + part) * (int64_t{H} * D) + int64_t{h} * D;
    head_row = (b * H + h) * shape.T + t;
  }
  int part;  // 0 q, 1 k, 2 v
  int t;
  int64_t packed;    // where the part begins in [N,3C]
  int64_t head_row;  // [B,H,T]
};

// low, high = x[i..], x[half + i..], zeros from D on.
template <int W, typename T>
__device__ __forceinline__ void LoadPair(const T* x, int i, int half, int D, float (&low)[W], float (&high)[W]) {
  Load<W>(x + i, low);
  if (W > 1 || half + i < D) {
    Load<W>(x + half + i, high);
  } else {
    high[0] = 0;
  }
}
template <int W, typename T>
__device__ __forceinline__ void StorePair(T* x, int i, int half, int D, const float (&low)[W], const float (&high)[W]) {
  Store<W>(x + i, low);
  if (W > 1 || half + i < D) Store<W>(x + half + i, high);
}

// Rotates by the angle, or back (direction -1).
template <int W>
__device__ __forceinline__ void Rotate(const float* cos, const float* sin, int i, float direction, float (&low)[W],
                                       float (&high)[W]) {
  float c[W], s[W];
  Load<W>(cos + i, c);
  Load<W>(sin + i, s);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float a = low[j], b = high[j], turn = direction * s[j];
    low[j] = a * c[j] - b * turn;
    high[j] = b * c[j] + a * turn;
  }
}

// Over the lanes of one group; all lanes of the warp must call.
__device__ __forceinline__ float GroupSum(float x, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kFullMask, x, mask);
  return x;
}

// --- kernels ---

// qkv [N,3C] -> q, k, v [B,H,T,D]; cos, sin [T,D/2] or null.
template <int W, typename T>
__global__ void QkvForwardKernel(const T* qkv, const float* cos, const float* sin, bool normalise, T* q, T* k, T* v,
                                 float* q_norm, float* k_norm, HeadShape shape, int64_t groups, int lanes) {
  const int64_t group = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool inside = group < groups;
  const Place place(shape, inside ? group : 0);
  const int D = shape.D, half = (D + 1) / 2;
  const bool rotate = cos != nullptr && place.part < 2;
  const float* const c = rotate ? cos + int64_t{place.t} * half : nullptr;
  const float* const s = rotate ? sin + int64_t{place.t} * half : nullptr;
  const T* const from = qkv + place.packed;
  T* const to = (place.part == 0 ? q : place.part == 1 ? k : v) + place.head_row * D;
  float scale = 1;
  if (normalise) {
    // Of the rotated values, as the CPU has it; they are found again below, from the cache.
    float squares = 0;
    if (inside && place.part < 2) {
      for (int i = lane * W; i < half; i += lanes * W) {
        float low[W], high[W];
        LoadPair<W>(from, i, half, D, low, high);
        if (rotate) Rotate<W>(c, s, i, 1.0f, low, high);
#pragma unroll
        for (int j = 0; j < W; ++j) squares += low[j] * low[j] + high[j] * high[j];
      }
    }
    const float norm = fmaxf(sqrtf(GroupSum(squares, lanes)), kSmallestNorm);
    if (inside && place.part < 2) {
      scale = 1.0f / norm;
      if (lane == 0) (place.part == 0 ? q_norm : k_norm)[place.head_row] = norm;
    }
  }
  if (!inside) return;
  for (int i = lane * W; i < half; i += lanes * W) {
    float low[W], high[W];
    LoadPair<W>(from, i, half, D, low, high);
    if (rotate) Rotate<W>(c, s, i, 1.0f, low, high);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      low[j] *= scale;
      high[j] *= scale;
    }
    StorePair<W>(to, i, half, D, low, high);
  }
}

// The transpose: (d - q (q . d)) / norm (d / norm where the norm was at its floor), then rotated back.
template <int W, typename T>
__global__ void QkvBackwardKernel(const T* dq, const T* dk, const T* dv, const T* q, const T* k, const float* cos,
                                  const float* sin, bool normalise, const float* q_norm, const float* k_norm, T* dqkv,
                                  HeadShape shape, int64_t groups, int lanes) {
  const int64_t group = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool inside = group < groups;
  const Place place(shape, inside ? group : 0);
  const int D = shape.D, half = (D + 1) / 2;
  const bool rotate = cos != nullptr && place.part < 2;
  const float* const c = rotate ? cos + int64_t{place.t} * half : nullptr;
  const float* const s = rotate ? sin + int64_t{place.t} * half : nullptr;
  const T* const from = (place.part == 0 ? dq : place.part == 1 ? dk : dv) + place.head_row * D;
  const T* const unit = (place.part == 0 ? q : k) + place.head_row * D;
  T* const to = dqkv + place.packed;
  float along = 0, scale = 1;
  bool project = false;
  if (normalise) {
    float dot = 0;
    if (inside && place.part < 2) {
      const float norm = (place.part == 0 ? q_norm : k_norm)[place.head_row];
      scale = 1.0f / norm;
      project = norm > kSmallestNorm;
      for (int i = lane * W; i < half; i += lanes * W) {
        float low[W], high[W], unit_low[W], unit_high[W];
        LoadPair<W>(from, i, half, D, low, high);
        LoadPair<W>(unit, i, half, D, unit_low, unit_high);
#pragma unroll
        for (int j = 0; j < W; ++j) dot += low[j] * unit_low[j] + high[j] * unit_high[j];
      }
    }
    dot = GroupSum(dot, lanes);
    if (project) along = dot;
  }
  if (!inside) return;
  for (int i = lane * W; i < half; i += lanes * W) {
    float low[W], high[W];
    LoadPair<W>(from, i, half, D, low, high);
    if (project) {
      float unit_low[W], unit_high[W];
      LoadPair<W>(unit, i, half, D, unit_low, unit_high);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        low[j] -= along * unit_low[j];
        high[j] -= along * unit_high[j];
      }
    }
#pragma unroll
    for (int j = 0; j < W; ++j) {
      low[j] *= scale;
      high[j] *= scale;
    }
    if (rotate) Rotate<W>(c, s, i, -1.0f, low, high);
    StorePair<W>(to, i, half, D, low, high);
  }
}

// --- launchers ---

// Lanes that share a half of `half` elements, W each.
int GroupLanes(int half, int W) {
  int lanes = 1;
  while (lanes < kWarp && lanes * W < half) lanes *= 2;
  return lanes;
}

// Do both halves of every head, and every row of the tables, begin at multiples of W?
bool Even(const HeadShape& shape, int W) { return shape.D % (2 * W) == 0; }

}  // namespace

template <typename T>
void QkvForward(cudaStream_t stream, const T* qkv, const float* cos, const float* sin, bool normalise, T* q, T* k, T* v,
                float* q_norm, float* k_norm, const HeadShape& shape) {
  constexpr int W = kVector<T>;
  const int64_t groups = int64_t{shape.B} * shape.T * 3 * shape.H;
  const int half = (shape.D + 1) / 2;
  if (Even(shape, W) && Aligned<W>(qkv, cos, sin, q, k, v)) {
    const int lanes = GroupLanes(half, W);
    Launch(QkvForwardKernel<W, T>, Blocks(groups * lanes, kThreads), kThreads, 0, stream, qkv, cos, sin, normalise, q,
           k, v, q_norm, k_norm, shape, groups, lanes);
  } else {
    const int lanes = GroupLanes(half, 1);
    Launch(QkvForwardKernel<1, T>, Blocks(groups * lanes, kThreads), kThreads, 0, stream, qkv, cos, sin, normalise, q,
           k, v, q_norm, k_norm, shape, groups, lanes);
  }
}

template <typename T>
void QkvBackward(cudaStream_t stream, const T* dq, const T* dk, const T* dv, const T* q, const T* k, const float* cos,
                 const float* sin, bool normalise, const float* q_norm, const float* k_norm, T* dqkv,
                 const HeadShape& shape) {
  constexpr int W = kVector<T>;
  const int64_t groups = int64_t{shape.B} * shape.T * 3 * shape.H;
  const int half = (shape.D + 1) / 2;
  if (Even(shape, W) && Aligned<W>(dq, dk, dv, q, k, cos, sin, dqkv)) {
    const int lanes = GroupLanes(half, W);
    Launch(QkvBackwardKernel<W, T>, Blocks(groups * lanes, kThreads), kThreads, 0, stream, dq, dk, dv, q, k, cos, sin,
           normalise, q_norm, k_norm, dqkv, shape, groups, lanes);
  } else {
    const int lanes = GroupLanes(half, 1);
    Launch(QkvBackwardKernel<1, T>, Blocks(groups * lanes, kThreads), kThreads, 0, stream, dq, dk, dv, q, k, cos, sin,
           normalise, q_norm, k_norm, dqkv, shape, groups, lanes);
  }
}

template void QkvForward<float>(cudaStream_t, const float*, const float*, const float*, bool, float*, float*, float*,
                                float*, float*, const HeadShape&);
template void QkvForward<bf16>(cudaStream_t, const bf16*, const float*, const float*, bool, bf16*, bf16*, bf16*, float*,
                               float*, const HeadShape&);
template void QkvBackward<float>(cudaStream_t, const float*, const float*, const float*, const float*, const float*,
                                 const float*, const float*, bool, const float*, const float*, float*,
                                 const HeadShape&);
template void QkvBackward<bf16>(cudaStream_t, const bf16*, const bf16*, const bf16*, const bf16*, const bf16*,
                                const float*, const float*, bool, const float*, const float*, bf16*, const HeadShape&);

}  // namespace ablate::cuda
