#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/attention/golden_cases.h"
#include "kernels/reference/attention.h"
#include "tests/golden_check/checks.h"

namespace ablate {
namespace {

constexpr double kReference = 1e-10, kOutput = 2e-4, kGradient = 2e-3;

using Floats = std::vector<float>;

struct Errors {
  double output = 0, gradient = 0;
};

Errors Compare(const GoldenAttentionCase& c, const auto& out, const auto& dq, const auto& dk, const auto& dv, double ds,
               double db) {
  Errors e;
  e.output = RelativeError(out, c.out, 1.0);
  for (const auto& [got, want] : {std::pair{&dq, &c.dq}, {&dk, &c.dk}, {&dv, &c.dv}}) {
    e.gradient = std::max(e.gradient, RelativeError(*got, *want, 1.0));
  }
  if (c.d_learned_s)
    e.gradient = std::max(e.gradient, RelativeError(std::vector{ds}, std::vector{*c.d_learned_s}, 1.0));
  if (c.d_learned_b)
    e.gradient = std::max(e.gradient, RelativeError(std::vector{db}, std::vector{*c.d_learned_b}, 1.0));
  return e;
}

Errors Reference(const GoldenAttentionCase& c) {
  const reference::AttentionResult r = reference::Attention(c.spec, c.T, c.d, c.window, c.q.data(), c.k.data(),
                                                            c.v.data(), c.learned_s, c.learned_b, c.dout.data());
  Errors e = Compare(c, r.out, r.dq, r.dk, r.dv, r.dlearned_s, r.dlearned_b);
  if (!c.row_weight_sum.empty()) e.output = std::max(e.output, RelativeError(r.weight_sum, c.row_weight_sum, 1.0));
  if (c.zero_rows && r.zero_rows != *c.zero_rows) e.output = 1e300;
  return e;
}

// Nearest, ties to even; the values of golden files are finite.
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

// Device memory of the case's arrays, freed with the object.
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
  absl::StatusOr<Element*> MakeActivations(int64_t elements) {
    ABLATE_ASSIGN_OR_RETURN(void* memory, backend_->Allocate(elements * backend_->activation_bytes()));
    all_.push_back(memory);
    return static_cast<Element*>(memory);
  }
  absl::StatusOr<Element*> MakeActivations(const std::vector<double>& values) {
    ABLATE_ASSIGN_OR_RETURN(Element * memory, MakeActivations(static_cast<int64_t>(values.size())));
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

// Through the ops that the model uses: the packed projection, l2 normalisation, attention, and back.
absl::StatusOr<Errors> OnBackend(const GoldenAttentionCase& c, Backend* backend) {
  const AttentionShape shape{1, c.T, 1, c.d, c.window};
  const int64_t n = int64_t{c.T} * c.d;
  Buffers buffers(backend);
  std::vector<double> packed(3 * n);
  for (int t = 0; t < c.T; ++t) {
    for (int i = 0; i < c.d; ++i) {
      packed[(int64_t{t} * 3 + 0) * c.d + i] = c.q[int64_t{t} * c.d + i];
      packed[(int64_t{t} * 3 + 1) * c.d + i] = c.k[int64_t{t} * c.d + i];
      packed[(int64_t{t} * 3 + 2) * c.d + i] = c.v[int64_t{t} * c.d + i];
    }
  }
  ABLATE_ASSIGN_OR_RETURN(Element * qkv, buffers.MakeActivations(packed));
  ABLATE_ASSIGN_OR_RETURN(Element * dout, buffers.MakeActivations(c.dout));
  std::vector<Element*> split;
  for (int i = 0; i < 7; ++i) {
    ABLATE_ASSIGN_OR_RETURN(Element * memory, buffers.MakeActivations(n));
    split.push_back(memory);
  }
  Element *q = split[0], *k = split[1], *v = split[2], *out = split[3], *dq = split[4], *dk = split[5], *dv = split[6];
  ABLATE_ASSIGN_OR_RETURN(float* q_norm, buffers.Make(c.T));
  ABLATE_ASSIGN_OR_RETURN(float* k_norm, buffers.Make(c.T));
  ABLATE_ASSIGN_OR_RETURN(float* row_stats, buffers.Make(AttentionRowStatFloats(shape)));
  ABLATE_ASSIGN_OR_RETURN(Element * dqkv, buffers.MakeActivations(3 * n));
  float *s = nullptr, *b = nullptr, *ds = nullptr, *db = nullptr;
  if (c.spec.has_learned_scale()) {
    ABLATE_ASSIGN_OR_RETURN(s, buffers.Make(std::vector<double>{c.learned_s}));
    ABLATE_ASSIGN_OR_RETURN(ds, buffers.Make(1));
  }
  if (c.spec.has_learned_bias()) {
    ABLATE_ASSIGN_OR_RETURN(b, buffers.Make(std::vector<double>{c.learned_b}));
    ABLATE_ASSIGN_OR_RETURN(db, buffers.Make(1));
  }
  backend->QkvForward(qkv, nullptr, nullptr, c.spec.qk_norm, q, k, v, q_norm, k_norm, shape);
  backend->AttentionForward(c.spec, shape, q, k, v, s, b, out, row_stats);
  backend->AttentionBackward(c.spec, shape, q, k, v, s, b, out, dout, row_stats, dq, dk, dv, ds, db);
  backend->QkvBackward(dq, dk, dv, q, k, nullptr, nullptr, c.spec.qk_norm, q_norm, k_norm, dqkv, shape);
  ABLATE_RETURN_IF_ERROR(backend->Synchronize());

  const Floats gradients = buffers.Host(dqkv, 3 * n);
  Floats parts[3];
  for (int t = 0; t < c.T; ++t) {
    for (int part = 0; part < 3; ++part) {
      const auto row = gradients.begin() + (int64_t{t} * 3 + part) * c.d;
      parts[part].insert(parts[part].end(), row, row + c.d);
    }
  }
  return Compare(c, buffers.Host(out, n), parts[0], parts[1], parts[2], ds == nullptr ? 0.0 : buffers.Host(ds, 1)[0],
                 db == nullptr ? 0.0 : buffers.Host(db, 1)[0]);
}

}  // namespace

absl::StatusOr<CheckOutcome> CheckAttention(const std::string& path, Backend* backend) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<GoldenAttentionCase> cases, ReadGoldenAttention(path));
  CheckOutcome outcome;
  std::printf("%-34s %5s %4s  %10s %10s  %10s %10s\n", "case", "T", "d", "reference", "(gradient)",
              backend->device_class().c_str(), "(gradient)");
  for (const GoldenAttentionCase& c : cases) {
    const absl::Status valid = ValidateAttentionSpec(c.spec);
    if (!valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": case ", c.name, ": ", std::string(valid.message())));
    }
    const Errors reference = Reference(c);
    ABLATE_ASSIGN_OR_RETURN(const Errors fast, OnBackend(c, backend));
    const bool pass = reference.output <= kReference && reference.gradient <= kReference && fast.output <= kOutput &&
                      fast.gradient <= kGradient;
    std::printf("%-34s %5d %4d  %10.2e %10.2e  %10.2e %10.2e%s\n", c.name.c_str(), c.T, c.d, reference.output,
                reference.gradient, fast.output, fast.gradient, pass ? "" : "  FAILED");
    PrintNotCovered(c.name, c.not_covered, &outcome);
    ++outcome.cases;
    outcome.failed += pass ? 0 : 1;
  }
  return outcome;
}

}  // namespace ablate
