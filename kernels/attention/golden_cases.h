// Reads a file of golden attention values (format: docs/attention.md, tests/golden/attention.json) for tests and
// golden_check. Must not know any implementation.
// Thread rule: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/variants.h"

namespace ablate {

// One head; all arrays [T, d] row-major, q and k before l2 normalisation.
struct GoldenAttentionCase {
  std::string name;
  AttentionSpec spec;
  int T = 0, d = 0;
  int window = 0;
  std::vector<double> q, k, v, dout;
  std::vector<double> out, dq, dk, dv;
  std::vector<double> row_weight_sum;         // [T], empty when the file has none
  std::optional<std::vector<int>> zero_rows;  // 0-based; unset when the file has none
  double learned_s = 1, learned_b = 0;
  std::optional<double> d_learned_s, d_learned_b;  // set wherever the spec learns s, b
  std::vector<std::string> not_covered;            // expected values that the file lacks, and fields that nobody knows
};

// NotFound: no such file; InvalidArgument, naming the case: not JSON, a missing field, an unknown spec
// field, a wrong type, ragged rows, wrong sizes, T or d below 1.
absl::StatusOr<std::vector<GoldenAttentionCase>> ReadGoldenAttention(const std::string& path);

}  // namespace ablate
