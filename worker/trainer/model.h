// The GPT-2-shaped decoder over a Backend: pre-LN blocks, biases, tanh GELU, tied embedding; forward, backward,
// AdamW, evaluation in memory linear in the length. Must not know data files, schedules, checkpoints or jobs.
//
// Results are the same bits for the same device kind, build, weights and inputs, whatever the number of threads.
// Errors: InvalidArgument: a batch or option that this model cannot take (the message says which);
// ResourceExhausted: device memory; Internal: device fault. A loss or gradient that is not finite is a value, not an
// error. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/trainer/parameters.h"

namespace ablate {

struct BatchLoss {
  double loss_sum = 0;     // nats, summed over the targets
  int64_t targets = 0;     // targets that are not -1
  AttentionCounts counts;  // of this forward, summed over layers
  double mean() const { return targets == 0 ? 0.0 : loss_sum / static_cast<double>(targets); }
};

struct OptimizerParams {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  // on two-dimensional tensors only, the embedding included
  double clip_norm = 1.0;     // global norm; 0: no clipping
};

struct EvalOptions {
  // RoPE base; unset: the model's. Dynamic NTK is the caller's choice: pass DynamicNtkBase(...).
  std::optional<double> rope_base;
  // Multiplies the base (the SSMax paper's 50).
  double rope_theta_scale = 1.0;
  // Another member of the family than the model was trained with.
  std::optional<AttentionSpec> attention;
  // Keys that a position attends to, itself included; 0: all before it.
  int window = 0;
};

// What a pass of evaluation holds memory for beside the weights.
enum class EvaluationPass {
  kLosses,      // Evaluate
  kGeneration,  // Generate
  kStatistics,  // AttentionStatistics
  kMaps,        // AttentionMaps
};

// What Generate is asked for: B prompts [B,T], each with `new_tokens` more.
struct Prompts {
  const int32_t* tokens = nullptr;  // [B,T] row-major on the host
  const int32_t* lengths = nullptr;  // [B]: of each prompt, 1 to T, what follows it in its row is padding; null: T
  int B = 0, T = 0;
};
struct Generation {
  std::vector<int32_t> tokens;  // [B,new_tokens], each the most likely one (of equal ones the lowest)
  std::vector<float> losses;    // [B,new_tokens]: -log of its probability, nats; not finite where logits were not
};

// base' = base (factor L / T_train - (factor - 1))^(d / (d - 2)) for L > T_train, else base. d is the head dimension (>
// 2). Source: Dynamic NTK as in arXiv 2501.13428; docs/attention.md.
double DynamicNtkBase(double base, double factor, int64_t length, int64_t train_length, int head_dim);

// What training keeps of a layer's forward pass until its backward pass. The results have the same bits either way.
//   kNone: all activations. kBlocks: the layer's input and its attention's output; the rest is computed again,
//   attention itself excepted: about a fifth of the memory for about a quarter more time. kAuto, of a stage: kBlocks
//   where kNone does not fit into the device's memory.
enum class Recompute { kAuto, kNone, kBlocks };

enum class StateKind { kWeights, kGradients, kAdamM, kAdamV };

class Model {
 public:
  // `backend` must outlive the model. Allocates weights only; gradients, optimiser state and activations come with the
  // first training call. Weights are zero until InitWeights or WriteState.
  // `recompute`: kNone or kBlocks.
  static absl::StatusOr<std::unique_ptr<Model>> Create(Backend* backend, ModelConfig config,
                                                       Recompute recompute = Recompute::kNone);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const;
  const std::vector<ParameterInfo>& parameters() const;

  // GPT-2's initial weights from (seed, parameter name, element); resets optimiser state and step.
  absl::Status InitWeights(uint64_t seed);

  // One batch: tokens, targets [B,T] row-major on the host, targets -1 are not scored. Adds the gradient of
  // grad_scale * (sum of losses) to the gradients: accumulation is calling it again with grad_scale = 1 / all targets
  // of the step. T may differ from train_length except above it with learned positions.
  absl::StatusOr<BatchLoss> ForwardBackward(const int32_t* tokens, const int32_t* targets, int B, int T,
                                            double grad_scale);

  // Allocates now what ForwardBackward will need for such a batch, or a pass of evaluation.
  absl::Status ReserveTraining(int B, int T);
  absl::Status ReserveEvaluation(EvaluationPass pass, int B, int T, const EvalOptions& options);

  absl::Status ZeroGradients();
  // Global norm of the gradients as they are.
  absl::StatusOr<double> GradNorm();
  // step += 1, clips by global norm, AdamW on every parameter, zeroes the gradients; returns the norm before clipping.
  // A norm that is not finite leaves weights, optimiser state and step as they were (gradients are zeroed all the
  // same).
  absl::StatusOr<double> AdamWStep(const OptimizerParams& params);

  // Forward only. losses [B,T] on the host, in nats, 0 where the target is -1; may be null. Memory is linear in B * T:
  // no activation is kept across layers and logits are made a chunk of rows at a time. It stays allocated for the next
  // batch of the same shape. likeliest [B,T]: the token with the largest logit at every position (of equal ones the
  // lowest); may be null.
  absl::StatusOr<BatchLoss> Evaluate(const int32_t* tokens, const int32_t* targets, int B, int T,
                                     const EvalOptions& options, float* losses, int32_t* likeliest = nullptr);

  // Greedy generation with a cache of keys and values: the prompts once, then a step a token. The same tokens as a whole
  // pass over all tokens so far for each one (but for rounding, where two logits are equal within it). `length`: what the
  // longest prompt and its new tokens must fit in, and what kGeneration was reserved for. options.rope_base serves the
  // whole sequence. Memory: keys and values of B sequences of `length` tokens in every layer.
  absl::StatusOr<Generation> Generate(const Prompts& prompts, int new_tokens, int length, const EvalOptions& options);

  // Evaluate, and the statistics of every attention row on the way (AttentionStatistic of kernels/backend.h): `visit`
  // gets those of `sequences` sequences, from `first` on, in one layer: [sequences,H,T,kAttentionStatistics] on the host,
  // valid during the call. For a group of sequences layers come in order.
  using StatisticsVisitor = std::function<void(int layer, int first, int sequences, const float* statistics)>;
  absl::StatusOr<BatchLoss> AttentionStatistics(const int32_t* tokens, const int32_t* targets, int B, int T,
                                                const EvalOptions& options, float* losses,
                                                const StatisticsVisitor& visit);

  // Evaluate of one sequence, and the weights of every attention row on the way: `visit` gets a layer's, [H,T,T] on the
  // host, 0 above the diagonal, in order of layers. T x T values in host memory, D columns at a time on the device: for
  // pictures of short texts.
  using MapsVisitor = std::function<void(int layer, const float* weights)>;
  absl::StatusOr<BatchLoss> AttentionMaps(const int32_t* tokens, const int32_t* targets, int T,
                                          const EvalOptions& options, const MapsVisitor& visit);

  // --- state, by index into parameters(), row-major host copies of `count` floats ---
  absl::Status ReadState(StateKind kind, int index, float* to_host);
  absl::Status WriteState(StateKind kind, int index, const float* from_host);
  // Optimiser steps taken: the t of the bias correction.
  int64_t step() const;
  void set_step(int64_t step);
  // -1 when there is no such parameter.
  int FindParameter(std::string_view name) const;

  // Bytes that the model has allocated on the backend, now and the largest so far; the backend's own workspace for the
  // batches so far is not in them.
  int64_t allocated_bytes() const;
  int64_t peak_bytes() const;
  // Of the logits that a batch of so many rows holds at a time.
  int64_t LogitBytes(int64_t rows) const;
  // How many sequences of a batch of B go through at a time.
  int TrainingGroup(int B, int T) const;
  int EvaluationGroup(int B, int T) const;
  // Frees gradients, optimiser state and activations (a model that only evaluates from here on).
  void ReleaseTrainingState();
  // Frees what passes of evaluation work in, so that a pass of another kind finds the memory that its plan counts on.
  void ReleaseEvaluationArrays();

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ablate
