// The CUDA ops through the emulator (attention and products have their own tests), in float32 and bf16, against the
// double-precision reference at odd shapes, and bit for bit against themselves in other orders of threads. Tests named
// Large are left out under sanitizers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/ops/arg_max.h"
#include "kernels/cuda/ops/columns.h"
#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/embedding.h"
#include "kernels/cuda/ops/gemm_kernel.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "kernels/cuda/ops/optimizer.h"
#include "kernels/cuda/ops/qkv.h"
#include "kernels/cuda/ops/testing.h"
#include "kernels/reference/ops.h"

namespace ablate::cuda {
namespace {

template <class T>
class CudaOpsTest : public testing::Test {};
struct Names {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, bf16> ? "bf16" : "float32";
  }
};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(CudaOpsTest, Types, Names);

// An array that begins one element after an aligned address.
template <class T>
struct Unaligned {
  explicit Unaligned(const std::vector<T>& values) : memory(Shifted(values)) {}
  static std::vector<T> Shifted(const std::vector<T>& values) {
    std::vector<T> out(values.size() + 1);
    std::copy(values.begin(), values.end(), out.begin() + 1);
    return out;
  }
  T* get() { return memory.get() + 1; }
  std::vector<T> ToHost() const {
    const std::vector<T> all = memory.ToHost();
    return std::vector<T>(all.begin() + 1, all.end());
  }
  DeviceArray<T> memory;
};

TYPED_TEST(CudaOpsTest, GeluAndAdd) {
  using T = TypeParam;
  for (const int64_t n : {int64_t{1}, int64_t{13}, int64_t{4099}}) {
    std::vector<T> x = Values<T>(n, 1, 12.0);
    x[0] = Values<T>(1, 0, n == 1 ? -100.0 : 100.0)[0];  // both tails saturate
    const std::vector<T> dout = Values<T>(n, 2);
    const auto outputs = SameBits([&] {
      DeviceArray<T> dev_x(x), out(n), dx(dout), sum(x), other(dout);
      GeluForward<T>(nullptr, dev_x, out, n);
      GeluBackward<T>(nullptr, dx, dev_x, dx, n);  // in place
      Add<T>(nullptr, sum, other, sum, n);
      return std::vector<Floats>{AsFloats(out.ToHost()), AsFloats(dx.ToHost()), AsFloats(sum.ToHost())};
    });
    const Doubles xd = Wide(x), dd = Wide(dout);
    Doubles out(n), dx(n), sum(n);
    reference::GeluForward(xd.data(), out.data(), n);
    reference::GeluBackward(dd.data(), xd.data(), dx.data(), n);
    for (int64_t i = 0; i < n; ++i) sum[i] = xd[i] + dd[i];
    ExpectClose<T>(outputs[0], out, 1e-6, "out");
    ExpectClose<T>(outputs[1], dx, 3e-6, "dx");
    ExpectClose<T>(outputs[2], sum, 1e-6, "sum");
    // Arrays that are not aligned: the same values.
    Unaligned<T> shifted(x), shifted_out{std::vector<T>(n)};
    GeluForward<T>(nullptr, shifted.get(), shifted_out.get(), n);
    EXPECT_EQ(AsFloats(shifted_out.ToHost()), outputs[0]);
  }
}

TEST(CudaConvertTest, RoundsToNearestEven) {
  const Floats x = {1.0f, 1.00390625f, 1.01171875f, -3.14159f, 65504.0f, 1e-40f, 0.0f, 7.5f, 2.25f};
  DeviceArray<float> in(x);
  DeviceArray<bf16> out(x.size());
  ConvertToBf16(nullptr, in, out, static_cast<int64_t>(x.size()));
  const std::vector<bf16> got = out.ToHost();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(ToFloat(got[i]), ToFloat(ToBf16(x[i])));
  EXPECT_EQ(ToFloat(got[1]), 1.0f);       // a tie, to even
  EXPECT_EQ(ToFloat(got[2]), 1.015625f);  // another, to even
}

template <class T>
void CheckLayerNorm(int N, int C) {
  SCOPED_TRACE(std::to_string(N) + " rows of " + std::to_string(C));
  const int64_t nc = int64_t{N} * C;
  Floats x_floats = Values<float>(nc, 1, 2.0);
  // A mean far from zero must not cost the variance its digits (as far as the elements have them).
  for (float& e : x_floats) e += std::is_same_v<T, bf16> ? 3.0f : 30.0f;
  std::vector<T> x(nc);
  for (int64_t i = 0; i < nc; ++i) {
    if constexpr (std::is_same_v<T, bf16>) {
      x[i] = ToBf16(x_floats[i]);
    } else {
      x[i] = x_floats[i];
    }
  }
  const Floats w = Values<float>(C, 2), b = Values<float>(C, 3), dw0 = Values<float>(C, 6);
  const std::vector<T> dout = Values<T>(nc, 4), dx0 = Values<T>(nc, 5);
  const auto outputs = SameBits([&] {
    DeviceArray<T> dev_x(x), out(nc), dev_dout(dout), dx(dx0);
    DeviceArray<float> dev_w(w), dev_b(b), mean(N), rstd(N), dw(dw0), db(dw0), partials(LayerNormPartialFloats(N, C));
    LayerNormForward<T>(nullptr, dev_x, dev_w, dev_b, out, mean, rstd, N, C);
    LayerNormBackward<T>(nullptr, dev_dout, dev_x, dev_w, mean, rstd, dx, dw, db, partials, N, C);
    return std::vector<Floats>{AsFloats(out.ToHost()), AsFloats(dx.ToHost()), dw.ToHost(), db.ToHost()};
  });
  Doubles out(nc), dx = Wide(dx0), dw = Wide(dw0), db = Wide(dw0);
  const Doubles xd = Wide(x), wd = Wide(w), bd = Wide(b), dd = Wide(dout);
  reference::LayerNormForward(xd.data(), wd.data(), bd.data(), out.data(), N, C);
  reference::LayerNormBackward(dd.data(), xd.data(), wd.data(), dx.data(), dw.data(), db.data(), N, C);
  ExpectClose<T>(outputs[0], out, 2e-5, "out");
  ExpectClose<T>(outputs[1], dx, 2e-5, "dx");
  ExpectClose<float>(outputs[2], dw, 2e-5, "dw");
  ExpectClose<float>(outputs[3], db, 2e-5, "db");
}

TYPED_TEST(CudaOpsTest, LayerNorm) {
  const int shapes[][2] = {{1, 1}, {3, 5}, {65, 31}, {19, 128}, {9, 1030}};
  for (const auto& s : shapes) CheckLayerNorm<TypeParam>(s[0], s[1]);
}
// More rows than blocks, and sums that do not fit shared memory.
TYPED_TEST(CudaOpsTest, LayerNormLarge) {
  CheckLayerNorm<TypeParam>(129, 770);
  CheckLayerNorm<TypeParam>(8199, 4);
  CheckLayerNorm<TypeParam>(5, 6148);
}

template <class T>
void CheckEmbedding(int N, int C, int V, std::vector<int32_t> tokens) {
  SCOPED_TRACE(std::to_string(N) + " of " + std::to_string(V) + " tokens, width " + std::to_string(C));
  const int64_t nc = int64_t{N} * C, vc = int64_t{V} * C;
  const Floats table = Values<float>(vc, 1), dtable0 = Values<float>(vc, 3);
  const std::vector<T> dout = Values<T>(nc, 2);
  const auto outputs = SameBits([&] {
    DeviceArray<int32_t> dev_tokens(tokens);
    DeviceArray<float> dev_table(table), dtable(dtable0);
    DeviceArray<T> out(nc), dev_dout(dout);
    DeviceArray<char> scratch(EmbeddingScratchBytes(N, C));
    EmbeddingForward<T>(nullptr, dev_tokens, dev_table, out, N, C);
    EmbeddingBackward<T>(nullptr, dev_tokens, dev_dout, dtable, scratch, N, C);
    return std::vector<Floats>{AsFloats(out.ToHost()), dtable.ToHost()};
  });
  Doubles out(nc), dtable = Wide(dtable0);
  reference::EmbeddingForward(tokens.data(), Wide(table).data(), out.data(), N, C);
  reference::EmbeddingBackward(tokens.data(), Wide(dout).data(), dtable.data(), N, C);
  ExpectClose<T>(outputs[0], out, 1e-7, "out");
  ExpectClose<float>(outputs[1], dtable, 3e-6, "dtable");
}

TYPED_TEST(CudaOpsTest, Embedding) {
  CheckEmbedding<TypeParam>(1, 1, 1, {0});
  CheckEmbedding<TypeParam>(301, 7, 11, Tokens(301, 11, 1));
  CheckEmbedding<TypeParam>(64, 12, 50257, Tokens(64, 50257, 1));
  // Runs that begin and end at the segments' borders, and one over several segments.
  std::vector<int32_t> runs;
  for (const auto& [token, count] : {std::pair{4, 32}, {2, 64}, {9, 1}, {0, 31}, {7, 100}, {1, 33}}) {
    runs.insert(runs.end(), count, token);
  }
  CheckEmbedding<TypeParam>(static_cast<int>(runs.size()), 8, 10, runs);
  CheckEmbedding<TypeParam>(96, 5, 3, std::vector<int32_t>(96, 2));
}
// Several chunks to merge.
TYPED_TEST(CudaOpsTest, EmbeddingLarge) {
  CheckEmbedding<TypeParam>(3000, 20, 97, Tokens(3000, 97, 1));
  CheckEmbedding<TypeParam>(2049, 4, 2, Tokens(2049, 2, 1));
}

template <class T>
void CheckQkv(const AttentionShape& s) {
  SCOPED_TRACE("heads of " + std::to_string(s.D));
  const int64_t n = int64_t{s.B} * s.T * s.H * s.D, rows = n / s.D;
  const HeadShape heads{s.B, s.T, s.H, s.D};
  const int half = s.D / 2;
  Doubles cos(s.T * half), sin(s.T * half);
  reference::RopeTable(10000.0, s.T, s.D, cos.data(), sin.data());
  const Floats cosf(cos.begin(), cos.end()), sinf(sin.begin(), sin.end());
  std::vector<T> qkv = Values<T>(3 * n, 1);
  for (int d = 0; d < s.D; ++d) qkv[d] = Values<T>(1, 0, 0.0)[0];  // the floor of the norm
  const std::vector<T> dq = Values<T>(n, 2), dk = Values<T>(n, 3), dv = Values<T>(n, 4);
  for (const bool rope : {true, false}) {
    if (rope && s.D % 2 != 0) continue;
    for (const bool l2 : {false, true}) {
      const auto outputs = SameBits([&] {
        DeviceArray<T> dev_qkv(qkv), q(n), k(n), v(n), dev_dq(dq), dev_dk(dk), dev_dv(dv), dqkv(3 * n);
        DeviceArray<float> q_norm(rows), k_norm(rows), dev_cos(cosf), dev_sin(sinf);
        const float* c = rope ? dev_cos.get() : nullptr;
        const float* si = rope ? dev_sin.get() : nullptr;
        float *qn = l2 ? q_norm.get() : nullptr, *kn = l2 ? k_norm.get() : nullptr;
        QkvForward<T>(nullptr, dev_qkv, c, si, l2, q, k, v, qn, kn, heads);
        QkvBackward<T>(nullptr, dev_dq, dev_dk, dev_dv, q, k, c, si, l2, qn, kn, dqkv, heads);
        return std::vector<Floats>{AsFloats(q.ToHost()), AsFloats(k.ToHost()), AsFloats(v.ToHost()),
                                   AsFloats(dqkv.ToHost())};
      });
      Doubles q(n), k(n), v(n), dqkv(3 * n);
      const Doubles x = Wide(qkv);
      const double *c = rope ? cos.data() : nullptr, *si = rope ? sin.data() : nullptr;
      const QkNorm norm = l2 ? QkNorm::kL2 : QkNorm::kNone;
      reference::QkvForward(x.data(), c, si, norm, q.data(), k.data(), v.data(), s);
      reference::QkvBackward(Wide(dq).data(), Wide(dk).data(), Wide(dv).data(), x.data(), c, si, norm, dqkv.data(), s);
      ExpectClose<T>(outputs[0], q, 1e-6, "q");
      ExpectClose<T>(outputs[1], k, 1e-6, "k");
      ExpectClose<T>(outputs[2], v, 1e-7, "v");
      // With bf16, q and k that backward reads are rounded: their part along the gradient, too. Where the norm is at
      // its floor the gradient is 1e12 times as large; the rest is compared apart.
      if (!l2) {
        ExpectClose<T>(outputs[3], dqkv, 3e-6, "dqkv");
      } else {
        const int64_t C = int64_t{s.H} * s.D;
        ExpectClose<T>(Floats(outputs[3].begin(), outputs[3].begin() + s.D), Doubles(dqkv.begin(), dqkv.begin() + s.D),
                       3e-6, "dqkv at the floor");
        Floats got;
        Doubles want;
        for (int64_t i = 0; i < 3 * n; ++i) {
          if (i % (3 * C) < s.D && i < s.D) continue;
          got.push_back(outputs[3][i]);
          want.push_back(dqkv[i]);
        }
        ExpectClose<T>(got, want, std::is_same_v<T, bf16> ? 4e-3 : 3e-6, "dqkv");
      }
    }
  }
}

TYPED_TEST(CudaOpsTest, Qkv) {
  for (const AttentionShape& s : {AttentionShape{1, 1, 1, 2, 0},
                                  {2, 5, 3, 4, 0},
                                  {1, 3, 2, 3, 0},
                                  {1, 7, 2, 34, 0},
                                  {2, 3, 3, 32, 0},
                                  {1, 5, 2, 64, 0}}) {
    CheckQkv<TypeParam>(s);
  }
}
TYPED_TEST(CudaOpsTest, QkvLarge) {
  CheckQkv<TypeParam>({1, 131, 2, 34, 0});
  CheckQkv<TypeParam>({2, 37, 3, 128, 0});
  CheckQkv<TypeParam>({1, 9, 2, 80, 0});
}

template <class T>
void CheckCrossEntropy(int N, int V, double scale, int gap = 0) {
  SCOPED_TRACE(std::to_string(N) + " rows of " + std::to_string(V) + " and " + std::to_string(gap));
  const int64_t nv = int64_t{N} * V;
  const int stride = V + gap;
  const std::vector<T> logits = Values<T>(nv, 1, scale);
  // What lies between rows is not a number, and stays as it is.
  const auto spread = [&] {
    std::vector<T> rows(int64_t{N} * stride, Values<T>(1, 0, std::numeric_limits<double>::quiet_NaN())[0]);
    for (int64_t i = 0; i < nv; ++i) rows[i / V * stride + i % V] = logits[i];
    return rows;
  }();
  std::vector<int32_t> targets = Tokens(N, V, 2);
  if (N > 2) targets[1] = -1;
  const auto outputs = SameBits([&] {
    DeviceArray<T> dev_logits(spread);
    DeviceArray<int32_t> dev_targets(targets);
    DeviceArray<float> losses(N), again(N);
    CrossEntropyForward<T>(nullptr, dev_logits, dev_targets, losses, N, V, stride);
    CrossEntropyForwardBackward<T>(nullptr, dev_logits, dev_targets, again, 0.125f, N, V, stride);
    EXPECT_EQ(losses.ToHost(), again.ToHost());
    const Floats rows = AsFloats(dev_logits.ToHost());
    Floats gradient(nv);
    for (int64_t i = 0; i < int64_t{N} * stride; ++i) {
      if (i % stride < V) {
        gradient[i / stride * V + i % stride] = rows[i];
      } else {
        EXPECT_TRUE(std::isnan(rows[i]));
      }
    }
    return std::vector<Floats>{losses.ToHost(), gradient};
  });
  Doubles losses(N), grad(nv);
  reference::CrossEntropy(Wide(logits).data(), targets.data(), losses.data(), grad.data(), 0.125, N, V);
  if (V > 1) ExpectClose<float>(outputs[0], losses, 1e-6, "losses");
  for (int64_t i = 0; i < nv; ++i) {
    const double rounding = std::is_same_v<T, bf16> ? std::fabs(grad[i]) / 256 : 0;
    ASSERT_NEAR(outputs[1][i], grad[i], 1e-6 + rounding) << "dlogits " << i;
  }
}

TYPED_TEST(CudaOpsTest, CrossEntropy) {
  CheckCrossEntropy<TypeParam>(1, 1, 1);
  CheckCrossEntropy<TypeParam>(19, 7, 3);
  CheckCrossEntropy<TypeParam>(5, 37, 3, 27);
  CheckCrossEntropy<TypeParam>(5, 256, 30);
  CheckCrossEntropy<TypeParam>(3, 1031, 80);
}
TYPED_TEST(CudaOpsTest, CrossEntropyLarge) {
  CheckCrossEntropy<TypeParam>(40, 257, 30);
  CheckCrossEntropy<TypeParam>(3, 50257, 20);
  CheckCrossEntropy<TypeParam>(2, 5001, 20, 55);
}

TYPED_TEST(CudaOpsTest, ArgMaxIsTheFirstOfTheLargest) {
  using T = TypeParam;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const int V : {1, 7, 300, 1031}) {
    const int stride = V + 5;
    // Row 0: many values; 1: all the same; 2: two equal ones above; 3: all -inf; 4: NaN above inf.
    Floats rows(5 * stride, nan);  // what lies between rows is not looked at
    const Floats values = AsFloats(Values<T>(V, 3, 10));
    for (int i = 0; i < V; ++i) {
      rows[i] = values[i];
      rows[stride + i] = 5;
      rows[2 * stride + i] = i == V / 2 || i == V - 1 ? 2.0f : -1.0f;
      rows[3 * stride + i] = -infinity;
      rows[4 * stride + i] = i > V / 3 ? nan : i % 2 == 0 ? infinity : 0.0f;
    }
    std::vector<T> logits;
    for (const float x : rows) {
      if constexpr (std::is_same_v<T, bf16>) {
        logits.push_back(ToBf16(x));
      } else {
        logits.push_back(x);
      }
    }
    const int largest = static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
    const auto outputs = SameBits([&] {
      DeviceArray<T> device(logits);
      DeviceArray<int32_t> out(5);
      ArgMax<T>(nullptr, device, out, 5, V, stride);
      Floats got;
      for (const int32_t index : out.ToHost()) got.push_back(static_cast<float>(index));
      return std::vector<Floats>{got};
    });
    const Floats want = {static_cast<float>(largest), 0, static_cast<float>(V / 2), 0,
                         static_cast<float>(V == 1 ? 0 : V / 3 + 1)};
    EXPECT_EQ(outputs[0], want) << V;
  }
}

TYPED_TEST(CudaOpsTest, CrossEntropyOfLogitsThatAreNotFinite) {
  using T = TypeParam;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const auto loss_of = [](int V, std::initializer_list<std::pair<int, float>> changes) {
    std::vector<T> logits = Values<T>(V, 1);
    for (const auto& [i, value] : changes) {
      if constexpr (std::is_same_v<T, bf16>) {
        logits[i] = ToBf16(value);
      } else {
        logits[i] = value;
      }
    }
    DeviceArray<T> dev_logits(logits);
    DeviceArray<int32_t> target(std::vector<int32_t>{0});
    DeviceArray<float> loss(1);
    CrossEntropyForward<T>(nullptr, dev_logits, target, loss, 1, V, V);
    return loss.ToHost()[0];
  };
  for (const int V : {3, 40, 1500}) {
    EXPECT_FALSE(std::isfinite(loss_of(V, {{1, nan}})));
    EXPECT_FALSE(std::isfinite(loss_of(V, {{2, infinity}})));
    EXPECT_FALSE(std::isfinite(loss_of(V, {{0, -infinity}})));
    EXPECT_TRUE(std::isfinite(loss_of(V, {{1, -infinity}, {2, -infinity}})));  // impossible, but no fault
  }
}

TYPED_TEST(CudaOpsTest, BiasAndColumns) {
  using T = TypeParam;
  const int shapes[][2] = {{1, 1}, {7, 5}, {131, 33}, {70, 264}};
  for (const auto& [N, O] : shapes) {
    const int64_t n = int64_t{N} * O;
    const std::vector<T> dout = Values<T>(n, 1), bias = Values<T>(O, 3);
    const Floats db0 = Values<float>(O, 2);
    const auto outputs = SameBits([&, N = N, O = O] {
      DeviceArray<T> dev_dout(dout), dev_bias(bias);
      DeviceArray<float> db(db0), partials(BiasPartialFloats(N, O));
      BiasBackward<T>(nullptr, dev_dout, db, partials, N, O);
      AddBias<T>(nullptr, dev_bias, dev_dout, N, O);
      return std::vector<Floats>{db.ToHost(), AsFloats(dev_dout.ToHost())};
    });
    Doubles db = Wide(db0), sum = Wide(dout);
    for (int64_t i = 0; i < n; ++i) {
      db[i % O] += sum[i];
      sum[i] += ToFloat(bias[i % O]);
    }
    ExpectClose<float>(outputs[0], db, 3e-6, "db");
    ExpectClose<T>(outputs[1], sum, 1e-6, "out");
  }
}
TYPED_TEST(CudaOpsTest, BiasLarge) {
  const int N = 9001, O = 12;
  const auto dout = Values<TypeParam>(N * O, 1);
  const auto outputs = SameBits([&] {
    DeviceArray<TypeParam> dev_dout(dout);
    DeviceArray<float> db(Floats(O, 0.0f)), partials(BiasPartialFloats(N, O));
    BiasBackward<TypeParam>(nullptr, dev_dout, db, partials, N, O);
    return std::vector<Floats>{db.ToHost()};
  });
  Doubles db(O);
  for (int i = 0; i < N * O; ++i) db[i % O] += ToFloat(dout[i]);
  for (int o = 0; o < O; ++o) EXPECT_NEAR(outputs[0][o], db[o], 1e-3);
}

TYPED_TEST(CudaOpsTest, PlainGemm) {
  using T = TypeParam;
  const int shapes[][3] = {{1, 1, 1}, {7, 5, 3}, {67, 33, 70}};
  for (const auto& [N, I, O] : shapes) {
    const int64_t no = int64_t{N} * O, ni = int64_t{N} * I, oi = int64_t{O} * I;
    const std::vector<T> x = Values<T>(ni, 1), w = Values<T>(oi, 2), b = Values<T>(O, 3), dout = Values<T>(no, 4);
    const Floats dw0 = Values<float>(oi, 5);
    const auto outputs = SameBits([&, N = N, I = I, O = O] {
      DeviceArray<T> dev_x(x), dev_w(w), dev_b(b), dev_dout(dout), out(no), dx(ni);
      DeviceArray<float> dw(dw0);
      PlainGemm<T, T>(nullptr, dev_x, {I, 1}, dev_w, {1, I}, dev_b, out, O, false, N, O, I);
      PlainGemm<T, T>(nullptr, dev_dout, {O, 1}, dev_w, {I, 1}, nullptr, dx, I, false, N, I, O);
      PlainGemm<T, float>(nullptr, dev_dout, {1, O}, dev_x, {I, 1}, nullptr, dw, I, true, O, I, N);
      return std::vector<Floats>{AsFloats(out.ToHost()), AsFloats(dx.ToHost()), dw.ToHost()};
    });
    Doubles out(no), dx(ni), dw = Wide(dw0);
    reference::LinearForward(Wide(x).data(), Wide(w).data(), Wide(b).data(), out.data(), N, I, O);
    reference::LinearBackward(Wide(dout).data(), Wide(x).data(), Wide(w).data(), dx.data(), dw.data(), nullptr, N, I,
                              O);
    ExpectClose<T>(outputs[0], out, 3e-6, "out");
    ExpectClose<T>(outputs[1], dx, 3e-6, "dx");
    ExpectClose<float>(outputs[2], dw, 1e-5, "dw");
  }
}

TEST(CudaOptimizerTest, SumOfSquaresAndAdamW) {
  for (const int64_t n : {int64_t{1}, int64_t{17}, int64_t{4101}}) {
    const Floats g = Values<float>(n, 1), p0 = Values<float>(n, 2), m0 = Values<float>(n, 3, 0.1);
    Floats v0 = Values<float>(n, 4, 0.01);
    for (float& e : v0) e = std::fabs(e);
    AdamWConstants c;
    c.scale = 0.5f;
    c.beta1 = 0.9f, c.rest1 = 1.0f - 0.9f, c.beta2 = 0.95f, c.rest2 = 1.0f - 0.95f;
    c.step_size = static_cast<float>(1e-2 / (1 - std::pow(0.9, 3)));
    c.inv_sqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(0.95, 3)));
    c.eps = 1e-8f;
    c.keep = static_cast<float>(1 - 1e-2 * 0.1);
    const auto outputs = SameBits([&] {
      DeviceArray<float> dev_g(g), p(p0), m(m0), v(v0);
      DeviceArray<bf16> rounded(n);
      DeviceArray<double> partials(kSquarePartials), squares(1);
      SumOfSquares(nullptr, dev_g, n, partials, squares);
      AdamW(nullptr, p, dev_g, m, v, rounded, n, c);
      Unaligned<float> p2(p0), m2(m0), v2(v0), g2(g);
      AdamW(nullptr, p2.get(), g2.get(), m2.get(), v2.get(), nullptr, n, c);
      EXPECT_EQ(p2.ToHost(), p.ToHost());
      const double squares_value = squares.ToHost()[0];
      Floats bits(2);
      std::memcpy(bits.data(), &squares_value, sizeof(squares_value));
      return std::vector<Floats>{p.ToHost(), m.ToHost(), v.ToHost(), AsFloats(rounded.ToHost()), bits};
    });
    double squares = 0, want = 0;
    std::memcpy(&squares, outputs[4].data(), sizeof(squares));
    for (const float e : g) want += static_cast<double>(e) * e;
    EXPECT_NEAR(squares, want, 1e-12 * want);
    Doubles p = Wide(p0), m = Wide(m0), v = Wide(v0), half = Wide(g);
    for (double& e : half) e *= 0.5;
    reference::AdamW(p.data(), half.data(), m.data(), v.data(), n, 1e-2, 0.9, 0.95, 1e-8, 0.1, 3);
    ExpectClose<float>(outputs[0], p, 1e-6, "p");
    ExpectClose<float>(outputs[1], m, 1e-6, "m");
    ExpectClose<float>(outputs[2], v, 1e-6, "v");
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(outputs[3][i], ToFloat(ToBf16(outputs[0][i])));
  }
}
// More than one round of the blocks.
TEST(CudaOptimizerTest, SumOfSquaresLarge) {
  const int64_t n = (int64_t{kSquarePartials} * 2048 + 777);
  Floats x(n);
  long double want = 0;  // a sum in double, one by one, is no closer than what is tested
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>((i * 7919) % 1000) * 1e-3f;
    want += static_cast<double>(x[i]) * x[i];
  }
  DeviceArray<float> dev_x(x);
  DeviceArray<double> partials(kSquarePartials), squares(1);
  SumOfSquares(nullptr, dev_x, n, partials, squares);
  EXPECT_NEAR(squares.ToHost()[0], static_cast<double>(want), 1e-12 * static_cast<double>(want));
  EXPECT_TRUE(TakeFailure().ok());
}

}  // namespace
}  // namespace ablate::cuda
