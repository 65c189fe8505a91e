// The attention family in plain double precision: the textbook formulas of kernels/attention/variants.h with T x T
// arrays, as the yardstick of every fast kernel. Must not share code with them (nor with kernels/attention/score.h).
// Thread rule: free functions without state.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/variants.h"
#include "kernels/backend.h"

namespace ablate::reference {

struct AttentionResult {
  std::vector<double> out;         // [T, D]
  std::vector<double> weight_sum;  // [T]: sum of the final weights of a row (1 under l1)
  AttentionCounts counts;
  std::vector<int> zero_rows;   // 0-based rows whose weights are all zero
  std::vector<double> weights;  // [T, T]: the final weights, 0 where a row does not attend
  std::vector<int> zeros;       // [T]: attended keys whose weight the formula makes 0 (phi = 0, or y = 0)
  std::vector<int> kinds;       // [T]: kRowKind of backend.h
  // Filled only when `dout` was given:
  std::vector<double> dq, dk, dv;  // [T, D], with respect to the inputs before spec.qk_norm
  double dlearned_s = 0, dlearned_b = 0;
};

// One head. q, k, v [T, D] row-major, after RoPE and before l2 normalisation: spec.qk_norm is applied here, x /
// max(|x|, 1e-12), and differentiated through. dout [T, D] or null. window as AttentionShape.window. learned_s,
// learned_b are ignored unless the spec has them; so is alibi_slope (AlibiSlope of the head). The spec must be valid
// (ValidateAttentionSpec).
//
// Rows without a textbook value: all weights zero -> output and gradients zero; a sharpened row with largest y <= 1e-3
// keeps w = a. Under l1, softplus and sigmoid rows whose largest score is below -30 are computed as exp(score -
// largest), to which they are equal within 1e-13, so that they do not underflow to a zero row.
AttentionResult Attention(const AttentionSpec& spec, int T, int D, int window, const double* q, const double* k,
                          const double* v, double learned_s, double learned_b, const double* dout,
                          double alibi_slope = 0);

// [T, kAttentionStatistics]: the definitions in backend.h, from the whole matrix of weights.
std::vector<double> Statistics(const AttentionResult& result, int T, int window);

// ALiBi's slope of head h (0-based) of H, as the paper's authors define it (arXiv 2108.12409).
double AlibiSlope(int h, int H);

}  // namespace ablate::reference
