// How much of a device's memory a training or an evaluation will take, computed before it starts: the model's own
// allocating code run against a backend that only counts. Must not know configurations or tasks.
// Thread rule: one thread, the backend's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/trainer/model.h"

namespace ablate {

struct MemoryNeed {
  int64_t weights = 0, gradients = 0, optimizer = 0;  // float32
  int64_t activations = 0, logits = 0;                // of the backend's precision
  int64_t workspace = 0;                              // the backend's own

  int64_t total() const { return weights + gradients + optimizer + activations + logits + workspace; }
  // "weights 1.4 GiB, gradients 1.4 GiB, ..."; nothing that is 0.
  std::string Describe() const;
};

// Of B sequences of T tokens at a time. InvalidArgument: as Model::Create.
absl::StatusOr<MemoryNeed> TrainingNeed(const Backend& backend, const ModelConfig& config, int B, int T,
                                        Recompute recompute);
absl::StatusOr<MemoryNeed> EvaluationNeed(const Backend& backend, const ModelConfig& config, EvaluationPass pass, int B,
                                          int T, const EvalOptions& options);

// What to run: kNone or kBlocks. `batch` sequences a step in `accumulation` parts. ResourceExhausted: it does not fit
// into backend->FreeBytes() (says how much is needed for what, how much is free, and what to do).
absl::StatusOr<Recompute> PlanTraining(Backend* backend, const ModelConfig& config, int batch, int accumulation, int T,
                                       Recompute wanted);
// `held`: bytes of it that are allocated already. ResourceExhausted: as above.
absl::Status PlanEvaluation(Backend* backend, const ModelConfig& config, EvaluationPass pass, int B, int T,
                            const EvalOptions& options, int64_t held);

}  // namespace ablate
