#include "worker/trainer/probes/choice_items.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "worker/trainer/probes/json_lines.h"

namespace ablate {
namespace {

using Json = nlohmann::json;

absl::Status Missing(std::string_view field, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("field \"", ToAbsl(field), "\": expected ", ToAbsl(expected)));
}

absl::StatusOr<std::string> Text(const Json& item, const char* field) {
  const auto found = item.find(field);
  if (found == item.end() || !found->is_string()) return Missing(field, "a text");
  return found->get<std::string>();
}

// A label as a number from 0; datasets write it as a number or as a text.
absl::StatusOr<int> Index(const Json& label, size_t choices) {
  int64_t index = -1;
  if (label.is_number_integer()) index = label.get<int64_t>();
  if (label.is_string() && !absl::SimpleAtoi(label.get<std::string>(), &index)) index = -1;
  if (index < 0 || index >= static_cast<int64_t>(choices)) {
    return Missing("label", absl::StrCat("a number from 0 to ", choices - 1));
  }
  return static_cast<int>(index);
}

// Of ARC: the choice whose label is the answer's key.
absl::StatusOr<ChoiceItem> Arc(const Json& item) {
  ChoiceItem result;
  // A const object has no [] for what it lacks.
  const Json question = item.value("question", Json());
  const Json choices = (question.is_object() ? question : item).value("choices", Json());
  std::vector<std::string> labels;
  if (question.is_object()) {
    ABLATE_ASSIGN_OR_RETURN(result.context, Text(question, "stem"));
    if (!choices.is_array()) return Missing("choices", "a list of {text, label}");
    for (const Json& choice : choices) {
      if (!choice.is_object()) return Missing("choices", "a list of {text, label}");
      ABLATE_ASSIGN_OR_RETURN(result.choices.emplace_back(), Text(choice, "text"));
      ABLATE_ASSIGN_OR_RETURN(labels.emplace_back(), Text(choice, "label"));
    }
  } else {
    ABLATE_ASSIGN_OR_RETURN(result.context, Text(item, "question"));
    const auto texts = [&](const char* field, std::vector<std::string>* list) -> absl::Status {
      if (!choices.is_object() || !choices.contains(field) || !choices[field].is_array()) {
        return Missing("choices", "{text: [...], label: [...]}");
      }
      for (const Json& entry : choices[field]) {
        if (!entry.is_string()) return Missing("choices", "lists of texts");
        list->push_back(entry.get<std::string>());
      }
      return absl::OkStatus();
    };
    ABLATE_RETURN_IF_ERROR(texts("text", &result.choices));
    ABLATE_RETURN_IF_ERROR(texts("label", &labels));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string key, Text(item, "answerKey"));
  result.right = -1;
  for (size_t i = 0; i < labels.size() && i < result.choices.size(); ++i) {
    if (labels[i] == key) result.right = static_cast<int>(i);
  }
  if (labels.size() != result.choices.size() || result.right < 0) {
    return Missing("answerKey", "the label of one choice");
  }
  result.context = absl::StrCat("Question: ", result.context, "\nAnswer:");
  return result;
}

// What the harness does to HellaSwag's WikiHow texts.
std::string WithoutMarkup(std::string_view given) {
  const std::string text = absl::StrReplaceAll(absl::StripAsciiWhitespace(ToAbsl(given)), {{" [title]", ". "}});
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    // "[...]" within a line; by hand, as std::regex takes a stack frame a character.
    const size_t end = text[i] == '[' ? text.find_first_of("]\n", i) : std::string::npos;
    if (end != std::string::npos && text[end] == ']') {
      i = end + 1;
    } else {
      plain.push_back(text[i++]);
    }
  }
  return absl::StrReplaceAll(plain, {{"  ", " "}});
}

absl::StatusOr<ChoiceItem> HellaSwag(const Json& item) {
  ChoiceItem result;
  std::string context;
  if (item.contains("ctx_a")) {
    ABLATE_ASSIGN_OR_RETURN(const std::string a, Text(item, "ctx_a"));
    ABLATE_ASSIGN_OR_RETURN(std::string b, Text(item, "ctx_b"));
    // str.capitalize of the harness; the dataset's texts begin in ASCII.
    absl::AsciiStrToLower(&b);
    if (!b.empty()) b[0] = absl::ascii_toupper(static_cast<unsigned char>(b[0]));
    context = absl::StrCat(a, " ", b);
  } else {
    ABLATE_ASSIGN_OR_RETURN(context, Text(item, "ctx"));
  }
  if (item.contains("activity_label")) {
    ABLATE_ASSIGN_OR_RETURN(const std::string activity, Text(item, "activity_label"));
    context = absl::StrCat(activity, ": ", context);
  }
  result.context = WithoutMarkup(context);
  if (!item["endings"].is_array()) return Missing("endings", "a list of texts");
  for (const Json& ending : item["endings"]) {
    if (!ending.is_string()) return Missing("endings", "a list of texts");
    result.choices.push_back(WithoutMarkup(ending.get<std::string>()));
  }
  ABLATE_ASSIGN_OR_RETURN(result.right, Index(item.value("label", Json()), result.choices.size()));
  return result;
}

absl::StatusOr<ChoiceItem> Piqa(const Json& item, const std::optional<Json>& label) {
  ChoiceItem result;
  ABLATE_ASSIGN_OR_RETURN(const std::string goal, Text(item, "goal"));
  result.context = absl::StrCat("Question: ", goal, "\nAnswer:");
  for (const char* field : {"sol1", "sol2"}) {
    ABLATE_ASSIGN_OR_RETURN(result.choices.emplace_back(), Text(item, field));
  }
  if (!label && !item.contains("label"))
    return Missing("label", "0 or 1, in the item or in a second file (PIQA's .lst)");
  ABLATE_ASSIGN_OR_RETURN(result.right, Index(label ? *label : item["label"], 2));
  return result;
}

absl::StatusOr<ChoiceItem> SciQ(const Json& item) {
  ChoiceItem result;
  std::string support;
  if (item.contains("support")) {
    ABLATE_ASSIGN_OR_RETURN(support, Text(item, "support"));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string question, Text(item, "question"));
  result.context = absl::StrCat(absl::StripLeadingAsciiWhitespace(support), "\nQuestion: ", question, "\nAnswer:");
  for (const char* field : {"distractor1", "distractor2", "distractor3", "correct_answer"}) {
    ABLATE_ASSIGN_OR_RETURN(result.choices.emplace_back(), Text(item, field));
  }
  result.right = 3;
  return result;
}

absl::StatusOr<ChoiceItem> Read(const Json& item, const std::optional<Json>& label) {
  if (item.contains("answerKey")) return Arc(item);
  if (item.contains("endings")) return HellaSwag(item);
  if (item.contains("goal")) return Piqa(item, label);
  if (item.contains("correct_answer")) return SciQ(item);
  return absl::InvalidArgumentError(
      "not an item of ARC (answerKey), HellaSwag (endings), PIQA (goal) or SciQ (correct_answer)");
}

}  // namespace

absl::StatusOr<std::vector<ChoiceItem>> ReadChoiceItems(const std::string& path, std::string_view content,
                                                        std::string_view labels) {
  std::vector<Json> label_of;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(labels), '\n')) {
    if (!absl::StripAsciiWhitespace(line).empty()) label_of.emplace_back(std::string(absl::StripAsciiWhitespace(line)));
  }
  std::vector<ChoiceItem> items;
  ABLATE_RETURN_IF_ERROR(ReadJsonLines(path, content, [&](const Json& json) -> absl::Status {
    std::optional<Json> label;
    if (!label_of.empty()) {
      if (items.size() >= label_of.size()) {
        return absl::InvalidArgumentError(absl::StrCat("the file of labels has only ", label_of.size()));
      }
      label = label_of[items.size()];
    }
    ABLATE_ASSIGN_OR_RETURN(ChoiceItem item, Read(json, label));
    if (item.choices.size() < 2) return absl::InvalidArgumentError("fewer than two choices");
    for (const std::string& choice : item.choices) {
      if (choice.empty()) return absl::InvalidArgumentError("a choice is empty");
    }
    items.push_back(std::move(item));
    return absl::OkStatus();
  }));
  if (!label_of.empty() && items.size() != label_of.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", items.size(), " items, but the file of labels has ", label_of.size()));
  }
  return items;
}

}  // namespace ablate
