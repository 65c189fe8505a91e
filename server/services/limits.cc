#include "server/services/limits.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/strings.h"
#include "google/protobuf/message.h"
#include "proto/resources.pb.h"

namespace ablate {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr TextLimit kTexts[] = {
    {"", 4096},  // every text without a row of its own
    {"request_id", 128, true},
    {"sweep", 256, true},
    {"job_id", 256, true},
    {"worker_id", 256, true},
    {"incarnation", 256},
    {"yaml", 1 << 20, true, "write long lists of values as ranges {from, to, step}, or split the sweep"},
    {"sql", 1 << 20, true, "select less, or read a copy of the database (docs/results-database.md)"},
    {"sha256", 64, true},
    {"page_token", 1024},
    {"file_name", 4096},
    {"baseline_arm_json", 64 << 10},
    {"metrics", 256, true},
    {"held_stage_keys", 256, true},
    {"also", 256, true},
    {"factors", 256, true},
    {"arm_json", 64 << 10, true},
    {"arms_json", 64 << 10, true},
    {"why", 4096, true},
    {"role", 16, true},
    {"token_name", 64, true},
    {"token", 256, true},
    {"labels", 256},
    {"metric", 256},
    {"chunk", 1 << 20, false, "send smaller parts"},
    {"ResultArtifact.name", 128},
    {"media_type", 128},
    {"Failure.message", 64 << 10},
    {"stderr_tail", 64 << 10},
};

constexpr std::string_view kWorkerLists = "the worker and the coordinator must be of one release";

constexpr ListLimit kLists[] = {
    {"", 1000},  // every list without a row of its own
    {"DataRef.files", 10'000, "join the files into fewer, larger ones"},
    {"task_files", 10'000, "name fewer files in evaluate.tasks"},
    {"GetTableRequest.metrics", 1000, "leave metrics out for all of them"},
    {"CompareArmsRequest.metrics", 1000, "leave metrics out for all of them"},
    {"GetEffectsRequest.metrics", 1000},
    {"GetCurvesRequest.metrics", 100},
    {"arms_json", 1000, "leave arms_json out for all of them"},
    {"factors", 100},
    {"also", 100},
    {"states", 100},
    {"labels", 100},
    {"attempts", 100'000, kWorkerLists},
    {"held_stage_keys", 10'000, kWorkerLists},
    {"running_job_ids", 100'000, kWorkerLists},
    {"points", 1'000'000, kWorkerLists},
    {"TaskResult.metrics", 100'000, kWorkerLists},
    {"documents", 2'000'000, "score fewer documents"},
    {"artifacts", 1000, kWorkerLists},
};

constexpr double kLargest = 9e18;

constexpr NumberLimit kNumbers[] = {
    {"level", 0, 1},  // of confidence: both excluded, but 0 means the usual one
    {"page_size", 0, 1000},
    {"max_points", 0, 5000},
    {"offset", 0, kLargest},
    {"max_rows", 0, 10'000'000},
    {"time_limit_ms", 0, 600'000},
    {"sequence", 1, kLargest},
    {"sample", 0, 10'000},
    {"lifetime_seconds", 0, 4e9},
    {"max_failures", 0, 1'000'000},
    {"slots", 1, 4096},
    {"slot", 0, 4095},
    {"attempt", 0, kLargest},
    {"step", 0, kLargest},
    {"bytes", 0, kLargest},
    {"points_sequence", 0, kLargest},
    {"document", 0, 2147483647},
    {"targets", 0, 2147483647},
    {"resumed_from_step", 0, kLargest},
    {"diverged_at_step", 0, kLargest},
};

// The row "Message.name", else the row "name"; nullptr where there is neither.
template <typename Row>
const Row* Find(std::span<const Row> rows, const FieldDescriptor* field) {
  const std::string_view message = field->containing_type()->name(), name = field->name();
  const Row* found = nullptr;
  for (const Row& row : rows) {
    if (row.field == name) found = &row;
    if (row.field.size() == message.size() + 1 + name.size() && row.field.substr(0, message.size()) == message &&
        row.field[message.size()] == '.' && row.field.substr(message.size() + 1) == name) {
      return &row;
    }
  }
  return found;
}

absl::Status Bad(const FieldDescriptor* field, std::string_view what, std::string_view instead = {}) {
  return absl::InvalidArgumentError(absl::StrCat(field->containing_type()->name(), ".", field->name(), ": ",
                                                 ToAbsl(what), instead.empty() ? "" : "; ", ToAbsl(instead)));
}

// Of these requests the field may be left out: all sweeps, or one of job and sweep.
bool MayBeEmpty(const FieldDescriptor* field) {
  const std::string_view request = field->containing_type()->name();
  if (field->name() == "request_id") return false;
  return request == "VerifyJobsRequest" ||
         (field->name() == "sweep" && (request == "ListJobsRequest" || request == "ListVerificationsRequest"));
}

// A field with its rows, looked up once: a Sync may carry a hundred thousand points.
struct FieldRules {
  const FieldDescriptor* field;
  const TextLimit* text = nullptr;
  const ListLimit* list = nullptr;
  const NumberLimit* number = nullptr;
};

const std::vector<FieldRules>& RulesOf(const Descriptor* descriptor) {
  thread_local std::unordered_map<const Descriptor*, std::vector<FieldRules>> known;
  const auto [it, fresh] = known.try_emplace(descriptor);
  if (!fresh) return it->second;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    FieldRules rules{descriptor->field(i)};
    bool checked = true;
    switch (rules.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        rules.text = Find(TextLimits(), rules.field);
        if (rules.text == nullptr) rules.text = kTexts;
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_INT64:
      case FieldDescriptor::CPPTYPE_DOUBLE:
        rules.number = Find(NumberLimits(), rules.field);
        checked = rules.number != nullptr;
        break;
      default:
        checked = false;
    }
    if (rules.field->is_repeated()) {
      rules.list = Find(ListLimits(), rules.field);
      if (rules.list == nullptr) rules.list = kLists;
      checked = true;
    }
    if (checked) it->second.push_back(rules);
  }
  return it->second;
}

absl::Status CheckText(const FieldRules& rules, const std::string& text, bool of_request) {
  const FieldDescriptor* field = rules.field;
  if (text.empty()) {
    return of_request && rules.text->required && !MayBeEmpty(field) ? Bad(field, "must not be empty")
                                                                    : absl::OkStatus();
  }
  if (text.size() > rules.text->max_bytes) {
    return Bad(field, absl::StrCat("is ", text.size(), " bytes long; at most ", rules.text->max_bytes, " are allowed"),
               rules.text->instead);
  }
  if (field->name() == "sha256" && !IsSha256Hex(text)) return Bad(field, "expected 64 lower-case hexadecimal digits");
  if (field->full_name() == "ablate.v1.ResultArtifact.name" &&
      (text == "." || text == ".." || text.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)) {
    return Bad(field, "expected the name of a file, without a path");
  }
  return absl::OkStatus();
}

absl::Status CheckNumber(const FieldRules& rules, double value) {
  const NumberLimit& limit = *rules.number;
  if (rules.field->name() == "level") {
    if (value == 0 || (value > limit.minimum && value < limit.maximum)) return absl::OkStatus();
    return Bad(rules.field, absl::StrCat("must be above 0 and below 1, such as 0.95; got ", value));
  }
  if (value >= limit.minimum && value <= limit.maximum) return absl::OkStatus();
  return Bad(rules.field, absl::StrCat("must be from ", NumberText(limit.minimum), " to ", NumberText(limit.maximum),
                                       "; got ", NumberText(value)));
}

absl::Status CheckMessage(const Message& message, bool of_request);

absl::Status CheckOne(const Message& message, const FieldRules& rules, bool of_request) {
  const auto* reflection = message.GetReflection();
  const FieldDescriptor* field = rules.field;
  if (field->has_presence() && !reflection->HasField(message, field)) return absl::OkStatus();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      return CheckText(rules, reflection->GetStringReference(message, field, &scratch), of_request);
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return CheckNumber(rules, reflection->GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return CheckNumber(rules, static_cast<double>(reflection->GetInt64(message, field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(rules, reflection->GetDouble(message, field));
    default:
      return CheckMessage(reflection->GetMessage(message, field), false);
  }
}

absl::Status CheckList(const Message& message, const FieldRules& rules, bool of_request) {
  const auto* reflection = message.GetReflection();
  const FieldDescriptor* field = rules.field;
  const int items = reflection->FieldSize(message, field);
  if (items > rules.list->max_items) {
    return Bad(field, absl::StrCat("has ", items, " entries; at most ", rules.list->max_items, " are allowed"),
               rules.list->instead);
  }
  for (int i = 0; i < items; ++i) {
    absl::Status status;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      std::string scratch;
      status = CheckText(rules, reflection->GetRepeatedStringReference(message, field, i, &scratch), of_request);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      status = CheckMessage(reflection->GetRepeatedMessage(message, field, i), false);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// protobuf has bounded the depth when it parsed the message.
absl::Status CheckMessage(const Message& message, bool of_request) {
  if (message.GetDescriptor() == v1::WorkerInfo::descriptor()) {
    const auto& worker = static_cast<const v1::WorkerInfo&>(message);
    if (worker.worker_id().empty()) return absl::InvalidArgumentError("WorkerInfo.worker_id: must not be empty");
    if (worker.incarnation().empty()) return absl::InvalidArgumentError("WorkerInfo.incarnation: must not be empty");
  }
  for (const FieldRules& rules : RulesOf(message.GetDescriptor())) {
    const absl::Status status =
        rules.list != nullptr ? CheckList(message, rules, of_request) : CheckOne(message, rules, of_request);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const TextLimit> TextLimits() { return kTexts; }
std::span<const ListLimit> ListLimits() { return kLists; }
std::span<const NumberLimit> NumberLimits() { return kNumbers; }

std::string NumberText(double number) {
  const bool whole = number > -1e15 && number < 1e15 && number == static_cast<double>(static_cast<int64_t>(number));
  return whole ? absl::StrCat(static_cast<int64_t>(number)) : absl::StrCat(number);
}

absl::Status CheckRequest(const Message& request) { return CheckMessage(request, /*of_request=*/true); }

}  // namespace ablate
