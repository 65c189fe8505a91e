// Fuzz target: a request of the HTTP interface as it comes, head and body, up to the message that the coordinator would get.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/utf8.h"
#include "google/protobuf/message.h"
#include "google/protobuf/stubs/logging.h"
#include "server/http/head.h"
#include "server/http/json.h"
#include "server/http/json_writer.h"
#include "server/http/origin.h"
#include "server/http/routes.h"
#include "server/http/uri.h"
#include "server/services/limits.h"

namespace ablate {
namespace {

void Ask(std::string_view method, const Target& target, std::string_view body) {
  std::string allowed;
  const auto found = FindRoute(method, target.segments, &allowed);
  if (!found.ok()) {
    CHECK(absl::IsNotFound(found.status()) || absl::IsUnimplemented(found.status())) << found.status();
    return;
  }
  if (found->route->new_request == nullptr) return;
  const auto message = found->route->new_request();
  std::set<std::string> taken;
  for (const auto& field : found->fields) taken.insert(field.first);
  const absl::Status filled = method == "GET" ? FillFromQuery(target.query, taken, message.get()) : FillFromBody(body, taken, message.get());
  CHECK(filled.ok() || absl::IsInvalidArgument(filled)) << filled;
  CHECK(IsUtf8({filled.message().data(), filled.message().size()}));
  if (!filled.ok()) return;
  for (const auto& [name, value] : found->fields) CHECK(SetField(name, value, message.get()).ok());
  const absl::Status checked = CheckRequest(*message);
  CHECK(checked.ok() || absl::IsInvalidArgument(checked)) << checked;
  // What is written is text, and reads back as the same.
  const std::string json = WriteJson(*message);
  CHECK(IsUtf8(json));
  const std::unique_ptr<google::protobuf::Message> again(message->New());
  const absl::Status back = FillFromBody(json, {}, again.get());
  CHECK(back.ok()) << back << json;
  CHECK_EQ(WriteJson(*again), json);
}

}  // namespace
}  // namespace ablate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  static const bool quiet = [] {
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  (void)quiet;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = FindHeadEnd(input, 0);
  if (end == 0) return 0;
  const HttpHead head = ScanHead(input.substr(0, end));
  if (head.status != 0) {
    CHECK(head.status >= 400 && head.status < 500 && !head.message.empty());
    return 0;
  }
  CHECK(head.body_bytes >= 0 && head.body_bytes <= kMaxHttpBodyBytes);
  CHECK(head.text.size() <= end && head.text.compare(head.text.size() - 4, 4, "\r\n\r\n") == 0);
  const std::vector<std::string> words = absl::StrSplit(head.text.substr(0, head.text.find("\r\n")), ' ');
  if (words.size() != 3) return 0;
  static const OriginChecker& origins = *new OriginChecker("127.0.0.1:7480", {}, false, false);
  (void)origins.Check(words[2], true, words[1]);
  const auto target = ParseTarget(words[1]);
  if (!target.ok()) {
    CHECK(absl::IsInvalidArgument(target.status())) << target.status();
    return 0;
  }
  Ask(words[0], *target, input.substr(end));
  return 0;
}
