#include "kernels/cpu/attention_rows.h"

#include <cmath>
#include <limits>

#include "kernels/backend.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/simd.h"

namespace ablate::attention {
namespace {

using score::Config;
using score::ExpActivation;
using score::IsSharpened;
using score::RowConst;
using score::RowStat;

constexpr float kLowest = -std::numeric_limits<float>::max();

struct AllLanes {
  ABLATE_HD F8 Or(F8 x, float) const { return x; }
};
struct SomeLanes {
  I8 mask;
  ABLATE_HD F8 Or(F8 x, float other) const { return mask ? x : Broadcast(other); }
};

template <int kHalf>
struct Half {
  static constexpr int value = kHalf;
};

// body(Half, position in the tiles, position in a packed row, lanes) for both vectors of every block of the span. The
// halves have accumulators of their own, for the latency of an addition.
template <class Body>
ABLATE_HD void ForBlocks(const RowSpan& span, Body body) {
  const int full_first = (span.low + kKeyBlock - 1) / kKeyBlock, full_last = span.high / kKeyBlock;
  int64_t at = span.offset;
  int64_t packed = 0;
  for (int block = span.first; block < span.last; ++block, at += span.stride, packed += kKeyBlock) {
    if (block >= full_first && block < full_last) {
      body(Half<0>{}, at, packed, AllLanes{});
      body(Half<1>{}, at + kLanes, packed + kLanes, AllLanes{});
    } else {
      const I8 column0 = kLaneIndex + block * kKeyBlock, column1 = column0 + kLanes;
      body(Half<0>{}, at, packed, SomeLanes{(column0 >= span.low) & (column0 < span.high)});
      body(Half<1>{}, at + kLanes, packed + kLanes, SomeLanes{(column1 >= span.low) & (column1 < span.high)});
    }
  }
}

#define ABLATE_BODY(half, at, packed, lanes)                                                                \
  [&]([[maybe_unused]] auto half, int64_t at, [[maybe_unused]] int64_t packed, [[maybe_unused]] auto lanes) \
      __attribute__((always_inline))

float LargestScore(const RowConst& row, const RowSpan& span, const float* scores) {
  F8 largest[2] = {Broadcast(kLowest), Broadcast(kLowest)};
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) {
        largest[half.value] =
            score::Max(largest[half.value], lanes.Or(LoadF8(scores + at) * row.c + row.beta, kLowest));
      });
  return MaxLanes(score::Max(largest[0], largest[1]));
}

// log(kTailValue).
constexpr float kTailScore = -17.0f;

// Whether every score is below kTailScore; looks no further than the first that is not.
bool LiesInTail(const RowConst& row, const RowSpan& span, const float* scores) {
  int64_t at = span.offset;
  for (int block = span.first; block < span.last; ++block, at += span.stride) {
    for (int lane = 0; lane < kKeyBlock; ++lane) {
      const int column = block * kKeyBlock + lane;
      if (column < span.low || column >= span.high) continue;
      if (!(scores[at + lane] * row.c + row.beta < kTailScore)) return false;
    }
  }
  return true;
}

struct Activated {
  float z1, largest_u;
};

// Scores -> u, in place.
template <class Phi>
Activated Activate(const RowConst& row, const RowSpan& span, float shift, float* scores) {
  const float c = row.c, beta = row.beta - shift;
  F8 sum[2] = {}, largest[2] = {};
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) {
        const F8 u = lanes.Or(Phi::Value(LoadF8(scores + at) * c + beta), 0);
        StoreF8(scores + at, u);
        sum[half.value] += u;
        largest[half.value] = score::Max(largest[half.value], u);
      });
  return {SumLanes(sum[0] + sum[1]), MaxLanes(score::Max(largest[0], largest[1]))};
}

// u -> y^p, in place; returns its sum.
template <class Power>
float Sharpen(const Config& config, const RowStat& stat, const RowSpan& span, float* scores) {
  const float a = stat.a, threshold = stat.threshold, p = config.p, negligible = config.negligible_y;
  F8 sum[2] = {};
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) {
        // Zero outside the row, as u is.
        const F8 all = (LoadF8(scores + at) - threshold) * a;
        const F8 y = all > negligible ? all : F8{};
        const F8 b = y * Power::MinusOne(y, p);
        StoreF8(scores + at, b);
        sum[half.value] += b;
      });
  return SumLanes(sum[0] + sum[1]);
}

// Scores -> u, in place, by the activation that the row turns out to need; returns what forward knows of it.
template <class Phi>
RowStat Statistics(const Config& config, const RowConst& row, const RowSpan& span, float* scores, float* largest_u) {
  float shift = 0;
  Activated activated;
  if (config.l1 && Phi::kShifted) {
    shift = LargestScore(row, span, scores);
    activated = Activate<Phi>(row, span, shift, scores);
  } else if (Phi::kExpTail && config.l1 && LiesInTail(row, span, scores)) {
    shift = LargestScore(row, span, scores);
    activated = Activate<ExpActivation>(row, span, shift, scores);
  } else {
    activated = Activate<Phi>(row, span, 0, scores);
  }
  *largest_u = activated.largest_u;
  if (!config.sharpen) return score::PlainStat(config, row, shift, activated.z1);
  return score::SharpenedStat(row, shift, activated.z1, activated.largest_u);
}

template <class Phi, class Power>
RowStat Forward(const Config& config, const RowConst& row, const RowSpan& span, float* scores, float* scale) {
  float largest_u;
  RowStat stat = Statistics<Phi>(config, row, span, scores, &largest_u);
  if (IsSharpened(config, stat)) stat.c = 1.0f / Sharpen<Power>(config, stat, span, scores);
  *scale = std::fabs(stat.c);
  return stat;
}

// Sums over a row of b = u / max u, or of b = y^p, both at most 1.
struct Shares {
  double sum = 0, sum_log2 = 0;  // of b and of b log2 b
  int64_t zeros = 0;
};

// Entropies are wanted to 1e-5, so long rows' sums go on in double.
template <class Share>
Shares SumShares(const RowSpan& span, float threshold, const float* us, Share share) {
  constexpr int kBlocks = 16;
  Shares shares;
  int64_t at = span.offset;
  for (int first = span.first; first < span.last; first += kBlocks) {
    F8 sum[2] = {}, sum_log2[2] = {};
    I8 zeros[2] = {};
    for (int block = first; block < span.last && block < first + kBlocks; ++block, at += span.stride) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const F8 u = LoadF8(us + at + half * kLanes), b = share(u);
        zeros[half] -= u <= threshold;
        sum[half] += b;
        sum_log2[half] += b > F8{} ? b * score::Log2(b) : b;  // a NaN stays
      }
    }
    const I8 all_zeros = zeros[0] + zeros[1];
    shares.sum += SumLanes(sum[0] + sum[1]);
    shares.sum_log2 += SumLanes(sum_log2[0] + sum_log2[1]);
    for (int lane = 0; lane < kLanes; ++lane) shares.zeros += all_zeros[lane];
  }
  // Columns that are not attended have u = 0.
  shares.zeros -= int64_t{span.last - span.first} * kKeyBlock - (span.high - span.low);
  return shares;
}

template <class Phi, class Power>
void RowStatistics(const Config& config, const RowConst& row, const RowSpan& span, float* scores, float* statistics) {
  float largest_u;
  const RowStat stat = Statistics<Phi>(config, row, span, scores, &largest_u);
  if (stat.c == 0) {
    statistics[kRowEntropy] = statistics[kRowLargest] = statistics[kRowFirst] = 0;
    statistics[kRowZeros] = 1, statistics[kRowKind] = 2;
    return;
  }
  const float first_u = span.low == 0 ? scores[span.offset] : 0;
  Shares shares;
  double scale, first;  // of b to w; b of position 0
  if (IsSharpened(config, stat)) {
    const float p = config.p;
    shares = SumShares(
        span, stat.threshold, scores, [&](F8 u) __attribute__((always_inline)) {
          const F8 y = score::SharpenedY(stat, u);
          return y * Power::MinusOne(y, p);
        });
    scale = 1 / shares.sum;
    const float first_y = score::SharpenedY(stat, first_u);
    first = first_y * Power::MinusOne(first_y, p);
  } else {
    const float inverse = 1.0f / largest_u;
    shares = SumShares(
        span, 0, scores, [&](F8 u) __attribute__((always_inline)) { return u * inverse; });
    scale = double{std::fabs(stat.c)} * largest_u;
    first = first_u * inverse;
  }
  constexpr double kLn2 = 0.6931471805599453;
  const double entropy = kLn2 * (std::log2(shares.sum) - shares.sum_log2 / shares.sum);
  // The largest b is 1, if for rounding.
  statistics[kRowEntropy] = static_cast<float>(entropy < 0 ? 0 : entropy);  // a NaN stays
  statistics[kRowLargest] = static_cast<float>(scale);
  statistics[kRowFirst] = static_cast<float>(first * scale);
  statistics[kRowZeros] = static_cast<float>(static_cast<double>(shares.zeros) / (span.high - span.low));
  statistics[kRowKind] = stat.c < 0 ? 1 : 0;
}

template <class Phi>
void BackwardPlain(const RowConst& row, const RowStat& stat, const RowSpan& span, float mean_gradient, float* scores,
                   float* gradients) {
  const float c = row.c, beta = row.beta - stat.shift, weight = std::fabs(stat.c);
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) {
        F8 slope;
        const F8 u = Phi::ValueAndSlope(LoadF8(scores + at) * c + beta, &slope);
        StoreF8(scores + at, lanes.Or(u * weight, 0));
        StoreF8(gradients + at, lanes.Or((LoadF8(gradients + at) - mean_gradient) * weight * slope, 0));
      });
}

template <class Phi, class Power>
void BackwardSharpened(float p, const RowConst& row, const RowStat& stat, const RowSpan& span, float mean_gradient,
                       float* scores, float* gradients, float* scratch) {
  const float c = row.c, beta = row.beta - stat.shift, a = stat.a, threshold = stat.threshold, weight = stat.c,
              pc = p * stat.c;
  F8 sum[2] = {};
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) {
        F8 slope;
        const F8 u = Phi::ValueAndSlope(LoadF8(scores + at) * c + beta, &slope);
        const F8 y = lanes.Or(score::Max(F8{}, (u - threshold) * a), 0);
        const F8 power = Power::MinusOne(y, p);
        const F8 h = power * pc * (LoadF8(gradients + at) - mean_gradient);
        StoreF8(scores + at, y * power * weight);
        StoreF8(gradients + at, h);
        StoreF8(scratch + packed, lanes.Or(slope * a, 0));
        sum[half.value] += h;
      });
  const float e = score::SumHFactor(row) * SumLanes(sum[0] + sum[1]);
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) {
        StoreF8(gradients + at, (LoadF8(gradients + at) - e) * LoadF8(scratch + packed));
      });
}

template <class Phi, class Power>
void BackwardAs(const Config& config, const RowConst& row, const RowStat& stat, const RowSpan& span,
                float mean_gradient, float* scores, float* gradients, float* scratch) {
  if (IsSharpened(config, stat)) {
    BackwardSharpened<Phi, Power>(config.p, row, stat, span, mean_gradient, scores, gradients, scratch);
  } else {
    BackwardPlain<Phi>(row, stat, span, mean_gradient, scores, gradients);
  }
}

template <class Phi, class Power>
void Backward(const Config& config, const RowConst& row, const RowStat& stat, const RowSpan& span, float mean_gradient,
              float* scores, float* gradients, float* scratch) {
  if (Phi::kExpTail && stat.shift != 0) {
    BackwardAs<ExpActivation, Power>(config, row, stat, span, mean_gradient, scores, gradients, scratch);
  } else {
    BackwardAs<Phi, Power>(config, row, stat, span, mean_gradient, scores, gradients, scratch);
  }
}

// The mean over the attended columns. In pieces of 16 blocks, so that a long row's sum goes on in double.
double Mean(const RowSpan& span, const float* row) {
  constexpr int kBlocks = 16;
  double sum = 0;
  for (int first = span.first; first < span.last; first += kBlocks) {
    RowSpan piece = span;
    piece.offset += (first - span.first) * span.stride;
    piece.first = first;
    piece.last = first + kBlocks < span.last ? first + kBlocks : span.last;
    F8 sums[2] = {};
    ForBlocks(
        piece, ABLATE_BODY(half, at, packed, lanes) { sums[half.value] += lanes.Or(LoadF8(row + at), 0); });
    sum += static_cast<double>(SumLanes(sums[0] + sums[1]));
  }
  return sum / (span.high - span.low);
}

void SubtractMean(const RowSpan& span, float* row) {
  const float mean = static_cast<float>(Mean(span, row));
  ForBlocks(
      span, ABLATE_BODY(half, at, packed, lanes) { StoreF8(row + at, lanes.Or(LoadF8(row + at) - mean, 0)); });
}

#undef ABLATE_BODY

}  // namespace

RowConst Recentre(const RowConst& row, const RowSpan& span, const float* scores) {
  return score::Recentred(row, span.high - span.low, static_cast<float>(Mean(span, scores)));
}

void RecentreGradients(const RowSpan& span, float* gradients) { SubtractMean(span, gradients); }

RowConst ApplyAlibi(const RowConst& row, int query, const RowSpan& span, float* scores) {
  int64_t at = span.offset;
  for (int block = span.first; block < span.last; ++block, at += span.stride) {
    for (int half = 0; half < kKeyBlock; half += kLanes) {
      const F8 distance = __builtin_convertvector(BroadcastInt(query - block * kKeyBlock - half) - kLaneIndex, F8);
      StoreF8(scores + at + half, score::AlibiScore(row, LoadF8(scores + at + half), distance));
    }
  }
  RowConst applied = row;
  applied.c = 1;
  applied.beta = 0;
  return applied;
}

ForwardRow ForwardRowFor(Activation activation, const Config& config) {
  return score::VisitActivation(activation, [&](auto phi) {
    return score::VisitPower(config.p,
                             [&](auto power) -> ForwardRow { return &Forward<decltype(phi), decltype(power)>; });
  });
}

StatisticsRow StatisticsRowFor(Activation activation, const Config& config) {
  return score::VisitActivation(activation, [&](auto phi) {
    return score::VisitPower(
        config.p, [&](auto power) -> StatisticsRow { return &RowStatistics<decltype(phi), decltype(power)>; });
  });
}

BackwardRow BackwardRowFor(Activation activation, const Config& config) {
  return score::VisitActivation(activation, [&](auto phi) {
    return score::VisitPower(config.p,
                             [&](auto power) -> BackwardRow { return &Backward<decltype(phi), decltype(power)>; });
  });
}

}  // namespace ablate::attention
