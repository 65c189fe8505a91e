#include "tests/golden_check/golden_model.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/attention/golden_cases_json.h"

namespace ablate {
namespace {

using Json = nlohmann::json;

TensorMap Tensors(const Json& json, const std::string& prefix, std::map<std::string, std::vector<size_t>>* shapes) {
  if (!json.is_object()) throw std::invalid_argument(prefix + " must be an object");
  TensorMap out;
  for (const auto& [name, value] : json.items()) {
    out[name] = GoldenArray(value, absl::StrCat(prefix, ".", name), &(*shapes)[name]);
  }
  return out;
}

std::vector<int32_t> Batch(const Json& json, const char* key, const GoldenModelCase& c, int least) {
  GoldenArray(json.at(key), key, {static_cast<size_t>(c.batch), static_cast<size_t>(c.T)});
  std::vector<int32_t> out;
  for (const Json& row : json.at(key)) {
    for (const Json& token : row)
      out.push_back(GoldenInteger(token, absl::StrCat("a token of ", key), least, c.vocab - 1));
  }
  return out;
}

void AddUnknown(const Json& object, const std::string& prefix, const std::set<std::string>& known, GoldenModelCase* c) {
  for (std::string& name : GoldenUnknownFields(object, prefix, known)) c->not_covered.push_back(std::move(name));
}

GoldenModelCase ParseCase(const Json& json) {
  GoldenModelCase c;
  c.name = GoldenString(json.at("name"), "name");
  c.spec = ParseGoldenAttentionSpec(json.at("spec"));
  const Json& config = json.at("config");
  if (!config.is_object()) throw std::invalid_argument("config must be an object");
  for (const auto& [key, to] : {std::pair{"layers", &c.layers},
                                {"width", &c.width},
                                {"heads", &c.heads},
                                {"vocab", &c.vocab},
                                {"T", &c.T},
                                {"batch", &c.batch}}) {
    *to = GoldenInteger(config.at(key), absl::StrCat("config.", key), 1);
  }
  if (c.width % c.heads != 0) throw std::invalid_argument("config.width is not divisible by config.heads");
  if (json.contains("rope_base")) c.rope_base = GoldenNumber(json["rope_base"], "rope_base");
  c.tokens = Batch(json, "tokens", c, 0);
  c.targets = Batch(json, "targets", c, -1);
  std::map<std::string, std::vector<size_t>> shapes, grad_shapes;
  c.params = Tensors(json.at("params"), "params", &shapes);
  c.grads = Tensors(json.at("grads"), "grads", &grad_shapes);
  if (static_cast<size_t>(c.layers) > c.params.size()) throw std::invalid_argument("params lacks layers of the model");
  for (const auto& [name, shape] : shapes) {
    const auto grad = grad_shapes.find(name);
    if (grad == grad_shapes.end()) throw std::invalid_argument("grads." + name + " is missing");
    if (grad->second != shape) throw std::invalid_argument("grads." + name + " has another shape than params." + name);
  }
  for (const auto& [name, shape] : grad_shapes) {
    if (shapes.count(name) == 0) throw std::invalid_argument("grads." + name + " has no parameter of its name");
  }
  c.loss = GoldenNumber(json.at("loss"), "loss");
  // at(): one of the two without the other is a fault of the file.
  if (json.contains("loss_with_ntk") || json.contains("ntk")) {
    const Json& ntk = json.at("ntk");
    c.loss_with_ntk = GoldenNumber(json.at("loss_with_ntk"), "loss_with_ntk");
    c.ntk_train_length = GoldenInteger(ntk.at("train_length"), "ntk.train_length", 1);
    c.ntk_base = GoldenNumber(ntk.at("base"), "ntk.base");
    AddUnknown(ntk, "ntk.", {"train_length", "base"}, &c);
  } else {
    c.not_covered.push_back("loss_with_ntk");
  }
  if (json.contains("adamw")) {
    const Json& adamw = json["adamw"];
    for (const auto& [key, to] : {std::pair{"lr", &c.learning_rate},
                                  {"beta1", &c.beta1},
                                  {"beta2", &c.beta2},
                                  {"eps", &c.eps},
                                  {"weight_decay", &c.weight_decay},
                                  {"clip", &c.clip}}) {
      if (to == &c.learning_rate || adamw.contains(key)) *to = GoldenNumber(adamw.at(key), absl::StrCat("adamw.", key));
    }
    std::vector<size_t> steps;
    c.step_losses = GoldenArray(adamw.at("losses"), "adamw.losses", &steps);
    if (steps.size() != 1 || steps[0] == 0)
      throw std::invalid_argument("adamw.losses must be a list of numbers, one a step");
    if (adamw.contains("grad_norms")) {
      c.step_grad_norms = GoldenArray(adamw["grad_norms"], "adamw.grad_norms", steps);
    } else {
      c.not_covered.push_back("adamw.grad_norms");
    }
    AddUnknown(adamw, "adamw.", {"lr", "beta1", "beta2", "eps", "weight_decay", "clip", "losses", "grad_norms"}, &c);
  } else {
    c.not_covered.push_back("adamw");
  }
  AddUnknown(json, "",
             {"name", "spec", "config", "rope_base", "tokens", "targets", "params", "grads", "loss", "loss_with_ntk",
              "ntk", "adamw"},
             &c);
  return c;
}

}  // namespace

absl::StatusOr<std::vector<GoldenModelCase>> ReadGoldenModel(const std::string& path) {
  std::vector<GoldenModelCase> cases;
  ABLATE_RETURN_IF_ERROR(ForEachGoldenCase(path, [&cases](const Json& json) { cases.push_back(ParseCase(json)); }));
  return cases;
}

}  // namespace ablate
