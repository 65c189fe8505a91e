// golden_check model: the reference and a backend against golden losses and gradients of small models. Must not know
// how a backend is made, nor exit. Thread rule: one thread.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/golden_check/checks.h"
#include "tests/golden_check/golden_model.h"
#include "tests/golden_check/reference_model.h"
#include "worker/trainer/model.h"

namespace ablate {
namespace {

constexpr double kReference = 1e-10;

struct Bounds {
  double gradient, loss;
};
constexpr Bounds kFloat32 = {2e-3, 1e-3}, kLeastBf16 = {1e-1, 1e-2};

// A bf16 has 16 bits less than a float32: what a case makes of the roundings of float32, it makes of those of bf16 2^16
// times as much, up to its whole size.
double Bf16Bound(double float32_error, double least) { return std::clamp(2 * 65536 * float32_error, least, 1.0); }

struct Errors {
  double loss = 0;      // of the batch, with NTK, and of every optimiser step
  double gradient = 0;  // worst tensor, relative to its largest value
  double norm = 0;      // gradient norms of the steps
  std::string tensor;   // the worst one

  void AddLoss(double got, double want) { loss = std::max(loss, Error(got, want)); }
  void AddNorm(double got, double want) { norm = std::max(norm, Error(got, want)); }
  void AddGradient(const std::string& name, double error) {
    if (error < gradient) return;
    gradient = error;
    tensor = name;
  }

 private:
  // Never NaN, which std::max would drop.
  static double Error(double got, double want) {
    return std::isfinite(got) ? std::fabs(got - want) / std::max(std::fabs(want), 1e-30) : 1e300;
  }
};

Errors Reference(const GoldenModelCase& c) {
  Errors errors;
  reference::ModelShape shape{c.layers, c.width, c.heads,
                              c.vocab,  c.spec,  c.params.count("wpe") > 0 ? 0.0 : c.rope_base};
  TensorMap params = c.params, grads, m, v;
  errors.AddLoss(reference::ModelLoss(shape, params, c.tokens, c.targets, c.batch, c.T, &grads), c.loss);
  for (const auto& [name, want] : c.grads) errors.AddGradient(name, RelativeError(grads.at(name), want, 0.0));
  if (c.loss_with_ntk) {
    // Dynamic NTK of docs/attention.md with factor 1, written out.
    const double d = c.width / c.heads, stretch = static_cast<double>(c.T) / c.ntk_train_length;
    errors.AddLoss(c.rope_base * (stretch > 1 ? std::pow(stretch, d / (d - 2)) : 1.0), c.ntk_base);
    reference::ModelShape ntk = shape;
    ntk.rope_base = c.ntk_base;
    errors.AddLoss(reference::ModelLoss(ntk, params, c.tokens, c.targets, c.batch, c.T, nullptr), *c.loss_with_ntk);
  }
  for (size_t step = 0; step < c.step_losses.size(); ++step) {
    errors.AddLoss(reference::ModelLoss(shape, params, c.tokens, c.targets, c.batch, c.T, &grads), c.step_losses[step]);
    const double norm = reference::AdamWStep(c, static_cast<int64_t>(step) + 1, &params, grads, &m, &v);
    if (step < c.step_grad_norms.size()) errors.AddNorm(norm, c.step_grad_norms[step]);
  }
  return errors;
}

absl::StatusOr<Errors> OnBackend(const GoldenModelCase& c, Backend* backend) {
  ModelConfig config;
  config.layers = c.layers;
  config.width = c.width;
  config.heads = c.heads;
  config.vocab = c.vocab;
  const auto wpe = c.params.find("wpe");
  config.train_length = wpe != c.params.end() ? static_cast<int>(wpe->second.size()) / c.width : c.T;
  if (c.spec.train_length > 0 && wpe == c.params.end()) config.train_length = c.spec.train_length;
  config.position = wpe != c.params.end() ? PositionKind::kLearned : PositionKind::kRope;
  config.rope_base = c.rope_base;
  config.attention = c.spec;
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Create(backend, config));
  const std::vector<ParameterInfo>& table = model->parameters();
  for (size_t i = 0; i < table.size(); ++i) {
    const std::vector<double>& values = c.params.at(table[i].name);
    const std::vector<float> host(values.begin(), values.end());
    ABLATE_RETURN_IF_ERROR(model->WriteState(StateKind::kWeights, static_cast<int>(i), host.data()));
  }
  int scored = 0;
  for (const int32_t target : c.targets) scored += target >= 0 ? 1 : 0;
  const double scale = scored == 0 ? 0.0 : 1.0 / scored;

  Errors errors;
  if (c.loss_with_ntk) {
    EvalOptions options;
    options.rope_base = DynamicNtkBase(c.rope_base, 1.0, c.T, c.ntk_train_length, c.width / c.heads);
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss,
                            model->Evaluate(c.tokens.data(), c.targets.data(), c.batch, c.T, options, nullptr));
    errors.AddLoss(loss.mean(), *c.loss_with_ntk);
    errors.AddLoss(*options.rope_base, c.ntk_base);
  }
  ABLATE_ASSIGN_OR_RETURN(const BatchLoss evaluated,
                          model->Evaluate(c.tokens.data(), c.targets.data(), c.batch, c.T, EvalOptions{}, nullptr));
  errors.AddLoss(evaluated.mean(), c.loss);
  const size_t steps = std::max<size_t>(c.step_losses.size(), 1);
  for (size_t step = 0; step < steps; ++step) {
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss,
                            model->ForwardBackward(c.tokens.data(), c.targets.data(), c.batch, c.T, scale));
    if (step == 0) {
      errors.AddLoss(loss.mean(), c.loss);
      for (size_t i = 0; i < table.size(); ++i) {
        std::vector<float> got(table[i].count);
        ABLATE_RETURN_IF_ERROR(model->ReadState(StateKind::kGradients, static_cast<int>(i), got.data()));
        errors.AddGradient(table[i].name, RelativeError(got, c.grads.at(table[i].name), 0.0));
      }
    }
    if (step >= c.step_losses.size()) break;
    errors.AddLoss(loss.mean(), c.step_losses[step]);
    OptimizerParams optimizer{c.learning_rate, c.beta1, c.beta2, c.eps, c.weight_decay, c.clip};
    ABLATE_ASSIGN_OR_RETURN(const double norm, model->AdamWStep(optimizer));
    if (step < c.step_grad_norms.size()) errors.AddNorm(norm, c.step_grad_norms[step]);
  }
  return errors;
}

}  // namespace

absl::StatusOr<CheckOutcome> CheckModel(const std::string& path, Backend* backend) {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<GoldenModelCase> cases, ReadGoldenModel(path));
  CheckOutcome outcome;
  std::printf("%-30s  %10s %10s %10s  %10s %10s %10s  %s\n", "case", "ref. loss", "(gradient)", "(norms)",
              (backend->device_class() + " loss").c_str(), "(gradient)", "(norms)", "worst tensor");
  for (const GoldenModelCase& c : cases) {
    const reference::ModelShape shape{c.layers, c.width, c.heads, c.vocab, c.spec, c.rope_base};
    std::string problem = reference::ModelParametersProblem(shape, c.params);
    if (problem.empty() && c.params.count("wpe") > 0 && c.params.at("wpe").size() < size_t(c.T) * c.width) {
      problem = "params.wpe has fewer rows than T";
    }
    const absl::Status valid = ValidateAttentionSpec(c.spec);
    if (problem.empty() && !valid.ok()) problem = std::string(valid.message());
    if (problem.empty() && c.params.count("wpe") == 0 && (c.width / c.heads) % 2 != 0)
      problem = "RoPE needs an even head dimension";
    if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": case ", c.name, ": ", problem));

    if (const absl::Status supported = backend->CheckHeadDim(c.width / c.heads); !supported.ok()) {
      std::printf("%s: not covered: %s\n", c.name.c_str(), std::string(supported.message()).c_str());
      ++outcome.not_covered;
      continue;
    }
    const Errors reference = Reference(c);
    ABLATE_ASSIGN_OR_RETURN(const Errors fast, OnBackend(c, backend));
    Bounds bounds = kFloat32;
    double norm_bound = kFloat32.gradient;
    if (backend->precision() == Precision::kBf16) {
      ABLATE_ASSIGN_OR_RETURN(const auto cpu, NewCpuBackend(1));
      ABLATE_ASSIGN_OR_RETURN(const Errors float32, OnBackend(c, cpu.get()));
      bounds = {Bf16Bound(float32.gradient, kLeastBf16.gradient), Bf16Bound(float32.loss, kLeastBf16.loss)};
      norm_bound = Bf16Bound(float32.norm, kLeastBf16.gradient);
    }
    const bool pass = reference.loss <= kReference && reference.gradient <= kReference &&
                      fast.gradient <= bounds.gradient && fast.loss <= bounds.loss && reference.norm <= kReference &&
                      fast.norm <= norm_bound;
    std::printf("%-30s  %10.2e %10.2e %10.2e  %10.2e %10.2e %10.2e  %s%s\n", c.name.c_str(), reference.loss,
                reference.gradient, reference.norm, fast.loss, fast.gradient, fast.norm, fast.tensor.c_str(),
                pass ? "" : "  FAILED");
    PrintNotCovered(c.name, c.not_covered, &outcome);
    ++outcome.cases;
    outcome.failed += pass ? 0 : 1;
  }
  return outcome;
}

}  // namespace ablate
