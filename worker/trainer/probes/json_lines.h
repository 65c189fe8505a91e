// JSON lines, or one JSON array, object by object. Must not know what the objects are. Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace ablate {

// Calls `item` with each object in order; its errors come back as InvalidArgument with "path:line: ", of an array
// "path: item 3: " in front. Also InvalidArgument: what is no JSON object, and a file without any.
absl::Status ReadJsonLines(const std::string& path, std::string_view content,
                           const std::function<absl::Status(const nlohmann::json&)>& item);

}  // namespace ablate
