// golden_check attention: the reference and a backend against golden attention cases of one head. Must not know how a
// backend is made, nor exit. Thread rule: one thread.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/attention/golden_cases.h"
#include "kernels/reference/attention.h"
#include "tests/golden_check/attention_run.h"
#include "tests/golden_check/checks.h"

namespace ablate {
namespace {

constexpr double kReference = 1e-10, kOutput = 2e-4, kGradient = 2e-3;

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
    if (const absl::Status supported = backend->CheckHeadDim(c.d); !supported.ok()) {
      const std::string message(supported.message());
      std::printf("%s (T = %d): not covered: %s\n", c.name.c_str(), c.T, message.substr(0, message.find(';')).c_str());
      ++outcome.not_covered;
      continue;
    }
    ABLATE_ASSIGN_OR_RETURN(const AttentionRun run, RunAttention(c, backend));
    bool pass = reference.output <= kReference && reference.gradient <= kReference;
    double output = 0, gradient = 0;
    if (backend->precision() == Precision::kBf16) {
      const Bf16Errors errors = ErrorsInBf16(c, run);
      pass = pass && Within(errors, Bf16Bounds(c.spec, 4));
      output = errors.out;
      gradient = std::max({errors.dq, errors.dk, errors.dv});
    } else {
      const Errors fast = Compare(c, run.out, run.dq, run.dk, run.dv, run.dlearned_s, run.dlearned_b);
      pass = pass && fast.output <= kOutput && fast.gradient <= kGradient;
      output = fast.output;
      gradient = fast.gradient;
    }
    std::printf("%-34s %5d %4d  %10.2e %10.2e  %10.2e %10.2e%s\n", c.name.c_str(), c.T, c.d, reference.output,
                reference.gradient, output, gradient, pass ? "" : "  FAILED");
    PrintNotCovered(c.name, c.not_covered, &outcome);
    ++outcome.cases;
    outcome.failed += pass ? 0 : 1;
  }
  return outcome;
}

}  // namespace ablate
