// For tests of CUDA attention, of either type: random inputs, a run of both directions on the device, and the distance
// to the double-precision reference. Host only.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/decomposition_cases.h"
#include "kernels/attention/variants.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/emulator/testing.h"
#include "kernels/reference/attention.h"

namespace ablate::cuda {

using Floats = std::vector<float>;

inline Floats Normal(int64_t n, uint64_t seed, float scale = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats x(n);
  for (float& value : x) value = normal(generator);
  return x;
}

struct Inputs {
  AttentionShape shape;
  Floats q, k, v, dout;  // q, k, v [B,H,T,D]; dout [B,T,H,D]
  Floats s, b;           // [H]

  // q and k of unit length where the spec wants them so.
  Inputs(const AttentionSpec& spec, const AttentionShape& of, uint64_t seed, float scale = 1) : shape(of) {
    const int64_t size = int64_t{of.B} * of.H * of.T * of.D;
    q = Normal(size, seed, scale), k = Normal(size, seed + 1, scale), v = Normal(size, seed + 2);
    dout = Normal(size, seed + 3);
    if (spec.qk_norm == QkNorm::kL2) Normalise(&q), Normalise(&k);
    for (int h = 0; h < of.H; ++h) s.push_back(0.7f + 0.2f * h), b.push_back(0.3f - 0.1f * h);
  }

 private:
  void Normalise(Floats* x) const {
    for (size_t i = 0; i < x->size(); i += shape.D) {
      double norm = 0;
      for (int d = 0; d < shape.D; ++d) norm += static_cast<double>((*x)[i + d]) * (*x)[i + d];
      for (int d = 0; d < shape.D; ++d) (*x)[i + d] = static_cast<float>((*x)[i + d] / std::sqrt(norm));
    }
  }
};

struct Outputs {
  Floats out, stats, dq, dk, dv, ds, db;
  AttentionCounts counts;

  friend bool SameBits(const Outputs& a, const Outputs& b) {
    const auto same = [](const Floats& x, const Floats& y) {
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), sizeof(float) * x.size()) == 0;
    };
    return same(a.out, b.out) && same(a.stats, b.stats) && same(a.dq, b.dq) && same(a.dk, b.dk) && same(a.dv, b.dv) &&
           same(a.ds, b.ds) && same(a.db, b.db) && a.counts.zero_rows == b.counts.zero_rows &&
           a.counts.uncontrasted_rows == b.counts.uncontrasted_rows;
  }
};

template <class T>
std::vector<T> Rounded(const Floats& x) {
  std::vector<T> rounded;
  for (float value : x) {
    if constexpr (std::is_same_v<T, float>) {
      rounded.push_back(value);
    } else {
      rounded.push_back(ToBf16(value));
    }
  }
  return rounded;
}
template <class T>
Floats Widened(const std::vector<T>& x) {
  Floats widened;
  for (T value : x) widened.push_back(ToFloat(value));
  return widened;
}

// Forward and backward of type T. What is added to begins at 8 (gradients of learned scales) and 1000 (counts); these
// are taken off again.
template <class T>
Outputs RunAttention(const AttentionSpec& spec, const Inputs& in) {
  using cuda_emu::DeviceArray;
  constexpr int kBefore = 8, kCountsBefore = 1000;
  const size_t size = in.q.size();
  DeviceArray<T> q(Rounded<T>(in.q)), k(Rounded<T>(in.k)), v(Rounded<T>(in.v)), dout(Rounded<T>(in.dout)), out(size),
      dq(size), dk(size), dv(size);
  DeviceArray<float> s(in.s), b(in.b), ds(Floats(in.s.size(), kBefore)), db(Floats(in.s.size(), kBefore)),
      stats(AttentionRowStatFloats(in.shape));
  DeviceArray<unsigned long long> counts(std::vector<unsigned long long>(2, kCountsBefore));
  DeviceArray<char> forward_workspace(AttentionForwardWorkspaceBytes(spec, in.shape) + 1);
  DeviceArray<char> workspace(AttentionBackwardWorkspaceBytes(spec, in.shape));
  AttentionForward<T>(nullptr, spec, in.shape, q, k, v, s, b, out, stats, counts, forward_workspace);
  AttentionBackward<T>(nullptr, spec, in.shape, q, k, v, s, b, out, dout, stats, dq, dk, dv, ds, db, workspace);
  Outputs r{.out = Widened(out.ToHost()),
            .stats = stats.ToHost(),
            .dq = Widened(dq.ToHost()),
            .dk = Widened(dk.ToHost()),
            .dv = Widened(dv.ToHost()),
            .ds = ds.ToHost(),
            .db = db.ToHost()};
  for (Floats* x : {&r.ds, &r.db}) {
    for (float& value : *x) value -= kBefore;
  }
  const std::vector<unsigned long long> counted = counts.ToHost();
  r.counts = {.zero_rows = static_cast<int64_t>(counted[0]) - kCountsBefore,
              .uncontrasted_rows = static_cast<int64_t>(counted[1]) - kCountsBefore};
  return r;
}

// What the double-precision reference says, in the layouts of Outputs (no stats).
struct Expected {
  std::vector<double> out, dq, dk, dv, ds, db;
  AttentionCounts counts;
};
inline Expected RunReference(AttentionSpec spec, const Inputs& in) {
  const AttentionShape& s = in.shape;
  const int64_t head_size = int64_t{s.T} * s.D;
  spec.qk_norm = QkNorm::kNone;  // the inputs have unit length already
  Expected r;
  r.out.resize(in.q.size());
  r.ds.resize(s.H), r.db.resize(s.H);
  const auto at = [&](int b, int h, int t, int d) { return ((int64_t{b} * s.T + t) * s.H + h) * s.D + d; };
  for (int b = 0; b < s.B; ++b) {
    for (int h = 0; h < s.H; ++h) {
      const int64_t first = (int64_t{b} * s.H + h) * head_size;
      const auto head = [&](const Floats& x) {
        return std::vector<double>(x.begin() + first, x.begin() + first + head_size);
      };
      std::vector<double> dout;
      for (int t = 0; t < s.T; ++t) {
        for (int d = 0; d < s.D; ++d) dout.push_back(in.dout[at(b, h, t, d)]);
      }
      const reference::AttentionResult want =
          reference::Attention(spec, s.T, s.D, s.window, head(in.q).data(), head(in.k).data(), head(in.v).data(),
                               in.s[h], in.b[h], dout.data(), reference::AlibiSlope(h, s.H));
      for (int t = 0; t < s.T; ++t) {
        for (int d = 0; d < s.D; ++d) r.out[at(b, h, t, d)] = want.out[t * s.D + d];
      }
      r.dq.insert(r.dq.end(), want.dq.begin(), want.dq.end());
      r.dk.insert(r.dk.end(), want.dk.begin(), want.dk.end());
      r.dv.insert(r.dv.end(), want.dv.begin(), want.dv.end());
      r.ds[h] += want.dlearned_s, r.db[h] += want.dlearned_b;
      r.counts.zero_rows += want.counts.zero_rows;
      r.counts.uncontrasted_rows += want.counts.uncontrasted_rows;
    }
  }
  return r;
}

// Largest difference by the largest value, or by 1 where all are smaller; infinite where a value is not finite.
inline double Error(const Floats& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 1, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return HUGE_VAL;
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  return error / largest;
}

inline std::string Trace(std::string_view name, const AttentionSpec& spec, const AttentionShape& s) {
  return std::string(name) + " p=" + std::to_string(spec.sharpen_p.value_or(0)) + " B=" + std::to_string(s.B) +
         " T=" + std::to_string(s.T) + " H=" + std::to_string(s.H) + " D=" + std::to_string(s.D) +
         " window=" + std::to_string(s.window) + (spec.alibi ? " alibi" : "");
}

}  // namespace ablate::cuda
