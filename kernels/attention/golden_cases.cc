#include "kernels/attention/golden_cases.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

using Json = nlohmann::json;

template <class Enum>
Enum Parsed(const Json& spec, const char* key, std::optional<Enum> (*parse)(std::string_view)) {
  const std::string text = spec.at(key).get<std::string>();
  const std::optional<Enum> value = parse(text);
  if (!value.has_value()) throw std::invalid_argument(std::string(key) + " is \"" + text + "\", which is unknown");
  return *value;
}

AttentionSpec ParseSpec(const Json& json) {
  AttentionSpec spec;
  for (const auto& [key, value] : json.items()) {
    if (key == "qk_norm") {
      spec.qk_norm = Parsed(json, "qk_norm", ParseQkNorm);
    } else if (key == "scale" && value.is_number()) {
      spec.scale = ScoreScale::kConstant;
      spec.scale_constant = value.get<double>();
    } else if (key == "scale") {
      spec.scale = Parsed(json, "scale", ParseScoreScale);
    } else if (key == "scale_constant") {
      spec.scale_constant = value.get<double>();
    } else if (key == "activation") {
      spec.activation = Parsed(json, "activation", ParseActivation);
    } else if (key == "normalisation") {
      spec.normalisation = Parsed(json, "normalisation", ParseNormalisation);
    } else if (key == "logit_bias") {
      spec.logit_bias = Parsed(json, "logit_bias", ParseLogitBias);
    } else if (key == "train_length") {
      spec.train_length = value.get<int>();
    } else if (key == "sharpen_p") {
      if (!value.is_null()) spec.sharpen_p = value.get<double>();
    } else if (key == "sharpen_offset") {
      spec.sharpen_offset = value.get<double>();
    } else if (key == "offset_free_rows") {
      spec.offset_free_rows = value.get<int>();
    } else {
      throw std::invalid_argument("unknown spec field \"" + key + "\"");
    }
  }
  return spec;
}

std::vector<double> Matrix(const Json& json, const char* key, int T, int d) {
  std::vector<double> values;
  for (const Json& row : json.at(key)) {
    for (const Json& x : row) values.push_back(x.get<double>());
  }
  if (values.size() != static_cast<size_t>(T) * d) throw std::invalid_argument(std::string(key) + " is not [T, d]");
  return values;
}

GoldenAttentionCase ParseCase(const Json& json) {
  GoldenAttentionCase c;
  c.name = json.at("name").get<std::string>();
  c.spec = ParseSpec(json.at("spec"));
  c.T = json.at("T").get<int>();
  c.d = json.at("d").get<int>();
  c.window = json.value("window", 0);
  for (const auto& [key, to] : {std::pair{"q", &c.q}, {"k", &c.k}, {"v", &c.v}, {"dout", &c.dout}, {"out", &c.out},
                                {"dq", &c.dq}, {"dk", &c.dk}, {"dv", &c.dv}}) {
    *to = Matrix(json, key, c.T, c.d);
  }
  c.row_weight_sum = json.value("row_weight_sum", std::vector<double>{});
  c.zero_rows = json.value("zero_rows", std::vector<int>{});
  c.learned_s = json.value("learned_s", 1.0);
  c.learned_b = json.value("learned_b", 0.0);
  if (json.contains("d_learned_s")) c.d_learned_s = json["d_learned_s"].get<double>();
  if (json.contains("d_learned_b")) c.d_learned_b = json["d_learned_b"].get<double>();
  return c;
}

}  // namespace

absl::StatusOr<AttentionSpec> ParseGoldenAttentionSpec(const std::string& json) {
  try {
    return ParseSpec(Json::parse(json));
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("spec: ", e.what()));
  }
}

absl::StatusOr<std::vector<GoldenAttentionCase>> ReadGoldenAttention(const std::string& path) {
  ABLATE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<GoldenAttentionCase> cases;
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
