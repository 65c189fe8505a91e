#include "kernels/attention/golden_cases.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "kernels/attention/golden_cases_json.h"

namespace ablate {
namespace {

using Json = nlohmann::json;

template <class Enum>
Enum Parsed(const Json& spec, const char* key, std::optional<Enum> (*parse)(std::string_view)) {
  const std::string text = GoldenString(spec.at(key), absl::StrCat("spec.", key));
  const std::optional<Enum> value = parse(text);
  if (!value.has_value()) throw std::invalid_argument(std::string(key) + " is \"" + text + "\", which is unknown");
  return *value;
}

// "constant(2)" of docs/attention.md; false for any other text.
bool ParseConstantScale(const std::string& text, double* c) {
  const std::string open = "constant(";
  return text.rfind(open, 0) == 0 && text.back() == ')' &&
         absl::SimpleAtod(text.substr(open.size(), text.size() - open.size() - 1), c);
}

GoldenAttentionCase ParseCase(const Json& json) {
  GoldenAttentionCase c;
  c.name = GoldenString(json.at("name"), "name");
  c.spec = ParseGoldenAttentionSpec(json.at("spec"));
  c.T = GoldenInteger(json.at("T"), "T", 1);
  c.d = GoldenInteger(json.at("d"), "d", 1);
  if (json.contains("window")) c.window = GoldenInteger(json["window"], "window", 0);
  const std::vector<size_t> rows = {static_cast<size_t>(c.T)}, matrix = {rows[0], static_cast<size_t>(c.d)};
  for (const auto& [key, to] : {std::pair{"q", &c.q},
                                {"k", &c.k},
                                {"v", &c.v},
                                {"dout", &c.dout},
                                {"out", &c.out},
                                {"dq", &c.dq},
                                {"dk", &c.dk},
                                {"dv", &c.dv}}) {
    *to = GoldenArray(json.at(key), key, matrix);
  }
  if (json.contains("row_weight_sum")) {
    c.row_weight_sum = GoldenArray(json["row_weight_sum"], "row_weight_sum", rows);
  } else {
    c.not_covered.push_back("row_weight_sum");
  }
  if (json.contains("zero_rows")) {
    c.zero_rows.emplace();
    if (!json["zero_rows"].is_array()) throw std::invalid_argument("zero_rows must be a list");
    for (const Json& row : json["zero_rows"]) c.zero_rows->push_back(GoldenInteger(row, "zero_rows", 0, c.T - 1));
  } else {
    c.not_covered.push_back("zero_rows");
  }
  if (json.contains("learned_s")) c.learned_s = GoldenNumber(json["learned_s"], "learned_s");
  if (json.contains("learned_b")) c.learned_b = GoldenNumber(json["learned_b"], "learned_b");
  // at(): a member that learns a parameter must come with its gradient.
  if (c.spec.has_learned_scale() || json.contains("d_learned_s")) {
    c.d_learned_s = GoldenNumber(json.at("d_learned_s"), "d_learned_s");
  }
  if (c.spec.has_learned_bias() || json.contains("d_learned_b")) {
    c.d_learned_b = GoldenNumber(json.at("d_learned_b"), "d_learned_b");
  }
  for (std::string& name :
       GoldenUnknownFields(json, "",
                           {"name", "spec", "T", "d", "window", "q", "k", "v", "dout", "out", "dq", "dk", "dv",
                            "row_weight_sum", "zero_rows", "learned_s", "learned_b", "d_learned_s", "d_learned_b"})) {
    c.not_covered.push_back(std::move(name));
  }
  return c;
}

}  // namespace

std::string GoldenString(const Json& value, const std::string& name) {
  if (!value.is_string()) throw std::invalid_argument(name + " must be a text");
  return value.get<std::string>();
}

double GoldenNumber(const Json& value, const std::string& name) {
  if (!value.is_number()) throw std::invalid_argument(name + " must be a number");
  return value.get<double>();
}

int GoldenInteger(const Json& value, const std::string& name, int least, int most) {
  // As double first: every integer of JSON compares rightly with the bounds, whatever its size.
  if (!value.is_number_integer() || value.get<double>() < least || value.get<double>() > most) {
    throw std::invalid_argument(absl::StrCat(name, " must be an integer from ", least, " to ", most));
  }
  return value.get<int>();
}

std::vector<double> GoldenArray(const Json& value, const std::string& name, std::vector<size_t>* shape) {
  if (!value.is_array()) throw std::invalid_argument(name + " must be a list of numbers, or of rows of numbers");
  std::vector<double> out;
  const bool rows = !value.empty() && value[0].is_array();
  const size_t columns = rows ? value[0].size() : 0;
  for (const Json& item : value) {
    if (!rows) {
      out.push_back(GoldenNumber(item, absl::StrCat(name, "[", out.size(), "]")));
      continue;
    }
    if (!item.is_array() || item.size() != columns)
      throw std::invalid_argument(name + " has rows of different lengths");
    for (const Json& x : item) out.push_back(GoldenNumber(x, absl::StrCat("an element of ", name)));
  }
  if (shape != nullptr) *shape = rows ? std::vector<size_t>{value.size(), columns} : std::vector<size_t>{value.size()};
  return out;
}

std::vector<double> GoldenArray(const Json& value, const std::string& name, const std::vector<size_t>& shape) {
  std::vector<size_t> got;
  std::vector<double> out = GoldenArray(value, name, &got);
  if (got != shape) {
    throw std::invalid_argument(absl::StrCat(name, " must have ", shape[0], shape.size() > 1 ? " rows of " : " numbers",
                                             shape.size() > 1 ? absl::StrCat(shape[1], " numbers") : ""));
  }
  return out;
}

std::vector<std::string> GoldenUnknownFields(const Json& object, const std::string& prefix,
                                             const std::set<std::string>& known) {
  std::vector<std::string> out;
  for (const auto& [key, value] : object.items()) {
    if (known.count(key) == 0) out.push_back(prefix + key);
  }
  return out;
}

AttentionSpec ParseGoldenAttentionSpec(const Json& json) {
  AttentionSpec spec;
  if (!json.is_object()) throw std::invalid_argument("spec must be an object");
  for (const auto& [key, value] : json.items()) {
    if (key == "qk_norm") {
      spec.qk_norm = Parsed(json, "qk_norm", ParseQkNorm);
    } else if (key == "scale" && value.is_number()) {
      spec.scale = ScoreScale::kConstant;
      spec.scale_constant = value.get<double>();
    } else if (key == "scale" && value.is_string() &&
               ParseConstantScale(value.get<std::string>(), &spec.scale_constant)) {
      spec.scale = ScoreScale::kConstant;
    } else if (key == "scale") {
      spec.scale = Parsed(json, "scale", ParseScoreScale);
    } else if (key == "scale_constant") {
      spec.scale_constant = GoldenNumber(value, "spec.scale_constant");
    } else if (key == "activation") {
      spec.activation = Parsed(json, "activation", ParseActivation);
    } else if (key == "normalisation") {
      spec.normalisation = Parsed(json, "normalisation", ParseNormalisation);
    } else if (key == "logit_bias") {
      spec.logit_bias = Parsed(json, "logit_bias", ParseLogitBias);
    } else if (key == "train_length") {
      spec.train_length = GoldenInteger(value, "spec.train_length", 0);
    } else if (key == "sharpen_p") {
      if (!value.is_null()) spec.sharpen_p = GoldenNumber(value, "spec.sharpen_p");
    } else if (key == "sharpen_offset") {
      spec.sharpen_offset = GoldenNumber(value, "spec.sharpen_offset");
    } else if (key == "offset_free_rows") {
      spec.offset_free_rows = GoldenInteger(value, "spec.offset_free_rows", 0);
    } else {
      throw std::invalid_argument("unknown spec field \"" + key + "\"");
    }
  }
  return spec;
}

absl::Status ForEachGoldenCase(const std::string& path, const std::function<void(const Json&)>& parse) {
  ABLATE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::string where = path;
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("cases") || !json["cases"].is_array() || json["cases"].empty())
      throw std::invalid_argument("\"cases\" must be a list of at least one case");
    const Json& cases = json["cases"];
    for (size_t i = 0; i < cases.size(); ++i) {
      where = absl::StrCat(path, ": cases[", i, "]");
      if (!cases[i].is_object()) throw std::invalid_argument("a case must be an object");
      parse(cases[i]);
    }
  } catch (const Json::parse_error& e) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not JSON, from byte ", e.byte, " on"));
  } catch (const Json::exception& e) {
    const std::string what = e.what();  // "[json.exception.out_of_range.403] key 'q' not found"
    const size_t words = what.find("] ");
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", words == std::string::npos ? what : what.substr(words + 2)));
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", e.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GoldenAttentionCase>> ReadGoldenAttention(const std::string& path) {
  std::vector<GoldenAttentionCase> cases;
  ABLATE_RETURN_IF_ERROR(ForEachGoldenCase(path, [&cases](const Json& json) { cases.push_back(ParseCase(json)); }));
  return cases;
}

}  // namespace ablate
