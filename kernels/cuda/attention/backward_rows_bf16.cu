// dq of the attention family in bf16, what the columns kernel needs of each query, and the shares of the gradients by
// learned scales (formulas: kernels/attention/score.h; tiles: docs/kernels.md). A block has 64 queries of a head, 16 a
// warp, and walks over the keys once: S = Q K^T, G = dO V^T, h. E' is known only at the end, so that sharpened rows
// keep two sums: dq = c A' (sum h phi' k - E' sum phi' k). Must not know the backend. Thread rule: a launch on the
// stream.
#include "kernels/cuda/attention/kernels_bf16.h"

namespace ablate::cuda::attention_bf16 {
namespace {

template <bool kSharpen, int kD>
struct Layout {
  static constexpr int kKeys = kD <= 64 ? 64 : 32, kSlab = kSharpen && kD <= 64 ? 32 : 16;
  static constexpr bool kHold = kD <= 64;
  static constexpr int kBlocksPerSm = kD <= 64 && !kSharpen ? 3 : 2;  // bounds registers by 168 or 255: nothing spills
  static constexpr int kTile = kKeys * kStride<kD>, kRowTile = kBlockRows * kStride<kD>;
  static constexpr size_t kBytes = sizeof(bf16) * (2 * kRowTile + 4 * kTile);
};

// dO . out of one row, over the lane's columns.
__device__ __forceinline__ float PartialDot(const bf16* x, const bf16* y, int D, int lane) {
  float sum = 0;
  for (int d = 2 * (lane % 4); d < D; d += 8) {
    const float2 a = ToFloat2(*reinterpret_cast<const bf162*>(x + d));
    const float2 b = ToFloat2(*reinterpret_cast<const bf162*>(y + d));
    sum += a.x * b.x + a.y * b.y;
  }
  return sum;
}

template <class Phi, bool kSharpen, int kD>
__global__ void __launch_bounds__(kThreads, Layout<kSharpen, kD>::kBlocksPerSm) Bf16BackwardRowsKernel(Args args) {
  using L = Layout<kSharpen, kD>;
  constexpr int N = L::kSlab / 8;
  constexpr bool kExp = std::is_same_v<Phi, score::ExpActivation>;
  CUDA_DYNAMIC_SHARED(bf16, q_tile);
  CUDA_SHARED(float2, warp_sums, [kWarps]);
  bf16* const dout_tile = q_tile + L::kRowTile;
  bf16* const k_tiles = dout_tile + L::kRowTile;
  bf16* const v_tiles = k_tiles + 2 * L::kTile;
  const Problem& problem = args.problem;
  const int T = problem.T, D = problem.D, window = problem.window;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const Place place(args, true);
  const int query = place.first + warp * 16, my_query = query + lane / 4;
  const bf16* const k = args.k + place.HeadOffset(args);
  const bf16* const v = args.v + place.HeadOffset(args);
  const int64_t model_width = int64_t{problem.H} * D;

  Load<kBlockRows, kD>(q_tile, args.q + place.HeadOffset(args), D, place.first, T, D);
  Load<kBlockRows, kD>(dout_tile, args.dout + place.ModelOffset(args), model_width, place.first, T, D);
  ptx::cp_async_commit();

  // Of a thread's two rows. What is needed after the walk only is fetched then, to spare registers.
  const auto stat_of = [&](int i) {
    return i < T ? attention::LoadRowStat(args.row_stats, int64_t{place.head} * T + i) : RowStat{0, 1, 0, 0};
  };
  float c[2], beta[2], shift[2], threshold[2], a[2], h_factor[2], mean[2], slope0 = 0;
  bool tail[2], plain[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = my_query + 8 * r;
    const RowConst row = attention::RowOf(problem, place.head, i);
    const RowStat stat = stat_of(i);
    mean[r] = 0;
    if (i < T && problem.config.l1) {
      const int64_t at = place.ModelOffset(args) + i * model_width;
      mean[r] = PartialDot(args.dout + at, args.out + at, D, lane);
    }
    mean[r] = RowSum(mean[r]);
    slope0 = row.slope;
    c[r] = row.c;
    beta[r] = row.beta;
    shift[r] = stat.shift;
    tail[r] = !kExp && stat.shift != 0;
    plain[r] = kSharpen && stat.c < 0;
    threshold[r] = stat.threshold;
    // A row without contrast is one with p = 1 and t = 0 whose y is its weight.
    a[r] = plain[r] ? -stat.c : stat.a;
    h_factor[r] = plain[r] ? -stat.c : kSharpen ? problem.config.p * stat.c : stat.c;
  }
  const bool some_tail = __any_sync(kFullMask, tail[0] || tail[1]);
  const bool some_plain = __any_sync(kFullMask, plain[0] || plain[1]);

  ptx::cp_async_wait<0>();
  __syncthreads();
  const bf16* const q_rows = q_tile + warp * 16 * kStride<kD>;
  const LeftRows<kD, L::kHold> q_left(q_rows, lane);
  const LeftRows<kD, L::kHold> dout_left(dout_tile + warp * 16 * kStride<kD>, lane);

  float sum[kD / 8][4], slope_sum[kD / 8][4], h_sum[2] = {0, 0};
  const bool recentre = problem.config.recentre;
  float ds_of_row[2] = {0, 0}, slope_of_row[2] = {0, 0};  // sums of what k is multiplied with, if re-centred
  SetZero(sum);
  SetZero(slope_sum);
  ForTiles<L::kKeys>(
      FirstKey(problem, place.first), min(T, place.first + kBlockRows),
      [&](int buffer, int key) {
        Load<L::kKeys, kD>(k_tiles + buffer * L::kTile, k, D, key, T, D);
        Load<L::kKeys, kD>(v_tiles + buffer * L::kTile, v, D, key, T, D);
      },
      [&](int buffer, int tile_key) {
#pragma unroll 1
        for (int key = tile_key; key < tile_key + L::kKeys; key += L::kSlab) {
          if (key >= query + 16 || (window > 0 && key + L::kSlab <= FirstKey(problem, query))) continue;
          const int at = buffer * L::kTile + (key - tile_key) * kStride<kD>;
          float s[N][4], g[N][4], slope[N][4];
          MultiplyByRows(q_left, k_tiles + at, D, lane, s);
          MultiplyByRows(dout_left, v_tiles + at, D, lane, g);
          ScoreRows(c, beta, slope0, problem.alibi, my_query, key, lane, s);
          if (kExp || some_tail) ShiftRows(shift, s);
          const Attended attended = AttendedOf<N, true>(window, query, 16, key, L::kSlab, lane);
          ActivateWithSlope<Phi>(
              problem.activation, some_tail, [&](int, int e) { return tail[e / 2]; }, s, slope);
          if constexpr (kSharpen) {
            float power[N][4];
            ForElements<N>([&](int j, int e) { s[j][e] = Saturate((s[j][e] - threshold[e / 2]) * a[e / 2]); });
            Powers(problem.config.p, s, power);
            if (some_plain) {
              ForElements<N>([&](int j, int e) { power[j][e] = plain[e / 2] ? 1.0f : power[j][e]; });
            }
            ForElements<N>([&](int j, int e) { g[j][e] = power[j][e] * h_factor[e / 2] * (g[j][e] - mean[e / 2]); });
            Restrict(attended, 0, g);
            Restrict(attended, 0, slope);
            ForElements<N>([&](int j, int e) {
              h_sum[e / 2] += g[j][e];
              g[j][e] *= slope[j][e];
            });
            uint32_t with_h[N / 2][4], without[N / 2][4];
            AsLeft(g, with_h);
            AsLeft(slope, without);
            if (recentre) {
              AddLeft(with_h, ds_of_row);
              AddLeft(without, slope_of_row);
            }
            AddProducts<kD, N>(with_h, without, k_tiles + at, D, lane, sum, slope_sum);
          } else {
            ForElements<N>([&](int j, int e) { g[j][e] = (g[j][e] - mean[e / 2]) * h_factor[e / 2] * slope[j][e]; });
            Restrict(attended, 0, g);
            uint32_t left[N / 2][4];
            AsLeft(g, left);
            if (recentre) AddLeft(left, ds_of_row);
            AddProduct<kD, N>(left, k_tiles + at, D, lane, sum);
          }
        }
      });

  float2 shares = make_float2(0, 0);  // of the gradients by learned s and b
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = my_query + 8 * r;
    const RowStat stat = stat_of(i);
    const RowConst row = attention::RowOf(problem, place.head, i);
    const float a_out = plain[r] ? 1.0f : stat.a;
    const float h = RowSum(h_sum[r]);
    const float e_prime = kSharpen && !plain[r] ? score::SumHFactor(row) * h : 0.0f;
    float by_c = 0, r_sum = 0;
    if (recentre) {
      r_sum = RowSum(ds_of_row[r]);
      if (kSharpen) r_sum -= e_prime * RowSum(slope_of_row[r]);
      r_sum *= a_out;
      if (lane % 4 == 0 && i < T) attention::StoreRowWeight(problem, place.head, i, c[r], r_sum);
    }
#pragma unroll
    for (int j = 0; j < kD / 8; ++j) {
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        if (kSharpen) sum[j][e] -= e_prime * slope_sum[j][e];
        sum[j][e] *= a_out;
        const int column = 8 * j + 2 * (lane % 4) + e % 2;
        if (recentre && i < T && column < D) {
          sum[j][e] -= r_sum * problem.recentring.vectors[(int64_t{place.head} * T + i) * D + column];
        }
      }
      if (args.scale_sums == nullptr) continue;
      const float2 q =
          ToFloat2(*reinterpret_cast<const bf162*>(q_rows + (lane / 4 + 8 * r) * kStride<kD> + 8 * j + 2 * (lane % 4)));
      by_c += q.x * sum[j][2 * r] + q.y * sum[j][2 * r + 1];
    }
    shares.x += by_c * row.c_by_s;
    shares.y += by_c * problem.config.scale_unit;
    if (lane % 4 == 0) {
      const int padded = PaddedT(T);
      float* const use = args.row_uses + int64_t{place.head} * kRowUses * padded + i;
      const float factor = c[r] * a_out;
      use[kScale * padded] = c[r];
      use[kBeta * padded] = beta[r];
      use[kShift * padded] = shift[r];
      use[kMean * padded] = mean[r];
      use[kWeight * padded] = plain[r] ? -1.0f : stat.c;
      use[kHFactor * padded] = h_factor[r] * factor;
      use[kSlopeA * padded] = tail[r] ? -a[r] : a[r];
      use[kThreshold * padded] = threshold[r];
      use[kEPrime * padded] = e_prime * factor;
    }
  }
  Store(sum, c, args.dq + place.HeadOffset(args), D, query, T, D, lane);
  if (args.scale_sums == nullptr) return;
#pragma unroll
  for (int step = 1; step < kWarpSize; step *= 2) {
    shares.x += __shfl_xor_sync(kFullMask, shares.x, step);
    shares.y += __shfl_xor_sync(kFullMask, shares.y, step);
  }
  if (lane == 0) warp_sums[warp] = shares;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      shares.x += warp_sums[w].x;
      shares.y += warp_sums[w].y;
    }
    args.scale_sums[int64_t{place.head} * RowBlocks(T) + place.block] = shares;
  }
}

}  // namespace

void LaunchBackwardRows(cudaStream_t stream, const Args& args) {
  DispatchKernel(args.problem, [&](auto phi, auto sharpened, auto width) {
    constexpr int kD = decltype(width)::value;
    constexpr bool kSharpened = decltype(sharpened)::value;
    using Phi = typename decltype(phi)::type;
    Launch((Bf16BackwardRowsKernel<Phi, kSharpened, kD>),
           dim3(static_cast<unsigned>(RowBlocks(args.problem.T) * args.heads())), dim3(kThreads),
           Layout<decltype(sharpened)::value, kD>::kBytes, stream, args);
  });
}

}  // namespace ablate::cuda::attention_bf16
