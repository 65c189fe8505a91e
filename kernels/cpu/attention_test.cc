// The float32 kernels against the double-precision reference and golden values, over the whole family and odd shapes;
// and what only they promise: the same bits for every number of threads, finite results, memory linear in T.
#include "kernels/cpu/attention.h"

#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/decomposition_cases.h"
#include "kernels/attention/golden_cases.h"
#include "kernels/reference/attention.h"

namespace ablate {
namespace {

using Floats = std::vector<float>;

constexpr double kOutTolerance = 2e-4, kGradientTolerance = 2e-3;

Floats Normal(int64_t n, uint64_t seed, float scale = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats x(n);
  for (float& value : x) value = normal(generator);
  return x;
}

void Normalise(Floats& x, int D) {
  for (size_t i = 0; i < x.size(); i += D) {
    double norm = 0;
    for (int d = 0; d < D; ++d) norm += static_cast<double>(x[i + d]) * x[i + d];
    for (int d = 0; d < D; ++d) x[i + d] = static_cast<float>(x[i + d] / std::sqrt(norm));
  }
}

struct Inputs {
  AttentionShape shape;
  Floats q, k, v, dout;  // q, k, v [B,H,T,D]; dout [B,T,H,D]
  Floats s, b;

  Inputs(const AttentionSpec& spec, const AttentionShape& of, uint64_t seed, float scale = 1) : shape(of) {
    const int64_t size = int64_t{of.B} * of.H * of.T * of.D;
    q = Normal(size, seed, scale), k = Normal(size, seed + 1, scale), v = Normal(size, seed + 2);
    dout = Normal(size, seed + 3);
    if (spec.qk_norm == QkNorm::kL2) Normalise(q, of.D), Normalise(k, of.D);
    for (int h = 0; h < of.H; ++h) s.push_back(0.7f + 0.2f * h), b.push_back(0.3f - 0.1f * h);
  }
};

struct Outputs {
  Floats out, stats, dq, dk, dv, ds, db;
  AttentionCounts counts;
};

Outputs RunCpu(const AttentionSpec& spec, const Inputs& in, int threads) {
  const float nan = std::nanf("");
  Outputs r;
  r.out.assign(in.q.size(), nan);
  r.stats.assign(AttentionRowStatFloats(in.shape), nan);
  r.dq = r.dk = r.dv = r.out;
  // Added to, not overwritten: whatever was there before must survive.
  r.ds.assign(in.shape.H, 8), r.db.assign(in.shape.H, 8);
  r.counts = {.zero_rows = 1000, .uncontrasted_rows = 1000};
  CpuAttentionForward(threads, spec, in.shape, in.q.data(), in.k.data(), in.v.data(), in.s.data(), in.b.data(),
                      r.out.data(), r.stats.data(), &r.counts);
  CpuAttentionBackward(threads, spec, in.shape, in.q.data(), in.k.data(), in.v.data(), in.s.data(), in.b.data(),
                       r.out.data(), in.dout.data(), r.stats.data(), r.dq.data(), r.dk.data(), r.dv.data(), r.ds.data(),
                       r.db.data());
  for (Floats* x : {&r.ds, &r.db}) {
    for (float& value : *x) value -= 8;
  }
  r.counts.zero_rows -= 1000, r.counts.uncontrasted_rows -= 1000;
  return r;
}

double Error(const Floats& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 1, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return HUGE_VAL;
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  return error / largest;
}

// [B,T,H,D] of one head <-> [T,D].
int64_t OutIndex(const AttentionShape& s, int b, int h, int t, int d) {
  return ((int64_t{b} * s.T + t) * s.H + h) * s.D + d;
}

void CompareWithReference(AttentionSpec spec, const Inputs& in, bool compare_counts = true) {
  const AttentionShape& s = in.shape;
  const Outputs got = RunCpu(spec, in, 1);
  spec.qk_norm = QkNorm::kNone;  // the inputs have unit length already
  const int64_t head_size = int64_t{s.T} * s.D;
  AttentionCounts counts;
  std::vector<double> ds(s.H), db(s.H);
  for (int b = 0; b < s.B; ++b) {
    for (int h = 0; h < s.H; ++h) {
      const int64_t at = (int64_t{b} * s.H + h) * head_size;
      const auto head = [&](const Floats& x) { return std::vector<double>(&x[at], &x[at] + head_size); };
      const auto head32 = [&](const Floats& x) { return Floats(&x[at], &x[at] + head_size); };
      Floats out(head_size);
      std::vector<double> dout(head_size);
      for (int t = 0; t < s.T; ++t) {
        for (int d = 0; d < s.D; ++d) {
          out[t * s.D + d] = got.out[OutIndex(s, b, h, t, d)];
          dout[t * s.D + d] = in.dout[OutIndex(s, b, h, t, d)];
        }
      }
      const std::vector<double> q = head(in.q), k = head(in.k), v = head(in.v);
      const reference::AttentionResult want =
          reference::Attention(spec, s.T, s.D, s.window, q.data(), k.data(), v.data(), in.s[h], in.b[h], dout.data(),
                               reference::AlibiSlope(h, s.H));
      EXPECT_LT(Error(out, want.out), kOutTolerance);
      EXPECT_LT(Error(head32(got.dq), want.dq), kGradientTolerance);
      EXPECT_LT(Error(head32(got.dk), want.dk), kGradientTolerance);
      EXPECT_LT(Error(head32(got.dv), want.dv), kGradientTolerance);
      ds[h] += want.dlearned_s, db[h] += want.dlearned_b;
      counts.zero_rows += want.counts.zero_rows;
      counts.uncontrasted_rows += want.counts.uncontrasted_rows;
    }
  }
  EXPECT_LT(Error(got.ds, ds), kGradientTolerance);
  EXPECT_LT(Error(got.db, db), kGradientTolerance);
  if (compare_counts) {
    EXPECT_EQ(got.counts.zero_rows, counts.zero_rows);
    EXPECT_EQ(got.counts.uncontrasted_rows, counts.uncontrasted_rows);
  }
}

std::string Trace(std::string_view name, const AttentionSpec& spec, const AttentionShape& s) {
  return std::string(name) + " p=" + std::to_string(spec.sharpen_p.value_or(0)) + " B=" + std::to_string(s.B) +
         " T=" + std::to_string(s.T) + " H=" + std::to_string(s.H) + " D=" + std::to_string(s.D) +
         " window=" + std::to_string(s.window) + (spec.alibi ? " alibi" : "");
}

TEST(CpuAttention, EveryVariantOnEveryShape) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    uint64_t seed = 1;
    for (int T : {1, 2, 3, 4, 5, 7, 33, 64, 65, 130, 257}) {
      for (int D : {4, 5, 8, 12, 16, 20, 32, 64, 128}) {
        // The large products once each in turn; everything small.
        if (T > 100 && D != 20 && D != 32 && (T + D) % 3 != 0) continue;
        const AttentionShape shape{.B = T < 60 ? 2 : 1, .T = T, .H = T < 100 ? 3 : 2, .D = D};
        SCOPED_TRACE(Trace(variant.name, variant.spec, shape));
        CompareWithReference(variant.spec, Inputs(variant.spec, shape, ++seed));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CpuAttention, Windows) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    for (int T : {5, 40, 150}) {
      for (int window : {1, 2, 7, 16, 17, 50, 149, 200}) {
        const AttentionShape shape{.B = 1, .T = T, .H = 2, .D = 16, .window = window};
        SCOPED_TRACE(Trace(variant.name, variant.spec, shape));
        CompareWithReference(variant.spec, Inputs(variant.spec, shape, T * 1000 + window));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CpuAttention, EveryPowerOnEveryActivation) {
  for (const std::string& activation : ActivationNames()) {
    for (double p : {1.0, 1.25, 2.0, 2.5, 3.0, 5.0, 7.0, 15.0, 15.5, 50.0, 100.0, 99.5}) {
      for (double offset : {1.0, 0.5, 0.0}) {
        AttentionSpec spec{.qk_norm = QkNorm::kL2,
                           .scale = ScoreScale::kLogDLogN,
                           .activation = *ParseActivation(activation),
                           .sharpen_p = p,
                           .sharpen_offset = offset};
        const AttentionShape shape{.B = 1, .T = 70, .H = 1, .D = 16};
        SCOPED_TRACE(Trace(activation, spec, shape) + " offset=" + std::to_string(offset));
        CompareWithReference(spec, Inputs(spec, shape, static_cast<uint64_t>(p * 100)));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CpuAttention, EveryValueOfEveryAxis) {
  for (const std::string& scale : ScoreScaleNames()) {
    for (const std::string& activation : ActivationNames()) {
      for (const std::string& normalisation : NormalisationNames()) {
        for (const std::string& bias : LogitBiasNames()) {
          AttentionSpec spec{.scale = *ParseScoreScale(scale),
                             .scale_constant = -0.4,
                             .activation = *ParseActivation(activation),
                             .normalisation = *ParseNormalisation(normalisation),
                             .logit_bias = *ParseLogitBias(bias),
                             .train_length = 20};
          const AttentionShape shape{.B = 1, .T = 35, .H = 2, .D = 8};
          SCOPED_TRACE(scale + " " + activation + " " + normalisation + " " + bias);
          CompareWithReference(spec, Inputs(spec, shape, 5, 0.7f));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// Softmax taken apart, over several panels.
TEST(CpuAttention, Decomposition) {
  for (const NamedSpec& member : DecompositionCases()) {
    for (const AttentionShape& shape : {AttentionShape{.B = 2, .T = 33, .H = 3, .D = 20},
                                        {.B = 1, .T = 200, .H = 2, .D = 32},
                                        {.B = 1, .T = 200, .H = 1, .D = 16, .window = 70}}) {
      SCOPED_TRACE(Trace(member.name, member.spec, shape));
      CompareWithReference(member.spec, Inputs(member.spec, shape, 77));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Partial sums over row chunks begin at T = 1024; panels shrink as T grows.
TEST(CpuAttention, LongSequences) {
  for (const char* name : {"softmax", "lssar", "ssmax"}) {
    const AttentionSpec& spec = FindAttentionVariant(name)->spec;
    for (int window : {0, 300}) {
      const AttentionShape shape{.B = 1, .T = 1500, .H = 1, .D = 8, .window = window};
      SCOPED_TRACE(Trace(name, spec, shape));
      CompareWithReference(spec, Inputs(spec, shape, 7));
    }
  }
}

TEST(CpuAttention, Alibi) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    AttentionSpec spec = variant.spec;
    spec.alibi = true;
    for (int T : {1, 2, 5, 33, 150}) {
      for (int H : {1, 2, 3, 4, 6}) {
        for (int window : {0, 1, 17, 40}) {
          if (window > 0 && (T < 33 || H != 3)) continue;
          const AttentionShape shape{.B = 2, .T = T, .H = H, .D = T == 33 ? 5 : 16, .window = window};
          SCOPED_TRACE(Trace(variant.name, spec, shape));
          CompareWithReference(spec, Inputs(spec, shape, T * 100 + H * 10 + window));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
    // Partial sums over row chunks; the far keys' scores are below -700.
    const AttentionShape shape{.B = 1, .T = 1500, .H = 3, .D = 8};
    SCOPED_TRACE(Trace(variant.name, spec, shape));
    CompareWithReference(spec, Inputs(spec, shape, 9));
  }
}

// log n of the scale and N of the sharpening bounded, each alone and both: below the clamp the bits stay.
TEST(CpuAttention, Clamps) {
  std::vector<AttentionVariant> variants = AttentionVariants();
  variants.push_back({"constant_log_n", {.scale = ScoreScale::kConstantLogN, .scale_constant = 0.3}, ""});
  for (const AttentionVariant& variant : variants) {
    for (const auto& [scale_clamp, sharpen_clamp] : {std::pair(20, 0), {0, 25}, {16, 40}}) {
      for (int window : {0, 50}) {
        AttentionSpec spec = variant.spec;
        spec.scale_clamp = scale_clamp, spec.sharpen_clamp = sharpen_clamp;
        if (spec.sharpen_p) spec.sharpen_p = 3;
        const AttentionShape shape{.B = 1, .T = 90, .H = 2, .D = 16, .window = window};
        SCOPED_TRACE(Trace(variant.name, spec, shape) + " " + std::to_string(scale_clamp));
        const Inputs in(spec, shape, 17 + scale_clamp + window);
        CompareWithReference(spec, in);
        if (::testing::Test::HasFailure()) return;
        AttentionSpec plain = spec;
        plain.scale_clamp = plain.sharpen_clamp = 0;
        const Floats clamped_out = RunCpu(spec, in, 1).out, plain_out = RunCpu(plain, in, 1).out;
        const bool acts =
            (scale_clamp > 0 && spec.has_growing_scale()) || (sharpen_clamp > 0 && spec.sharpen_p.has_value());
        EXPECT_EQ(std::memcmp(clamped_out.data(), plain_out.data(), sizeof(float) * plain_out.size()) != 0, acts);
        const int unreached = 16 * shape.H * shape.D;  // rows of n <= 16
        EXPECT_EQ(std::memcmp(clamped_out.data(), plain_out.data(), sizeof(float) * unreached), 0);
      }
    }
  }
}

std::vector<double> Norms(const std::vector<double>& x, int D, bool l2) {
  std::vector<double> norms(x.size() / D, 1.0);
  for (size_t i = 0; l2 && i < norms.size(); ++i) {
    double sum = 0;
    for (int d = 0; d < D; ++d) sum += x[i * D + d] * x[i * D + d];
    norms[i] = std::sqrt(sum);
  }
  return norms;
}

Floats L2Backward(const Floats& unit, const Floats& gradient, const std::vector<double>& norms, int D) {
  Floats dx(unit.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    double radial = 0;
    for (size_t at = i * D; at < (i + 1) * D; ++at) radial += static_cast<double>(unit[at]) * gradient[at];
    for (size_t at = i * D; at < (i + 1) * D; ++at) {
      dx[at] = static_cast<float>((gradient[at] - unit[at] * radial) / norms[i]);
    }
  }
  return dx;
}

TEST(CpuAttention, ReproducesGoldenValues) {
  const auto cases = ReadGoldenAttention(ABLATE_GOLDEN_DIR "/attention.json");
  ASSERT_TRUE(cases.ok()) << cases.status();
  for (const GoldenAttentionCase& c : *cases) {
    SCOPED_TRACE(c.name + " T=" + std::to_string(c.T));
    // The norm and its gradient are another op's: done here in double.
    const bool l2 = c.spec.qk_norm == QkNorm::kL2;
    const std::vector<double> q_norm = Norms(c.q, c.d, l2), k_norm = Norms(c.k, c.d, l2);
    Inputs in(c.spec, {.B = 1, .T = c.T, .H = 1, .D = c.d, .window = c.window}, 1);
    for (size_t i = 0; i < c.q.size(); ++i) {
      in.q[i] = static_cast<float>(c.q[i] / q_norm[i / c.d]);
      in.k[i] = static_cast<float>(c.k[i] / k_norm[i / c.d]);
    }
    in.v.assign(c.v.begin(), c.v.end());
    in.dout.assign(c.dout.begin(), c.dout.end());
    in.s[0] = static_cast<float>(c.learned_s), in.b[0] = static_cast<float>(c.learned_b);
    const Outputs r = RunCpu(c.spec, in, 1);
    EXPECT_LT(Error(r.out, c.out), kOutTolerance);
    EXPECT_LT(Error(l2 ? L2Backward(in.q, r.dq, q_norm, c.d) : r.dq, c.dq), kGradientTolerance);
    EXPECT_LT(Error(l2 ? L2Backward(in.k, r.dk, k_norm, c.d) : r.dk, c.dk), kGradientTolerance);
    EXPECT_LT(Error(r.dv, c.dv), kGradientTolerance);
    EXPECT_LT(Error({r.ds[0], r.db[0]}, {c.d_learned_s.value_or(0), c.d_learned_b.value_or(0)}), kGradientTolerance);
    EXPECT_EQ(r.counts.zero_rows, static_cast<int64_t>(c.zero_rows->size()));
  }
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0;
}

TEST(CpuAttention, SameBitsForEveryNumberOfThreads) {
  std::vector<AttentionVariant> variants = AttentionVariants();
  for (const char* name : {"softmax", "lssar", "sigmoid"}) {
    variants.push_back(*FindAttentionVariant(name));
    variants.back().spec.alibi = true;
  }
  for (const AttentionVariant& variant : variants) {
    for (const AttentionShape& shape : {AttentionShape{.B = 2, .T = 97, .H = 3, .D = 16},
                                        {.B = 1, .T = 1200, .H = 2, .D = 8},
                                        {.B = 1, .T = 1030, .H = 1, .D = 12, .window = 100}}) {
      SCOPED_TRACE(Trace(variant.name, variant.spec, shape));
      const Inputs in(variant.spec, shape, 11);
      const Outputs one = RunCpu(variant.spec, in, 1);
      for (int threads : {2, 3, 5}) {
        const Outputs r = RunCpu(variant.spec, in, threads);
        EXPECT_TRUE(SameBits(r.out, one.out) && SameBits(r.stats, one.stats) && SameBits(r.dq, one.dq) &&
                    SameBits(r.dk, one.dk) && SameBits(r.dv, one.dv) && SameBits(r.ds, one.ds) &&
                    SameBits(r.db, one.db))
            << threads;
        EXPECT_EQ(r.counts.zero_rows, one.counts.zero_rows);
        EXPECT_EQ(r.counts.uncontrasted_rows, one.counts.uncontrasted_rows);
      }
    }
  }
}

void ExpectFinite(const Outputs& r) {
  for (const Floats* x : {&r.out, &r.dq, &r.dk, &r.dv, &r.ds, &r.db}) {
    for (float value : *x) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(CpuAttention, NearlyUniformRowsAreFinite) {
  const AttentionShape shape{.B = 1, .T = 200, .H = 1, .D = 32};
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    for (float spread : {1.0f, 1e-1f, 1e-2f, 1e-3f, 1e-4f, 1e-6f, 0.0f}) {
      SCOPED_TRACE(variant.name + " " + std::to_string(spread));
      Inputs in(variant.spec, shape, 21);
      const Floats noise = Normal(in.k.size(), 31, spread);
      for (size_t i = 0; i < in.k.size(); ++i) in.k[i] = in.k[i % shape.D] + noise[i];
      const Outputs r = RunCpu(variant.spec, in, 1);
      ExpectFinite(r);
      // Weights of a normalised row sum to one: the output lies within the values.
      if (variant.spec.normalisation == Normalisation::kL1) {
        float largest = 0;
        for (float value : in.v) largest = std::max(largest, std::abs(value));
        for (float value : r.out) ASSERT_LE(std::abs(value), largest * 1.0001f);
      }
      if (spread == 0) {
        EXPECT_EQ(r.counts.uncontrasted_rows, variant.spec.sharpen_p ? shape.T - 3 : 0);
      }
    }
  }
}

TEST(CpuAttention, HugeScoresAreFinite) {
  const AttentionShape shape{.B = 1, .T = 150, .H = 2, .D = 16};
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    for (float scale : {10.0f, 1e3f, 1e5f}) {
      SCOPED_TRACE(variant.name + " " + std::to_string(scale));
      AttentionSpec spec = variant.spec;
      spec.qk_norm = QkNorm::kNone;
      const Inputs in(spec, shape, 41, scale);
      ExpectFinite(RunCpu(spec, in, 1));
    }
  }
}

// Scores far below zero: softplus and sigmoid rows live in their exponential tail and must not underflow to zero rows.
TEST(CpuAttention, TailRowsAgreeWithTheReference) {
  for (const std::string& name : ActivationNames()) {
    for (bool sharpened : {false, true}) {
      AttentionSpec spec{.scale = ScoreScale::kOne, .activation = *ParseActivation(name)};
      if (sharpened) spec.sharpen_p = 3;
      const AttentionShape shape{.B = 1, .T = 60, .H = 1, .D = 8};
      for (float far : {-5.0f, -12.0f, -16.0f, -18.0f, -25.0f, -100.0f, -400.0f}) {
        SCOPED_TRACE(name + (sharpened ? " sharpened " : " ") + std::to_string(far));
        Inputs in(spec, shape, 51);
        for (int t = 0; t < shape.T; ++t) in.q[t * shape.D] = 1, in.k[t * shape.D] = far;
        CompareWithReference(spec, in, false);
      }
    }
  }
}

TEST(CpuAttention, ZeroRowsGiveZeroOutputAndGradient) {
  const AttentionShape shape{.B = 1, .T = 20, .H = 1, .D = 8};
  for (Activation activation : {Activation::kRelu, Activation::kReluSquared, Activation::kAbs, Activation::kSquare}) {
    AttentionSpec spec{.activation = activation, .normalisation = Normalisation::kCount};
    for (int sharpened = 0; sharpened < 2; ++sharpened) {
      if (sharpened) spec.normalisation = Normalisation::kL1, spec.sharpen_p = 15;
      SCOPED_TRACE(Trace(Name(activation), spec, shape));
      Inputs in(spec, shape, 61);
      const bool even = activation == Activation::kAbs || activation == Activation::kSquare;
      in.q.assign(in.q.size(), even ? 0 : 1);
      in.k.assign(in.k.size(), -1);
      const Outputs r = RunCpu(spec, in, 1);
      EXPECT_EQ(r.counts.zero_rows, shape.T);
      for (const Floats* x : {&r.out, &r.dq, &r.dk, &r.dv}) EXPECT_THAT(*x, ::testing::Each(0.0f));
    }
  }
}

TEST(CpuAttention, NanInputsAreNotHidden) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    SCOPED_TRACE(variant.name);
    Inputs in(variant.spec, {.B = 1, .T = 40, .H = 1, .D = 8}, 71);
    in.q[20 * 8 + 3] = std::nanf("");
    const Outputs r = RunCpu(variant.spec, in, 1);
    EXPECT_TRUE(std::isnan(r.out[20 * 8]));
    EXPECT_TRUE(std::isfinite(r.out[19 * 8]));
    EXPECT_TRUE(std::isnan(r.dv[5 * 8]));
  }
}

// A T x T array of floats would take 1 GiB here.
TEST(CpuAttention, MemoryIsLinearInTheLength) {
  const AttentionSpec& spec = FindAttentionVariant("lssar")->spec;
  const auto peak_mib = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
  };
  const Inputs in(spec, {.B = 1, .T = 16384, .H = 1, .D = 4}, 91);
  const auto before = peak_mib();
  ExpectFinite(RunCpu(spec, in, 2));
  EXPECT_LT(peak_mib() - before, 64);
}

TEST(CpuAttention, EvaluationNeedsNoRowStats) {
  const AttentionSpec& spec = FindAttentionVariant("lssar")->spec;
  const Inputs in(spec, {.B = 1, .T = 50, .H = 2, .D = 16}, 81);
  const Outputs with = RunCpu(spec, in, 1);
  Floats out(in.q.size());
  CpuAttentionForward(2, spec, in.shape, in.q.data(), in.k.data(), in.v.data(), nullptr, nullptr, out.data(), nullptr,
                      nullptr);
  EXPECT_TRUE(SameBits(out, with.out));
}

}  // namespace
}  // namespace ablate
