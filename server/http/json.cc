#include "server/http/json.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace ablate {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Bad(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": ", ToAbsl(what)));
}

template <typename Number>
absl::StatusOr<Number> ParseWhole(const std::string& name, const std::string& value) {
  Number number = 0;
  if (absl::SimpleAtoi(value, &number)) return number;
  return Bad(name, absl::StrCat("expected a whole number from ", std::numeric_limits<Number>::min(), " to ",
                                std::numeric_limits<Number>::max(), "; got \"", value, "\""));
}

// `set` gets the value by the field's kind.
template <typename Set>
absl::Status ParseValue(const FieldDescriptor* field, const std::string& value, const Set& set) {
  const std::string& name = field->name();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (field->type() != FieldDescriptor::TYPE_STRING) return Bad(name, "bytes are no parameter");
      set(value);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_INT32: {
      ABLATE_ASSIGN_OR_RETURN(const int32_t number, ParseWhole<int32_t>(name, value));
      set(number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      ABLATE_ASSIGN_OR_RETURN(const int64_t number, ParseWhole<int64_t>(name, value));
      set(number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double number = 0;
      if (!absl::SimpleAtod(value, &number)) return Bad(name, absl::StrCat("expected a number; got \"", value, "\""));
      set(number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value != "true" && value != "false") return Bad(name, absl::StrCat("expected true or false; got \"", value, "\""));
      set(value == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumDescriptor* const kinds = field->enum_type();
      const auto* kind = kinds->FindValueByName(value);
      if (kind == nullptr) {
        std::vector<std::string> names;
        for (int i = 0; i < kinds->value_count(); ++i) names.push_back(kinds->value(i)->name());
        return Bad(name, absl::StrCat("\"", value, "\" is none of its values", DidYouMean(value, names)));
      }
      set(kind);
      return absl::OkStatus();
    }
    default:
      return Bad(name, "is no parameter; it goes into the body of a POST");
  }
}

// The overloads that protobuf's reflection has as names.
struct Setter {
  Message* message;
  const FieldDescriptor* field;

  template <typename Value>
  void operator()(const Value& value) const {
    const auto* reflection = message->GetReflection();
    const bool list = field->is_repeated();
    if constexpr (std::is_same_v<Value, std::string>) {
      list ? reflection->AddString(message, field, value) : reflection->SetString(message, field, value);
    } else if constexpr (std::is_same_v<Value, int32_t>) {
      list ? reflection->AddInt32(message, field, value) : reflection->SetInt32(message, field, value);
    } else if constexpr (std::is_same_v<Value, int64_t>) {
      list ? reflection->AddInt64(message, field, value) : reflection->SetInt64(message, field, value);
    } else if constexpr (std::is_same_v<Value, double>) {
      list ? reflection->AddDouble(message, field, value) : reflection->SetDouble(message, field, value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      list ? reflection->AddBool(message, field, value) : reflection->SetBool(message, field, value);
    } else {
      list ? reflection->AddEnum(message, field, value) : reflection->SetEnum(message, field, value);
    }
  }
};

std::vector<std::string> FieldNames(const Descriptor* descriptor, const std::set<std::string>& taken) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    if (taken.count(field->name()) == 0 && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) names.push_back(field->name());
  }
  return names;
}

}  // namespace

absl::Status SetField(const std::string& name, const std::string& value, Message* request) {
  const FieldDescriptor* const field = request->GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return absl::InternalError(absl::StrCat("no field ", name));
  return ParseValue(field, value, Setter{request, field});
}

absl::Status FillFromQuery(const std::vector<std::pair<std::string, std::string>>& query,
                           const std::set<std::string>& taken, Message* request) {
  const Descriptor* const descriptor = request->GetDescriptor();
  std::set<std::string> given;
  for (const auto& [name, value] : query) {
    const FieldDescriptor* const field = descriptor->FindFieldByName(name);
    if (field == nullptr || taken.count(name) > 0) {
      const std::vector<std::string> names = FieldNames(descriptor, taken);
      return Bad(name, absl::StrCat("there is no such parameter here",
                                    names.empty() ? "; there is none at all" : DidYouMean(name, names)));
    }
    if (!given.insert(name).second && !field->is_repeated()) return Bad(name, "is given more than once");
    ABLATE_RETURN_IF_ERROR(ParseValue(field, value, Setter{request, field}));
  }
  return absl::OkStatus();
}

absl::Status FillFromBody(std::string_view body, const std::set<std::string>& taken, Message* request) {
  if (body.empty()) return absl::OkStatus();
  if (!IsUtf8(body)) return absl::InvalidArgumentError("the body is not UTF-8");
  // Of this type alone: what is parsed on top of what is there would hide a field that the path has set.
  const std::unique_ptr<Message> parsed(request->New());
  const auto status = google::protobuf::util::JsonStringToMessage({body.data(), body.size()}, parsed.get());
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is no JSON of a ", parsed->GetDescriptor()->name(), ": ", ToUtf8(ToStd(status.ToString()))));
  }
  std::vector<const FieldDescriptor*> fields;
  parsed->GetReflection()->ListFields(*parsed, &fields);
  for (const FieldDescriptor* field : fields) {
    if (taken.count(field->name()) > 0) return Bad(field->name(), "is in the address already; leave it out of the body");
  }
  request->MergeFrom(*parsed);
  return absl::OkStatus();
}

std::string ErrorJson(absl::StatusCode code, std::string_view message) {
  const nlohmann::json error = {{"error", {{"code", absl::StatusCodeToString(code)}, {"message", std::string(message)}}}};
  return error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:  // by the server's end
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace ablate
