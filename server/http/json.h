// Requests as the HTTP interface reads them, and errors as it writes them (docs/http-api.md); answers are json_writer.h's.
// Must not know which messages there are. Thread rule: free functions.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ablate {

// Sets fields of `request` from query parameters: texts, numbers, true or false, names of enums; a list by repeating its
// name. InvalidArgument: a parameter that `request` does not have (with the nearest name), that was `taken` from the
// path, or is given twice without being a list; a value of another kind.
absl::Status FillFromQuery(const std::vector<std::pair<std::string, std::string>>& query,
                           const std::set<std::string>& taken, google::protobuf::Message* request);

// Sets fields of `request` from a JSON object; "" is {}. InvalidArgument: no JSON object, an unknown field, one that was
// `taken` from the path, a value of another kind, more than 100 levels.
absl::Status FillFromBody(std::string_view body, const std::set<std::string>& taken, google::protobuf::Message* request);

// One value as a query parameter or part of a path has it, into a field that is no message.
absl::Status SetField(const std::string& name, const std::string& value, google::protobuf::Message* request);

// {"error": {"code": "NOT_FOUND", "message": "..."}}.
std::string ErrorJson(absl::StatusCode code, std::string_view message);
// The status of HTTP for one of ours.
int HttpStatusOf(absl::StatusCode code);

}  // namespace ablate
