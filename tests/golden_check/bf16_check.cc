// bf16 attention at the size for which its errors were modelled: generated inputs, the double-precision reference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/golden_check/attention_run.h"
#include "tests/golden_check/checks.h"

namespace ablate {
namespace {

// As normal as the model's: a sum of uniform numbers.
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<double>(state_ >> 11) * 0x1p-53;
    }
    return sum;
  }

 private:
  uint64_t state_;
};

}  // namespace

absl::StatusOr<CheckOutcome> CheckBf16(int T, int d, Backend* backend) {
  if (backend->precision() != Precision::kBf16) {
    return absl::InvalidArgumentError("this check is one of bf16: add --precision bf16 and a CUDA backend");
  }
  ABLATE_RETURN_IF_ERROR(backend->CheckHeadDim(d));
  CheckOutcome outcome;
  std::printf("%-20s %5s %4s  %10s %10s %10s %10s   (bound)\n", "variant", "T", "d", "out", "dq", "dk", "dv");
  for (const AttentionVariant& variant : AttentionVariants()) {
    std::vector<AttentionSpec> specs = {variant.spec};
    if (variant.spec.sharpen_p) {
      specs.clear();
      for (const double p : {1, 3, 15, 50}) {
        specs.push_back(variant.spec);
        specs.back().sharpen_p = p;
      }
    }
    for (AttentionSpec& spec : specs) {
      spec.train_length = T;
      GoldenAttentionCase c;
      c.name = std::string(variant.name) + (spec.sharpen_p ? absl::StrCat(" p=", *spec.sharpen_p) : "");
      c.spec = spec;
      c.T = T;
      c.d = d;
      Generator random(17);
      for (std::vector<double>* values : {&c.q, &c.k, &c.v, &c.dout}) {
        values->resize(static_cast<size_t>(T) * d);
        std::generate(values->begin(), values->end(), [&random] { return random.Normal(); });
      }
      // Normalised here, so that kernel and reference have the very same q and k: a row whose weights are nearly equal
      // would make anything of one more rounding of them.
      if (spec.qk_norm == QkNorm::kL2) {
        for (std::vector<double>* values : {&c.q, &c.k}) {
          for (auto row = values->begin(); row != values->end(); row += d) {
            const double norm = std::sqrt(std::inner_product(row, row + d, row, 0.0));
            std::transform(row, row + d, row, [norm](double x) { return x / norm; });
          }
        }
        c.spec.qk_norm = QkNorm::kNone;
      }
      ABLATE_ASSIGN_OR_RETURN(const AttentionRun run, RunAttention(c, backend));
      const Bf16Errors errors = ErrorsInBf16(c, run), bounds = Bf16Bounds(spec, 2);
      const bool pass = Within(errors, bounds);
      std::printf("%-20s %5d %4d  %10.2e %10.2e %10.2e %10.2e   (%.1e %.1e %.1e)%s\n", c.name.c_str(), T, d, errors.out,
                  errors.dq, errors.dk, errors.dv, bounds.out, bounds.dq, bounds.dv, pass ? "" : "  FAILED");
      ++outcome.cases;
      outcome.failed += pass ? 0 : 1;
    }
  }
  return outcome;
}

}  // namespace ablate
