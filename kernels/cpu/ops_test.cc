// The CPU backend's ops (attention has its own tests) against the double-precision reference at odd shapes, and bit for
// bit against themselves with other numbers of threads.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/reference/ops.h"

namespace ablate {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

std::unique_ptr<Backend> Cpu(int threads) {
  auto backend = NewCpuBackend(threads);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

Floats Values(int64_t n, int salt, double scale = 1.0) {
  Floats out(n);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(scale * std::sin(1.0 + 2.399963 * static_cast<double>(i % 100003) + 0.7 * salt));
  }
  return out;
}
// The CPU's activations are float32.
Element* A(float* x) { return reinterpret_cast<Element*>(x); }
const Element* A(const float* x) { return reinterpret_cast<const Element*>(x); }
Doubles Wide(const Floats& x) { return Doubles(x.begin(), x.end()); }
std::vector<int32_t> Tokens(int n, int V, int salt) {
  std::vector<int32_t> out(n);
  for (int i = 0; i < n; ++i) out[i] = static_cast<int32_t>((i * 7919 + salt * 104729 + i * i) % V);
  return out;
}

void ExpectClose(const Floats& got, const Doubles& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1e-30, worst = 0;
  for (const double w : want) largest = std::max(largest, std::fabs(w));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << what << "[" << i << "]";
    worst = std::max(worst, std::fabs(got[i] - want[i]));
  }
  EXPECT_LT(worst / largest, tolerance) << what;
}

// Runs `op` on backends of 1, 2, 3 and 5 threads; all outputs must have the same bits. Returns them.
Floats SameBits(const std::function<Floats(Backend&)>& op) {
  const Floats first = op(*Cpu(1));
  for (const int threads : {2, 3, 5}) {
    const Floats other = op(*Cpu(threads));
    EXPECT_EQ(first.size(), other.size());
    EXPECT_EQ(std::memcmp(first.data(), other.data(), sizeof(float) * first.size()), 0) << threads << " threads";
  }
  return first;
}

Floats Join(std::initializer_list<Floats> parts) {
  Floats out;
  for (const Floats& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}
Floats Slice(const Floats& x, int64_t begin, int64_t count) {
  return Floats(x.begin() + begin, x.begin() + begin + count);
}

TEST(CpuBackendTest, NamesItselfAndGivesAlignedZeroedMemory) {
  auto backend = Cpu(1);
  EXPECT_EQ(backend->device_class(), "cpu");
  EXPECT_EQ(backend->device_kind().substr(0, 4), "cpu/");
  EXPECT_GT(backend->device_kind().size(), 4u);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{9} << 20}) {
    auto memory = backend->Allocate(bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, 0u);
    for (size_t i = 0; i < bytes; i += 997) EXPECT_EQ(static_cast<char*>(*memory)[i], 0);
    backend->Free(*memory);
  }
  EXPECT_EQ(backend->Allocate(std::numeric_limits<size_t>::max() / 2).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(backend->Synchronize().ok());
}

TEST(CpuOpsTest, Linear) {
  const struct { int N, I, O; } shapes[] = {{1, 1, 1}, {7, 5, 3}, {67, 33, 129}, {1030, 48, 70}, {530, 96, 1100}};
  for (const auto& s : shapes) {
    const Floats x = Values(int64_t{s.N} * s.I, 1), w = Values(int64_t{s.O} * s.I, 2), b = Values(s.O, 3),
                 dout = Values(int64_t{s.N} * s.O, 4), dw0 = Values(int64_t{s.O} * s.I, 5), db0 = Values(s.O, 6);
    const int64_t no = int64_t{s.N} * s.O, ni = int64_t{s.N} * s.I, oi = int64_t{s.O} * s.I;
    for (const bool bias : {true, false}) {
      const Floats all = SameBits([&](Backend& backend) {
        Floats out(no, 77.0f), dx(ni, 77.0f), dw = dw0, db = db0;
        backend.LinearForward(A(x.data()), w.data(), bias ? b.data() : nullptr, A(out.data()), s.N, s.I, s.O);
        backend.LinearBackward(A(dout.data()), A(x.data()), w.data(), A(dx.data()), dw.data(),
                               bias ? db.data() : nullptr, s.N, s.I, s.O);
        Floats dw_alone = dw0;
        backend.LinearBackward(A(dout.data()), A(x.data()), w.data(), nullptr, dw_alone.data(), nullptr, s.N, s.I, s.O);
        EXPECT_EQ(dw, dw_alone);
        return Join({out, dx, dw, db});
      });
      Doubles out(no), dx(ni), dw = Wide(dw0), db = Wide(db0);
      const Doubles xd = Wide(x), wd = Wide(w), bd = Wide(b), dd = Wide(dout);
      reference::LinearForward(xd.data(), wd.data(), bias ? bd.data() : nullptr, out.data(), s.N, s.I, s.O);
      reference::LinearBackward(dd.data(), xd.data(), wd.data(), dx.data(), dw.data(), bias ? db.data() : nullptr, s.N,
                                s.I, s.O);
      ExpectClose(Slice(all, 0, no), out, 3e-6, "out");
      ExpectClose(Slice(all, no, ni), dx, 3e-6, "dx");
      ExpectClose(Slice(all, no + ni, oi), dw, 1e-5, "dw");
      ExpectClose(Slice(all, no + ni + oi, s.O), db, 3e-6, "db");
    }
  }
}

TEST(CpuOpsTest, LayerNorm) {
  const struct { int N, C; } shapes[] = {{1, 1}, {3, 5}, {65, 31}, {200, 128}, {129, 770}};
  for (const auto& s : shapes) {
    const int64_t nc = int64_t{s.N} * s.C;
    Floats x = Values(nc, 1, 2.0);
    // A mean far from zero must not cost the variance its digits.
    for (float& e : x) e += 30.0f;
    const Floats w = Values(s.C, 2), b = Values(s.C, 3), dout = Values(nc, 4), dx0 = Values(nc, 5),
                 dw0 = Values(s.C, 6);
    const Floats all = SameBits([&](Backend& backend) {
      Floats out(nc), mean(s.N), rstd(s.N), dx = dx0, dw = dw0, db = dw0;
      backend.LayerNormForward(A(x.data()), w.data(), b.data(), A(out.data()), mean.data(), rstd.data(), s.N, s.C);
      backend.LayerNormBackward(A(dout.data()), A(x.data()), w.data(), mean.data(), rstd.data(), A(dx.data()),
                                dw.data(), db.data(), s.N, s.C);
      return Join({out, dx, dw, db});
    });
    Doubles out(nc), dx = Wide(dx0), dw = Wide(dw0), db = Wide(dw0);
    const Doubles xd = Wide(x), wd = Wide(w), bd = Wide(b), dd = Wide(dout);
    reference::LayerNormForward(xd.data(), wd.data(), bd.data(), out.data(), s.N, s.C);
    reference::LayerNormBackward(dd.data(), xd.data(), wd.data(), dx.data(), dw.data(), db.data(), s.N, s.C);
    ExpectClose(Slice(all, 0, nc), out, 2e-5, "out");
    ExpectClose(Slice(all, nc, nc), dx, 2e-5, "dx");
    ExpectClose(Slice(all, 2 * nc, s.C), dw, 2e-5, "dw");
    ExpectClose(Slice(all, 2 * nc + s.C, s.C), db, 2e-5, "db");
  }
}

TEST(CpuOpsTest, GeluAndAdd) {
  for (const int64_t n : {int64_t{1}, int64_t{13}, int64_t{70001}}) {
    Floats x = Values(n, 1, 12.0);
    x[0] = n == 1 ? -100.0f : 100.0f;  // both tails saturate
    const Floats dout = Values(n, 2);
    const Floats all = SameBits([&](Backend& backend) {
      Floats out(n), dx = dout, sum = x;
      backend.GeluForward(A(x.data()), A(out.data()), n);
      backend.GeluBackward(A(dx.data()), A(x.data()), A(dx.data()), n);  // in place
      backend.Add(A(sum.data()), A(dout.data()), A(sum.data()), n);
      return Join({out, dx, sum});
    });
    const Doubles xd = Wide(x), dd = Wide(dout);
    Doubles out(n), dx(n), sum(n);
    reference::GeluForward(xd.data(), out.data(), n);
    reference::GeluBackward(dd.data(), xd.data(), dx.data(), n);
    for (int64_t i = 0; i < n; ++i) sum[i] = xd[i] + dd[i];
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(all[i], out[i], 1e-6 * std::max(1.0, std::fabs(out[i])));
      ASSERT_NEAR(all[n + i], dx[i], 3e-6);
    }
    ExpectClose(Slice(all, 2 * n, n), sum, 1e-6, "sum");
  }
}

TEST(CpuOpsTest, Embedding) {
  const int N = 301, C = 70, V = 11;
  const std::vector<int32_t> tokens = Tokens(N, V, 1);
  const Floats table = Values(V * C, 1), dout = Values(N * C, 2), dtable0 = Values(V * C, 3);
  const Floats all = SameBits([&](Backend& backend) {
    Floats out(N * C), dtable = dtable0;
    backend.EmbeddingForward(tokens.data(), table.data(), A(out.data()), N, C);
    backend.EmbeddingBackward(tokens.data(), A(dout.data()), dtable.data(), N, C, V);
    return Join({out, dtable});
  });
  Doubles out(N * C), dtable = Wide(dtable0);
  reference::EmbeddingForward(tokens.data(), Wide(table).data(), out.data(), N, C);
  reference::EmbeddingBackward(tokens.data(), Wide(dout).data(), dtable.data(), N, C);
  ExpectClose(Slice(all, 0, N * C), out, 1e-7, "out");
  ExpectClose(Slice(all, N * C, V * C), dtable, 1e-6, "dtable");
}

TEST(CpuOpsTest, Qkv) {
  const AttentionShape shapes[] = {{1, 1, 1, 2, 0}, {2, 5, 3, 4, 0}, {1, 131, 2, 34, 0}};
  for (const AttentionShape& s : shapes) {
    const int64_t n = int64_t{s.B} * s.T * s.H * s.D;
    Doubles cos(s.T * s.D / 2), sin(s.T * s.D / 2);
    reference::RopeTable(10000.0, s.T, s.D, cos.data(), sin.data());
    const Floats cosf(cos.begin(), cos.end()), sinf(sin.begin(), sin.end());
    Floats qkv = Values(3 * n, 1);
    for (int d = 0; d < s.D; ++d) qkv[d] = 0;  // the floor of the norm
    const Floats dq = Values(n, 2), dk = Values(n, 3), dv = Values(n, 4);
    for (const bool rope : {true, false}) {
      for (const QkNorm norm : {QkNorm::kNone, QkNorm::kL2}) {
        const Floats all = SameBits([&](Backend& backend) {
          Floats q(n), k(n), v(n), q_norm(n / s.D), k_norm(n / s.D), dqkv(3 * n);
          backend.QkvForward(A(qkv.data()), rope ? cosf.data() : nullptr, rope ? sinf.data() : nullptr, norm,
                             A(q.data()), A(k.data()), A(v.data()), q_norm.data(), k_norm.data(), s);
          backend.QkvBackward(A(dq.data()), A(dk.data()), A(dv.data()), A(q.data()), A(k.data()),
                              rope ? cosf.data() : nullptr, rope ? sinf.data() : nullptr, norm, q_norm.data(),
                              k_norm.data(), A(dqkv.data()), s);
          return Join({q, k, v, dqkv});
        });
        Doubles q(n), k(n), v(n), dqkv(3 * n);
        const Doubles x = Wide(qkv);
        reference::QkvForward(x.data(), rope ? cos.data() : nullptr, rope ? sin.data() : nullptr, norm, q.data(),
                              k.data(), v.data(), s);
        reference::QkvBackward(Wide(dq).data(), Wide(dk).data(), Wide(dv).data(), x.data(), rope ? cos.data() : nullptr,
                               rope ? sin.data() : nullptr, norm, dqkv.data(), s);
        ExpectClose(Slice(all, 0, n), q, 1e-6, "q");
        ExpectClose(Slice(all, n, n), k, 1e-6, "k");
        ExpectClose(Slice(all, 2 * n, n), v, 1e-7, "v");
        ExpectClose(Slice(all, 3 * n, 3 * n), dqkv, 3e-6, "dqkv");
      }
    }
  }
}

TEST(CpuOpsTest, CrossEntropy) {
  const struct {
    int N, V;
    double scale;
  } shapes[] = {{1, 1, 1}, {19, 7, 3}, {40, 256, 30}, {5, 5003, 80}};
  for (const auto& s : shapes) {
    const int64_t nv = int64_t{s.N} * s.V;
    const Floats logits = Values(nv, 1, s.scale);
    std::vector<int32_t> targets = Tokens(s.N, s.V, 2);
    if (s.N > 2) targets[1] = -1;
    const Floats all = SameBits([&](Backend& backend) {
      Floats losses(s.N), again(s.N), grad = logits;
      backend.CrossEntropyForward(A(logits.data()), targets.data(), losses.data(), s.N, s.V);
      backend.CrossEntropyForwardBackward(A(grad.data()), targets.data(), again.data(), 0.125f, s.N, s.V);
      EXPECT_EQ(losses, again);
      return Join({losses, grad});
    });
    Doubles losses(s.N), grad(nv);
    reference::CrossEntropy(Wide(logits).data(), targets.data(), losses.data(), grad.data(), 0.125, s.N, s.V);
    if (s.V > 1) ExpectClose(Slice(all, 0, s.N), losses, 1e-6, "losses");
    for (int64_t i = 0; i < nv; ++i) ASSERT_NEAR(all[s.N + i], grad[i], 1e-6) << "dlogits";
  }
}

TEST(CpuOpsTest, CrossEntropyOfLogitsThatAreNotFiniteIsNotFinite) {
  auto backend = Cpu(1);
  Floats logits = {0.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f};
  const int32_t target = 0;
  float loss = 0;
  backend->CrossEntropyForward(A(logits.data()), &target, &loss, 1, 3);
  EXPECT_FALSE(std::isfinite(loss));
}

TEST(CpuOpsTest, ArgMaxIsTheFirstOfTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Floats logits = {-3, -1, -2, -1, /**/ 5, 5, 5, 5, /**/ 0, inf, nan, nan, /**/ -inf, -inf, -inf, -inf,
                         -inf, 1, 2, 3};
  for (const int threads : {1, 3}) {
    auto backend = Cpu(threads);
    std::vector<int32_t> out(5, -1);
    backend->ArgMax(A(logits.data()), out.data(), 5, 4);
    EXPECT_EQ(out, (std::vector<int32_t>{1, 0, 2, 0, 3}));
    backend->ArgMax(A(logits.data()), out.data(), 5, 1);
    EXPECT_EQ(out, (std::vector<int32_t>(5, 0)));
  }
}

TEST(CpuOpsTest, SumOfSquaresAndAdamW) {
  for (const int64_t n : {int64_t{1}, int64_t{17}, int64_t{70001}}) {
    const Floats g = Values(n, 1), p0 = Values(n, 2), m0 = Values(n, 3, 0.1);
    Floats v0 = Values(n, 4, 0.01);
    for (float& e : v0) e = std::fabs(e);
    AdamWParams params;
    params.learning_rate = 1e-2f;
    params.weight_decay = 0.1f;
    params.step = 3;
    params.gradient_scale = 0.5f;
    const Floats all = SameBits([&](Backend& backend) {
      Floats p = p0, m = m0, v = v0;
      const double squares = backend.SumOfSquares(g.data(), n);
      backend.AdamW(p.data(), g.data(), m.data(), v.data(), n, params);
      Floats parts(2);
      std::memcpy(parts.data(), &squares, sizeof(squares));
      return Join({p, m, v, parts});
    });
    double squares = 0, want = 0;
    std::memcpy(&squares, all.data() + 3 * n, sizeof(squares));
    for (const float e : g) want += static_cast<double>(e) * e;
    EXPECT_NEAR(squares, want, 1e-12 * want);
    Doubles p = Wide(p0), m = Wide(m0), v = Wide(v0), half = Wide(g);
    for (double& e : half) e *= 0.5;
    reference::AdamW(p.data(), half.data(), m.data(), v.data(), n, 1e-2, 0.9, 0.95, 1e-8, 0.1, 3);
    ExpectClose(Slice(all, 0, n), p, 1e-6, "p");
    ExpectClose(Slice(all, n, n), m, 1e-6, "m");
    ExpectClose(Slice(all, 2 * n, n), v, 1e-6, "v");
  }
}

}  // namespace
}  // namespace ablate
