#include "server/services/adapter.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "proto/resources.pb.h"

namespace ablate {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxStatusBytes = 7000;

// Rules by field name, the same wherever the name appears in a request. A text without a rule is not checked here.
struct TextRule {
  size_t max_bytes;
  bool required;
};
const std::map<std::string_view, TextRule>& TextRules() {
  static const auto& rules = *new std::map<std::string_view, TextRule>{
      {"request_id", {128, true}},  {"sweep", {256, true}},
      {"job_id", {256, true}},      {"worker_id", {256, true}},
      {"yaml", {4 << 20, true}},    {"sql", {1 << 20, true}},
      {"sha256", {64, true}},       {"page_token", {1024, false}},
      {"file_name", {4096, false}}, {"baseline_arm_json", {64 << 10, false}},
      {"metrics", {256, true}},     {"held_stage_keys", {256, true}},
      {"also", {256, true}},        {"factors", {256, true}},
      {"arm_json", {64 << 10, true}}, {"why", {4096, true}},
      {"role", {16, true}},         {"token_name", {64, true}},
      {"token", {256, true}},
  };
  return rules;
}

struct NumberRule {
  double minimum, maximum;
};
const std::map<std::string_view, NumberRule>& NumberRules() {
  static const auto& rules = *new std::map<std::string_view, NumberRule>{
      {"page_size", {0, 1000}},        {"offset", {0, 9e18}},   {"max_rows", {0, 10'000'000}},
      {"time_limit_ms", {0, 600'000}}, {"sequence", {1, 9e18}},
      {"sample", {0, 10'000}},           {"lifetime_seconds", {0, 4e9}},
  };
  return rules;
}

absl::Status Bad(const FieldDescriptor* field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(field->containing_type()->name(), ".", field->name(), ": ", what));
}

absl::Status CheckText(const FieldDescriptor* field, const std::string& text) {
  const auto rule = TextRules().find(field->name());
  if (rule == TextRules().end()) return absl::OkStatus();
  if (text.empty()) {
    // Of these requests the field may be left out: all sweeps, or one of job and sweep.
    const absl::string_view request = field->containing_type()->name();
    const bool may_be_empty = request == "VerifyJobsRequest" ||
                              (field->name() == "sweep" &&
                               (request == "ListJobsRequest" || request == "ListVerificationsRequest"));
    return rule->second.required && (!may_be_empty || field->name() == "request_id") ? Bad(field, "must not be empty") : absl::OkStatus();
  }
  if (text.size() > rule->second.max_bytes) {
    return Bad(field,
               absl::StrCat("is ", text.size(), " bytes long; at most ", rule->second.max_bytes, " are allowed"));
  }
  if (field->name() == "sha256" && !IsSha256Hex(text)) return Bad(field, "expected 64 lower-case hexadecimal digits");
  return absl::OkStatus();
}

absl::Status CheckNumber(const FieldDescriptor* field, double value) {
  if (field->name() == "level" && !(value == 0 || (value > 0 && value < 1))) {
    return Bad(field, absl::StrCat("must be above 0 and below 1, such as 0.95; got ", value));
  }
  const auto rule = NumberRules().find(field->name());
  if (rule == NumberRules().end()) return absl::OkStatus();
  if (!(value >= rule->second.minimum && value <= rule->second.maximum)) {
    return Bad(field,
               absl::StrCat("must be from ", rule->second.minimum, " to ", rule->second.maximum, "; got ", value));
  }
  return absl::OkStatus();
}

absl::Status CheckData(const v1::DataRef& data) {
  for (const v1::DataFile& file : data.files()) {
    if (!file.sha256().empty() && !IsSha256Hex(file.sha256())) {
      return absl::InvalidArgumentError(
          absl::StrCat("DataFile.sha256: expected 64 lower-case hexadecimal digits for ", file.path()));
    }
    if (file.bytes() < 0) return absl::InvalidArgumentError(absl::StrCat("DataFile.bytes: negative for ", file.path()));
  }
  return absl::OkStatus();
}

absl::Status CheckWorker(const v1::WorkerInfo& worker) {
  const auto bad = [](const char* field, const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("WorkerInfo.", field, ": ", what));
  };
  if (worker.worker_id().empty() || worker.worker_id().size() > 256) return bad("worker_id", "expected 1 to 256 bytes");
  if (worker.incarnation().empty() || worker.incarnation().size() > 256)
    return bad("incarnation", "expected 1 to 256 bytes");
  if (worker.slots() < 1 || worker.slots() > 4096) return bad("slots", "expected 1 to 4096");
  return absl::OkStatus();
}

absl::Status CheckField(const Message& request, const FieldDescriptor* field) {
  const auto* reflection = request.GetReflection();
  if (field->is_repeated()) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return absl::OkStatus();
    for (int i = 0; i < reflection->FieldSize(request, field); ++i) {
      const absl::Status status = CheckText(field, reflection->GetRepeatedString(request, field, i));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckText(field, reflection->GetString(request, field));
    case FieldDescriptor::CPPTYPE_INT32:
      return CheckNumber(field, reflection->GetInt32(request, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return CheckNumber(field, static_cast<double>(reflection->GetInt64(request, field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(field, reflection->GetDouble(request, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field->message_type() == v1::DataRef::descriptor()) {
        return CheckData(static_cast<const v1::DataRef&>(reflection->GetMessage(request, field)));
      }
      if (field->message_type() == v1::WorkerInfo::descriptor()) {
        return CheckWorker(static_cast<const v1::WorkerInfo&>(reflection->GetMessage(request, field)));
      }
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::Status CheckRequest(const Message& request) {
  const auto* descriptor = request.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const absl::Status status = CheckField(request, descriptor->field(i));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::string_view message = status.message();
  // On the wire, every byte that is not printable ASCII takes three.
  size_t encoded = 0, kept = 0;
  while (kept < message.size()) {
    const unsigned char c = static_cast<unsigned char>(message[kept]);
    encoded += c >= 0x20 && c < 0x7f && c != '%' ? 1 : 3;
    if (encoded > kMaxStatusBytes) break;
    ++kept;
  }
  // Not in the middle of a UTF-8 sequence.
  while (kept > 0 && kept < message.size() && (static_cast<unsigned char>(message[kept]) & 0xc0) == 0x80) --kept;
  std::string text(message.data(), kept);
  if (kept < message.size()) absl::StrAppend(&text, "... (", message.size() - kept, " more bytes)");
  // The two code sets have the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(static_cast<int>(status.code())), text);
}

}  // namespace ablate
