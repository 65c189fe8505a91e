// Two kernels a position. Scores: blocks of kBlockKeys keys of a head, 8 lanes a key, so that a few long sequences fill
// a device too; rows of the cache become rotated unit keys on the way. Row: a block a head makes weights of the scores
// (in place, in the workspace) and adds up the values.
#include "kernels/cuda/attention/decode.h"

#include <cfloat>
#include <type_traits>

#include "glog/logging.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/problem.h"
#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

using attention::Problem;

constexpr int kScoreThreads = 128, kKeyLanes = 8, kBlockKeys = 128;
constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarpSize;
constexpr int kMostD = 128;
constexpr float kSmallestNorm = 1e-12f;  // as QkvForward has it

// What both kernels are given.
template <class T>
struct Decode {
  Problem problem;  // T: the most keys, and the stride of the scores
  int capacity;
  const int32_t* lengths;  // [B], null: problem.T
  const T* qkv;            // [B,3C]
  const float* cos;        // [T,D/2], null: no rotation
  const float* sin;
  bool normalise;
  T* keys;  // [B,H,capacity,D]
  T* values;
  T* out;         // [B,C]
  float* scores;  // [B,H,T]
};

template <class T>
__device__ __forceinline__ int Keys(const Decode<T>& call, int head) {
  return call.lengths != nullptr ? call.lengths[head / call.problem.H] : call.problem.T;
}
// The head's query (part 0), key (1) or value (2) among the new projections.
template <class T>
__device__ __forceinline__ const T* Part(const Decode<T>& call, int head, int part) {
  const int H = call.problem.H, D = call.problem.D;
  return call.qkv + (static_cast<int64_t>(head / H) * 3 + part) * H * D + head % H * D;
}

template <int W, class T>
__device__ __forceinline__ void RoundTo(float (&x)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) x[i] = ToFloat(FromFloat<T>(x[i]));
}

// Elements [i, i + W) of both halves of a vector, turned by the angles of `position`.
template <int W, class T>
__device__ __forceinline__ void LoadTurned(const Decode<T>& call, const T* x, int position, int i, float (&low)[W],
                                           float (&high)[W]) {
  const int half = call.problem.D / 2;
  Load<W>(x + i, low);
  Load<W>(x + half + i, high);
  if (call.cos == nullptr) return;
  float c[W], s[W];
  Load<W>(call.cos + static_cast<int64_t>(position) * half + i, c);
  Load<W>(call.sin + static_cast<int64_t>(position) * half + i, s);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float a = low[j], b = high[j];
    low[j] = a * c[j] - b * s[j];
    high[j] = b * c[j] + a * s[j];
  }
}

// One over the norm of the turned vector, from kLanes lanes (this one: `lane`); 1 where nothing is normalised. All lanes
// of the warp must call; inside: whether this one's group has a vector.
template <int kLanes, int W, class T>
__device__ __forceinline__ float InverseNorm(const Decode<T>& call, const T* x, int position, int lane, bool inside) {
  if (!call.normalise) return 1;
  float squares = 0;
  for (int i = lane * W; inside && i < call.problem.D / 2; i += kLanes * W) {
    float low[W], high[W];
    LoadTurned<W>(call, x, position, i, low, high);
#pragma unroll
    for (int j = 0; j < W; ++j) squares += low[j] * low[j] + high[j] * high[j];
  }
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) squares += __shfl_xor_sync(kFullMask, squares, apart);
  return 1.0f / fmaxf(sqrtf(squares), kSmallestNorm);
}

// --- kernels ---

// scores[head, j] = q . k_j; the block that has the new key appends it and its value to the cache.
template <int W, class T>
__global__ void __launch_bounds__(kScoreThreads) DecodeScoresKernel(Decode<T> call, int blocks) {
  CUDA_SHARED(float, query, [kMostD]);
  const int head = static_cast<int>(blockIdx.x) / blocks, first = static_cast<int>(blockIdx.x) % blocks * kBlockKeys;
  const int D = call.problem.D, half = D / 2, n = Keys(call, head);
  const int low_key = attention::FirstKey(call.problem, n - 1);
  if (first >= n || first + kBlockKeys <= low_key) return;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t cache = static_cast<int64_t>(head) * call.capacity * D;
  const T* const new_key = Part(call, head, 1);
  if (n - 1 < first + kBlockKeys) {
    const T* const new_value = Part(call, head, 2);
    for (int d = thread; d < D; d += kScoreThreads) {
      call.keys[cache + static_cast<int64_t>(n - 1) * D + d] = new_key[d];
      call.values[cache + static_cast<int64_t>(n - 1) * D + d] = new_value[d];
    }
  }
  if (thread < kWarpSize) {
    const T* const x = Part(call, head, 0);
    const float inverse = InverseNorm<kWarpSize, W>(call, x, n - 1, thread, true);
    for (int i = thread * W; i < half; i += kWarpSize * W) {
      float low[W], high[W];
      LoadTurned<W>(call, x, n - 1, i, low, high);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        query[i + j] = ToFloat(FromFloat<T>(low[j] * inverse));
        query[half + i + j] = ToFloat(FromFloat<T>(high[j] * inverse));
      }
    }
  }
  __syncthreads();
  const int lane = thread % kKeyLanes;
  for (int in_block = thread / kKeyLanes; in_block < kBlockKeys; in_block += kScoreThreads / kKeyLanes) {
    const int key = first + in_block;
    const bool inside = key >= low_key && key < n;
    // Not from the cache: other threads are writing it there.
    const T* const x = key == n - 1 ? new_key : call.keys + cache + static_cast<int64_t>(key) * D;
    const float inverse = InverseNorm<kKeyLanes, W>(call, x, key, lane, inside);
    float product = 0;
    for (int i = lane * W; inside && i < half; i += kKeyLanes * W) {
      float low[W], high[W];
      LoadTurned<W>(call, x, key, i, low, high);
#pragma unroll
      for (int j = 0; j < W; ++j) low[j] *= inverse, high[j] *= inverse;
      RoundTo<W, T>(low);
      RoundTo<W, T>(high);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        product = score::MulAdd(query[i + j], low[j], product);
        product = score::MulAdd(query[half + i + j], high[j], product);
      }
    }
#pragma unroll
    for (int apart = kKeyLanes / 2; apart > 0; apart /= 2) product += __shfl_xor_sync(kFullMask, product, apart);
    if (inside && lane == 0) call.scores[static_cast<int64_t>(head) * call.problem.T + key] = product;
  }
}

// The sum, and the largest, over the threads of a block, the same bits in each of them. `parts` is free again after the
// call.
__device__ __forceinline__ float BlockSum(float x, float* parts) {
  x = WarpSum(x);
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < kRowWarps; ++w) x += parts[w];
  __syncthreads();
  return x;
}
__device__ __forceinline__ float BlockMax(float x, float* parts) {
#pragma unroll
  for (int apart = kWarpSize / 2; apart > 0; apart /= 2) x = score::Max(x, __shfl_xor_sync(kFullMask, x, apart));
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < kRowWarps; ++w) x = score::Max(x, parts[w]);
  __syncthreads();
  return x;
}

// scores[head, :] -> weights, in place; out = sum of weights times values. kValueLanes threads have a vector of W
// elements of a value each.
template <int W, class T>
__global__ void __launch_bounds__(kRowThreads) DecodeRowKernel(Decode<T> call) {
  CUDA_SHARED(float, parts, [kRowWarps]);
  CUDA_SHARED(float, sums, [kRowThreads * W]);
  const Problem& problem = call.problem;
  const int head = static_cast<int>(blockIdx.x), D = problem.D, n = Keys(call, head), thread = threadIdx.x;
  const int low = attention::FirstKey(problem, n - 1);
  float* const scores = call.scores + static_cast<int64_t>(head) * problem.T;
  score::RowConst row = attention::RowOf(problem, head, n - 1);
  if (problem.config.recentre) {
    float products = 0;
    for (int key = low + thread; key < n; key += kRowThreads) products += scores[key];
    row = score::Recentred(row, n - low, BlockSum(products, parts) / static_cast<float>(n - low));
  }
  const auto score_of = [&](int key) {
    return score::AlibiScore(row, scores[key], static_cast<float>(n - 1 - key));
  };
  const auto largest_score = [&] {
    float largest = -FLT_MAX;
    for (int key = low + thread; key < n; key += kRowThreads) largest = score::Max(largest, score_of(key));
    return BlockMax(largest, parts);
  };
  float shift = 0, sum = 0, largest = 0;
  const auto sum_up = [&](Activation activation) {
    shift = attention::IsShifted(problem, activation) ? largest_score() : 0.0f;
    sum = 0, largest = 0;
    score::VisitActivation(activation, [&](auto phi) {
      for (int key = low + thread; key < n; key += kRowThreads) {
        const float u = decltype(phi)::Value(score_of(key) - shift);
        sum += u;
        largest = score::Max(largest, u);
      }
    });
    sum = BlockSum(sum, parts);
    largest = BlockMax(largest, parts);
  };
  Activation activation = problem.activation;
  sum_up(activation);
  if (attention::LiesInTail(problem, largest)) {
    activation = Activation::kExp;
    sum_up(activation);
  }

  score::RowStat stat = problem.config.sharpen ? score::SharpenedStat(row, shift, sum, largest)
                                               : score::PlainStat(problem.config, row, shift, sum);
  const bool sharpened = score::IsSharpened(problem.config, stat);
  float weights = 0;
  score::VisitActivation(activation, [&](auto phi) {
    if (!sharpened) {
      for (int key = low + thread; key < n; key += kRowThreads) scores[key] = decltype(phi)::Value(score_of(key) - shift);
      return;
    }
    score::VisitPower(problem.config.p, [&](auto power) {
      for (int key = low + thread; key < n; key += kRowThreads) {
        const float weight = score::UnscaledWeight<decltype(power)>(problem.config, stat,
                                                                    decltype(phi)::Value(score_of(key) - shift));
        weights += weight;
        scores[key] = weight;
      }
    });
  });
  weights = BlockSum(weights, parts);  // also: every weight is there
  if (sharpened) stat.c = 1.0f / weights;

  const int lanes = D / W, groups = kRowThreads / lanes, group = thread / lanes, column = thread % lanes * W;
  float mine[W] = {};
  if (group < groups) {
    const T* const values = call.values + static_cast<int64_t>(head) * call.capacity * D + column;
    for (int key = low + group; key < n; key += groups) {
      const float weight = scores[key];
      if (weight == 0) continue;
      float value[W];
      Load<W>(values + static_cast<int64_t>(key) * D, value);
#pragma unroll
      for (int j = 0; j < W; ++j) mine[j] = score::MulAdd(weight, value[j], mine[j]);
    }
#pragma unroll
    for (int j = 0; j < W; ++j) sums[group * D + column + j] = mine[j];
  }
  __syncthreads();
  const float scale = fabsf(stat.c);
  T* const out = call.out + static_cast<int64_t>(head) * D;
  for (int d = thread; d < D; d += kRowThreads) {
    float total = 0;
    for (int g = 0; g < groups; ++g) total += sums[g * D + d];
    out[d] = FromFloat<T>(total * scale);
  }
}

// Rows [0, T) of keys and values [B,H,capacity,D] from qkv [B*T,3C]; `vectors` of W elements each.
template <int W, class T>
__global__ void CacheKernel(const T* qkv, T* keys, T* values, int length, int H, int D, int capacity, int64_t vectors) {
  const int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (i >= vectors) return;
  const int per_row = H * D / W, column = static_cast<int>(i % per_row) * W, h = column / D;
  const int64_t row = i / per_row, b = row / length, t = row % length;
  const T* const from = qkv + row * 3 * H * D + column;
  const int64_t to = ((b * H + h) * capacity + t) * D + column % D;
  float x[W];
  Load<W>(from + int64_t{H} * D, x);
  Store<W>(keys + to, x);
  Load<W>(from + 2 * int64_t{H} * D, x);
  Store<W>(values + to, x);
}

// --- launchers ---

template <int W, class T>
void Launched(cudaStream_t stream, const Decode<T>& call) {
  const int heads = call.problem.B * call.problem.H, blocks = static_cast<int>(CeilDiv(call.problem.T, kBlockKeys));
  Launch(DecodeScoresKernel<W, T>, dim3(static_cast<unsigned>(heads * blocks)), dim3(kScoreThreads), 0, stream, call,
         blocks);
  // A head is a whole number of vectors of 4, whatever its halves are.
  Launch(DecodeRowKernel<4, T>, dim3(static_cast<unsigned>(heads)), dim3(kRowThreads), 0, stream, call);
}

}  // namespace

template <class T>
void CacheKeyValue(cudaStream_t stream, const T* qkv, T* keys, T* values, const AttentionShape& shape, int capacity) {
  CHECK(shape.T <= capacity) << "a cache of " << capacity << " positions is given " << shape.T;
  const int64_t elements = int64_t{shape.B} * shape.T * shape.H * shape.D;
  constexpr int W = kVector<T>;
  if (shape.D % W == 0 && Aligned<W>(qkv, keys, values)) {
    Launch(CacheKernel<W, T>, Blocks(elements / W, kRowThreads), kRowThreads, 0, stream, qkv, keys, values, shape.T,
           shape.H, shape.D, capacity, elements / W);
  } else {
    Launch(CacheKernel<1, T>, Blocks(elements, kRowThreads), kRowThreads, 0, stream, qkv, keys, values, shape.T,
           shape.H, shape.D, capacity, elements);
  }
}

int64_t AttentionDecodeWorkspaceBytes(const AttentionShape& shape) {
  return int64_t{shape.B} * shape.H * shape.T * static_cast<int64_t>(sizeof(float));
}

template <class T>
void AttentionDecode(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, int capacity,
                     const int32_t* lengths, const T* qkv, const float* cos, const float* sin, const float* learned_s,
                     const float* learned_b, T* keys, T* values, T* out, void* workspace) {
  CHECK(SupportsHeadDim<T>(shape.D)) << "attention: head dimension " << shape.D;
  CHECK(shape.T <= capacity) << "a cache of " << capacity << " positions is given " << shape.T;
  Decode<T> call{};
  call.problem = attention::MakeProblem(spec, shape, learned_s, learned_b);
  call.capacity = capacity;
  call.lengths = lengths;
  call.qkv = qkv;
  call.cos = cos;
  call.sin = sin;
  call.normalise = spec.qk_norm == QkNorm::kL2;
  call.keys = keys;
  call.values = values;
  call.out = out;
  call.scores = static_cast<float*>(workspace);
  // Of bf16 heads a half is a multiple of 4, of float ones perhaps of 2 only.
  if constexpr (std::is_same_v<T, float>) {
    if (shape.D % 8 != 0) return Launched<2>(stream, call);
  }
  Launched<4>(stream, call);
}

template void CacheKeyValue<float>(cudaStream_t, const float*, float*, float*, const AttentionShape&, int);
template void CacheKeyValue<bf16>(cudaStream_t, const bf16*, bf16*, bf16*, const AttentionShape&, int);
template void AttentionDecode<float>(cudaStream_t, const AttentionSpec&, const AttentionShape&, int, const int32_t*,
                                     const float*, const float*, const float*, const float*, const float*, float*,
                                     float*, float*, void*);
template void AttentionDecode<bf16>(cudaStream_t, const AttentionSpec&, const AttentionShape&, int, const int32_t*,
                                    const bf16*, const float*, const float*, const float*, const float*, bf16*, bf16*,
                                    bf16*, void*);

}  // namespace ablate::cuda
