// JSON arrays of texts and numbers, as some columns hold them. The JSON library stays in json_text.cc.
#pragma once

#include <string>
#include <vector>

namespace ablate {

std::string ToJsonArray(const std::vector<std::string>& texts);
// Whatever is not an array of texts gives what texts it has.
std::vector<std::string> FromJsonArray(const std::string& json);
// An object's members as (name, value as JSON text), sorted by name; empty for anything but an object.
std::vector<std::pair<std::string, std::string>> JsonMembers(const std::string& json);

}  // namespace ablate
