// Statistics of the rows' weights (backend.h: AttentionStatistics), for either type: a block takes kRows queries of a
// head and sweeps their keys in tiles, once for what forward knows of a row (sum and largest of u; once more where a
// row lies in the tail of its activation), once for the shares. Products are of floats on the CUDA cores whatever the
// type: an entropy is wanted to 1e-5, and few windows are looked at. Must not know values, weights of other rows, or
// the backend.
#include "glog/logging.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/kernels_fp32.h"
#include "kernels/cuda/attention/recentre.h"
#include "kernels/cuda/attention/rows_fp32.h"
#include "kernels/cuda/attention/tiles_fp32.h"
#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace attention {
namespace {

template <int kWidthOf>
struct StatisticsTile {
  static constexpr int kWidth = kWidthOf, kRows = 64, kKeys = 32;
  static constexpr int kWarpRows = kRows / kWarps, kRowLanes = kWarpSize / kWarpRows;
  static constexpr int kStride = kWidth + kPad, kScoreStride = kKeys + kPad;
  static constexpr int kR = kWarpRows / 4, kC = kKeys / 8;
  static constexpr int kQ = 0, kK = kQ + kRows * kStride, kScores = kK + kKeys * kStride,
                       kFloats = kScores + kRows * kScoreStride;
  static constexpr size_t kBytes = kFloats * sizeof(float);
  static_assert(kBytes + sizeof(int) * kWarps <= kMostSharedBytes);
};

// `rows` rows of x (more become zero) as floats.
template <int kRows, int kWidth, class T>
__device__ __forceinline__ void LoadAsFloats(const T* x, int rows, int D, float* tile) {
  constexpr int kChunks = kWidth / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = 4 * (i % kChunks);
    float values[4] = {};
    if (row < rows && column < D) Load<4>(x + int64_t{row} * D + column, values);
    StoreFloat4(tile + row * (kWidth + kPad) + column, values);
  }
}

// Sums over a row of b = u / max u, or of b = y^p, both at most 1. In double from tile to tile.
struct Shares {
  double sum = 0, sum_log2 = 0;  // of b and of b log2 b
  float first = 0;               // b of position 0
  int zeros = 0;
};

// share(u) for the attended keys of a tile. threshold: u up to this have no weight.
template <int kColumns, int kLanes, class Phi, class Share>
__device__ __forceinline__ void MeetShares(Phi, const score::RowConst& row, float shift, float threshold,
                                           bool has_position_0, const TileRow& tile, Shares* shares, Share share) {
  float sum = 0, sum_log2 = 0;
  ForChunks<kColumns, kLanes>(tile, [&](int column) {
    float s[4];
    ShiftedScores(row, shift, tile, column, s);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (column + e < tile.low || column + e >= tile.high) continue;
      const float u = Phi::Value(s[e]), b = share(u);
      if (u <= threshold) ++shares->zeros;
      if (has_position_0 && column + e == 0) shares->first = b;
      sum += b;
      sum_log2 += b > 0 ? b * score::Log2(b) : b;  // a NaN stays
    }
  });
  shares->sum += static_cast<double>(sum);
  shares->sum_log2 += static_cast<double>(sum_log2);
}

template <class Tile, class T>
__global__ void __launch_bounds__(kThreads, 2)
    StatisticsKernel(Problem problem, int tiles, const T* q, const T* k, float* statistics) {
  constexpr int kRows = Tile::kRows, kKeys = Tile::kKeys, kWidth = Tile::kWidth, kWarpRows = Tile::kWarpRows,
                kRowLanes = Tile::kRowLanes, kScoreStride = Tile::kScoreStride;
  CUDA_DYNAMIC_SHARED(float, shared);
  CUDA_SHARED(int, again, [kWarps]);
  const int head = static_cast<int>(blockIdx.x) / tiles;
  // The rows with most keys first, as forward has them.
  const int first_row = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kRows;
  const int length = problem.T, D = problem.D, end_row = first_row + kRows < length ? first_row + kRows : length;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const int64_t head_at = static_cast<int64_t>(head) * length;
  q += (head_at + first_row) * D, k += head_at * D;

  const int warp_first = first_row + warp * kWarpRows;
  const int warp_end = warp_first + kWarpRows < length ? warp_first + kWarpRows : length;
  const int warp_low = FirstKey(problem, warp_first);
  const int first_tile = FirstKey(problem, first_row) / kKeys, last_tile = (end_row - 1) / kKeys;
  const int row_in_block = warp * kWarpRows + lane % kWarpRows, row = first_row + row_in_block;
  const bool has_row = row < length;
  const score::RowConst constants = RowOf(problem, head, has_row ? row : length - 1);
  TileRow tile_row = {.scores = shared + Tile::kScores + row_in_block * kScoreStride,
                      .gradients = nullptr,
                      .low = 0,
                      .high = 0,
                      .lane = lane / kWarpRows,
                      .distance = 0};

  // meet(first key) for every tile of keys, its products with the warp's rows in place.
  const auto for_tiles = [&](auto meet) {
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      const int key = tile * kKeys;
      __syncthreads();
      LoadAsFloats<kKeys, kWidth>(k + int64_t{key} * D, length - key, D, shared + Tile::kK);
      __syncthreads();
      if (warp_first >= warp_end || key >= warp_end || key + kKeys <= warp_low) continue;
      MultiplyTile<kWidth, kScoreStride, Tile::kR, Tile::kC>(shared + Tile::kQ + warp * kWarpRows * Tile::kStride,
                                                             shared + Tile::kK, D,
                                                             shared + Tile::kScores + warp * kWarpRows * kScoreStride);
      __syncwarp();
      SetBounds(key, FirstKey(problem, row), has_row ? row : -1, kKeys, &tile_row);
      tile_row.distance = static_cast<float>(row - key);
      meet(key);
    }
  };

  LoadAsFloats<kRows, kWidth>(q, length - first_row, D, shared + Tile::kQ);
  Activation activation = problem.activation;
  RunningRow running;
  bool shifted = false;
  for (bool sweep = true; sweep;) {
    running = RunningRow();
    shifted = IsShifted(problem, activation);
    for_tiles([&](int) { MeetKeys<kKeys, kRowLanes, false>(shifted, activation, constants, tile_row, &running); });
#pragma unroll
    for (int apart = kWarpSize / 2; apart >= kWarpRows; apart /= 2) {
      running.sum += __shfl_xor_sync(kFullMask, running.sum, apart);
      running.largest = score::Max(running.largest, __shfl_xor_sync(kFullMask, running.largest, apart));
    }
    if (shifted) running.largest = score::ExpActivation::Value(0.0f);
    const bool tail = has_row && activation == problem.activation && LiesInTail(problem, running.largest);
    if (tail) activation = Activation::kExp;
    const bool warp_wants = __any_sync(kFullMask, tail);
    if (lane == 0) again[warp] = warp_wants;
    __syncthreads();
    sweep = false;
    for (int w = 0; w < kWarps; ++w) sweep |= again[w] != 0;
  }

  const float shift = shifted ? running.shift : 0.0f;
  const score::RowStat stat = problem.config.sharpen
                                  ? score::SharpenedStat(constants, shift, running.sum, running.largest)
                                  : score::PlainStat(problem.config, constants, shift, running.sum);
  const bool sharpened = score::IsSharpened(problem.config, stat);
  const float inverse = 1.0f / running.largest;
  Shares shares;
  for_tiles([&](int key) {
    const bool has_position_0 = key == 0;
    score::VisitActivation(activation, [&](auto phi) {
      if (!sharpened) {
        MeetShares<kKeys, kRowLanes>(phi, constants, stat.shift, 0.0f, has_position_0, tile_row, &shares,
                                     [&](float u) { return u * inverse; });
        return;
      }
      score::VisitPower(problem.config.p, [&](auto power) {
        MeetShares<kKeys, kRowLanes>(phi, constants, stat.shift, stat.threshold, has_position_0, tile_row, &shares,
                                     [&](float u) {
                                       const float y = score::SharpenedY(stat, u);
                                       return y * decltype(power)::MinusOne(y, problem.config.p);
                                     });
      });
    });
  });
#pragma unroll
  for (int apart = kWarpSize / 2; apart >= kWarpRows; apart /= 2) {
    shares.sum += __shfl_xor_sync(kFullMask, shares.sum, apart);
    shares.sum_log2 += __shfl_xor_sync(kFullMask, shares.sum_log2, apart);
    shares.zeros += __shfl_xor_sync(kFullMask, shares.zeros, apart);
  }
  if (!has_row || lane >= kWarpRows) return;  // this lane has the row's first columns

  float* const to = statistics + (head_at + row) * kAttentionStatistics;
  const bool zero = stat.c == 0;
  const double scale = sharpened ? 1 / shares.sum : static_cast<double>(fabsf(stat.c)) * running.largest;
  constexpr double kLn2 = 0.6931471805599453;
  const double entropy = kLn2 * (log2(shares.sum) - shares.sum_log2 / shares.sum);
  const int keys = row - FirstKey(problem, row) + 1;
  to[kRowEntropy] = zero || entropy < 0 ? 0.0f : static_cast<float>(entropy);  // a NaN stays
  to[kRowLargest] = zero ? 0.0f : static_cast<float>(scale);
  to[kRowFirst] = zero ? 0.0f : static_cast<float>(shares.first * scale);
  to[kRowZeros] = zero ? 1.0f : static_cast<float>(shares.zeros) / static_cast<float>(keys);
  to[kRowKind] = zero ? 2.0f : stat.c < 0 ? 1.0f : 0.0f;
}

}  // namespace
}  // namespace attention

template <class T>
void AttentionStatistics(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape, const T* q,
                         const T* k, const float* learned_s, const float* learned_b, float* statistics,
                         void* workspace) {
  CHECK(SupportsHeadDim<T>(shape.D)) << "attention: head dimension " << shape.D;
  attention::Problem problem = attention::MakeProblem(spec, shape, learned_s, learned_b);
  problem.recentring = attention::ForwardRecentring(spec, workspace);
  if (problem.config.recentre) {
    attention::LaunchMeanKeys(stream, problem, q, k, nullptr, problem.recentring.mean_products);
  }
  attention::ForWidth(shape.D, [&](auto width) {
    using Tile = attention::StatisticsTile<decltype(width)::value>;
    const int tiles = static_cast<int>(CeilDiv(shape.T, Tile::kRows));
    Launch(attention::StatisticsKernel<Tile, T>, dim3(static_cast<unsigned>(shape.B * shape.H * tiles)),
           dim3(attention::kThreads), Tile::kBytes, stream, problem, tiles, q, k, statistics);
  });
}

template void AttentionStatistics<float>(cudaStream_t, const AttentionSpec&, const AttentionShape&, const float*,
                                         const float*, const float*, const float*, float*, void*);
template void AttentionStatistics<bf16>(cudaStream_t, const AttentionSpec&, const AttentionShape&, const bf16*,
                                        const bf16*, const float*, const float*, float*, void*);

}  // namespace ablate::cuda
