// Forward in float: a block takes kRows queries of a head and sweeps their keys in tiles; once, or twice for a
// sharpened member (statistics, then weights), and once more where a row turns out to lie in the tail of its
// activation.
//
// A warp owns kRows / 4 rows in all three steps of a tile (products q.k, weights, products with v), so that only the
// tiles of keys and values are between warps. The next tiles are on their way while the present ones are used.
#include "kernels/cuda/attention/kernels_fp32.h"
#include "kernels/cuda/attention/rows_fp32.h"
#include "kernels/cuda/attention/tiles_fp32.h"

namespace ablate::cuda::attention {
namespace {

template <int kWidthOf>
struct ForwardTile {
  static constexpr int kWidth = kWidthOf;
  static constexpr int kRows = kWidth <= 64 ? 128 : 64, kKeys = kWidth <= 32 ? 64 : kWidth <= 64 ? 56 : 32;
  static constexpr int kWarpRows = kRows / kWarps, kRowLanes = kWarpSize / kWarpRows;
  static constexpr int kStride = kWidth + kPad, kScoreStride = kKeys + kPad;
  // Per lane: rows lane / 8 + 4 r; keys lane % 8 + 8 c of scores; columns 4 (lane % 8 + 8 c) of the output.
  static constexpr int kR = kWarpRows / 4, kC = kKeys / 8, kOut = kWidth / 8;
  static constexpr int kQ = 0, kK = kQ + kRows * kStride, kV = kK + kKeys * kStride, kScores = kV + kKeys * kStride,
                       kFactors = kScores + kRows * kScoreStride, kFloats = kFactors + kRows;
  static constexpr size_t kBytes = kFloats * sizeof(float);
  static_assert(kBytes + sizeof(int) * kWarps <= kMostSharedBytes);
};

template <class Tile>
__global__ void __launch_bounds__(kThreads, 2)
    ForwardKernel(Problem problem, int tiles, const float* q, const float* k, const float* v, float* out,
                  float* row_stats, unsigned long long* counts) {
  constexpr int kRows = Tile::kRows, kKeys = Tile::kKeys, kWidth = Tile::kWidth, kWarpRows = Tile::kWarpRows,
                kRowLanes = Tile::kRowLanes, kStride = Tile::kStride, kScoreStride = Tile::kScoreStride;
  CUDA_DYNAMIC_SHARED(float, shared);
  CUDA_SHARED(int, again, [kWarps]);
  float* const k_tile = shared + Tile::kK;
  float* const v_tile = shared + Tile::kV;

  const int head = static_cast<int>(blockIdx.x) / tiles;
  // The rows with most keys first: the last blocks to start are short.
  const int first_row = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kRows;
  const int T = problem.T, D = problem.D, end_row = first_row + kRows < T ? first_row + kRows : T;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const int64_t head_at = static_cast<int64_t>(head) * T;
  q += (head_at + first_row) * D, k += head_at * D, v += head_at * D;

  const int warp_first = first_row + warp * kWarpRows;
  const int warp_end = warp_first + kWarpRows < T ? warp_first + kWarpRows : T;  // warp_first or less: no rows
  const int warp_low = FirstKey(problem, warp_first);
  const int first_tile = FirstKey(problem, first_row) / kKeys, last_tile = (end_row - 1) / kKeys;

  // This thread makes the weights of one row (with kRowLanes - 1 others) and, in products, takes part in kR.
  const int row_in_block = warp * kWarpRows + lane % kWarpRows, row = first_row + row_in_block;
  const bool has_row = row < T;
  const score::RowConst constants = RowOf(problem, head, has_row ? row : T - 1);
  TileRow tile_row = {.scores = shared + Tile::kScores + row_in_block * kScoreStride,
                      .gradients = nullptr,
                      .low = 0,
                      .high = 0,
                      .lane = lane / kWarpRows,
                      .distance = 0};
  const auto set_tile_row = [&](int key) {
    SetBounds(key, FirstKey(problem, row), has_row ? row : -1, kKeys, &tile_row);
    tile_row.distance = static_cast<float>(row - key);
  };
  const auto is_active = [&](int key) { return warp_first < warp_end && key < warp_end && key + kKeys > warp_low; };
  const auto load_k = [&](int tile, float* to) {
    if (tile <= last_tile) LoadTile<kKeys, kWidth>(k + int64_t{tile} * kKeys * D, D, T - tile * kKeys, D, to);
    ptx::cp_async_commit();
  };
  const auto load_v = [&](int tile) {
    if (tile <= last_tile) LoadTile<kKeys, kWidth>(v + int64_t{tile} * kKeys * D, D, T - tile * kKeys, D, v_tile);
    ptx::cp_async_commit();
  };
  float* const warp_scores = shared + Tile::kScores + warp * kWarpRows * kScoreStride;
  const auto multiply_k = [&](const float* keys) {
    MultiplyTile<kWidth, kScoreStride, Tile::kR, Tile::kC>(shared + Tile::kQ + warp * kWarpRows * kStride, keys, D,
                                                           warp_scores);
    __syncwarp();
  };
  // Whether any thread of the block wants its sweep again.
  const auto any_again = [&](bool wanted) {
    const bool warp_wants = __any_sync(kFullMask, wanted);
    if (lane == 0) again[warp] = warp_wants;
    __syncthreads();
    bool any = false;
    for (int w = 0; w < kWarps; ++w) any |= again[w] != 0;
    __syncthreads();
    return any;
  };
  const auto sum_of_row = [&](float x) {
#pragma unroll
    for (int apart = kWarpSize / 2; apart >= kWarpRows; apart /= 2) x += __shfl_xor_sync(kFullMask, x, apart);
    return x;
  };
  const auto largest_of_row = [&](float x) {
#pragma unroll
    for (int apart = kWarpSize / 2; apart >= kWarpRows; apart /= 2) {
      x = score::Max(x, __shfl_xor_sync(kFullMask, x, apart));
    }
    return x;
  };

  LoadTile<kRows, kWidth>(q, D, T - first_row, D, shared + Tile::kQ);  // part of the first group of keys

  Activation activation = problem.activation;
  RunningRow running;
  score::RowStat stat = {0, 1, 0, 1};
  const bool sharpen = problem.config.sharpen;

  // A sharpened member's statistics. Keys alternate between the two tiles, as no values are wanted.
  for (bool sweep = sharpen; sweep;) {
    running = RunningRow();
    const bool shifted = IsShifted(problem, activation);
    load_k(first_tile, k_tile);
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      const bool even = (tile - first_tile) % 2 == 0;
      ptx::cp_async_wait<0>();
      __syncthreads();
      load_k(tile + 1, even ? v_tile : k_tile);
      if (is_active(tile * kKeys)) {
        multiply_k(even ? k_tile : v_tile);
        set_tile_row(tile * kKeys);
        MeetKeys<kKeys, kRowLanes, false>(shifted, activation, constants, tile_row, &running);
        __syncwarp();
      }
    }
    ptx::cp_async_wait<0>();
    running.sum = sum_of_row(running.sum);
    running.largest = shifted ? score::ExpActivation::Value(0.0f) : largest_of_row(running.largest);
    const bool tail = has_row && activation == problem.activation && LiesInTail(problem, running.largest);
    if (tail) activation = Activation::kExp;
    sweep = any_again(tail);
    stat = score::SharpenedStat(constants, shifted ? running.shift : 0.0f, running.sum, running.largest);
  }

  float sums[Tile::kR][Tile::kOut];
  for (bool sweep = true; sweep;) {
#pragma unroll
    for (int r = 0; r < Tile::kR; ++r) {
#pragma unroll
      for (int c = 0; c < Tile::kOut; ++c) sums[r][c] = 0;
    }
    running = RunningRow();
    const bool shifted = IsShifted(problem, activation);
    load_k(first_tile, k_tile);
    load_v(first_tile);
    for (int tile = first_tile; tile <= last_tile; ++tile) {
      const int key = tile * kKeys;
      const bool active = is_active(key);
      ptx::cp_async_wait<1>();
      __syncthreads();
      if (active) multiply_k(k_tile);
      __syncthreads();
      load_k(tile + 1, k_tile);
      float factor = 1;
      if (active) {
        set_tile_row(key);
        if (sharpen) {
          running.sum += Sharpen<kKeys, kRowLanes>(problem.config, activation, constants, stat, tile_row);
        } else {
          factor = MeetKeys<kKeys, kRowLanes, true>(shifted, activation, constants, tile_row, &running);
        }
      }
      ptx::cp_async_wait<1>();
      __syncthreads();
      if (active) {
        if (__any_sync(kFullMask, factor != 1.0f)) {
          float* const factors = shared + Tile::kFactors + warp * kWarpRows;
          if (lane < kWarpRows) factors[lane] = factor;
          __syncwarp();
#pragma unroll
          for (int r = 0; r < Tile::kR; ++r) {
            const float f = factors[lane / 8 + 4 * r];
#pragma unroll
            for (int c = 0; c < Tile::kOut; ++c) sums[r][c] *= f;
          }
        }
        const int begin = warp_low > key ? (warp_low - key) / 4 * 4 : 0;
        const int keys = warp_end - key < kKeys ? warp_end - key : kKeys;
        Accumulate<4, kScoreStride, kWidth, 4, 4, 32>(warp_scores + lane / 8 * kScoreStride, v_tile + 4 * (lane % 8),
                                                      begin, static_cast<int>(CeilDiv(keys, 4) * 4), sums);
      }
      __syncthreads();
      load_v(tile + 1);
    }
    ptx::cp_async_wait<0>();
    running.sum = sum_of_row(running.sum);
    bool tail = false;
    if (!sharpen) {
      tail = LiesInTail(problem, largest_of_row(running.largest)) && has_row && activation == problem.activation;
      if (tail) activation = Activation::kExp;
      stat = score::PlainStat(problem.config, constants, shifted ? running.shift : 0.0f, running.sum);
    } else if (score::IsSharpened(problem.config, stat)) {
      stat.c = 1.0f / running.sum;
    }
    sweep = any_again(tail);
  }

  CountSpecialRows(has_row && lane < kWarpRows ? stat.c : 1.0f, counts);
  if (row_stats != nullptr && has_row && lane < kWarpRows) StoreRowStat(row_stats, head_at + row, stat);

  float* const scales = shared + Tile::kFactors + warp * kWarpRows;
  if (lane < kWarpRows) scales[lane] = fabsf(stat.c);
  __syncwarp();
  const int64_t model_width = static_cast<int64_t>(problem.H) * D;
  out += static_cast<int64_t>(head / problem.H) * T * model_width + head % problem.H * D;
#pragma unroll
  for (int r = 0; r < Tile::kR; ++r) {
    const int row_in_warp = lane / 8 + 4 * r;
    if (warp_first + row_in_warp >= T) continue;
    const float scale = scales[row_in_warp];
    float* const to = out + (warp_first + row_in_warp) * model_width;
#pragma unroll
    for (int c = 0; c < Tile::kOut; c += 4) {
      const int column = 4 * (lane % 8) + 8 * c;
      if (column >= D) continue;
      *reinterpret_cast<float4*>(to + column) =
          make_float4(sums[r][c] * scale, sums[r][c + 1] * scale, sums[r][c + 2] * scale, sums[r][c + 3] * scale);
    }
  }
}

}  // namespace

void LaunchForward(cudaStream_t stream, const Problem& problem, const float* q, const float* k, const float* v,
                   float* out, float* row_stats, unsigned long long* counts) {
  ForWidth(problem.D, [&](auto width) {
    using Tile = ForwardTile<decltype(width)::value>;
    const int tiles = static_cast<int>(CeilDiv(problem.T, Tile::kRows));
    Launch(ForwardKernel<Tile>, dim3(static_cast<unsigned>(problem.B * problem.H * tiles)), dim3(kThreads),
           Tile::kBytes, stream, problem, tiles, q, k, v, out, row_stats, counts);
  });
}

}  // namespace ablate::cuda::attention
