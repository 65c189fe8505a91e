// The value functions as scalars (what CUDA runs), against libm in double, and the row constants.
#include "kernels/attention/score.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace ablate::score {
namespace {

constexpr double kTolerance = 5e-7;

double Relative(double got, double want) { return std::abs(got - want) / std::abs(want); }

TEST(Score, ExponentialsAndLogarithm) {
  for (float x = -86.9f; x < 86.9f; x += 0.0137f) {
    EXPECT_LT(Relative(Exp(x), std::exp(static_cast<double>(x))), kTolerance) << x;
  }
  for (float x = -125.9f; x < 126; x += 0.0137f)
    EXPECT_LT(Relative(Exp2(x), std::exp2(static_cast<double>(x))), kTolerance);
  for (float y = 1e-30f; y < 3; y *= 1.0037f)
    EXPECT_NEAR(Log2(y), std::log2(static_cast<double>(y)), 4e-7 + 2e-7 * std::abs(std::log2(y)));
  // Relative near 1, where a power of 100 looks.
  for (float y : {0.999999f, 0.9999f, 0.99f, 1.00001f})
    EXPECT_LT(Relative(Log2(y), std::log2(static_cast<double>(y))), kTolerance);
  EXPECT_EQ(Log2(1.0f), 0);
  EXPECT_LT(Exp(-1000.0f), 2e-38f);
  EXPECT_TRUE(std::isfinite(Exp(1e30f)));
  EXPECT_TRUE(std::isnan(Exp(std::nanf(""))));
}

template <class Phi>
void CheckActivation(float low, float high, double (*value)(double), double (*slope)(double)) {
  for (float s = low; s < high; s += 0.0113f) {
    float got_slope;
    const float got = Phi::ValueAndSlope(s, &got_slope);
    EXPECT_EQ(Phi::Value(s), got) << s;
    EXPECT_NEAR(got, value(s), kTolerance * std::abs(value(s))) << s;
    EXPECT_NEAR(got_slope, slope(s), kTolerance * std::abs(slope(s))) << s;
  }
  EXPECT_TRUE(std::isnan(Phi::Value(std::nanf(""))));
}

TEST(Score, ActivationsAndTheirSlopes) {
  const auto exponential = [](double s) { return std::exp(s); };
  CheckActivation<ExpActivation>(-80, 80, exponential, exponential);
  CheckActivation<SoftplusActivation>(
      -80, 80, [](double s) { return s > 0 ? s + std::log1p(std::exp(-s)) : std::log1p(std::exp(s)); },
      [](double s) { return 1 / (1 + std::exp(-s)); });
  CheckActivation<SigmoidActivation>(
      -80, 80, [](double s) { return 1 / (1 + std::exp(-s)); },
      [](double s) { return 1 / (1 + std::exp(-s)) / (1 + std::exp(s)); });
  CheckActivation<ReluActivation>(
      -3, 3, [](double s) { return s > 0 ? s : 0; }, [](double s) { return s > 0 ? 1.0 : 0; });
  CheckActivation<ReluSquaredActivation>(
      -3, 3, [](double s) { return s > 0 ? s * s : 0; }, [](double s) { return s > 0 ? 2 * s : 0; });
  CheckActivation<AbsActivation>(
      -3, 3, [](double s) { return std::abs(s); }, [](double s) { return s > 0 ? 1.0 : -1.0; });
  CheckActivation<SquareActivation>(
      -3, 3, [](double s) { return s * s; }, [](double s) { return 2 * s; });
  for (float zero : {0.0f, -0.0f}) {
    float slope = 1;
    EXPECT_EQ(std::signbit(AbsActivation::ValueAndSlope(zero, &slope)), false);
    EXPECT_EQ(slope, 0);
    EXPECT_EQ(SquareActivation::ValueAndSlope(zero, &slope), 0);
    EXPECT_EQ(slope, 0);
  }
}

TEST(Score, Powers) {
  for (float p : {1.0f, 1.25f, 2.0f, 2.5f, 3.0f, 4.0f, 7.0f, 15.0f, 15.5f, 50.0f, 100.0f, 1000.0f}) {
    VisitPower(p, [&](auto power) {
      for (float y = 0.001f; y <= 1.0f; y += 0.00173f) {
        const double want = std::pow(static_cast<double>(y), p - 1.0);
        if (want < 1e-30) continue;
        // Whole p: each squaring doubles the relative error, p half-units in the last place (6e-8) in the end. Real p:
        // the exponent (p - 1) log2 y carries the errors of the logarithm and of the product, about 2e-7 of it, times
        // ln 2.
        const double bound = p == std::floor(p) ? 6e-8 * p : 1.4e-7 * std::abs(std::log2(want));
        EXPECT_LT(Relative(power.MinusOne(y, p), want), kTolerance + bound) << y << "^" << p - 1;
      }
      EXPECT_EQ(power.MinusOne(0.0f, p), 0.0f) << p;
      EXPECT_NEAR(power.MinusOne(1.0f, p), 1.0f, 1e-6f) << p;
    });
  }
}

TEST(Score, RowConstantsOfScalesAndBiases) {
  AttentionSpec spec{.scale = ScoreScale::kSsmaxBias, .logit_bias = LogitBias::kNegLogN};
  RowConst row = MakeRowConst(MakeConfig(spec, 16), 9, 10, 0.5f, 0.25f, 0);
  EXPECT_NEAR(row.c, (0.5 * std::log(10.0) + 0.25) / 4, 1e-6);
  EXPECT_NEAR(row.c_by_s, std::log(10.0) / 4, 1e-6);
  EXPECT_NEAR(row.beta, -std::log(10.0), 1e-6);
  EXPECT_EQ(row.offset, 1.0f);
  EXPECT_EQ(MakeRowConst(MakeConfig(spec, 16), 2, 3, 1, 0, 0).offset, 0.0f);

  spec = {.scale = ScoreScale::kLogDLogN, .logit_bias = LogitBias::kNegLogTrain, .train_length = 256};
  row = MakeRowConst(MakeConfig(spec, 64), 999, 300, 1, 0, 0);
  EXPECT_NEAR(row.c, std::log(64.0) * std::log(300.0), 1e-5);
  EXPECT_NEAR(row.beta, -std::log(256.0), 1e-6);
}

TEST(Score, ClampsBoundTheScaleAndTheMultiplierAlone) {
  for (const std::string& name : ScoreScaleNames()) {
    AttentionSpec spec{
        .scale = *ParseScoreScale(name), .scale_constant = 0.3, .logit_bias = LogitBias::kNegLogN, .sharpen_p = 3.0};
    const float s = spec.has_learned_scale() ? 0.5f : 1.0f, b = spec.has_learned_bias() ? 0.25f : 0.0f;
    const auto row = [&](int n) { return MakeRowConst(MakeConfig(spec, 16), n - 1, n, s, b, 0); };
    const RowConst at_40 = row(40), plain = row(200);
    EXPECT_EQ(plain.multiplier, 200);
    if (name == "constant_log_n") {
      EXPECT_NEAR(plain.c, 0.3 * std::log(200.0), 1e-6);
      EXPECT_EQ(row(1).c, 0);
    }
    spec.scale_clamp = 40;
    EXPECT_EQ(row(200).c, at_40.c) << name;
    EXPECT_EQ(row(200).c_by_s, at_40.c_by_s) << name;
    EXPECT_EQ(row(200).c != plain.c, spec.has_growing_scale()) << name;
    EXPECT_EQ(row(200).beta, plain.beta) << name;
    EXPECT_EQ(row(200).multiplier, 200);
    spec.scale_clamp = 0, spec.sharpen_clamp = 50;
    EXPECT_EQ(row(200).c, plain.c) << name;
    EXPECT_EQ(row(200).multiplier, 50);
    EXPECT_EQ(row(40).multiplier, 40);
    EXPECT_EQ(SumHFactor(row(200)), 1.0f / 50);
  }
  // A thousand keys of 1 but for one of 3: 3 / 1002 of the weight, above 1 / 1000 and below 1 / 300.
  AttentionSpec spec{.sharpen_p = 3.0};
  EXPECT_GT(SharpenedStat(MakeRowConst(MakeConfig(spec, 16), 999, 1000, 1, 0, 0), 0, 1002, 3).c, 0);
  spec.sharpen_clamp = 300;
  EXPECT_LT(SharpenedStat(MakeRowConst(MakeConfig(spec, 16), 999, 1000, 1, 0, 0), 0, 1002, 3).c, 0);
  spec = {.normalisation = Normalisation::kCount, .scale_clamp = 3, .sharpen_clamp = 3};
  EXPECT_EQ(MakeRowConst(MakeConfig(spec, 16), 9, 10, 1, 0, 0).weight, 0.1f);
}

TEST(Score, AlibiSlopesAreThePapers) {
  // 8 heads: 1/2 to 1/256. 12: those of 8, then the odd ones of 16 (arXiv 2108.12409, its authors' get_slopes).
  for (int h = 0; h < 8; ++h) {
    EXPECT_EQ(AlibiSlope(h, 8), std::exp2(-(h + 1.0f)));
    EXPECT_EQ(AlibiSlope(h, 12), std::exp2(-(h + 1.0f)));
  }
  for (int h = 8; h < 12; ++h) EXPECT_NEAR(AlibiSlope(h, 12), std::exp2(-0.5 - (h - 8)), 1e-7);
  EXPECT_EQ(AlibiSlope(0, 1), 1.0f / 256);
  EXPECT_EQ(AlibiSlope(0, 3), 1.0f / 16);
  EXPECT_EQ(AlibiSlope(1, 3), 1.0f / 256);
  EXPECT_EQ(AlibiSlope(2, 3), 0.25f);

  const AttentionSpec spec{.scale = ScoreScale::kConstant, .scale_constant = 2};
  const RowConst row = MakeRowConst(MakeConfig(spec, 16), 9, 10, 1, 0, 0.25f);
  EXPECT_EQ(AlibiScore(row, 3.0f, 8.0f), 4.0f);
}

TEST(Score, RowStatisticsMarkTheSpecialCases) {
  const Config config = MakeConfig(FindAttentionVariant("lssar")->spec, 16);
  const RowConst row = MakeRowConst(config, 9, 10, 1, 0, 0);
  const RowStat zero = SharpenedStat(row, 0, 0, 0);
  EXPECT_EQ(zero.c, 0);
  EXPECT_FALSE(IsSharpened(config, zero));
  const RowStat uniform = SharpenedStat(row, 0, 5, 0.5f);  // ten keys of 0.5
  EXPECT_EQ(uniform.c, -0.2f);
  EXPECT_FALSE(IsSharpened(config, uniform));
  const RowStat sharp = SharpenedStat(row, 0, 5, 2);
  EXPECT_TRUE(IsSharpened(config, sharp));
  EXPECT_NEAR((2 - sharp.threshold) * sharp.a, 1, 1e-6);  // the largest u becomes 1,
  EXPECT_NEAR(sharp.threshold, 0.5, 1e-6);                // the mean 0
}

}  // namespace
}  // namespace ablate::score
