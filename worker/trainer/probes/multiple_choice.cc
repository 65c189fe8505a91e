// Zero-shot multiple choice: which continuation of a prompt the model finds most likely. Must not know which data set
// the items are of. Definition: docs/evaluations.md. Thread rule: one thread.
//
// Source: lm-evaluation-harness (loglikelihood requests; acc and acc_norm of multiple_choice tasks).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/resources.pb.h"
#include "worker/trainer/probes/choice_items.h"
#include "worker/trainer/probes/multiple_choice.h"

namespace ablate {
namespace {

absl::StatusOr<std::vector<ChoiceItem>> ItemsOf(const ProbeContext& context) {
  const auto& paths = context.file_paths;
  if (paths.empty() || paths.size() > 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task multiple_choice needs one file of questions (`path`), and one of labels (`labels`) at most; ",
        paths.size(), " came"));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string items, ReadFile(paths[0]));
  std::string labels;
  if (paths.size() == 2) {
    ABLATE_ASSIGN_OR_RETURN(labels, ReadFile(paths[1]));
  }
  // The file's own name says nothing to the user: on a worker it is a hash.
  return ReadChoiceItems(context.task.files(0).path(), items, labels);
}

}  // namespace

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

ChoiceTokens TokensOf(const Tokenizer& tokenizer, std::string_view context, std::string_view choice, int length) {
  const std::vector<int32_t> before = tokenizer.Encode(context);
  // Encoded together, as the last of the prompt may merge with the first of the choice.
  ChoiceTokens both{tokenizer.Encode(absl::StrCat(std::string(context), " ", std::string(choice)))};
  both.scored = static_cast<int>(both.tokens.size() - std::min(before.size(), both.tokens.size() - 1));
  // The last token is a target only; what is cut is the beginning of the prompt, and at worst of the choice.
  if (const size_t most = static_cast<size_t>(length) + 1; both.tokens.size() > most) {
    both.tokens.erase(both.tokens.begin(), both.tokens.end() - static_cast<std::ptrdiff_t>(most));
    both.scored = std::min(both.scored, length);
    both.cut = true;
  }
  return both;
}

absl::StatusOr<bool> MeasureChoices(const ProbeContext& context, const Tokenizer& tokenizer,
                                    const std::vector<ChoiceItem>& items, const Losses& losses_of,
                                    v1::TaskResult* result) {
  int64_t right = 0, right_by_character = 0, cut = 0, done = 0;
  bool finite = true;
  for (const ChoiceItem& item : items) {
    if (context.control->ShouldStop() != TaskControl::Stop::kNo) return false;
    const int choices = static_cast<int>(item.choices.size());
    std::vector<ChoiceTokens> sequences;
    size_t longest = 0;
    bool any_cut = false;
    for (const std::string& choice : item.choices) {
      sequences.push_back(TokensOf(tokenizer, item.context, choice, context.length));
      longest = std::max(longest, sequences.back().tokens.size());
      any_cut = any_cut || sequences.back().cut;
    }
    cut += any_cut ? 1 : 0;
    // A row a choice. What follows a choice in its row is padding, which no earlier position attends to.
    const int T = static_cast<int>(longest) - 1;
    std::vector<int32_t> tokens(static_cast<size_t>(choices) * T, 0), targets(tokens.size(), -1);
    for (int row = 0; row < choices; ++row) {
      const ChoiceTokens& sequence = sequences[static_cast<size_t>(row)];
      const int inputs = static_cast<int>(sequence.tokens.size()) - 1;
      for (int i = 0; i < inputs; ++i) {
        tokens[static_cast<size_t>(row) * T + i] = sequence.tokens[static_cast<size_t>(i)];
        if (i >= inputs - sequence.scored) {
          targets[static_cast<size_t>(row) * T + i] = sequence.tokens[static_cast<size_t>(i) + 1];
        }
      }
    }
    std::vector<float> losses(tokens.size());
    ABLATE_RETURN_IF_ERROR(losses_of(tokens, targets, choices, T, &losses));
    // Log-likelihoods; of equal ones the first counts.
    int best = 0, best_by_character = 0;
    std::vector<double> sums, by_character;
    for (int row = 0; row < choices; ++row) {
      double sum = 0;
      for (int i = 0; i < T; ++i) sum -= losses[static_cast<size_t>(row) * T + i];
      finite = finite && std::isfinite(sum);
      sums.push_back(sum);
      by_character.push_back(sum / static_cast<double>(Characters(item.choices[static_cast<size_t>(row)])));
      if (sum > sums[static_cast<size_t>(best)]) best = row;
      if (by_character.back() > by_character[static_cast<size_t>(best_by_character)]) best_by_character = row;
    }
    right += best == item.right ? 1 : 0;
    right_by_character += best_by_character == item.right ? 1 : 0;
    ++done;
    LOG_EVERY_T(INFO, 60) << done << " of " << items.size() << " questions done";
    context.control->Progress(done, 0);
  }
  const auto count = static_cast<double>(items.size());
  AddMetric(result, "acc", static_cast<double>(right) / count);
  AddMetric(result, "acc_norm", static_cast<double>(right_by_character) / count);
  AddMetric(result, "choice_items", count);
  AddMetric(result, "choice_items_cut", static_cast<double>(cut));
  SetOutcome(context, finite, result);
  return true;
}

absl::StatusOr<bool> RunMultipleChoice(const ProbeContext& context, v1::TaskResult* result) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerOf(context));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<ChoiceItem> items, ItemsOf(context));
  int64_t most = 0;
  for (const ChoiceItem& item : items) most = std::max(most, static_cast<int64_t>(item.choices.size()));
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kLosses, most, context.length));
  const auto losses = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets, int rows, int T,
                          std::vector<float>* out) {
    return context.model->Evaluate(tokens.data(), targets.data(), rows, T, context.eval.options, out->data()).status();
  };
  return MeasureChoices(context, *tokenizer, items, losses, result);
}

}  // namespace ablate
