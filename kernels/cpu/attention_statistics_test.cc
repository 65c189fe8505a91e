// AttentionStatistics on the CPU against the whole matrix of weights in double precision: every member, lengths that no
// tile divides, windows, ALiBi, clamps, rows of every kind; the same bits for every number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/golden_cases.h"
#include "kernels/cpu/attention.h"
#include "kernels/reference/attention.h"

namespace ablate {
namespace {

using Floats = std::vector<float>;

constexpr double kTolerance = 1e-5;

Floats Normal(int64_t n, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  Floats x(n);
  for (float& value : x) value = normal(generator);
  return x;
}

struct Inputs {
  AttentionShape shape;
  Floats q, k, s, b;

  Inputs(const AttentionSpec& spec, const AttentionShape& of, uint64_t seed) : shape(of) {
    const int64_t size = int64_t{of.B} * of.H * of.T * of.D;
    q = Normal(size, seed), k = Normal(size, seed + 1);
    if (spec.qk_norm == QkNorm::kL2) Normalise(&q), Normalise(&k);
    for (int h = 0; h < of.H; ++h) s.push_back(0.7f + 0.2f * h), b.push_back(0.3f - 0.1f * h);
  }
  void Normalise(Floats* x) const {
    for (size_t i = 0; i < x->size(); i += shape.D) {
      double squares = 0;
      for (int d = 0; d < shape.D; ++d) squares += double{(*x)[i + d]} * (*x)[i + d];
      for (int d = 0; d < shape.D; ++d) (*x)[i + d] = static_cast<float>((*x)[i + d] / std::sqrt(squares));
    }
  }
};

Floats Measured(const AttentionSpec& spec, const Inputs& in, int threads = 1) {
  const AttentionShape& s = in.shape;
  Floats statistics(int64_t{s.B} * s.H * s.T * kAttentionStatistics, std::nanf(""));
  CpuAttentionStatistics(threads, spec, s, in.q.data(), in.k.data(), in.s.data(), in.b.data(), statistics.data());
  return statistics;
}

std::vector<double> Expected(AttentionSpec spec, const Inputs& in) {
  const AttentionShape& s = in.shape;
  spec.qk_norm = QkNorm::kNone;  // the inputs have unit length already
  std::vector<double> all;
  for (int head = 0; head < s.B * s.H; ++head) {
    const int64_t size = int64_t{s.T} * s.D;
    const auto part = [&](const Floats& x) {
      return std::vector<double>(x.begin() + head * size, x.begin() + (head + 1) * size);
    };
    const std::vector<double> q = part(in.q), k = part(in.k), v(size);
    const int h = head % s.H;
    const reference::AttentionResult result = reference::Attention(
        spec, s.T, s.D, s.window, q.data(), k.data(), v.data(), in.s[h], in.b[h], nullptr, reference::AlibiSlope(h, s.H));
    const std::vector<double> statistics = reference::Statistics(result, s.T, s.window);
    all.insert(all.end(), statistics.begin(), statistics.end());
  }
  return all;
}

void Compare(const Floats& got, const std::vector<double>& want, int T) {
  ASSERT_EQ(got.size(), want.size());
  static constexpr const char* kNames[] = {"entropy", "largest", "first", "zeros", "kind"};
  for (size_t i = 0; i < want.size(); ++i) {
    // Weights without l1 may be above 1.
    ASSERT_NEAR(got[i], want[i], kTolerance * std::max(1.0, std::abs(want[i]))) << kNames[i % kAttentionStatistics] << " of row "
                                             << i / kAttentionStatistics % T << ", head "
                                             << i / kAttentionStatistics / T;
  }
}

std::string Trace(std::string_view name, const AttentionSpec& spec, const AttentionShape& s) {
  return std::string(name) + " T=" + std::to_string(s.T) + " D=" + std::to_string(s.D) + " window=" +
         std::to_string(s.window) + (spec.alibi ? " alibi" : "");
}

TEST(CpuAttentionStatistics, EveryVariant) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    for (const bool alibi : {false, true}) {
      for (const int T : {1, 2, 3, 4, 17, 49, 150, 333}) {
        for (const int window : {0, 1, 20, 100}) {
          if (window >= T) continue;
          AttentionSpec spec = variant.spec;
          spec.alibi = alibi;
          const AttentionShape shape{.B = 1, .T = T, .H = 2, .D = T == 49 ? 12 : 32, .window = window};
          SCOPED_TRACE(Trace(variant.name, spec, shape));
          const Inputs in(spec, shape, 3 + T);
          Compare(Measured(spec, in), Expected(spec, in), T);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// The family beyond its named members: phi by normalisation, and powers that are whole, real and 1.
TEST(CpuAttentionStatistics, EveryActivationNormalisationAndPower) {
  for (const std::string& activation : ActivationNames()) {
    for (const std::string& normalisation : NormalisationNames()) {
      for (const double p : {0.0, 1.0, 2.5, 7.0, 15.0}) {
        for (const double offset : {1.0, 0.0}) {
          AttentionSpec spec{.scale = ScoreScale::kLogN,
                             .activation = *ParseActivation(activation),
                             .normalisation = *ParseNormalisation(normalisation),
                             .sharpen_offset = offset};
          if (p > 0) spec.sharpen_p = p, spec.qk_norm = QkNorm::kL2;
          if (!ValidateAttentionSpec(spec).ok() || (p == 0 && offset == 0)) continue;
          const AttentionShape shape{.B = 2, .T = 70, .H = 1, .D = 16};
          SCOPED_TRACE(activation + " " + normalisation + " p=" + std::to_string(p) + " o=" + std::to_string(offset));
          const Inputs in(spec, shape, 29);
          Compare(Measured(spec, in), Expected(spec, in), shape.T);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(CpuAttentionStatistics, Transforms) {
  for (const char* name : {"softmax", "lssar", "ssmax_bias", "relu"}) {
    for (const ScoreTransform transform : {ScoreTransform::kInverted, ScoreTransform::kRecentred}) {
      AttentionSpec spec = FindAttentionVariant(name)->spec;
      spec.transform = transform;
      const AttentionShape shape{.B = 1, .T = 90, .H = 2, .D = 16, .window = spec.sharpen_p ? 0 : 50};
      SCOPED_TRACE(Trace(name, spec, shape) + " " + std::string(Name(transform)));
      const Inputs in(spec, shape, 6);
      Compare(Measured(spec, in), Expected(spec, in), shape.T);
    }
  }
}

TEST(CpuAttentionStatistics, Clamps) {
  for (const char* name : {"lssar", "ssmax", "softmax_sharpened", "cosine_softmax"}) {
    AttentionSpec spec = FindAttentionVariant(name)->spec;
    spec.scale_clamp = 20, spec.sharpen_clamp = 30;
    const AttentionShape shape{.B = 1, .T = 90, .H = 2, .D = 16};
    SCOPED_TRACE(Trace(name, spec, shape));
    const Inputs in(spec, shape, 5);
    Compare(Measured(spec, in), Expected(spec, in), shape.T);
  }
}

TEST(CpuAttentionStatistics, GoldenCases) {
  const auto cases = ReadGoldenAttention(ABLATE_GOLDEN_DIR "/attention.json");
  ASSERT_TRUE(cases.ok()) << cases.status();
  for (const GoldenAttentionCase& c : *cases) {
    SCOPED_TRACE(c.name + " T=" + std::to_string(c.T));
    Inputs in(c.spec, {.B = 1, .T = c.T, .H = 1, .D = c.d, .window = c.window}, 1);
    in.q.assign(c.q.begin(), c.q.end());
    in.k.assign(c.k.begin(), c.k.end());
    if (c.spec.qk_norm == QkNorm::kL2) in.Normalise(&in.q), in.Normalise(&in.k);
    in.s[0] = static_cast<float>(c.learned_s), in.b[0] = static_cast<float>(c.learned_b);
    Compare(Measured(c.spec, in), Expected(c.spec, in), c.T);
  }
}

// What forward takes as zero because it weighs nothing (y up to 0.136 for p = 15) is no zero of the formula.
TEST(CpuAttentionStatistics, NegligibleWeightsAreNoZeros) {
  const AttentionSpec& spec = FindAttentionVariant("lssar")->spec;
  const AttentionShape shape{.B = 1, .T = 100, .H = 1, .D = 16};
  const Inputs in(spec, shape, 3);
  const Floats statistics = Measured(spec, in);
  const std::vector<double> v(in.q.size()), q(in.q.begin(), in.q.end()), k(in.k.begin(), in.k.end());
  AttentionSpec given = spec;
  given.qk_norm = QkNorm::kNone;
  const reference::AttentionResult want =
      reference::Attention(given, shape.T, shape.D, 0, q.data(), k.data(), v.data(), 1, 0, nullptr);
  int negligible = 0;
  for (int i = 0; i < shape.T; ++i) {
    double largest = 0;
    for (int j = 0; j <= i; ++j) largest = std::max(largest, want.weights[i * shape.T + j]);
    for (int j = 0; j <= i; ++j) {
      const double w = want.weights[i * shape.T + j];
      negligible += w > 0 && w < 1e-13 * largest;
    }
    EXPECT_NEAR(statistics[i * kAttentionStatistics + kRowZeros], want.zeros[i] / (i + 1.0), 1e-6);
  }
  EXPECT_GT(negligible, 50);
}

TEST(CpuAttentionStatistics, RowsOfZerosAndRowsWithoutContrast) {
  const AttentionShape shape{.B = 1, .T = 40, .H = 1, .D = 8};
  const AttentionSpec& relu = FindAttentionVariant("relu")->spec;
  Inputs in(relu, shape, 61);
  in.q.assign(in.q.size(), 1);
  in.k.assign(in.k.size(), -1);
  Floats got = Measured(relu, in);
  for (int t = 0; t < shape.T; ++t) {
    EXPECT_EQ(Floats(got.begin() + t * 5, got.begin() + t * 5 + 5), (Floats{0, 0, 0, 1, 2}));
  }
  got = Measured(FindAttentionVariant("lssar")->spec, in);  // all keys the same
  for (int t = 3; t < shape.T; ++t) {
    EXPECT_NEAR(got[t * 5 + kRowEntropy], std::log(t + 1.0), kTolerance);
    EXPECT_NEAR(got[t * 5 + kRowLargest], 1 / (t + 1.0), 1e-6);
    EXPECT_EQ(got[t * 5 + kRowZeros], 0);
    EXPECT_EQ(got[t * 5 + kRowKind], 1);
  }
}

TEST(CpuAttentionStatistics, NanIsNotHidden) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    Inputs in(variant.spec, {.B = 1, .T = 40, .H = 1, .D = 8}, 71);
    in.q[20 * 8 + 3] = std::nanf("");
    const Floats got = Measured(variant.spec, in);
    EXPECT_TRUE(std::isnan(got[20 * 5 + kRowEntropy])) << variant.name;
    EXPECT_TRUE(std::isfinite(got[19 * 5 + kRowEntropy])) << variant.name;
  }
}

TEST(CpuAttentionStatistics, SameBitsForEveryNumberOfThreads) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    const Inputs in(variant.spec, {.B = 1, .T = 1000, .H = 2, .D = 8}, 11);
    const Floats one = Measured(variant.spec, in, 1), three = Measured(variant.spec, in, 3);
    EXPECT_EQ(std::memcmp(one.data(), three.data(), sizeof(float) * one.size()), 0) << variant.name;
  }
}

}  // namespace
}  // namespace ablate
