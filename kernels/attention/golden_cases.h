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
  std::vector<double> row_weight_sum;  // [T], empty when the file has none
  std::vector<int> zero_rows;          // 0-based
  double learned_s = 1, learned_b = 0;
  std::optional<double> d_learned_s, d_learned_b;
};

// NotFound: no such file; InvalidArgument, naming the case: not JSON, a missing or unknown spec field, wrong sizes.
absl::StatusOr<std::vector<GoldenAttentionCase>> ReadGoldenAttention(const std::string& path);

// The "spec" object of a case, as JSON text (whole-model files have it too). InvalidArgument: an unknown field or value.
absl::StatusOr<AttentionSpec> ParseGoldenAttentionSpec(const std::string& json);

}  // namespace ablate
