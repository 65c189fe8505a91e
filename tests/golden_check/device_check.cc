// Attention at sizes that golden files have none of: every width of kernel, several tiles, sequences and heads, with
// windows and ALiBi; generated inputs, the double-precision reference. For a real device, where nothing else looks.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/reference/attention.h"
#include "tests/golden_check/attention_run.h"
#include "tests/golden_check/checks.h"

namespace ablate {
namespace {

// A sum of uniform numbers: the same in every standard library.
std::vector<double> Normals(int64_t n, std::mt19937_64* generator) {
  std::vector<double> values(n, -6);
  for (double& value : values) {
    for (int i = 0; i < 12; ++i) value += static_cast<double>((*generator)() >> 11) * 0x1p-53;
  }
  return values;
}

void Normalise(std::vector<double>* rows, int D) {
  for (auto row = rows->begin(); row != rows->end(); row += D) {
    const double norm = std::sqrt(std::inner_product(row, row + D, row, 0.0));
    std::transform(row, row + D, row, [norm](double x) { return x / norm; });
  }
}

struct Expected {
  std::vector<double> out, dq, dk, dv, ds, db;
};
Expected Reference(const HeadsInputs& in) {
  const AttentionShape& shape = in.shape;
  Expected all;
  all.ds.resize(in.spec.has_learned_scale() ? shape.H : 0);
  all.db.resize(in.spec.has_learned_bias() ? shape.H : 0);
  for (int head = 0; head < shape.B * shape.H; ++head) {
    const int64_t at = int64_t{head} * shape.T * shape.D;
    const int h = head % shape.H;
    const reference::AttentionResult one =
        reference::Attention(in.spec, shape.T, shape.D, shape.window, &in.q[at], &in.k[at], &in.v[at], in.s[h], in.b[h],
                             &in.dout[at], reference::AlibiSlope(h, shape.H));
    const auto append = [](const std::vector<double>& from, std::vector<double>* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(one.out, &all.out), append(one.dq, &all.dq), append(one.dk, &all.dk), append(one.dv, &all.dv);
    if (!all.ds.empty()) all.ds[h] += one.dlearned_s;
    if (!all.db.empty()) all.db[h] += one.dlearned_b;
  }
  return all;
}

}  // namespace

absl::StatusOr<CheckOutcome> CheckDevice(const std::string& only, Backend* backend) {
  const bool is_bf16 = backend->precision() == Precision::kBf16;
  CheckOutcome outcome;
  std::printf("%-20s %4s %4s %6s %5s  %10s %10s %10s %10s %10s\n", "variant", "T", "D", "window", "alibi", "out", "dq",
              "dk", "dv", "learned");
  for (const AttentionVariant& variant : AttentionVariants()) {
    if (only != "all" && only != variant.name) continue;
    for (const AttentionShape& shape : {AttentionShape{.B = 2, .T = 130, .H = 3, .D = 32},
                                        {.B = 2, .T = 260, .H = 2, .D = 64, .window = 100},
                                        {.B = 2, .T = 197, .H = 3, .D = 96},
                                        {.B = 1, .T = 257, .H = 3, .D = 128, .window = 150}}) {
      ABLATE_RETURN_IF_ERROR(backend->CheckHeadDim(shape.D));
      std::mt19937_64 generator(shape.D);
      const int64_t n = int64_t{shape.B} * shape.H * shape.T * shape.D;
      HeadsInputs in{.spec = variant.spec, .shape = shape};
      in.spec.alibi = shape.D >= 96;
      in.spec.train_length = 128;
      for (std::vector<double>* x : {&in.q, &in.k, &in.v, &in.dout}) *x = Normals(n, &generator);
      for (int h = 0; h < shape.H; ++h) in.s.push_back(0.75 + 0.25 * h), in.b.push_back(0.5 - 0.25 * h);
      // As in CheckBf16: kernel and reference have the very same q and k.
      if (in.spec.qk_norm == QkNorm::kL2) Normalise(&in.q, shape.D), Normalise(&in.k, shape.D);
      in.spec.qk_norm = QkNorm::kNone;
      if (is_bf16) {
        for (std::vector<double>* x : {&in.q, &in.k, &in.v, &in.dout}) *x = Rounded(*x);
      }
      ABLATE_ASSIGN_OR_RETURN(const HeadsRun run, RunHeads(in, backend));
      const Expected want = Reference(in);
      Bf16Errors errors, bounds;
      double learned = 0;
      if (is_bf16) {
        const double least = 1e-1 * Norm(in.dout), scale = Norm(want.dq) * Norm(in.q) / std::sqrt(double(n) / shape.D);
        errors = {FrobeniusError(run.out, want.out, 1e-3 * Norm(in.v)), FrobeniusError(run.dq, want.dq, least),
                  FrobeniusError(run.dk, want.dk, least), FrobeniusError(run.dv, want.dv, least)};
        learned =
            std::max(FrobeniusError(run.dlearned_s, want.ds, scale), FrobeniusError(run.dlearned_b, want.db, scale));
        bounds = Bf16Bounds(variant.spec, 2);
      } else {
        errors = {RelativeError(run.out, want.out, 1.0), RelativeError(run.dq, want.dq, 1.0),
                  RelativeError(run.dk, want.dk, 1.0), RelativeError(run.dv, want.dv, 1.0)};
        learned = std::max(RelativeError(run.dlearned_s, want.ds, 1.0), RelativeError(run.dlearned_b, want.db, 1.0));
        bounds = {2e-4, 2e-3, 2e-3, 2e-3};
      }
      const bool pass = Within(errors, bounds) && learned <= bounds.dq;
      std::printf("%-20s %4d %4d %6d %5s  %10.2e %10.2e %10.2e %10.2e %10.2e%s\n", std::string(variant.name).c_str(),
                  shape.T, shape.D, shape.window, in.spec.alibi ? "yes" : "no", errors.out, errors.dq, errors.dk,
                  errors.dv, learned, pass ? "" : "  FAILED");
      ++outcome.cases;
      outcome.failed += pass ? 0 : 1;
    }
  }
  if (outcome.cases == 0) {
    return absl::InvalidArgumentError(absl::StrCat("device \"", only, "\": expected all, or the name of a variant"));
  }
  return outcome;
}

}  // namespace ablate
