#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

namespace ablate::reference {
namespace {

constexpr double kMinContrast = 1e-3;
constexpr double kTailScore = -30;

double Softplus(double s) { return std::max(s, 0.0) + std::log1p(std::exp(-std::abs(s))); }
double Sigmoid(double s) { return s > 0 ? 1 / (1 + std::exp(-s)) : std::exp(s) / (1 + std::exp(s)); }

double Phi(Activation activation, double s) {
  switch (activation) {
    case Activation::kExp:
      return std::exp(s);
    case Activation::kSoftplus:
      return Softplus(s);
    case Activation::kSigmoid:
      return Sigmoid(s);
    case Activation::kRelu:
      return std::max(s, 0.0);
    case Activation::kReluSquared:
      return s > 0 ? s * s : 0.0;
    case Activation::kAbs:
      return std::abs(s);
    case Activation::kSquare:
      return s * s;
  }
  return 0;
}

double PhiSlope(Activation activation, double s) {
  switch (activation) {
    case Activation::kExp:
      return std::exp(s);
    case Activation::kSoftplus:
      return Sigmoid(s);
    case Activation::kSigmoid:
      return Sigmoid(s) * Sigmoid(-s);
    case Activation::kRelu:
      return s > 0 ? 1 : 0;
    case Activation::kReluSquared:
      return s > 0 ? 2 * s : 0;
    case Activation::kAbs:
      return s > 0 ? 1 : s < 0 ? -1 : 0;
    case Activation::kSquare:
      return 2 * s;
  }
  return 0;
}

// Whether phi(s) = e^s (1 + O(e^s)) far below zero.
bool HasExpTail(Activation activation) {
  switch (activation) {
    case Activation::kSoftplus:
    case Activation::kSigmoid:
      return true;
    case Activation::kExp:
    case Activation::kRelu:
    case Activation::kReluSquared:
    case Activation::kAbs:
    case Activation::kSquare:
      return false;
  }
  return false;
}

// c_i and its derivatives by s and b.
struct Scale {
  double c, by_s, by_b;
};

Scale ScaleOf(const AttentionSpec& spec, int D, double n, double s, double b) {
  const double root = 1 / std::sqrt(static_cast<double>(D)), log_d = std::log(static_cast<double>(D)),
               log_n = std::log(spec.scale_clamp > 0 ? std::min<double>(n, spec.scale_clamp) : n);
  switch (spec.scale) {
    case ScoreScale::kOne:
      return {1, 0, 0};
    case ScoreScale::kInvSqrtD:
      return {root, 0, 0};
    case ScoreScale::kLogD:
      return {log_d, 0, 0};
    case ScoreScale::kLogN:
      return {log_n, 0, 0};
    case ScoreScale::kLogDLogN:
      return {log_d * log_n, 0, 0};
    case ScoreScale::kLogNInvSqrtD:
      return {log_n * root, 0, 0};
    case ScoreScale::kSsmax:
      return {s * log_n * root, log_n * root, 0};
    case ScoreScale::kSsmaxBias:
      return {(s * log_n + b) * root, log_n * root, root};
    case ScoreScale::kConstant:
      return {spec.scale_constant, 0, 0};
    case ScoreScale::kConstantLogN:
      return {spec.scale_constant * log_n, 0, 0};
  }
  return {0, 0, 0};
}

double BiasOf(const AttentionSpec& spec, double n) {
  switch (spec.logit_bias) {
    case LogitBias::kNone:
      return 0;
    case LogitBias::kNegLogN:
      return -std::log(n);
    case LogitBias::kNegLogTrain:
      return -std::log(static_cast<double>(std::max(1, spec.train_length)));
  }
  return 0;
}

double Dot(const double* a, const double* b, int D) {
  double sum = 0;
  for (int d = 0; d < D; ++d) sum += a[d] * b[d];
  return sum;
}

constexpr double kNormFloor = 1e-12;

std::vector<double> L2Normalised(const double* x, int T, int D) {
  std::vector<double> unit(x, x + static_cast<size_t>(T) * D);
  for (int i = 0; i < T; ++i) {
    double* row = &unit[static_cast<size_t>(i) * D];
    const double norm = std::max(std::sqrt(Dot(row, row, D)), kNormFloor);
    for (int d = 0; d < D; ++d) row[d] /= norm;
  }
  return unit;
}

// du -> dx for u = x / max(|x|, floor), in place.
void L2Backward(const double* x, const double* unit, int T, int D, double* gradient) {
  for (int i = 0; i < T; ++i) {
    const size_t at = static_cast<size_t>(i) * D;
    const double norm = std::sqrt(Dot(x + at, x + at, D));
    const double radial = norm > kNormFloor ? Dot(unit + at, gradient + at, D) : 0;
    for (int d = 0; d < D; ++d) {
      gradient[at + d] = (gradient[at + d] - unit[at + d] * radial) / std::max(norm, kNormFloor);
    }
  }
}

}  // namespace

AttentionResult Attention(const AttentionSpec& spec, int T, int D, int window, const double* q_in, const double* k_in,
                          const double* v, double learned_s, double learned_b, const double* dout, double alibi_slope) {
  const size_t size = static_cast<size_t>(T) * D;
  const bool l2 = spec.qk_norm == QkNorm::kL2;
  const std::vector<double> q_unit = l2 ? L2Normalised(q_in, T, D) : std::vector<double>(q_in, q_in + size);
  const std::vector<double> k_unit = l2 ? L2Normalised(k_in, T, D) : std::vector<double>(k_in, k_in + size);
  const double* q = q_unit.data();
  const double* k = k_unit.data();
  const bool l1 = spec.normalisation == Normalisation::kL1;
  const bool has_tail = HasExpTail(spec.activation);

  AttentionResult result;
  result.out.assign(size, 0);
  result.weight_sum.assign(T, 0);
  result.weights.assign(static_cast<size_t>(T) * T, 0);
  result.zeros.assign(T, 0);
  result.kinds.assign(T, 0);
  if (dout != nullptr) {
    result.dq.assign(size, 0);
    result.dk.assign(size, 0);
    result.dv.assign(size, 0);
  }

  std::vector<double> dot(T), z(T), u(T), a(T), y(T), w(T), dz(T);
  for (int i = 0; i < T; ++i) {
    const int first = window > 0 ? std::max(0, i - window + 1) : 0;
    const double n = i - first + 1;
    Scale scale = ScaleOf(spec, D, n, learned_s, learned_b);
    if (spec.transform == ScoreTransform::kInverted) scale = {-scale.c, -scale.by_s, -scale.by_b};
    const bool recentred = spec.transform == ScoreTransform::kRecentred;
    const double beta = BiasOf(spec, n);
    const size_t at = static_cast<size_t>(i) * D;

    double largest_z = -HUGE_VAL, mean_x = 0;
    for (int j = first; j <= i; ++j) {
      dot[j] = Dot(q + at, k + static_cast<size_t>(j) * D, D);
      mean_x += scale.c * dot[j] / n;
    }
    for (int j = first; j <= i; ++j) {
      double x = recentred ? scale.c * dot[j] - mean_x : scale.c * dot[j];
      if (recentred && n == 1) x = 0;  // exactly, whatever the rounding
      z[j] = x + beta - (spec.alibi ? alibi_slope * (i - j) : 0.0);
      largest_z = std::max(largest_z, z[j]);
    }
    // Under l1 a common factor of the row cancels, so exp may be shifted.
    const bool as_exp = spec.activation == Activation::kExp || (l1 && has_tail && largest_z < kTailScore);
    const Activation activation = as_exp ? Activation::kExp : spec.activation;
    const double shift = l1 && as_exp ? largest_z : 0;
    double z1 = 0;
    for (int j = first; j <= i; ++j) {
      u[j] = Phi(activation, z[j] - shift);
      z1 += u[j];
    }
    if (z1 == 0) {
      ++result.counts.zero_rows;
      result.zero_rows.push_back(i);
      result.zeros[i] = static_cast<int>(n);
      result.kinds[i] = 2;
      continue;
    }
    const double factor = l1 ? 1 / z1 : spec.normalisation == Normalisation::kCount ? 1 / n : 1;
    for (int j = first; j <= i; ++j) w[j] = a[j] = factor * u[j];

    double largest_y = 0, z2 = 0, multiplier = n;
    bool sharpened = spec.sharpen_p.has_value();
    const double p = spec.sharpen_p.value_or(1);
    if (sharpened) {
      const double offset = i < spec.offset_free_rows ? 0 : spec.sharpen_offset;
      if (spec.sharpen_clamp > 0) multiplier = std::min<double>(n, spec.sharpen_clamp);
      for (int j = first; j <= i; ++j) {
        y[j] = std::max(0.0, a[j] * multiplier - offset);
        largest_y = std::max(largest_y, y[j]);
      }
      if (largest_y <= kMinContrast) {
        ++result.counts.uncontrasted_rows;
        result.kinds[i] = 1;
        sharpened = false;
      } else {
        // y / max y: scale free, and its powers cannot overflow.
        for (int j = first; j <= i; ++j) {
          y[j] /= largest_y;
          w[j] = std::pow(y[j], p);
          z2 += w[j];
        }
        for (int j = first; j <= i; ++j) w[j] /= z2;
      }
    }
    for (int j = first; j <= i; ++j) {
      result.weight_sum[i] += w[j];
      result.weights[static_cast<size_t>(i) * T + j] = w[j];
      result.zeros[i] += (sharpened ? y[j] : u[j]) == 0;
      for (int d = 0; d < D; ++d) result.out[at + d] += w[j] * v[static_cast<size_t>(j) * D + d];
    }
    if (dout == nullptr) continue;

    const double* dout_row = dout + at;
    double mean_gradient = 0;  // sum_j w_j dw_j
    for (int j = first; j <= i; ++j) {
      const double dw = Dot(dout_row, v + static_cast<size_t>(j) * D, D);
      dz[j] = dw;
      mean_gradient += w[j] * dw;
      for (int d = 0; d < D; ++d) result.dv[static_cast<size_t>(j) * D + d] += w[j] * dout_row[d];
    }
    if (sharpened) {  // dw -> da
      for (int j = first; j <= i; ++j) {
        dz[j] = y[j] > 0 ? p * std::pow(y[j], p - 1) * (dz[j] - mean_gradient) / z2 / largest_y * multiplier : 0;
      }
    }
    double mean_da = 0;
    for (int j = first; l1 && j <= i; ++j) mean_da += a[j] * dz[j];
    double by_c = 0, mean_dz = 0;
    for (int j = first; j <= i; ++j) {
      dz[j] = (dz[j] - mean_da) * factor * PhiSlope(activation, z[j] - shift);
      mean_dz += dz[j] / n;
    }
    for (int j = first; j <= i; ++j) {
      if (recentred) dz[j] -= mean_dz;
      by_c += dz[j] * dot[j];
      for (int d = 0; d < D; ++d) {
        result.dq[at + d] += scale.c * dz[j] * k[static_cast<size_t>(j) * D + d];
        result.dk[static_cast<size_t>(j) * D + d] += scale.c * dz[j] * q[at + d];
      }
    }
    result.dlearned_s += by_c * scale.by_s;
    result.dlearned_b += by_c * scale.by_b;
  }
  if (dout != nullptr && l2) {
    L2Backward(q_in, q, T, D, result.dq.data());
    L2Backward(k_in, k, T, D, result.dk.data());
  }
  return result;
}

std::vector<double> Statistics(const AttentionResult& result, int T, int window) {
  std::vector<double> statistics;
  for (int i = 0; i < T; ++i) {
    const double* const w = &result.weights[static_cast<size_t>(i) * T];
    double entropy = 0, largest = 0;
    for (int j = 0; j <= i; ++j) {
      const double share = w[j] > 0 ? w[j] / result.weight_sum[i] : 0;
      if (share > 0) entropy -= share * std::log(share);
      largest = std::max(largest, w[j]);
    }
    const double n = window > 0 ? std::min(window, i + 1) : i + 1;
    for (double x : {entropy, largest, w[0], result.zeros[i] / n, static_cast<double>(result.kinds[i])}) {
      statistics.push_back(x);
    }
  }
  return statistics;
}

double AlibiSlope(int h, int H) {
  const auto of_power_of_two = [](int heads, int head) { return std::pow(2.0, -8.0 * (head + 1) / heads); };
  const int below = static_cast<int>(std::pow(2.0, std::floor(std::log2(static_cast<double>(H)))));
  return h < below ? of_power_of_two(below, h) : of_power_of_two(2 * below, 2 * (h - below));
}

}  // namespace ablate::reference
