// Reads a file of golden whole-model values (format: tests/golden/model.json, docs/attention.md) for golden_check. Must
// not know any implementation. Thread rule: free functions without state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/variants.h"

namespace ablate {

using TensorMap = std::map<std::string, std::vector<double>>;

struct GoldenModelCase {
  std::string name;
  AttentionSpec spec;
  int layers = 0, width = 0, heads = 0, vocab = 0, T = 0, batch = 0;
  double rope_base = 10000;
  std::vector<int32_t> tokens, targets;  // [batch, T]; a target of -1 is not scored
  TensorMap params, grads;               // flattened, row-major; the same names and sizes in both
  double loss = 0;
  std::optional<double> loss_with_ntk;
  int ntk_train_length = 0;
  double ntk_base = 0;
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1;
  std::vector<double> step_losses, step_grad_norms;  // of one length; empty where the file has none
  std::vector<std::string> not_covered;  // expected values that the file lacks, and fields that nobody knows
};

// NotFound: no such file; InvalidArgument, naming the case: not JSON, a missing field or
// gradient, a wrong type, ragged rows, wrong sizes, tokens outside the vocabulary.
absl::StatusOr<std::vector<GoldenModelCase>> ReadGoldenModel(const std::string& path);

}  // namespace ablate
