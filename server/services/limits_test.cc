// Every text, list and number of every request, one above its limit: found by reflection, so that a new field is in.
#include "server/services/limits.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "experiments/yaml_tree.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "proto/access.pb.h"
#include "proto/artifacts.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/link.pb.h"

namespace ablate {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

const std::string kHash(64, 'a');

std::vector<const Descriptor*> Requests() {
  std::vector<const Descriptor*> requests;
  for (const auto* file :
       {v1::GetJobRequest::descriptor()->file(), v1::SyncRequest::descriptor()->file(),
        v1::StatArtifactRequest::descriptor()->file(), v1::ListTokensRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        requests.push_back(file->service(s)->method(m)->input_type());
      }
    }
  }
  return requests;
}

// With all that a message and its parts must have.
void FillRequired(Message* message) {
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->is_repeated() || field->containing_oneof() != nullptr) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      reflection->SetString(message, field, field->name() == "sha256" ? kHash : "x");
    }
    if (field->name() == "sequence") reflection->SetInt64(message, field, 1);
    if (field->name() == "slots") reflection->SetInt32(message, field, 1);
    if (field->name() == "worker") FillRequired(reflection->MutableMessage(message, field));
  }
}

// Calls `visit` with each field that a request can hold, at any depth, and with what makes a fresh request whose
// message with that field is given back in `holder`.
using Make = std::function<std::unique_ptr<Message>(Message** holder)>;
void ForEachField(const Descriptor* descriptor, const Make& make, std::set<const Descriptor*> above,
                  const std::function<void(const FieldDescriptor*, const Make&)>& visit) {
  if (!above.insert(descriptor).second) return;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    visit(field, make);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    const Make inner = [make, field](Message** holder) {
      Message* outer = nullptr;
      std::unique_ptr<Message> request = make(&outer);
      *holder = field->is_repeated() ? outer->GetReflection()->AddMessage(outer, field)
                                     : outer->GetReflection()->MutableMessage(outer, field);
      FillRequired(*holder);
      return request;
    };
    ForEachField(field->message_type(), inner, above, visit);
  }
}

void ForEachFieldOfRequests(const std::function<void(const FieldDescriptor*, const Make&)>& visit) {
  std::set<const FieldDescriptor*> seen;
  for (const Descriptor* descriptor : Requests()) {
    const Make make = [descriptor](Message** holder) {
      std::unique_ptr<Message> request(
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
      FillRequired(request.get());
      *holder = request.get();
      return request;
    };
    ForEachField(descriptor, make, {}, [&](const FieldDescriptor* field, const Make& inner) {
      if (seen.insert(field).second) visit(field, inner);
    });
  }
  EXPECT_GT(seen.size(), 100u);
}

template <typename Row>
Row RowOf(std::span<const Row> rows, const FieldDescriptor* field) {
  for (const std::string& name : {absl::StrCat(field->containing_type()->name(), ".", field->name()), field->name()}) {
    for (const Row& row : rows) {
      if (row.field == name) return row;
    }
  }
  return rows[0];
}

std::string NameOf(const FieldDescriptor* field) {
  return absl::StrCat(field->containing_type()->name(), ".", field->name(), ": ");
}

std::string Refusal(const Message& request) {
  const absl::Status status = CheckRequest(request);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(Limits, EveryTextHasOne) {
  int texts = 0;
  ForEachFieldOfRequests([&](const FieldDescriptor* field, const Make& make) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return;
    ++texts;
    const TextLimit row = RowOf(TextLimits(), field);
    const auto with = [&](size_t bytes) {
      Message* holder = nullptr;
      const std::unique_ptr<Message> request = make(&holder);
      std::string text(bytes, 'a');
      field->is_repeated() ? holder->GetReflection()->AddString(holder, field, std::move(text))
                           : holder->GetReflection()->SetString(holder, field, std::move(text));
      return Refusal(*request);
    };
    EXPECT_EQ(with(row.max_bytes), "") << NameOf(field);
    const std::string refusal = with(row.max_bytes + 1);
    EXPECT_THAT(refusal, HasSubstr(absl::StrCat(NameOf(field), "is ", row.max_bytes + 1, " bytes long; at most ",
                                                row.max_bytes, " are allowed")));
    EXPECT_THAT(refusal, HasSubstr(std::string(row.instead)));
  });
  EXPECT_GT(texts, 40);
}

TEST(Limits, EveryListHasOne) {
  int lists = 0;
  ForEachFieldOfRequests([&](const FieldDescriptor* field, const Make& make) {
    if (!field->is_repeated()) return;
    ++lists;
    const ListLimit row = RowOf(ListLimits(), field);
    Message* holder = nullptr;
    const std::unique_ptr<Message> request = make(&holder);
    const auto* reflection = holder->GetReflection();
    for (int i = 0; i <= row.max_items; ++i) {
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
          reflection->AddString(holder, field, "x");
          break;
        case FieldDescriptor::CPPTYPE_MESSAGE:
          reflection->AddMessage(holder, field);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          reflection->AddEnumValue(holder, field, 1);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          reflection->AddInt64(holder, field, 1);
          break;
        default:
          FAIL() << NameOf(field) << "a list of a type that this test does not know";
      }
    }
    const std::string refusal = Refusal(*request);
    EXPECT_THAT(refusal, HasSubstr(absl::StrCat(NameOf(field), "has ", row.max_items + 1, " entries; at most ",
                                                row.max_items, " are allowed")));
    EXPECT_THAT(refusal, HasSubstr(std::string(row.instead)));
    reflection->RemoveLast(holder, field);
    EXPECT_EQ(Refusal(*request), "") << NameOf(field);
  });
  EXPECT_GT(lists, 15);
}

TEST(Limits, NumbersHaveRanges) {
  int numbers = 0;
  ForEachFieldOfRequests([&](const FieldDescriptor* field, const Make& make) {
    const bool is_int32 = field->cpp_type() == FieldDescriptor::CPPTYPE_INT32;
    if (field->is_repeated() || (!is_int32 && field->cpp_type() != FieldDescriptor::CPPTYPE_INT64)) return;
    const NumberLimit row = RowOf(NumberLimits(), field);
    if (row.field != field->name()) return;
    ++numbers;
    const auto with = [&](int64_t value) {
      Message* holder = nullptr;
      const std::unique_ptr<Message> request = make(&holder);
      is_int32 ? holder->GetReflection()->SetInt32(holder, field, static_cast<int32_t>(value))
               : holder->GetReflection()->SetInt64(holder, field, value);
      return Refusal(*request);
    };
    const auto minimum = static_cast<int64_t>(row.minimum), maximum = static_cast<int64_t>(row.maximum);
    EXPECT_EQ(with(minimum), "") << NameOf(field);
    EXPECT_EQ(with(maximum), "") << NameOf(field);
    EXPECT_THAT(with(minimum - 1), HasSubstr(absl::StrCat(NameOf(field), "must be from ", NumberText(row.minimum),
                                                          " to ", NumberText(row.maximum), "; got ", minimum - 1)));
    if (maximum < 2'000'000'000) {
      EXPECT_THAT(with(maximum + 1), HasSubstr(absl::StrCat("; got ", maximum + 1)));
    }
  });
  EXPECT_GT(numbers, 12);
}

TEST(Limits, ASweepFileIsAsLongHereAsWhereItIsRead) {
  EXPECT_EQ(RowOf(TextLimits(), v1::SubmitSweepRequest::descriptor()->FindFieldByName("yaml")).max_bytes,
            kMaxYamlBytes);
}

TEST(Limits, ThePageSaysThem) {
  const auto page = ReadFile(absl::StrCat(ABLATE_DOCS_DIR, "/limits.md"));
  ASSERT_TRUE(page.ok()) << page.status();
  const auto name = [](std::string_view field) {
    return field.empty() ? std::string("any other") : absl::StrCat("`", std::string(field), "`");
  };
  for (const TextLimit& row : TextLimits()) {
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("\n| ", name(row.field), " | ", row.max_bytes, " |\n")));
  }
  for (const ListLimit& row : ListLimits()) {
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("\n| ", name(row.field), " | ", row.max_items, " |\n")));
  }
  for (const NumberLimit& row : NumberLimits()) {
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("\n| ", name(row.field), " | ", NumberText(row.minimum), " | ",
                                              NumberText(row.maximum), " |\n")));
  }
  EXPECT_THAT(*page, HasSubstr(absl::StrCat("at most ", kMaxMessageBytes, " bytes")));
}

TEST(Limits, AFileThatATaskMadeHasANameAndNoPath) {
  v1::SyncRequest request;
  FillRequired(&request);
  v1::ResultArtifact* made = request.add_attempts()->mutable_result()->add_artifacts();
  for (const char* name : {"../map.bin", "/etc/passwd", "a/b", "..", ".", "a\\b"}) {
    made->set_name(name);
    EXPECT_THAT(Refusal(request), HasSubstr("ResultArtifact.name: expected the name of a file")) << name;
  }
  made->set_name(std::string("a\0b", 3));
  EXPECT_THAT(Refusal(request), HasSubstr("ResultArtifact.name"));
  made->set_name("psalm.layer0..bin");
  EXPECT_EQ(Refusal(request), "");
  made->mutable_artifact()->set_sha256("../../etc/passwd");
  EXPECT_THAT(Refusal(request), HasSubstr("ArtifactRef.sha256: expected 64 lower-case hexadecimal digits"));
}

TEST(Limits, WhatOrdinaryWorkersSendFits) {
  v1::SyncRequest request;
  FillRequired(&request);
  for (int i = 0; i < 256; ++i) request.add_held_stage_keys(kHash);
  for (int slot = 0; slot < 8; ++slot) {
    v1::AttemptReport* report = request.add_attempts();
    report->set_job_id("job_1");
    report->set_attempt(1);
    report->set_slot(slot);
    report->mutable_failure()->set_stderr_tail(std::string(16 << 10, 'x'));
    report->mutable_checkpoint()->mutable_weights()->set_sha256(kHash);
    for (int i = 0; i < 3750; ++i) report->add_points()->set_metric("train_loss");
    for (int i = 0; i < 10'000; ++i) report->mutable_result()->add_documents()->set_targets(100);
    for (int i = 0; i < 8 * 24 * 16; ++i)
      report->mutable_result()->add_metrics()->set_metric("attention_first.l23.h15");
  }
  EXPECT_EQ(Refusal(request), "");
  EXPECT_LT(request.ByteSizeLong(), static_cast<size_t>(kMaxMessageBytes));
}

}  // namespace
}  // namespace ablate
