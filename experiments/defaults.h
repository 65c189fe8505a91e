// Defaults that depend on the model preset or on the attention variant. Private to the axes' files.
// Permanent: content keys leave defaults out, so a number here never changes after release; a better default is a new
// preset.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/resources.pb.h"

namespace ablate {

inline constexpr std::string_view kDefaultPreset = "tiny";

std::vector<std::string> ModelPresetNames();

using DefaultMap = std::unordered_map<std::string_view, v1::Value>;

// By axis name. An unknown preset or variant (never past CheckSetting) has none.
const DefaultMap& PresetDefaults(std::string_view preset);
const DefaultMap& VariantDefaults(std::string_view variant);

}  // namespace ablate
