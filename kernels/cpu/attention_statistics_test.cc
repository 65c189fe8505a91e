// AttentionStatistics on the CPU against the whole matrix of weights in double precision: every member, lengths that no
// tile divides, windows, ALiBi, clamps, rows of every kind; the same bits for every number of threads.
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
    ASSERT_NEAR(got[i], want[i], kTolerance) << kNames[i % kAttentionStatistics] << " of row "
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

}  // namespace
}  // namespace ablate
