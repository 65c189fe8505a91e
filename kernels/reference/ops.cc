#include "kernels/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ablate::reference {

void EmbeddingForward(const int32_t* tokens, const double* table, double* out, int N, int C) {
  for (int n = 0; n < N; ++n) {
    for (int c = 0; c < C; ++c) out[n * C + c] = table[tokens[n] * C + c];
  }
}

void EmbeddingBackward(const int32_t* tokens, const double* dout, double* dtable, int N, int C) {
  for (int n = 0; n < N; ++n) {
    for (int c = 0; c < C; ++c) dtable[tokens[n] * C + c] += dout[n * C + c];
  }
}

namespace {

void RowMoments(const double* x, int C, double* mean, double* rstd) {
  double sum = 0, squares = 0;
  for (int c = 0; c < C; ++c) sum += x[c];
  *mean = sum / C;
  for (int c = 0; c < C; ++c) squares += (x[c] - *mean) * (x[c] - *mean);
  *rstd = 1.0 / std::sqrt(squares / C + 1e-5);
}

}  // namespace

void LayerNormForward(const double* x, const double* w, const double* b, double* out, int N, int C) {
  for (int n = 0; n < N; ++n) {
    double mean, rstd;
    RowMoments(x + n * C, C, &mean, &rstd);
    for (int c = 0; c < C; ++c) out[n * C + c] = (x[n * C + c] - mean) * rstd * w[c] + b[c];
  }
}

void LayerNormBackward(const double* dout, const double* x, const double* w, double* dx, double* dw, double* db, int N,
                       int C) {
  for (int n = 0; n < N; ++n) {
    double mean, rstd;
    RowMoments(x + n * C, C, &mean, &rstd);
    double mean_g = 0, mean_gx = 0;
    for (int c = 0; c < C; ++c) {
      const double xhat = (x[n * C + c] - mean) * rstd, g = dout[n * C + c] * w[c];
      mean_g += g / C;
      mean_gx += g * xhat / C;
      dw[c] += dout[n * C + c] * xhat;
      db[c] += dout[n * C + c];
    }
    for (int c = 0; c < C; ++c) {
      const double xhat = (x[n * C + c] - mean) * rstd;
      dx[n * C + c] += rstd * (dout[n * C + c] * w[c] - mean_g - xhat * mean_gx);
    }
  }
}

void LinearForward(const double* x, const double* w, const double* b, double* out, int N, int I, int O) {
  for (int n = 0; n < N; ++n) {
    for (int o = 0; o < O; ++o) {
      double sum = b == nullptr ? 0.0 : b[o];
      for (int i = 0; i < I; ++i) sum += x[n * I + i] * w[o * I + i];
      out[n * O + o] = sum;
    }
  }
}

void LinearBackward(const double* dout, const double* x, const double* w, double* dx, double* dw, double* db, int N,
                    int I, int O) {
  if (dx != nullptr) std::fill(dx, dx + int64_t{N} * I, 0.0);
  for (int n = 0; n < N; ++n) {
    for (int o = 0; o < O; ++o) {
      const double d = dout[n * O + o];
      if (db != nullptr) db[o] += d;
      for (int i = 0; i < I; ++i) {
        if (dx != nullptr) dx[n * I + i] += d * w[o * I + i];
        dw[o * I + i] += d * x[n * I + i];
      }
    }
  }
}

void GeluForward(const double* x, double* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double u = std::sqrt(2.0 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    out[i] = 0.5 * x[i] * (1.0 + std::tanh(u));
  }
}

void GeluBackward(const double* dout, const double* x, double* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double u = std::sqrt(2.0 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    const double du = std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x[i] * x[i]);
    const double t = std::tanh(u);
    dx[i] = dout[i] * (0.5 * (1.0 + t) + 0.5 * x[i] * (1.0 - t * t) * du);
  }
}

void RopeTable(double base, int T, int D, double* cos, double* sin) {
  for (int t = 0; t < T; ++t) {
    for (int k = 0; k < D / 2; ++k) {
      const double angle = t * std::pow(base, -2.0 * k / D);
      cos[t * (D / 2) + k] = std::cos(angle);
      sin[t * (D / 2) + k] = std::sin(angle);
    }
  }
}

namespace {

// Row (b, t) of part 0 (q), 1 (k), 2 (v) for head h in a packed array, and row (b, h, t) in a split one.
int64_t Packed(const AttentionShape& s, int b, int t, int h, int part) {
  return ((int64_t{b} * s.T + t) * 3 + part) * s.H * s.D + int64_t{h} * s.D;
}
int64_t Split(const AttentionShape& s, int b, int t, int h) { return ((int64_t{b} * s.H + h) * s.T + t) * s.D; }

std::vector<double> Rotate(const double* x, const double* cos, const double* sin, double direction, int D) {
  std::vector<double> out(x, x + D);
  if (cos == nullptr) return out;
  for (int k = 0; k < D / 2; ++k) {
    out[k] = x[k] * cos[k] - direction * x[D / 2 + k] * sin[k];
    out[D / 2 + k] = x[D / 2 + k] * cos[k] + direction * x[k] * sin[k];
  }
  return out;
}

double FlooredNorm(const std::vector<double>& x) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  return std::max(std::sqrt(squares), 1e-12);
}

template <typename Body>
void ForRows(const AttentionShape& s, const Body& body) {
  for (int b = 0; b < s.B; ++b) {
    for (int h = 0; h < s.H; ++h) {
      for (int t = 0; t < s.T; ++t) body(b, h, t);
    }
  }
}

}  // namespace

void QkvForward(const double* qkv, const double* cos, const double* sin, QkNorm qk_norm, double* q, double* k,
                double* v, const AttentionShape& s) {
  ForRows(s, [&](int b, int h, int t) {
    const double* c = cos == nullptr ? nullptr : cos + t * (s.D / 2);
    const double* si = cos == nullptr ? nullptr : sin + t * (s.D / 2);
    for (int part = 0; part < 2; ++part) {
      const std::vector<double> rotated = Rotate(qkv + Packed(s, b, t, h, part), c, si, 1.0, s.D);
      const double norm = qk_norm == QkNorm::kL2 ? FlooredNorm(rotated) : 1.0;
      for (int d = 0; d < s.D; ++d) (part == 0 ? q : k)[Split(s, b, t, h) + d] = rotated[d] / norm;
    }
    for (int d = 0; d < s.D; ++d) v[Split(s, b, t, h) + d] = qkv[Packed(s, b, t, h, 2) + d];
  });
}

void QkvBackward(const double* dq, const double* dk, const double* dv, const double* qkv, const double* cos,
                 const double* sin, QkNorm qk_norm, double* dqkv, const AttentionShape& s) {
  ForRows(s, [&](int b, int h, int t) {
    const double* c = cos == nullptr ? nullptr : cos + t * (s.D / 2);
    const double* si = cos == nullptr ? nullptr : sin + t * (s.D / 2);
    for (int part = 0; part < 2; ++part) {
      const double* d_in = (part == 0 ? dq : dk) + Split(s, b, t, h);
      std::vector<double> d(d_in, d_in + s.D);
      if (qk_norm == QkNorm::kL2) {
        const std::vector<double> rotated = Rotate(qkv + Packed(s, b, t, h, part), c, si, 1.0, s.D);
        const double norm = FlooredNorm(rotated);
        double along = 0;
        if (norm > 1e-12) {
          for (int i = 0; i < s.D; ++i) along += d[i] * rotated[i] / norm;
        }
        for (int i = 0; i < s.D; ++i) d[i] = (d[i] - along * rotated[i] / norm) / norm;
      }
      const std::vector<double> back = Rotate(d.data(), c, si, -1.0, s.D);
      for (int i = 0; i < s.D; ++i) dqkv[Packed(s, b, t, h, part) + i] = back[i];
    }
    for (int i = 0; i < s.D; ++i) dqkv[Packed(s, b, t, h, 2) + i] = dv[Split(s, b, t, h) + i];
  });
}

void CrossEntropy(const double* logits, const int32_t* targets, double* losses, double* dlogits, double scale, int N,
                  int V) {
  for (int n = 0; n < N; ++n) {
    const double* z = logits + int64_t{n} * V;
    const double largest = *std::max_element(z, z + V);
    double total = 0;
    for (int i = 0; i < V; ++i) total += std::exp(z[i] - largest);
    const bool scored = targets[n] >= 0;
    losses[n] = scored ? std::log(total) + largest - z[targets[n]] : 0.0;
    if (dlogits == nullptr) continue;
    for (int i = 0; i < V; ++i) {
      const double softmax = std::exp(z[i] - largest) / total;
      dlogits[int64_t{n} * V + i] = scored ? scale * (softmax - (i == targets[n] ? 1.0 : 0.0)) : 0.0;
    }
  }
}

void AdamW(double* p, const double* gradient, double* m, double* v, int64_t n, double learning_rate, double beta1,
           double beta2, double eps, double weight_decay, int64_t step) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = beta1 * m[i] + (1.0 - beta1) * gradient[i];
    v[i] = beta2 * v[i] + (1.0 - beta2) * gradient[i] * gradient[i];
    const double m_hat = m[i] / (1.0 - std::pow(beta1, static_cast<double>(step)));
    const double v_hat = v[i] / (1.0 - std::pow(beta2, static_cast<double>(step)));
    p[i] -= learning_rate * (m_hat / (std::sqrt(v_hat) + eps) + weight_decay * p[i]);
  }
}

}  // namespace ablate::reference
