// Generation on the CPU: a new position against the cache is the last row of the whole sequence's attention, for every
// member, position kind, window and clamp, from the first position on; what a call may and may not touch.
#include "kernels/cpu/attention_decode.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/attention.h"

namespace ablate {
namespace {

using Floats = std::vector<float>;

constexpr double kTolerance = 2e-4;  // of outputs of size 1: as forward's

Floats Normal(int64_t n, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  Floats x(n);
  for (float& value : x) value = normal(generator);
  return x;
}

struct Rope {
  Floats cos, sin;
  Rope(int T, int D, double base) {
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < D / 2; ++i) {
        const double angle = t * std::pow(base, -2.0 * i / D);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
};

// The packed projections of B sequences, and what they are turned by.
struct Sequences {
  AttentionShape shape;
  Floats qkv, s, b;

  Sequences(const AttentionShape& of, uint64_t seed) : shape(of) {
    qkv = Normal(int64_t{of.B} * of.T * 3 * C(), seed);
    for (int h = 0; h < of.H; ++h) s.push_back(0.7f + 0.2f * h), b.push_back(0.3f - 0.1f * h);
  }
  int64_t C() const { return int64_t{shape.H} * shape.D; }

  // The first `T` positions.
  Floats Prefix(int T) const {
    Floats prefix;
    for (int b = 0; b < shape.B; ++b) {
      const auto first = qkv.begin() + int64_t{b} * shape.T * 3 * C();
      prefix.insert(prefix.end(), first, first + T * 3 * C());
    }
    return prefix;
  }
  // Position t of each sequence.
  Floats Row(int t) const {
    Floats rows;
    for (int b = 0; b < shape.B; ++b) {
      const auto first = qkv.begin() + (int64_t{b} * shape.T + t) * 3 * C();
      rows.insert(rows.end(), first, first + 3 * C());
    }
    return rows;
  }
};

// [B*T, C] of the whole sequences: rotation and norm written out here, then AttentionForward.
Floats Whole(const AttentionSpec& spec, const Sequences& in, const Rope* rope) {
  const AttentionShape& s = in.shape;
  const int D = s.D;
  const int64_t C = in.C(), size = int64_t{s.B} * s.H * s.T * D;
  Floats q(size), k(size), v(size), out(size);
  for (int64_t row = 0; row < int64_t{s.B} * s.H * s.T; ++row) {
    const int64_t t = row % s.T, h = row / s.T % s.H, b = row / s.T / s.H;
    const float* const from = &in.qkv[(b * s.T + t) * 3 * C + h * D];
    for (int part = 0; part < 3; ++part) {
      float* const to = (part == 0 ? q : part == 1 ? k : v).data() + row * D;
      std::copy_n(from + part * C, D, to);
      if (part == 2) break;
      for (int i = 0; rope != nullptr && i < D / 2; ++i) {
        const float cos = rope->cos[t * (D / 2) + i], sin = rope->sin[t * (D / 2) + i], x = to[i], y = to[D / 2 + i];
        to[i] = x * cos - y * sin, to[D / 2 + i] = y * cos + x * sin;
      }
      if (spec.qk_norm != QkNorm::kL2) continue;
      double squares = 0;
      for (int d = 0; d < D; ++d) squares += double{to[d]} * to[d];
      for (int d = 0; d < D; ++d) to[d] = static_cast<float>(to[d] / std::max(std::sqrt(squares), 1e-12));
    }
  }
  CpuAttentionForward(1, spec, s, q.data(), k.data(), v.data(), in.s.data(), in.b.data(), out.data(), nullptr, nullptr);
  return out;
}

// Rows [prompt, T) one by one, from a cache of `prompt` positions: [T - prompt][B, C].
std::vector<Floats> Generated(const AttentionSpec& spec, const Sequences& in, const Rope* rope, int prompt,
                              int capacity, int threads = 1) {
  AttentionShape shape = in.shape;
  const float nan = std::nanf("");
  Floats keys(int64_t{shape.B} * capacity * in.C(), nan), values = keys;
  shape.T = prompt;
  if (prompt > 0) {
    CpuCacheKeyValue(threads, in.Prefix(prompt).data(), keys.data(), values.data(), shape, capacity);
  }
  std::vector<Floats> rows;
  for (int t = prompt; t < in.shape.T; ++t) {
    shape.T = t + 1;
    Floats out(shape.B * in.C(), nan);
    CpuAttentionDecode(threads, spec, shape, capacity, nullptr, in.Row(t).data(),
                       rope == nullptr ? nullptr : rope->cos.data(), rope == nullptr ? nullptr : rope->sin.data(),
                       in.s.data(), in.b.data(), keys.data(), values.data(), out.data());
    rows.push_back(out);
  }
  return rows;
}

void ExpectSame(const std::vector<Floats>& rows, const Floats& whole, const Sequences& in, int prompt) {
  const AttentionShape& s = in.shape;
  for (int t = prompt; t < s.T; ++t) {
    for (int64_t i = 0; i < s.B * in.C(); ++i) {
      const int64_t b = i / in.C(), c = i % in.C();
      const float want = whole[(b * s.T + t) * in.C() + c], got = rows[t - prompt][i];
      ASSERT_NEAR(got, want, kTolerance * std::max(1.0f, std::fabs(want))) << "position " << t << ", column " << c;
    }
  }
}

std::vector<AttentionVariant> Members() {
  std::vector<AttentionVariant> members = AttentionVariants();
  AttentionSpec clamped = FindAttentionVariant("lssar")->spec;
  clamped.scale_clamp = 20, clamped.sharpen_clamp = 30;
  members.push_back({"lssar_clamped", clamped, ""});
  AttentionSpec trained = FindAttentionVariant("sigmoid")->spec;
  trained.logit_bias = LogitBias::kNegLogTrain, trained.train_length = 40;
  members.push_back({"sigmoid_by_train_length", trained, ""});
  // phi with and without l1, and sharpened.
  static const std::vector<std::string> names = ActivationNames();
  for (const std::string& name : names) {
    AttentionSpec spec{.activation = *ParseActivation(name)};
    members.push_back({name, spec, ""});
    spec.sharpen_p = 2.5;
    members.push_back({name, spec, ""});
    spec.sharpen_p.reset(), spec.normalisation = Normalisation::kCount;
    members.push_back({name, spec, ""});
  }
  for (const char* name : {"lssa", "sigmoid", "relu"}) {
    for (const ScoreTransform transform : {ScoreTransform::kInverted, ScoreTransform::kRecentred}) {
      AttentionSpec spec = FindAttentionVariant(name)->spec;
      spec.transform = transform;
      members.push_back({Name(transform), spec, ""});
    }
  }
  return members;
}

TEST(CpuAttentionDecode, EachPositionIsTheLastRowOfTheWholeSequence) {
  int turn = 0;
  for (const AttentionVariant& member : Members()) {
    for (const std::string positions : {"none", "rope", "rope of another base", "alibi"}) {
      for (const int window : {0, 1, 21}) {
        constexpr int kWidths[] = {8, 20, 32, 12};
        const int D = kWidths[++turn % 4];
        AttentionSpec spec = member.spec;
        spec.alibi = positions == "alibi";
        const AttentionShape shape{.B = 2, .T = 75, .H = 3, .D = D, .window = window};
        const Rope rope(shape.T, D, positions == "rope" ? 10000 : 70000);
        const Rope* const turned = positions.starts_with("rope") ? &rope : nullptr;
        SCOPED_TRACE(std::string(member.name) + ", " + positions + ", window " + std::to_string(window) + ", D " +
                     std::to_string(D));
        const Sequences in(shape, 7 + D);
        // From nothing: n = 1, 2, 3 too.
        ExpectSame(Generated(spec, in, turned, 0, 80), Whole(spec, in, turned), in, 0);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(CpuAttentionDecode, LongPrompts) {
  for (const AttentionVariant& member : Members()) {
    for (const int window : {0, 100}) {
      const AttentionShape shape{.B = 1, .T = 403, .H = 2, .D = 16, .window = window};
      const Rope rope(shape.T, shape.D, 10000);
      SCOPED_TRACE(std::string(member.name) + ", window " + std::to_string(window));
      const Sequences in(shape, 11);
      ExpectSame(Generated(member.spec, in, &rope, 390, 403), Whole(member.spec, in, &rope), in, 390);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// One base for the cache and the query: keys that were turned by another base would show.
TEST(CpuAttentionDecode, TheCacheHoldsNoRotationAndNoNorm) {
  const AttentionShape shape{.B = 2, .T = 30, .H = 2, .D = 8};
  const Sequences in(shape, 13);
  constexpr int kCapacity = 33;
  Floats keys(shape.B * kCapacity * in.C(), -1), values = keys;
  CpuCacheKeyValue(2, in.qkv.data(), keys.data(), values.data(), shape, kCapacity);
  for (int b = 0; b < shape.B; ++b) {
    for (int h = 0; h < shape.H; ++h) {
      for (int t = 0; t < kCapacity; ++t) {
        for (int d = 0; d < shape.D; ++d) {
          const int64_t at = ((int64_t{b} * shape.H + h) * kCapacity + t) * shape.D + d;
          const int64_t from = (int64_t{b} * shape.T + t) * 3 * in.C() + h * shape.D + d;
          EXPECT_EQ(keys[at], t < shape.T ? in.qkv[from + in.C()] : -1);
          EXPECT_EQ(values[at], t < shape.T ? in.qkv[from + 2 * in.C()] : -1);
        }
      }
    }
  }
}

// A batch of prompts of several lengths, padded: each goes on from its own, and overwrites the padding.
TEST(CpuAttentionDecode, SequencesOfDifferentLengths) {
  for (const AttentionVariant& member : Members()) {
    SCOPED_TRACE(std::string(member.name));
    const AttentionShape shape{.B = 3, .T = 40, .H = 2, .D = 16};
    const Rope rope(shape.T, shape.D, 10000);
    const Sequences in(shape, 17);
    const Floats whole = Whole(member.spec, in, &rope);
    const int prompts[] = {20, 1, 33};
    constexpr int kCapacity = 44;
    Floats keys(shape.B * kCapacity * in.C()), values = keys, padded = in.qkv;
    for (int b = 0; b < shape.B; ++b) {
      for (int64_t i = prompts[b] * 3 * in.C(); i < shape.T * 3 * in.C(); ++i) padded[b * shape.T * 3 * in.C() + i] = 9;
    }
    CpuCacheKeyValue(1, padded.data(), keys.data(), values.data(), shape, kCapacity);
    for (int step = 0; step < 7; ++step) {
      std::vector<int32_t> lengths;
      Floats rows, out(shape.B * in.C());
      for (int b = 0; b < shape.B; ++b) {
        const auto from = in.qkv.begin() + (int64_t{b} * shape.T + prompts[b] + step) * 3 * in.C();
        rows.insert(rows.end(), from, from + 3 * in.C());
        lengths.push_back(prompts[b] + step + 1);
      }
      CpuAttentionDecode(2, member.spec, shape, kCapacity, lengths.data(), rows.data(), rope.cos.data(),
                         rope.sin.data(), in.s.data(), in.b.data(), keys.data(), values.data(), out.data());
      for (int64_t i = 0; i < shape.B * in.C(); ++i) {
        const int64_t b = i / in.C();
        ASSERT_NEAR(out[i], whole[(b * shape.T + prompts[b] + step) * in.C() + i % in.C()], kTolerance * 3)
            << "sequence " << b << ", step " << step;
      }
    }
  }
}

TEST(CpuAttentionDecode, SameBitsForEveryNumberOfThreads) {
  for (const AttentionVariant& member : Members()) {
    const AttentionShape shape{.B = 2, .T = 60, .H = 3, .D = 16};
    const Rope rope(shape.T, shape.D, 10000);
    const Sequences in(shape, 19);
    const std::vector<Floats> one = Generated(member.spec, in, &rope, 40, 60, 1);
    const std::vector<Floats> three = Generated(member.spec, in, &rope, 40, 60, 3);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(std::memcmp(one[i].data(), three[i].data(), sizeof(float) * one[i].size()), 0) << member.name;
    }
  }
}

// A row without any weight is zero, not NaN; a poisoned key shows.
TEST(CpuAttentionDecode, ZeroRowsAndNan) {
  const AttentionShape shape{.B = 1, .T = 4, .H = 1, .D = 8};
  Sequences in(shape, 23);
  for (int t = 0; t < shape.T; ++t) {
    for (int d = 0; d < shape.D; ++d) in.qkv[t * 24 + d] = 1, in.qkv[t * 24 + 8 + d] = -1;
  }
  EXPECT_THAT(Generated(FindAttentionVariant("relu")->spec, in, nullptr, 3, 4)[0], ::testing::Each(0.0f));
  in.qkv[24 + 8] = std::nanf("");
  EXPECT_TRUE(std::isnan(Generated(FindAttentionVariant("softmax")->spec, in, nullptr, 3, 4)[0][0]));
}

TEST(CpuAttentionDecodeDeathTest, ContractsAreChecked) {
  const AttentionShape shape{.B = 1, .T = 4, .H = 1, .D = 8};
  const Sequences in(shape, 29);
  const AttentionSpec& spec = FindAttentionVariant("softmax")->spec;
  Floats keys(32), values(32), out(8);
  const int32_t lengths[] = {5};
  const auto decode = [&](int capacity, const int32_t* of) {
    CpuAttentionDecode(1, spec, shape, capacity, of, in.qkv.data(), nullptr, nullptr, nullptr, nullptr, keys.data(),
                       values.data(), out.data());
  };
  EXPECT_DEATH(decode(3, nullptr), "capacity");
  EXPECT_DEATH(decode(4, lengths), "has 5 keys, not 1 to 4");
  EXPECT_DEATH(CpuCacheKeyValue(1, in.qkv.data(), keys.data(), values.data(), shape, 3), "a cache of 3 positions");
}

}  // namespace
}  // namespace ablate
