// The double-precision reference against golden values (made by automatic differentiation, apart from this project) and
// against finite differences.
#include "kernels/reference/attention.h"

#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/decomposition_cases.h"
#include "kernels/attention/golden_cases.h"

namespace ablate {
namespace {

using reference::Attention;
using reference::AttentionResult;

double RelativeError(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 1, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  return error / largest;
}

TEST(ReferenceAttention, ReproducesGoldenValues) {
  const auto cases = ReadGoldenAttention(ABLATE_GOLDEN_DIR "/attention.json");
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_GE(cases->size(), 30u);
  for (const GoldenAttentionCase& c : *cases) {
    SCOPED_TRACE(c.name + " T=" + std::to_string(c.T));
    const AttentionResult r = Attention(c.spec, c.T, c.d, c.window, c.q.data(), c.k.data(), c.v.data(), c.learned_s,
                                        c.learned_b, c.dout.data());
    EXPECT_LT(RelativeError(r.out, c.out), 1e-10);
    EXPECT_LT(RelativeError(r.dq, c.dq), 1e-10);
    EXPECT_LT(RelativeError(r.dk, c.dk), 1e-10);
    EXPECT_LT(RelativeError(r.dv, c.dv), 1e-10);
    EXPECT_LT(RelativeError(r.weight_sum, c.row_weight_sum), 1e-10);
    ASSERT_TRUE(c.zero_rows.has_value());
    EXPECT_EQ(r.zero_rows, *c.zero_rows);
    EXPECT_EQ(r.counts.zero_rows, static_cast<int64_t>(c.zero_rows->size()));
    EXPECT_EQ(c.d_learned_s.has_value(), c.spec.has_learned_scale());
    EXPECT_EQ(c.d_learned_b.has_value(), c.spec.has_learned_bias());
    EXPECT_LT(RelativeError({r.dlearned_s, r.dlearned_b}, {c.d_learned_s.value_or(0), c.d_learned_b.value_or(0)}),
              1e-10);
  }
}

std::vector<double> Normal(size_t n, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(n);
  for (double& value : x) value = normal(generator);
  return x;
}

// The slope of sum(out * dout) along a random direction, against the gradient's.
void CheckFiniteDifferences(const AttentionSpec& spec, int T, int D, int window) {
  const size_t size = static_cast<size_t>(T) * D;
  std::vector<double> x[3] = {Normal(size, 1), Normal(size, 2), Normal(size, 3)};
  const std::vector<double> dout = Normal(size, 4);
  double s = 0.8, b = 0.3;
  const auto loss = [&] {
    const AttentionResult r = Attention(spec, T, D, window, x[0].data(), x[1].data(), x[2].data(), s, b, nullptr, 0.3);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += r.out[i] * dout[i];
    return sum;
  };
  const AttentionResult r =
      Attention(spec, T, D, window, x[0].data(), x[1].data(), x[2].data(), s, b, dout.data(), 0.3);
  const double step = 1e-6;
  const auto check = [&](double* value, double gradient, const char* what) {
    const double at = *value;
    *value = at + step;
    const double above = loss();
    *value = at - step;
    const double below = loss();
    *value = at;
    EXPECT_NEAR((above - below) / (2 * step), gradient, 2e-6 * std::max(10.0, std::abs(gradient))) << what;
  };
  const std::vector<double>* gradients[3] = {&r.dq, &r.dk, &r.dv};
  const char* names[3] = {"q", "k", "v"};
  for (int which = 0; which < 3; ++which) {
    for (size_t i = 0; i < size; i += 3) check(&x[which][i], (*gradients[which])[i], names[which]);
  }
  if (spec.has_learned_scale()) check(&s, r.dlearned_s, "s");
  if (spec.has_learned_bias()) check(&b, r.dlearned_b, "b");
}

TEST(ReferenceAttention, GradientsOfEveryVariantAgreeWithFiniteDifferences) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    SCOPED_TRACE(std::string(variant.name));
    CheckFiniteDifferences(variant.spec, 9, 6, 0);
    CheckFiniteDifferences(variant.spec, 9, 6, 4);
    AttentionSpec alibi = variant.spec;
    alibi.alibi = true;
    CheckFiniteDifferences(alibi, 9, 6, 0);
    CheckFiniteDifferences(alibi, 9, 6, 4);
    AttentionSpec clamped = variant.spec;
    clamped.scale_clamp = 4, clamped.sharpen_clamp = 5;
    CheckFiniteDifferences(clamped, 9, 6, 0);
    CheckFiniteDifferences(clamped, 9, 6, 7);
    for (double p : {1.0, 2.5, 3.0, 50.0}) {
      AttentionSpec spec = variant.spec;
      if (spec.normalisation != Normalisation::kL1) break;
      spec.sharpen_p = p;
      CheckFiniteDifferences(spec, 9, 6, 0);
      spec.sharpen_offset = 0.5;
      spec.offset_free_rows = 0;
      CheckFiniteDifferences(spec, 9, 6, 5);
    }
  }
}

TEST(ReferenceAttention, GradientsOfSoftmaxTakenApartAgreeWithFiniteDifferences) {
  for (const NamedSpec& member : DecompositionCases()) {
    SCOPED_TRACE(member.name);
    CheckFiniteDifferences(member.spec, 9, 6, 0);
    CheckFiniteDifferences(member.spec, 9, 6, 4);
  }
}

// The definitions of docs/attention.md by other means: -x is x of -q; x less its mean is x of k less the mean key, row
// by row; and a shift of all scores of a row changes nothing under exp and l1.
TEST(ReferenceAttention, TransformsAreTheFormula) {
  const int T = 12, D = 4;
  const std::vector<double> q = Normal(T * D, 1), k = Normal(T * D, 2), v = Normal(T * D, 3), dout = Normal(T * D, 4);
  for (const NamedSpec& member : DecompositionCases()) {
    if (member.spec.transform == ScoreTransform::kNone || member.spec.qk_norm == QkNorm::kL2) continue;
    for (int window : {0, 5}) {
      SCOPED_TRACE(member.name + " window " + std::to_string(window));
      AttentionSpec plain = member.spec;
      plain.transform = ScoreTransform::kNone;
      const AttentionResult got =
          Attention(member.spec, T, D, window, q.data(), k.data(), v.data(), 0.8, 0.3, dout.data(), 0.3);
      if (member.spec.transform == ScoreTransform::kInverted) {
        std::vector<double> minus_q = q;
        for (double& x : minus_q) x = -x;
        AttentionResult want =
            Attention(plain, T, D, window, minus_q.data(), k.data(), v.data(), 0.8, 0.3, dout.data(), 0.3);
        for (double& x : want.dq) x = -x;
        EXPECT_LT(RelativeError(got.out, want.out), 1e-10);
        EXPECT_LT(RelativeError(got.dq, want.dq), 1e-10);
        EXPECT_LT(RelativeError(got.dk, want.dk), 1e-10);
        EXPECT_NEAR(got.dlearned_s, want.dlearned_s, 1e-10);
        continue;
      }
      for (int i = 0; i < T; ++i) {
        const int first = window > 0 ? std::max(0, i - window + 1) : 0;
        std::vector<double> centred = k;
        for (int d = 0; d < D; ++d) {
          double mean = 0;
          for (int j = first; j <= i; ++j) mean += k[j * D + d] / (i - first + 1);
          for (int j = 0; j < T; ++j) centred[j * D + d] -= mean;
        }
        const AttentionResult want =
            Attention(plain, T, D, window, q.data(), centred.data(), v.data(), 0.8, 0.3, nullptr, 0.3);
        for (int d = 0; d < D; ++d) EXPECT_NEAR(got.out[i * D + d], want.out[i * D + d], 1e-10);
      }
      if (plain.activation == Activation::kExp && plain.normalisation == Normalisation::kL1) {
        const AttentionResult same =
            Attention(plain, T, D, window, q.data(), k.data(), v.data(), 0.8, 0.3, dout.data(), 0.3);
        EXPECT_LT(RelativeError(got.out, same.out), 1e-10);
        EXPECT_LT(RelativeError(got.dq, same.dq), 1e-10);
        EXPECT_LT(RelativeError(got.dk, same.dk), 1e-10);
      }
    }
  }
}

TEST(ReferenceAttention, EveryValueOfEveryAxisHasAGradient) {
  for (const std::string& scale : ScoreScaleNames()) {
    for (const std::string& activation : ActivationNames()) {
      for (const std::string& bias : LogitBiasNames()) {
        AttentionSpec spec{.scale = *ParseScoreScale(scale),
                           .scale_constant = 0.4,
                           .activation = *ParseActivation(activation),
                           .logit_bias = *ParseLogitBias(bias),
                           .train_length = 5};
        SCOPED_TRACE(scale + " " + activation + " " + bias);
        for (Normalisation normalisation : {Normalisation::kL1, Normalisation::kCount, Normalisation::kNone}) {
          spec.normalisation = normalisation;
          CheckFiniteDifferences(spec, 5, 4, 0);
        }
      }
    }
  }
}

// The formula of docs/attention.md, row by row, with log min(n, 4), or with min(n, 6) times the weight.
TEST(ReferenceAttention, ClampsAreTheFormula) {
  const int T = 20, D = 6;
  const std::vector<double> q = Normal(T * D, 1), k = Normal(T * D, 2), v = Normal(T * D, 3);
  AttentionSpec spec{
      .scale = ScoreScale::kConstantLogN, .scale_constant = 0.3, .activation = Activation::kSoftplus, .sharpen_p = 3.0};
  std::vector<std::vector<double>> results;
  for (const auto& [scale_clamp, sharpen_clamp] : {std::pair(0, 0), {4, 0}, {0, 6}, {4, 6}}) {
    spec.scale_clamp = scale_clamp, spec.sharpen_clamp = sharpen_clamp;
    std::vector<double> want;
    int uncontrasted = 0;
    for (int i = 0; i < T; ++i) {
      const double n = i + 1, of_scale = scale_clamp > 0 ? std::min(n, 4.0) : n;
      const double of_sharpening = sharpen_clamp > 0 ? std::min(n, 6.0) : n;
      std::vector<double> a(i + 1), w(i + 1);
      double sum = 0, powers = 0;
      for (int j = 0; j <= i; ++j) {
        double dot = 0;
        for (int d = 0; d < D; ++d) dot += q[i * D + d] * k[j * D + d];
        a[j] = std::log(1 + std::exp(0.3 * std::log(of_scale) * dot));
        sum += a[j];
      }
      for (int j = 0; j <= i; ++j) {
        a[j] /= sum;
        w[j] = std::pow(std::max(0.0, a[j] * of_sharpening - (i < 3 ? 0 : 1)), 3);
        powers += w[j];
      }
      uncontrasted += powers == 0;
      for (int d = 0; d < D; ++d) {
        double out = 0;
        for (int j = 0; j <= i; ++j) out += (powers > 0 ? w[j] / powers : a[j]) * v[j * D + d];
        want.push_back(out);
      }
    }
    const AttentionResult got = Attention(spec, T, D, 0, q.data(), k.data(), v.data(), 1, 0, nullptr);
    EXPECT_LT(RelativeError(got.out, want), 1e-10) << scale_clamp << " " << sharpen_clamp;
    EXPECT_EQ(got.counts.uncontrasted_rows, uncontrasted);
    // Rows that do not reach a clamp are as they were.
    if (!results.empty()) {
      EXPECT_TRUE(std::equal(got.out.begin(), got.out.begin() + 4 * D, results[0].begin()));
      EXPECT_NE(got.out[19 * D], results[0][19 * D]);
    }
    results.push_back(got.out);
  }
}

// -m (i - j) is the product of (-m i, 1) and (1, m j): two more dimensions, divided by the scale factor that they meet.
TEST(ReferenceAttention, AlibiIsTwoMoreDimensions) {
  const int T = 12, D = 4;
  const double slope = 0.3, c = 0.7;
  const std::vector<double> q = Normal(T * D, 1), k = Normal(T * D, 2), v = Normal(T * D, 3), dout = Normal(T * D, 4);
  const auto widen = [&](const std::vector<double>& x, auto first, auto second) {
    std::vector<double> wide;
    for (int i = 0; i < T; ++i) {
      wide.insert(wide.end(), &x[i * D], &x[i * D] + D);
      wide.push_back(first(i));
      wide.push_back(second(i));
    }
    return wide;
  };
  const auto zero = [](int) { return 0.0; };
  const std::vector<double> wide_q = widen(
      q, [&](int i) { return -slope * i / c; }, [&](int) { return 1 / c; });
  const std::vector<double> wide_k = widen(
      k, [](int) { return 1.0; }, [&](int j) { return slope * j; });
  const std::vector<double> wide_v = widen(v, zero, zero), wide_dout = widen(dout, zero, zero);
  for (const AttentionVariant& variant : AttentionVariants()) {
    for (int window : {0, 5}) {
      SCOPED_TRACE(std::string(variant.name));
      AttentionSpec spec = variant.spec;
      spec.qk_norm = QkNorm::kNone;
      spec.scale = ScoreScale::kConstant;
      spec.scale_constant = c;
      const AttentionResult want =
          Attention(spec, T, D + 2, window, wide_q.data(), wide_k.data(), wide_v.data(), 1, 0, wide_dout.data(), slope);
      spec.alibi = true;
      const AttentionResult got = Attention(spec, T, D, window, q.data(), k.data(), v.data(), 1, 0, dout.data(), slope);
      const auto narrow = [&](const std::vector<double>& wide) {
        std::vector<double> x;
        for (int i = 0; i < T; ++i) x.insert(x.end(), &wide[i * (D + 2)], &wide[i * (D + 2)] + D);
        return x;
      };
      EXPECT_LT(RelativeError(got.out, narrow(want.out)), 1e-10);
      EXPECT_LT(RelativeError(got.dq, narrow(want.dq)), 1e-10);
      EXPECT_LT(RelativeError(got.dk, narrow(want.dk)), 1e-10);
      EXPECT_LT(RelativeError(got.dv, narrow(want.dv)), 1e-10);
    }
  }
  // The slopes of 6 heads in the paper's order: 4 of four heads, then the first and third of eight.
  const double slopes[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  for (int h = 0; h < 6; ++h) EXPECT_DOUBLE_EQ(reference::AlibiSlope(h, 6), slopes[h]);
  for (int h = 0; h < 16; ++h) EXPECT_DOUBLE_EQ(reference::AlibiSlope(h, 16), std::pow(2.0, -0.5 * (h + 1)));
}

TEST(ReferenceAttention, RowsWithoutATextbookValue) {
  const int T = 6, D = 4;
  const std::vector<double> v = Normal(T * D, 1), dout = Normal(T * D, 2);
  const std::vector<double> one(T * D, 1.0), minus(T * D, -1.0);

  // All scores negative: relu weighs nothing.
  AttentionResult r =
      Attention(FindAttentionVariant("relu")->spec, T, D, 0, one.data(), minus.data(), v.data(), 1, 0, dout.data());
  EXPECT_EQ(r.counts.zero_rows, T);
  for (const std::vector<double>* x : {&r.out, &r.dq, &r.dk, &r.dv}) EXPECT_THAT(*x, ::testing::Each(0.0));

  // Equal keys: rows 4.. have no contrast and keep equal weights; rows 1..3 have offset 0.
  r = Attention(FindAttentionVariant("lssar")->spec, T, D, 0, one.data(), one.data(), v.data(), 1, 0, dout.data());
  EXPECT_EQ(r.counts.uncontrasted_rows, T - 3);
  EXPECT_EQ(r.counts.zero_rows, 0);
  for (int i = 0; i < T; ++i) {
    EXPECT_NEAR(r.weight_sum[i], 1, 1e-12);
    double mean = 0;
    for (int j = 0; j <= i; ++j) mean += v[j * D] / (i + 1);
    EXPECT_NEAR(r.out[i * D], mean, 1e-12);
  }

  // Scores of -1500 and -3000: far in softplus's tail, which is exp's; the nearer key takes all.
  std::vector<double> k(T * D, -1500.0 / 4);
  for (int d = 0; d < D; ++d) k[d] *= 2;
  AttentionSpec tail{.scale = ScoreScale::kOne, .activation = Activation::kSoftplus};
  r = Attention(tail, 2, D, 0, one.data(), k.data(), v.data(), 1, 0, dout.data());
  EXPECT_EQ(r.counts.zero_rows, 0);
  EXPECT_NEAR(r.out[D], v[D], 1e-12);
}

}  // namespace
}  // namespace ablate
