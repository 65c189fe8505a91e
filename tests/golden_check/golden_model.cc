#include "tests/golden_check/golden_model.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "kernels/attention/golden_cases.h"

namespace ablate {
namespace {

using Json = nlohmann::json;

void Flatten(const Json& json, std::vector<double>* out) {
  if (json.is_array()) {
    for (const Json& item : json) Flatten(item, out);
  } else {
    out->push_back(json.get<double>());
  }
}

TensorMap Tensors(const Json& json) {
  TensorMap out;
  for (const auto& [name, value] : json.items()) Flatten(value, &out[name]);
  return out;
}

std::vector<int32_t> Batch(const Json& json, const char* key, const GoldenModelCase& c, int least) {
  std::vector<int32_t> out;
  for (const Json& row : json.at(key)) {
    for (const Json& token : row) out.push_back(token.get<int32_t>());
  }
  if (out.size() != static_cast<size_t>(c.batch) * c.T) throw std::invalid_argument(std::string(key) + " is not [batch, T]");
  for (const int32_t token : out) {
    if (token < least || token >= c.vocab) {
      throw std::invalid_argument(absl::StrCat(key, " holds ", token, ", outside the vocabulary of ", c.vocab));
    }
  }
  return out;
}

GoldenModelCase ParseCase(const Json& json) {
  GoldenModelCase c;
  c.name = json.at("name").get<std::string>();
  auto spec = ParseGoldenAttentionSpec(json.at("spec").dump());
  if (!spec.ok()) throw std::invalid_argument(std::string(spec.status().message()));
  c.spec = *spec;
  const Json& config = json.at("config");
  for (const auto& [key, to] : {std::pair{"layers", &c.layers}, {"width", &c.width}, {"heads", &c.heads},
                                {"vocab", &c.vocab}, {"T", &c.T}, {"batch", &c.batch}}) {
    *to = config.at(key).get<int>();
    if (*to < 1) throw std::invalid_argument(absl::StrCat("config.", key, " is ", *to, "; it must be at least 1"));
  }
  if (c.width % c.heads != 0) throw std::invalid_argument("config.width is not divisible by config.heads");
  c.rope_base = json.value("rope_base", 10000.0);
  c.tokens = Batch(json, "tokens", c, 0);
  c.targets = Batch(json, "targets", c, -1);
  c.params = Tensors(json.at("params"));
  c.grads = Tensors(json.at("grads"));
  for (const auto& [name, values] : c.grads) {
    const auto param = c.params.find(name);
    if (param == c.params.end() || param->second.size() != values.size()) {
      throw std::invalid_argument("grads." + name + " has no parameter of its size");
    }
  }
  c.loss = json.at("loss").get<double>();
  if (json.contains("loss_with_ntk")) {
    c.loss_with_ntk = json["loss_with_ntk"].get<double>();
    c.ntk_train_length = json.at("ntk").at("train_length").get<int>();
    c.ntk_base = json.at("ntk").at("base").get<double>();
  }
  if (json.contains("adamw")) {
    const Json& adamw = json["adamw"];
    c.learning_rate = adamw.at("lr").get<double>();
    c.beta1 = adamw.value("beta1", c.beta1);
    c.beta2 = adamw.value("beta2", c.beta2);
    c.eps = adamw.value("eps", c.eps);
    c.weight_decay = adamw.value("weight_decay", c.weight_decay);
    c.clip = adamw.value("clip", c.clip);
    c.step_losses = adamw.at("losses").get<std::vector<double>>();
    c.step_grad_norms = adamw.value("grad_norms", std::vector<double>{});
  }
  return c;
}

}  // namespace

absl::StatusOr<std::vector<GoldenModelCase>> ReadGoldenModel(const std::string& path) {
  ABLATE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<GoldenModelCase> cases;
  std::string where = path;
  try {
    const Json json = Json::parse(text);
    for (const Json& item : json.at("cases")) {
      where = absl::StrCat(path, ": cases[", cases.size(), "]");
      cases.push_back(ParseCase(item));
    }
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", e.what()));
  }
  return cases;
}

}  // namespace ablate
