// The shape of a model and the one table of its parameters: names, shapes, initial values, decay. Must not know
// backends or files. Names are permanent: checkpoints and initial weights go by them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention/variants.h"

namespace ablate {

enum class PositionKind { kRope, kNone, kLearned, kAlibi };
std::string_view Name(PositionKind value);
std::optional<PositionKind> ParsePositionKind(std::string_view name);  // "rope", "none", "learned", "alibi"

struct ModelConfig {
  int layers = 4, width = 128, heads = 4, vocab = 256;
  int train_length = 256;  // T in training; the size of wpe, and T_train of the NTK rule
  PositionKind position = PositionKind::kRope;
  double rope_base = 10000.0;
  AttentionSpec attention;  // attention.train_length and .alibi are set from train_length and position by Model::Create
  float ssmax_s = 1.0f, ssmax_b = 0.0f;  // initial values of the learned scale and bias

  int head_dim() const { return width / heads; }
};

// InvalidArgument, naming the field: a size below 1, width not divisible by heads, an odd head dimension with RoPE, a
// bad attention spec.
absl::Status ValidateModelConfig(const ModelConfig& config);

struct ParameterInfo {
  std::string name;            // "h0.qkv.w"
  std::vector<int64_t> shape;  // weights are [out, in]
  int64_t count = 0;           // product of shape
  int64_t offset = 0;          // floats from the start of the arena; multiples of 16 (64 bytes)
  bool decay = false;          // two-dimensional
  float init_std = 0;          // > 0: normal(0, init_std); 0: the constant init_value
  float init_value = 0;
};

// wte [V,C]; wpe [T_train,C] (learned positions only); for each layer h<l>: ln1.w, ln1.b [C], qkv.w [3C,C], qkv.b,
// ssmax.s, ssmax.b [H] (where the attention spec has them), proj.w [C,C], proj.b, ln2.w, ln2.b, fc.w [4C,C], fc.b,
// fcproj.w [C,4C], fcproj.b; lnf.w, lnf.b. GPT-2's initial values: normal(0, 0.02), proj and fcproj divided by
// sqrt(2 layers), biases 0, layer norm weights 1. The head is wte (tied).
std::vector<ParameterInfo> ParameterTable(const ModelConfig& config);

// Floats of an arena that holds them all, padding included (padding stays zero).
int64_t ArenaFloats(const std::vector<ParameterInfo>& table);

// Sum of counts.
int64_t ParameterCount(const std::vector<ParameterInfo>& table);

}  // namespace ablate
