// out and row statistics of the attention family in bf16 (formulas: kernels/attention/score.h; tiles: docs/kernels.md).
// A block has 64 queries of a head, 16 a warp. Without sharpening one walk over the keys: S = Q K^T, u = phi(S), out +=
// u V. With sharpening two: Z1 and the largest u; then S again, y^p, out += y^p V. exp under l1 is rescaled as its
// running maximum grows. Rows in the exponential tail of softplus or sigmoid are found after the first walk, which is
// then repeated for the block (rare: all scores of a row below -17).
// Must not know the backend. Thread rule: a launch on the stream.
#include "kernels/cuda/attention/kernels_bf16.h"

namespace ablate::cuda::attention_bf16 {
namespace {

template <int kD>
struct Layout {
  static constexpr int kKeys = kD <= 64 ? 64 : 32;
  static constexpr int kBlocksPerSm = kD <= 64 ? 3 : 2;  // bounds registers by 168 or 255: nothing spills
  static constexpr int kTile = kKeys * kStride<kD>;
  static constexpr size_t kBytes = sizeof(bf16) * (kBlockRows * kStride<kD> + 4 * kTile);
};

// One walk's results for a thread's two rows; largest: over the lanes of a row only at the end.
struct Sums {
  float z1[2] = {0, 0};
  float largest_s[2] = {-FLT_MAX, -FLT_MAX};
  float largest_u[2] = {0, 0};
};

template <class Phi, bool kSharpen, int kD>
__global__ void __launch_bounds__(kThreads, Layout<kD>::kBlocksPerSm) Bf16ForwardKernel(Args args) {
  using L = Layout<kD>;
  constexpr bool kExp = std::is_same_v<Phi, score::ExpActivation>, kOther = std::is_same_v<Phi, OtherActivation>;
  // Keys whose scores are in registers at a time: for softmax a whole tile, since each one costs a maximum over lanes.
  constexpr int kSlab = kExp && !kSharpen ? L::kKeys : 32, N = kSlab / 8;
  CUDA_DYNAMIC_SHARED(bf16, q_tile);
  CUDA_SHARED(int, warp_has_tail, [kWarps]);
  bf16* const k_tiles = q_tile + kBlockRows * kStride<kD>;
  bf16* const v_tiles = k_tiles + 2 * L::kTile;
  const Problem& problem = args.problem;
  const int T = problem.T, D = problem.D, window = problem.window;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const Place place(args, true);
  const int query = place.first + warp * 16, my_query = query + lane / 4;
  const bf16* const k = args.k + place.HeadOffset(args);
  const bf16* const v = args.v + place.HeadOffset(args);

  Load<kBlockRows, kD>(q_tile, args.q + place.HeadOffset(args), D, place.first, T, D);
  ptx::cp_async_commit();
  RowConst row[2];
  float c[2], beta[2], shift[2] = {0, 0};
  bool tail[2] = {false, false};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    row[r] = attention::RowOf(problem, place.head, my_query + 8 * r);
    c[r] = row[r].c;
    beta[r] = row[r].beta;
  }
  ptx::cp_async_wait<0>();
  __syncthreads();
  const LeftRows<kD, true> q(q_tile + warp * 16 * kStride<kD>, lane);
  const int first_key = FirstKey(problem, place.first), end_key = min(T, place.first + kBlockRows);
  const auto concerns = [&](int key) {
    return key < query + 16 && (window == 0 || key + kSlab > FirstKey(problem, query));
  };
  // work(offset in the tiles, first key) for the slabs of a tile that concern this warp.
  const auto by_slabs = [&](const auto& work) {
    return [&](int buffer, int tile_key) {
#pragma unroll 1
      for (int key = tile_key; key < tile_key + L::kKeys; key += kSlab) {
        if (concerns(key)) work(buffer * L::kTile + (key - tile_key) * kStride<kD>, key);
      }
    };
  };
  const auto load_keys = [&](int buffer, int key) { Load<L::kKeys, kD>(k_tiles + buffer * L::kTile, k, D, key, T, D); };
  const auto load_both = [&](int buffer, int key) {
    Load<L::kKeys, kD>(k_tiles + buffer * L::kTile, k, D, key, T, D);
    Load<L::kKeys, kD>(v_tiles + buffer * L::kTile, v, D, key, T, D);
  };

  float out[kD / 8][4];
  Sums sums;
  bool some_tail = false;  // of this warp
  const auto first_slab = [&](int at, int key) {
    float s[N][4];
    MultiplyByRows(q, k_tiles + at, D, lane, s);
    ScoreRows(c, beta, row[0].slope, problem.alibi, my_query, key, lane, s);
    const Attended attended = AttendedOf<N, true>(window, query, 16, key, kSlab, lane);
    Restrict(attended, -FLT_MAX, s);
    float largest[2] = {sums.largest_s[0], sums.largest_s[1]};
    ForElements<N>([&](int j, int e) { largest[e / 2] = fmaxf(largest[e / 2], s[j][e]); });
    if (kExp && problem.config.l1) {
      largest[0] = RowMax(largest[0]);
      largest[1] = RowMax(largest[1]);
      if (__any_sync(kFullMask, largest[0] > sums.largest_s[0] || largest[1] > sums.largest_s[1])) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float factor = score::ExpNonPositive(Approximate(sums.largest_s[r] - largest[r])).x;
          sums.z1[r] *= factor;
          if constexpr (!kSharpen) {
#pragma unroll
            for (int j = 0; j < kD / 8; ++j) out[j][2 * r] *= factor, out[j][2 * r + 1] *= factor;
          }
        }
      }
      ShiftRows(largest, s);
    }
    sums.largest_s[0] = largest[0];
    sums.largest_s[1] = largest[1];
    if (!kExp && some_tail) ShiftRows(shift, s);
    Activate<Phi>(problem.activation, some_tail, tail, s);
    Restrict(attended, 0, s);
    ForElements<N>([&](int j, int e) {
      sums.z1[e / 2] += s[j][e];
      if (kOther && kSharpen) sums.largest_u[e / 2] = fmaxf(sums.largest_u[e / 2], s[j][e]);
    });
    if constexpr (!kSharpen) {
      uint32_t weights[N / 2][4];
      AsLeft(s, weights);
      AddProduct<kD, N>(weights, v_tiles + at, D, lane, out);
    }
  };
#pragma unroll 1
  for (bool again = false;; again = true) {
    sums = Sums();
    SetZero(out);
    if constexpr (kSharpen) {
      ForTiles<L::kKeys>(first_key, end_key, load_keys, by_slabs(first_slab));
    } else {
      ForTiles<L::kKeys>(first_key, end_key, load_both, by_slabs(first_slab));
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sums.z1[r] = RowSum(sums.z1[r]);
      sums.largest_s[r] = RowMax(sums.largest_s[r]);
      sums.largest_u[r] = RowMax(sums.largest_u[r]);
    }
    if (again || kExp || !problem.config.l1) break;
    // Activations with a tail are monotone: the largest u is that of the largest score.
    WithActivation<Phi>(problem.activation, [&](auto activation) {
      using A = decltype(activation);
      if constexpr (A::kExpTail) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          sums.largest_u[r] = A::Value(Approximate(sums.largest_s[r])).x;
          tail[r] = sums.largest_u[r] < score::kTailValue && my_query + 8 * r < T;
        }
      }
    });
    some_tail = __any_sync(kFullMask, tail[0] || tail[1]);
    if (lane == 0) warp_has_tail[warp] = some_tail;
    __syncthreads();
    bool repeat = false;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) repeat = repeat || warp_has_tail[w] != 0;
    if (!repeat) break;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (tail[r]) shift[r] = sums.largest_s[r];
    }
  }
  RowStat stat[2];
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (kExp && problem.config.l1) {
      shift[r] = sums.largest_s[r];
      sums.largest_u[r] = 1;
    }
    if (!kSharpen) {
      stat[r] = score::PlainStat(problem.config, row[r], shift[r], sums.z1[r]);
      factor[r] = stat[r].c;
      continue;
    }
    if (tail[r]) {
      sums.largest_u[r] = 1;
    } else if (std::is_same_v<Phi, score::SoftplusActivation>) {
      sums.largest_u[r] = score::SoftplusActivation::Value(Approximate(sums.largest_s[r])).x;
    }
    stat[r] = score::SharpenedStat(row[r], shift[r], sums.z1[r], sums.largest_u[r]);
  }

  if constexpr (kSharpen) {
    float a[2], threshold[2], total[2] = {0, 0};
    bool plain[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      plain[r] = stat[r].c < 0;
      a[r] = plain[r] ? -stat[r].c : stat[r].a;
      threshold[r] = stat[r].threshold;
    }
    const bool some_plain = __any_sync(kFullMask, plain[0] || plain[1]);
    const auto second_slab = [&](int at, int key) {
      float y[N][4], power[N][4];
      MultiplyByRows(q, k_tiles + at, D, lane, y);
      ScoreRows(c, beta, row[0].slope, problem.alibi, my_query, key, lane, y);
      if (kExp || some_tail) ShiftRows(shift, y);
      Activate<Phi>(problem.activation, some_tail, tail, y);
      Restrict(AttendedOf<N, true>(window, query, 16, key, kSlab, lane), 0, y);
      ForElements<N>([&](int j, int e) { y[j][e] = Saturate((y[j][e] - threshold[e / 2]) * a[e / 2]); });
      Powers(problem.config.p, y, power);
      if (some_plain) {
        ForElements<N>([&](int j, int e) { power[j][e] = plain[e / 2] ? 1.0f : power[j][e]; });
      }
      ForElements<N>([&](int j, int e) {
        y[j][e] *= power[j][e];
        total[e / 2] += y[j][e];
      });
      uint32_t weights[N / 2][4];
      AsLeft(y, weights);
      AddProduct<kD, N>(weights, v_tiles + at, D, lane, out);
    };
    ForTiles<L::kKeys>(first_key, end_key, load_both, by_slabs(second_slab));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] = RowSum(total[r]);
      if (stat[r].c > 0) stat[r].c = 1.0f / total[r];
      factor[r] = plain[r] ? 1.0f : stat[r].c;
    }
  }

  Store(out, factor, args.out + place.ModelOffset(args), int64_t{problem.H} * D, query, T, D, lane);
  // Two of the four lanes that share both rows report one each.
  const int mine = my_query + lane % 4 * 8;
  const bool reports = lane % 4 < 2 && mine < T, first = lane % 4 == 0;
  const RowStat of_mine = {first ? stat[0].shift : stat[1].shift, first ? stat[0].a : stat[1].a,
                           first ? stat[0].threshold : stat[1].threshold, first ? stat[0].c : stat[1].c};
  if (reports && args.row_stats != nullptr) {
    attention::StoreRowStat(args.row_stats, int64_t{place.head} * T + mine, of_mine);
  }
  attention::CountSpecialRows(reports ? of_mine.c : 1.0f, args.counts);
}

}  // namespace

void LaunchForward(cudaStream_t stream, const Args& args) {
  DispatchKernel(args.problem, [&](auto phi, auto sharpened, auto width) {
    constexpr int kD = decltype(width)::value;
    constexpr bool kSharpened = decltype(sharpened)::value;
    using Phi = typename decltype(phi)::type;
    Launch((Bf16ForwardKernel<Phi, kSharpened, kD>),
           dim3(static_cast<unsigned>(RowBlocks(args.problem.T) * args.heads())), dim3(kThreads), Layout<kD>::kBytes,
           stream, args);
  });
}

}  // namespace ablate::cuda::attention_bf16
