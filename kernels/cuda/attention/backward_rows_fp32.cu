// The first half of backward in float: a block takes 64 queries of a head and sweeps their keys once, for dq and for
// what the columns need of each row (RowGradient). E' = (o/n) sum h is known only after the sweep, so a sharpened row
// sums h phi' k and phi' k apart: dq = c A' (sum h phi' k - E' sum phi' k).
//
// A warp owns 16 rows in all steps of a tile, so that only the tiles of keys and values are between warps. Values come
// first in a tile (G = dO v), then keys (S, and the sums): the next values are on their way while keys are used.
#include "kernels/cuda/attention/kernels_fp32.h"
#include "kernels/cuda/attention/rows_fp32.h"
#include "kernels/cuda/attention/tiles_fp32.h"

namespace ablate::cuda::attention {
namespace {

template <int kWidthOf>
struct RowsTile {
  static constexpr int kWidth = kWidthOf;
  // One block's worth of tiles fits in the shared memory of every device from sm_80 on, two blocks' worth in sm_90's.
  static constexpr int kRows = 64, kKeys = kWidth <= 32 ? 64 : kWidth <= 64 ? 56 : kWidth <= 96 ? 32 : 16;
  static constexpr int kWarpRows = kRows / kWarps, kRowLanes = kWarpSize / kWarpRows;
  static constexpr int kStride = kWidth + kPad, kScoreStride = kKeys + kPad;
  // Per lane: of scores, rows lane / 8 + 4 r and keys lane % 8 + 8 c; of dq, rows lane / 16 + 2 r and columns
  // 2 (lane % 16 + 16 c) and the next.
  static constexpr int kR = kWarpRows / 4, kC = kKeys / 8, kOutRows = kWarpRows / 2, kOut = kWidth / 16;
  static constexpr int kQ = 0, kDout = kQ + kRows * kStride, kK = kDout + kRows * kStride, kV = kK + kKeys * kStride,
                       kScores = kV + kKeys * kStride, kGradients = kScores + kRows * kScoreStride,
                       kFactors = kGradients + kRows * kScoreStride, kFloats = kFactors + 3 * kRows;
  static constexpr size_t kBytes = kFloats * sizeof(float);
  static_assert(kBytes <= kMostSharedBytes);
};
static_assert(RowsTile<64>::kRows == kRowsOfPartial);

template <class Tile, bool kSharpen>
__global__ void __launch_bounds__(kThreads, 2)
    BackwardRowsKernel(Problem problem, int tiles, const float* q, const float* k, const float* v, const float* out,
                       const float* dout, const float* row_stats, float* dq, Workspace workspace) {
  constexpr int kRows = Tile::kRows, kKeys = Tile::kKeys, kWidth = Tile::kWidth, kWarpRows = Tile::kWarpRows,
                kRowLanes = Tile::kRowLanes, kStride = Tile::kStride, kScoreStride = Tile::kScoreStride,
                kOutRows = Tile::kOutRows, kOut = Tile::kOut;
  CUDA_DYNAMIC_SHARED(float, shared);
  float* const q_tile = shared + Tile::kQ;
  float* const dout_tile = shared + Tile::kDout;
  float* const k_tile = shared + Tile::kK;
  float* const v_tile = shared + Tile::kV;

  const int head = static_cast<int>(blockIdx.x) / tiles;
  const int tile_of_rows = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;  // those with most keys first
  const int first_row = tile_of_rows * kRows, T = problem.T, D = problem.D;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const int64_t head_at = static_cast<int64_t>(head) * T, model_width = static_cast<int64_t>(problem.H) * D;
  const int64_t out_at = (static_cast<int64_t>(head / problem.H) * T + first_row) * model_width + head % problem.H * D;
  q += (head_at + first_row) * D, k += head_at * D, v += head_at * D, dq += (head_at + first_row) * D;

  const int warp_first = first_row + warp * kWarpRows;
  const int warp_end = warp_first + kWarpRows < T ? warp_first + kWarpRows : T;  // warp_first or less: no rows
  const int warp_low = FirstKey(problem, warp_first);
  const int first_tile = FirstKey(problem, first_row) / kKeys;
  const int last_tile = ((first_row + kRows < T ? first_row + kRows : T) - 1) / kKeys;

  const auto load = [&](const float* from, int tile, float* to) {
    if (tile <= last_tile) LoadTile<kKeys, kWidth>(from + int64_t{tile} * kKeys * D, D, T - tile * kKeys, D, to);
    ptx::cp_async_commit();
  };
  LoadTile<kRows, kWidth>(q, D, T - first_row, D, q_tile);
  LoadTile<kRows, kWidth>(dout + out_at, model_width, T - first_row, D, dout_tile);
  load(v, first_tile, v_tile);  // q and dout are part of this group
  load(k, first_tile, k_tile);

  // This thread makes the weights of one row, with kRowLanes - 1 others.
  const int row_in_block = warp * kWarpRows + lane % kWarpRows, row = first_row + row_in_block;
  const bool has_row = row < T;
  const score::RowConst constants = RowOf(problem, head, has_row ? row : T - 1);
  const score::RowStat stat = has_row ? LoadRowStat(row_stats, head_at + row) : score::RowStat{0, 1, 0, 0};
  const Activation activation = ActivationOf(problem, stat);
  TileRow tile_row = {.scores = shared + Tile::kScores + row_in_block * kScoreStride,
                      .gradients = shared + Tile::kGradients + row_in_block * kScoreStride,
                      .low = 0,
                      .high = 0,
                      .lane = lane / kWarpRows,
                      .distance = 0};
  const auto sum_of_row = [&](float x) {
#pragma unroll
    for (int apart = kWarpSize / 2; apart >= kWarpRows; apart /= 2) x += __shfl_xor_sync(kFullMask, x, apart);
    return x;
  };

  ptx::cp_async_wait<1>();
  __syncthreads();
  float mean_gradient = 0;
  if (problem.config.l1) {
    if (has_row) {
      const float* const out_row = out + out_at + row_in_block * model_width;
      for (int d = 4 * tile_row.lane; d < D; d += 4 * kRowLanes) {
        const float4 x = LoadFloat4(out_row + d), y = LoadFloat4(dout_tile + row_in_block * kStride + d);
        mean_gradient = score::MulAdd(x.x, y.x, mean_gradient);
        mean_gradient = score::MulAdd(x.y, y.y, mean_gradient);
        mean_gradient = score::MulAdd(x.z, y.z, mean_gradient);
        mean_gradient = score::MulAdd(x.w, y.w, mean_gradient);
      }
    }
    mean_gradient = sum_of_row(mean_gradient);
  }

  const bool recentre = problem.config.recentre;
  float h_sum = 0, ds_sum = 0, slope_sum = 0;  // of the row; the last two, of what k is multiplied with, if re-centred
  float sums[kOutRows][kOut] = {}, slope_sums[kSharpen ? kOutRows : 1][kSharpen ? kOut : 1] = {};
  const float* const warp_scores = shared + Tile::kScores + warp * kWarpRows * kScoreStride;
  const float* const warp_gradients = shared + Tile::kGradients + warp * kWarpRows * kScoreStride;
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    const int key = tile * kKeys;
    const bool active = warp_first < warp_end && key < warp_end && key + kKeys > warp_low;
    ptx::cp_async_wait<1>();
    __syncthreads();
    if (active) {
      MultiplyTile<kWidth, kScoreStride, Tile::kR, Tile::kC>(
          dout_tile + warp * kWarpRows * kStride, v_tile, D,
          shared + Tile::kGradients + warp * kWarpRows * kScoreStride);
    }
    ptx::cp_async_wait<0>();
    __syncthreads();
    load(v, tile + 1, v_tile);
    if (active) {
      MultiplyTile<kWidth, kScoreStride, Tile::kR, Tile::kC>(q_tile + warp * kWarpRows * kStride, k_tile, D,
                                                             shared + Tile::kScores + warp * kWarpRows * kScoreStride);
      __syncwarp();
      SetBounds(key, FirstKey(problem, row), has_row ? row : -1, kKeys, &tile_row);
      tile_row.distance = static_cast<float>(row - key);
      // In `gradients`, what k is multiplied with for dq; in `scores`, for the part of it that E' multiplies.
      if (kSharpen && score::IsSharpened(problem.config, stat)) {
        SharpenedGradients<kKeys, kRowLanes>(problem.config.p, activation, constants, stat, mean_gradient, tile_row,
                                             [&](int column, const float(&)[4], float(&h)[4], const float(&slope)[4]) {
                                               h_sum += Sum4(h);
#pragma unroll
                                               for (int e = 0; e < 4; ++e) h[e] *= slope[e];
                                               if (recentre) ds_sum += Sum4(h), slope_sum += Sum4(slope);
                                               StoreFloat4(tile_row.gradients + column, h);
                                               StoreFloat4(tile_row.scores + column, slope);
                                             });
      } else {
        PlainGradients<kKeys, kRowLanes>(activation, constants, stat, mean_gradient, tile_row,
                                         [&](int column, const float(&)[4], const float(&ds)[4]) {
                                           const float zero[4] = {};
                                           if (recentre) ds_sum += Sum4(ds);
                                           StoreFloat4(tile_row.gradients + column, ds);
                                           if (kSharpen) StoreFloat4(tile_row.scores + column, zero);
                                         });
      }
      __syncwarp();
      const int begin = warp_low > key ? (warp_low - key) / 2 * 2 : 0;
      const int keys = warp_end - key < kKeys ? warp_end - key : kKeys, end = static_cast<int>(CeilDiv(keys, 2) * 2);
      const float* const columns = k_tile + 2 * (lane % 16);
      Accumulate<2, kScoreStride, kWidth, 2, 2, 32>(warp_gradients + lane / 16 * kScoreStride, columns, begin, end,
                                                    sums);
      if constexpr (kSharpen) {
        Accumulate<2, kScoreStride, kWidth, 2, 2, 32>(warp_scores + lane / 16 * kScoreStride, columns, begin, end,
                                                      slope_sums);
      }
    }
    __syncthreads();
    load(k, tile + 1, k_tile);
  }
  ptx::cp_async_wait<0>();

  const float e = score::SumHFactor(constants) * sum_of_row(h_sum);
  float* const scales = shared + Tile::kFactors + warp * kWarpRows;
  float* const e_of_rows = scales + kRows;
  float* const r_of_rows = scales + 2 * kRows;
  const float r_of_row = recentre ? score::MulAdd(-e, sum_of_row(slope_sum), sum_of_row(ds_sum)) : 0.0f;
  if (lane < kWarpRows) {
    scales[lane] = constants.c;
    e_of_rows[lane] = e;
    r_of_rows[lane] = r_of_row;
    if (recentre && has_row) StoreRowWeight(problem, head, row, constants.c, r_of_row);
    if (has_row) StoreRowGradient(workspace.rows, head_at + row, {constants.c, constants.beta, mean_gradient, e});
  }
  __syncwarp();

  const bool learns = problem.learned_s != nullptr;
#pragma unroll
  for (int r = 0; r < kOutRows; ++r) {
    const int row_in_warp = lane / 16 + 2 * r, row_of_sums = warp * kWarpRows + row_in_warp;
    const bool exists = warp_first + row_in_warp < T;
    const float scale = scales[row_in_warp];
    float product = 0;  // dq . q by c
#pragma unroll
    for (int c = 0; c < kOut; c += 2) {
      const int column = 2 * (lane % 16) + 16 * c;
      if constexpr (kSharpen) {
        const float e_of_row = e_of_rows[row_in_warp];
        sums[r][c] = score::MulAdd(-e_of_row, slope_sums[r][c], sums[r][c]);
        sums[r][c + 1] = score::MulAdd(-e_of_row, slope_sums[r][c + 1], sums[r][c + 1]);
      }
      if (column >= D) continue;
      if (recentre && exists) {
        const float* const mean = problem.recentring.vectors + (head_at + first_row + row_of_sums) * D + column;
        sums[r][c] = score::MulAdd(-r_of_rows[row_in_warp], mean[0], sums[r][c]);
        sums[r][c + 1] = score::MulAdd(-r_of_rows[row_in_warp], mean[1], sums[r][c + 1]);
      }
      const float* const q_at = q_tile + row_of_sums * kStride + column;
      product = score::MulAdd(sums[r][c], q_at[0], product);
      product = score::MulAdd(sums[r][c + 1], q_at[1], product);
      if (exists) {
        *reinterpret_cast<float2*>(dq + static_cast<int64_t>(row_of_sums) * D + column) =
            make_float2(sums[r][c] * scale, sums[r][c + 1] * scale);
      }
    }
    if (learns) {
#pragma unroll
      for (int apart = 8; apart > 0; apart /= 2) product += __shfl_xor_sync(kFullMask, product, apart);
      if (lane % 16 == 0) shared[Tile::kScores + row_of_sums] = exists ? product : 0.0f;
    }
  }
  if (!learns) return;
  // The tiles of scores are free from here: products at [0, 64), then their gradients by s and b.
  __syncwarp();
  if (lane < kWarpRows) {
    const float product = shared[Tile::kScores + row_in_block];
    shared[Tile::kGradients + row_in_block] = has_row ? product * constants.c_by_s : 0.0f;
  }
  __syncthreads();
  if (thread != 0) return;
  float by_s = 0, by_b = 0;
  for (int i = 0; i < kRows; ++i) {
    by_s += shared[Tile::kGradients + i];
    by_b += shared[Tile::kScores + i];
  }
  workspace.partials[static_cast<int64_t>(head) * tiles + tile_of_rows] =
      make_float2(by_s, by_b * problem.config.scale_unit);
}

}  // namespace

int RowsTiles(int T) { return static_cast<int>(CeilDiv(T, RowsTile<64>::kRows)); }

void LaunchBackwardRows(cudaStream_t stream, const Problem& problem, const float* q, const float* k, const float* v,
                        const float* out, const float* dout, const float* row_stats, float* dq,
                        const Workspace& workspace) {
  const int tiles = RowsTiles(problem.T);
  const dim3 grid(static_cast<unsigned>(problem.B * problem.H * tiles));
  ForWidth(problem.D, [&](auto width) {
    using Tile = RowsTile<decltype(width)::value>;
    if (problem.config.sharpen) {
      Launch((BackwardRowsKernel<Tile, true>), grid, dim3(kThreads), Tile::kBytes, stream, problem, tiles, q, k, v, out,
             dout, row_stats, dq, workspace);
    } else {
      Launch((BackwardRowsKernel<Tile, false>), grid, dim3(kThreads), Tile::kBytes, stream, problem, tiles, q, k, v,
             out, dout, row_stats, dq, workspace);
    }
  });
}

}  // namespace ablate::cuda::attention
