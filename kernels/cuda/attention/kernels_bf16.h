// What the bf16 attention kernels share: their arguments, which block does what, the constants of a thread's rows, the
// walk over tiles. Must not know the backend. Formulas: kernels/attention/score.h; tiles and costs: docs/kernels.md.
// Thread rule: device functions; those named For... and Load... are for all threads of a block together.
#pragma once

#include <cfloat>

#include "kernels/cuda/attention/problem.h"
#include "kernels/cuda/attention/scores_bf16.h"
#include "kernels/cuda/attention/tiles_bf16.h"

namespace ablate::cuda::attention_bf16 {

using attention::FirstKey;
using attention::Problem;
using score::RowConst;
using score::RowStat;

// Numbers that the rows kernel leaves of a query for the columns kernel, in this order.
enum RowUse : int {
  kScale,      // c
  kBeta,       // beta
  kShift,      // what is taken off the score: rounded before, so that all walks see the same u
  kMean,       // D
  kWeight,     // C; < 0: a row without contrast
  kHFactor,    // c A' p C
  kSlopeA,     // A'; < 0: a row in the tail
  kThreshold,  // t
  kEPrime,     // c A' E'
  kRowUses
};
static_assert(kRowUses == attention::kBf16RowFloats && kBlockRows == attention::kRowsOfPartial);

// Plain data, passed by value. Forward uses q to counts.
struct Args {
  Problem problem;
  const bf16 *q, *k, *v;
  bf16* out;         // written by forward only
  float* row_stats;  // written by forward only
  unsigned long long* counts;
  const bf16* dout;
  bf16 *dq, *dk, *dv;
  float* row_uses;     // [B,H][kRowUses][padded T]
  float2* scale_sums;  // [B,H][row blocks]: a block's share of the gradients by s and b; null where nothing is learned

  __host__ __device__ __forceinline__ int heads() const { return problem.B * problem.H; }
};

void LaunchForward(cudaStream_t stream, const Args& args);
void LaunchBackwardRows(cudaStream_t stream, const Args& args);
void LaunchBackwardColumns(cudaStream_t stream, const Args& args);

__host__ __device__ __forceinline__ int RowBlocks(int T) { return (T + kBlockRows - 1) / kBlockRows; }
__host__ __device__ __forceinline__ int PaddedT(int T) { return RowBlocks(T) * kBlockRows; }

// launch(TypeOf<Phi>, bool_constant<sharpened>, integral_constant<int, kD>): the kernels that there are. Few, so that
// nvcc is done in seconds; an activation that should be fast gets kernels of its own here and in kHasKernels.
template <class T>
struct TypeOf {
  using type = T;
};
template <class LaunchOne>
void DispatchKernel(const Problem& problem, LaunchOne launch) {
  const auto by_width = [&](auto phi, auto sharpened) {
    if (problem.D <= 64) {
      launch(phi, sharpened, std::integral_constant<int, 64>{});
    } else {
      launch(phi, sharpened, std::integral_constant<int, 128>{});
    }
  };
  const auto by_sharpening = [&](auto phi) {
    if (problem.config.sharpen) {
      by_width(phi, std::true_type{});
    } else {
      by_width(phi, std::false_type{});
    }
  };
  switch (problem.activation) {
    case Activation::kExp:
      return by_sharpening(TypeOf<score::ExpActivation>{});
    case Activation::kSoftplus:
      return by_sharpening(TypeOf<score::SoftplusActivation>{});
    default:
      return by_sharpening(TypeOf<OtherActivation>{});
  }
}

// The block's head and first row. Heads vary fastest; of queries the last rows, which have the most keys, come first.
struct Place {
  int head, b, h, block, first;
  __device__ __forceinline__ Place(const Args& args, bool queries) {
    const int index = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x) / args.heads();
    head = index % args.heads();
    b = head / args.problem.H;
    h = head % args.problem.H;
    block = queries ? blocks - 1 - index / args.heads() : index / args.heads();
    first = block * kBlockRows;
  }
  __device__ __forceinline__ int64_t HeadOffset(const Args& args) const {
    return int64_t{head} * args.problem.T * args.problem.D;
  }
  // In out and dout.
  __device__ __forceinline__ int64_t ModelOffset(const Args& args) const {
    return (int64_t{b} * args.problem.T * args.problem.H + h) * args.problem.D;
  }
};

// compute(buffer, first row of the tile) for the tiles of kRows rows that hold [first, end), in ascending order.
// load(buffer, first row) starts the copies of one; two buffers, so that the next tile comes while this one is used.
template <int kRows, class LoadTile, class Compute>
__device__ __forceinline__ void ForTiles(int first, int end, const LoadTile& load, const Compute& compute) {
  const int begin = first / kRows * kRows;
  __syncthreads();  // the buffers may still be read from an earlier walk
  load(0, begin);
  ptx::cp_async_commit();
  int buffer = 0;
#pragma unroll 1
  for (int row = begin; row < end; row += kRows, buffer ^= 1) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the tile is there for all, and none reads the other buffer any more
    if (row + kRows < end) {
      load(buffer ^ 1, row + kRows);
      ptx::cp_async_commit();
    }
    compute(buffer, row);
  }
}

// Products -> scores, rows being queries; query: of the lane's first row. MulAdd, and a
// shift only after it: every walk must round alike, since exp(s - shift) multiplies what a huge score differs by.
template <int N>
__device__ __forceinline__ void ScoreRows(const float (&c)[2], const float (&beta)[2], float slope, bool alibi,
                                          int query, int first_key, int lane, float (&s)[N][4]) {
  ForElements<N>([&](int j, int e) { s[j][e] = score::MulAdd(s[j][e], c[e / 2], beta[e / 2]); });
  if (!alibi) return;
  const float distance = static_cast<float>(query - first_key - 2 * (lane % 4));
  ForElements<N>([&](int j, int e) {
    s[j][e] = score::MulAdd(distance + static_cast<float>(e / 2 * 8 - 8 * j - (e & 1)), -slope, s[j][e]);
  });
}
template <int N>
__device__ __forceinline__ void ShiftRows(const float (&shift)[2], float (&s)[N][4]) {
  ForElements<N>([&](int j, int e) { s[j][e] -= shift[e / 2]; });
}

// s -> u. A tail row's score less its shift goes through exp instead (kExpTail); `some` says whether there is any.
template <class Phi, int N>
__device__ __forceinline__ void Activate(Activation kind, bool some, const bool (&tail)[2], float (&s)[N][4]) {
  WithActivation<Phi>(kind, [&](auto activation) {
    using A = decltype(activation);
    if (A::kExpTail && some) {
      ForElements<N>([&](int j, int e) {
        s[j][e] = tail[e / 2] ? score::ExpActivation::Value(Approximate(s[j][e])).x : A::Value(Approximate(s[j][e])).x;
      });
      return;
    }
    ForElements<N>([&](int j, int e) { s[j][e] = A::Value(Approximate(s[j][e])).x; });
  });
}

// s -> u and slope; tail(e) as above, of an element.
template <class Phi, int N, class Tail>
__device__ __forceinline__ void ActivateWithSlope(Activation kind, bool some, const Tail& tail, float (&s)[N][4],
                                                  float (&slope)[N][4]) {
  WithActivation<Phi>(kind, [&](auto activation) {
    using A = decltype(activation);
    if (A::kExpTail && some) {
      ForElements<N>([&](int j, int e) {
        Approximate d;
        s[j][e] = tail(j, e) ? score::ExpActivation::ValueAndSlope(Approximate(s[j][e]), &d).x
                             : A::ValueAndSlope(Approximate(s[j][e]), &d).x;
        slope[j][e] = d.x;
      });
      return;
    }
    ForElements<N>([&](int j, int e) {
      Approximate d;
      s[j][e] = A::ValueAndSlope(Approximate(s[j][e]), &d).x;
      slope[j][e] = d.x;
    });
  });
}

}  // namespace ablate::cuda::attention_bf16
