// protobuf's JSON of a message, with the names of the .proto file and all fields without presence (docs/http-api.md says the
// rules to users). What google::protobuf::util::MessageToJsonString writes, several times as fast: answers of the
// dashboard are made anew each time. A test holds the two against each other. Thread rule: a free function.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ablate {

// Bytes that are not UTF-8 become U+FFFD. No well-known types of Google's: our messages have none.
std::string WriteJson(const google::protobuf::Message& message);

}  // namespace ablate
