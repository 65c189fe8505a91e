// The text of passkey retrieval: a number hidden in filler, and the question for it at the end. Of the probe, and of
// the training documents of data.mixture. Must not know models or jobs. Source: docs/attention.md part 3 (the prompt of
// arXiv 2305.16300 as SSMax and LSSAR use it); the short form is ours (docs/evaluations.md).
// Thread rule: const after construction; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/philox.h"
#include "worker/trainer/tokenizer.h"

namespace ablate {

// kFull: instruction, filler, "The pass key is K. Remember it. K is the pass key.", filler, "What is the pass key? The
// pass key is", joined by newlines. kShort: no instruction, and of the statement its first sentence only.
enum class PasskeyPrompt { kFull, kShort };
std::string_view Name(PasskeyPrompt value);
std::optional<PasskeyPrompt> ParsePasskeyPrompt(std::string_view name);  // "full", "short"

inline constexpr int kLargestPasskey = 50000;  // keys are 1 to this

struct PasskeyDraw {
  int key = 0;       // uniform in 1..kLargestPasskey
  double place = 0;  // uniform in [0, 1): the share of the filler that stands before the key
};
// From block `index` of the stream.
PasskeyDraw DrawPasskey(const PhiloxStream& stream, uint64_t index);

class PasskeyText {
 public:
  // Encodes its pieces, each by itself. `tokenizer` must outlive it.
  PasskeyText(PasskeyPrompt form, const Tokenizer& tokenizer);

  // Tokens of the longest prompt, or document, without any filler: with so many, every key fits.
  int least_prompt_tokens() const { return least_prompt_; }
  int least_document_tokens() const { return least_document_; }

  // Exactly `tokens` tokens: the pieces, and filler in the rest, of which floor(place (filler + 1)) tokens stand before
  // the key. InvalidArgument: below least_prompt_tokens() (says both), a key or a place out of range.
  absl::StatusOr<std::vector<int32_t>> Prompt(const PasskeyDraw& draw, int tokens) const;
  // For training: a prompt, its answer " K." and a newline, exactly `tokens` tokens in all. InvalidArgument: likewise.
  absl::StatusOr<std::vector<int32_t>> Document(const PasskeyDraw& draw, int tokens) const;

 private:
  absl::StatusOr<std::vector<int32_t>> Make(const PasskeyDraw& draw, int tokens, bool document) const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> opening_;                     // the instruction, with its newline
  std::vector<int32_t> before_, middle_, after_;     // of the statement: around the key, which stands twice if middle_
  std::vector<int32_t> question_, end_;              // end_: after the answer
  std::vector<int32_t> first_filler_, next_filler_;  // a round of it, the first and every later one
  int least_prompt_ = 0, least_document_ = 0;
};

// The first maximal run of the digits 0 to 9 as a number; nothing: there is none, or it is above 2^63 - 1. What stands
// before the digits (a minus sign too) and after them does not matter.
std::optional<int64_t> FirstInteger(std::string_view text);

}  // namespace ablate
