// Fuzz target: a task's files of items. First byte: how much of the rest is PIQA's second file of labels.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/memory_file.h"
#include "worker/trainer/probes/choice_items.h"
#include "worker/trainer/probes/json_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const size_t labels = rest.size() * (TakeByte(&rest) % 4) / 8;
  int64_t objects = 0;
  const absl::Status lines = ReadJsonLines("fuzz.jsonl", rest, [&](const nlohmann::json& object) {
    CHECK(object.is_object());
    ++objects;
    return absl::OkStatus();
  });
  CHECK(lines.ok() ? objects > 0 : absl::IsInvalidArgument(lines)) << lines;
  for (const std::string_view second : {std::string_view(), rest.substr(rest.size() - std::min(labels, rest.size()))}) {
    const auto items = ReadChoiceItems("fuzz.jsonl", rest.substr(0, rest.size() - second.size()), second);
    if (!items.ok()) {
      CHECK(absl::IsInvalidArgument(items.status())) << items.status();
      continue;
    }
    CHECK(!items->empty());
    for (const ChoiceItem& item : *items) {
      CHECK_GE(item.choices.size(), 2u);
      CHECK(item.right >= 0 && item.right < static_cast<int>(item.choices.size()));
    }
  }
  return 0;
}
