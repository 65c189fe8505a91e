// Members of the family that the table does not name, for tests of every kernel: softmax taken apart. Each activation
// with each normalisation, and sharpened where that is defined; and these with inverted and re-centred scores. Must not
// know any implementation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/variants.h"

namespace ablate {

struct NamedSpec {
  std::string name;
  AttentionSpec spec;
};

// The named members, and those of the activations that none of them has.
inline std::vector<NamedSpec> MembersOfEveryActivation() {
  std::vector<NamedSpec> members;
  for (const AttentionVariant& variant : AttentionVariants())
    members.push_back({std::string(variant.name), variant.spec});
  for (Activation activation : {Activation::kAbs, Activation::kSquare}) {
    members.push_back(
        {std::string(Name(activation)) + " count", {.activation = activation, .normalisation = Normalisation::kCount}});
    members.push_back(
        {std::string(Name(activation)) + " sharpened",
         {.qk_norm = QkNorm::kL2, .scale = ScoreScale::kLogDLogN, .activation = activation, .sharpen_p = 3.0}});
  }
  return members;
}

inline std::vector<NamedSpec> DecompositionCases() {
  std::vector<NamedSpec> cases;
  for (const std::string& activation : ActivationNames()) {
    AttentionSpec spec{.activation = *ParseActivation(activation)};
    for (const std::string& normalisation : NormalisationNames()) {
      spec.normalisation = *ParseNormalisation(normalisation);
      cases.push_back({activation + " " + normalisation, spec});
    }
    spec.normalisation = Normalisation::kL1;
    spec.sharpen_p = 3;
    cases.push_back({activation + " sharpened", spec});
    spec.qk_norm = QkNorm::kL2, spec.scale = ScoreScale::kLogDLogN, spec.sharpen_p = 15;
    cases.push_back({activation + " lssar", spec});
  }
  // What a transform meets beside the activation: learned scales, biases, ALiBi.
  for (const char* name : {"ssmax", "ssmax_bias", "sigmoid"}) cases.push_back({name, FindAttentionVariant(name)->spec});
  cases.push_back({"softplus with a bias", {.activation = Activation::kSoftplus, .logit_bias = LogitBias::kNegLogN}});
  cases.push_back({"softplus alibi", {.activation = Activation::kSoftplus, .alibi = true}});
  cases.push_back({"softplus ssmax_bias alibi",
                   {.scale = ScoreScale::kSsmaxBias, .activation = Activation::kSoftplus, .alibi = true}});
  const size_t plain = cases.size();
  for (ScoreTransform transform : {ScoreTransform::kInverted, ScoreTransform::kRecentred}) {
    for (size_t i = 0; i < plain; ++i) {
      cases.push_back({cases[i].name + " " + std::string(Name(transform)), cases[i].spec});
      cases.back().spec.transform = transform;
    }
  }
  return cases;
}

}  // namespace ablate
