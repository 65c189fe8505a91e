// Statistics of the rows' weights on the emulator, of both types, against the whole matrix of weights in double
// precision: the family over odd shapes, windows, ALiBi, clamps, and rows in the tail, of zeros, without contrast, not
// numbers. And the same bits in every order of threads.
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/golden_cases.h"
#include "kernels/cuda/attention/attention_testing.h"

namespace ablate::cuda {
namespace {

using cuda_emu::DeviceArray;

constexpr double kTolerance = 1e-5;
// Of rows whose scores are about -20: float32 has them to 2e-6, and a power makes 15 times as much of that.
constexpr double kTailTolerance = 1e-4;

template <class T>
Floats Measured(const AttentionSpec& spec, const Inputs& in) {
  DeviceArray<T> q(Rounded<T>(in.q)), k(Rounded<T>(in.k));
  DeviceArray<float> s(in.s), b(in.b), statistics(in.q.size() / in.shape.D * kAttentionStatistics);
  DeviceArray<char> workspace(AttentionForwardWorkspaceBytes(spec, in.shape) + 1);
  AttentionStatistics<T>(nullptr, spec, in.shape, q, k, s, b, statistics, workspace);
  const Failure failure = TakeFailure();
  EXPECT_TRUE(failure.ok()) << failure.message;
  return statistics.ToHost();
}

template <class T>
std::vector<double> Expected(AttentionSpec spec, const Inputs& in) {
  const AttentionShape& s = in.shape;
  const int64_t size = int64_t{s.T} * s.D;
  spec.qk_norm = QkNorm::kNone;  // as forward: what is given is taken as it is
  std::vector<double> all;
  const Floats q32 = Widened(Rounded<T>(in.q)), k32 = Widened(Rounded<T>(in.k));
  for (int head = 0; head < s.B * s.H; ++head) {
    const auto part = [&](const Floats& x) {
      return std::vector<double>(x.begin() + head * size, x.begin() + (head + 1) * size);
    };
    const std::vector<double> q = part(q32), k = part(k32), v(size);
    const int h = head % s.H;
    const reference::AttentionResult result =
        reference::Attention(spec, s.T, s.D, s.window, q.data(), k.data(), v.data(), in.s[h], in.b[h], nullptr,
                             reference::AlibiSlope(h, s.H));
    const std::vector<double> statistics = reference::Statistics(result, s.T, s.window);
    all.insert(all.end(), statistics.begin(), statistics.end());
  }
  return all;
}

void Compare(const Floats& got, const std::vector<double>& want, int T, double tolerance = kTolerance) {
  static constexpr const char* kNames[] = {"entropy", "largest", "first", "zeros", "kind"};
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t row = i / kAttentionStatistics;
    // Weights without l1 may be above 1.
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i])))
        << kNames[i % kAttentionStatistics] << " of row " << row % T << ", head " << row / T;
  }
}

template <class T>
class CudaAttentionStatistics : public ::testing::Test {
 public:
  static void CompareWithReference(const AttentionSpec& spec, const Inputs& in, double tolerance = kTolerance) {
    Compare(Measured<T>(spec, in), Expected<T>(spec, in), in.shape.T, tolerance);
  }
};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaAttentionStatistics, Types);

TYPED_TEST(CudaAttentionStatistics, EveryVariant) {
  uint64_t seed = 1;
  for (const AttentionVariant& variant : AttentionVariants()) {
    for (const bool alibi : {false, true}) {
      for (const int T : {1, 2, 3, 31, 64, 65, 150, 300}) {
        for (const int window : {0, 1, 40, 70}) {
          // The large ones in turn.
          if (window >= T || (T > 100 && ++seed % 3 != 0)) continue;
          AttentionSpec spec = variant.spec;
          spec.alibi = alibi;
          constexpr int kWidths[] = {32, 64, 8, 104};
          const AttentionShape shape{
              .B = 1, .T = T, .H = T < 100 ? 2 : 1, .D = kWidths[(T + window) % 4], .window = window};
          SCOPED_TRACE(Trace(variant.name, spec, shape));
          this->CompareWithReference(spec, Inputs(spec, shape, 100 + T + window));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(CudaAttentionStatistics, Transforms) {
  for (const char* name : {"softmax", "lssar", "ssmax_bias", "relu"}) {
    for (const ScoreTransform transform : {ScoreTransform::kInverted, ScoreTransform::kRecentred}) {
      AttentionSpec spec = FindAttentionVariant(name)->spec;
      spec.transform = transform;
      const AttentionShape shape{.B = 1, .T = 90, .H = 2, .D = 16, .window = spec.sharpen_p ? 0 : 50};
      SCOPED_TRACE(Trace(name, spec, shape) + " " + std::string(Name(transform)));
      this->CompareWithReference(spec, Inputs(spec, shape, 6));
    }
  }
}

TYPED_TEST(CudaAttentionStatistics, Clamps) {
  for (const char* name : {"lssar", "ssmax", "softmax_sharpened", "cosine_softmax"}) {
    AttentionSpec spec = FindAttentionVariant(name)->spec;
    spec.scale_clamp = 20, spec.sharpen_clamp = 30;
    const AttentionShape shape{.B = 1, .T = 90, .H = 2, .D = 16};
    SCOPED_TRACE(Trace(name, spec, shape));
    this->CompareWithReference(spec, Inputs(spec, shape, 5));
  }
}

// Some rows in the tail and others not: a block sweeps again for those that are.
TYPED_TEST(CudaAttentionStatistics, TailRows) {
  for (const char* name : {"softplus", "sigmoid"}) {
    for (const bool sharpened : {false, true}) {
      AttentionSpec spec{.scale = ScoreScale::kOne, .activation = *ParseActivation(name)};
      if (sharpened) spec.sharpen_p = 3;
      const AttentionShape shape{.B = 1, .T = 70, .H = 1, .D = 8};
      Inputs in(spec, shape, 51, 0.3f);
      for (int t = 0; t < shape.T; ++t) in.q[t * 8] = t % 3 == 0 ? 1 : 0, in.k[t * 8] = -20;
      SCOPED_TRACE(std::string(name) + (sharpened ? " sharpened" : ""));
      this->CompareWithReference(spec, in, kTailTolerance);
    }
  }
}

TYPED_TEST(CudaAttentionStatistics, ZeroRowsAndRowsWithoutContrast) {
  const AttentionShape shape{.B = 1, .T = 20, .H = 1, .D = 8};
  const AttentionSpec& relu = FindAttentionVariant("relu")->spec;
  Inputs in(relu, shape, 61);
  in.q.assign(in.q.size(), 1);
  in.k.assign(in.k.size(), -1);
  Floats got = Measured<TypeParam>(relu, in);
  for (int t = 0; t < shape.T; ++t) {
    EXPECT_THAT(Floats(got.begin() + t * 5, got.begin() + t * 5 + 5), ::testing::ElementsAre(0, 0, 0, 1, 2));
  }
  got = Measured<TypeParam>(FindAttentionVariant("lssar")->spec, in);  // all keys the same
  for (int t = 3; t < shape.T; ++t) {
    EXPECT_NEAR(got[t * 5 + kRowEntropy], std::log(t + 1.0), 1e-5);
    EXPECT_NEAR(got[t * 5 + kRowLargest], 1 / (t + 1.0), 1e-6);
    EXPECT_EQ(got[t * 5 + kRowZeros], 0);
    EXPECT_EQ(got[t * 5 + kRowKind], 1);
  }
}

TYPED_TEST(CudaAttentionStatistics, NanIsNotHidden) {
  for (const AttentionVariant& variant : AttentionVariants()) {
    Inputs in(variant.spec, {.B = 1, .T = 40, .H = 1, .D = 8}, 71);
    in.q[20 * 8 + 3] = std::nanf("");
    const Floats got = Measured<TypeParam>(variant.spec, in);
    EXPECT_TRUE(std::isnan(got[20 * 5 + kRowEntropy])) << variant.name;
    EXPECT_TRUE(std::isfinite(got[19 * 5 + kRowEntropy])) << variant.name;
  }
}

// Small: what the sanitizers and the barriers test see too.
TYPED_TEST(CudaAttentionStatistics, SameBitsInEveryOrderSanitized) {
  for (const char* name : {"softmax", "lssar", "sigmoid_sharpened"}) {
    const AttentionSpec& spec = FindAttentionVariant(name)->spec;
    Inputs in(spec, {.B = 1, .T = 75, .H = 1, .D = 40}, 91);
    if (spec.activation == Activation::kSigmoid) {
      for (int t = 0; t < 75; ++t) in.q[t * 40] = 12, in.k[t * 40] = -12;  // in the tail
    }
    Floats first;
    cuda_emu::ForEachSchedule([&] {
      const Floats got = Measured<TypeParam>(spec, in);
      if (first.empty()) first = got;
      EXPECT_EQ(std::memcmp(got.data(), first.data(), sizeof(float) * got.size()), 0) << name;
    });
    Compare(first, Expected<TypeParam>(spec, in), 75,
            spec.activation == Activation::kSigmoid ? kTailTolerance : kTolerance);
  }
}

TEST(CudaAttentionStatisticsTest, GoldenCases) {
  const auto cases = ReadGoldenAttention(ABLATE_GOLDEN_DIR "/attention.json");
  ASSERT_TRUE(cases.ok()) << cases.status();
  for (const GoldenAttentionCase& c : *cases) {
    SCOPED_TRACE(c.name + " T=" + std::to_string(c.T));
    Inputs in(c.spec, {.B = 1, .T = c.T, .H = 1, .D = c.d, .window = c.window}, 1);
    in.q.assign(c.q.begin(), c.q.end());
    in.k.assign(c.k.begin(), c.k.end());
    if (c.spec.qk_norm == QkNorm::kL2) {
      for (Floats* x : {&in.q, &in.k}) {
        for (size_t i = 0; i < x->size(); i += c.d) {
          double squares = 0;
          for (int d = 0; d < c.d; ++d) squares += double{(*x)[i + d]} * (*x)[i + d];
          for (int d = 0; d < c.d; ++d) (*x)[i + d] = static_cast<float>((*x)[i + d] / std::sqrt(squares));
        }
      }
    }
    in.s[0] = static_cast<float>(c.learned_s), in.b[0] = static_cast<float>(c.learned_b);
    Compare(Measured<float>(c.spec, in), Expected<float>(c.spec, in), c.T);
  }
}

}  // namespace
}  // namespace ablate::cuda
