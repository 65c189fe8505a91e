// The mathematics of one score, for every device: activations, powers, row constants and row statistics.
// Must not know tiles, threads or memory. Formulas and names: docs/attention.md (kernel mathematics).
//
// Value functions are templates over F: float, or a vector of floats with element-wise operators (GCC's vector types),
// so that one text serves scalars, AVX2 and CUDA. They are free of branches and of libm. Relative errors below 5e-7.
//
// The rescaled form of a row (i attends n keys, S_j its scores, u_j = phi(S_j - shift), Z1 = sum u, o its offset):
//   t  = o Z1 / N                what u must exceed; N = n, or min(n, sharpen_clamp)
//   A' = 1 / (max u - t)         (phi need not be monotone: the maximum is over u)
//   y_j = A' max(0, u_j - t) in [0, 1], C = 1 / sum y^p, w_j = C y_j^p
// (u - t before the factor: in rows of little contrast that difference is exact, that of two products is not.)
// and backwards, with G_j = dO . v_j, D = dO . out:
//   h_j = p C y_j^(p-1) (G_j - D), E' = (o / N) sum h, dS_j = A' (h_j - E') phi'(S_j)
// Unsharpened rows: w_j = C u_j, dS_j = C (G_j - D) phi'(S_j); C = 1 / Z1 under l1, otherwise C = 1 or 1/n and D = 0.
//
// Re-centred scores (S_j less its mean over the row before bias and ALiBi): an additive constant of the row, and
// dS'_j = dS_j - (1/n) sum_l dS_l in place of dS_j for all that follows (dq, dk and c's gradient), as d(S_j - mean S) is.
//
// A new activation is one struct here, one line in VisitActivation and one row in kernels/attention/variants.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/attention/variants.h"

#if defined(__CUDACC__)
#define ABLATE_HD __host__ __device__ __forceinline__
#define ABLATE_VISIT __device__ __forceinline__  // in CUDA sources the lambdas that are given to Visit* are device code
#else
#define ABLATE_HD inline __attribute__((always_inline))
#define ABLATE_VISIT ABLATE_HD
#endif

namespace ablate::score {

// The integer type of F's width.
template <class F>
struct IntOf;
template <>
struct IntOf<float> {
  using type = int32_t;
};

template <class F>
ABLATE_HD typename IntOf<F>::type ToBits(F x) {
  typename IntOf<F>::type bits;
  memcpy(&bits, &x, sizeof(x));
  return bits;
}
template <class F>
ABLATE_HD F FromBits(typename IntOf<F>::type bits) {
  F x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// The second argument when either is NaN, so a NaN argument must come second to survive.
template <class F>
ABLATE_HD F Max(F a, F b) {
  return a > b ? a : b;
}
template <class F>
ABLATE_HD F Min(F a, F b) {
  return a < b ? a : b;
}

template <class F>
ABLATE_HD F NegativeAbs(F x) {
  return FromBits<F>(ToBits(x) | INT32_MIN);
}

// a b + c, rounded once. Written out where the single rounding is part of the method: compilers fuse only when
// optimising.
template <class F>
ABLATE_HD F MulAdd(F a, F b, F c) {
  return a * b + c;
}
template <>
ABLATE_HD float MulAdd<float>(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

// a / b for b in [1, 4]. On a device the approximate quotient (2 units in the last place): an exact one is a call.
template <class F>
ABLATE_HD F Divide(F a, F b) {
  return a / b;
}
#if defined(__CUDA_ARCH__)
template <>
ABLATE_HD float Divide<float>(float a, float b) {
  return __fdividef(a, b);
}
#endif

// Adding 1.5 * 2^23 rounds to the nearest integer, which then stands in the low bits.
inline constexpr float kRoundMagic = 12582912.0f;

// 2^n (1 + ...) for |f| <= 1/2 and n in the low bits of `magic`: minimax of degree 5, relative error 7.5e-8.
template <class F>
ABLATE_HD F Exp2Parts(F f, F magic) {
  const F f2 = f * f;
  const F low = f * 6.931469671e-1f + 1.000000072f, middle = f * 5.550713275e-2f + 2.402211972e-1f,
          high = f * 1.327647203e-3f + 9.675541480e-3f;
  const F p = (high * f2 + middle) * f2 + low;
#if defined(__CUDA_ARCH__)
  // The same product, but a NaN stays one: a device's NaN is 0x7fffffff, which the sum below would make a number.
  return p * FromBits<F>((ToBits(magic) << 23) + 0x3f800000);
#else
  return FromBits<F>(ToBits(p) + (ToBits(magic) << 23));
#endif
}

// 2^x, with x clamped to [-126, 127].
template <class F>
ABLATE_HD F Exp2(F x) {
  x = Max(F{} - 126.0f, Min(F{} + 127.0f, x));
  const F magic = x + kRoundMagic;
  return Exp2Parts(x - (magic - kRoundMagic), magic);
}

// e^x for x <= 0; 1e-38 below -87.
template <class F>
ABLATE_HD F ExpNonPositive(F x) {
  x = Max(F{} - 87.0f, x);
  const F magic = x * 1.442695041f + kRoundMagic;
  const F n = magic - kRoundMagic;
  // x log2(e) - n in two pieces: log2(e) = 1.44269502 + 1.925963e-8.
  const F f = MulAdd(x, F{} + 1.925963033e-8f, MulAdd(x, F{} + 1.442695022f, -n));
  return Exp2Parts(f, magic);
}

// e^x, saturating at e^87 (exp without l1 may meet large scores).
template <class F>
ABLATE_HD F Exp(F x) {
  return ExpNonPositive(Min(F{} + 87.0f, x));
}

// log2(y) for y > 0, from the series of atanh; the relative error holds near y = 1 too.
template <class F>
ABLATE_HD F Log2(F y) {
  const auto bits = ToBits(y);
  const auto exponent = (bits - 0x3f3504f3) >> 23;
  const F m = FromBits<F>(bits - (exponent << 23));  // in [sqrt(1/2), sqrt(2))
  const F e = FromBits<F>(exponent + 0x4b400000) - kRoundMagic;
  const F t = Divide(m - 1.0f, m + 1.0f);
  const F t2 = t * t;
  F p = t2 * 0.3205989f + 0.41219859f;
  p = p * t2 + 0.57707802f;
  p = p * t2 + 0.96179669f;
  p = p * t2 + 2.88539008f;
  return p * t + e;
}

// log(1 + e) / e on [0, 1]: minimax of degree 7, relative error 2e-7. (log1p(e) itself as log(1 + e) would lose all
// digits of a small e.)
template <class F>
ABLATE_HD F Log1pOver(F e) {
  const F e2 = e * e;
  const F p01 = e * -4.999740543e-1f + 9.999998057e-1f, p23 = e * -2.449546388e-1f + 3.327548005e-1f,
          p45 = e * -1.076817314e-1f + 1.774524343e-1f, p67 = e * -8.539209201e-3f + 4.408963906e-2f;
  return ((p67 * e2 + p45) * e2 + p23) * e2 + p01;
}

// --- activations: u = phi(s) >= 0, and its slope ---
// Value and ValueAndSlope give the same bits: backward must see forward's u, or a row of little contrast would not have
// y <= 1. kShifted: u = phi(s - row maximum), allowed because a common factor cancels under l1. kExpTail: phi(s) = e^s
// (1 + O(e^s)) far below 0; under l1, rows that lie wholly there are computed by ExpActivation.

struct ExpActivation {
  static constexpr bool kShifted = true, kExpTail = false;
  template <class F>
  static ABLATE_HD F Value(F s) {
    return Exp(s);
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    return *slope = Exp(s);
  }
};

struct SoftplusActivation {
  static constexpr bool kShifted = false, kExpTail = true;
  template <class F>
  static ABLATE_HD F Value(F s) {
    const F e = ExpNonPositive(NegativeAbs(s));
    return Log1pOver(e) * e + Max(F{}, s);
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    const F e = ExpNonPositive(NegativeAbs(s));
    *slope = Divide(s > F{} ? F{} + 1.0f : e, e + 1.0f);
    return Log1pOver(e) * e + Max(F{}, s);
  }
};

struct SigmoidActivation {
  static constexpr bool kShifted = false, kExpTail = true;
  template <class F>
  static ABLATE_HD F Value(F s) {
    const F e = ExpNonPositive(NegativeAbs(s));
    const F r = Divide(F{} + 1.0f, e + 1.0f);
    return (s > F{} ? F{} + 1.0f : e) * r;
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    const F e = ExpNonPositive(NegativeAbs(s));
    const F r = Divide(F{} + 1.0f, e + 1.0f);
    *slope = e * r * r;
    return (s > F{} ? F{} + 1.0f : e) * r;
  }
};

struct ReluActivation {
  static constexpr bool kShifted = false, kExpTail = false;
  template <class F>
  static ABLATE_HD F Value(F s) {
    return Max(F{}, s);
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    *slope = s > F{} ? F{} + 1.0f : F{};
    return Max(F{}, s);
  }
};

struct ReluSquaredActivation {
  static constexpr bool kShifted = false, kExpTail = false;
  template <class F>
  static ABLATE_HD F Value(F s) {
    const F r = Max(F{}, s);
    return r * r;
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    const F r = Max(F{}, s);
    *slope = r + r;
    return r * r;
  }
};

// The next two are not monotone: a row's largest u may be that of its smallest score. Both slopes are 0 at 0.
struct AbsActivation {
  static constexpr bool kShifted = false, kExpTail = false;
  template <class F>
  static ABLATE_HD F Value(F s) {
    return -NegativeAbs(s);
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    *slope = (s > F{} ? F{} + 1.0f : F{}) - (s < F{} ? F{} + 1.0f : F{});
    return -NegativeAbs(s);
  }
};

struct SquareActivation {
  static constexpr bool kShifted = false, kExpTail = false;
  template <class F>
  static ABLATE_HD F Value(F s) {
    return s * s;
  }
  template <class F>
  static ABLATE_HD F ValueAndSlope(F s, F* slope) {
    *slope = s + s;
    return s * s;
  }
};

// visit(ActivationStruct{}) of the one that `activation` names.
template <class Visit>
ABLATE_VISIT auto VisitActivation(Activation activation, Visit visit) {
  switch (activation) {
    case Activation::kExp:
      return visit(ExpActivation{});
    case Activation::kSoftplus:
      return visit(SoftplusActivation{});
    case Activation::kSigmoid:
      return visit(SigmoidActivation{});
    case Activation::kRelu:
      return visit(ReluActivation{});
    case Activation::kReluSquared:
      return visit(ReluSquaredActivation{});
    case Activation::kAbs:
      return visit(AbsActivation{});
    case Activation::kSquare:
      return visit(SquareActivation{});
  }
  return visit(ExpActivation{});
}

// --- powers: y^(p-1) for y >= 0, and 0 at y = 0 for every p, so that y^p = y * that and h vanishes where y does ---

template <int kP>
struct ConstantPower {
  template <class F>
  static ABLATE_HD F MinusOne(F y, float /*p*/) {
    if constexpr (kP == 1) {
      return y > F{} ? F{} + 1.0f : F{};
    } else {
      return IntegerPower<kP - 1>(y);
    }
  }

 private:
  template <int kN, class F>
  static ABLATE_HD F IntegerPower(F y) {
    if constexpr (kN == 1) {
      return y;
    } else if constexpr (kN % 2 == 1) {
      return IntegerPower<kN - 1>(y) * y;
    } else {
      const F half = IntegerPower<kN / 2>(y);
      return half * half;
    }
  }
};

// Any whole p >= 2.
struct WholePower {
  template <class F>
  static ABLATE_HD F MinusOne(F y, float p) {
    unsigned n = static_cast<unsigned>(p) - 1;
    F square = y, result = F{} + 1.0f;
    while (n > 1) {
      if (n & 1) result = result * square;
      square = square * square;
      n >>= 1;
    }
    return result * square;
  }
};

// Any real p >= 1.
struct RealPower {
  template <class F>
  static ABLATE_HD F MinusOne(F y, float p) {
    return y > F{} ? Exp2(Log2(y) * (p - 1.0f)) : F{};
  }
};

inline constexpr float kLargestWholePower = 1024;

template <class Visit>
ABLATE_VISIT auto VisitPower(float p, Visit visit) {
  if (p == 1) return visit(ConstantPower<1>{});
  if (p == 2) return visit(ConstantPower<2>{});
  if (p == 3) return visit(ConstantPower<3>{});
  if (p == 15) return visit(ConstantPower<15>{});
  if (p <= kLargestWholePower && p == std::floor(p)) return visit(WholePower{});
  return visit(RealPower{});
}

// --- one member of the family, as plain data that is passed to kernels by value ---
inline constexpr float kNoClamp = 3.4e38f;  // above every n

struct Config {
  float scale_unit = 1;  // c = scale_unit (s l + b), l = log n, at most largest_log_n, or 1
  bool scale_log_n = false;
  float bias = 0;  // beta = bias - (bias_log_n ? log n : 0)
  bool bias_log_n = false;
  bool recentre = false;  // beta is less c times the row's mean product, which RowConst does not know
  bool l1 = true, count = false, sharpen = false;
  float p = 1, offset = 1;
  float negligible_y = 0;  // y up to this weigh at most 1e-13 of the row's largest and may be taken as zero in forward
  int offset_free_rows = 3;
  float largest_log_n = kNoClamp;       // of the scale
  float largest_multiplier = kNoClamp;  // of N
};

inline Config MakeConfig(const AttentionSpec& spec, int D) {
  Config config;
  const double root = 1 / std::sqrt(static_cast<double>(D)), log_d = std::log(static_cast<double>(D));
  double unit = 1;
  switch (spec.scale) {
    case ScoreScale::kOne:
      break;
    case ScoreScale::kInvSqrtD:
      unit = root;
      break;
    case ScoreScale::kLogD:
      unit = log_d;
      break;
    case ScoreScale::kLogN:
      config.scale_log_n = true;
      break;
    case ScoreScale::kLogDLogN:
      unit = log_d, config.scale_log_n = true;
      break;
    case ScoreScale::kLogNInvSqrtD:
    case ScoreScale::kSsmax:
    case ScoreScale::kSsmaxBias:
      unit = root, config.scale_log_n = true;
      break;
    case ScoreScale::kConstant:
      unit = spec.scale_constant;
      break;
    case ScoreScale::kConstantLogN:
      unit = spec.scale_constant, config.scale_log_n = true;
      break;
  }
  config.scale_unit = static_cast<float>(spec.transform == ScoreTransform::kInverted ? -unit : unit);
  config.recentre = spec.transform == ScoreTransform::kRecentred;
  config.bias_log_n = spec.logit_bias == LogitBias::kNegLogN;
  if (spec.logit_bias == LogitBias::kNegLogTrain && spec.train_length > 1) {
    config.bias = static_cast<float>(-std::log(static_cast<double>(spec.train_length)));
  }
  config.l1 = spec.normalisation == Normalisation::kL1;
  config.count = spec.normalisation == Normalisation::kCount;
  config.sharpen = spec.sharpen_p.has_value();
  config.p = static_cast<float>(spec.sharpen_p.value_or(1));
  config.negligible_y = static_cast<float>(std::pow(1e-13, 1.0 / config.p));
  config.offset = static_cast<float>(spec.sharpen_offset);
  config.offset_free_rows = spec.offset_free_rows;
  if (spec.scale_clamp > 0) config.largest_log_n = logf(static_cast<float>(spec.scale_clamp));
  if (spec.sharpen_clamp > 0) config.largest_multiplier = static_cast<float>(spec.sharpen_clamp);
  return config;
}

// What a row is before its scores are known.
struct RowConst {
  float c;           // scale
  float c_by_s;      // dc/ds; dc/db is config.scale_unit
  float beta;        // score bias
  float multiplier;  // N
  float offset;      // o
  float weight;      // C of an unsharpened row without l1
  float slope;       // m of ALiBi, 0 without it
};

// ALiBi's slope of head h (0-based) of H: 2^(-8 (h+1) / H) where H is a power of two; otherwise those of the power of
// two below H, then every other one of the power above (arXiv 2108.12409, its authors' code).
ABLATE_HD float AlibiSlope(int h, int H) {
  int power = 1;
  while (2 * power <= H) power *= 2;
  const int steps = h < power ? 16 * (h + 1) : 8 * (2 * (h - power) + 1);  // of 1 / (2 power), so exact in float
#if defined(__CUDA_ARCH__)
  return exp2f(-static_cast<float>(steps) / static_cast<float>(2 * power));
#else
  return static_cast<float>(std::exp2(-static_cast<double>(steps) / (2 * power)));
#endif
}

// row: 0-based; n: attended keys; s = 1 and b = 0 where nothing is learned; slope: AlibiSlope, or 0.
ABLATE_HD RowConst MakeRowConst(const Config& config, int row, int n, float s, float b, float slope) {
  RowConst r;
  const float keys = static_cast<float>(n), log_n = logf(keys);
  r.multiplier = Min(keys, config.largest_multiplier);
  r.c_by_s = config.scale_unit * (config.scale_log_n ? Min(log_n, config.largest_log_n) : 1.0f);
  r.c = r.c_by_s * s + config.scale_unit * b;
  r.beta = config.bias - (config.bias_log_n ? log_n : 0.0f);
  r.offset = row < config.offset_free_rows ? 0.0f : config.offset;
  r.weight = config.count ? 1.0f / keys : 1.0f;
  r.slope = slope;
  return r;
}

// The row of n keys whose scores are less their mean, of which `mean_product` is the mean of the bare products q.k.
// A single key's score is exactly 0: rounding noise would be a weight of 1 under relu and l1.
ABLATE_HD RowConst Recentred(RowConst row, int n, float mean_product) {
  if (n == 1) {
    row.c = 0;
  } else {
    row.beta = MulAdd(-row.c, mean_product, row.beta);
  }
  return row;
}

// The score of the key that lies `distance` rows before the query, from their product.
template <class F>
ABLATE_HD F AlibiScore(const RowConst& row, F product, F distance) {
  return product * row.c + row.beta - distance * row.slope;
}

// What backward needs of a row; the four floats of Backend's row_stats.
// c == 0: a zero row. c < 0: a sharpened row without contrast, an l1 row with C = -c.
// shift != 0 for an activation with kExpTail: the row was computed by ExpActivation.
struct RowStat {
  float shift, a, threshold, c;  // A', t, C above
};

// Sharpened rows whose largest y is at most this keep w = a: the power would sharpen rounding noise. (Where N < n all y
// may be zero, and w = a as well.)
inline constexpr float kMinContrast = 1e-3f;
// Rows with kExpTail whose largest u is below this lie wholly in the tail.
inline constexpr float kTailValue = 4e-8f;

// Sums below the least normal float are zero: one over them may be infinite. (Where subnormal numbers are flushed, as
// on the CPU, there are none.)
inline constexpr float kLeastNormal = 1.17549435e-38f;

// After the first pass over a row that is not to be sharpened.
ABLATE_HD RowStat PlainStat(const Config& config, const RowConst& row, float shift, float z1) {
  return {shift, 1, 0, z1 < kLeastNormal ? 0.0f : config.l1 ? 1.0f / z1 : row.weight};
}

// After the first pass over a row to be sharpened; c is still to be set (1 / sum y^p), unless the row turned out to be
// a zero row (0) or without contrast (negative): both are final.
ABLATE_HD RowStat SharpenedStat(const RowConst& row, float shift, float z1, float largest_u) {
  if (z1 < kLeastNormal) return {shift, 1, 0, 0};
  const float threshold = row.offset / row.multiplier * z1;
  const float above = largest_u - threshold;
  if (above * row.multiplier <= kMinContrast * z1 || above < kLeastNormal) return {shift, 1, 0, -1.0f / z1};
  return {shift, 1.0f / above, threshold, 1};
}

ABLATE_HD bool IsSharpened(const Config& config, const RowStat& stat) { return config.sharpen && stat.c > 0; }

// u -> y of a sharpened row.
template <class F>
ABLATE_HD F SharpenedY(const RowStat& stat, F u) {
  return Max(F{}, (u - stat.threshold) * stat.a);
}

// u -> y^p of a sharpened row, taken as zero where negligible.
template <class Power, class F>
ABLATE_HD F UnscaledWeight(const Config& config, const RowStat& stat, F u) {
  const F all = (u - stat.threshold) * stat.a;
  const F y = all > config.negligible_y ? all : F{};
  return y * Power::MinusOne(y, config.p);
}

// E' = this * sum h.
ABLATE_HD float SumHFactor(const RowConst& row) { return row.offset / row.multiplier; }

}  // namespace ablate::score
