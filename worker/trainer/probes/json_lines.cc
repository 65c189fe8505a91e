#include "worker/trainer/probes/json_lines.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

absl::Status Visit(const std::string& where, const nlohmann::json& object,
                   const std::function<absl::Status(const nlohmann::json&)>& item) {
  const absl::Status status = object.is_object() ? item(object) : absl::InvalidArgumentError("expected a JSON object");
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(where, ": ", status.message()));
}

}  // namespace

absl::Status ReadJsonLines(const std::string& path, std::string_view content,
                           const std::function<absl::Status(const nlohmann::json&)>& item) {
  int64_t seen = 0;
  const size_t begin = content.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && content[begin] == '[') {
    const auto array = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
    if (!array.is_array()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON array to its end"));
    for (const auto& object : array) {
      ABLATE_RETURN_IF_ERROR(Visit(absl::StrCat(path, ": item ", ++seen), object, item));
    }
  } else {
    int64_t line_number = 0;
    while (!content.empty()) {
      const size_t end = std::min(content.find('\n'), content.size());
      const std::string_view line = content.substr(0, end);
      content.remove_prefix(std::min(end + 1, content.size()));
      ++line_number;
      if (absl::StripAsciiWhitespace(ToAbsl(line)).empty()) continue;
      const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      ABLATE_RETURN_IF_ERROR(Visit(absl::StrCat(path, ":", line_number), object, item));
      ++seen;
    }
  }
  if (seen == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": no item; expected a JSON object a line"));
  return absl::OkStatus();
}

}  // namespace ablate
