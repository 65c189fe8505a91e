// dk and dv of the attention family in bf16 (formulas: kernels/attention/score.h; tiles: docs/kernels.md). A block has
// 64 keys of a head, 16 a warp, and walks over the queries that attend to them, with scores transposed (S^T = K Q^T,
// G^T = V dO^T) so that weights and score gradients are the left sides of dv += w^T dO and dk += dS^T Q as they stand.
// Runs after the rows kernel, which leaves kRowUses numbers a query. Must not know the backend. Thread rule: a launch
// on the stream.
#include "kernels/cuda/attention/kernels_bf16.h"

namespace ablate::cuda::attention_bf16 {
namespace {

template <int kD>
struct Layout {
  static constexpr int kQueries = kD <= 64 ? 64 : 32, kSlab = kD <= 64 ? 32 : 16;
  static constexpr bool kHold = kD <= 64;
  static constexpr int kBlocksPerSm = 2;  // bounds registers by 255: nothing spills
  static constexpr int kTile = kQueries * kStride<kD>, kKeyTile = kBlockRows * kStride<kD>;
  static constexpr int kUses = kRowUses * kQueries;  // floats a buffer
  static constexpr size_t kBytes = sizeof(bf16) * (2 * kKeyTile + 4 * kTile) + sizeof(float) * 2 * kUses;
};

// Of a pair of numbers of two queries, that of element e.
__device__ __forceinline__ float Of(const float2& pair, int e) { return e % 2 == 0 ? pair.x : pair.y; }

template <class Phi, bool kSharpen, int kD>
__global__ void __launch_bounds__(kThreads, Layout<kD>::kBlocksPerSm) Bf16BackwardColumnsKernel(Args args) {
  using L = Layout<kD>;
  constexpr int N = L::kSlab / 8;
  constexpr bool kExp = std::is_same_v<Phi, score::ExpActivation>;
  CUDA_DYNAMIC_SHARED(bf16, k_tile);
  bf16* const v_tile = k_tile + L::kKeyTile;
  bf16* const q_tiles = v_tile + L::kKeyTile;
  bf16* const dout_tiles = q_tiles + 2 * L::kTile;
  float* const uses = reinterpret_cast<float*>(dout_tiles + 2 * L::kTile);
  const Problem& problem = args.problem;
  const int T = problem.T, D = problem.D, window = problem.window;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const Place place(args, false);
  const int key = place.first + warp * 16;
  const float alibi_slope = problem.alibi ? score::AlibiSlope(place.h, problem.H) : 0.0f;
  const bf16* const q = args.q + place.HeadOffset(args);
  const bf16* const dout = args.dout + place.ModelOffset(args);
  const int64_t model_width = int64_t{problem.H} * D;
  const float* const head_uses = args.row_uses + int64_t{place.head} * kRowUses * PaddedT(T);

  Load<kBlockRows, kD>(k_tile, args.k + place.HeadOffset(args), D, place.first, T, D);
  Load<kBlockRows, kD>(v_tile, args.v + place.HeadOffset(args), D, place.first, T, D);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  const LeftRows<kD, L::kHold> k_left(k_tile + warp * 16 * kStride<kD>, lane);
  const LeftRows<kD, L::kHold> v_left(v_tile + warp * 16 * kStride<kD>, lane);

  float dk[kD / 8][4], dv[kD / 8][4];
  SetZero(dk);
  SetZero(dv);
  // The last query that attends to the last key is window - 1 rows after it.
  const int end_query = window > 0 ? min(T, place.first + kBlockRows - 1 + window) : T;
  ForTiles<L::kQueries>(
      place.first, end_query,
      [&](int buffer, int query) {
        Load<L::kQueries, kD>(q_tiles + buffer * L::kTile, q, D, query, T, D);
        Load<L::kQueries, kD>(dout_tiles + buffer * L::kTile, dout, model_width, query, T, D);
        constexpr int kChunks = L::kQueries / 4;
        for (int chunk = static_cast<int>(threadIdx.x); chunk < kRowUses * kChunks; chunk += kThreads) {
          const int use = chunk / kChunks, column = chunk % kChunks * 4;
          ptx::cp_async_16(uses + buffer * L::kUses + use * L::kQueries + column,
                           head_uses + use * PaddedT(T) + query + column, true);
        }
      },
      [&](int buffer, int tile_query) {
#pragma unroll 1
        for (int query = tile_query; query < tile_query + L::kQueries; query += L::kSlab) {
          if (query >= T || query + L::kSlab <= key || (window > 0 && query >= key + 15 + window)) continue;
          const int at = buffer * L::kTile + (query - tile_query) * kStride<kD>;
          const float* const use = uses + buffer * L::kUses + query - tile_query;
          // Number `index` of the lane's two queries of 8 columns.
          const auto pair = [&](int index, int j) {
            return *reinterpret_cast<const float2*>(use + index * L::kQueries + 8 * j + 2 * (lane % 4));
          };
          const int marked = lane % L::kSlab;
          const bool some_tail = __any_sync(kFullMask, use[kSlopeA * L::kQueries + marked] < 0);
          const bool some_plain = kSharpen && __any_sync(kFullMask, use[kWeight * L::kQueries + marked] < 0);
          float s[N][4], g[N][4], slope[N][4];
          MultiplyByRows(k_left, q_tiles + at, D, lane, s);
          MultiplyByRows(v_left, dout_tiles + at, D, lane, g);
      // As ScoreRows and ShiftRows, rounding alike.
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const float2 c = pair(kScale, j), beta = pair(kBeta, j);
#pragma unroll
            for (int e = 0; e < 4; ++e) s[j][e] = score::MulAdd(s[j][e], Of(c, e), Of(beta, e));
          }
          if (problem.alibi) {
            const float distance = static_cast<float>(query + 2 * (lane % 4) - key - lane / 4);
            ForElements<N>([&](int j, int e) {
              s[j][e] =
                  score::MulAdd(distance + static_cast<float>(8 * j + (e & 1) - e / 2 * 8), -alibi_slope, s[j][e]);
            });
          }
          if (kExp || some_tail) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
              const float2 shift = pair(kShift, j);
#pragma unroll
              for (int e = 0; e < 4; ++e) s[j][e] -= Of(shift, e);
            }
          }
          const Attended attended = AttendedOf<N, false>(window, query, L::kSlab, key, 16, lane);
          const auto tail = [&](int j, int e) { return Of(pair(kSlopeA, j), e) < 0; };
          ActivateWithSlope<Phi>(problem.activation, some_tail, tail, s, slope);
          if constexpr (kSharpen) {
            float power[N][4];
#pragma unroll
            for (int j = 0; j < N; ++j) {
              const float2 a = pair(kSlopeA, j), threshold = pair(kThreshold, j);
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                s[j][e] = Saturate((s[j][e] - Of(threshold, e)) * fabsf(Of(a, e)));
              }
            }
            Powers(problem.config.p, s, power);
            if (some_plain) {
#pragma unroll
              for (int j = 0; j < N; ++j) {
                const float2 weight = pair(kWeight, j);
#pragma unroll
                for (int e = 0; e < 4; ++e) power[j][e] = Of(weight, e) < 0 ? 1.0f : power[j][e];
              }
            }
#pragma unroll
            for (int j = 0; j < N; ++j) {
              const float2 mean = pair(kMean, j), weight = pair(kWeight, j), factor = pair(kHFactor, j),
                           e_prime = pair(kEPrime, j);
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                s[j][e] *= power[j][e] * fabsf(Of(weight, e));
                const float h = power[j][e] * Of(factor, e) * (g[j][e] - Of(mean, e));
                g[j][e] = (h - Of(e_prime, e)) * slope[j][e];
              }
            }
          } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
              const float2 mean = pair(kMean, j), weight = pair(kWeight, j), factor = pair(kHFactor, j);
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                s[j][e] *= Of(weight, e);
                g[j][e] = (g[j][e] - Of(mean, e)) * Of(factor, e) * slope[j][e];
              }
            }
          }
          Restrict(attended, 0, s);
          Restrict(attended, 0, g);
          uint32_t left[N / 2][4];
          AsLeft(s, left);
          AddProduct<kD, N>(left, dout_tiles + at, D, lane, dv);
          AsLeft(g, left);
          AddProduct<kD, N>(left, q_tiles + at, D, lane, dk);
        }
      });
  if (problem.config.recentre) {
    ForElements<kD / 8>([&](int j, int e) {
      const int row = key + lane / 4 + e / 2 * 8, column = 8 * j + 2 * (lane % 4) + e % 2;
      if (row >= T || column >= D) return;
      dk[j][e] -= problem.recentring.vectors[(int64_t{place.head} * T + row) * D + column];
    });
  }
  const float one[2] = {1, 1};
  Store(dk, one, args.dk + place.HeadOffset(args), D, key, T, D, lane);
  Store(dv, one, args.dv + place.HeadOffset(args), D, key, T, D, lane);
}

}  // namespace

void LaunchBackwardColumns(cudaStream_t stream, const Args& args) {
  DispatchKernel(args.problem, [&](auto phi, auto sharpened, auto width) {
    constexpr int kD = decltype(width)::value;
    constexpr bool kSharpened = decltype(sharpened)::value;
    using Phi = typename decltype(phi)::type;
    Launch((Bf16BackwardColumnsKernel<Phi, kSharpened, kD>),
           dim3(static_cast<unsigned>(RowBlocks(args.problem.T) * args.heads())), dim3(kThreads), Layout<kD>::kBytes,
           stream, args);
  });
}

}  // namespace ablate::cuda::attention_bf16
