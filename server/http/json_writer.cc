#include "server/http/json_writer.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "google/protobuf/message.h"

namespace ablate {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void WriteText(std::string_view text, std::string* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  *out += '"';
  size_t plain = 0;  // where what needs no change begins
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f) continue;
    out->append(text.substr(plain, i - plain));
    plain = i + 1;
    switch (byte) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      default:
        *out += "\\u00";
        *out += kDigits[byte >> 4];
        *out += kDigits[byte & 15];
    }
  }
  out->append(text.substr(plain));
  *out += '"';
}

void WriteString(std::string_view text, std::string* out) { IsUtf8(text) ? WriteText(text, out) : WriteText(ToUtf8(text), out); }

// 64-bit integers are in quotes: JavaScript's numbers hold 53 bits.
template <typename Number>
void WriteWhole(Number number, std::string* out) {
  const char* const quote = sizeof(Number) == 8 ? "\"" : "";
  absl::StrAppend(out, quote, number, quote);
}

// The shortest text that reads back as the same number.
template <typename Number>
void WriteReal(Number number, std::string* out) {
  if (!std::isfinite(number)) {
    *out += std::isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    return;
  }
  char text[40];
  const auto end = std::to_chars(text, text + sizeof(text), number);
  out->append(text, end.ptr);
}

void WriteEnum(const FieldDescriptor* field, int number, std::string* out) {
  const auto* value = field->enum_type()->FindValueByNumber(number);
  if (value == nullptr) return WriteWhole(number, out);
  absl::StrAppend(out, "\"", value->name(), "\"");
}

void WriteObject(const Message& message, std::string* out);

// One value: of a list the one at `index`, else index is -1.
void WriteValue(const Message& message, const Reflection& reflection, const FieldDescriptor* field, int index, std::string* out) {
  const bool list = index >= 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      const std::string& text = list ? reflection.GetRepeatedStringReference(message, field, index, &scratch)
                                     : reflection.GetStringReference(message, field, &scratch);
      return field->type() == FieldDescriptor::TYPE_BYTES ? WriteText(absl::Base64Escape(text), out) : WriteString(text, out);
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return WriteWhole(list ? reflection.GetRepeatedInt32(message, field, index) : reflection.GetInt32(message, field), out);
    case FieldDescriptor::CPPTYPE_INT64:
      return WriteWhole(list ? reflection.GetRepeatedInt64(message, field, index) : reflection.GetInt64(message, field), out);
    case FieldDescriptor::CPPTYPE_UINT32:
      return WriteWhole(list ? reflection.GetRepeatedUInt32(message, field, index) : reflection.GetUInt32(message, field), out);
    case FieldDescriptor::CPPTYPE_UINT64:
      return WriteWhole(list ? reflection.GetRepeatedUInt64(message, field, index) : reflection.GetUInt64(message, field), out);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return WriteReal(list ? reflection.GetRepeatedDouble(message, field, index) : reflection.GetDouble(message, field), out);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return WriteReal(list ? reflection.GetRepeatedFloat(message, field, index) : reflection.GetFloat(message, field), out);
    case FieldDescriptor::CPPTYPE_BOOL:
      *out += (list ? reflection.GetRepeatedBool(message, field, index) : reflection.GetBool(message, field)) ? "true" : "false";
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      return WriteEnum(field, list ? reflection.GetRepeatedEnumValue(message, field, index) : reflection.GetEnumValue(message, field), out);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return WriteObject(list ? reflection.GetRepeatedMessage(message, field, index) : reflection.GetMessage(message, field), out);
  }
}

// The key of a map's entry, which JSON has in quotes.
void WriteKey(const Message& entry, std::string* out) {
  std::string key;
  WriteValue(entry, *entry.GetReflection(), entry.GetDescriptor()->map_key(), -1, &key);
  *out += key.empty() || key.front() != '"' ? absl::StrCat("\"", key, "\"") : key;
}

void WriteObject(const Message& message, std::string* out) {
  const Descriptor* const descriptor = message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  *out += '{';
  bool first = true;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    if (field->has_presence() && !reflection.HasField(message, field)) continue;
    absl::StrAppend(out, first ? "\"" : ",\"", field->name(), "\":");
    first = false;
    if (!field->is_repeated()) {
      WriteValue(message, reflection, field, -1, out);
      continue;
    }
    *out += field->is_map() ? '{' : '[';
    for (int k = 0; k < reflection.FieldSize(message, field); ++k) {
      if (k > 0) *out += ',';
      if (field->is_map()) {
        const Message& entry = reflection.GetRepeatedMessage(message, field, k);
        WriteKey(entry, out);
        *out += ':';
        WriteValue(entry, *entry.GetReflection(), entry.GetDescriptor()->map_value(), -1, out);
      } else {
        WriteValue(message, reflection, field, k, out);
      }
    }
    *out += field->is_map() ? '}' : ']';
  }
  *out += '}';
}

}  // namespace

std::string WriteJson(const Message& message) {
  std::string json;
  json.reserve(message.ByteSizeLong() * 3);
  WriteObject(message, &json);
  return json;
}

}  // namespace ablate
