// See json_text.h.
#include "server/store/json_text.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace ablate {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // bytes that are not UTF-8 never throw

}  // namespace

std::string ToJsonArray(const std::vector<std::string>& texts) {
  return nlohmann::json(texts).dump(-1, ' ', false, kReplace);
}

std::vector<std::string> FromJsonArray(const std::string& json) {
  std::vector<std::string> texts;
  const nlohmann::json parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_array()) return texts;
  for (const nlohmann::json& item : parsed) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::vector<std::pair<std::string, std::string>> JsonMembers(const std::string& json) {
  std::vector<std::pair<std::string, std::string>> members;
  const nlohmann::json parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return members;
  for (const auto& [name, value] : parsed.items()) members.emplace_back(name, value.dump(-1, ' ', false, kReplace));
  return members;
}

}  // namespace ablate
