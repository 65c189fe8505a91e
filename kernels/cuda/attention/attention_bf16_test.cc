// The bf16 attention kernels, emulated, against the double-precision reference on the same rounded inputs: the whole
// family, odd shapes, windows, ALiBi, special rows; and that bits do not hang on the order of threads.
// Tolerances: twice what rounding the operands of the products to bf16 costs by a model made apart from this code
// (docs/kernels.md), as relative Frobenius norms.
#include "kernels/cuda/attention/attention.h"

#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention/attention_testing.h"

namespace ablate::cuda {
namespace {

using cuda_emu::DeviceArray;
using cuda_emu::ForEachSchedule;

// What the kernels are given, so that the reference is given the same.
Inputs RoundedInputs(const AttentionSpec& spec, const AttentionShape& shape, uint64_t seed, float scale = 1) {
  Inputs in(spec, shape, seed, scale);
  for (Floats* x : {&in.q, &in.k, &in.v, &in.dout}) *x = Widened(Rounded<bf16>(*x));
  return in;
}

// Relative to the expected norm, or to `floor` an element where that is larger (gradients that vanish).
double FrobeniusError(const Floats& got, const std::vector<double>& want, double floor = 1e-2) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = got[i] - want[i];
    error += difference * difference;
    norm += want[i] * want[i];
  }
  return std::sqrt(error) / std::max(std::sqrt(norm), floor * std::sqrt(static_cast<double>(want.size())));
}

struct Tolerance {
  double out, dq, dv;  // dk as dq
};

Tolerance Modelled(const AttentionSpec& spec) {
  if (!spec.sharpen_p) {
    return spec.activation == Activation::kExp ? Tolerance{1.8e-3, 3.2e-3, 2.2e-3} : Tolerance{2.9e-3, 3.7e-3, 2.9e-3};
  }
  if (*spec.sharpen_p < 2) return {3.3e-3, 2.6e-2, 3.5e-3};
  if (*spec.sharpen_p < 4) return {4.0e-3, 5.6e-3, 4.2e-3};
  if (*spec.sharpen_p < 16) return {6.4e-3, 1.5e-2, 6.4e-3};
  return {1.1e-2, 3.3e-2, 1.0e-2};
}

// How far d loss / d s of each head may be off when each row's dq is off by a random `relative` of itself.
std::vector<double> ScaleGradientNoise(const Inputs& in, const Expected& want, double relative) {
  const AttentionShape& s = in.shape;
  std::vector<double> noise(s.H, 0);
  for (int64_t row = 0; row < int64_t{s.B} * s.H * s.T; ++row) {
    double q = 0, dq = 0;
    for (int64_t i = row * s.D; i < (row + 1) * s.D; ++i) {
      q += static_cast<double>(in.q[i]) * in.q[i];
      dq += want.dq[i] * want.dq[i];
    }
    noise[row / s.T % s.H] += q * dq;
  }
  for (int h = 0; h < s.H; ++h) noise[h] = 2e-3 + relative * std::sqrt(noise[h]) / in.s[h];
  return noise;
}

// How exact a comparison can be: `slack` multiplies the tolerances; `floor` (of FrobeniusError for dq and dk) is for
// inputs whose gradients nearly cancel, G - D being exact to bf16 of the output only.
struct Exactness {
  double slack = 1, floor = 1e-2;
  bool gradients = true;  // dq and dk are compared too
};

void ExpectClose(const AttentionSpec& spec, const Inputs& in, const Outputs& got, const Exactness& exactness = {}) {
  const Expected want = RunReference(spec, in);
  const Tolerance modelled = Modelled(spec);
  const double factor = 2 * exactness.slack;
  EXPECT_LT(FrobeniusError(got.out, want.out), factor * modelled.out);
  EXPECT_LT(FrobeniusError(got.dv, want.dv), factor * modelled.dv);
  EXPECT_EQ(got.counts.zero_rows, want.counts.zero_rows);
  EXPECT_EQ(got.counts.uncontrasted_rows, want.counts.uncontrasted_rows);
  if (!exactness.gradients) return;
  EXPECT_LT(FrobeniusError(got.dq, want.dq, exactness.floor), factor * modelled.dq);
  EXPECT_LT(FrobeniusError(got.dk, want.dk, exactness.floor), factor * modelled.dq);
  const std::vector<double> noise = ScaleGradientNoise(in, want, factor * modelled.dq);
  for (int h = 0; h < in.shape.H; ++h) {
    EXPECT_NEAR(got.ds[h], want.ds[h], noise[h]);
    EXPECT_NEAR(got.db[h], want.db[h], noise[h]);
  }
}

Outputs RunKernels(const AttentionSpec& spec, const Inputs& in) {
  Outputs outputs = RunAttention<bf16>(spec, in);
  const Failure failure = TakeFailure();
  EXPECT_TRUE(failure.ok()) << failure.message;
  return outputs;
}

void Compare(std::string_view name, const AttentionSpec& spec, const AttentionShape& shape, uint64_t seed,
             float scale = 1, const Exactness& exactness = {}) {
  SCOPED_TRACE(Trace(name, spec, shape));
  const Inputs in = RoundedInputs(spec, shape, seed, scale);
  ExpectClose(spec, in, RunKernels(spec, in), exactness);
}

void ExpectFinite(const Outputs& r) {
  for (const Floats* x : {&r.out, &r.dq, &r.dk, &r.dv, &r.ds, &r.db}) {
    for (float value : *x) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(AttentionBf16, EveryVariantAtTheModelledWidth) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    Compare(variant.name, variant.spec, {.B = 1, .T = 256, .H = 1, .D = 64}, 3);
  }
}

// Softmax taken apart, over several tiles.
TEST(AttentionBf16, Decomposition) {
  for (const NamedSpec& member : DecompositionCases()) {
    // As in EveryValueOfEveryAxis: u'/u has no bound where phi has a zero.
    const Activation phi = member.spec.activation;
    const bool unbounded = member.spec.normalisation == Normalisation::kL1 && !member.spec.sharpen_p &&
                           (phi == Activation::kRelu || phi == Activation::kReluSquared || phi == Activation::kAbs ||
                            phi == Activation::kSquare);
    const Exactness exactness{.slack = unbounded ? 10.0 : 1.0};
    Compare(member.name, member.spec, {.B = 1, .T = 130, .H = 1, .D = 64}, 31, 1, exactness);
    Compare(member.name, member.spec, {.B = 1, .T = 100, .H = 1, .D = 96, .window = 45}, 32, 1, exactness);
  }
}

TEST(AttentionBf16, OddShapes) {
  constexpr int kWidths[] = {32, 64, 96, 128, 8, 48, 80};
  uint64_t seed = 100;
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    for (int T : {1, 2, 3, 17, 64, 65, 130}) {
      // In a handful of rows one whose gradient nearly cancels (G close to D) is not outweighed by the others.
      // So is one whose scores are all near a zero of phi, where u'/u has no bound.
      const bool even = variant.spec.activation == Activation::kAbs || variant.spec.activation == Activation::kSquare;
      const Exactness exactness =
          T < 60 ? Exactness{.slack = even ? 6.0 : 2.0, .floor = 0.1 * variant.spec.sharpen_p.value_or(1)}
                 : Exactness{};
      for (int i = 0; i < (T < 60 ? 3 : 2); ++i) {  // every width in turn
        const int D = kWidths[++seed % std::size(kWidths)];
        Compare(variant.name, variant.spec, {.B = T < 60 ? 2 : 1, .T = T, .H = T < 60 ? 3 : 1, .D = D}, seed, 1,
                exactness);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(AttentionBf16, Windows) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    for (int window : {1, 2, 7, 16, 17, 63, 64, 65, 100, 149, 200}) {
      const int D = window % 2 == 0 ? 32 : 96;
      // In rows of one key G - D vanishes, and what is left is the rounding of the output.
      const Exactness exactness{.floor = window == 1 ? 1.0 : 1e-2};
      Compare(variant.name, variant.spec, {.B = 1, .T = 150, .H = 1, .D = D, .window = window}, 200 + window, 1,
              exactness);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(AttentionBf16, Alibi) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    AttentionSpec spec = variant.spec;
    spec.alibi = true;
    for (int window : {0, 40}) {
      Compare(variant.name, spec, {.B = 1, .T = 33, .H = 6, .D = 64, .window = window}, 300);
      Compare(variant.name, spec, {.B = 1, .T = 150, .H = 3, .D = 72, .window = window}, 301);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// log n of the scale and N of the sharpening bounded, each alone and both.
TEST(AttentionBf16, Clamps) {
  std::vector<AttentionVariant> variants = AttentionVariants();
  variants.push_back({"constant_log_n", {.scale = ScoreScale::kConstantLogN, .scale_constant = 0.3}, ""});
  for (const AttentionVariant& variant : variants) {
    for (const auto& [scale_clamp, sharpen_clamp] : {std::pair(20, 0), {0, 40}, {16, 40}}) {
      AttentionSpec spec = variant.spec;
      spec.scale_clamp = scale_clamp, spec.sharpen_clamp = sharpen_clamp;
      if (spec.sharpen_p) spec.sharpen_p = 3;
      SCOPED_TRACE(std::to_string(scale_clamp) + " " + std::to_string(sharpen_clamp));
      Compare(variant.name, spec, {.B = 1, .T = 100, .H = 2, .D = 32, .window = scale_clamp == 0 ? 70 : 0}, 500);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(AttentionBf16, EveryPowerOnEveryActivation) {
  for (const std::string& activation : ActivationNames()) {
    for (double p : {1.0, 1.25, 2.0, 2.5, 3.0, 5.0, 15.0, 15.5, 50.0, 100.0}) {
      for (double offset : {1.0, 0.5, 0.0}) {
        const AttentionSpec spec{.qk_norm = QkNorm::kL2,
                                 .scale = ScoreScale::kLogDLogN,
                                 .activation = *ParseActivation(activation),
                                 .sharpen_p = p,
                                 .sharpen_offset = offset};
        Compare(activation + " offset " + std::to_string(offset), spec, {.B = 1, .T = 100, .H = 1, .D = 32},
                static_cast<uint64_t>(p * 100));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(AttentionBf16, EveryValueOfEveryAxis) {
  for (const std::string& scale : ScoreScaleNames()) {
    for (const std::string& activation : ActivationNames()) {
      for (const std::string& normalisation : NormalisationNames()) {
        for (const std::string& bias : LogitBiasNames()) {
          // u'/u has no bound in these: a row with one small u multiplies the rounding of G - D, which should vanish,
          // by it.
          const bool relu = activation.starts_with("relu"), even = activation == "abs" || activation == "square";
          const bool unbounded = normalisation == "l1" && (relu || even);
          const Exactness exactness{.slack = unbounded ? 6.0 : 2.0, .gradients = !unbounded || even || bias == "none"};
          const AttentionSpec spec{.scale = *ParseScoreScale(scale),
                                   .scale_constant = -0.4,
                                   .activation = *ParseActivation(activation),
                                   .normalisation = *ParseNormalisation(normalisation),
                                   .logit_bias = *ParseLogitBias(bias),
                                   .train_length = 20};
          Compare(scale + " " + activation + " " + normalisation + " " + bias, spec, {.B = 1, .T = 35, .H = 2, .D = 16},
                  5, 0.7f, exactness);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(AttentionBf16, NearlyUniformRowsAreFinite) {
  const AttentionShape shape{.B = 1, .T = 100, .H = 1, .D = 32};
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    for (float spread : {1.0f, 1e-1f, 1e-2f, 1e-3f, 0.0f}) {
      SCOPED_TRACE(variant.name + " " + std::to_string(spread));
      Inputs in = RoundedInputs(variant.spec, shape, 21);
      const Floats noise = Normal(in.k.size(), 31, spread);
      for (size_t i = 0; i < in.k.size(); ++i) in.k[i] = in.k[i % shape.D] + noise[i];
      in.k = Widened(Rounded<bf16>(in.k));
      const Outputs r = RunKernels(variant.spec, in);
      ExpectFinite(r);
      // Weights of a normalised row sum to one: the output lies within the values.
      if (variant.spec.normalisation == Normalisation::kL1) {
        float largest = 0;
        for (float value : in.v) largest = std::max(largest, std::abs(value));
        for (float value : r.out) ASSERT_LE(std::abs(value), largest * 1.01f);
      }
      if (spread == 0) {
        EXPECT_EQ(r.counts.uncontrasted_rows, variant.spec.sharpen_p ? shape.T - 3 : 0);
      }
    }
  }
}

// Every third row of queries vanishes, so that rows without contrast lie between others in a warp.
TEST(AttentionBf16, RowsWithoutContrastBesideOthers) {
  for (double p : {1.0, 3.0, 15.0}) {
    AttentionSpec spec = FindAttentionVariant("lssar")->spec;
    spec.sharpen_p = p;
    const AttentionShape shape{.B = 1, .T = 90, .H = 1, .D = 64};
    SCOPED_TRACE(Trace("lssar", spec, shape));
    Inputs in = RoundedInputs(spec, shape, 91);
    for (int t = 0; t < shape.T; t += 3) std::fill_n(in.q.begin() + t * shape.D, shape.D, 0.0f);
    const Outputs r = RunKernels(spec, in);
    EXPECT_EQ(r.counts.uncontrasted_rows, 29);
    ExpectClose(spec, in, r);
  }
}

TEST(AttentionBf16, HugeScoresAreFinite) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    for (float scale : {10.0f, 1e3f, 1e5f}) {
      SCOPED_TRACE(variant.name + " " + std::to_string(scale));
      AttentionSpec spec = variant.spec;
      spec.qk_norm = QkNorm::kNone;
      ExpectFinite(RunKernels(spec, RoundedInputs(spec, {.B = 1, .T = 100, .H = 1, .D = 16}, 41, scale)));
    }
  }
}

// Scores far below zero in every third key or in all: softplus and sigmoid rows live in their exponential tail and must
// not underflow to zero rows.
TEST(AttentionBf16, TailRowsAgreeWithTheReference) {
  for (const char* name : {"lssa", "lssar", "sigmoid_sharpened"}) {
    AttentionSpec spec = FindAttentionVariant(name)->spec;
    spec.scale = ScoreScale::kOne;
    if (spec.sharpen_p) spec.sharpen_p = 3;
    spec.qk_norm = QkNorm::kNone;
    const AttentionShape shape{.B = 1, .T = 100, .H = 1, .D = 32};
    for (float far : {-5.0f, -12.0f, -16.0f, -18.0f, -25.0f, -100.0f, -400.0f}) {
      for (int every : {1, 3}) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(far) + " every " + std::to_string(every));
        Inputs in(spec, shape, 51, 0.3f);
        for (int t = 0; t < shape.T; ++t) {
          in.q[t * shape.D] = t % every == 0 ? 1.0f : 0.0f;
          in.k[t * shape.D] = far;
        }
        for (Floats* x : {&in.q, &in.k, &in.v, &in.dout}) *x = Widened(Rounded<bf16>(*x));
        Outputs r = RunKernels(spec, in);
        const Expected want = RunReference(spec, in);
        r.counts = want.counts;  // the reference has another bound of the tail
        // dq along `far`, common to all keys, is a sum that cancels.
        for (size_t i = 0; i < r.dq.size(); i += shape.D) r.dq[i] = static_cast<float>(want.dq[i]);
        ExpectClose(spec, in, r, {.slack = 2});
      }
    }
  }
}

TEST(AttentionBf16, ZeroRowsGiveZeroOutputAndGradient) {
  for (Activation activation : {Activation::kRelu, Activation::kReluSquared, Activation::kAbs, Activation::kSquare}) {
    AttentionSpec spec{.activation = activation, .normalisation = Normalisation::kCount};
    for (int sharpened = 0; sharpened < 2; ++sharpened) {
      if (sharpened) spec.normalisation = Normalisation::kL1, spec.sharpen_p = 15;
      const AttentionShape shape{.B = 1, .T = 70, .H = 1, .D = 16};
      SCOPED_TRACE(Trace(Name(activation), spec, shape));
      Inputs in = RoundedInputs(spec, shape, 61);
      const bool even = activation == Activation::kAbs || activation == Activation::kSquare;
      in.q.assign(in.q.size(), even ? 0 : 1);
      in.k.assign(in.k.size(), -1);
      const Outputs r = RunKernels(spec, in);
      EXPECT_EQ(r.counts.zero_rows, shape.T);
      for (const Floats* x : {&r.out, &r.dq, &r.dk, &r.dv}) EXPECT_THAT(*x, ::testing::Each(0.0f));
    }
  }
}

TEST(AttentionBf16, NanInputsAreNotHidden) {
  for (const NamedSpec& variant : MembersOfEveryActivation()) {
    SCOPED_TRACE(variant.name);
    Inputs in = RoundedInputs(variant.spec, {.B = 1, .T = 90, .H = 1, .D = 16}, 71);
    in.q[70 * 16 + 3] = std::nanf("");
    const Outputs r = RunKernels(variant.spec, in);
    EXPECT_TRUE(std::isnan(r.out[70 * 16]));
    EXPECT_TRUE(std::isfinite(r.out[69 * 16]));
    EXPECT_TRUE(std::isnan(r.dv[5 * 16]));
  }
}

TEST(AttentionBf16, EvaluationNeedsNoRowStats) {
  const AttentionSpec& spec = FindAttentionVariant("lssar")->spec;
  const Inputs in = RoundedInputs(spec, {.B = 1, .T = 80, .H = 2, .D = 32}, 81);
  DeviceArray<bf16> q(Rounded<bf16>(in.q)), k(Rounded<bf16>(in.k)), v(Rounded<bf16>(in.v)), out(in.q.size());
  AttentionForward<bf16>(nullptr, spec, in.shape, q, k, v, nullptr, nullptr, out, nullptr, nullptr);
  EXPECT_TRUE(TakeFailure().ok());
  EXPECT_EQ(Widened(out.ToHost()), RunKernels(spec, in).out);
}

// Small: also under AddressSanitizer and ThreadSanitizer. Both widths of kernels, windows, whole and half tiles, tails
// and learned scales.
TEST(AttentionBf16, SmallInAnyOrderOfThreads) {
  struct Case {
    const char* name;
    AttentionShape shape;
    float scale = 1;
    ScoreTransform transform = ScoreTransform::kNone;
  };
  for (const Case& c :
       {Case{"lssar", {.B = 1, .T = 70, .H = 1, .D = 32}},
        {"softmax", {.B = 1, .T = 66, .H = 1, .D = 72}},
        {"ssmax_bias", {.B = 2, .T = 40, .H = 2, .D = 16}},
        {"ssmax_bias", {.B = 1, .T = 70, .H = 2, .D = 16}, 1, ScoreTransform::kRecentred},
        {"sigmoid_sharpened", {.B = 1, .T = 70, .H = 1, .D = 72, .window = 40}, 1, ScoreTransform::kRecentred},
        {"sigmoid_sharpened", {.B = 1, .T = 70, .H = 1, .D = 72, .window = 20}, 6.0f}}) {
    AttentionSpec spec = FindAttentionVariant(c.name)->spec;
    spec.transform = c.transform;
    if (c.shape.window > 0) spec.alibi = true, spec.sharpen_p = 3;
    SCOPED_TRACE(Trace(c.name, spec, c.shape));
    const Inputs in = RoundedInputs(spec, c.shape, 400, c.scale);
    std::vector<Outputs> results;
    ForEachSchedule([&] { results.push_back(RunAttention<bf16>(spec, in)); });
    ExpectClose(spec, in, results[0], {.slack = 2});
    for (const Outputs& result : results) EXPECT_TRUE(SameBits(result, results[0]));
  }
}

}  // namespace
}  // namespace ablate::cuda
