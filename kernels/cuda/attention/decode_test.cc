// Generation on the emulator, of both types: a new position against the cache is the row of the whole sequence's
// attention in double precision, for the family, every kind of position, windows, and sequences of their own lengths.
// And the same bits in every order of threads.
#include "kernels/cuda/attention/decode.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention/attention_testing.h"

namespace ablate::cuda {
namespace {

using cuda_emu::DeviceArray;
using Doubles = std::vector<double>;

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

template <class T>
struct Sequences {
  AttentionShape shape;
  std::vector<T> qkv;  // [B*T,3C]
  Floats s, b;

  Sequences(const AttentionShape& of, uint64_t seed) : shape(of) {
    qkv = Rounded<T>(Normal(int64_t{of.B} * of.T * 3 * C(), seed));
    for (int h = 0; h < of.H; ++h) s.push_back(0.7f + 0.2f * h), b.push_back(0.3f - 0.1f * h);
  }
  int64_t C() const { return int64_t{shape.H} * shape.D; }
  auto At(int b, int t) const { return qkv.begin() + (int64_t{b} * shape.T + t) * 3 * C(); }
};

// Position lengths[b] - 1 of each sequence, with the cache filled before it: [B, C].
template <class T>
Floats Decoded(const AttentionSpec& spec, const Sequences<T>& in, const Rope* rope, const std::vector<int>& lengths,
               bool give_lengths) {
  AttentionShape shape = in.shape;
  const int capacity = shape.T + 3;
  DeviceArray<T> keys(shape.B * capacity * in.C()), values(shape.B * capacity * in.C()), out(shape.B * in.C());
  // What lies in the cache from a sequence's length on is not to be read: not a number.
  std::vector<T> known = in.qkv, rows;
  for (int b = 0; b < shape.B; ++b) {
    rows.insert(rows.end(), in.At(b, lengths[b] - 1), in.At(b, lengths[b] - 1) + 3 * in.C());
    for (int64_t i = (lengths[b] - 1) * 3 * in.C(); i < shape.T * 3 * in.C(); ++i) {
      known[b * shape.T * 3 * in.C() + i] = Rounded<T>({std::nanf("")})[0];
    }
  }
  DeviceArray<T> prompt(known), qkv(rows);
  CacheKeyValue<T>(nullptr, prompt, keys, values, shape, capacity);
  if (!give_lengths) shape.T = lengths[0];
  DeviceArray<int32_t> device_lengths(std::vector<int32_t>(lengths.begin(), lengths.end()));
  DeviceArray<float> cos(rope == nullptr ? Floats(1) : rope->cos), sin(rope == nullptr ? Floats(1) : rope->sin),
      s(in.s), b(in.b);
  DeviceArray<char> workspace(AttentionDecodeWorkspaceBytes(shape));
  AttentionDecode<T>(nullptr, spec, shape, capacity, give_lengths ? device_lengths.get() : nullptr, qkv,
                     rope == nullptr ? nullptr : cos.get(), rope == nullptr ? nullptr : sin.get(), s, b, keys, values,
                     out, workspace);
  const Failure failure = TakeFailure();
  EXPECT_TRUE(failure.ok()) << failure.message;
  // The new row is in the cache, as it came.
  const Floats cached_keys = Widened(keys.ToHost()), cached_values = Widened(values.ToHost()), row = Widened(rows);
  for (int q = 0; q < shape.B; ++q) {
    for (int64_t c = 0; c < in.C(); ++c) {
      const int64_t at =
          ((int64_t{q} * shape.H + c / shape.D) * capacity + lengths[q] - 1) * shape.D + c % shape.D;
      EXPECT_EQ(cached_keys[at], row[q * 3 * in.C() + in.C() + c]);
      EXPECT_EQ(cached_values[at], row[q * 3 * in.C() + 2 * in.C() + c]);
    }
  }
  return Widened(out.ToHost());
}

// [B, T, C] of the whole sequences. Rotated unit queries and keys are rounded to T, as training leaves them.
template <class T>
Doubles Whole(AttentionSpec spec, const Sequences<T>& in, const Rope* rope) {
  const AttentionShape& s = in.shape;
  const int D = s.D;
  Doubles all(s.B * s.T * in.C());
  const bool normalise = spec.qk_norm == QkNorm::kL2;
  spec.qk_norm = QkNorm::kNone;
  for (int head = 0; head < s.B * s.H; ++head) {
    const int b = head / s.H, h = head % s.H;
    Doubles parts[3];
    for (int part = 0; part < 3; ++part) {
      for (int t = 0; t < s.T; ++t) {
        Floats x = Widened(std::vector<T>(in.At(b, t) + part * in.C() + h * D, in.At(b, t) + part * in.C() + (h + 1) * D));
        if (part < 2 && rope != nullptr) {
          for (int i = 0; i < D / 2; ++i) {
            const float c = rope->cos[t * (D / 2) + i], sine = rope->sin[t * (D / 2) + i], low = x[i], high = x[D / 2 + i];
            x[i] = low * c - high * sine, x[D / 2 + i] = high * c + low * sine;
          }
        }
        if (part < 2 && normalise) {
          double squares = 0;
          for (float e : x) squares += double{e} * e;
          for (float& e : x) e = static_cast<float>(e / std::sqrt(squares));
        }
        for (float e : Widened(Rounded<T>(x))) parts[part].push_back(e);
      }
    }
    const reference::AttentionResult want =
        reference::Attention(spec, s.T, D, s.window, parts[0].data(), parts[1].data(), parts[2].data(), in.s[h],
                             in.b[h], nullptr, reference::AlibiSlope(h, s.H));
    for (int t = 0; t < s.T; ++t) {
      for (int d = 0; d < D; ++d) all[(int64_t{b} * s.T + t) * in.C() + h * D + d] = want.out[t * D + d];
    }
  }
  return all;
}

template <class T>
void ExpectRows(const Floats& got, const Doubles& whole, const Sequences<T>& in, const std::vector<int>& lengths) {
  // bf16: half a unit in the last place of outputs up to 4, and now and then a key rounded to its neighbour.
  constexpr double kTolerance = std::is_same_v<T, float> ? 2e-4 : 2e-2;
  for (int64_t i = 0; i < in.shape.B * in.C(); ++i) {
    const int64_t b = i / in.C();
    ASSERT_NEAR(got[i], whole[(b * in.shape.T + lengths[b] - 1) * in.C() + i % in.C()], kTolerance)
        << "sequence " << b << " of " << lengths[b] << ", column " << i % in.C();
  }
}

std::vector<AttentionVariant> Members() {
  std::vector<AttentionVariant> members = AttentionVariants();
  AttentionSpec clamped = FindAttentionVariant("lssar")->spec;
  clamped.scale_clamp = 20, clamped.sharpen_clamp = 30;
  members.push_back({"lssar_clamped", clamped, ""});
  for (const char* name : {"lssa", "sigmoid", "relu"}) {
    for (const ScoreTransform transform : {ScoreTransform::kInverted, ScoreTransform::kRecentred}) {
      AttentionSpec spec = FindAttentionVariant(name)->spec;
      spec.transform = transform;
      members.push_back({Name(transform), spec, ""});
    }
  }
  return members;
}

template <class T>
class CudaAttentionDecode : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaAttentionDecode, Types);

TYPED_TEST(CudaAttentionDecode, EachPositionIsTheRowOfTheWholeSequence) {
  using T = TypeParam;
  constexpr int kWidths[] = {32, 64, 8, 128, 72}, kWindows[] = {0, 150, 0, 1};
  int turn = 0;
  for (const AttentionVariant& member : Members()) {
    for (const char* positions : {"none", "rope", "alibi"}) {
      ++turn;
      // Halves that are no whole vectors, too.
      const int D = std::is_same_v<T, float> && turn % 4 == 0 ? 12 : kWidths[turn % 5];
      AttentionSpec spec = member.spec;
      spec.alibi = std::string(positions) == "alibi";
      const AttentionShape shape{.B = 1, .T = turn % 2 == 0 ? 140 : 310, .H = 2, .D = D, .window = kWindows[turn % 4]};
      const Rope rope(shape.T, D, 50000);
      const Rope* const turned = std::string(positions) == "rope" ? &rope : nullptr;
      const Sequences<T> in(shape, 7 + D);
      SCOPED_TRACE(Trace(member.name, spec, shape) + ", " + positions);
      const Doubles whole = Whole(spec, in, turned);
      for (const int n : {1, 2, 3, 129, shape.T}) {
        ExpectRows(Decoded(spec, in, turned, {n}, false), whole, in, {n});
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TYPED_TEST(CudaAttentionDecode, SequencesOfDifferentLengths) {
  for (const AttentionVariant& member : Members()) {
    const AttentionShape shape{.B = 3, .T = 140, .H = 2, .D = 16};
    const Rope rope(shape.T, shape.D, 10000);
    const Sequences<TypeParam> in(shape, 17);
    SCOPED_TRACE(std::string(member.name));
    ExpectRows(Decoded(member.spec, in, &rope, {77, 1, 140}, true), Whole(member.spec, in, &rope), in, {77, 1, 140});
  }
}

// Softplus and sigmoid rows whose scores are all far below zero.
TYPED_TEST(CudaAttentionDecode, TailRows) {
  for (const char* name : {"softplus", "sigmoid"}) {
    for (const bool sharpened : {false, true}) {
      AttentionSpec spec{.scale = ScoreScale::kOne, .activation = *ParseActivation(name)};
      if (sharpened) spec.sharpen_p = 3;
      const AttentionShape shape{.B = 1, .T = 150, .H = 1, .D = 8};
      Sequences<TypeParam> in(shape, 51);
      for (int t = 0; t < shape.T; ++t) {
        in.qkv[t * 24] = Rounded<TypeParam>({1})[0], in.qkv[t * 24 + 8] = Rounded<TypeParam>({-40})[0];
      }
      SCOPED_TRACE(std::string(name) + (sharpened ? " sharpened" : ""));
      ExpectRows(Decoded(spec, in, nullptr, {150}, false), Whole(spec, in, nullptr), in, {150});
    }
  }
}

TYPED_TEST(CudaAttentionDecode, ZeroRowsAndNan) {
  const AttentionShape shape{.B = 1, .T = 4, .H = 1, .D = 8};
  Sequences<TypeParam> in(shape, 23);
  for (int t = 0; t < shape.T; ++t) {
    for (int d = 0; d < 8; ++d) {
      in.qkv[t * 24 + d] = Rounded<TypeParam>({1})[0], in.qkv[t * 24 + 8 + d] = Rounded<TypeParam>({-1})[0];
    }
  }
  EXPECT_THAT(Decoded(FindAttentionVariant("relu")->spec, in, nullptr, {4}, false), ::testing::Each(0.0f));
  in.qkv[24 + 8] = Rounded<TypeParam>({std::nanf("")})[0];
  EXPECT_TRUE(std::isnan(Decoded(FindAttentionVariant("softmax")->spec, in, nullptr, {4}, false)[0]));
}

// Small: what the sanitizers and the barriers test see too.
TYPED_TEST(CudaAttentionDecode, SameBitsInEveryOrderSanitized) {
  for (const char* name : {"softmax", "lssar"}) {
    const AttentionSpec& spec = FindAttentionVariant(name)->spec;
    const AttentionShape shape{.B = 2, .T = 150, .H = 1, .D = 16};
    const Rope rope(shape.T, shape.D, 10000);
    const Sequences<TypeParam> in(shape, 19);
    Floats first;
    cuda_emu::ForEachSchedule([&] {
      const Floats got = Decoded(spec, in, &rope, {150, 60}, true);
      if (first.empty()) first = got;
      EXPECT_EQ(std::memcmp(got.data(), first.data(), sizeof(float) * got.size()), 0) << name;
    });
    ExpectRows(first, Whole(spec, in, &rope), in, {150, 60});
  }
}

TEST(CudaAttentionDecodeTest, ContractsAreChecked) {
  const AttentionSpec spec;
  const AttentionShape shape{.B = 1, .T = 4, .H = 1, .D = 8};
  float* const none = nullptr;
  EXPECT_DEATH(AttentionDecode<float>(nullptr, spec, shape, 3, nullptr, none, none, none, none, none, none, none, none,
                                      nullptr),
               "a cache of 3 positions is given 4");
  EXPECT_DEATH(CacheKeyValue<float>(nullptr, none, none, none, shape, 3), "a cache of 3 positions is given 4");
  const int64_t at_1k = AttentionDecodeWorkspaceBytes({.B = 2, .T = 1024, .H = 12, .D = 64});
  EXPECT_EQ(AttentionDecodeWorkspaceBytes({.B = 2, .T = 16384, .H = 12, .D = 64}), 16 * at_1k);
}

}  // namespace
}  // namespace ablate::cuda
