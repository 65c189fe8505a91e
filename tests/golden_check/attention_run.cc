#include "tests/golden_check/attention_run.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/status_macros.h"
#include "kernels/reference/attention.h"

namespace ablate {
namespace {

using Floats = std::vector<float>;

// Nearest, ties to even; the values here are finite.
uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float FromBf16(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Device memory of a case's arrays, freed with the object.
class Buffers {
 public:
  explicit Buffers(Backend* backend) : backend_(backend) {}
  ~Buffers() {
    for (void* memory : all_) backend_->Free(memory);
  }
  absl::StatusOr<float*> Make(int64_t floats) {
    ABLATE_ASSIGN_OR_RETURN(void* memory, backend_->Allocate(sizeof(float) * floats));
    all_.push_back(memory);
    return static_cast<float*>(memory);
  }
  absl::StatusOr<float*> Make(const std::vector<double>& values) {
    ABLATE_ASSIGN_OR_RETURN(float* memory, Make(static_cast<int64_t>(values.size())));
    const Floats host(values.begin(), values.end());
    backend_->CopyToDevice(memory, host.data(), sizeof(float) * host.size());
    return memory;
  }
  absl::StatusOr<Element*> MakeElements(int64_t elements) {
    ABLATE_ASSIGN_OR_RETURN(void* memory, backend_->Allocate(elements * backend_->activation_bytes()));
    all_.push_back(memory);
    return static_cast<Element*>(memory);
  }
  absl::StatusOr<Element*> MakeElements(const std::vector<double>& values) {
    ABLATE_ASSIGN_OR_RETURN(Element * memory, MakeElements(static_cast<int64_t>(values.size())));
    const Floats host(values.begin(), values.end());
    if (backend_->precision() == Precision::kFloat32) {
      backend_->CopyToDevice(memory, host.data(), sizeof(float) * host.size());
    } else {
      std::vector<uint16_t> rounded(host.size());
      std::transform(host.begin(), host.end(), rounded.begin(), ToBf16);
      backend_->CopyToDevice(memory, rounded.data(), sizeof(uint16_t) * rounded.size());
    }
    return memory;
  }
  Floats Host(const float* memory, int64_t floats) {
    Floats host(floats);
    backend_->CopyToHost(host.data(), memory, sizeof(float) * floats);
    return host;
  }
  Floats Host(const Element* memory, int64_t elements) {
    if (backend_->precision() == Precision::kFloat32) return Host(reinterpret_cast<const float*>(memory), elements);
    std::vector<uint16_t> rounded(elements);
    backend_->CopyToHost(rounded.data(), memory, sizeof(uint16_t) * elements);
    Floats host(elements);
    std::transform(rounded.begin(), rounded.end(), host.begin(), FromBf16);
    return host;
  }

 private:
  Backend* const backend_;
  std::vector<void*> all_;
};

}  // namespace

std::vector<double> Rounded(const std::vector<double>& values) {
  std::vector<double> rounded;
  rounded.reserve(values.size());
  for (const double value : values) rounded.push_back(FromBf16(ToBf16(static_cast<float>(value))));
  return rounded;
}

// Infinity when sizes differ or a value is not finite. A gradient that is zero but for rounding is measured against
// the size of what it was computed from.
double FrobeniusError(const Floats& got, const std::vector<double>& want, double least_norm) {
  if (got.size() != want.size()) return 1e300;
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return 1e300;
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error) / std::max(std::sqrt(norm), least_norm);
}

double Norm(const std::vector<double>& values) {
  double norm = 0;
  for (const double value : values) norm += value * value;
  return std::sqrt(norm);
}

absl::StatusOr<HeadsRun> RunHeads(const HeadsInputs& in, Backend* backend) {
  const AttentionShape& shape = in.shape;
  const int64_t n = int64_t{shape.B} * shape.H * shape.T * shape.D;
  Buffers buffers(backend);
  // place(from, row of tokens times heads' width, of one part, of three packed): every element in the layouts' order.
  const auto for_elements = [&](const auto& place) {
    int64_t from = 0;
    for (int b = 0; b < shape.B; ++b) {
      for (int h = 0; h < shape.H; ++h) {
        for (int t = 0; t < shape.T; ++t) {
          for (int i = 0; i < shape.D; ++i, ++from) {
            const int64_t row = int64_t{b} * shape.T + t, column = int64_t{h} * shape.D + i,
                          width = int64_t{shape.H} * shape.D;
            place(from, row * width + column, row * 3 * width + column, width);
          }
        }
      }
    }
  };
  std::vector<double> packed(3 * n), dout_rows(n);
  for_elements([&](int64_t from, int64_t one, int64_t three, int64_t width) {
    packed[three] = in.q[from], packed[three + width] = in.k[from], packed[three + 2 * width] = in.v[from];
    dout_rows[one] = in.dout[from];
  });
  ABLATE_ASSIGN_OR_RETURN(Element * qkv, buffers.MakeElements(packed));
  ABLATE_ASSIGN_OR_RETURN(Element * dout, buffers.MakeElements(dout_rows));
  std::vector<Element*> split;
  for (int i = 0; i < 7; ++i) {
    ABLATE_ASSIGN_OR_RETURN(Element * memory, buffers.MakeElements(n));
    split.push_back(memory);
  }
  Element *q = split[0], *k = split[1], *v = split[2], *out = split[3], *dq = split[4], *dk = split[5], *dv = split[6];
  const int64_t rows = n / shape.D;
  ABLATE_ASSIGN_OR_RETURN(float* q_norm, buffers.Make(rows));
  ABLATE_ASSIGN_OR_RETURN(float* k_norm, buffers.Make(rows));
  ABLATE_ASSIGN_OR_RETURN(float* row_stats, buffers.Make(AttentionRowStatFloats(shape)));
  ABLATE_ASSIGN_OR_RETURN(Element * dqkv, buffers.MakeElements(3 * n));
  float *s = nullptr, *b = nullptr, *ds = nullptr, *db = nullptr;
  if (in.spec.has_learned_scale()) {
    ABLATE_ASSIGN_OR_RETURN(s, buffers.Make(in.s));
    ABLATE_ASSIGN_OR_RETURN(ds, buffers.Make(int64_t{shape.H}));
  }
  if (in.spec.has_learned_bias()) {
    ABLATE_ASSIGN_OR_RETURN(b, buffers.Make(in.b));
    ABLATE_ASSIGN_OR_RETURN(db, buffers.Make(int64_t{shape.H}));
  }
  backend->QkvForward(qkv, nullptr, nullptr, in.spec.qk_norm, q, k, v, q_norm, k_norm, shape);
  backend->AttentionForward(in.spec, shape, q, k, v, s, b, out, row_stats);
  backend->AttentionBackward(in.spec, shape, q, k, v, s, b, out, dout, row_stats, dq, dk, dv, ds, db);
  backend->QkvBackward(dq, dk, dv, q, k, nullptr, nullptr, in.spec.qk_norm, q_norm, k_norm, dqkv, shape);
  ABLATE_RETURN_IF_ERROR(backend->Synchronize());

  HeadsRun run;
  const Floats out_rows = buffers.Host(out, n), gradients = buffers.Host(dqkv, 3 * n);
  for (Floats* x : {&run.out, &run.dq, &run.dk, &run.dv}) x->resize(n);
  for_elements([&](int64_t from, int64_t one, int64_t three, int64_t width) {
    run.out[from] = out_rows[one];
    run.dq[from] = gradients[three], run.dk[from] = gradients[three + width],
    run.dv[from] = gradients[three + 2 * width];
  });
  if (ds != nullptr) run.dlearned_s = buffers.Host(ds, shape.H);
  if (db != nullptr) run.dlearned_b = buffers.Host(db, shape.H);
  ABLATE_RETURN_IF_ERROR(backend->Synchronize());
  return run;
}

absl::StatusOr<AttentionRun> RunAttention(const GoldenAttentionCase& c, Backend* backend) {
  ABLATE_ASSIGN_OR_RETURN(
      const HeadsRun heads,
      RunHeads({c.spec, {1, c.T, 1, c.d, c.window}, c.q, c.k, c.v, c.dout, {c.learned_s}, {c.learned_b}}, backend));
  AttentionRun run{heads.out, heads.dq, heads.dk, heads.dv};
  if (!heads.dlearned_s.empty()) run.dlearned_s = heads.dlearned_s[0];
  if (!heads.dlearned_b.empty()) run.dlearned_b = heads.dlearned_b[0];
  return run;
}

Bf16Errors Bf16Bounds(const AttentionSpec& spec, double factor) {
  // out, dq (and dk), dv.
  const auto times = [factor](double out, double dq, double dv, double more = 1) {
    return Bf16Errors{factor * more * out, factor * more * dq, factor * more * dq, factor * more * dv};
  };
  if (!spec.sharpen_p) {
    const bool large_scores = spec.qk_norm == QkNorm::kL2 || spec.activation != Activation::kExp;
    return large_scores ? times(2.9e-3, 3.7e-3, 2.9e-3) : times(1.8e-3, 3.2e-3, 2.2e-3);
  }
  const double p = *spec.sharpen_p;
  if (p <= 1) return times(3.3e-3, 2.6e-2, 3.5e-3);
  if (p <= 3) return times(4.0e-3, 5.6e-3, 4.2e-3);
  if (p <= 15) return times(6.4e-3, 1.5e-2, 6.4e-3);
  return times(1.1e-2, 3.3e-2, 1.0e-2, std::max(1.0, p / 50));
}

Bf16Errors ErrorsInBf16(const GoldenAttentionCase& c, const AttentionRun& run) {
  const std::vector<double> q = Rounded(c.q), k = Rounded(c.k), v = Rounded(c.v), dout = Rounded(c.dout);
  const reference::AttentionResult want = reference::Attention(c.spec, c.T, c.d, c.window, q.data(), k.data(), v.data(),
                                                               c.learned_s, c.learned_b, dout.data());
  // Saturated rows have gradients of 1e-30 that are differences of numbers as large as dout.
  const double least = 1e-1 * Norm(dout);
  Bf16Errors errors = {FrobeniusError(run.out, want.out, 1e-3 * Norm(v)), FrobeniusError(run.dq, want.dq, least),
                       FrobeniusError(run.dk, want.dk, least), FrobeniusError(run.dv, want.dv, least)};
  // The gradients of the learned scale and bias are sums over rows of what dq . q is made of, and cancel as those do.
  const double scale = Norm(want.dq) * Norm(q) / std::sqrt(static_cast<double>(c.T));
  const auto learned = [&](double got, double wanted) {
    errors.dq = std::max(errors.dq, FrobeniusError({static_cast<float>(got)}, {wanted}, scale));
  };
  if (c.spec.has_learned_scale()) learned(run.dlearned_s, want.dlearned_s);
  if (c.spec.has_learned_bias()) learned(run.dlearned_b, want.dlearned_b);
  return errors;
}

}  // namespace ablate
