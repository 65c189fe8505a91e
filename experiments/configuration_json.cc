// Configurations as JSON. The writer is by hand: its bytes are hashed into content keys, so no library may change them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "experiments/axes.h"

namespace ablate {
namespace {

void AppendQuoted(const std::string& text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (byte < 0x20) {
      absl::StrAppend(out, "\\u00");
      out->push_back(kHex[byte >> 4]);
      out->push_back(kHex[byte & 15]);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

void AppendValue(const v1::Value& value, std::string* out) {
  switch (value.kind_case()) {
    case v1::Value::kNumber:
      absl::StrAppend(out, ShortestDouble(value.number()));
      return;
    case v1::Value::kText:
      AppendQuoted(value.text(), out);
      return;
    case v1::Value::kFlag:
      absl::StrAppend(out, value.flag() ? "true" : "false");
      return;
    case v1::Value::KIND_NOT_SET:
      absl::StrAppend(out, "null");
      return;
  }
}

}  // namespace

std::string ToJson(const v1::Configuration& config) {
  std::vector<const v1::Setting*> sorted;
  for (const v1::Setting& setting : config.settings()) sorted.push_back(&setting);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const v1::Setting* a, const v1::Setting* b) { return a->axis() < b->axis(); });
  std::string out = "{";
  for (const v1::Setting* setting : sorted) {
    if (out.size() > 1) out.push_back(',');
    AppendQuoted(setting->axis(), &out);
    out.push_back(':');
    AppendValue(setting->value(), &out);
  }
  out.push_back('}');
  return out;
}

absl::StatusOr<v1::Configuration> ConfigurationFromJson(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a JSON object of settings, found ", ToAbsl(text.substr(0, 100))));
  }
  v1::Configuration config;
  for (const auto& [name, item] : json.items()) {
    v1::Setting* setting = config.add_settings();
    setting->set_axis(name);
    if (item.is_number()) {
      *setting->mutable_value() = NumberValue(item.get<double>());
    } else if (item.is_string()) {
      *setting->mutable_value() = TextValue(item.get_ref<const std::string&>());
    } else if (item.is_boolean()) {
      *setting->mutable_value() = FlagValue(item.get<bool>());
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a number, text or flag for ", name, ", found ", item.type_name()));
    }
  }
  return config;
}

}  // namespace ablate
