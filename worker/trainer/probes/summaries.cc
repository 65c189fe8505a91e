#include "worker/trainer/probes/summaries.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "proto/resources.pb.h"
#include "worker/trainer/data_tokens.h"
#include "worker/trainer/probes/json_lines.h"
#include "worker/trainer/probes/rouge.h"

namespace ablate {
namespace {

constexpr std::string_view kAsk = "\nTL;DR:";  // as GPT-2's authors asked

absl::StatusOr<std::string> FirstOf(const nlohmann::json& item, std::initializer_list<const char*> fields) {
  for (const char* field : fields) {
    const auto found = item.find(field);
    if (found != item.end() && found->is_string() && !found->get_ref<const std::string&>().empty()) {
      return found->get<std::string>();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("field \"", *fields.begin(), "\": expected a text that is not empty"));
}

}  // namespace

absl::StatusOr<std::vector<SummaryItem>> ReadSummaryItems(const std::string& path, std::string_view content) {
  std::vector<SummaryItem> items;
  ABLATE_RETURN_IF_ERROR(ReadJsonLines(path, content, [&](const nlohmann::json& json) -> absl::Status {
    SummaryItem item;
    ABLATE_ASSIGN_OR_RETURN(item.document, FirstOf(json, {"document", "article", "text"}));
    ABLATE_ASSIGN_OR_RETURN(item.summary, FirstOf(json, {"summary", "highlights"}));
    items.push_back(std::move(item));
    return absl::OkStatus();
  }));
  return items;
}

std::string_view FirstLine(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.substr(0, text.find('\n'));
}

absl::StatusOr<bool> MeasureSummaries(const ProbeContext& context, const Tokenizer& tokenizer,
                                      const std::vector<SummaryItem>& items, const ContinueOne& answer,
                                      v1::TaskResult* result) {
  const std::vector<int32_t> ask = tokenizer.Encode(kAsk);
  const int new_tokens = context.eval.summary_tokens;
  const int room = context.length - new_tokens - static_cast<int>(ask.size());
  if (room < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("task summaries: train.length ", context.length, " has no room for a text beside ", new_tokens,
                     " generated tokens and the question's ", ask.size(), "; lower eval.summaries.tokens"));
  }
  Rouge sum;
  int64_t cut = 0, done = 0;
  bool finite = true;
  for (const SummaryItem& item : items) {
    if (context.control->ShouldStop() != TaskControl::Stop::kNo) return false;
    std::vector<int32_t> prompt = tokenizer.Encode(item.document);
    if (prompt.size() > static_cast<size_t>(room)) {
      prompt.resize(static_cast<size_t>(room));
      ++cut;
    }
    prompt.insert(prompt.end(), ask.begin(), ask.end());
    ABLATE_ASSIGN_OR_RETURN(Generation generation, answer(prompt, new_tokens));
    for (const float loss : generation.losses) finite = finite && std::isfinite(loss);
    if (tokenizer.vocabulary() == kGpt2Vocabulary) {
      const auto end = std::find(generation.tokens.begin(), generation.tokens.end(), kGpt2EndOfText);
      generation.tokens.erase(end, generation.tokens.end());
    }
    const std::string said = tokenizer.Decode(generation.tokens);
    const Rouge rouge = RougeOf(FirstLine(said), item.summary);
    sum.one += rouge.one;
    sum.two += rouge.two;
    sum.longest += rouge.longest;
    ++done;
    LOG_EVERY_T(INFO, 60) << done << " of " << items.size() << " texts done";
    context.control->Progress(done, 0);
  }
  const auto count = static_cast<double>(items.size());
  AddMetric(result, "rouge1", sum.one / count);
  AddMetric(result, "rouge2", sum.two / count);
  AddMetric(result, "rougeL", sum.longest / count);
  AddMetric(result, "summary_items", count);
  AddMetric(result, "summary_items_cut", static_cast<double>(cut));
  SetOutcome(context, finite, result);
  return true;
}

absl::StatusOr<bool> RunSummaries(const ProbeContext& context, v1::TaskResult* result) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerOf(context));
  ABLATE_ASSIGN_OR_RETURN(const std::string content, OnlyFile(context));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<SummaryItem> items,
                          ReadSummaryItems(context.task.files(0).path(), content));
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kGeneration, 1, context.length));
  const auto answer = [&](const std::vector<int32_t>& prompt, int new_tokens) {
    return context.model->Generate({.tokens = prompt.data(), .B = 1, .T = static_cast<int>(prompt.size())}, new_tokens,
                                   context.length, context.eval.options);
  };
  return MeasureSummaries(context, *tokenizer, items, answer, result);
}

}  // namespace ablate
