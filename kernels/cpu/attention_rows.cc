#include "kernels/cpu/attention_rows.h"

#include <cmath>
#include <limits>

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

template <class Phi, class Power>
RowStat Forward(const Config& config, const RowConst& row, const RowSpan& span, float* scores, float* scale) {
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
  if (!config.sharpen) {
    const RowStat stat = score::PlainStat(config, row, shift, activated.z1);
    *scale = stat.c;
    return stat;
  }
  RowStat stat = score::SharpenedStat(row, shift, activated.z1, activated.largest_u);
  if (IsSharpened(config, stat)) stat.c = 1.0f / Sharpen<Power>(config, stat, span, scores);
  *scale = std::fabs(stat.c);
  return stat;
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

#undef ABLATE_BODY

}  // namespace

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

BackwardRow BackwardRowFor(Activation activation, const Config& config) {
  return score::VisitActivation(activation, [&](auto phi) {
    return score::VisitPower(config.p,
                             [&](auto power) -> BackwardRow { return &Backward<decltype(phi), decltype(power)>; });
  });
}

}  // namespace ablate::attention
