// One head's attention through a backend, as the model calls it, and how far bf16 may be off. Must not know files.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/golden_cases.h"
#include "kernels/backend.h"

namespace ablate {

struct AttentionRun {
  std::vector<float> out, dq, dk, dv;
  double dlearned_s = 0, dlearned_b = 0;
};

// Of B sequences and H heads: q, k, v, dout and their gradients [B,H,T,D], learned ones [H] (gradients empty where the
// spec has none).
struct HeadsInputs {
  AttentionSpec spec;
  AttentionShape shape;
  std::vector<double> q, k, v, dout, s, b;
};
struct HeadsRun {
  std::vector<float> out, dq, dk, dv, dlearned_s, dlearned_b;
};
absl::StatusOr<HeadsRun> RunHeads(const HeadsInputs& in, Backend* backend);

// Of the case's inputs: the packed projection, l2 normalisation, attention, and back. Status: the backend's.
absl::StatusOr<AttentionRun> RunAttention(const GoldenAttentionCase& c, Backend* backend);

// Relative errors by the Frobenius norm, of bf16 operands with accumulation in float32.
struct Bf16Errors {
  double out = 0, dq = 0, dk = 0, dv = 0;
};

// What a faithful bf16 implementation shows, times `factor`. The figures are of a model of softmax, LSSA and LSSAR at
// T = 1024, d = 64 (docs/kernels.md); other variants go by the one whose scores are as large, and beyond p = 50 errors
// grow with p. 2 at that size; short rows and narrow heads average less: 4.
Bf16Errors Bf16Bounds(const AttentionSpec& spec, double factor);

// Against the double-precision reference on the case's inputs rounded to bf16: what the rounding of inputs does is
// nobody's fault.
Bf16Errors ErrorsInBf16(const GoldenAttentionCase& c, const AttentionRun& run);

// Values to bf16 and back; |got - want| / max(|want|, least_norm), 1e300 when sizes differ or a value is not finite;
// |x|.
std::vector<double> Rounded(const std::vector<double>& values);
double FrobeniusError(const std::vector<float>& got, const std::vector<double>& want, double least_norm);
double Norm(const std::vector<double>& values);

inline bool Within(const Bf16Errors& errors, const Bf16Errors& bounds) {
  return errors.out <= bounds.out && errors.dq <= bounds.dq && errors.dk <= bounds.dk && errors.dv <= bounds.dv;
}

}  // namespace ablate
