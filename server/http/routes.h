// The one table of what the HTTP interface serves (docs/http-api.md): a route is a line that binds an address to a method
// of the coordinator. Who may call it is what server/access/roles.cc says of the gRPC method that it names.
// Must not know HTTP beyond method and address. Thread rule: constant; calls as the coordinator says.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ablate {

class Coordinator;

struct Route {
  enum class Kind {
    kCall,     // one call, one answer
    kMe,       // who the caller is and what it may do
    kHealth,
    kChanges,  // server-sent events
  };
  std::string_view method;   // "GET", "POST"
  std::string_view pattern;  // "/api/v1/sweeps/{sweep}/grid": {FIELD} is a part of the address and a field of the request
  std::string_view rule;     // "ablate.v1.Sweeps/GetGrid"
  Kind kind = Kind::kCall;
  std::unique_ptr<google::protobuf::Message> (*new_request)() = nullptr;
  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> (*call)(Coordinator*, const google::protobuf::Message&) = nullptr;
};

std::span<const Route> Routes();

struct FoundRoute {
  const Route* route = nullptr;
  std::vector<std::pair<std::string, std::string>> fields;  // of the address, by name
};
// `segments` as ParseTarget decodes them. NotFound: no such address. Unimplemented: it takes another method
// (`allowed` gets which).
absl::StatusOr<FoundRoute> FindRoute(std::string_view method, const std::vector<std::string>& segments, std::string* allowed);

}  // namespace ablate
