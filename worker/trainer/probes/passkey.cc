#include "worker/trainer/probes/passkey.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/resources.pb.h"

namespace ablate {

PasskeyDraw DrawPasskeyTrial(uint64_t seed, int length, int index, int depths) {
  PasskeyDraw draw =
      DrawPasskey(PhiloxStream(seed, absl::StrCat("probe/passkey/", length)), static_cast<uint64_t>(index));
  // Below 1 whatever the rounding.
  draw.place = std::min((index % depths + draw.place) / depths, std::nextafter(1.0, 0.0));
  return draw;
}

absl::StatusOr<bool> MeasurePasskey(const ProbeContext& context, const Tokenizer& tokenizer, const Continue& answer,
                                    v1::TaskResult* result) {
  const auto& options = context.eval.passkey;
  const PasskeyText text(options.prompt, tokenizer);
  const int tokens = context.length - kPasskeyNewTokens;
  // Each bin of depth needs a place of its own.
  const int least = text.least_prompt_tokens() + options.depths - 1;
  if (tokens < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task passkey at a length of ", context.length, " tokens: the ", std::string(Name(options.prompt)),
        " prompt with ", options.depths, " depths and the answer take at least ", least + kPasskeyNewTokens,
        options.prompt == PasskeyPrompt::kFull ? "; measure longer lengths, or set eval.passkey.prompt: short"
                                               : "; measure longer lengths, or lower eval.passkey.depths"));
  }
  struct Bin {
    int trials = 0, right = 0;
  };
  std::vector<Bin> bins(static_cast<size_t>(options.depths));
  Bin all;
  bool finite = true;
  const int at_once = context.eval.SequencesAtOnce(options.trials, context.length);
  for (int first = 0; first < options.trials; first += at_once) {
    if (context.control->ShouldStop() != TaskControl::Stop::kNo) return false;
    const int sequences = std::min(at_once, options.trials - first);
    std::vector<int32_t> prompts;
    prompts.reserve(static_cast<size_t>(sequences) * tokens);
    std::vector<int> keys;
    for (int trial = first; trial < first + sequences; ++trial) {
      const PasskeyDraw draw = DrawPasskeyTrial(context.seed, context.length, trial, options.depths);
      ABLATE_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, text.Prompt(draw, tokens));
      prompts.insert(prompts.end(), prompt.begin(), prompt.end());
      keys.push_back(draw.key);
    }
    ABLATE_ASSIGN_OR_RETURN(const Generation generation, answer(prompts, sequences, tokens));
    for (int i = 0; i < sequences; ++i) {
      const auto begin = generation.tokens.begin() + int64_t{i} * kPasskeyNewTokens;
      const std::string said = tokenizer.Decode({begin, begin + kPasskeyNewTokens});
      const bool right = FirstInteger(said) == keys[static_cast<size_t>(i)];
      for (Bin* bin : {&all, &bins[static_cast<size_t>((first + i) % options.depths)]}) {
        ++bin->trials;
        bin->right += right ? 1 : 0;
      }
    }
    for (const float loss : generation.losses) finite = finite && std::isfinite(loss);
    LOG_EVERY_T(INFO, 60) << first + sequences << " of " << options.trials << " passkeys at " << context.length
                          << " tokens done";
    context.control->Progress(first + sequences, 0);
  }
  const auto add = [&](const std::string& suffix, const Bin& bin) {
    if (bin.trials == 0) return;  // fewer trials than bins
    AddMetric(result, absl::StrCat("passkey_accuracy", suffix), static_cast<double>(bin.right) / bin.trials);
    AddMetric(result, absl::StrCat("passkey_trials", suffix), bin.trials);
  };
  add("", all);
  for (size_t bin = 0; bin < bins.size(); ++bin) add(absl::StrCat(".depth_", bin + 1, "_of_", bins.size()), bins[bin]);
  SetOutcome(context, finite, result);
  return true;
}

absl::StatusOr<bool> RunPasskey(const ProbeContext& context, v1::TaskResult* result) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerOf(context));
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kGeneration, context.eval.passkey.trials, context.length));
  const auto answer = [&](const std::vector<int32_t>& prompts, int sequences, int tokens) {
    return context.model->Generate({.tokens = prompts.data(), .B = sequences, .T = tokens}, kPasskeyNewTokens,
                                   context.length, context.eval.options);
  };
  return MeasurePasskey(context, *tokenizer, answer, result);
}

}  // namespace ablate
