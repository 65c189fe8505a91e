// From a configuration to a member of the attention family. Must not know the family's mathematics.
#pragma once

#include "absl/status/statusor.h"
#include "experiments/axes.h"
#include "kernels/attention/variants.h"

namespace ablate {

// The variant with the fields that `config` overrides; train_length, and a clamp that is set, are train.length.
// InvalidArgument: the fields do not fit together (ValidateAttentionSpec).
absl::StatusOr<AttentionSpec> AttentionSpecFrom(const ConfigView& config);

}  // namespace ablate
