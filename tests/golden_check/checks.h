// The checks of golden_check, one a kind of file. Each prints a line a case and returns how many cases failed. Must not
// exit.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace ablate {

struct CheckOutcome {
  int cases = 0, failed = 0, not_covered = 0;
};

// One line for each expected value that the case lacks and each field that no check looks at, counted as not covered.
inline void PrintNotCovered(const std::string& name, const std::vector<std::string>& fields, CheckOutcome* outcome) {
  for (const std::string& field : fields) std::printf("%s: %s: not covered\n", name.c_str(), field.c_str());
  outcome->not_covered += static_cast<int>(fields.size());
}

// InvalidArgument or NotFound: the file cannot be read or used.
// Double reference: 1e-10. Backend in float32: 2e-4 for outputs, 2e-3 for gradients; relative to the larger of 1 and
// the tensor's largest value (saturated rows have true gradients of 1e-30). Backend in bf16: Bf16Bounds of
// attention_run.h. Heads that the backend has no kernel for count as not covered.
absl::StatusOr<CheckOutcome> CheckAttention(const std::string& path, Backend* backend);
// Double reference: 1e-10. Backend: gradients 2e-3 of each tensor's largest value and of each step's norm, losses of
// the optimiser's steps and with Dynamic NTK 1e-3.
// In bf16: losses 1e-2, gradients and norms 1e-1, or twice 2^16 times the error that the CPU shows in float32, where
// the case amplifies roundings so; 1 at most.
absl::StatusOr<CheckOutcome> CheckModel(const std::string& path, Backend* backend);
// Every variant on generated inputs of T rows against the reference, within Bf16Bounds. InvalidArgument: the backend
// is none of bf16, or has no kernel for d.
absl::StatusOr<CheckOutcome> CheckBf16(int T, int d, Backend* backend);

// Every variant, or the one of that name, at D = 32 to 128 over several tiles, sequences and heads, with windows and
// ALiBi, against the reference. Tolerances as CheckAttention's and CheckBf16's. InvalidArgument: no such variant, or no
// kernel.
absl::StatusOr<CheckOutcome> CheckDevice(const std::string& only, Backend* backend);

// What probes rest on (worker/trainer/probes), of every variant or the one of that name, through the trainer's model:
// what is reported of a head's rows within 1e-5 of the double-precision model's full matrix, each row and weight within
// 1e-4, losses those of Evaluate to the bit, and every token generated with a cache the same as by whole passes, with Dynamic NTK off and on.
// InvalidArgument: no such variant, or a backend of bf16.
absl::StatusOr<CheckOutcome> CheckProbes(const std::string& only, Backend* backend);

// Worst |got - want| / max(floor, largest |want|); infinity when sizes differ or a value is not finite.
template <typename GotVector, typename WantVector>
double RelativeError(const GotVector& got, const WantVector& want, double floor) {
  if (got.size() != want.size()) return 1e300;
  double largest = floor, worst = 0;
  for (const double w : want) largest = largest < (w < 0 ? -w : w) ? (w < 0 ? -w : w) : largest;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    const double size = error < 0 ? -error : error;
    if (!(size <= 1e300)) return 1e300;
    worst = worst < size ? size : worst;
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace ablate
