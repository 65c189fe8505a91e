// The double-precision ops against central differences: every input of every op.
#include "kernels/reference/ops.h"

#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"

namespace ablate::reference {
namespace {

using Vector = std::vector<double>;

Vector Values(int64_t n, int salt) {
  Vector out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = std::sin(1.0 + 2.399963 * static_cast<double>(i) + 0.7 * salt) * 1.3;
  return out;
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `analytic` is the gradient of f with respect to x.
void ExpectGradient(Vector x, const Vector& analytic, const std::function<double(const Vector&)>& f, const char* what) {
  ASSERT_EQ(x.size(), analytic.size());
  double largest = 0;
  for (const double g : analytic) largest = std::max(largest, std::fabs(g));
  EXPECT_GT(largest, 1e-3) << what << ": a gradient of zero tests nothing";
  constexpr double h = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double keep = x[i];
    x[i] = keep + h;
    const double above = f(x);
    x[i] = keep - h;
    const double below = f(x);
    x[i] = keep;
    EXPECT_NEAR(analytic[i], (above - below) / (2 * h), 1e-8 * std::max(1.0, largest)) << what << "[" << i << "]";
  }
}

TEST(ReferenceOpsTest, Embedding) {
  const int N = 5, C = 3, V = 4;
  const std::vector<int32_t> tokens = {0, 2, 2, 3, 0};
  const Vector dout = Values(N * C, 1);
  Vector dtable(V * C, 0.0);
  EmbeddingBackward(tokens.data(), dout.data(), dtable.data(), N, C);
  ExpectGradient(
      Values(V * C, 2), dtable,
      [&](const Vector& table) {
        Vector out(N * C);
        EmbeddingForward(tokens.data(), table.data(), out.data(), N, C);
        return Dot(out, dout);
      },
      "table");
}

TEST(ReferenceOpsTest, LayerNorm) {
  const int N = 3, C = 7;
  const Vector x = Values(N * C, 1), w = Values(C, 2), b = Values(C, 3), dout = Values(N * C, 4);
  auto f = [&](const Vector& x, const Vector& w, const Vector& b) {
    Vector out(N * C);
    LayerNormForward(x.data(), w.data(), b.data(), out.data(), N, C);
    return Dot(out, dout);
  };
  Vector dx(N * C), dw(C), db(C);
  LayerNormBackward(dout.data(), x.data(), w.data(), dx.data(), dw.data(), db.data(), N, C);
  ExpectGradient(
      x, dx, [&](const Vector& v) { return f(v, w, b); }, "x");
  ExpectGradient(
      w, dw, [&](const Vector& v) { return f(x, v, b); }, "w");
  ExpectGradient(
      b, db, [&](const Vector& v) { return f(x, w, v); }, "b");
}

TEST(ReferenceOpsTest, Linear) {
  const int N = 4, I = 3, O = 5;
  const Vector x = Values(N * I, 1), w = Values(O * I, 2), b = Values(O, 3), dout = Values(N * O, 4);
  auto f = [&](const Vector& x, const Vector& w, const Vector& b) {
    Vector out(N * O);
    LinearForward(x.data(), w.data(), b.data(), out.data(), N, I, O);
    return Dot(out, dout);
  };
  Vector dx(N * I), dw(O * I), db(O);
  LinearBackward(dout.data(), x.data(), w.data(), dx.data(), dw.data(), db.data(), N, I, O);
  ExpectGradient(
      x, dx, [&](const Vector& v) { return f(v, w, b); }, "x");
  ExpectGradient(
      w, dw, [&](const Vector& v) { return f(x, v, b); }, "w");
  ExpectGradient(
      b, db, [&](const Vector& v) { return f(x, w, v); }, "b");
}

TEST(ReferenceOpsTest, Gelu) {
  const int n = 31;
  Vector x = Values(n, 1);
  for (double& e : x) e *= 3;
  const Vector dout = Values(n, 2);
  Vector dx(n);
  GeluBackward(dout.data(), x.data(), dx.data(), n);
  ExpectGradient(
      x, dx,
      [&](const Vector& v) {
        Vector out(n);
        GeluForward(v.data(), out.data(), n);
        return Dot(out, dout);
      },
      "x");
}

TEST(ReferenceOpsTest, Qkv) {
  const AttentionShape shape{2, 3, 2, 4, 0};
  const int64_t n = int64_t{2} * 3 * 2 * 4;
  Vector cos(shape.T * 2), sin(shape.T * 2);
  RopeTable(100.0, shape.T, shape.D, cos.data(), sin.data());
  const Vector dq = Values(n, 1), dk = Values(n, 2), dv = Values(n, 3);
  for (const bool rope : {false, true}) {
    for (const QkNorm norm : {QkNorm::kNone, QkNorm::kL2}) {
      const double* c = rope ? cos.data() : nullptr;
      const double* s = rope ? sin.data() : nullptr;
      const Vector qkv = Values(3 * n, 4);
      Vector dqkv(3 * n);
      QkvBackward(dq.data(), dk.data(), dv.data(), qkv.data(), c, s, norm, dqkv.data(), shape);
      ExpectGradient(
          qkv, dqkv,
          [&](const Vector& x) {
            Vector q(n), k(n), v(n);
            QkvForward(x.data(), c, s, norm, q.data(), k.data(), v.data(), shape);
            return Dot(q, dq) + Dot(k, dk) + Dot(v, dv);
          },
          "qkv");
    }
  }
}

TEST(ReferenceOpsTest, CrossEntropy) {
  const int N = 4, V = 6;
  const std::vector<int32_t> targets = {0, 5, -1, 2};
  const Vector logits = Values(N * V, 1);
  Vector losses(N), dlogits(N * V);
  CrossEntropy(logits.data(), targets.data(), losses.data(), dlogits.data(), 0.25, N, V);
  EXPECT_EQ(losses[2], 0.0);
  ExpectGradient(
      logits, dlogits,
      [&](const Vector& z) {
        Vector l(N);
        CrossEntropy(z.data(), targets.data(), l.data(), nullptr, 0.25, N, V);
        return 0.25 * (l[0] + l[1] + l[2] + l[3]);
      },
      "logits");
}

// By hand for the first two steps of one number: with a constant gradient mhat = g and vhat = g^2.
TEST(ReferenceOpsTest, AdamWOnAConstantGradientMovesByTheLearningRate) {
  double p = 2, m = 0, v = 0;
  const double g = -0.5;
  AdamW(&p, &g, &m, &v, 1, 0.1, 0.9, 0.95, 0.0, 0.0, 1);
  EXPECT_NEAR(p, 2.1, 1e-12);
  AdamW(&p, &g, &m, &v, 1, 0.1, 0.9, 0.95, 0.0, 0.5, 2);
  EXPECT_NEAR(p, 2.1 + 0.1 - 0.1 * 0.5 * 2.1, 1e-12);
}

}  // namespace
}  // namespace ablate::reference
