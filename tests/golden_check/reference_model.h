// The whole model in plain double precision over kernels/reference: the yardstick of worker/trainer/model. Must not
// share code with it. Source: docs/attention.md (golden model cases). Thread rule: free functions without state.
#pragma once

#include "tests/golden_check/golden_model.h"

namespace ablate::reference {

struct ModelShape {
  int layers, width, heads, vocab;
  AttentionSpec spec;
  double rope_base;  // 0: no rotation (learned positions if `params` has wpe, ALiBi if spec.alibi, none otherwise)
};

// Mean cross-entropy over the targets that are not -1. grads (may be null) receives the gradient of every parameter.
// `params` must have every name that the shape needs, in its size; ModelParametersProblem says what is wrong.
double ModelLoss(const ModelShape& shape, const TensorMap& params, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& targets, int B, int T, TensorMap* grads);

// The final weights of every layer, sequence and head: [layers][B][H][T][T], 0 where j > i or outside of the window (0:
// none), which holds in every layer.
std::vector<double> AttentionWeights(const ModelShape& shape, const TensorMap& params,
                                     const std::vector<int32_t>& tokens, int B, int T, int window);

// Names and sizes, as text; empty when all is well.
std::string ModelParametersProblem(const ModelShape& shape, const TensorMap& params);

// Clips by global norm (0: not), then AdamW; decays only names whose tensor is two-dimensional: wte, wpe and the .w of
// linear layers. Returns the norm before clipping. m and v are created at the first step.
double AdamWStep(const GoldenModelCase& hyper, int64_t step, TensorMap* params, const TensorMap& grads, TensorMap* m,
                 TensorMap* v);

}  // namespace ablate::reference
