#include "worker/trainer/passkey_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

constexpr std::string_view kInstruction =
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you about "
    "the important information there.\n";
constexpr std::string_view kFiller =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

void Append(const std::vector<int32_t>& piece, std::vector<int32_t>* tokens) {
  tokens->insert(tokens->end(), piece.begin(), piece.end());
}

// The first `count` tokens of endless filler.
void AppendFiller(const std::vector<int32_t>& first, const std::vector<int32_t>& next, int64_t count,
                  std::vector<int32_t>* tokens) {
  const std::vector<int32_t>* round = &first;
  while (count > 0) {
    const int64_t part = std::min(count, static_cast<int64_t>(round->size()));
    tokens->insert(tokens->end(), round->begin(), round->begin() + part);
    count -= part;
    round = &next;
  }
}

}  // namespace

std::string_view Name(PasskeyPrompt value) { return value == PasskeyPrompt::kFull ? "full" : "short"; }

std::optional<PasskeyPrompt> ParsePasskeyPrompt(std::string_view name) {
  for (const PasskeyPrompt value : {PasskeyPrompt::kFull, PasskeyPrompt::kShort}) {
    if (name == Name(value)) return value;
  }
  return std::nullopt;
}

PasskeyDraw DrawPasskey(const PhiloxStream& stream, uint64_t index) {
  const auto block = stream.Block(index);
  PasskeyDraw draw;
  draw.key = 1 + static_cast<int>((uint64_t{block[0]} * kLargestPasskey) >> 32);
  draw.place = static_cast<double>(((uint64_t{block[3]} << 32) | block[2]) >> 11) * 0x1p-53;
  return draw;
}

PasskeyText::PasskeyText(PasskeyPrompt form, const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const bool full = form == PasskeyPrompt::kFull;
  if (full) {
    opening_ = tokenizer.Encode(kInstruction);
    middle_ = tokenizer.Encode(". Remember it.");
    after_ = tokenizer.Encode(" is the pass key.\n");
  } else {
    after_ = tokenizer.Encode(".\n");
  }
  before_ = tokenizer.Encode("\nThe pass key is");
  question_ = tokenizer.Encode("\nWhat is the pass key? The pass key is");
  end_ = tokenizer.Encode(".\n");
  first_filler_ = tokenizer.Encode(kFiller);
  next_filler_ = tokenizer.Encode(absl::StrCat(" ", std::string(kFiller)));
  size_t longest = 0;
  for (int key = 1; key <= kLargestPasskey; ++key) {
    longest = std::max(longest, tokenizer.Encode(absl::StrCat(" ", key)).size());
  }
  const size_t fixed = opening_.size() + before_.size() + middle_.size() + after_.size() + question_.size();
  least_prompt_ = static_cast<int>(fixed + longest * (full ? 2 : 1));
  least_document_ = least_prompt_ + static_cast<int>(longest + end_.size());
}

absl::StatusOr<std::vector<int32_t>> PasskeyText::Make(const PasskeyDraw& draw, int tokens, bool document) const {
  const int least = document ? least_document_ : least_prompt_;
  if (tokens < least) {
    return absl::InvalidArgumentError(absl::StrCat("a passkey ", document ? "document" : "prompt", " of this form has ",
                                                   least, " tokens without any filler; there is room for ", tokens));
  }
  if (draw.key < 1 || draw.key > kLargestPasskey || !(draw.place >= 0 && draw.place < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a passkey of ", draw.key, " at ", draw.place, " of the filler is out of range"));
  }
  const std::vector<int32_t> key = tokenizer_.Encode(absl::StrCat(" ", draw.key));
  std::vector<int32_t> statement = before_, closing = question_;
  Append(key, &statement);
  if (!middle_.empty()) {
    Append(middle_, &statement);
    Append(key, &statement);
  }
  Append(after_, &statement);
  if (document) {
    Append(key, &closing);
    Append(end_, &closing);
  }
  const int64_t filler = tokens - static_cast<int64_t>(opening_.size() + statement.size() + closing.size());
  const auto before = static_cast<int64_t>(draw.place * static_cast<double>(filler + 1));
  std::vector<int32_t> result;
  result.reserve(static_cast<size_t>(tokens));
  Append(opening_, &result);
  AppendFiller(first_filler_, next_filler_, before, &result);
  Append(statement, &result);
  AppendFiller(first_filler_, next_filler_, filler - before, &result);
  Append(closing, &result);
  return result;
}

absl::StatusOr<std::vector<int32_t>> PasskeyText::Prompt(const PasskeyDraw& draw, int tokens) const {
  return Make(draw, tokens, /*document=*/false);
}

absl::StatusOr<std::vector<int32_t>> PasskeyText::Document(const PasskeyDraw& draw, int tokens) const {
  return Make(draw, tokens, /*document=*/true);
}

std::optional<int64_t> FirstInteger(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto* at = std::find_if(text.begin(), text.end(), digit);
  if (at == text.end()) return std::nullopt;
  int64_t value = 0;
  for (; at != text.end() && digit(*at); ++at) {
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *at - '0', &value)) {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace ablate
