#include "worker/trainer/tokenizer.h"

#include "absl/strings/str_cat.h"
#include "worker/trainer/gpt2_tokenizer.h"

namespace ablate {

std::vector<int32_t> ByteTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string ByteTokenizer::Decode(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < kTextVocabulary) text.push_back(static_cast<char>(token));
  }
  return text;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(DataFormat format, const std::vector<std::string>& paths) {
  switch (format) {
    case DataFormat::kText:
      if (!paths.empty()) {
        return absl::InvalidArgumentError(
            "the model was trained on text, whose tokens are its bytes, but the task names a `tokenizer`; leave it out");
      }
      return std::make_unique<ByteTokenizer>();
    case DataFormat::kTokenShards:
      if (paths.empty()) {
        return absl::InvalidArgumentError(
            "the model was trained on GPT-2 tokens, so this task needs their tokenizer: name its files in the task, "
            "`tokenizer: [encoder.json, vocab.bpe]`");
      }
      return Gpt2Tokenizer::Open(paths);
    default:
      break;
  }
  return absl::InvalidArgumentError("the model was not trained on text, and this task is one of text");
}

}  // namespace ablate
